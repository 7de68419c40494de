"""Limits on new pilots: clamps, token buckets of CEs, breakers of CE queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from lodesman.decide.director.options import BreakerRules, RateRules
from lodesman.wire.accounts import AuditNote
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import BreakerState, ClampName


class Limit(Struct, frozen=True, kw_only=True):
    """An upper limit."""

    name: ClampName
    limit: int
    detail: str  # the arithmetic or the reason, for people


class Clamp(Struct, frozen=True, kw_only=True):
    """A limit that took something."""

    name: ClampName
    before: int
    after: int  # min(before, max(limit, 0))
    limit: int
    detail: str


class ClampedCount(Struct, frozen=True, kw_only=True):
    """What is left, and the clamps that took something, in order."""

    count: int
    clamps: tuple[Clamp, ...]


def clamp(count: int, limits: Iterable[Limit]) -> ClampedCount:
    """Apply limits in order; never negative."""
    left = max(0, count)
    clamps = []
    for limit in limits:
        after = min(left, max(0, limit.limit))
        if after < left:
            clamps.append(
                Clamp(name=limit.name, before=left, after=after, limit=limit.limit, detail=limit.detail)
            )
        left = after
    return ClampedCount(count=left, clamps=tuple(clamps))


# --- the token bucket of a CE: a hiccup of a batch system must not make dozens of requests at once ------------


class TokenBucket(Struct, frozen=True, kw_only=True):
    """Tokens of a CE."""

    tokens: float
    updated_at: float  # UNIX seconds


def refill_tokens(bucket: TokenBucket | None, *, now: float, rules: RateRules) -> TokenBucket:
    """Full if there was no bucket. A clock that went back adds nothing."""
    if bucket is None:
        return TokenBucket(tokens=float(rules.burst), updated_at=now)
    elapsed_s = max(0.0, now - bucket.updated_at)
    tokens = min(bucket.tokens + elapsed_s * rules.per_minute / 60.0, float(rules.burst))
    return TokenBucket(tokens=max(0.0, tokens), updated_at=now)


def whole_tokens(bucket: TokenBucket) -> int:
    """Pilots that may be submitted now."""
    return max(0, int(bucket.tokens))


def take_tokens(bucket: TokenBucket, count: int) -> TokenBucket:
    """Raises ValueError if the bucket holds fewer than `count` tokens."""
    if not 0 <= count <= whole_tokens(bucket):
        raise ValueError(f"{count} tokens cannot be taken out of {bucket.tokens:.2f}")
    return TokenBucket(tokens=bucket.tokens - count, updated_at=bucket.updated_at)


# --- the breaker of a CE queue --------------------------------------------------------------------------------
# Closed: submit freely. Open: nothing, until `retry_at`. Half-open: one probe; its success closes the breaker, its failure
# opens it for longer. Failures: refused submissions, pilots that end without joining, pilots that wait too long.


class Breaker(Struct, frozen=True, kw_only=True):
    """One queue's breaker."""

    state: BreakerState = BreakerState.CLOSED
    failures: int = 0  # in a row since the last success
    trips: int = 0  # openings since it was last closed
    retry_at: float = 0.0  # when an open one may be tried, or an unanswered probe is given up
    probing: bool = False
    reason: str = ""  # what the last failure said


def settle_breaker(breaker: Breaker, *, now: float) -> Breaker:
    """What time changes: an open breaker becomes half-open, a silent probe is forgotten."""
    if breaker.state is BreakerState.CLOSED or now < breaker.retry_at:
        return breaker
    return replace(breaker, state=BreakerState.HALF_OPEN, probing=False)


def breaker_allowance(breaker: Breaker) -> int | None:
    """None: any number."""
    if breaker.state is BreakerState.CLOSED:
        return None
    return 1 if breaker.state is BreakerState.HALF_OPEN and not breaker.probing else 0


def note_submission(breaker: Breaker, *, now: float, rules: BreakerRules) -> Breaker:
    """Note a submission: in half-open it is the probe."""
    if breaker.state is not BreakerState.HALF_OPEN:
        return breaker
    return replace(breaker, probing=True, retry_at=now + rules.open_s)


def note_success(breaker: Breaker) -> Breaker:
    """Note a submission that was taken. Only a probe closes an open breaker."""
    return Breaker() if breaker.state is BreakerState.CLOSED or breaker.probing else breaker


def note_failure(breaker: Breaker, *, now: float, rules: BreakerRules, reason: str) -> Breaker:
    """Note a submission that was refused, or a pilot that did not join."""
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


def breaker_notes(before: Mapping[QueueId, BreakerState], now: Mapping[QueueId, Breaker]) -> list[AuditNote]:
    """Breakers that opened or closed since, for the audit trail."""
    notes, fresh, closed = [], Breaker(), BreakerState.CLOSED
    for queue in sorted(before.keys() | now.keys()):
        breaker, old = now.get(queue, fresh), before.get(queue, closed)
        if breaker.state is BreakerState.OPEN and old is not BreakerState.OPEN:
            notes.append(AuditNote("breaker-opened", str(queue), detail=breaker.reason))
        elif breaker.state is closed and old is not closed:
            notes.append(AuditNote("breaker-closed", str(queue)))
    return notes


def describe_breaker(breaker: Breaker) -> str:
    """The same phrase for queues that fail alike."""
    if breaker.state is BreakerState.CLOSED:
        return f"closed, {breaker.failures} failures in a row"
    why = breaker.reason or "the reason is not known"
    if breaker.state is BreakerState.HALF_OPEN:
        tries = "one tries it now" if breaker.probing else "one may try it"
        return f"pilots did not start there, and {tries}: {why}"
    return f"pilots do not start there: {why}"
