"""The demo while its server and pilots are killed, and while it is interrupted itself.

A workload of quick jobs; each payload notes `$LODESMAN_JOB` (`<job>.<attempt>`) in a file, so what really ran is known.
The moments are random; the seed is in the test's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.e2e.test_kill_nine import more

QUICK, FAILING, HELD = 18, 2, 1
BOUND = 240.0
LOOK = 0.05
WORKLOAD = f"""
vo = "gridlab"
[[submission]]
file = "quick.json"
group = "physics"
expect = {{ Done = {QUICK} }}
[[submission]]
file = "failing.json"
group = "bio"
expect = {{ Failed = {FAILING} }}
[[submission]]
file = "giant.json"
group = "bio"
expect = {{ Held = {HELD} }}
hold_if_impossible = true
"""


class DemoRun:
    """A demo in a process of its own, with all that it makes below one directory."""

    def __init__(self, home: Path, store: str) -> None:
        self.home = home
        # Where root runs the demo its jobs have another account, which cannot enter the folders of this test.
        self.open_place = Path(tempfile.mkdtemp(prefix="lode-ran-"))
        self.open_place.chmod(0o755)
        self.ran_file = self.open_place / "ran"
        self.ran_file.touch()
        self.ran_file.chmod(0o666)
        self.tmp = self.open_place / "tmp"
        self.tmp.mkdir()
        (home / "workload.toml").write_text(WORKLOAD)
        self._describe("quick", f'echo "$LODESMAN_JOB" >> {self.ran_file}; sleep 0.$(( $JOBID % 7 ))', QUICK)
        self._describe("failing", f'echo "$LODESMAN_JOB" >> {self.ran_file}; exit 3', FAILING)
        giant = {"Executable": "/bin/true", "CPUTime": 60, "Requirements": {"Memory": 512_000}}
        (home / "giant.json").write_text(json.dumps(giant))
        self.out, self.err = home / "out", home / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.demo", "--json", "--workload", str(home / "workload.toml"),
                 "--results", str(home / "results"), "--store", store],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, cwd=home,
                env={**os.environ, "TMPDIR": str(self.tmp), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )  # fmt: skip

    def _describe(self, name: str, script: str, count: int) -> None:
        job = {"Executable": "/bin/sh", "Arguments": ["-c", script], "Parameters": count, "CPUTime": 60}
        (self.home / f"{name}.json").write_text(json.dumps({**job, "MaxAttempts": 50}))

    def processes(self, word: str = "") -> dict[int, str]:
        """Every process of this demo with that word, itself left out: pid -> command line."""
        needle, found = os.fsencode(self.tmp), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (os.getpid(), self.process.pid):
                with contextlib.suppress(OSError):
                    raw = (entry / "cmdline").read_bytes()
                    command = raw.replace(b"\0", b" ").decode(errors="replace")
                    if word in command and (needle in raw or needle in (entry / "environ").read_bytes()):
                        found[int(entry.name)] = command
        return found

    def pids(self, word: str) -> list[int]:
        return sorted(self.processes(word))

    def wait_for_one(self, word: str) -> None:
        end = time.monotonic() + BOUND
        while not self.pids(word) and self.process.poll() is None:
            assert time.monotonic() < end, f"waited in vain for {word}: {self.said()}"
            threading.Event().wait(LOOK)

    def said(self) -> str:
        logs = [path.read_text(errors="replace")[-2_000:] for path in self.tmp.glob("*/server.log")]
        return "\n".join([self.err.read_text(errors="replace"), *logs])

    def ended(self) -> int:
        """Its exit code; nothing of it is left then, neither processes nor data."""
        code = self.process.wait(BOUND)
        assert self.processes() == {}, self.said()
        assert list(self.tmp.glob("lode-demo-*")) == [], self.said()
        return code

    def clean_up(self) -> None:
        for pid in (self.process.pid, *self.processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.open_place)


@pytest.fixture
def demo(tmp_path, database_kind):
    run = DemoRun(tmp_path, database_kind)
    yield run
    run.clean_up()


def check_right_end(demo: DemoRun) -> dict[str, object]:
    """Every job ended as the workload says, and no attempt ran twice."""
    assert demo.ended() == 0, demo.said()
    report = json.loads(demo.out.read_text())
    assert report["states"] == {"Done": QUICK, "Failed": FAILING, "Held": HELD}
    ran = Counter(demo.ran_file.read_text().split())
    assert {name: times for name, times in ran.items() if times > 1} == {}
    assert {name.partition(".")[0] for name in ran} == {str(n) for n in range(1, QUICK + FAILING + 1)}
    attempts = report["attempts"]
    assert (attempts["twice"], attempts["lost"], attempts["started"]) == (0, 0, QUICK + FAILING)
    assert attempts["seen"] <= attempts["attempts"]
    done = demo.home / "results" / "jobs"
    assert {int(path.name) for path in done.iterdir()} >= set(range(1, QUICK + 1))
    return report


def pause(rng: random.Random, low: float, high: float) -> None:
    threading.Event().wait(rng.uniform(low, high))


def kill_some(rng: random.Random, demo: DemoRun, word: str, *, most: int) -> int:
    """kill -9 of one process with that word at random moments, as long as the demo runs; how many were killed."""
    killed = 0
    for _ in range(most):
        pause(rng, 0.3, 2.5)
        demo.wait_for_one(word)
        found = demo.pids(word)
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(rng.choice(found), signal.SIGKILL)
                killed += 1
    return killed


@pytest.mark.stores
def test_left_alone_it_ends_as_expected(demo):
    attempts = check_right_end(demo)["attempts"]
    assert attempts["seen"] == attempts["attempts"] == QUICK + FAILING


@pytest.mark.stores
@pytest.mark.parametrize("seed", [1, *more(2, 3)])
def test_a_server_that_is_killed_is_started_again(demo, seed):
    rng = random.Random(seed)
    demo.wait_for_one("lodesman.server.main server")
    assert kill_some(rng, demo, "lodesman.server.main server", most=4)
    check_right_end(demo)
    assert "was killed by SIGKILL; starting it again" in demo.err.read_text()


@pytest.mark.stores
@pytest.mark.parametrize("seed", [4, *more(5)])
def test_pilots_and_the_background_process_are_killed(demo, seed):
    rng = random.Random(seed)
    demo.wait_for_one("pilot.pyz")
    assert kill_some(rng, demo, "pilot.pyz", most=2)
    kill_some(rng, demo, "lodesman.server.main background", most=1)
    kill_some(rng, demo, "lodesman.server.main server", most=1)
    check_right_end(demo)


@pytest.mark.parametrize(
    ("number", "word", "after"),
    [
        (signal.SIGINT, "lodesman.server.main server", 0.0),
        (signal.SIGINT, "lodesman.user.cli --server", 0.0),
        pytest.param(signal.SIGINT, "pilot.pyz", 1.0, marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, "lodesman.server.main background", 0.2, marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, "pilot.pyz", 0.5, marks=pytest.mark.stores),
        (signal.SIGHUP, "pilot.pyz", 0.0),
    ],
)
def test_a_signal_ends_it_and_leaves_nothing(demo, number, word, after):
    demo.wait_for_one(word)
    threading.Event().wait(after)
    demo.process.send_signal(number)
    assert demo.ended() == 130, demo.said()
    assert json.loads(demo.out.read_text())["interrupted"] is True


def test_more_signals_do_not_disturb_the_end(demo):
    demo.wait_for_one("pilot.pyz")
    demo.process.send_signal(signal.SIGINT)
    for _ in range(8):
        for second in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            threading.Event().wait(LOOK)
            with contextlib.suppress(ProcessLookupError):
                demo.process.send_signal(second)
    assert demo.ended() == 130, demo.said()


@pytest.mark.stores
def test_the_end_is_clean_also_when_the_server_was_killed_before(demo):
    demo.wait_for_one("pilot.pyz")
    for pid in demo.pids("lodesman.server.main server"):
        os.kill(pid, signal.SIGKILL)
    demo.process.send_signal(signal.SIGINT)
    assert demo.ended() == 130, demo.said()


@pytest.mark.stores
def test_a_demo_that_is_killed_leaves_no_server(demo):
    """Pilots that no server answers end by themselves."""
    demo.wait_for_one("pilot.pyz")
    demo.process.kill()
    demo.process.wait(BOUND)
    deadline = time.monotonic() + BOUND
    while demo.pids("lodesman.server.main") or demo.pids("bin/postgres"):
        assert time.monotonic() < deadline, demo.processes()
        threading.Event().wait(LOOK)


@pytest.mark.sqlite
def test_what_cannot_go_on_keeps_the_data_and_says_where(demo):
    """The database is no database any more: the server does not start again."""
    demo.wait_for_one("pilot.pyz")
    (data,) = demo.tmp.glob("lode-demo-*/data")
    for name in ("lode.db", "lode.db-wal"):
        with contextlib.suppress(FileNotFoundError):
            (data / name).write_bytes(b"nonsense" * 1_000)
    for pid in demo.pids("lodesman.server.main server"):
        os.kill(pid, signal.SIGKILL)
    assert demo.process.wait(BOUND) == 5, demo.said()
    assert demo.processes() == {}
    assert f"What the server left is in {data.parent}." in "".join(demo.err.read_text().split("\n"))
    assert data.is_dir()
