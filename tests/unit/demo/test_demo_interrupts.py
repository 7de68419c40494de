"""Signals of the demo: the first ends it, and nothing disturbs the end."""

from __future__ import annotations

import signal

import pytest
from examples.demo.interrupts import SIGNALS, Interrupts


@pytest.fixture(autouse=True)
def as_they_were():
    """And whoever started the tests may ignore some."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, action in before.items():
        signal.signal(number, action)


@pytest.mark.parametrize("number", SIGNALS)
def test_each_signal_is_a_keyboard_interrupt(number):
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert interrupts.came


def test_only_the_first_is_raised():
    with Interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        for number in SIGNALS:
            signal.raise_signal(number)


def test_after_the_first_the_rest_of_the_program_is_left_alone():
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_IGN}


def test_without_one_signals_are_as_before():
    before = [signal.getsignal(number) for number in SIGNALS]
    with Interrupts() as interrupts:
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert not interrupts.came


def test_what_is_held_is_done_first():
    steps = []

    def do_it(interrupts):
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            steps.append("done")

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            do_it(interrupts)
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
            steps.append("and no second time")
    assert steps == ["done", "and no second time"]


def test_a_fault_inside_the_held_block_is_raised():
    with Interrupts() as interrupts:
        with pytest.raises(OSError, match="no such program"), interrupts.held():
            raise OSError("no such program")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_nothing_is_raised_once_the_end_is_under_way():
    with Interrupts() as interrupts:
        interrupts.ignore()
        for number in SIGNALS:
            signal.raise_signal(number)
        with interrupts.held():
            signal.raise_signal(signal.SIGINT)
    assert interrupts.came


def test_nohup_is_respected():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert not interrupts.came


def test_an_ignored_ctrl_c_counts_again():
    """A shell script starts what runs in its background that way, and stops it by kill -INT."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
