"""Starting, waiting for and ending real trees of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lodesman.pilot import processes
from lodesman.pilot.launch import Launch
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper

KEY, OTHER = AttemptKey(1, 1), AttemptKey(2, 1)
STAMP = f"stamp{os.getpid()}"
LONG = f"{10**6 + os.getpid()}"


@pytest.fixture
def null():
    descriptor = os.open(os.devnull, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def reaper(null, tmp_path):
    made = Reaper(STAMP, adopts=False)
    yield made
    for key in list(made._accounts):
        made.kill(key)


@pytest.fixture
def spawn(reaper, null, tmp_path):
    def start(script: str, key=KEY) -> int:
        environment = {
            "PATH": os.environ["PATH"],
            processes.MARK: f"{key[0]}.{key[1]}",
            processes.STAMP: STAMP,
        }
        argv = ["/bin/sh", "-c", script]
        return reaper.spawn(key, Launch(argv, environment, tmp_path, null, {"out": null}))

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
    return sum(process.state != processes.ZOMBIE for process in reaper._trees().get(key, ()))


@pytest.mark.parametrize(
    ("script", "end"),
    [("exit 0", 0), ("exit 9", 9), ("kill -TERM $$", -15)],
)
def test_ends(reaper, spawn, script, end):
    assert reaper.wait(spawn(script)) == end
    assert reaper.clear(KEY, lambda: False)
    reaper.forget(KEY)
    assert reaper.measure() == {}


def test_what_cannot_be_executed(reaper, null, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        reaper.spawn(KEY, Launch(["/nothing"], {}, tmp_path, null, {"out": null}))
    assert reaper.measure() == {}


def test_the_session_is_its_own(reaper, spawn):
    pid = spawn("sleep 60")
    assert os.getsid(pid) == pid
    reaper.kill(KEY)
    assert reaper.wait(pid) == -signal.SIGKILL


@pytest.mark.slow
def test_cpu_time_of_the_whole_tree(reaper, spawn, tmp_path):
    code = "import os, time\nwhile time.process_time() < 0.5: pass\n"
    spin = f"{sys.executable} -c '{code}while not os.path.exists(\"seen\"): time.sleep(0.01)'"
    pid = spawn(f"{spin} & {spin} & wait")
    until(lambda: alive(reaper) >= 3 and reaper.measure()[KEY].rss_mb > 5)
    (tmp_path / "seen").touch()
    reaper.wait(pid)
    reaper.clear(KEY, lambda: False)
    assert 1.0 <= reaper.forget(KEY).cpu_seconds < 4


def test_what_is_left_behind_is_killed(reaper, spawn, pass_gate):
    pid = spawn(f"sleep {LONG} & setsid sleep {LONG} & {AT_GATE}")
    until(lambda: alive(reaper) == 3)
    pass_gate()
    assert reaper.wait(pid) == 0
    assert alive(reaper) == 2
    assert reaper.clear(KEY, lambda: False)
    assert alive(reaper) == 0


def test_clear_stops_on_request(reaper, spawn, monkeypatch, pass_gate):
    monkeypatch.setattr(Reaper, "kill", lambda self, key: None)
    pid = spawn(f"sleep {LONG} & {AT_GATE}")
    until(lambda: alive(reaper) == 2)
    pass_gate()
    reaper.wait(pid)
    assert not reaper.clear(KEY, lambda: True)
    monkeypatch.undo()
    assert reaper.clear(KEY, lambda: False)


def test_signals_reach_every_process(reaper, spawn, tmp_path):
    inner = "(trap 'echo b >> got; exit' TERM; touch inner; while :; do sleep 0.05; done)"
    pid = spawn(f"trap 'echo a >> got; exit 3' TERM; {inner} & touch outer; wait")
    until(lambda: (tmp_path / "outer").exists() and (tmp_path / "inner").exists())
    reaper.signal(KEY, signal.SIGTERM)
    assert reaper.wait(pid) == 3
    until(lambda: sorted((tmp_path / "got").read_text().split()) == ["a", "b"])
    assert reaper.clear(KEY, lambda: False)


def test_two_payloads_are_distinguished(reaper, spawn):
    one, two = spawn("sleep 60 & wait", key=KEY), spawn("sleep 60 & wait", key=OTHER)
    until(lambda: alive(reaper) == alive(reaper, OTHER) == 2)
    reaper.kill(KEY)
    assert reaper.wait(one) == -signal.SIGKILL
    assert reaper.clear(KEY, lambda: False)
    assert alive(reaper, OTHER) == 2
    reaper.kill(OTHER)
    reaper.wait(two)


def test_waiting_blocks_no_other_payload(reaper, spawn):
    pid = spawn("exec sleep 60")
    ends = []
    thread = threading.Thread(target=lambda: ends.append(reaper.wait(pid)))
    thread.start()
    assert alive(reaper) == 1
    reaper.kill(KEY)
    thread.join(60)
    assert ends == [-signal.SIGKILL]


def test_memory_that_is_shared(reaper, spawn):
    pid = spawn("sleep 60")
    shared = reaper.shared_mb(KEY)
    assert shared is None or 0 < shared < 50
    reaper.kill(KEY)
    reaper.wait(pid)


# --- as a subreaper: in a process of its own ----------------------------------------------------------

ADOPT = """
import os, sys, time
from pathlib import Path
place = Path(sys.argv[1])
from lodesman.pilot import processes
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.launch import Launch
from lodesman.pilot.reaper import Reaper
assert processes.become_subreaper() and processes.hide_memory()
null = os.open(os.devnull, os.O_RDWR)
reaper = Reaper(f"s{os.getpid()}", adopts=True)
def spawn(key, script):
    mark = {"PATH": os.environ["PATH"], "LODESMAN_JOB": "%d.%d" % key, "LODESMAN_STAMP": f"s{os.getpid()}"}
    launch = Launch(["/bin/sh", "-c", script], mark, place, null, {"out": null})
    return reaper.spawn(AttemptKey(*key), launch)
def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
"""


def adopting(script: str, place: Path | str = "/") -> None:
    """Run a script whose process adopts orphans. Its payloads run in `place`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", ADOPT + script, str(place)],
        env=environment,
        timeout=200,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_orphans_are_adopted_counted_and_buried(tmp_path):
    adopting(
        'code = \'import time\\nwhile time.process_time() < 0.4: pass\\nopen("spun", "w")\'\n'
        "spin = f\"{sys.executable} -c '{code}'\"\n"
        "pid = spawn((1, 1), f'(setsid {spin} &) ; while [ ! -e spun ]; do sleep 0.01; done')\n"
        "reaper.wait(pid)\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "assert reaper.forget((1, 1)).cpu_seconds >= 0.4\n"
        "assert processes.has_no_child_but(())\n",
        tmp_path,
    )


def test_a_clean_environment_and_a_session_of_its_own_do_not_hide(tmp_path):
    adopting(
        "hidden = 'touch hidden; exec sleep 600'\n"
        "left = f\"(env -i setsid /bin/sh -c '{hidden}' &); while [ ! -e hidden ]; do sleep 0.01; done\"\n"
        "pid = spawn((1, 1), left)\n"
        "other = spawn((2, 1), 'while [ ! -e end ]; do sleep 0.01; done')\n"
        "reaper.measure()\n"
        "reaper.wait(pid)\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "reaper.forget((1, 1))\n"
        "(place / 'end').touch()\n"
        "reaper.wait(other)\n"
        "assert reaper.clear((2, 1), lambda: False)\n"
        "assert processes.has_no_child_but(())\n",
        tmp_path,
    )


def test_a_quick_end_needs_no_list_of_all_processes():
    adopting(
        "other = spawn((2, 1), 'exec sleep 60')\n"
        "pid = spawn((1, 1), 'exec true')\n"
        "reaper.wait(pid)\n"
        "known = processes.has_no_child_but({other})\n"
        "looks = []\n"
        "if known: processes.read_processes = lambda: looks.append(1) or {}\n"
        "assert reaper.clear((1, 1), lambda: False)\n"
        "assert not looks\n"
        "os.kill(other, 9)\n"
    )


def test_a_tree_that_forks_all_the_time_is_killed():
    adopting(
        "pid = spawn((1, 1), 'while :; do (setsid sleep 5 &) ; done')\n"
        "while len(reaper._trees()[1, 1]) < 10: pass\n"
        "reaper.kill((1, 1))\n"
        "assert reaper.wait(pid) == -9\n"
        "end = time.monotonic() + 60\n"
        "assert reaper.clear((1, 1), lambda: time.monotonic() > end)\n"
        "reaper.forget((1, 1))\n"
        "assert processes.has_no_child_but(())\n"
    )


@pytest.fixture
def leave_one(spawn, reaper, tmp_path):
    """Run a payload that leaves one process, in a session of its own, and ends; it was not scanned before."""

    def leave() -> None:
        hidden = f"touch hidden; exec sleep {LONG}"
        pid = spawn(f"(setsid sh -c '{hidden}' &); while [ ! -e hidden ]; do sleep 0.01; done")
        reaper.wait(pid)

    return leave


def test_without_adoption_a_mark_is_enough(reaper, leave_one):
    leave_one()
    # Not at once: it is about to become another program, and for a moment has no environment.
    until(lambda: alive(reaper) == 1)
    assert reaper.clear(KEY, lambda: False)
    assert alive(reaper) == 0


def test_a_process_without_an_environment_is_asked_again(reaper, leave_one, monkeypatch):
    leave_one()
    with monkeypatch.context() as patch:
        patch.setattr(processes, "environment_of", lambda pid: [])
        assert alive(reaper) == 0
    until(lambda: alive(reaper) == 1)
    assert reaper.clear(KEY, lambda: False)


def test_nothing_is_left_at_the_very_end():
    adopting(
        "from lodesman.pilot.processes import descendants\n"
        "def left(): return [p for p in descendants(processes.read_processes(), os.getpid()) if p.state != 'Z']\n"
        "spawn((1, 1), '(env -i setsid sleep 600 &) ; setsid sleep 600 & setsid sleep 600')\n"
        "until(lambda: len(left()) >= 3)\n"
        "reaper.kill_rest()\n"
        "assert not left(), left()\n"
    )
