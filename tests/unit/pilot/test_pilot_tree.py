"""What a tree of processes has used: pictures of /proc, made up and real."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.processes import Process
from lodesman.pilot import usage
from lodesman.pilot.usage import Account

ME = 100


def process(pid, parent, *, state="S", own=0, children=0, rss=0):
    return Process(
        pid, parent, start=pid * 10, state=state, own_ticks=own, children_ticks=children, rss_pages=rss
    )


@pytest.fixture(autouse=True)
def units(monkeypatch):
    monkeypatch.setattr(usage, "TICKS_PER_SECOND", 100)
    monkeypatch.setattr(usage, "_PAGE_MB", 1)


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
    assert Account().measure([process(1, 0, own=100, state="Z")]).cpu_seconds == 1.0


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


def test_memory_of_processes():
    alone = usage.proportional_mb([os.getpid()])
    if alone is not None:  # some kernels do not report it
        assert 1 < alone < 4000
    assert usage.proportional_mb([2**22 + 1]) == 0
