"""The steps of ./check, in lanes beside each other: what computes, and what waits for processes."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

from scripts.reach import changed_files, reached_tests

ROOT = Path(__file__).resolve().parents[1]
_PYTEST = (sys.executable, "-m", "pytest", "--quiet")
# Thousands of small databases wait for the disk more than they compute: their files go to memory where this is free.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_MEMORY_BYTES = 2_000_000_000
_REPORT_SECONDS = 60.0
# After an interrupt the tests stop their batch systems.
_END_SECONDS = 60.0
_POLL_SECONDS = 0.1
_PROGRESS = re.compile(r"\[ *(\d+%)\]")
# The values of a parametrised test may have blanks.
_FAILED_TEST = re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+(?:\[.*?\](?= - |$))?|\S+)", re.MULTILINE)
# Of the quick tests, for each processor: nothing else fills the time in which a part waits.
_FAST_PARTS = 2
# Bytes of tests that two slow processors run in a minute; what is farther from the change is left to `./check`.
_FAST_BYTES = 1_800_000
# Where nearly each test makes a database, a line costs twice as much.
_WITH_DATABASES = ("tests/api/", "tests/contract/", "tests/store_contract/")
# More than these do not fail because of a busy machine.
_MOST_AGAIN = 5
_NO_TESTS = 5


@dataclass(kw_only=True)
class Step:
    """A command and what became of it. `may_repeat`: tests of processes, which another load can make fail."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    may_repeat: bool = False
    code: int | None = None
    seconds: float = 0.0

    @property
    def is_tests(self) -> bool:
        """Whether pytest runs it."""
        return tuple(self.argv[: len(_PYTEST)]) == _PYTEST


class Check:
    """Runs lanes of steps beside each other. Output is shown when a step ends, progress each minute."""

    def __init__(self, place: Path) -> None:
        self._place, self._begun = place, time.monotonic()
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._is_over = False
        self._pause = threading.Event()
        self.failed: list[Step] = []

    def run(self, lanes: Sequence[Sequence[Step]]) -> None:
        """All steps, so that one run shows all faults; the steps of a lane one after the other."""
        threads = [threading.Thread(target=self._run_lane, args=(lane,), daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        due = time.monotonic() + _REPORT_SECONDS
        while any(thread.is_alive() for thread in threads):
            for thread in threads:
                thread.join(1.0)
            if time.monotonic() > due:
                due += _REPORT_SECONDS
                self._report()

    def repeat_failed(self) -> None:
        """Run failed tests of processes once more, alone. Passing then is said loudly, and is a fault to be mended."""
        for step in [step for step in self.failed if step.may_repeat]:
            names = sorted({*_FAILED_TEST.findall(self._text_of(step))})
            if 0 < len(names) <= _MOST_AGAIN:
                say(f"\n*** RUN AGAIN, ALONE: {len(names)} of {step.name} failed:\n  " + "\n  ".join(names))
                options = [word for word in step.argv if word.startswith("--store")]
                again = Step(
                    name=f"{step.name}, again",
                    argv=(*_PYTEST, *options, *names),
                    environment=step.environment,
                )
                self._run_step(again)
                if again not in self.failed:
                    self.failed.remove(step)
                    say(
                        f"*** {len(names)} FAILED BESIDE OTHERS AND PASSED ALONE: mend what makes them depend on load."
                    )

    def stop(self) -> None:
        """End what runs, with all its processes."""
        with self._lock:
            self._is_over = True
            groups = [process.pid for process in self._running.values()]
        for number, seconds in ((signal.SIGINT, _END_SECONDS), (signal.SIGKILL, 5.0)):
            for group in groups:
                _is_signalled(group, number)
            deadline = time.monotonic() + seconds
            while any(_is_signalled(group, 0) for group in groups) and time.monotonic() < deadline:
                self._pause.wait(_POLL_SECONDS)

    def _run_lane(self, lane: Sequence[Step]) -> None:
        for step in lane:
            self._run_step(step)

    def _run_step(self, step: Step) -> None:
        begun = time.monotonic()
        with self._lock, self._path_of(step).open("wb") as out:
            if self._is_over:
                return
            process = subprocess.Popen(
                step.argv, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1", **step.environment},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            self._running[step.name] = process
        code = process.wait()
        step.code = code
        step.seconds = time.monotonic() - begun
        with self._lock:
            del self._running[step.name]
            if not self._is_over:
                self._tell(step)

    def _tell(self, step: Step) -> None:
        text = self._text_of(step)
        if step.is_tests and step.code == _NO_TESTS:
            say(f"{step.name}: there are none")
        elif step.code:
            self.failed.append(step)
            say(f"{step.name}: FAILED ({step.seconds:.0f} s)\n{text}")
        else:
            said = f"\n{text.splitlines()[-1]}" if step.is_tests and text else ""
            say(f"{step.name}: ok {step.seconds:.0f} s{said}")

    def _report(self) -> None:
        with self._lock:
            said = []
            for name in self._running:
                done = _PROGRESS.findall((self._place / _file_name(name)).read_text(errors="replace"))
                said.append(f"{name} {done[-1] if done else 'begins'}")
            say(f"  after {(time.monotonic() - self._begun) / 60:.0f} min: {', '.join(said)}")

    def _path_of(self, step: Step) -> Path:
        return self._place / _file_name(step.name)

    def _text_of(self, step: Step) -> str:
        return self._path_of(step).read_text(errors="replace").rstrip()


def _is_signalled(group: int, number: int) -> bool:
    """Send a signal to all processes of a group; False where it has none left."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _file_name(name: str) -> str:
    return re.sub(r"\W", "-", name)


def say(text: str) -> None:
    """A line for a person, at once."""
    print(text, flush=True)


def static_steps() -> list[Step]:
    """What looks at the texts alone."""
    return [
        Step(name="format", argv=("ruff", "format", "--check", "--quiet", ".")),
        Step(name="lint", argv=("ruff", "check", "--quiet", "--output-format", "concise", ".")),
        Step(name="imports", argv=("lint-imports", "--no-logo")),
        Step(
            name="types",
            argv=("mypy", "--no-error-summary", "src", "tests", "scripts", "bench", "examples/demo"),
        ),
    ]


class Plan:
    """The steps of a run."""

    def __init__(self, given: argparse.Namespace, memory: Mapping[str, str]) -> None:
        self._given, self._memory = given, memory
        self._extent = f"--extent={'all' if given.all else 'landing'}"

    def lanes(self) -> list[list[Step]]:
        """Those that run beside each other."""
        if self._given.fast:
            return [static_steps(), *([step] for step in self.fast_steps())]
        if self._given.processes:
            return [[step] for step in self.waiting_steps()]
        return [[*static_steps(), *self.computing_steps()], self.waiting_steps()]

    def fast_steps(self) -> list[Step]:
        """The quick tests that a change reaches, the nearest for a minute, in parts that run beside each other.

        What may reach any test, such as a change of a conftest, runs all.

        Processes that share the tests as they go would each read all of them first, for a third of the whole time.
        """
        changed = changed_files(self._given.since)
        reached = reached_tests(changed) if changed else None
        quick = all_tests()
        if reached is None:
            say("Quick tests: all.")
        else:
            there = set(quick)
            near = [path for path in reached if path in there]
            quick = nearest_files(near, _FAST_BYTES)
            left = (
                f"; ./check runs the {len(near) - len(quick)} farther ones, too" if near[len(quick) :] else ""
            )
            say(f"Quick tests: {len(quick)} files that the change reaches{left}.")
        parts = share_files(quick, _FAST_PARTS * len(os.sched_getaffinity(0)))
        argv = (*_PYTEST, self._extent, "-m", "not slow and not e2e and not thorough")
        return [
            Step(
                name=f"quick tests, part {number} of {len(parts)}",
                argv=(*argv, *part),
                environment=self._memory,
            )
            for number, part in enumerate(parts, 1)
        ]

    def computing_steps(self) -> list[Step]:
        """As many at once as there are processors."""
        coverage = ["--cov", "--cov-report="] if self._given.all else []
        steps = [
            self._computing("quick tests", "not slow and not e2e", *coverage, "tests"),
            self._computing("slow tests", "slow and not e2e", "tests"),
        ]
        if has_postgresql():
            words = ("--store=postgresql", "tests/store_contract", "tests/contract", "tests/api")
            steps.append(
                self._computing("tests on PostgreSQL", "(stores or not slow) and not engines", *words)
            )
        if self._given.all:
            steps.append(self._computing("long fuzzing", "", "tests/fuzz", HYPOTHESIS_PROFILE="long"))
        return steps

    def waiting_steps(self) -> list[Step]:
        """They wait for processes more than they compute: more workers than processors; their files are on the disk."""
        store = "--store=both" if has_postgresql() else "--store=sqlite"
        steps = [self._waiting("end to end", 4, "e2e and not engines", self._extent, store, "tests")]
        if not self._given.local:
            # Each starts its batch system; one that is not installed is skipped, unless LODE_CHECK_NEEDS names it.
            steps.insert(0, self._waiting("real batch systems", 3, "engines", self._extent, "tests"))
        if not self._given.all:
            steps += self._reached_steps()
        return steps

    def _reached_steps(self) -> list[Step]:
        """The thorough tests of what is changed."""
        changed = changed_files(self._given.since)
        reached = (reached_tests(changed) or ["tests"]) if changed else []
        marks = "thorough and not engines" if self._given.local else "thorough"
        return [self._waiting("thorough tests of the change", 3, marks, *reached)] if reached else []

    def _computing(self, name: str, marks: str, *more: str, **environment: str) -> Step:
        argv = (*_PYTEST, "--numprocesses", "auto", self._extent, "-m", marks, *more)
        return Step(name=name, argv=argv, environment={**self._memory, **environment})

    @staticmethod
    def _waiting(name: str, workers: int, marks: str, *more: str) -> Step:
        argv = (*_PYTEST, "--numprocesses", str(workers), "--dist", "worksteal", "-m", marks, *more)
        return Step(name=name, argv=argv, may_repeat=True)


def all_tests() -> list[str]:
    """Files of tests that start no servers, pilots or batch systems; paths from the root."""
    paths = (path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(str(path) for path in paths if path.parts[1] not in {"e2e", "engines"})


def size_of(path: str) -> int:
    """What a file of tests costs, in bytes of plain ones."""
    return (ROOT / path).stat().st_size * (1 + path.startswith(_WITH_DATABASES))


def nearest_files(paths: list[str], size: int) -> list[str]:
    """The first ones, until they cost that much; at least one of them."""
    sums = list(accumulate(map(size_of, paths)))
    return paths[: max(1, bisect_right(sums, size))]


def share_files(paths: Sequence[str], count: int) -> list[list[str]]:
    """Parts that take about the same time, at most `count` of them; none is empty. A file counts by its size."""
    parts: list[list[str]] = [[] for _ in range(min(count, len(paths)))]
    loads = [0] * len(parts)
    sizes = {path: size_of(path) for path in paths}
    for path in sorted(paths, key=lambda path: -sizes[path]):
        least = loads.index(min(loads))
        parts[least].append(path)
        loads[least] += sizes[path]
    return parts


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """What is asked for; ends the program with a message where that cannot be."""
    parser = argparse.ArgumentParser(prog="check", add_help=False)
    for name in ("--fast", "--all", "--local", "--processes"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--since", default="")
    given = parser.parse_args(words)
    if given.fast and (given.all or given.processes):
        raise SystemExit(f"check: --fast or {'--all' if given.all else '--processes'}, not both")
    return given


@contextmanager
def folders() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder for what the steps say, and the environment of tests that compute: with files in memory if it is free."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="lodesman-check-"))
        memory = {}
        if has_room:
            made = tempfile.TemporaryDirectory(
                prefix="lodesman-check-", dir=_MEMORY, ignore_cleanup_errors=True
            )
            memory = {"PYTEST_DEBUG_TEMPROOT": stack.enter_context(made)}
        yield Path(place), memory


def main(words: Sequence[str]) -> int:
    """Run what is asked for; the exit code."""
    given = read_arguments(words)
    with folders() as (place, memory):
        check = Check(place)
        try:
            check.run(Plan(given, memory).lanes())
            check.repeat_failed()
        except BaseException:
            check.stop()
            raise
    failed = [step.name for step in check.failed]
    if not given.fast and not has_postgresql():
        say("Left out: tests on PostgreSQL    # apt-get install -y postgresql")
        if "postgresql" in os.environ.get("LODE_CHECK_NEEDS", "").split(","):
            failed.append("PostgreSQL is missing")
    say(f"Failed: {', '.join(failed)}" if failed else "All checks passed.")
    return 1 if failed else 0


def has_postgresql() -> bool:
    """Whether a PostgreSQL can be started here."""
    there = [str(ROOT / "tests/services/postgresql"), "there"]
    return subprocess.run(there, capture_output=True, check=False).returncode == 0


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    sys.exit(main(sys.argv[1:]))
