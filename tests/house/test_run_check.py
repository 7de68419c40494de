"""The steps of ./check: lanes, what is told of them, what is repeated, and which tests a change reaches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from textwrap import dedent

import pytest
from scripts import reach, run_check
from scripts.reach import changed_files, reached_tests
from scripts.run_check import Check, Plan, Step, nearest_files, read_arguments, share_files

PYTEST = (sys.executable, "-m", "pytest", "--quiet")


def made_tests(folder: Path, text: str, *words: str) -> Step:
    """A step of tests that may be repeated."""
    path = folder / "test_made.py"
    path.write_text(dedent(text), encoding="utf-8")
    alone = ("-p", "no:cacheprovider", f"--rootdir={folder}", f"--confcutdir={folder}")
    return Step(name="processes", argv=(*PYTEST, *alone, *words, str(path)), may_repeat=True)


def shell(name: str, line: str) -> Step:
    return Step(name=name, argv=("sh", "-c", line))


@pytest.fixture
def check(tmp_path: Path) -> Check:
    place = tmp_path / "said"
    place.mkdir()
    return Check(place)


def test_all_steps_run_and_those_that_failed_are_shown(check, capsys):
    check.run(
        [
            [shell("first", "echo wrong here; exit 3"), shell("second", "echo unseen")],
            [shell("beside", "true")],
        ]
    )
    assert [step.name for step in check.failed] == ["first"]
    said = capsys.readouterr().out
    assert "first: FAILED" in said
    assert "wrong here" in said
    assert "second: ok" in said
    assert "unseen" not in said
    assert "beside: ok" in said


def test_the_lanes_run_at_once(check, tmp_path):
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.05; done"
    here, there = tmp_path / "here", tmp_path / "there"
    check.run([[shell("one lane", meet.format(here, there))], [shell("another", meet.format(there, here))]])
    assert check.failed == []


@pytest.mark.slow
def test_a_test_that_fails_beside_others_and_passes_alone_is_named_loudly(check, tmp_path, capsys):
    flag = tmp_path / "flag"
    text = f"""
        from pathlib import Path
        import pytest
        @pytest.mark.parametrize("words", ["two words - [with] marks"])
        def test_shaky(words):
            flag = Path({str(flag)!r})
            was_there = flag.exists()
            flag.touch()
            assert was_there
        """
    check.run([[made_tests(tmp_path, text)]])
    assert [step.name for step in check.failed] == ["processes"]
    check.repeat_failed()
    assert check.failed == []
    said = capsys.readouterr().out
    assert "RUN AGAIN, ALONE: 1 of processes" in said
    assert "test_made.py::test_shaky[two words - [with] marks]\n" in said
    assert "PASSED ALONE" in said


@pytest.mark.slow
def test_what_fails_twice_has_failed(check, tmp_path):
    check.run([[made_tests(tmp_path, "def test_wrong():\n    assert False\n")]])
    check.repeat_failed()
    assert [step.name for step in check.failed] == ["processes", "processes, again"]


@pytest.mark.slow
def test_a_step_without_tests_has_not_failed(check, tmp_path, capsys):
    check.run([[made_tests(tmp_path, "def test_right(): pass\n", "-m", "nothing")]])
    assert check.failed == []
    assert "processes: there are none" in capsys.readouterr().out


def test_a_stop_ends_the_processes_of_all_steps(check, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # Each of its processes holds the FIFO open: a reader comes to its end when the last one has ended.
    steps = [
        # It speaks from the inner shell: a signal that comes while dash makes a process does not reach that.
        shell("long", f"exec >{fifo}; sh -c 'echo here; exec sleep 1000'; true"),
        shell("next", f"touch {fifo}.next"),
    ]
    runner = threading.Thread(target=check.run, args=([steps],))
    runner.start()
    with fifo.open() as said:
        assert said.readline() == "here\n"
        check.stop()
        assert said.read() == ""
    runner.join(60.0)
    assert not runner.is_alive()
    assert not Path(f"{fifo}.next").exists()


def names_of(*words: str) -> list[list[str]]:
    return [[step.name for step in lane] for lane in Plan(read_arguments(words), {}).lanes()]


def test_what_each_call_runs(monkeypatch, capsys):
    monkeypatch.setattr(run_check, "has_postgresql", lambda: True)
    monkeypatch.setattr(run_check, "changed_files", lambda since: [since] if since else [])
    monkeypatch.setattr(run_check, "reached_tests", lambda changed: ["tests/conftest.py"])
    static = ["format", "lint", "imports", "types"]
    computing = ["quick tests", "slow tests", "tests on PostgreSQL"]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    first, *parts = names_of("--fast")
    assert first == static
    assert parts == [["quick tests, part 1 of 2"], ["quick tests, part 2 of 2"]]
    assert names_of() == [[*static, *computing], ["real batch systems", "end to end"]]
    assert names_of("--local") == [[*static, *computing], ["end to end"]]
    assert names_of("--processes") == [["real batch systems"], ["end to end"]]
    assert names_of("--all") == [[*static, *computing, "long fuzzing"], ["real batch systems", "end to end"]]
    _, waiting = names_of("--since", "HEAD~1")
    assert waiting[-1] == "thorough tests of the change"
    with pytest.raises(SystemExit, match="not both"):
        read_arguments(["--fast", "--all"])


def test_quick_tests_are_shared_whole_and_evenly(monkeypatch, tmp_path):
    monkeypatch.setattr(run_check, "ROOT", tmp_path)
    sizes = {"large": 70, "middle": 40, "small": 20, "least": 10}
    for name, size in sizes.items():
        (tmp_path / name).write_text("x" * size)
    assert share_files([*sizes], 2) == [["large"], ["middle", "small", "least"]]
    assert share_files(["small"], 4) == [["small"]]
    assert share_files([], 4) == []


def test_the_nearest_tests_run_until_a_minute_is_full(monkeypatch, tmp_path):
    monkeypatch.setattr(run_check, "ROOT", tmp_path)
    for name, size in {"near": 70, "tests/api/next": 20, "far": 10}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x" * size)
    paths = ["near", "tests/api/next", "far"]
    # One with a database costs twice its length.
    assert nearest_files(paths, 120) == paths
    assert nearest_files(paths, 119) == paths[:2]
    assert nearest_files(paths, 109) == paths[:1]
    assert nearest_files(paths, 1) == paths[:1]
    assert nearest_files([], 1) == []


@pytest.mark.slow
def test_what_is_named_after_the_change_or_imports_it_comes_first():
    reached = reached_tests(["src/lodesman/languages/quota/__init__.py"])
    place = {path: number for number, path in enumerate(reached)}
    assert all(path.startswith(("tests/house/", "tests/docs/")) for path in reached[:10])
    by_name = place["tests/api/test_api_quotas.py"]
    by_import = place["tests/unit/matching/test_place_book.py"]
    far = place["tests/api/test_api_vo.py"]
    assert by_name < by_import < far


@pytest.mark.slow
def test_a_change_reaches_the_tests_that_import_it():
    reached = reached_tests(["src/lodesman/languages/quota/__init__.py"])
    assert any(path.startswith("tests/unit/quota/") for path in reached)
    assert "tests/house/test_house.py" in reached
    assert not any(path.startswith("tests/unit/jobs/") for path in reached)
    # By way of a kit, and of a fixture that the test names.
    assert "tests/contract/test_backend_contract.py" in reached_tests(["tests/kits/local_kit.py"])
    assert "tests/unit/writer/test_templates.py" in reached_tests(["tests/unit/conftest.py"])
    # What is no module belongs to its package.
    statements = reached_tests(["src/lodesman/server/store/schema.sql"])
    assert "tests/store_contract/test_statements.py" in statements
    assert {path.split("/")[1] for path in reached_tests(["docs/glossary.md"])} == {"docs", "house"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["tests/conftest.py", "pyproject.toml", "requirements/dev.txt", "src/lodesman/__init__.py"]
)
def test_a_change_of_a_foundation_reaches_all(path):
    assert reached_tests([path]) is None


def test_what_git_says_is_changed(tmp_path, monkeypatch):
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
        subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True, timeout=60
        )

    monkeypatch.setattr(reach, "ROOT", tmp_path)
    git("init")
    for name in ("kept", "changed", "committed"):
        (tmp_path / name).write_text(name)
    git("add", "-A")
    git("commit", "-m", "first")
    (tmp_path / "committed").write_text("anew")
    git("commit", "-am", "second")
    (tmp_path / "changed").write_text("anew")
    (tmp_path / "unknown").write_text("anew")
    assert changed_files() == ["changed", "unknown"]
    assert changed_files("HEAD~1") == ["changed", "committed", "unknown"]
    with pytest.raises(SystemExit, match="there is no commit nonsense"):
        changed_files("nonsense")
