"""Jobs as users say them in Python, before anything is sent."""

from __future__ import annotations

import pytest

from lodesman.errors import InvalidJob, InvalidRequest
from lodesman.python.drafts import Options, draft_of


@pytest.mark.parametrize(
    ("what", "options"),
    [
        (["./run.sh", "-x"], Options(files=("run.sh",))),
        ({"Executable": "run.sh", "InputSandbox": ["run.sh", "./run.sh"]}, Options()),
        ({"Executable": "%s.sh", "Parameters": ["go", "run"], "InputSandbox": ["%s.sh"]}, Options()),
        ('Executable = "run.sh"; InputSandbox = "run.sh";', Options()),
    ],
)
def test_a_script_whose_interpreter_no_node_has_is_refused(tmp_path, monkeypatch, what, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\r\n")
    with pytest.raises(InvalidJob, match=r"the first line of run\.sh ends with CR LF"):
        draft_of(what, options)
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\n")
    assert "run.sh" in draft_of(what, options).inputs


def test_a_file_that_is_named_twice_is_one_and_two_of_one_name_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "sub").mkdir()
    what = {"Executable": "/bin/cat", "InputSandbox": ["./a.txt"]}
    assert list(draft_of(what, Options(files=("a.txt",))).inputs) == ["a.txt"]
    (tmp_path / "sub/a.txt").write_text("another")
    with pytest.raises(InvalidRequest, match="two files of one name"):
        draft_of(what, Options(files=("a.txt",)), tmp_path / "sub")
