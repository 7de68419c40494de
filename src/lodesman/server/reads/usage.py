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
from lodesman.decide.matching.shares import corrections
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
    """The answer to a caller: of one VO, '' for all; of failures and owners only those of jobs that `may` admits."""
    seen = (one for one in facts.faults if may(one.owner, one.group, one.vo))
    faulty = sorted(islice(seen, _MOST_FAULTY), key=lambda one: one.id)
    starts: Counter[tuple[str, str | None]] = Counter()
    for one in facts.attempts:
        starts[one.group, one.shares] += one.attempts
    claims = [Claims(group, _shares(shares), n) for (group, shares), n in starts.items()]
    return Usage(
        states=facts.states,
        sites=_sites(facts.attempts),
        groups=_groups(claims, policy),
        claims=sorted(claims, key=lambda one: -one.count)[:_MOST_CLAIMS],
        waiting_seconds=facts.waiting,
        running_seconds=facts.running,
        faulty=[
            Faulty(one.id, one.jobs, cast("Literal['Held', 'Failed', 'Killed']", one.state), one.reason)
            for one in faulty
        ],
        attempts=AttemptCounts(starts.total(), facts.started, facts.same_number_twice),
        pilots=list(facts.pilots),
        correction=_correction(policy, may, vo),
    )


def _shares(text: str | None) -> dict[str, float] | None:
    """Those of the groups that competed; a damaged text is as none that was recorded."""
    with suppress(*UNREADABLE):
        return None if text is None else msgspec.json.decode(text, type=dict[str, float])
    return None


def _correction(policy: Policy, may: May, vo: str) -> ShareCorrection | None:
    known = policy.usage
    if known is None:
        return None
    vo_of = {group: one.vos[0] for one in known.arenas if vo in ("", *one.vos) for group in one.groups}

    def seen(one: CorrectedShare) -> CorrectedShare:
        owners = [owner for owner in one.owners if may(owner.owner, one.group, vo or vo_of[one.group])]
        owners.sort(key=lambda owner: (-sum(owner.used), owner.owner))
        return replace(one, owners=owners[:_MOST_OWNERS])

    found = corrections(policy.configured_shares(), known)
    slices = [one.time_slice for one in known.slices]
    groups = [seen(one) for one in found if one.group in vo_of]
    return ShareCorrection(known.at, known.currency, slices, known.most, groups)


def _sites(attempts: Sequence[AttemptSums]) -> list[SiteOutcomes]:
    """The attempts that ended at each site, by outcome."""
    outcomes: dict[str, Counter[str]] = {}
    cpu_seconds: dict[str, float] = defaultdict(float)
    for one in attempts:
        if one.outcome is not None:
            outcomes.setdefault(one.site, Counter())[one.outcome] += one.attempts
            cpu_seconds[one.site] += one.cpu_seconds
    return [SiteOutcomes(site, cpu_seconds[site], dict(outcomes[site])) for site in sorted(outcomes)]


def _groups(claims: Sequence[Claims], policy: Policy) -> list[GroupClaims]:
    """Job starts of each group, and its target: the sum over starts of its share then among the groups that competed."""
    got, private, compared = Counter[str](), Counter[str](), Counter[str]()
    target: dict[str, float] = defaultdict(float)
    for one in claims:
        got[one.group] += one.count
        if one.shares == {}:
            private[one.group] += one.count
        elif one.shares:
            compared[one.group] += one.count
            total = sum(one.shares.values())
            for name, share in one.shares.items():
                target[name] += one.count * share / total
    return [
        GroupClaims(name, policy.share_of(name), got[name], private[name], compared[name], target[name])
        for name in sorted(set(got) | set(target))
    ]
