"""Usage for one caller: states, sites, times, job starts by group against their shares, failures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, Literal, cast

import msgspec

from lodesman.answers.server import AttemptCounts, Claims, Faulty, GroupClaims, SiteOutcomes, Usage
from lodesman.matching.policy import Policy
from lodesman.store.read.usage import AttemptSums, UsageFacts

_MOST_FAULTY: Final = 2_000

# (owner, group, VO) -> whether the caller may see their jobs.
May = Callable[[str, str, str], bool]
# (group, groups that competed as JSON, None if that is not known) -> job starts.
_Starts = Counter[tuple[str, str | None]]


def usage_for(facts: UsageFacts, policy: Policy, may: May) -> Usage:
    """The answer to a caller; of failures only those of jobs that `may` admits."""
    seen = (one for one in facts.faults if may(one.owner, one.group, one.vo))
    faulty = sorted(islice(seen, _MOST_FAULTY), key=lambda one: one.id)
    starts: _Starts = Counter()
    for one in facts.attempts:
        starts[one.group, one.eligible] += one.attempts
    return Usage(
        states=facts.states,
        sites=_sites(facts.attempts),
        groups=_groups(starts, policy),
        claims=[
            Claims(group, msgspec.json.decode(eligible) if eligible else None, n)
            for (group, eligible), n in starts.items()
        ],
        waiting_seconds=facts.waiting,
        running_seconds=facts.running,
        faulty=[
            Faulty(one.id, one.jobs, cast("Literal['Held', 'Failed', 'Killed']", one.state), one.reason)
            for one in faulty
        ],
        attempts=AttemptCounts(starts.total(), facts.started, facts.same_number_twice),
        pilots=list(facts.pilots),
    )


def _sites(attempts: Sequence[AttemptSums]) -> list[SiteOutcomes]:
    """The attempts that ended at each site, by outcome."""
    sites: dict[str, SiteOutcomes] = {}
    for one in attempts:
        if one.outcome is not None:
            row = sites.setdefault(one.site, SiteOutcomes(one.site, 0.0, {}))
            row.outcomes[one.outcome] = row.outcomes.get(one.outcome, 0) + one.attempts
            row.cpu_seconds += one.cpu_seconds
    return [sites[name] for name in sorted(sites)]


def _groups(starts: _Starts, policy: Policy) -> list[GroupClaims]:
    """Job starts of each group, and its target: the sum over starts of its share among the groups that competed.

    Only starts whose competitors were recorded enter both sums.
    """
    got: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    target: dict[str, float] = defaultdict(float)
    for (group, eligible), n in starts.items():
        got[group] += n
        if not eligible:
            continue
        compared[group] += n
        shares = {name: policy.share_of(name) for name in msgspec.json.decode(eligible)}
        total = sum(shares.values())
        for name, share in shares.items():
            if total > 0:
                target[name] += n * share / total
    return [
        GroupClaims(name, policy.share_of(name), got[name], compared[name], target[name])
        for name in sorted(set(got) | set(target))
    ]
