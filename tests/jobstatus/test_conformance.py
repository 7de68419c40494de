"""The suite in `cases`, on our reader and writer, and on foreign readers; one without locks must fail."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.jobstatus.kits.formula_cases import formula_cases
from tests.jobstatus.kits.runner import (
    CASES,
    Candidate,
    Case,
    all_cases,
    command,
    compare_history,
    run_case,
    stress_script,
)

from lodesman.site.jobstatus.__main__ import main
from lodesman.site.jobstatus.steps import read_script
from lodesman.site.jobstatus.values import KEYS, Status, parse

ROOT = Path(__file__).parents[2]
FOREIGN = ROOT / "tests" / "data" / "jobstatus"
QUIET = [case for case in all_cases() if case.group not in ("locks", "stress")]
# How many of each group there must be.
LEAST = {"values": 15, "missing": 9, "repair": 10, "clocks": 8, "clamps": 6, "formulas": 20, "timeline": 8, "locks": 10,
         "attacks": 12, "stress": 1}  # fmt: skip


def ours(name: str):
    """A command of ours, in this process."""

    def run(arguments) -> str:
        out = StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            main([name, *arguments])
        return out.getvalue()

    return run


def program(python: str, name: str):
    """A command of ours, as a program of its own."""
    return command(f"env PYTHONPATH={ROOT / 'src'} {shlex.quote(python)} -m lodesman.site.jobstatus {name}")


def run_foreign(case: Case, reader: str, folder: Path):
    """Beside our writer, which is a program of its own if it must not rest."""
    writer = program(sys.executable, "write") if case.group == "stress" else ours("write")
    return run_case(case, Candidate(command(reader), writer, foreign=True), folder)


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


@pytest.fixture(scope="module")
def strict_reader(tmp_path_factory) -> str:
    """In C; a machine without a compiler leaves it out."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    target = tmp_path_factory.mktemp("reader") / "strict_reader"
    subprocess.run(
        [compiler, "-O2", "-Wall", "-Werror", "-o", target, FOREIGN / "strict_reader.c"], check=True
    )
    return str(target)


@pytest.fixture(scope="module", params=["this", "3.9"])
def our_command(request) -> Candidate:
    """As a program of its own, by this Python and by 3.9."""
    old = os.environ.get("LODESMAN_OLD_PYTHON") or shutil.which("python3.9")
    python = sys.executable if request.param == "this" else old
    if python is None or subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode:
        pytest.skip("no Python 3.9")
    return Candidate(program(python, "show"), program(python, "write"))


def test_the_suite_is_whole():
    groups = Counter(case.group for case in all_cases())
    assert groups.keys() == LEAST.keys()
    assert {name: count for name, count in groups.items() if count < LEAST[name]} == {}
    numbers = [case.name.split("-")[0] for case in all_cases()]
    assert len(numbers) == len(set(numbers)) >= 90
    assert sorted({file.name for file in CASES.glob("*/*")}) == ["case.json", "steps.json"]


def test_the_formula_cases_are_those_of_the_generator():
    files = [file for file in CASES.glob("5*/*") if file.is_file()]
    assert {str(file.relative_to(CASES)): file.read_text() for file in files} == formula_cases()


@named(QUIET)
def test_our_reader_and_writer(case: Case, tmp_path):
    found = run_case(case, Candidate(ours("show"), ours("write")), tmp_path)
    assert not found
    assert found == [] or "root" in case.data.get("needs", ())


@pytest.mark.slow
@named(all_cases("locks"))
def test_our_reader_and_writer_with_locks(case: Case, tmp_path):
    assert run_case(case, Candidate(ours("show"), ours("write")), tmp_path) == []


@pytest.mark.slow
@named(all_cases("001-plain", "520-random-pilot-20", "605-hold-over", "707-short-wait", "901-stress"))
def test_our_program_on_each_python(case: Case, our_command, tmp_path):
    assert run_case(case, our_command, tmp_path) == []


@pytest.mark.slow
@named(all_cases())
def test_a_strict_reader_in_c(case: Case, strict_reader, tmp_path):
    found = run_foreign(case, strict_reader, tmp_path)
    assert not found
    assert found == [] or case.data["expected"].get("flags") or "needs" in case.data


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock(1)")
@named([case for case in all_cases("001-plain", "formulas", "locks", "stress") if "posix" not in case.name])
def test_a_reader_of_one_line_with_flock(case: Case, tmp_path):
    assert run_foreign(case, str(FOREIGN / "flock_reader.sh"), tmp_path) == []


def read_without_locks(arguments) -> str:
    """A reader that meets a publication in the middle, however fast the machine is.

    It reads the first file, waits until that is published anew, and reads the others.
    """
    directory = Path(arguments[0])
    first = ""
    for _ in range(20_000):
        try:
            contents = {key: (directory / key).read_text() for key in KEYS}
        except FileNotFoundError:
            continue
        first = first or contents["used_CPU"]
        if all(contents.values()) and contents["used_CPU"] != first:
            try:
                keys = {key: parse(key, text.encode()).value for key, text in contents.items()}
                return json.dumps({"error": None, "keys": {**keys, "used_CPU": int(first)}})
            except ValueError:  # half of a number, which nobody published either
                return json.dumps({"error": None, "keys": contents})
    return ""


@pytest.mark.slow
def test_a_reader_without_locks_fails_under_stress(tmp_path):
    (case,) = all_cases("stress")
    candidate = Candidate(read_without_locks, program(sys.executable, "write"), foreign=True)
    (mixed, *_) = run_case(case, candidate, tmp_path)
    assert " readings were never published: " in mixed


def test_each_publication_under_stress_is_another():
    _, steps = read_script(stress_script(50))
    assert len({(step.at, step.do, step.payload) for step in steps}) == len(steps) == 149


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"error": "locked:used_CPU"}, "error"),
        ({"keys": {"used_CPU": 7}}, "keys"),
        ({"kill_waste": 0}, "kill_waste"),
        ({"flags": ["stale"]}, "flags"),
    ],
)
def test_a_reader_that_errs_fails(tmp_path, changed, fault):
    (case,) = all_cases("001-plain")
    good = {**case.data["expected"], **changed}
    (found,) = run_case(case, Candidate(lambda _: json.dumps(good)), tmp_path)
    assert found.startswith(f"{fault}: ")


def test_a_reader_that_says_nothing_fails(tmp_path):
    (case,) = all_cases("801-symlink")
    assert run_case(case, Candidate(lambda _: ""), tmp_path) == ["it prints no JSON: ''"]


def test_a_writer_that_breaks_a_rule_fails():
    drained = Status(
        4, 1_000, 9_000, 9_000, 20_000, 0, 0, can_postpone_last_job=False, priority_factor=0
    ).items()
    lines = [
        {"at": at, "why": "", "written": True, "keys": drained | {"last_max_job_end": end}}
        for at, end in ((1_000, 20_000), (1_100, 30_000))
    ]
    history = "\n".join(map(json.dumps, [*lines, {"at": 1_200, "why": "hold", "refused": "a"}]))
    expected = {"refused": [], "postpone": [[1_000, True]]}
    assert compare_history(expected, history) == [
        "1 enforced end rises",
        "refused: ['a'], not []",
        "postpone: [[1000, False]], not [[1000, True]]",
    ]


def test_a_directory_that_changes_under_a_readers_lock_fails(tmp_path):
    (case,) = all_cases("708-flock-reader")

    def careless(arguments) -> str:
        (Path(arguments[-1]) / "priority_factor").write_text("5\n")
        return ""

    (found,) = run_case(case, Candidate(writer=careless), tmp_path)
    assert found.startswith("keys: ")
