"""A circuit breaker per CE queue: a queue that refuses is left alone, then tried with one pilot.

Closed: submit freely. Open: nothing, until `retry_at`. Half-open: one probe; its success closes the
breaker, its failure opens it for longer. Only transitions here; the service keeps the values. Failures
are those of submission, of pilots that end without ever joining, and of pilots that wait too long (DESIGN 3.4; the
original's `FailedQueueCycleFactor` counted cycles instead of time).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lodesman.answers.vocabulary import BreakerState


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    """`failures` in a row open it for `open_s` seconds, doubled at each trip up to `max_open_s`."""

    failures: int = 3
    open_s: float = 300.0
    max_open_s: float = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The state of one queue's breaker.

    failures: in a row since the last success. trips: openings since it was last closed. retry_at: when
    an open one may be tried, or when a probe that never answered is given up. probing: a probe is under
    way. reason: what the last failure said.
    """

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0
    trips: int = 0
    retry_at: float = 0.0
    probing: bool = False
    reason: str = ""


def settle(breaker: Breaker, *, now: float) -> Breaker:
    """What time alone changes: an open breaker becomes half-open, a probe without answer is forgotten."""
    if breaker.state is BreakerState.CLOSED or now < breaker.retry_at:
        return breaker
    return replace(breaker, state=BreakerState.HALF_OPEN, probing=False)


def allowance(breaker: Breaker) -> int | None:
    """Pilots that may be submitted now: None for any number, 1 for a probe, 0 for none."""
    if breaker.state is BreakerState.CLOSED:
        return None
    return 1 if breaker.state is BreakerState.HALF_OPEN and not breaker.probing else 0


def submitting(breaker: Breaker, *, now: float, rules: BreakerRules) -> Breaker:
    """A submission starts: in half-open it is the probe, and the only one until it answers."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return breaker
    return replace(breaker, probing=True, retry_at=now + rules.open_s)


def succeeded(breaker: Breaker) -> Breaker:
    """A submission was taken.

    In a breaker that opened meanwhile this is a late answer and proves nothing: only a probe closes it.
    """
    return Breaker() if breaker.state is BreakerState.CLOSED or breaker.probing else breaker


def failed(breaker: Breaker, *, now: float, rules: BreakerRules, reason: str) -> Breaker:
    """A submission was refused, or a pilot ended without joining."""
    failures = breaker.failures + 1
    if breaker.state is BreakerState.OPEN:
        # More failures of submissions that were under way do not lengthen the wait.
        return replace(breaker, failures=failures, reason=reason)
    if breaker.state is BreakerState.CLOSED and failures < rules.failures:
        return replace(breaker, failures=failures, reason=reason)
    # The exponent is bounded: a queue that is broken for a year must not overflow a float.
    wait_s = min(rules.open_s * 2.0 ** min(breaker.trips, 30), rules.max_open_s)
    return Breaker(
        state=BreakerState.OPEN,
        failures=failures,
        trips=breaker.trips + 1,
        retry_at=now + wait_s,
        reason=reason,
    )


def describe(breaker: Breaker, *, now: float) -> str:
    """One phrase for a clamp's detail and for `why`."""
    if breaker.state is BreakerState.CLOSED:
        return f"closed, {breaker.failures} failures in a row"
    why = f"after {breaker.failures} failures: {breaker.reason or 'no reason given'}"
    if breaker.state is BreakerState.HALF_OPEN:
        return f"half-open, {'one probe under way' if breaker.probing else 'one probe allowed'}, {why}"
    return f"open for {max(0.0, breaker.retry_at - now):.0f} s more {why}"
