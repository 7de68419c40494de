"""A token bucket per CE: a bound on how fast pilots are submitted, whatever else says yes.

It answers the failure of other provisioners where one hiccup of a batch system makes dozens of requests at
once (reference user-needs, row 3).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRules:
    """`per_minute` pilots are allowed in the long run, `burst` at once after a pause."""

    per_minute: float = 60.0
    burst: int = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBucket:
    """Tokens left at `updated_at` (UNIX seconds)."""

    tokens: float
    updated_at: float


def full(rules: RateRules, *, now: float) -> TokenBucket:
    """The bucket of a CE that is met for the first time."""
    return TokenBucket(tokens=float(rules.burst), updated_at=now)


def refill(bucket: TokenBucket, *, now: float, rules: RateRules) -> TokenBucket:
    """The bucket at `now`; a clock that went back adds nothing, a lowered burst takes effect at once."""
    elapsed_s = max(0.0, now - bucket.updated_at)
    tokens = min(bucket.tokens + elapsed_s * rules.per_minute / 60.0, float(rules.burst))
    return TokenBucket(tokens=max(0.0, tokens), updated_at=now)


def whole_tokens(bucket: TokenBucket) -> int:
    """Pilots that may be submitted now."""
    return max(0, int(bucket.tokens))


def take(bucket: TokenBucket, count: int) -> TokenBucket:
    """The bucket after `count` pilots; raises ValueError if it does not hold so many."""
    if not 0 <= count <= whole_tokens(bucket):
        raise ValueError(f"{count} tokens cannot be taken out of {bucket.tokens:.2f}")
    return TokenBucket(tokens=bucket.tokens - count, updated_at=bucket.updated_at)
