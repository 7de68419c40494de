"""What jobs execute: which paths a node can have, held beside what pilots find there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import check_program, read_job
from lodesman.pilot.launch import NotStarted, _find_executable, make_place

NAMES = st.sampled_from(["a", "b", "run", "."])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
INPUTS = st.lists(st.tuples(PATHS, st.sampled_from(["", "/"])).map("".join), max_size=3)


def described(executable, *inputs, **more):
    return read_job({"Executable": executable, "InputSandbox": list(inputs), **more})


def refusal(executable, *inputs, **more):
    description = described(executable, *inputs, **more)
    try:
        check_program(description.spec, description.members)
    except InvalidJob as wrong:
        return f"{wrong.data['attribute']}: {wrong.message} {wrong.hint}"
    return ""


@pytest.mark.parametrize(
    ("executable", "inputs", "more", "said"),
    [
        ("./run.sh", (), {}, "--files ./run.sh"),
        ("sub/run.sh", (), {}, "no such file in the job's directory"),
        ("sub/run.sh", ("run.sh",), {}, "write run.sh"),
        ("sub/run.sh", ("other/run.sh",), {}, "write run.sh"),
        ("../run.sh", ("run.sh",), {}, "write run.sh"),
        ("data", ("data/",), {}, "that is a folder"),
        ("data/", ("data/",), {}, "that is a folder"),
        ("data/sub/", ("data/",), {}, "that is a folder"),
        ("data/../run.sh", ("data/",), {}, "no such file"),
        ("/opt/tools/", (), {}, "that is a folder"),
        (".", (), {}, "that is a folder"),
        ("..", (), {}, "that is a folder"),
        ("~/bin/fit", (), {}, "/bin/sh -c reads them"),
        ("$HOME/bin/fit", (), {}, "/bin/sh -c reads them"),
        ("./%s.sh", ("go.sh",), {"Parameters": ["go", "run"]}, "--files ./run.sh"),
        ("%s", ("go.sh",), {"Parameters": ["go.sh", "sub/go.sh"]}, "write go.sh"),
    ],
)
def test_a_program_that_no_node_can_have_is_refused(executable, inputs, more, said):
    assert said in refusal(executable, *inputs, **more)


@pytest.mark.parametrize(
    ("executable", "inputs", "runs"),
    [
        ("sub/run.sh", ("sub/run.sh",), "run.sh"),
        ("./sub/run.sh", ("sub//run.sh",), "run.sh"),
        ("../x/run.sh", ("../x/run.sh",), "run.sh"),
        ("./run.sh", ("run.sh",), "run.sh"),
        ("./run.sh", ("in/run.sh",), "./run.sh"),
        ("data/run.sh", ("data/",), "data/run.sh"),
        ("data/run.sh", ("in/data/",), "data/run.sh"),
        ("python3", (), "python3"),
        ("run.sh", ("data/",), "run.sh"),
        ("/opt/tools/fit", (), "/opt/tools/fit"),
    ],
)
def test_a_program_is_the_file_of_its_path_in_the_input_sandbox(executable, inputs, runs):
    assert refusal(executable, *inputs) == ""
    assert described(executable, *inputs).spec.executable == runs


def test_members_have_programs_of_their_own():
    more = {"Parameters": ["go", "run"]}
    assert refusal("bin/%s.sh", "bin/%s.sh", **more) == ""
    assert described("bin/%s.sh", "bin/%s.sh", **more).spec.executable == "%s.sh"


def test_a_full_path_is_one_of_the_node_and_that_is_said():
    (notice,) = described("/home/ada/run.sh", "/home/ada/run.sh").warnings
    assert (notice.attribute, "that goes along is run.sh" in notice.message) == ("Executable", True)
    assert not described("/bin/sh", "sh").warnings


@given(st.tuples(st.sampled_from(["", "./"]), PATHS).map("".join), INPUTS)
def test_what_is_refused_is_what_a_pilot_does_not_find(tmp_path_factory, executable, inputs):
    """But for folders' contents and commands of the node, which nobody knows before."""
    try:
        description = described(executable, *inputs)
    except InvalidJob:
        return  # two files of one name, or none
    directory = tmp_path_factory.mktemp("job")
    program = description.spec.executable
    for name in dict.fromkeys(inputs):
        flat = Path(name.rstrip("/")).name
        wanted = [flat] if not name.endswith("/") else [f"{flat}/{Path(program).name}", program]
        for one in wanted:
            if one == flat or (one.startswith(f"{flat}/") and not one.endswith("/.")):
                make_place(directory, one).touch()
    try:
        _find_executable(program, directory, "")
        is_found = True
    except NotStarted:
        is_found = "/" not in program and not (directory / program).is_dir()
    try:
        check_program(description.spec, description.members)
        is_taken = True
    except InvalidJob:
        is_taken = False
    assert is_taken == is_found
