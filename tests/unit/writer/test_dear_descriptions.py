"""The dearest descriptions that are read on the event loop of the server: each takes at most 50 ms of CPU."""

from __future__ import annotations

from time import process_time

import pytest
from tests.conftest import untraced
from tests.kits.cost import slowness

from lodesman.base.errors import LodesmanError
from lodesman.languages.jobs import cohorts, read_description, read_job
from lodesman.server.http.jobs import _LARGE

CPU_SECONDS = 0.05
JDL, CFG, JSON = 'Executable = "x";', "Executable = x\n", '{"Executable": "x",'


def filled(head, part, tail=""):
    """As many parts as there is room for, each with its number in it."""
    found, size, number = [head], len(head) + len(tail), 0
    while size + len(more := part.replace("#", str(number))) <= _LARGE:
        found.append(more)
        size += len(more)
        number += 1
    return "".join(found) + tail


DEAR = {
    "JDL, names": filled(JDL, "k#=1;"),
    "JDL, empty lists": filled(f"{JDL} X = {{", "{},", "{}};"),
    "JDL, empty records": filled(f"{JDL} X = {{", "[],", "[]};"),
    "JDL, inputs": filled(f"{JDL} InputSandbox = {{", '"f#",', '"f"};'),
    "JDL, arguments": filled(f"{JDL} Arguments = {{", '"",', '""};'),
    "JDL, environment": filled(f"{JDL} Environment = [", 'a#="";', "];"),
    "JDL, sites": filled(f"{JDL} Site = {{", '"#",', '"x"};'),
    "JDL, jobs before it": filled(f"{JDL} After = {{", "#,", "7};"),
    "JDL, members": filled(f'{JDL} Arguments = "%s %s"; Parameters = {{', "#,", "7};"),
    "JDL, a million members": f'{JDL} Arguments = "%s %n"; Parameters = 1000000; ParameterStart = 1; ParameterStep = 1;',
    "JDL, lists of values": filled(f'{JDL} Arguments = "%n";', "Parameters.p# = {1};"),
    "JDL, fields": filled(f'{JDL} Parameters = {{1, 2}}; Arguments = "', "%s", '";'),
    "JDL, comments": filled(JDL, "/**/"),
    "JDL, marks": filled(JDL, "{"),
    "CFG, names": filled(CFG, "k#=1\n"),
    "CFG, values that are added": filled(CFG, "Arguments += a\n"),
    "CFG, names with values that are added": filled(CFG, "k# += a,b\n"),
    "CFG, sections": filled(CFG, "k#{}\n"),
    "CFG, depth": filled(CFG, "a\n{\n"),
    "CFG, items": filled(f"{CFG}Site = ", ",", "\n"),
    "CFG, comments": filled(CFG, "#\n"),
    "JSON, names": filled(JSON, '"k#":1,', '"z":1}'),
    "JSON, empty lists": filled(f'{JSON} "X": [', "[],", "[]]}"),
    "JSON, depth": filled(f'{JSON} "X": ', "["),
}


def seconds_of(name):
    least = 9.0
    for _ in range(3):
        begun = process_time()
        try:
            parsed = read_description(DEAR[name], form=name.split(",")[0].lower())
            description = read_job(parsed.record, parsed.positions)
            # Those of many kinds go beside the loop.
            if not (description.members and description.spec.deferred):
                cohorts(description, places=parsed.positions)
        except LodesmanError:
            pass
        least = min(least, process_time() - begun)
        if least < CPU_SECONDS:
            break
    return least


@pytest.mark.slow
def test_nothing_that_is_read_on_the_event_loop_takes_long():
    most = 2 * CPU_SECONDS * slowness()
    with untraced():
        spent = {name: seconds_of(name) for name in DEAR}
    assert {name: seconds for name, seconds in spent.items() if seconds > most} == {}
    assert max(map(len, DEAR.values())) <= _LARGE
