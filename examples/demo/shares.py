"""Share received against share deserved, from the claims themselves. Pure.

What a group deserves of one claim is its share over the sum of the shares of all groups that had an
eligible task queue at that claim; what it deserves in all is the sum over claims. A plain quotient of
shares would be wrong: a group with nothing eligible deserves nothing of that claim.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """`count` claims that went to `group` while `eligible` groups (the receiver among them) could get it.

    `eligible` None means that nobody recorded who else could.
    """

    group: str
    eligible: frozenset[str] | None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShare:
    """One group's starts. `deserved` and `sigmas` are None if they cannot be known.

    `sigmas` is the distance of received from deserved in standard deviations of a fair lottery (0 if
    there was never anything to draw).
    """

    group: str
    share: float
    received: int
    deserved: float | None
    sigmas: float | None = None


def share_rows(claims: Iterable[Claim], shares: Mapping[str, float]) -> tuple[GroupShare, ...]:
    """One row a group of `shares` or of a claim, by name. One unrecorded claim makes all deserts unknown."""
    counted = list(claims)
    groups = sorted({*shares, *(claim.group for claim in counted)})
    known = all(_is_known(claim, shares) for claim in counted)
    return tuple(_row(group, counted, shares, known=known) for group in groups)


def _is_known(claim: Claim, shares: Mapping[str, float]) -> bool:
    if claim.eligible is None or claim.group not in claim.eligible:
        return False
    return claim.eligible <= shares.keys() and sum(shares[group] for group in claim.eligible) > 0


def _row(group: str, claims: list[Claim], shares: Mapping[str, float], *, known: bool) -> GroupShare:
    received = sum(claim.count for claim in claims if claim.group == group)
    share = shares.get(group, 0)
    if not known:
        return GroupShare(group=group, share=share, received=received, deserved=None)
    deserved = variance = 0.0
    for claim in claims:
        if claim.eligible is not None and group in claim.eligible:
            p = share / sum(shares[other] for other in claim.eligible)
            deserved += claim.count * p
            variance += claim.count * p * (1 - p)
    sigmas = (received - deserved) / math.sqrt(variance) if variance else 0.0
    return GroupShare(group=group, share=share, received=received, deserved=deserved, sigmas=sigmas)
