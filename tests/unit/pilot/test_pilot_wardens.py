"""Wardens stay: one payload after the other has the same one, and none sees what another has left."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lodesman.base import kernel, processes
from lodesman.pilot import nursery as nurseries
from lodesman.pilot import warden
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.warden import Launch, WardenFrame

pytestmark = pytest.mark.slow  # each starts several processes

SMALL = WardenFrame(processes=5_000)
SEGMENT = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
assert libc.shmget(0x10DE, 4096, 0o1600) >= 0
"""
NAME = f"left-{os.getpid()}"
# That of the machine must not change if a test fails.
OWN_NAMES = f'test "$(readlink /proc/self/ns/uts)" != "{Path("/proc/self/ns/uts").readlink()}" || exit 1'
# Calls about keys, by their numbers on x86-64.
KEYS = """import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def key(*all): return libc.syscall(*[ctypes.c_long(one) if isinstance(one, int) else one for one in all])"""


def python(text: str, ignored: str = "ImportError") -> str:
    """A command of the shell that runs a program, which may meet that fault."""
    body = "".join(f"\n    {line}" for line in text.splitlines())
    quoted = f"try:{body}\nexcept {ignored}: pass".replace("'", "'\\''")
    return f""""$PYTHON" -c '{quoted}'"""


class Pilot:
    """A reaper with its folders, and payloads that are shell scripts."""

    def __init__(self, place: Path) -> None:
        self.place, self.outbox = place / "work", place / "outbox"
        for folder in (self.place, self.outbox):
            folder.mkdir()
        self.nursery = Nursery(str(self.place), str(self.outbox))
        self.reaper = Reaper(self.nursery)
        self._made = 0

    def close(self) -> None:
        self.nursery.close()

    def begin(self, script: str, frame: WardenFrame = warden.NO_FRAME, **more) -> AttemptKey:
        """Start a payload in a folder of its own below its warden's."""
        self._made += 1
        key = AttemptKey(self._made, 1)
        home = Path(self.reaper.take(key, frame), str(key))
        home.mkdir()
        streams = {"out": os.open(self.out_of(key), os.O_CREAT | os.O_WRONLY, 0o600)}
        argv = ["/bin/sh", "-c", script]
        environment = {"PATH": os.environ["PATH"], "PYTHON": sys.executable}
        launch = Launch(argv, environment, str(home), streams, frame=frame, **more)
        self.reaper.spawn(key, launch)
        launch.close()
        return key

    def finish(self, key: AttemptKey) -> int | None:
        """Wait for its end, and give its warden back as a payload does: without its folder."""
        home = Path(self.warden_of(key).folder, str(key))
        status = self.reaper.wait(key)
        assert self.reaper.clear(key, lambda: False)
        home.rename(self.place / str(key))
        self.reaper.give(key)
        return status

    def run(self, script: str, frame: WardenFrame = warden.NO_FRAME, **more) -> tuple[int, str]:
        """Run a payload, which succeeds; the pid of its warden and what it wrote."""
        key = self.begin(script, frame, **more)
        pid = self.warden_of(key).pid
        assert self.finish(key) == 0, self.out_of(key).read_text()
        return pid, self.out_of(key).read_text()

    def out_of(self, key: AttemptKey) -> Path:
        return self.place.parent / f"{key}.out"

    def warden_of(self, key: AttemptKey) -> warden.Warden:
        return self.reaper._wardens[key]


@pytest.fixture
def place():
    """Not in /dev/shm, where tests may have their folders: of that payloads have one of their own."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.fixture
def pilot(place):
    """A pilot whose payloads have namespaces."""
    made = Pilot(place)
    found = made.nursery.take()
    is_confined = found.confined
    made.nursery.give(found)
    if not is_confined:
        made.close()
        pytest.skip("payloads have no namespaces here")
    yield made
    made.close()


@pytest.fixture
def open_pilot(place, monkeypatch):
    monkeypatch.setattr(nurseries, "_can_confine", lambda _: False)
    made = Pilot(place)
    yield made
    made.close()


@pytest.fixture
def later(monkeypatch):
    """The clock that says how long ago a payload was asked for its end; it goes on when called."""
    now = [time.monotonic()]

    class Clock:
        monotonic = staticmethod(lambda: now[0])

    monkeypatch.setattr(warden, "time", Clock)

    def go_on(seconds: float) -> None:
        now[0] += seconds

    return go_on


def until(condition, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        threading.Event().wait(0.005)


def is_alive(pid: int) -> bool:
    """A zombie counts as alive: it was not waited for."""
    return Path(f"/proc/{pid}").exists()


# --- one after the other --------------------------------------------------------------------------------


def test_payloads_of_one_frame_have_one_warden(pilot):
    first, second, third = (pilot.run("exit 0", SMALL)[0] for _ in range(3))
    assert first == second == third
    assert pilot.run("exit 0", WardenFrame(processes=5_001))[0] != first


def test_a_warden_that_nothing_was_started_in_serves_any_frame(pilot):
    """A payload was stopped before its start."""
    key = AttemptKey(99, 1)
    pilot.reaper.take(key, SMALL)
    pid = pilot.warden_of(key).pid
    pilot.reaper.give(key)
    assert pilot.run("exit 0", WardenFrame(processes=5_001))[0] == pid


def test_two_at_once_have_two_wardens_and_keep_them(pilot):
    one, other = pilot.begin("exec sleep 600"), pilot.begin("exec sleep 600")
    pids = {pilot.warden_of(one).pid, pilot.warden_of(other).pid}
    assert len(pids) == 2
    pilot.reaper.signal(one, signal.SIGTERM)
    assert pilot.finish(one) == -signal.SIGTERM
    assert pilot.run("exit 0")[0] in pids
    pilot.reaper.signal(other, signal.SIGTERM)
    assert pilot.finish(other) == -signal.SIGTERM


def test_another_size_of_memory_needs_no_other_warden(pilot):
    look = "df -m /dev/shm | tail -1 | tr -s ' ' | cut -d ' ' -f 2"
    found = [pilot.run(look, shm_mb=size) for size in (7, 9, 9, 7)]
    assert len({pid for pid, _ in found}) == 1
    assert [int(text) for _, text in found] == [7, 9, 9, 7]


def test_a_payload_may_change_its_folder_and_remove_it(pilot):
    """The warden stands in the folder of the payload while it runs."""
    key = pilot.begin('rm -rf "$PWD"; exit 3')
    home = Path(pilot.warden_of(key).folder, str(key))
    assert pilot.reaper.wait(key) == 3
    assert pilot.reaper.clear(key, lambda: False)
    assert not home.exists()
    pilot.reaper.give(key)
    assert pilot.run("pwd")[1].strip().startswith(str(pilot.place))


# --- what is left -----------------------------------------------------------------------------------------

LEAVES = {
    "a file in /dev/shm": (f"touch /dev/shm/{NAME}", "ls -A /dev/shm"),
    "a hidden file in /dev/shm": (f"touch /dev/shm/.{NAME}", "ls -A /dev/shm"),
    "the mode of /dev/shm": ("chmod 700 /dev/shm", "stat -c %a /dev/shm | grep -v 1777; true"),
    "shared memory": (
        f'"$PYTHON" -c "{SEGMENT}" && grep -q 4318 /proc/sysvipc/shm',
        "grep -w 4318 /proc/sysvipc/shm; true",
    ),
    "a file beside its folder": (f"touch ../{NAME}", f"ls .. | grep {NAME}; true"),
    "a folder beside its folder": (f"mkdir ../.{NAME}", f"ls -A .. | grep {NAME}; true"),
    "a process": ("(setsid sleep 600 &); true", "ps -e -o comm= | grep sleep; true"),
    "a mount": ("mount -t tmpfs none /mnt", "grep ' /mnt ' /proc/self/mountinfo; true"),
    "a mount over its own": (
        f"mount -t tmpfs none /dev/shm && touch /dev/shm/{NAME}",
        "ls -A /dev/shm",
    ),
    "a mount that may be written again": (
        f'mount -o remount,rw none "$(dirname "$(dirname "$PWD")")" && touch ../../{NAME}',
        f"touch ../../{NAME} 2>/dev/null && echo written; true",
    ),
    "a limit of the warden": ("prlimit --pid 1 --nofile=321:321", "ulimit -n | grep -x 321; true"),
    "the priority of the warden": ("renice -n 7 -p 1 >/dev/null 2>&1; true", "nice | grep -x 7; true"),
    "the policy of the warden": ("chrt --batch -p 0 1 2>/dev/null; true", "chrt -p $$ | grep BATCH; true"),
    "a time slice of the disk": ("ionice -c 3 -p 1 2>/dev/null; true", "ionice -p $$ | grep idle; true"),
    "the group of its scheduling": (
        "echo 7 2>/dev/null >/proc/self/autogroup; true",
        "grep 'nice 7' /proc/self/autogroup 2>/dev/null; true",
    ),
    "what a core dump has": (
        "echo 0x7f 2>/dev/null >/proc/1/coredump_filter; true",
        "grep 7f /proc/self/coredump_filter; true",
    ),
    "the exactness of timers": (
        "echo 7654321 2>/dev/null >/proc/1/timerslack_ns; true",
        "grep 7654321 /proc/$$/timerslack_ns 2>/dev/null; true",
    ),
    "how memory is taken from it": (
        "echo 999 2>/dev/null >/proc/1/oom_score_adj; true",
        "grep -x 999 /proc/self/oom_score_adj; true",
    ),
    "the name of the host": (
        f"{OWN_NAMES}; echo {NAME} 2>/dev/null >/proc/sys/kernel/hostname; true",
        f"uname -n | grep {NAME}; true",
    ),
    "the domain of the host": (
        f"{OWN_NAMES}; echo {NAME} 2>/dev/null >/proc/sys/kernel/domainname; true",
        f"grep {NAME} /proc/sys/kernel/domainname; true",
    ),
    "the mode of the folder above its own": ("chmod 755 ..", "stat -c %a .. | grep -v 700; true"),
    "an attribute of the folder above its own": (
        python("import os; os.setxattr('..', 'user.left', b'x')", "OSError"),
        python("import os; print(*[x for x in os.listxattr('..') if 'left' in x], end='')", "OSError"),
    ),
    "an attribute of /dev/shm": (
        python("import os; os.setxattr('/dev/shm', 'user.left', b'x')", "OSError"),
        python("import os; print(*[x for x in os.listxattr('/dev/shm') if 'left' in x], end='')", "OSError"),
    ),
    "a message queue": (
        python("import ctypes; assert ctypes.CDLL('librt.so.1').mq_open(b'/left', 0o102, 0o600, None) >= 0"),
        python("import ctypes; ctypes.CDLL('librt.so.1').mq_open(b'/left', 2) >= 0 and print('there')"),
    ),
    "a file among the message queues": (f"touch /dev/mqueue/{NAME} 2>/dev/null; true", "ls /dev/mqueue 2>/dev/null; true"),
    "a socket without a file": (
        python(f"import os, socket, time\nif os.fork(): os._exit(0)\nos.setsid(); s = socket.socket(socket.AF_UNIX); "
               f"s.bind('\\0{NAME}'); s.listen(); time.sleep(600)"),
        f"grep {NAME} /proc/net/unix; true",
    ),
    "a mask of new files": ("umask 0", "umask | grep -v 22; true"),
    "a personality": ("setarch -R true; true", "grep 0040000 /proc/self/personality 2>/dev/null; true"),
    "a file that is open": ("exec 9>open", "ls /proc/self/fd | grep -x 9; true"),
    **{
        f"a key of the {name}": (
            python(f"{KEYS}\nassert key(248, b'user', b'{NAME}', b'secret', 6, {ring}) > 0", "BlockingIOError"),
            python(f"{KEYS}\nfound = key(250, 10, {ring}, b'user', b'{NAME}', 0)\nif found > 0: print('there')"),
        )
        for name, ring in (
            ("session", -3), ("user", -4), ("user's session", -5), ("account for good", "key(250, 22, -1, -2)"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("what", LEAVES)
def test_what_one_payload_leaves_the_next_does_not_see(pilot, what):
    leave, look = LEAVES[what]
    if "mount -" in leave and os.geteuid():
        pytest.skip("only root can mount")
    if "a key" in what and os.uname().machine != "x86_64":
        pytest.skip("the calls have other numbers")
    assert pilot.run(look)[1] == "", "it is seen without being left"
    pilot.run(leave)
    assert pilot.run(look)[1] == ""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls have other numbers")
@pytest.mark.parametrize("ring", [-4, "key(250, 22, -1, -2)"])
def test_keys_are_cleared_and_the_warden_stays(pilot, ring):
    leave = python(f"{KEYS}\nassert key(248, b'user', b'{NAME}', b'secret', 6, {ring}) > 0")
    assert len({pilot.run(leave)[0] for _ in range(3)}) == 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls have other numbers")
def test_a_warden_ends_whose_keyring_a_payload_has_locked(pilot):
    """The keys in it cannot be known any more."""
    if not os.geteuid():
        pytest.skip("the keyring would be that of root")
    locked, _ = pilot.run(python(f"{KEYS}\nassert key(250, 5, key(250, 0, -4, 1), 0) == 0"))
    assert pilot.run("exit 0")[0] != locked


def test_a_payload_that_takes_the_open_files_of_its_warden_at_once_has_run(place, monkeypatch):
    """Before its warden has looked whether it runs."""

    def no_file(_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(processes, "has_executed", no_file)
    pilot = Pilot(place)
    try:
        assert pilot.run("echo it runs")[1] == "it runs\n"
    finally:
        pilot.close()


def test_processors_that_one_payload_takes_from_the_warden_the_next_has(pilot):
    before = pilot.run("nproc")[1]
    if before == "1\n":
        pytest.skip("there is one processor")
    first = min(os.sched_getaffinity(0))
    pilot.run(f"taskset -cp {first} 1 >/dev/null 2>&1; true")
    assert pilot.run("nproc")[1] == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads the memory of any process")
def test_a_payload_reads_no_memory_of_its_warden(pilot):
    """What it could read it could change, for those that come after it."""
    assert pilot.run("cat /proc/1/environ >/dev/null 2>&1; echo $?")[1] != "0\n"


def test_what_is_beside_the_folders_cannot_be_written_by_any_payload(pilot):
    write = "touch ../../made 2>/dev/null; echo $?; ls -A ../.."
    found = [pilot.run(write)[1].split() for _ in range(2)]
    assert [exit_code != "0" for exit_code, *_ in found] == [True, True]
    assert [names for _, *names in found] == [[found[0][1]]] * 2  # the warden's folder alone


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no memory to work in")
def test_a_pilot_may_work_in_memory():
    """There /dev/shm is the payload's own and has its folder in it, and the next one's afterwards."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        made = Pilot(Path(name))
        with contextlib.closing(made):
            script = f"ls -A /dev/shm; touch /dev/shm/{NAME}; echo > result; ls -A .."
            found = [made.run(script) for _ in range(2)]
            assert (made.place / "1.1" / "result").exists()
            assert (made.place / "2.1" / "result").exists()
            pids = {made.run(":")[0] for _ in range(30)}
            last = made.nursery.take()
            made.nursery.give(last)
        assert not last.confined or len(pids) == 1  # its folder goes while the warden clears up
        assert not last.confined or found[0][0] == found[1][0]  # the warden stays
        assert found[0][1].replace("1.1", "2.1") == found[1][1] or found[0][0] != found[1][0]
        assert NAME not in found[1][1]
        assert not Path("/dev/shm", NAME).exists()


# --- wardens that end ---------------------------------------------------------------------------------------


def test_a_warden_that_was_killed_while_it_was_idle_is_replaced(pilot):
    pid, _ = pilot.run("exit 0")
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    other, text = pilot.run("echo ran")
    assert (other != pid, text) == (True, "ran\n")
    until(lambda: pilot.nursery.pids() and not is_alive(pid))


def test_a_warden_that_never_had_a_payload_may_be_killed(pilot):
    key = AttemptKey(99, 1)
    pilot.reaper.take(key, SMALL)
    pid = pilot.warden_of(key).pid
    pilot.reaper.give(key)
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert pilot.run("echo ran")[1] == "ran\n"


def test_a_warden_that_killed_its_payload_is_not_used_again(pilot):
    """The signal may come late, and would end the next one."""
    key = pilot.begin("exec sleep 600")
    pid = pilot.warden_of(key).pid
    pilot.reaper.kill(key)
    assert pilot.finish(key) == -signal.SIGKILL
    assert pilot.run("exit 0")[0] != pid


def test_a_payload_that_is_asked_for_its_end_again_keeps_its_status(pilot, later):
    """On a busy machine it is asked again before the warden, which is stopped here, could do anything."""
    key = pilot.begin("exec sleep 600")
    pid = pilot.warden_of(key).pid
    os.kill(pid, signal.SIGSTOP)
    pilot.reaper.kill(key)
    later(0.9)
    pilot.reaper.kill(key)
    os.kill(pid, signal.SIGCONT)
    assert pilot.finish(key) == -signal.SIGKILL


def test_a_warden_that_does_not_end_its_payload_is_killed_at_last(pilot, later):
    key = pilot.begin("exec sleep 600")
    found = pilot.warden_of(key)
    os.kill(found.pid, signal.SIGSTOP)
    pilot.reaper.kill(key)
    later(1.1)
    pilot.reaper.kill(key)
    assert pilot.reaper.wait(key) is None
    assert pilot.reaper.clear(key, lambda: False)
    assert not is_alive(found.pid)
    assert key not in pilot.reaper._wardens
    pilot.reaper.give(key)
    assert pilot.run("echo ran")[1] == "ran\n"


def test_a_warden_that_is_killed_in_the_middle_leaves_nothing(pilot):
    key = pilot.begin("sleep 600 & setsid sleep 600 & wait")
    until(lambda: len(pilot.reaper._members(key)) == 3)
    members = [process.ident for process in pilot.reaper._members(key)]
    pid = pilot.warden_of(key).pid
    os.kill(pid, signal.SIGKILL)
    assert pilot.reaper.wait(key) is None
    assert pilot.reaper.clear(key, lambda: False)
    left = {process.ident for process in processes.read_processes().values()}
    assert not left & set(members)
    assert not is_alive(pid)
    pilot.reaper.forget(key)
    pilot.reaper.give(key)
    assert pilot.reaper.measure() == {}


def test_retired_wardens_are_waited_for(pilot):
    """Each frame is another one, and one place is free: one warden is idle at a time."""
    pids = [pilot.run("exit 0", WardenFrame(processes=5_000 + number))[0] for number in range(6)]
    assert len(set(pids)) == 6
    until(lambda: pilot.nursery.pids() and not any(map(is_alive, pids[:-1])))
    assert pids[-1] in pilot.nursery.pids()
    assert not {Path(f"{pilot.place}/w{number}") for number in range(1, 6)} & set(pilot.place.iterdir())


def test_nothing_runs_and_nothing_is_left_to_wait_for_when_it_is_closed(place):
    made = Pilot(place)
    for number in range(3):
        made.run("exit 0", WardenFrame(processes=5_000 + number))
    pids = made.nursery.pids()
    made.close()
    assert not any(map(is_alive, pids))


def test_where_it_is_not_known_what_payloads_leave_each_has_a_warden_of_its_own(pilot, place, monkeypatch):
    monkeypatch.setattr(kernel, "_NUMBERS", None)
    (place / "other").mkdir()
    made = Pilot(place / "other")
    with contextlib.closing(made):
        pids = [made.run("exit 0")[0] for _ in range(3)]
    assert len(set(pids)) == 3


def test_an_open_warden_serves_one_payload(open_pilot):
    first, second = open_pilot.run("exit 0")[0], open_pilot.run("exit 0")[0]
    assert first != second
    until(lambda: open_pilot.nursery.pids() and not is_alive(first))


# --- what is counted ----------------------------------------------------------------------------------------

SPIN = "import os, time\nwhile time.process_time() < {}: pass\n"


def test_the_cpu_time_of_one_payload_is_not_that_of_the_next(pilot):
    key = pilot.begin(f'exec "$PYTHON" -c "{SPIN.format(0.5)}"')
    pid = pilot.warden_of(key).pid
    pilot.reaper.wait(key)
    pilot.reaper.clear(key, lambda: False)
    assert pilot.reaper.forget(key).cpu_seconds >= 0.5
    Path(pilot.warden_of(key).folder, str(key)).rename(pilot.place / str(key))
    pilot.reaper.give(key)
    key = pilot.begin("touch begun; exec sleep 600")
    assert pilot.warden_of(key).pid == pid
    until(lambda: Path(pilot.warden_of(key).folder, str(key), "begun").exists())
    assert pilot.reaper.measure()[key].cpu_seconds < 0.25
    pilot.reaper.signal(key, signal.SIGTERM)
    assert pilot.finish(key) == -signal.SIGTERM
    assert pilot.reaper.forget(key).cpu_seconds < 0.25


def test_a_pilot_knows_whether_a_home_is_protected(pilot, tmp_path):
    """Payloads have namespaces here, but a folder that is not there cannot be bound."""
    assert nurseries.can_protect(str(tmp_path))
    assert not nurseries.can_protect(str(tmp_path / "gone"))
