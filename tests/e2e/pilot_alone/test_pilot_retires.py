"""$JOBSTATUS of a real pilot, and how it retires: before an announced shutdown, in order, with all results handed in."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.jobstatus.kits.history import faults

from lodesman.site.jobstatus import channel
from lodesman.site.jobstatus.values import KEYS, Status, parse

RUNS = int(os.environ.get("LODE_TEST_RETIREMENTS", "2"))
# How long one publication may be behind what the pilot knows: 5 s between two, and a busy machine.
_SOON_S = 200.0
# Seconds between two publications: 5, and a busy machine may write one late.
APART = 2
# As in the manual; it is run by the directory's owner.
SNAPSHOT = 'cd "$0" && grep -H . used_CPU last_* first_* add_* can_* priority_factor'


def published(directory: Path) -> dict[str, str]:
    """All keys, read by flock(1)."""
    command = ["flock", "-s", "-w", "60", f"{directory}/used_CPU", "sh", "-c", SNAPSHOT, str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(line.split(":", 1) for line in done.stdout.splitlines())


class Log:
    """Every publication in a directory, as a reader with a lock sees them."""

    def __init__(self, directory: Path) -> None:
        self.seen: list[tuple[float, Status]] = []
        self._directory = directory
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        last = None
        while not self._closed.wait(0.02):
            try:
                found = channel.read(self._directory)
            except channel.Unreadable:
                continue
            if found.contents and (found.contents, found.times) != last:
                last = (dict(found.contents), dict(found.times))
                self.seen.append(
                    (
                        found.times["used_CPU"],
                        Status.of({key: parse(key, one).value for key, one in found.contents.items()}),
                    )
                )

    def until(self, condition) -> Status:
        deadline = time.monotonic() + _SOON_S
        while True:
            for _, status in self.seen:
                if condition(status):
                    return status
            assert time.monotonic() < deadline, self.seen
            time.sleep(0.02)

    def close(self) -> list[tuple[float, Status]]:
        self._closed.set()
        self._thread.join()
        return self.seen


@pytest.fixture
def site(tmp_path):
    """What a site makes for a job: $JOBSTATUS and both directories of features."""
    for name in ("status", "machine", "job"):
        (tmp_path / name).mkdir(mode=0o755)
    environment = {
        "JOBSTATUS": str(tmp_path / "status"),
        "MACHINEFEATURES": str(tmp_path / "machine"),
        "JOBFEATURES": str(tmp_path / "job"),
    }
    return tmp_path, environment


def announce(folder: Path, name: str, at: float) -> None:
    (folder / ".new").write_text(str(int(at)))
    (folder / ".new").rename(folder / name)


def until(condition) -> None:
    deadline = time.monotonic() + _SOON_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until_there(file: Path) -> str:
    return f"while [ ! -e {file} ]; do sleep 0.05; done"


def test_what_is_published_is_complete_and_true(fake, start, job, site):
    folder, environment = site
    log = Log(folder / "status")
    pilot = start(cores=4, environment=environment)
    commits, ends = folder / "commits", folder / "ends"
    commit = f'{until_there(commits)}; touch "$LODESMAN_COMMIT"; {until_there(ends)}'
    fake.submit(
        job(1, "sh", "-c", commit, cores=2, wall_seconds=1000, vacate_priority=7, expected_seconds=500),
        job(2, "sh", "-c", f'test -z "$JOBSTATUS" || exit 1; {until_there(ends)}', wall_seconds=300),
    )
    # A payload has no end that is enforced until it has started.
    log.until(lambda status: status.used_cpu == 3 and status.last_max_job_end is not None)
    begun = {one["id"]: int(one["started"]) for one in fake.reports if one["state"] == "Running"}
    found = published(folder / "status")
    assert set(found) == set(KEYS)
    assert found["used_CPU"] == "3"
    assert int(found["last_job_start"]) == max(begun.values())
    assert int(found["last_exp_job_end"]) - begun[1] in (500, 501)
    assert int(found["first_exp_job_end"]) - begun[2] in (300, 301)
    assert int(found["last_max_job_end"]) - begun[1] in (1002, 1003)
    assert (found["can_postpone_last_job"], found["priority_factor"]) == ("True", "7")
    commits.touch()
    committed = log.until(lambda status: status.last_job_start > max(begun.values()))
    assert committed.add_uncom_time == committed.last_job_start - begun[2]
    ends.touch()
    for number in (1, 2):
        assert fake.end_of(number)["state"] == "Done"
    pilot.terminate()
    assert pilot.end() == 0
    seen = log.close()
    assert seen[-1][1].used_cpu == 0
    assert seen[-1][1].can_postpone_last_job is False
    assert faults(seen, apart=APART) == []


@pytest.mark.parametrize(
    "name", ["machine/shutdowntime", "job/shutdowntime_job"] + ["job/shutdowntime_job"] * (RUNS - 2)
)
def test_it_retires_in_good_order(fake, start, job, site, name):
    """One payload ends by itself, one gets its soft limit, one never begins; all is handed in before the end."""
    folder, environment = site
    log, ends = Log(folder / "status"), folder / "ends"
    pilot = start(cores=3, environment=environment, features_s=0.2, flush_s=10, kill_grace_s=2)
    stubborn = "trap 'echo tidy; exit 0' TERM; while :; do sleep 0.1; done"
    fake.submit(
        job(1, "sh", "-c", f"{until_there(ends)}; echo done", expected_seconds=20, wall_seconds=600),
        job(2, "sh", "-c", stubborn, wall_seconds=3000),
    )
    log.until(lambda status: status.used_cpu == 2)
    end = time.time() + 27
    announce(folder, name, end)
    until(lambda: pilot.events("slot-end"))
    ends.touch()
    promise = log.until(lambda status: status.can_postpone_last_job is False)
    assert promise.last_max_job_end <= int(end)
    fake.submit(job(3, "sleep", "100", wall_seconds=200))
    assert pilot.end() == 0
    assert time.time() <= end
    assert fake.end_of(1)["state"] == "Done"
    assert fake.output(1)["std.out"] == b"done\n"
    assert (fake.end_of(2)["state"], fake.end_of(2)["cause"]) == ("Released", "pilot-shutdown")
    assert not fake.running(3)
    assert [leave["reason"] for leave in fake.leaves] == ["drained"]
    seen = log.close()
    assert seen[-1][1].used_cpu == 0
    assert faults(seen, apart=APART) == []


def test_a_shutdown_that_is_withdrawn(fake, start, job, gate, site):
    """Without $JOBSTATUS, where no hold is kept, it asks again."""
    folder, environment = site
    del environment["JOBSTATUS"]
    start(cores=2, environment=environment, features_s=0.2)
    fake.submit(job(1, "sh", "-c", f"{gate.wait}; true"))
    fake.until(lambda: fake.running(1))
    announce(folder, "job/shutdowntime_job", time.time() + 3000)
    fake.until(lambda: fake.beats and fake.beats[-1]["state"] == "draining")
    fake.submit(job(2, "true"))
    (folder / "job/shutdowntime_job").unlink()
    assert fake.end_of(2)["state"] == "Done"
    gate.open()
    assert fake.end_of(1)["state"] == "Done"


def test_after_a_shutdown_that_is_withdrawn_it_keeps_the_hold(fake, start, job, site):
    """What it said before stays for ten minutes, so nothing may start; what runs goes on."""
    folder, environment = site
    log, ends = Log(folder / "status"), folder / "ends"
    pilot = start(cores=2, environment=environment, features_s=0.2)
    fake.submit(job(1, "sh", "-c", until_there(ends), wall_seconds=5000))
    log.until(lambda status: status.used_cpu == 1)
    announce(folder, "job/shutdowntime_job", time.time() + 3000)
    promise = log.until(lambda status: status.can_postpone_last_job is False)
    asked = len(fake.claims)
    (folder / "job/shutdowntime_job").unlink()
    log.until(lambda status: status == replace(promise, can_postpone_last_job=True))
    fake.submit(job(2, "true"))
    beats = len(fake.beats)
    fake.until(lambda: len(fake.beats) > beats + 5)
    assert fake.beats[-1]["state"] == "running"
    ends.touch()
    assert fake.end_of(1)["state"] == "Done"
    pilot.terminate()
    assert pilot.end() == 0
    assert len(fake.claims) == asked
    assert not fake.running(2)
    assert faults(log.close(), apart=APART) == []


def test_a_drain_that_is_taken_back(fake, start, job, gate):
    start(cores=2)
    fake.submit(job(1, "sh", "-c", f"{gate.wait}; true"))
    fake.until(lambda: fake.running(1))
    fake.drain = True
    fake.until(lambda: fake.beats and fake.beats[-1]["state"] == "draining")
    fake.drain = False
    fake.submit(job(2, "true"))
    assert fake.end_of(2)["state"] == "Done"
    gate.open()
    assert fake.end_of(1)["state"] == "Done"


def test_the_next_pilot_publishes_all_after_one_was_killed(fake, start, job, site):
    folder, environment = site
    pilot = start(cores=2, environment=environment)
    fake.submit(job(1, "sleep", "60"), job(2, "sleep", "60"))
    log = Log(folder / "status")
    log.until(lambda status: status.used_cpu == 2)
    pilot.process.send_signal(signal.SIGKILL)
    pilot.process.wait()
    for name in KEYS[1:]:
        (folder / "status" / name).unlink(missing_ok=True)
    log.close()
    log = Log(folder / "status")
    start(cores=2, environment=environment)
    log.until(lambda status: status.used_cpu == 0 and None not in status.items().values())
    assert set(published(folder / "status")) == set(KEYS)
