"""Random and hostile expressions of jobs: refused at a place in the text, or judged in bounded time."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conftest import untraced
from tests.fuzz.test_fuzz_classads import PIECES
from tests.kits.classad_kit import expression
from tests.kits.damage import damaged

from lodesman.base.errors import InvalidJob
from lodesman.decide.resources import QueueTable, compile_requirements, expression_table, load_resources
from lodesman.languages.classad.ads import ad_of

SECONDS = 5.0
QUEUES = 2_000
REQUEST = ad_of({"Owner": "ann", "RequestMemory": 2})
DRAW = random.Random(9)
SAMPLES = [expression(DRAW, 4) for _ in range(60)]
SMALL = """
[job_description]
Tags = "list"
[site.a]
Memory = 1
Arch = "x86_64"
Load = 0.5
[site.a.ce.c.queue.q]
Tags = ["a", "b"]
Cpus = 4
[site.b.ce.c.queue.q]
Tags = "ANY"
Memory = "1"
Open = true
"""
NAME = "a.long.name.of.a.site.as.some.grids.have.it"
LARGE = '[job_description]\nTags = "list"\n' + "\n".join(
    f'[site."{NAME}.{n}".ce.c.queue.q]\nN = {n}\nM = {n * 7 % 1_999}\nTags = ["t{n}", "u{n % 50}"]'
    for n in range(QUEUES)
)


@pytest.fixture(scope="module")
def small():
    return QueueTable(load_resources([("s.toml", SMALL)]), "lab")


@pytest.fixture(scope="module")
def large():
    return QueueTable(load_resources([("l.toml", LARGE)]), "lab")


def check_place(text, *, attribute, expression_line, expression_column):
    lines = text.split("\n")
    assert attribute == "Requirements.Constraint"
    assert 1 <= expression_line <= len(lines)
    assert 1 <= expression_column <= len(lines[expression_line - 1]) + 1


def judge(table, text):
    """The queues that it admits; None if it is refused."""
    try:
        criteria = compile_requirements({"Constraint": text}, table.types, REQUEST)
    except InvalidJob as refused:
        check_place(text, **refused.data)
        return None
    mask = table.eligible_mask(criteria)
    assert all(one.queues & ~table.full == 0 for one in table.placement(criteria))
    for bit in table.queues if len(table.queues) < 10 else ():
        assert bool(table.reasons(bit, criteria)) != bool(mask >> bit & 1)
    (stored,) = criteria
    again = compile_requirements({"Constraint": [*stored.wanted, *filter(None, [stored.unit])]}, table.types)
    assert again == criteria
    return mask


@example("1 . a")
@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_any_text_is_refused_or_judged(small, text):
    judge(small, text)


@given(st.one_of(st.sampled_from(SAMPLES), damaged(SAMPLES, PIECES)))
def test_damaged_expressions_are_refused_or_judged(small, text):
    judge(small, text)


HOSTILE = {
    "deep": "(" * 2_000 + "1" + ")" * 2_000,
    "deep choice": "true ? 1 : " * 80 + "true",
    "wide": " && ".join(f"N > {n}" for n in range(120)),
    "huge": "N > 1 && " * 10_000 + "true",
    "a text of many characters": f'"{"x" * 100_000}" == Site',
    "a cycle": "[a = b; b = a].a",
    "of itself": "Constraint && TARGET.Constraint && MY.Constraint",
    "a pattern that goes back": 'regexp("(a*)*(b*)*.*.*.*.*.*.*.*.*.*.*.*.*c$", Site)',
    "many patterns": " && ".join(f'regexp("{n}.*x", strcat(Site, CE, Site))' for n in range(18)),
    "counted patterns": 'regexp("((a{9}){9}){9}", Site)',
    "a computed pattern": "regexp(strcat(Site, Site), Site)",
    "lists of lists": "size({" + ",".join(["Tags"] * 200) + "}) > 1",
    "compared lists": " && ".join(f'anyCompare("<", Tags, Tags[{n}])' for n in range(25)),
    "texts of texts": " && ".join(f'size(split(strcat(Site, "{"x," * 500}"))) > {n}' for n in range(3)),
    "numbers in texts": " && ".join(f'stringListSum(strcat("{"1," * 300}", N)) > {n}' for n in range(5)),
    "versions": f'versionGE(strcat(Site, "{"1." * 900}"), "{"1." * 900}2")',
    "powers": " && ".join(f"pow(N, 3000{n}) > pow(M, {n})" for n in range(20)),
    "arithmetic": " && ".join(f"N * M + N * N - M * {n} > N" for n in range(18)),
    "what changes": " && ".join(f'(CurMatches < N * {n} || Site == "s{n}")' for n in range(20)),
    "any of what changes": " || ".join(f"(CurMatches < N * {n} && M > N)" for n in range(18)),
    "shifts": "N << 1000000000000 > 0 && (1 << N) != M",
    "names": " && ".join(f"'{chr(0x3B1 + n) * 40}' > 1" for n in range(20)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_expressions_take_no_long(large, name):
    with untraced():
        begun = time.process_time()
        judge(large, HOSTILE[name])
        assert time.process_time() - begun < SECONDS


def test_what_was_judged_is_forgotten_before_it_fills_the_memory(small, monkeypatch):
    monkeypatch.setattr(expression_table, "_MOST_KNOWN", 50)
    found = []
    for least in [*range(100), *range(100)]:
        text = f"Cpus > {least % 5} && CurMatches < {least}"
        found.append(small.eligible_mask(compile_requirements({"Constraint": text}, small.types)))
    kept = small._expressions
    assert 0 < len(kept._changing) <= 50
    assert found == [1 if least % 5 < 4 else 0 for least in range(100)] * 2
