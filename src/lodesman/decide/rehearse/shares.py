"""Each group's part of the starts by other shares, in the lottery and the director's weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from msgspec import Struct

from lodesman.decide.explain.facts import Snapshot
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.matching import GroupShare, director_weights, parts_of
from lodesman.decide.rehearse.resources import JudgedTaskQueue
from lodesman.wire.plans import BeforeAfter, GroupPart, SharedPlaces, WaitingGroup

_FEW_SITES: Final = 20
_MOST_PLACES: Final = 200

Groups = Mapping[tuple[str, str], int]
"""By (VO, group)."""


class ShareChange(Struct, frozen=True, kw_only=True):
    """The shares of all groups."""

    before: Mapping[str, GroupShare]
    after: Mapping[str, GroupShare]

    def share(self, group: str) -> BeforeAfter[float]:
        """The default share if none is configured."""
        return BeforeAfter(*(shares.get(group, GroupShare()).share for shares in (self.before, self.after)))

    def parts(self, groups: Collection[str]) -> dict[str, BeforeAfter[float]]:
        """Parts of the starts while all these groups compete."""
        before, after = parts_of(groups, self.before), parts_of(groups, self.after)
        return {group: BeforeAfter(before[group], after[group]) for group in groups}


def waiting_groups(
    change: ShareChange, snapshot: Snapshot, starts_an_hour: Mapping[str, float]
) -> list[WaitingGroup]:
    """Greatest gain first. `starts_an_hour`: of each VO."""
    jobs = snapshot.groups
    before, after = (_weights(snapshot.waiting, shares) for shares in (change.before, change.after))
    rows = []
    for vo, groups in _competing(jobs).items():
        rate = starts_an_hour.get(vo)
        for group, part in change.parts(groups).items():
            director = BeforeAfter(before[vo, group], after[vo, group])
            starts = BeforeAfter(part.before * rate, part.after * rate) if rate else None
            rows.append(WaitingGroup(vo, group, jobs[vo, group], change.share(group), part, director, starts))
    return sorted(rows, key=lambda row: (row.part.before - row.part.after, row.vo, row.group))


def group_parts(judged: Iterable[JudgedTaskQueue], change: ShareChange) -> list[GroupPart]:
    """Each group's part if resources change, too, by VO, greatest gain first; a group that no queue serves has none."""
    jobs: Counter[tuple[str, str]] = Counter()
    old: defaultdict[str, set[str]] = defaultdict(set)
    new: defaultdict[str, set[str]] = defaultdict(set)
    for queue in judged:
        vo, group = queue.key.vo, queue.key.group
        jobs[vo, group] += queue.jobs
        if queue.before and not queue.held:
            old[vo].add(group)
        if queue.after:
            new[vo].add(group)
    rows = []
    for (vo, group), number in jobs.items():
        parts = parts_of(old[vo], change.before), parts_of(new[vo], change.after)
        part = BeforeAfter(*(part_of.get(group, 0.0) for part_of in parts))
        rows.append(GroupPart(vo=vo, group=group, jobs=number, share=change.share(group), part=part))
    return sorted(rows, key=lambda row: (row.vo, row.part.before - row.part.after, row.group))


def _competing(jobs: Groups) -> dict[str, list[str]]:
    groups_of: dict[str, list[str]] = {}
    for vo, group in sorted(pair for pair, number in jobs.items() if number):
        groups_of.setdefault(vo, []).append(group)
    return groups_of


def _weights(waiting: Sequence[Waiting], shares: Mapping[str, GroupShare]) -> dict[tuple[str, str], float]:
    weight_of: dict[tuple[str, str], float] = defaultdict(float)
    weights = director_weights(waiting, shares)
    for tq_id, key, _ in waiting:
        weight_of[key.vo, key.group] += weights[tq_id]
    total = sum(weight_of.values())
    return {pair: weight / total for pair, weight in weight_of.items()}


def shared_places(
    change: ShareChange, masks: Groups, sites_of: Callable[[str, int], Sequence[str]]
) -> list[SharedPlaces]:
    """Queues with the same competing groups, most queues first. `masks`: queues that can run a group's waiting jobs;
    `sites_of`: the sites of a VO's mask.
    """
    places = []
    for vo, groups in _competing(masks).items():
        for alike, mask in _alike({group: masks[vo, group] for group in groups}):
            sites, parts = list(sites_of(vo, mask)), change.parts(alike)
            more = max(0, len(sites) - _FEW_SITES)
            places.append(SharedPlaces(vo, mask.bit_count(), sites[:_FEW_SITES], more, parts))
    return places[:_MOST_PLACES]


def _alike(masks: Mapping[str, int]) -> Iterator[tuple[tuple[str, ...], int]]:
    """(competing groups, queues), most queues first."""
    parts: dict[tuple[str, ...], int] = {(): reduce(or_, masks.values(), 0)}
    for group, mask in masks.items():
        halves = [((*groups, group), queues & mask) for groups, queues in parts.items()]
        halves += [(groups, queues & ~mask) for groups, queues in parts.items()]
        parts = {groups: queues for groups, queues in halves if queues}
    yield from sorted(parts.items(), key=lambda part: (-part[1].bit_count(), part[0]))
