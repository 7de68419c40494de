"""The list of submissions: the shipped one and wrong ones."""

from __future__ import annotations

import re

import msgspec
import pytest
from examples.demo.workload import (
    EXAMPLES,
    describe,
    input_files,
    load_workload,
)

from lodesman.base.errors import InvalidConfig, NotFound

ENTRY = '[[submission]]\nfile = "job.jdl"\ngroup = "g"\nexpect = { Done = 2 }\n'
JDL = 'Executable = "run.sh"; InputSandbox = {"run.sh"}; Parameters = 2;'


@pytest.fixture(scope="module")
def shipped():
    return load_workload(EXAMPLES / "workload" / "workload.toml")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.jdl").write_text(JDL)
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    return tmp_path


def write(folder, *, head='vo = "v"\n', body=ENTRY):
    path = folder / "workload.toml"
    path.write_text(head + body)
    return path


def test_the_shipped_workload_is_what_the_demo_promises(shipped):
    assert shipped.jobs >= 200
    assert set(shipped.groups) == {"physics", "bio"}
    assert shipped.vo == "gridlab"
    assert set(shipped.expected) == {"Done", "Failed", "Held"}
    by_composer = dict.fromkeys(("picture", "pi", "words"), 0)
    for submission in shipped.submissions:
        if submission.composer:
            by_composer[submission.composer] += submission.jobs
    assert by_composer["picture"] >= 64
    assert by_composer["pi"] >= 60
    assert by_composer["words"] >= 40


def test_the_shipped_jobs_have_at_least_six_different_needs(shipped):
    needs = set()
    for submission in shipped.submissions:
        spec = describe(submission).spec
        wanted = tuple(sorted((key, str(value)) for key, value in spec.requirements.items()))
        needs.add((wanted, spec.sites, spec.banned_sites, spec.platforms, spec.tags))
    assert len(needs) >= 7  # six and no need at all


def test_what_is_held_is_submitted_so_and_nothing_else(shipped):
    for submission in shipped.submissions:
        assert submission.hold_if_impossible == ("Held" in submission.expect), submission.path


def test_every_description_reads_without_a_warning(shipped):
    for submission in shipped.submissions:
        assert list(describe(submission).warnings) == [], submission.path


def test_the_tiles_and_pieces_of_all_descriptions_cover_the_whole(shipped):
    tiles: list[int] = []
    pieces: list[int] = []
    for submission in shipped.submissions:
        members = describe(submission).members
        if submission.composer in ("picture", "words"):
            assert (members.step, members.factor, members.values) == (1, 1, None)
            numbers = range(int(members.start), int(members.start) + members.count)
            (tiles if submission.composer == "picture" else pieces).extend(numbers)
    assert sorted(tiles) == list(range(96))
    assert sorted(pieces) == list(range(48))


def test_every_shipped_program_is_executable_and_in_its_sandbox(shipped):
    for submission in shipped.submissions:
        spec = describe(submission).spec
        if spec.executable.startswith("/"):
            continue
        assert spec.executable in spec.input_sandbox
        program = submission.path.parent / spec.executable
        assert program.stat().st_mode & 0o111, program
        assert program in input_files(submission, spec)


def test_the_readme_shows_how_to_submit_each(shipped):
    readme = (EXAMPLES / "workload" / "README.md").read_text()
    for submission in shipped.submissions:
        name = f"{submission.path.parent.name}/{submission.path.name}"
        line = next(line for line in readme.splitlines() if "lode submit" in line and name in line)
        assert f"--group {submission.group}" in line
        assert ("--hold-if-impossible" in line) == submission.hold_if_impossible


def test_every_description_of_the_workload_is_listed(shipped):
    root = EXAMPLES / "workload"
    listed = {submission.path for submission in shipped.submissions}
    assert set(root.rglob("*.jdl")) == listed


def test_a_small_workload(folder):
    workload = load_workload(write(folder))
    (submission,) = workload.submissions
    assert (workload.vo, workload.jobs, workload.groups, workload.expected) == ("v", 2, ("g",), {"Done": 2})
    assert (submission.path, submission.composer, submission.hold_if_impossible) == (
        folder / "job.jdl",
        "",
        False,
    )
    assert input_files(submission, describe(submission).spec) == (folder / "run.sh",)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"job.jdl"', "7", "`$.submission[0].file`"),
        ('group = "g"\n', "", "missing required field `group`"),
        ('"g"', '""', "length >= 1 - at `$.submission[0].group`"),
        ('"g"', '"g"\ncolour = "red"', "unknown field `colour`"),
        ('"g"', '"g"\ncomposer = "music"', "Invalid enum value 'music'"),
        ('"g"', '"g"\nhold_if_impossible = 1', "Expected `bool`"),
        ("{ Done = 2 }", "{}", "length >= 1 - at `$.submission[0].expect`"),
        ("{ Done = 2 }", "2", "Expected `object`"),
        ("Done", "Waiting", "Invalid enum value 'Waiting'"),
        ("= 2", "= 0", "`int` >= 1"),
        ("= 2", "= true", "Expected `int`"),
        ("= 2", "= 2.0", "Expected `int`"),
        ("= 2", "= 3", "describes 2 jobs, and 3 are expected"),
    ],
)
def test_a_wrong_entry_is_named_with_its_fault(folder, old, new, complaint):
    path = write(folder, body=ENTRY.replace(old, new))
    with pytest.raises(InvalidConfig, match=re.escape(complaint)) as caught:
        load_workload(path)
    assert caught.value.data["source"]


@pytest.mark.parametrize("text", ["", 'vo = "v"\n', 'vo = "v"\nsubmission = []\n', "vo = 1\n" + ENTRY, ENTRY])
def test_a_list_without_vo_or_submissions_is_refused(folder, text):
    with pytest.raises(InvalidConfig, match=r"`vo`|`submission`|\$\.vo|\$\.submission"):
        load_workload(write(folder, head="", body=text))


def test_an_entry_that_is_no_table_is_refused(folder):
    with pytest.raises(InvalidConfig, match=r"Expected `object`, got `int` - at `\$\.submission\[0\]`"):
        load_workload(write(folder, body="submission = [3]\n"))


def test_broken_toml_is_reported_with_its_position(folder):
    with pytest.raises(InvalidConfig, match="line 2"):
        load_workload(write(folder, body="what is this"))


def test_missing_files_are_named(folder):
    with pytest.raises(NotFound, match=r"workload\.toml"):
        load_workload(folder / "elsewhere" / "workload.toml")
    (folder / "run.sh").unlink()
    with pytest.raises(NotFound, match=r"run\.sh for the input sandbox"):
        load_workload(write(folder))
    (folder / "job.jdl").unlink()
    with pytest.raises(NotFound, match=r"job\.jdl"):
        load_workload(write(folder))


def test_a_wrong_description_is_named_with_its_file_and_position(folder):
    (folder / "job.jdl").write_text('Executable = "run.sh";\nCPUTime = -5;')
    with pytest.raises(InvalidConfig, match=r"job\.jdl.*CPUTime") as caught:
        load_workload(write(folder))
    assert caught.value.data["line"] == 2
    (folder / "job.jdl").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="UTF-8"):
        load_workload(write(folder))


def test_sandbox_names_count_from_the_description_and_absolute_ones_stay(folder):
    absolute = folder / "run.sh"
    (submission,) = load_workload(write(folder)).submissions
    spec = describe(submission).spec
    both = msgspec.structs.replace(spec, input_sandbox=("run.sh", str(absolute)))
    assert input_files(submission, both) == (absolute, absolute)
    with pytest.raises(NotFound):
        input_files(submission, msgspec.structs.replace(spec, input_sandbox=(".",)))
