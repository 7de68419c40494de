"""Forty scripts and files of the shape that public repositories have: what becomes of each, held in one file of data."""

import re
from pathlib import Path

from tests.kits.table import hold_all

from lodesman.languages.directives.scripts import translate_script, unread_lines
from lodesman.languages.jobs.foreign import kind_of_file

DATA = Path(__file__).parents[2] / "data/foreign_scripts.txt"
SYSTEMS_OWN = re.compile(r"(SLURM|SGE|PBS|LSB)_\w+|NSLOTS|NHOSTS|NCPUS|JOB_NAME")


def outcome(text):
    """What a script leads to, as lines: its job, what is refused, what has no effect, what is said, what is not read."""
    found = translate_script(text, "job.sh", {})
    if found is None:
        yield f"is {kind_of_file(text)}"
        return
    values = dict(found.attributes)
    variables = values.pop("Environment")
    own = {f"${name}": value for name, value in variables.items() if not SYSTEMS_OWN.fullmatch(name)}
    yield from (f"{name} = {value}" for name, value in (values | own).items())
    yield from ["held"] * found.hold + [f"read by {found.interpreter}"] * bool(found.interpreter)
    yield from (f"refused: {one.option.words}" for one in found.refusals)
    for note in found.notes:
        words, _, reason = note.removeprefix("without effect: ").partition(": ")
        if note.startswith("without effect: "):
            yield f"no effect: {words}: {' '.join(reason.split()[:4])}"
        elif not note.startswith(("#", "line ", "it names ")):
            yield f"said: {words}: {' '.join(reason.split()[:4])}"
    yield from (f"not read: line {number}" for number in unread_lines(text))


def cases():
    """Name, script and wanted lines of each; `\\r` stands for a carriage return."""
    for block in DATA.read_text().split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        script, _, wanted = rest.partition("---\n")
        yield name, script.replace("\\r\n", "\r\n"), wanted.splitlines()


def test_forty_scripts_are_translated_whole_or_refused_by_name():
    every = list(cases())
    assert len(every) == 40

    def check(case):
        name, script, wanted = case
        assert list(outcome(script)) == wanted, name

    hold_all(every, check)
