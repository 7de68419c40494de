"""Which part of the starts each group with waiting jobs would get if shares were changed: in the lottery (`parts_of`), and
in the weights of the director (`director_weights`). Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from msgspec import Struct

from lodesman.decide.explain.facts import Snapshot
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.matching import GroupShare, director_weights, parts_of
from lodesman.decide.rehearse.resources import share_of
from lodesman.wire.plans import BeforeAfter, SharedPlaces, WaitingGroup

_FEW_SITES: Final = 20
_MOST_PLACES: Final = 200

Groups = Mapping[tuple[str, str], int]
"""By (VO, group)."""


class ShareChange(Struct, frozen=True, kw_only=True):
    """The shares of all groups before and after."""

    before: Mapping[str, GroupShare]
    after: Mapping[str, GroupShare]

    def parts(self, groups: Collection[str]) -> dict[str, BeforeAfter[float]]:
        """What each of these groups gets of the starts while all of them compete."""
        before, after = parts_of(groups, self.before), parts_of(groups, self.after)
        return {group: BeforeAfter(before[group], after[group]) for group in groups}


def waiting_groups(
    change: ShareChange, snapshot: Snapshot, starts_an_hour: Mapping[str, float]
) -> list[WaitingGroup]:
    """Every group with waiting jobs; the ones that gain most come first. `starts_an_hour`: job starts of each VO."""
    jobs = snapshot.groups
    before, after = (_weights(snapshot.waiting, shares) for shares in (change.before, change.after))
    rows = []
    for vo, groups in competing(jobs).items():
        rate = starts_an_hour.get(vo)
        for group, part in change.parts(groups).items():
            share = BeforeAfter(share_of(change.before, group), share_of(change.after, group))
            director = BeforeAfter(before[vo, group], after[vo, group])
            starts = BeforeAfter(part.before * rate, part.after * rate) if rate else None
            rows.append(WaitingGroup(vo, group, jobs[vo, group], share, part, director, starts))
    return sorted(rows, key=lambda row: (row.part.before - row.part.after, row.vo, row.group))


def competing(jobs: Groups) -> dict[str, list[str]]:
    """The groups with waiting jobs of each VO: pilots run for one VO."""
    found: dict[str, list[str]] = {}
    for vo, group in sorted(pair for pair, number in jobs.items() if number):
        found.setdefault(vo, []).append(group)
    return found


def _weights(waiting: Sequence[Waiting], shares: Mapping[str, GroupShare]) -> dict[tuple[str, str], float]:
    """The part of each group in the director's weights."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    weights = director_weights(waiting, shares)
    for tq_id, key, _ in waiting:
        found[key.vo, key.group] += weights[tq_id]
    total = sum(found.values())
    return {pair: weight / total for pair, weight in found.items()}


def shared_places(
    change: ShareChange, masks: Groups, sites_of: Callable[[str, int], Sequence[str]]
) -> list[SharedPlaces]:
    """Queues for which the same groups compete, most queues first. `masks`: the queues that can run waiting jobs of each
    group; `sites_of`: the sites of such a mask of a VO.
    """
    found = []
    for vo, groups in competing(masks).items():
        for alike, mask in _alike({group: masks[vo, group] for group in groups}):
            sites, parts = list(sites_of(vo, mask)), change.parts(alike)
            more = max(0, len(sites) - _FEW_SITES)
            found.append(SharedPlaces(vo, mask.bit_count(), sites[:_FEW_SITES], more, parts))
    return found[:_MOST_PLACES]


def _alike(masks: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], int]]:
    """(groups, queues) for each set of groups that compete anywhere, most queues first."""
    parts: dict[tuple[str, ...], int] = {(): reduce(or_, masks.values(), 0)}
    for group, mask in masks.items():
        halves = [((*groups, group), queues & mask) for groups, queues in parts.items()]
        halves += [(groups, queues & ~mask) for groups, queues in parts.items()]
        parts = {groups: queues for groups, queues in halves if queues}
    yield from sorted(parts.items(), key=lambda one: (-one[1].bit_count(), one[0]))
