"""Processes: /proc read, families found and killed, each signal to the process that it is for."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base import processes
from lodesman.base.processes import (
    Process,
    ProcessId,
    descendants,
    freeze,
    is_alive,
    kill_family,
    kill_group,
    living_processes,
    parse_cgroups,
    parse_stat,
    read_children,
    read_process,
    read_processes,
    signal_process,
)

SLEEPER = "import signal; print('ready', flush=True); signal.pause()"


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPER], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


def process(pid, parent, start=1):
    return Process(pid, parent, start, "S", 0)


# --- /proc/PID/stat -----------------------------------------------------------------------------------------------------


def test_a_name_may_hold_anything():
    text = (
        b"42 (a) b (c) R 7 8 9 5 -1 4194304 1 2 3 4 11 12 13 14 20 0 3 0 555 1000 77 18446744073709551615 0"
    )
    assert parse_stat(text) == Process(42, 7, 555, "R", 5, 23, 27, 3, 77)
    assert parse_stat(text).ident == ProcessId(42, 555)


def test_what_is_cut_short_is_nothing():
    assert parse_stat(b"") is None
    assert parse_stat(b"42 (sh) R 7 8") is None
    assert parse_stat(b"x (sh) " + b"1 " * 30) is None


@given(st.text(max_size=200))
def test_no_name_breaks_the_reader(text):
    parse_stat(b"1 (" + text.encode("utf-8", "surrogatepass"))


def test_this_process_is_in_the_table():
    me = read_processes()[os.getpid()]
    assert me.parent == os.getppid()
    assert me.rss_pages > 100
    assert me.own_ticks > 0
    assert me.threads > 0


def test_one_reads_oneself():
    me = read_process(os.getpid())
    assert me is not None
    assert me.pid == os.getpid()
    assert me.parent == os.getppid()
    assert me.start > 0


def test_a_hostile_name_does_not_move_the_fields():
    code = (
        "import ctypes, signal\n"
        "ctypes.CDLL(None).prctl(15, b') Z 1 (', 0, 0, 0)\n"
        "print('ready', flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = read_process(child.pid)
        child.kill()
    assert seen is not None
    assert seen.parent == os.getpid()
    assert seen.state in "RS"


def test_a_number_that_is_not_there():
    assert read_process(0) is None
    assert read_process(2**22 + 1) is None


def test_a_zombie_is_not_in_the_table(sleeper):
    assert sleeper.pid in living_processes()
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert sleeper.pid not in living_processes()
    assert read_process(sleeper.pid) is not None


def test_descendants_are_found_at_any_depth():
    table = {pid: process(pid, parent) for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (7, 4)]}
    assert [item.pid for item in descendants(table, [2])] == [3, 4, 7]
    assert {item.pid for item in descendants(table, [2, 5])} == {3, 4, 6, 7}
    assert descendants(table, [7]) == []
    assert descendants({}, [1]) == []


def test_a_circle_ends():
    # A table is read while processes die and numbers are used again: it may contradict itself.
    table = {2: process(2, 3), 3: process(3, 2), 4: process(4, 4)}
    assert {item.pid for item in descendants(table, [2])} == {3}
    assert descendants(table, [4]) == []


def test_a_signal_reaches_the_process(sleeper):
    seen = read_process(sleeper.pid)
    assert seen is not None
    assert signal_process(seen, signal.SIGTERM)
    assert sleeper.wait(60) == -signal.SIGTERM


def test_a_number_used_again_is_spared(sleeper):
    seen = read_process(sleeper.pid)
    assert seen is not None
    assert not signal_process(seen._replace(start=seen.start - 1), signal.SIGKILL)
    assert not signal_process(process(2**22 + 1, 1), signal.SIGKILL)
    assert sleeper.poll() is None


def test_freezing_stops_what_is_found(sleeper):
    def find():
        seen = read_process(sleeper.pid)
        return [seen] if seen else []

    assert [item.pid for item in freeze(find)] == [sleeper.pid]
    os.waitid(os.P_PID, sleeper.pid, os.WSTOPPED | os.WNOWAIT)
    assert read_process(sleeper.pid).state == "T"


def test_freezing_gives_up_on_an_endless_family():
    looks: list[int] = []

    def find():
        looks.append(len(looks))
        return [process(2**22 + 1 + len(looks), 1)]

    assert len(freeze(find, passes=5)) == 5
    assert len(looks) == 5


def test_a_process_hidden_by_the_end_of_its_parent_is_killed(sleeper):
    """Found once, below a parent that then ends: no later scan finds it."""
    seen = read_process(sleeper.pid)
    looks = [[seen]]
    assert kill_family(lambda: looks.pop(0) if looks else [], 60.0) == []
    assert sleeper.wait(60) == -signal.SIGKILL


@pytest.mark.slow
def test_killing_waits_for_the_end_of_what_it_no_longer_finds():
    """A process that fills much memory is no longer found once it was killed, and ends slowly."""
    code = "x = bytearray(b'1') * (128 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        seen = read_process(child.pid)
        assert seen is not None
        looks = [[seen], [seen]]
        assert kill_family(lambda: looks.pop(0) if looks else [], 60.0) == []
        assert not is_alive(seen)


def test_a_process_that_outlives_the_timeout_is_reported_though_it_is_not_found_again(sleeper, monkeypatch):
    monkeypatch.setattr(processes, "signal_process", lambda process, signum: True)
    seen = read_process(sleeper.pid)
    looks = [[seen]]
    assert kill_family(lambda: looks.pop(0) if looks else [], 0.01) == [seen]


def test_killing_repeats_until_nothing_is_found():
    rounds: list[int] = []

    def find():
        return [process(2**22 + 1, 1)] if len(rounds) < 3 else []

    assert kill_family(find, 60.0, lambda: rounds.append(1)) == []
    assert len(rounds) == 3


def test_killing_reports_what_the_timeout_did_not_end():
    endless = [process(2**22 + 1, 1)]
    assert kill_family(lambda: endless, 0.01) == endless


@pytest.mark.parametrize("reason", [errno.ENOSYS, errno.EPERM, None])
def test_where_no_descriptor_names_a_process_its_start_does(sleeper, monkeypatch, reason):
    """Linux before 5.3, a container that forbids what it does not know, a Python that was built for an older kernel."""

    def refuse(_):
        raise OSError(reason, "no")

    if reason is None:
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    seen = read_process(sleeper.pid)
    assert not signal_process(seen._replace(start=seen.start - 1), signal.SIGKILL)
    assert sleeper.poll() is None
    assert signal_process(seen, signal.SIGTERM)
    assert sleeper.wait(60) == -signal.SIGTERM
    assert not signal_process(seen, signal.SIGKILL)


def test_a_signal_to_the_dead_or_without_a_free_descriptor_is_none(sleeper, monkeypatch):
    seen = read_process(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not signal_process(seen, signal.SIGKILL), "a zombie"

    def refuse(_):
        raise OSError(errno.EMFILE, "no")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert not signal_process(read_process(os.getpid()), signal.SIGKILL)


def test_no_descriptor_is_left_open(sleeper):
    before = os.listdir("/proc/self/fd")
    assert signal_process(read_process(sleeper.pid), signal.SIGCONT)
    assert not signal_process(process(2**22 + 1, 1), signal.SIGKILL)
    assert os.listdir("/proc/self/fd") == before


def test_a_group_goes_with_its_leader():
    words = ["/bin/sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as child:
        below = read_process(int(child.stdout.readline()))
        kill_group(child.pid)
        assert child.wait(60) == -signal.SIGKILL
        assert child.stdout.read() == b"", "it had it open"
    assert not is_alive(below)
    kill_group(child.pid)


def test_children_are_found_without_a_scan(sleeper):
    children = read_children()
    if children is not None:  # some kernels have no such file
        assert sleeper.pid in children
        assert os.getpid() not in children


def test_a_kernel_without_lists_of_children_says_so(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(processes.kernel, "read_file", missing)
    assert read_children() is None


def test_a_process_that_forked_and_executed_nothing_is_told_from_one_that_did(sleeper):
    assert processes.has_executed(sleeper.pid)
    code = "import os, time; pid = os.fork(); pid or time.sleep(600); print(pid, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        child = read_process(int(parent.stdout.readline()))
        assert not processes.has_executed(child.pid)
        assert signal_process(child, signal.SIGKILL)


def test_cgroups_of_both_versions():
    text = "9:name=systemd:/a\n4:memory:/b:c\n2:cpu,cpuacct:/d\n0::/e f\n"
    version1 = {"name=systemd": "/a", "memory": "/b:c", "cpu": "/d", "cpuacct": "/d"}
    assert parse_cgroups(text) == {**version1, "": "/e f"}
    assert parse_cgroups("") == parse_cgroups("bad\n0:\n") == {}


def test_a_process_whose_first_thread_has_ended_is_not_dead():
    """It looks like a zombie, and goes on: a payload could hide so."""
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('ready', flush=True)\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-I", "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        for _ in range(6_000):
            seen = read_process(child.pid)
            if seen.state == "Z":
                break
            time.sleep(0.01)
        assert seen.state == "Z"
        assert seen.threads == 2
        assert not seen.is_dead
        assert seen.pid in living_processes()
        looks = [[seen]]
        assert kill_family(lambda: looks.pop(0) if looks else [], 60.0) == []
        assert child.wait(60) == -signal.SIGKILL
