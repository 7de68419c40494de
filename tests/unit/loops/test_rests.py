"""Loops with nothing to do say for how long: a pass that is not due, usage that was just added up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lodesman.server.loops import Passes
from lodesman.server.loops.accounting import UsageAdder
from lodesman.server.loops.usage_watch import UsageWatch


def test_a_pass_is_due_at_its_time_and_works_without_rest_until_it_is_done():
    at, done = [0.0], list[int]()

    def begin():
        for step in range(3):
            done.append(step)
            at[0] += 1.0  # longer than a step may take
            yield

    passes = Passes(ticker=lambda: at[0])
    assert passes.rest() == 0.0  # nobody has said when the first one is due
    passes.work(begin, 100.0, first=20.0)
    assert (passes.rest(), done) == (20.0, [])
    at[0] = 20.0
    for number in range(1, 4):
        assert passes.rest() == 0.0
        passes.work(begin, 100.0)
        assert done == list(range(number))
    passes.work(begin, 100.0)  # finds the end
    assert (passes.rest(), at[0]) == (100.0, 23.0)


def test_usage_is_added_up_anew_after_a_minute(monkeypatch):
    usage = SimpleNamespace(last=0, done=0, closed=[])
    monkeypatch.setattr("lodesman.server.loops.accounting.next_usage", lambda _db, _most: usage)
    nothing: Any = None
    adder = UsageAdder(nothing, nothing)
    assert adder.rest(1_000.0) == 0.0
    adder.tick(1_000.0)
    assert (adder.rest(1_000.0), adder.rest(1_045.0)) == (60.0, 15.0)


def test_who_corrects_no_shares_by_usage_looks_rarely_and_a_reading_goes_on_at_once():
    nothing: Any = None
    watch = UsageWatch(nothing, nothing, nothing, SimpleNamespace(corrector="none"))  # type: ignore[arg-type]
    assert watch.rest() == 10.0
    watch.options = SimpleNamespace(corrector="exponential")  # type: ignore[assignment]
    assert watch.rest() == 0.0
    watch._looked = 5.0
    assert watch.rest() == 10.0
    watch._reading = iter(())
    assert watch.rest() == 0.0
