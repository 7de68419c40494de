"""Usage for one caller: states, sites, times, job starts by group against their shares, failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Literal, cast

import msgspec
from msgspec.structs import replace

from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.shares import list_corrections
from lodesman.server.store import UNREADABLE
from lodesman.server.store.read.usage import AttemptSums, UsageFacts
from lodesman.wire.groups import CorrectedShare, ShareCorrection
from lodesman.wire.server import AttemptCounts, Claims, Faulty, GroupClaims, SiteOutcomes, Usage

_MOST_FAULTY: Final = 2_000
_MOST_OWNERS: Final = 1_000
# Corrected shares change again and again.
_MOST_CLAIMS: Final = 1_000

# (owner, group, VO) -> whether the caller may see their jobs.
May = Callable[[str, str, str], bool]


def usage_for(facts: UsageFacts, policy: Policy, may: May, *, vo: str = "") -> Usage:
    """The usage of a VO, '' for all; failures and owners only of jobs that the caller `may` see."""
    seen = (fault for fault in facts.faults if may(fault.owner, fault.group, fault.vo))
    faulty = sorted(islice(seen, _MOST_FAULTY), key=lambda fault: fault.id)
    starts: Counter[tuple[str, str | None]] = Counter()
    for attempt in facts.attempts:
        starts[attempt.group, attempt.shares] += attempt.attempts
    claims = [Claims(group, _shares(shares), n) for (group, shares), n in starts.items()]
    return Usage(
        states=facts.states,
        sites=_sites(facts.attempts),
        groups=_groups(claims, policy),
        claims=sorted(claims, key=lambda claim: -claim.count)[:_MOST_CLAIMS],
        waiting_seconds=facts.waiting,
        running_seconds=facts.running,
        faulty=[
            Faulty(
                fault.id, fault.jobs, cast("Literal['Held', 'Failed', 'Killed']", fault.state), fault.reason
            )
            for fault in faulty
        ],
        attempts=AttemptCounts(starts.total(), facts.started, facts.same_number_twice),
        pilots=list(facts.pilots),
        correction=_correction(policy, may, vo),
    )


def _shares(text: str | None) -> dict[str, float] | None:
    """None: not recorded, or damaged."""
    with suppress(*UNREADABLE):
        return None if text is None else msgspec.json.decode(text, type=dict[str, float])
    return None


def _correction(policy: Policy, may: May, vo: str) -> ShareCorrection | None:
    usage = policy.usage
    if usage is None:
        return None
    vo_of = {
        group: arena.vos[0] for arena in usage.arenas if vo in ("", *arena.vos) for group in arena.groups
    }

    def seen(share: CorrectedShare) -> CorrectedShare:
        owners = [owner for owner in share.owners if may(owner.owner, share.group, vo or vo_of[share.group])]
        owners.sort(key=lambda owner: (-sum(owner.used), owner.owner))
        return replace(share, owners=owners[:_MOST_OWNERS])

    shares = list_corrections(policy.configured_shares(), usage)
    slices = [piece.time_slice for piece in usage.slices]
    groups = [seen(share) for share in shares if share.group in vo_of]
    return ShareCorrection(usage.at, usage.currency, slices, usage.most, groups)


def _sites(attempts: Sequence[AttemptSums]) -> list[SiteOutcomes]:
    outcomes: dict[str, Counter[str]] = {}
    cpu_seconds: dict[str, float] = defaultdict(float)
    for attempt in attempts:
        if attempt.outcome is not None:
            outcomes.setdefault(attempt.site, Counter())[attempt.outcome] += attempt.attempts
            cpu_seconds[attempt.site] += attempt.cpu_seconds
    return [SiteOutcomes(site, cpu_seconds[site], dict(outcomes[site])) for site in sorted(outcomes)]


def _groups(claims: Sequence[Claims], policy: Policy) -> list[GroupClaims]:
    """The target: the sum, over starts, of a group's share among the groups that competed."""
    got, private, compared = Counter[str](), Counter[str](), Counter[str]()
    target: dict[str, float] = defaultdict(float)
    for claim in claims:
        got[claim.group] += claim.count
        if claim.shares == {}:
            private[claim.group] += claim.count
        elif claim.shares:
            compared[claim.group] += claim.count
            total = sum(claim.shares.values())
            for name, share in claim.shares.items():
                target[name] += claim.count * share / total
    return [
        GroupClaims(name, policy.share_of(name), got[name], private[name], compared[name], target[name])
        for name in sorted(set(got) | set(target))
    ]
