"""Starting, waiting for and ending real trees of processes."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from lodesman.base import processes
from lodesman.pilot import nursery as nurseries
from lodesman.pilot import warden
from lodesman.pilot.nursery import Nursery, PilotFault
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.warden import NO_FRAME, Launch, NeverStarted, WardenFrame

pytestmark = pytest.mark.slow  # each starts several processes

KEY, OTHER = AttemptKey(1, 1), AttemptKey(2, 1)
LONG = f"{10**6 + os.getpid()}"


@pytest.fixture(scope="module", autouse=True)
def no_inheritance():
    """What started the tests may have left descriptors open, which a pilot closes when it begins."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.set_inheritable(int(name), int(name) < 3)


@pytest.fixture
def null():
    descriptor = os.open(os.devnull, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(params=["confined", "open"])
def reaper(request, monkeypatch):
    """Reapers whose payloads have PID namespaces, if this system allows that, and others."""
    if request.param == "open":
        monkeypatch.setattr(nurseries, "_can_confine", lambda _: False)
    nursery = Nursery()
    made = Reaper(nursery)
    yield made
    for key in list(made._accounts):
        made.kill(key)
        made.clear(key, lambda: False)
    for key in list(made._wardens):
        made.give(key)
    nursery.close()


@pytest.fixture
def spawn(reaper, null, tmp_path):
    def start(script: str, key=KEY, **more) -> None:
        argv = ["/bin/sh", "-c", script]
        environment = {"PATH": os.environ["PATH"]}
        frame = WardenFrame(tuple(more.pop("limits", {}).items()), more.pop("processes", 0))
        reaper.spawn(key, Launch(argv, environment, str(tmp_path), {"out": null}, frame=frame, **more))

    return start


@pytest.fixture
def pass_gate(tmp_path):
    """Let a script go on that has come to AT_GATE; waits until it has."""
    path = tmp_path / "gate"
    os.mkfifo(path)

    def is_there() -> bool:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    return lambda: until(is_there)


AT_GATE = "read line < gate; true"


def until(condition, timeout: float = 60.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def alive(reaper, key=KEY) -> int:
    """The processes of a payload that are not zombies."""
    return sum(not process.is_dead for process in reaper._members(key))


@pytest.mark.parametrize(
    ("script", "end"),
    [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", -15)],
)
def test_ends(reaper, spawn, script, end):
    spawn(script)
    assert reaper.wait(KEY) == end
    assert reaper.clear(KEY, lambda: False)
    reaper.forget(KEY)
    assert reaper.measure() == {}


def test_what_cannot_be_executed(reaper, null, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        reaper.spawn(KEY, Launch(["/bin/true"], {}, str(tmp_path / "nothing"), {"out": null}))
    assert reaper.measure() == {}


def test_a_payload_has_its_streams_and_no_other_descriptor(reaper, spawn, tmp_path):
    spawn("exec > list; n=0; while [ $n -lt 64 ]; do [ ! -e /proc/$$/fd/$n ] || echo $n; n=$((n + 1)); done")
    assert reaper.wait(KEY) == 0
    assert (tmp_path / "list").read_text().split() == ["0", "1", "2"]


def test_the_session_is_its_own(reaper, spawn):
    spawn("exec sleep 60")
    (process,) = reaper._members(KEY)
    assert os.getsid(process.pid) == reaper._wardens[KEY].pid != os.getsid(0)
    reaper.kill(KEY)
    assert reaper.wait(KEY) == -signal.SIGKILL


def test_cpu_time_of_the_whole_tree(reaper, spawn, tmp_path):
    code = "import os, time\nwhile time.process_time() < 0.5: pass\n"
    spin = f"{sys.executable} -c '{code}while not os.path.exists(\"seen\"): time.sleep(0.01)'"
    spawn(f"{spin} & {spin} & wait")
    until(lambda: alive(reaper) >= 3 and reaper.measure()[KEY].rss_mb > 5)
    (tmp_path / "seen").touch()
    reaper.wait(KEY)
    reaper.clear(KEY, lambda: False)
    assert 1.0 <= reaper.forget(KEY).cpu_seconds < 4


def test_what_is_left_behind_is_killed(reaper, spawn, pass_gate):
    spawn(f"sleep {LONG} & setsid sleep {LONG} & {AT_GATE}")
    until(lambda: alive(reaper) == 3)
    pass_gate()
    assert reaper.wait(KEY) == 0
    assert reaper.clear(KEY, lambda: False)
    assert alive(reaper) == 0


def test_clear_stops_on_request(reaper, spawn, monkeypatch, pass_gate):
    monkeypatch.setattr(Reaper, "_is_gone", lambda self, key, pause: False)
    spawn(f"sleep {LONG} & {AT_GATE}")
    until(lambda: alive(reaper) == 2)
    pass_gate()
    reaper.wait(KEY)
    assert not reaper.clear(KEY, lambda: True)
    monkeypatch.undo()
    assert reaper.clear(KEY, lambda: False)


def test_signals_reach_every_process(reaper, spawn, tmp_path):
    inner = "(trap 'echo b >> got; exit' TERM; touch inner; while :; do sleep 0.05; done)"
    spawn(f"trap 'echo a >> got; wait; exit 3' TERM; {inner} & touch outer; wait")
    until(lambda: (tmp_path / "outer").exists() and (tmp_path / "inner").exists())
    reaper.signal(KEY, signal.SIGTERM)
    assert reaper.wait(KEY) == 3
    until(lambda: sorted((tmp_path / "got").read_text().split()) == ["a", "b"])
    assert reaper.clear(KEY, lambda: False)


def test_two_payloads_are_distinguished(reaper, spawn):
    spawn("sleep 60 & wait", key=KEY)
    spawn("sleep 60 & wait", key=OTHER)
    until(lambda: alive(reaper) == alive(reaper, OTHER) == 2)
    reaper.kill(KEY)
    assert reaper.wait(KEY) == -signal.SIGKILL
    assert reaper.clear(KEY, lambda: False)
    assert alive(reaper, OTHER) == 2
    reaper.kill(OTHER)
    reaper.wait(OTHER)


def test_waiting_blocks_no_other_payload(reaper, spawn):
    spawn("exec sleep 60")
    ends = []
    thread = threading.Thread(target=lambda: ends.append(reaper.wait(KEY)))
    thread.start()
    assert alive(reaper) == 1
    reaper.kill(KEY)
    thread.join(60)
    assert ends == [-signal.SIGKILL]


def test_memory_that_is_shared(reaper, spawn):
    spawn("sleep 60")
    shared = reaper.shared_mb(KEY)
    assert shared is None or 0 < shared < 50
    reaper.kill(KEY)
    reaper.wait(KEY)


def test_a_payload_that_never_ran_is_no_end_by_a_signal(reaper, spawn, monkeypatch):
    take = Nursery.take

    def take_dead(nursery, frame):
        found = take(nursery, frame)
        os.kill(found.pid, signal.SIGKILL)
        return found

    monkeypatch.setattr(Nursery, "take", take_dead)
    with pytest.raises(NeverStarted):
        spawn("exit 0")
    assert reaper.measure() == {}


def test_without_a_nursery_the_pilot_can_start_no_more_and_the_node_is_not_to_blame(
    reaper, spawn, monkeypatch
):
    assert not reaper.is_lost()
    spawn("exit 0")
    reaper.wait(KEY)
    monkeypatch.setattr(warden, "_PATIENCE_S", 0.5)
    os.kill(reaper._nursery.pid, signal.SIGKILL)
    os.waitid(os.P_PID, reaper._nursery.pid, os.WEXITED | os.WNOWAIT)
    spawned = []
    with contextlib.suppress(PilotFault):  # one warden may be ready
        for number in range(2, 5):
            spawn("exit 0", key=AttemptKey(number, 1))
            spawned.append(number)
    assert len(spawned) < 2
    assert reaper.is_lost()
    with pytest.raises(PilotFault, match="was killed"):
        spawn("exit 0", key=AttemptKey(9, 1))


def test_limits_of_a_payload(reaper, spawn, tmp_path):
    before = int(Path("/proc/self/oom_score_adj").read_text())
    size = 1 << 40  # more than this process has: the warden, a fork of it, has the limit, too
    spawn(
        "cat /proc/self/limits /proc/self/oom_score_adj > seen",
        limits={resource.RLIMIT_AS: (size, size)},
        processes=70,
    )
    assert reaper.wait(KEY) == 0
    *limits, score = (tmp_path / "seen").read_text().splitlines()
    found = {line[:25].strip(): line[26:].split()[0] for line in limits}
    assert found["Max address space"] == str(size)
    assert 70 <= int(found["Max processes"]) < 70_000
    assert int(score) == min(1000, before + 300)


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel limits no processes of root")
def test_a_flood_of_processes_ends_at_the_limit(reaper, spawn, tmp_path):
    spawn("for i in 1 2 3 4 5 6 7 8 9; do sleep 9 & done; touch all", processes=6)
    confined = reaper._wardens[KEY].confined
    reaper.wait(KEY)
    if not confined:
        pytest.skip("the kernel counts all of this account's processes")
    assert not (tmp_path / "all").exists()


# --- as a subreaper: in a process of its own ----------------------------------------------------------

ADOPT = """
import os, sys, time
from pathlib import Path
place = Path(sys.argv[1])
from lodesman.base import kernel, processes
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot import nursery as nurseries
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.warden import Launch
from lodesman.pilot.reaper import NodeFault, Reaper
if sys.argv[2] == "open":
    nurseries._can_confine = lambda _: False
assert kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
nursery = Nursery()
nursery.open()
assert kernel.set_attribute(kernel.DUMPABLE, 0)
null = os.open(os.devnull, os.O_RDWR)
reaper = Reaper(nursery)
def spawn(key, script):
    launch = Launch(["/bin/sh", "-c", script], dict(os.environ), str(place), {"out": null})
    reaper.spawn(AttemptKey(*key), launch)
def done(key):
    reaper.forget(AttemptKey(*key))
    reaper.give(AttemptKey(*key))
def alone():
    return nursery.pids().issuperset(processes.read_children())
def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
"""


@pytest.fixture(params=["confined", "open"])
def adopting(request):
    """Run a script in a process of its own, whose payloads run in `place`."""
    return lambda script, place="/": _adopt(script, place, request.param)


def _adopt(script: str, place: Path | str, kind: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ADOPT + script, str(place), kind],
        env=environment,
        timeout=200,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_orphans_are_adopted_counted_and_buried(adopting, tmp_path):
    adopting(
        'code = \'import time\\nwhile time.process_time() < 0.4: pass\\nopen("spun", "w")\'\n'
        "spin = f\"{sys.executable} -c '{code}'\"\n"
        "spawn((1, 1), f'(setsid {spin} &) ; while [ ! -e spun ]; do sleep 0.01; done')\n"
        "reaper.wait((1, 1))\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "assert reaper._accounts[(1, 1)].usage.cpu_seconds >= 0.4\n"
        "done((1, 1))\n"
        "assert alone()\n",
        tmp_path,
    )


def test_a_clean_environment_and_a_session_of_its_own_do_not_hide(adopting, tmp_path):
    adopting(
        "hidden = 'touch hidden; exec sleep 600'\n"
        "left = f\"(env -i setsid /bin/sh -c '{hidden}' &); while [ ! -e hidden ]; do sleep 0.01; done\"\n"
        "spawn((1, 1), left)\n"
        "spawn((2, 1), 'while [ ! -e end ]; do sleep 0.01; done')\n"
        "reaper.measure()\n"
        "reaper.wait((1, 1))\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "done((1, 1))\n"
        "(place / 'end').touch()\n"
        "reaper.wait((2, 1))\n"
        "assert reaper.clear((2, 1), lambda: False)\n"
        "done((2, 1))\n"
        "assert alone()\n",
        tmp_path,
    )


def test_a_quick_end_needs_no_list_of_all_processes(adopting):
    adopting(
        "spawn((2, 1), 'exec sleep 60')\n"
        "spawn((1, 1), 'exec true')\n"
        "reaper.wait((1, 1))\n"
        "known = reaper._has_no_strays()\n"
        "looks, scan = [], processes.read_processes\n"
        "if known: processes.read_processes = lambda: looks.append(1) or {}\n"
        "kill, reaper.kill = reaper.kill, lambda _: None\n"  # on a busy machine the warden is not gone at once
        "assert reaper.clear((1, 1), lambda: False)\n"
        "assert not looks\n"
        "processes.read_processes = scan\n"
        "kill((2, 1))\n"
    )


def test_a_tree_that_forks_all_the_time_is_killed(adopting):
    adopting(
        "spawn((1, 1), 'while :; do (setsid sleep 5 &) ; done')\n"
        "while len(reaper._members((1, 1))) < 10: pass\n"
        "reaper.kill((1, 1))\n"
        "assert reaper.wait((1, 1)) == -9\n"
        "end = time.monotonic() + 60\n"
        "assert reaper.clear((1, 1), lambda: time.monotonic() > end)\n"
        "done((1, 1))\n"
        "assert alone()\n"
    )


STRAY = """
deaf = "trap '' TERM; touch deaf; exec sleep 600"
left = f"(env -i setsid /bin/sh -c '{{ {deaf}; }}' &); while [ ! -e deaf ]; do sleep 0.01; done; "
spawn((2, 1), "exec sleep 600")
"""


def test_a_payload_that_kills_its_warden_leaves_nothing_and_charges_no_other(adopting, tmp_path):
    """In a PID namespace it cannot kill it at all, and the warden ends the payload's processes with it."""
    adopting(
        STRAY + "spawn((1, 1), left + 'kill -9 $PPID; exit 7')\n"
        "assert reaper.wait((1, 1)) == (7 if sys.argv[2] == 'confined' else None)\n"
        "assert set(reaper.measure()) == {(1, 1), (2, 1)}\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "done((1, 1))\n"
        "assert len(reaper._members((2, 1))) == 1\n"
        "assert reaper.measure()[2, 1].max_rss_mb < 5\n"
        "assert reaper._has_no_strays()\n"
        "reaper.kill((2, 1))\n",
        tmp_path,
    )


def test_what_belongs_to_no_warden_is_killed_and_charged_to_none(adopting):
    adopting(
        "spawn((1, 1), 'exec sleep 600')\n"
        "import subprocess\n"
        "stray = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "assert reaper.measure()[1, 1].cpu_seconds < 1\n"
        "until(lambda: reaper._bury_strays(processes.read_processes()) is False)\n"
        "stray.returncode = 0\n"
        "assert [p.parent for p in reaper._members((1, 1))] == [reaper._wardens[1, 1].pid]\n"
        "reaper.kill((1, 1))\n"
    )


def test_a_payload_in_a_namespace_ends_with_a_pilot_that_is_killed(adopting, tmp_path):
    script = (
        "if sys.argv[2] == 'open': sys.exit()\n"
        "if not nursery.take().confined: sys.exit()\n"
        "nursery.order()\n"
        "spawn((1, 1), 'touch begun; exec sleep 600')\n"
        "until(lambda: (place / 'begun').exists() and len(reaper._members((1, 1))) == 1)\n"
        "(process,) = reaper._members((1, 1))\n"
        "(place / 'pid').write_text(str(process.pid))\n"
        "os._exit(0)\n"
    )
    adopting(script, tmp_path)
    if (tmp_path / "pid").exists():
        pid = int((tmp_path / "pid").read_text())
        until(lambda: (left := processes.read_processes().get(pid)) is None or left.is_dead)


def test_nothing_is_left_at_the_very_end(adopting):
    adopting(
        "from lodesman.base.processes import descendants\n"
        "def left(): return [p for p in descendants(processes.read_processes(), [os.getpid()]) if p.state != 'Z']\n"
        "spawn((1, 1), '(env -i setsid sleep 600 &) ; setsid sleep 600 & setsid sleep 600')\n"
        "until(lambda: len(left()) >= 3)\n"
        "reaper.kill_rest()\n"
        "assert not left(), left()\n"
    )


def test_a_confined_payload_sees_no_other_job_of_its_pilot(tmp_path):
    work, other, outbox = tmp_path / "work", tmp_path / "work" / "2.1", tmp_path / "outbox"
    for place in (other, outbox):
        place.mkdir(parents=True)
        (place / "result").write_text(place.name)
    nursery = Nursery(str(work), str(outbox))
    reaper = Reaper(nursery)
    own = Path(reaper.take(KEY, NO_FRAME), "1.1")
    own.mkdir()
    (own / "result").write_text("1.1")
    look = f"ls {tmp_path}/work {own.parent} {outbox} /proc/1/fd/*; df -m /dev/shm | tail -1"
    script = f"cat result; {look}; touch made /dev/shm/stray-{LONG}"
    with (tmp_path / "out").open("wb") as out:
        reaper.spawn(
            KEY,
            Launch(
                ["/bin/sh", "-c", script], dict(os.environ), str(own), {"out": out.fileno()},
                shm_mb=7,
            ),
        )  # fmt: skip
    confined = reaper._wardens[KEY].confined
    reaper.wait(KEY)
    reaper.clear(KEY, lambda: False)
    reaper.give(KEY)
    nursery.close()
    if not confined:
        pytest.skip("payloads have no namespaces here")
    words = (tmp_path / "out").read_text().split()
    assert "2.1" not in words
    assert words.count("1.1") == 1
    assert words.count("result") == 0
    assert "7" in words
    assert (own / "made").exists()
    assert not Path(f"/dev/shm/stray-{LONG}").exists()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no memory to work in")
def test_a_pilot_may_work_in_memory(null):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        nursery = Nursery(place)
        reaper = Reaper(nursery)
        home = Path(reaper.take(KEY, NO_FRAME), "1.1")
        home.mkdir()
        (home / "input").write_text("there")
        reaper.spawn(KEY, Launch(["/bin/cp", "input", "result"], {}, str(home), {"out": null}))
        assert reaper.wait(KEY) == 0
        reaper.clear(KEY, lambda: False)
        reaper.give(KEY)
        nursery.close()
        assert (home / "result").read_text() == "there"
