"""Files of one name that a job would take along: one file is one, however it is written; two are refused by name."""

import pytest
from tests.kits.table import hold_all
from tests.unit.cli.test_cli_submit import accepting, sent

__all__ = ["accepting"]
HERE = 'Executable = "run.sh"; InputSandbox = {"run.sh"};'
# The words of a call in the folder sub -> what is refused, "" if nothing is.
CALLS = {
    ("--files", "../x/run.sh", "../x/run.sh"): "", ("--files", "../sub/run.sh", "run.sh"): "",
    ("--files", "../sub/run.sh", "--", "./run.sh"): "", ("--files", "../sub/run.sh", "here.jdl"): "",
    ("--files", "run.sh", "--files", "../x/run.sh", "--", "true"): "run.sh and ../x/run.sh are two files of one name",
    ("--files", "run.sh", "../x/run.sh"): "run.sh and ../x/run.sh are two files of one name",
    ("--files", "../x/run.sh", "run.sh"): "../x/run.sh and run.sh are two files of one name",
    ("--files", "../x/run.sh", "here.jdl"): "../x/run.sh and run.sh are two files of one name",
    ("--files", "in", "--files", "../x/in", "--", "true"): "in/a and ../x/in/a are two files of one name",
    ("two.jdl",): "InputSandbox has two files named 'run.sh', run.sh and ../x/run.sh; they share one directory",
}  # fmt: skip


@pytest.fixture
def folders(home, monkeypatch):
    """Two folders with files of the same names; the calls are made in the first."""
    for name in ("sub", "x"):
        (home / name / "in").mkdir(parents=True)
        (home / name / "run.sh").write_text(f"#!/bin/sh\necho {name}\n")
        (home / name / "in/a").write_text(name)
    monkeypatch.chdir(home / "sub")
    (home / "sub/here.jdl").write_text(HERE)
    (home / "sub/two.jdl").write_text(HERE.replace("};", ', "../x/run.sh"};'))


def test_two_files_of_one_name_are_refused_and_one_is_one(at, accepting, folders):
    def check(case):
        words, refused = case
        before = len(sent(accepting))
        done = at("submit", *words)
        assert (done.code, refused in done.err) == (1 if refused else 0, True)
        assert len(sent(accepting)) == before + (not refused)
        if not refused:
            (one,) = sent(accepting)[-1]["sandboxes"]
            assert one.rpartition("/")[2] == "run.sh"

    hold_all(CALLS.items(), check)
