"""Whose process is whose, and what a tree has used: pictures of /proc, made up and real."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.pilot import processes, reaper
from lodesman.pilot.processes import (
    ZOMBIE,
    Account,
    ProcessId,
    ProcessStat,
    _parse_stat,
    descendants,
    owners,
)

ME = 100
A, B = (1, 1), (2, 1)


def process(pid, ppid, *, session=0, state="S", started=0, own=0, children=0, rss=0):
    return ProcessStat(
        ident=ProcessId(pid, started or pid * 10),
        ppid=ppid,
        session=session or pid,
        state=state,
        own_ticks=own,
        children_ticks=children,
        rss_pages=rss,
    )


def table(*processes):
    return {one.pid: one for one in processes}


# --- /proc/<pid>/stat -------------------------------------------------------------------------------


def test_a_name_may_hold_anything():
    text = "42 (a) b (c) R 7 8 9 0 -1 4194304 1 2 3 4 11 12 13 14 20 0 1 0 555 1000 77 18446744073709551615 0"
    assert _parse_stat(text) == ProcessStat(ProcessId(42, 555), 7, 9, "R", 23, 27, 77)


def test_what_is_cut_short_is_nothing():
    assert _parse_stat("") is None
    assert _parse_stat("42 (sh) R 7 8") is None
    assert _parse_stat("x (sh) " + "1 " * 30) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text):
    _parse_stat("1 (" + text)


def test_this_process_is_in_the_snapshot():
    seen = processes.read_processes()
    me = seen[os.getpid()]
    assert me.ppid == os.getppid()
    assert me.session == os.getsid(0)
    assert me.rss_pages > 100
    assert me.own_ticks > 0


# --- ownership --------------------------------------------------------------------------------------


def test_descent_and_session():
    seen = table(
        process(1, 0),
        process(ME, 1),
        process(200, ME),  # first process of A
        process(201, 200, session=200),
        process(202, 201, session=202),  # setsid, parent still there
        process(300, ME),
        process(400, 1),
    )
    owned = owners(seen, {200: A, 300: B}, {}, me=ME)
    assert owned == {200: A, 201: A, 202: A, 300: B}


def test_an_orphan_is_known_by_its_session_or_from_before():
    seen = table(
        process(ME, 1), process(205, ME, session=200), process(206, ME, session=206), process(207, 206)
    )
    assert owners(seen, {200: A}, {}, me=ME) == {205: A}
    known = {seen[206].ident: A}
    owned = owners(seen, {200: A}, known, me=ME)
    assert owned == {205: A, 206: A, 207: A}


def test_a_pid_that_was_used_again_is_a_stranger():
    before, after = process(206, ME, started=1), process(206, ME, started=2)
    owned = owners(table(after), {}, {before.ident: A}, me=ME)
    assert owned == {}


def test_an_inconsistent_snapshot_does_not_hang():
    loop = table(process(10, 11), process(11, 10), process(12, 12))
    assert owners(loop, {200: A}, {}, me=ME) == {}


def test_descendants():
    seen = table(process(ME, 1), process(2, ME), process(3, 2), process(4, 1), process(5, 5))
    assert {one.pid for one in descendants(seen, ME)} == {2, 3}


@given(st.dictionaries(st.integers(1, 30), st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=30))
def test_owned_are_exactly_those_with_an_owned_ancestor_or_session(shape):
    seen = table(*[process(pid, ppid, session=session) for pid, (ppid, session) in shape.items()])
    owned = owners(seen, {7: A}, {}, me=ME)

    def expected(pid):
        path = set()
        while pid in seen and pid not in path and pid != ME:
            if seen[pid].session == 7:
                return True
            path.add(pid)
            pid = seen[pid].ppid
        return False

    assert {pid for pid in seen if expected(pid)} == set(owned)


@pytest.fixture
def settle(monkeypatch):
    """A reaper's owner of a stray without a mark, while these payloads run; `killed` if it has to go."""
    stray, killed = process(9, ME), []
    monkeypatch.setattr(reaper, "_send", lambda one, number: killed.append(one.pid))
    own = reaper.Reaper("s", adopts=True)

    def settle(*running):
        own._accounts = {key: Account() for key in running}
        owned = {}
        own._settle({stray.ident: stray}, owned)
        return "killed" if killed else owned.get(stray.pid)

    return settle


def test_suspicion_is_settled_by_exclusion(settle):
    assert settle(A, B) is None
    assert settle(A, B, (3, 1)) is None  # it was there before the third
    assert settle(B, (3, 1)) == B


def test_suspicion_falls_on_the_only_one(settle):
    assert settle(A) == A


def test_suspicion_when_all_have_ended_at_once(settle):
    assert settle(A, B) is None
    assert settle() == "killed"  # whichever it belongs to


def test_suspicion_where_no_payload_runs(settle):
    assert settle() is None


# --- what was used ----------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(processes, "_TICKS_PER_SECOND", 100)
    monkeypatch.setattr(processes, "_PAGE_MB", 1)


def test_tree_is_summed():
    book = Account()
    usage = book.measure([process(1, 0, own=150, rss=10), process(2, 1, own=50, children=100, rss=5)])
    assert (usage.cpu_seconds, usage.rss_mb, usage.max_rss_mb) == (3.0, 15.0, 15.0)


def test_memory_falls_but_its_peak_stays():
    book = Account()
    book.measure([process(1, 0, rss=50)])
    usage = book.measure([process(1, 0, rss=20)])
    assert (usage.rss_mb, usage.max_rss_mb) == (20.0, 50.0)


def test_a_waited_child_is_counted_once():
    book = Account()
    book.measure([process(1, 0, own=100), process(2, 1, own=300)])
    usage = book.measure([process(1, 0, own=100, children=310)])
    assert usage.cpu_seconds == 4.1


def test_a_child_without_a_waiting_parent_is_counted():
    """A payload that ignores its children cannot hide their time."""
    book = Account()
    for number in range(2, 12):
        book.measure([process(1, 0, own=1), process(number, 1, own=100)])
    assert book.measure([process(1, 0, own=1)]).cpu_seconds == 10.01


def test_what_the_pilot_waited_for_itself():
    book = Account()
    book.measure([process(1, 0, own=100), process(2, ME, own=50)])
    book.reaped(0.55)
    assert book.measure([process(1, 0, own=100)]).cpu_seconds == 1.55
    book.reaped(1.2)
    assert book.measure([]).cpu_seconds == 1.75


def test_zombies_use_time():
    assert Account().measure([process(1, 0, own=100, state=ZOMBIE)]).cpu_seconds == 1.0


@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1000), st.integers(0, 1000)), max_size=5),
        max_size=8,
    )
)
def test_cpu_time_never_falls(looks):
    book = Account()
    before = 0.0
    for look in looks:
        now = book.measure(
            [process(pid, 0, own=own, children=children) for pid, own, children in look]
        ).cpu_seconds
        assert now >= before
        before = now


# --- marks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "key"), [("12.3", (12, 3)), ("x.y", None), ("12", None), ("", None)])
def test_marks(value, key):
    entries = ["A=1", f"{processes.MARK}={value}", f"{processes.STAMP}=s1", ""]
    assert processes.mark_in(entries, "s1") == key
    assert processes.mark_in(entries, "s2") is None
    assert processes.mark_in(entries[:1] + entries[2:], "s1") is None
    assert processes.mark_in([], "s1") is None


def environment_seen(environment):
    """What is seen of a program with this environment, which has said that it runs.

    Before, there may be nothing to see: that it was started is known before its environment is in place.
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", "echo ready; read end"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        return processes.environment_of(child.pid)


def test_the_environment_of_a_process_is_read_to_its_end():
    wide = {f"A{number}": "x" * 100_000 for number in range(12)}
    seen = environment_seen({**wide, processes.MARK: "12.3", processes.STAMP: "s1"})
    assert sum(map(len, seen)) > 1_200_000
    assert processes.mark_in(seen, "s1") == (12, 3)


def test_no_environment_and_none_to_be_seen_are_empty():
    assert not any(environment_seen({}))
    assert processes.environment_of(2**22 + 1) == []


def test_memory_of_processes():
    alone = processes.proportional_mb([os.getpid()])
    if alone is not None:  # some kernels do not report it
        assert 1 < alone < 4000
    assert processes.proportional_mb([2**22 + 1]) is None
