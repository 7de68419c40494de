"""The local backend with real processes: whatever a pilot leaves, and whichever process is killed, nothing stays.

All waiting is for events (a file, a state, a process's end) with a deadline; `check_nothing_is_left` runs
after each test.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kits.shell_pilots import same, send

import lodesman
from lodesman.base.processes import (
    Process,
    living_processes,
    read_process,
    remove_cgroup,
    signal_process,
)
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory
from lodesman.server.engines.pilot_processes import find_marked, make_cgroup

QUEUE = QueueId("Hostile/../Site\n", "ce '; rm -rf", "\N{SNOWMAN}")
PATIENCE = 200.0

# Left-overs are found by stamp on the whole machine: two runs of these tests must not share one.
RUN = os.urandom(4).hex()
S1, S2 = f"s1_{RUN}-1", f"s2_{RUN}-1"


def wait_until(happened: Callable[[], object], what: str = "") -> None:
    """Ask repeatedly, and fail after a deadline."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, f"waited in vain for {what or happened}"
        threading.Event().wait(0.005)


def cgroups_place() -> Path | None:
    """Where this machine lets this user make cgroups."""
    made = make_cgroup(f"lodesman-probe-{os.getpid()}")
    if made is None:
        return None
    remove_cgroup(made)
    return Path(made).parent


class Site:
    """A backend on a root, and what a test wants to do with it."""

    def __init__(self, root: Path, *, slots: int = 4, cgroups: bool = False, grace: float = 0.5) -> None:
        self.root = root
        self.backend = LocalBackend(root, {QUEUE: slots}, cgroups=cgroups, grace_seconds=grace)

    def submit(self, *stamps: str, code: str = "", script: str = "", **more) -> None:
        """Pilots that are a line of shell or a text of Python; their own file is their first argument."""
        assert send(self.backend, QUEUE, *stamps, code=code, script=script, **more).refused == {}

    def state(self, stamp: str) -> NativeState:
        return self.backend.status(same(stamp))[stamp].state

    def pilot(self, stamp: str) -> PilotDirectory:
        return PilotDirectory(self.root / stamp)

    def work(self, stamp: str) -> Path:
        return self.root / stamp / "work"

    def wait_for_file(self, stamp: str, name: str) -> str:
        path = self.work(stamp) / name
        wait_until(path.exists, name)
        return path.read_text()

    def wait_for_end(self, *stamps: str) -> None:
        """Ticks until all have ended."""

        def ended() -> bool:
            self.backend.tick()
            return all(self.state(stamp) is NativeState.ENDED for stamp in stamps)

        wait_until(ended, "the end")

    def processes(self) -> list[Process]:
        """What is alive of all pilots of this root, found by mark or place; keepers left out."""
        table = living_processes()
        paths = {path.name: path for path in self.root.iterdir() if path.is_dir()}
        keepers = {process.pid for stamp in paths for process in self.pilot(stamp).processes()}
        return [table[pid] for pid in find_marked(paths, table) if pid not in keepers]

    def kill(self, stamp: str, *names: str) -> None:
        """kill -9 of the keeper, the guard or the pilot, and their real end."""
        record = self.pilot(stamp).record()
        seen = [process for name in names if (process := read_process(record[name][0]))]
        handles = [os.pidfd_open(process.pid) for process in seen]
        for process in seen:
            assert signal_process(process, signal.SIGKILL)
        for handle in handles:
            assert select.select([handle], [], [], PATIENCE)[0]
            os.close(handle)


@pytest.fixture
def make_site(tmp_path):
    sites: list[Site] = []

    def make(**options) -> Site:
        sites.append(Site(tmp_path / "pilots", **options))
        return sites[-1]

    yield make
    for site in sites:
        assert site.backend.stop_all(grace_seconds=0.0, deadline_seconds=PATIENCE) == ()
        paths = {path.name: path for path in site.root.iterdir() if path.is_dir()}
        assert find_marked(paths, living_processes()) == {}, "keepers and guards are gone too"
    place = cgroups_place()
    assert place is None or list(place.glob(f"lodesman-*-{RUN}-*")) == []


@pytest.fixture(params=["family", "cgroup"])
def site(request, make_site):
    """With the keeper's own means alone, and with a cgroup where this machine allows one."""
    if request.param == "cgroup" and cgroups_place() is None:
        pytest.skip("this machine lets this user make no cgroup of version 2")
    return make_site(cgroups=request.param == "cgroup")


# --- pilots that do not want to go ---------------------------------------------------------------------

READY = """
import os, signal, sys, time
def ready():
    open("ready", "w").close()
"""

STUBBORN_SESSION = (
    READY
    + """
if os.fork() == 0:
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    ready()
    while True:
        signal.pause()
"""
)

# A daemon as from a book: two forks, its own session, another directory, a clean environment, no files.
DAEMON = (
    READY
    + """
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    name = os.path.join(os.getcwd(), "pid")
    os.chdir("/")
    os.closerange(0, 100)
    text = f'trap "" TERM; echo $$ > {name}.new; mv {name}.new {name}; while :; do sleep 1000; done'
    os.execve("/bin/sh", ["sh", "-c", text], {})
os.wait()
"""
)

# Forks as fast as it can up to a size that this machine bears, and replaces at once each process that dies.
STORM = (
    READY
    + """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 200
def breed(depth):
    alive = 0
    while time.monotonic() < end:
        while alive < 3:
            if os.fork() == 0:
                os.setsid()
                if depth < 3:
                    breed(depth + 1)
                signal.pause()
            alive += 1
        if depth == 0:
            ready()
        os.wait()
        alive -= 1
breed(0)
"""
)

# Each generation forks the next one and ends at once: a scan of /proc rarely finds it alive.
COMETS = (
    READY
    + """
end = time.monotonic() + 200
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() < end:
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)
ready()
"""
)


@pytest.mark.parametrize("code", [STUBBORN_SESSION, COMETS], ids=["session", "comets"])
def test_what_the_pilot_leaves_is_gone_before_it_has_ended(site, code):
    site.submit(S1, code=code + "while not os.path.exists('ready'):\n    time.sleep(0.01)\n")
    site.wait_for_end(S1)
    assert site.processes() == []
    assert (site.work(S1) / "ready").exists()
    assert site.backend.status(same(S1))[S1].exit_code == 0


def test_a_storm_of_forks_is_beaten(site):
    site.submit(S1, code=STORM)
    site.wait_for_file(S1, "ready")
    wait_until(lambda: len(site.processes()) >= 40, "the storm")
    site.backend.cancel(same(S1))
    site.wait_for_end(S1)  # long before the storm would end by itself
    assert site.processes() == []


def test_a_daemon_is_gone_before_its_pilot_has_ended(site):
    site.submit(S1, code=DAEMON + "import sys\nsys.stdin.read()\nopen('/dev/null').read()\nsignal.pause()\n")
    daemon = read_process(int(site.wait_for_file(S1, "pid")))
    assert daemon is not None
    site.kill(S1, "pilot")
    site.wait_for_end(S1)
    assert read_process(daemon.pid) is None
    status = site.backend.status(same(S1))[S1]
    assert (status.exit_code, status.detail) == (137, "killed: signal 9")


def test_the_attempt_has_not_ended_while_a_process_is_left(make_site):
    # The keeper is held while the pilot dies: everybody still sees it running.
    site = make_site()
    site.submit(S1, script="echo x > ready; sleep 1000")
    site.wait_for_file(S1, "ready")
    wait_until(lambda: "pilot" in site.pilot(S1).record(), "the record of the pilot")
    keeper = site.pilot(S1).processes()[0]
    signal_process(keeper, signal.SIGSTOP)
    site.kill(S1, "pilot")
    site.backend.tick()
    assert site.state(S1) is NativeState.RUNNING
    signal_process(keeper, signal.SIGCONT)
    site.wait_for_end(S1)
    assert site.processes() == []


def test_cgroups_are_removed(make_site):
    if cgroups_place() is None:
        pytest.skip("this machine lets this user make no cgroup of version 2")
    site = make_site(cgroups=True)
    site.submit(S1, script="echo x > ready; sleep 1000")
    site.wait_for_file(S1, "ready")
    cgroup = Path(site.pilot(S1).record()["cgroup"])
    pilot = site.pilot(S1).record()["pilot"][0]
    assert str(pilot) in (cgroup / "cgroup.procs").read_text().split()
    (cgroup / "made-by-payload").mkdir()
    site.backend.cancel(same(S1))
    site.wait_for_end(S1)
    assert not cgroup.exists()


# --- orders ----------------------------------------------------------------------------------------------


def test_a_pilot_that_obeys_has_its_own_exit_code(site):
    site.submit(S1, script="trap 'exit 5' TERM; echo x > ready; while :; do sleep 0.01; done")
    site.wait_for_file(S1, "ready")
    assert site.backend.cancel(same(S1)) == {S1: CancelOutcome.ORDERED}
    site.wait_for_end(S1)
    status = site.backend.status(same(S1))[S1]
    assert (status.exit_code, status.detail) == (5, "stopped by order: exit code 5")


def test_a_pilot_that_does_not_obey_is_killed_after_its_grace(site):
    site.submit(S1, script="trap '' TERM; echo x > ready; while :; do sleep 1; done")
    site.wait_for_file(S1, "ready")
    begin = time.monotonic()
    site.backend.cancel(same(S1))
    site.wait_for_end(S1)
    assert 0.4 < time.monotonic() - begin < PATIENCE
    assert site.backend.status(same(S1))[S1].exit_code == 137


def test_the_wall_clock_limit_of_the_queue(make_site):
    site = make_site(grace=0.2)
    site.submit(S1, script="trap '' TERM; while :; do sleep 1; done", wall_seconds=1)
    site.wait_for_end(S1)
    assert "wall clock" in site.backend.status(same(S1))[S1].detail


def test_a_cancel_between_start_and_record_is_not_lost(make_site):
    # Straight after the submission: the keeper may be anywhere between its birth and the pilot's.
    site = make_site(slots=20, grace=PATIENCE, cgroups=True)
    stamps = [f"s{number}_{RUN}-1" for number in range(20)]
    site.submit(*stamps, script="sleep 1000")
    assert set(site.backend.cancel(same(*stamps)).values()) == {CancelOutcome.ORDERED}
    site.wait_for_end(*stamps)
    details = [status.detail for status in site.backend.status(same(*stamps)).values()]
    assert [detail for detail in details if "signal 9" in detail] == [], "all obeyed; none had to be killed"


# --- kill -9 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", ["keeper", "guard"])
def test_killing_one_of_the_two_leaves_nothing(make_site, victim):
    site = make_site()
    site.submit(S1, code=DAEMON + "signal.pause()\n")
    daemon = int(site.wait_for_file(S1, "pid"))
    site.kill(S1, victim)
    if victim == "guard":
        assert site.state(S1) is NativeState.RUNNING
        site.backend.cancel(same(S1))
    # No tick: the other one does the work by itself.
    wait_until(lambda: site.state(S1) is NativeState.ENDED, "the end")
    assert read_process(daemon) is None
    assert site.processes() == []
    wanted = "stopped by order" if victim == "guard" else "keeper"
    assert wanted in site.backend.status(same(S1))[S1].detail


def test_killing_both_kills_the_pilot_without_a_tick(make_site):
    site = make_site()
    site.submit(S1, code=READY + "ready()\nsignal.pause()\n")
    site.wait_for_file(S1, "ready")
    pilot = read_process(site.pilot(S1).record()["pilot"][0])
    assert pilot is not None
    handle = os.pidfd_open(pilot.pid)
    site.kill(S1, "guard", "keeper")
    assert select.select([handle], [], [], PATIENCE)[0]
    os.close(handle)


def test_killing_both_leaves_nothing_after_a_tick(site):
    site.submit(S1, S2, code=STUBBORN_SESSION + "signal.pause()\n")
    for stamp in (S1, S2):
        site.wait_for_file(stamp, "ready")
    site.kill(S1, "guard", "keeper")
    assert site.state(S1) in {NativeState.UNKNOWN, NativeState.RUNNING}
    site.wait_for_end(S1)
    left = site.processes()
    assert left
    assert {find_marked({S2: site.root / S2}, living_processes())[process.pid] for process in left} == {S2}
    assert site.state(S2) is NativeState.RUNNING


def test_stopping_all_hunts_down_what_keepers_cannot(make_site):
    # Keepers and guards are stopped: they obey nothing, and their pilots ignore TERM.
    site = make_site()
    site.submit(S1, S2, code=STUBBORN_SESSION + "while True: signal.pause()\n")
    for stamp in (S1, S2):
        site.wait_for_file(stamp, "ready")
        for process in site.pilot(stamp).processes():
            signal_process(process, signal.SIGSTOP)
    assert site.backend.stop_all(grace_seconds=0.1, deadline_seconds=0.3) == ()
    assert site.processes() == []
    assert {site.state(S1), site.state(S2)} == {NativeState.ENDED}


def test_stopping_all_does_not_wait_for_the_grace_of_a_cancel(make_site):
    site = make_site(grace=3600.0)
    site.submit(S1, code=READY + "signal.signal(15, signal.SIG_IGN); ready()\nwhile True: signal.pause()\n")
    site.wait_for_file(S1, "ready")
    begin = time.monotonic()
    assert site.backend.stop_all(grace_seconds=0.1, deadline_seconds=100.0) == ()
    assert time.monotonic() - begin < 60.0
    assert site.backend.status(same(S1))[S1].detail == "stopped by order: signal 9", "by its own keeper"


def test_stopping_all(site):
    stamps = [f"s{number}_{RUN}-1" for number in range(6)]
    site.submit(*stamps, code=STUBBORN_SESSION + "signal.pause()\n")
    for stamp in stamps[:4]:
        site.wait_for_file(stamp, "ready")
    assert site.backend.loads([QUEUE])[QUEUE].waiting == 2
    assert site.backend.stop_all(grace_seconds=5.0, deadline_seconds=PATIENCE) == ()
    assert site.processes() == []
    assert site.backend.loads([QUEUE])[QUEUE].running == 0
    assert {site.state(stamp) for stamp in stamps} == {NativeState.ENDED}


# --- the backend itself ------------------------------------------------------------------------------------

SERVER = """
import os, sys
from pathlib import Path
from tests.kits.shell_pilots import send
from lodesman.server.engines.local import LocalBackend
root, log, first = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
queue = ("Restart.Site", "ce", "q")
backend = LocalBackend(root, {queue: 3})
script = f'echo "$LODESMAN_STAMP" >> {log}; sleep 0.05'
for number in range(first, first + 1000):
    result = send(backend, queue, f"r{number}_{os.getppid()}-1", script=script)
    print(*result.accepted, flush=True)
    backend.tick()
"""


def test_kill_minus_nine_of_the_backend_loses_nothing_and_starts_nothing_twice(tmp_path):
    root, log = tmp_path / "pilots", tmp_path / "log"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{Path(lodesman.__file__).parents[1]}:{Path(__file__).parents[2]}",
    }
    accepted: list[str] = []
    for round_number in range(4):
        command = [sys.executable, "-c", SERVER, str(root), str(log), str(1000 * round_number)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
            accepted.extend(server.stdout.readline().strip() for _ in range(3 + 2 * round_number))
            server.kill()
            accepted.extend(server.stdout.read().split())
    queue = ("Restart.Site", "ce", "q")
    backend = LocalBackend(root, {queue: 3})
    # One more may be stored whose answer was never printed.
    stored = set(backend.census())
    assert set(accepted) <= stored
    assert len(stored - set(accepted)) <= 4

    def all_ended() -> bool:
        backend.tick()
        load = backend.loads([queue])[queue]
        assert load.running is not None
        assert load.running <= 3
        return (load.waiting, load.running) == (0, 0)

    wait_until(all_ended, "the end of all")
    assert sorted(log.read_text().split()) == sorted(stored)
    assert {status.exit_code for status in backend.status(same(*stored)).values()} == {0}


def test_slots_are_respected_all_the_time(make_site, tmp_path):
    site = make_site(slots=3)
    running = tmp_path / "running"
    running.mkdir()
    # Each pilot writes how many run with it.
    script = f"touch {running}/$$; ls {running} | wc -l > seen; sleep 0.05; rm {running}/$$"
    stamps = [f"s{number}_{RUN}-1" for number in range(12)]
    site.submit(*stamps, script=script)
    site.wait_for_end(*stamps)
    seen = [int((site.work(stamp) / "seen").read_text()) for stamp in stamps]
    assert max(seen) <= 3
    load = site.backend.loads([QUEUE])[QUEUE]
    assert (load.waiting, load.running) == (0, 0), "and all slots are free again"


def test_two_backends_on_one_root_start_nothing_twice(make_site, tmp_path):
    site, other = make_site(slots=3), make_site(slots=3)
    log = tmp_path / "log"
    stamps = [f"s{number}_{RUN}-1" for number in range(12)]
    site.submit(*stamps, script=f'echo "$LODESMAN_STAMP" >> {log}')
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            other.backend.tick()

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        site.wait_for_end(*stamps)
    finally:
        done.set()
        thread.join(PATIENCE)
    assert sorted(log.read_text().split()) == sorted(stamps)


def test_keepers_are_no_zombies(make_site):
    site = make_site()
    site.submit(S1, S2, script="true")
    keepers = set(site.backend.known.begun._keepers)
    assert len(keepers) == 2
    site.wait_for_end(S1, S2)

    def reaped() -> bool:
        site.backend.tick()
        return not any(read_process(pid) for pid in keepers)

    wait_until(reaped, "the keepers' ends")


# --- what a pilot finds ------------------------------------------------------------------------------------


def test_a_pilots_surroundings(make_site):
    site = make_site()
    code = (
        "import json, os, resource, signal, sys\n"
        "blocked = open('/proc/self/status').read()\n"
        "lines = dict(line.split(':\\t') for line in blocked.splitlines() if line.startswith('Sig'))\n"
        "facts = {'cwd': os.getcwd(), 'session': os.getsid(0) == os.getpid(), 'file': sys.argv[1],\n"
        "  'fds': sorted(os.listdir('/proc/self/fd'))[:-1], 'stdin': sys.stdin.read(),\n"
        "  'blocked': lines['SigBlk'], 'umask': oct(os.umask(0)), 'environment': dict(os.environ)}\n"
        "print(json.dumps(facts))\n"
    )
    site.submit(S1, code=code, environment={"X": "1"})
    site.wait_for_end(S1)
    facts = json.loads((site.root / S1 / "std.out").read_text())
    assert facts["cwd"] == str(site.work(S1))
    assert facts["file"] == str(site.root / S1 / "work" / "pilot.json")
    assert facts["fds"] == ["0", "1", "2"]
    assert (facts["stdin"], facts["session"], facts["umask"]) == ("", True, "0o77")
    assert int(facts["blocked"], 16) == 0
    assert facts["environment"]["LODESMAN_STAMP"] == S1
    assert facts["environment"]["X"] == "1"
    assert (site.root / S1 / "keeper.log").read_text() == ""


def test_all_files_are_private_after_a_run(make_site):
    site = make_site()
    site.submit(S1, script="echo out; echo err >&2; umask 0; touch own")
    site.wait_for_end(S1)
    for path in (site.root / S1).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert {path.name for path in (site.root / S1).iterdir()} == {
        *("ended.json", "entry.json", "keeper.json", "keeper.log", "lock"),
        *("std.err", "std.out", "work"),
    }
    end = site.pilot(S1).end()
    assert end["ended_at"] >= end["started_at"] > 0
    assert end["cpu_seconds"] >= 0


def test_a_talkative_pilot_fills_no_disk(make_site):
    site = make_site()
    site.submit(S1, code="for number in range(300_000): print('line', number)")
    site.wait_for_end(S1)
    sizes = {path.name: path.stat().st_size for path in (site.root / S1).glob("std.out*")}
    assert sum(sizes.values()) <= 2 << 20
    assert (site.root / S1 / "std.out").read_text().endswith("line 299999\n")


def test_cpu_seconds_count_the_whole_tree(make_site):
    site = make_site()
    # The one that burns is an orphan in its own session.
    code = READY + (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        while time.process_time() < 0.3: pass\n"
        "        ready()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "while not os.path.exists('ready'): time.sleep(0.01)\n"
    )
    site.submit(S1, code=code)
    site.wait_for_end(S1)
    assert site.pilot(S1).end()["cpu_seconds"] >= 0.3


def test_a_full_disk_refuses_for_now_and_recovers(make_site):
    site = make_site()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        result = send(site.backend, QUEUE, S1, S2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert result.accepted == {}
    assert all(refusal.transient for refusal in result.refused.values())
    assert site.backend.census() == {}
    assert sorted(send(site.backend, QUEUE, S1, S2).accepted) == [S1, S2]
    site.wait_for_end(S1, S2)


def test_the_keeper_runs_on_python_3_9(tmp_path):
    try:
        asked = subprocess.run(
            ["python3.9", "-c", "import sys; print(sys.executable)"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no Python 3.9 here")
    backend = LocalBackend(tmp_path / "pilots", {QUEUE: 1}, python=asked.stdout.strip())
    send(backend, QUEUE, S1, script="setsid sleep 1000 & exit 3")
    wait_until(lambda: backend.status(same(S1))[S1].exit_code == 3, "the end")
    assert backend.stop_all() == ()
    assert find_marked({S1: tmp_path / "pilots" / S1}, living_processes()) == {}
