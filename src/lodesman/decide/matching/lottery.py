"""The three-level lottery, drawn anew for every job.

1. A group, by its share among the groups that have an eligible task queue now.
2. An owner inside it, by weight among those with an eligible task queue (not if the group shares jobs).
3. A task queue of the owner, by UserPriority weight; of equal weights the one that packs best (ADR 0064).

Levels 1 and 2 draw among all, test, and draw again; after 8 failures they list those that pass. Both ways are exact.
"""

from __future__ import annotations

import json
import random
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf
from typing import Final, NamedTuple

from lodesman.decide.masks.bits import nth_bit
from lodesman.decide.matching.group_index import GroupIndex, IndexedQueue, OwnerQueues
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.shares import DEFAULT_GROUP, GroupShare
from lodesman.decide.matching.spots import NONE_SHUT, ShutSlots
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.matching.views import Ballot, EligibleSlots, Shortlist, View

_TRIES: Final = 8
# Of more task queues so many are drawn, and compared.
_COMPARED: Final = 16
# This part of the draws is not packed: a task queue that fits badly gets its turn, too.
_AT_RANDOM: Final = 0.125


class SharedSlot(NamedTuple):
    """A pilot with several payloads."""

    cores: int
    free: int  # cores that hold nothing
    busy_s: float  # seconds until its last payload is expected to end, 0 if none runs
    scaling: float = 1.0  # norm_cpu_seconds for each second of a core

    def with_job(self, key: TaskQueueKey) -> SharedSlot:
        """With one more job."""
        ends = max(self.busy_s, expected_seconds(key, self.scaling))
        return SharedSlot(self.cores, max(0, self.free - key.cores), ends, self.scaling)


def expected_seconds(key: TaskQueueKey, scaling: float) -> float:
    """What its user says, else its CPU time by its cores."""
    return key.expected_seconds or key.norm_cpu_seconds / (key.cores * scaling)


class Lottery:
    """Draws by the `shares` set last; groups without a setting have the default share."""

    __slots__ = ("_ballots", "_index", "_made_for", "shares")

    def __init__(self, index: Index) -> None:
        self._index = index
        self.shares: Mapping[str, GroupShare] = {}
        self._ballots: dict[tuple[str, tuple[str, ...] | None], Ballot] = {}
        self._made_for = -1

    def set_shares(self, shares: Mapping[str, GroupShare]) -> None:
        """For draws from now on."""
        self.shares = dict(shares)
        self._index.version += 1

    def find_ballot(self, view: View) -> Ballot:
        """A view's ballot, made anew if groups or shares changed."""
        index = self._index
        if view.version != index.version:
            if self._made_for != index.version:
                self._ballots.clear()
                self._made_for = index.version
            served = view.vo, view.group_names
            ballot = self._ballots.get(served)
            if ballot is None:
                ballot = self._ballots[served] = self._ballot(index.groups_for(*served))
            view.renew(ballot, version=index.version, group_numbers=index.group_numbers())
        return view.ballot

    def draw(
        self,
        view: View,
        numbers: Sequence[int],
        rng: random.Random,
        shut: ShutSlots = NONE_SHUT,
        shared: SharedSlot | None = None,
    ) -> IndexedQueue | None:
        """An eligible task queue; None only if there is none. `shared`: if jobs are packed."""
        ballot = self.find_ballot(view)
        draw = rng.random
        shortlist = view.shortlist
        if (
            shortlist is not None
            and shortlist.changes == self._index.changes
            and shortlist.shut == shut.number
            and shortlist.numbers == numbers
        ):
            return _draw_group(view, shortlist, shut, draw, shared)
        groups = ballot.groups
        if groups:
            cumulative = ballot.cumulative
            total = cumulative[-1]
            last = len(groups) - 1
            for _ in range(_TRIES):
                group = groups[bisect(cumulative, draw() * total, 0, last)]
                mask = view.mask(group, numbers, shut)
                if mask:
                    return _draw_in(group, mask, draw, None, shared)
        view.shortlist = shortlist = self._list(view, numbers, shut)
        return _draw_group(view, shortlist, shut, draw, shared)

    def competing(self, view: View, numbers: Sequence[int], shut: ShutSlots = NONE_SHUT) -> str:
        """The competing groups of the next draw, with weights, as JSON."""
        ballot = self.find_ballot(view)
        groups = _eligible(view, numbers, shut)
        before, text = ballot.competed
        if groups != before:
            text = json.dumps({group.name: ballot.weights[group] for group in groups}, ensure_ascii=False)
            ballot.competed = groups, text
        return text

    def _list(self, view: View, numbers: Sequence[int], shut: ShutSlots) -> Shortlist:
        groups = _eligible(view, numbers, shut)
        weights = map(view.ballot.weights.__getitem__, groups)
        return Shortlist(self._index.changes, shut.number, numbers, groups, list(accumulate(weights)))

    def _ballot(self, groups: Sequence[GroupIndex]) -> Ballot:
        settings = [(group, self.shares.get(group.name, DEFAULT_GROUP)) for group in groups]
        for group, setting in settings:
            group.set_job_sharing(setting.job_sharing)
            group.weigh_owners(setting.owner_weights)
        return Ballot(
            groups=tuple(group for group, setting in settings if setting.share > 0),
            cumulative=tuple(accumulate(setting.share for _, setting in settings if setting.share > 0)),
            weights={group: setting.share if setting.share > 0 else 1.0 for group, setting in settings},
            without_share=tuple(group for group, setting in settings if setting.share <= 0),
        )


def _eligible(view: View, numbers: Sequence[int], shut: ShutSlots) -> list[GroupIndex]:
    """Groups without a share only if none with one passes."""
    ballot = view.ballot
    return [group for group in ballot.groups if view.mask(group, numbers, shut)] or [
        group for group in ballot.without_share if view.mask(group, numbers, shut)
    ]


def _draw_group(
    view: View, shortlist: Shortlist, shut: ShutSlots, draw: Callable[[], float], shared: SharedSlot | None
) -> IndexedQueue | None:
    """Level 1."""
    groups = shortlist.groups
    if not groups:
        return None
    cumulative = shortlist.cumulative
    group = groups[bisect(cumulative, draw() * cumulative[-1], 0, len(groups) - 1)]
    eligible = view.find_slots(group, shortlist.numbers, shut)
    return _draw_in(group, eligible.mask, draw, eligible, shared)


def _draw_in(
    group: GroupIndex,
    mask: int,
    draw: Callable[[], float],
    eligible: EligibleSlots | None,
    shared: SharedSlot | None,
) -> IndexedQueue | None:
    """Levels 2 and 3. `eligible` remembers who has slots."""
    owners = group.owners_drawn
    count = len(owners)
    owner = owners[0]
    if count > 1:
        if eligible is not None and eligible.owners is not None:
            eligible_owners, sums = eligible.owners, eligible.owner_sums
            owner, mask = eligible_owners[
                int(draw() * len(eligible_owners)) if sums is None else _by_sums(sums, draw)
            ]
        else:
            owner, mask = _draw_owner(group, mask, draw, eligible)
    if not mask & (mask - 1):
        return group.slots[mask.bit_length() - 1]
    if len(owner.weighted) > 1:
        mask = _draw_weight(owner, mask, draw)
    if shared is not None and shared.busy_s > 0 and draw() >= _AT_RANDOM:
        return _pack(group, mask, draw, shared)
    return group.slots[nth_bit(mask, int(draw() * mask.bit_count()))]


def _pack(group: GroupIndex, mask: int, draw: Callable[[], float], shared: SharedSlot) -> IndexedQueue | None:
    """Among task queues alike by owner and priority, one with the least draining waste. If the group shares jobs, the
    owner is that of a drawn one.
    """
    count = mask.bit_count()
    if count <= _COMPARED:
        drawn = list(group.queues(mask))
    else:
        slots = (nth_bit(mask, int(draw() * count)) for _ in range(_COMPARED))
        drawn = [queue for slot in slots if (queue := group.slots[slot]) is not None]
    if group.job_sharing:
        owner = drawn[int(draw() * len(drawn))].key.owner
        drawn = [queue for queue in drawn if queue.key.owner == owner]
    best = least_waste(shared, drawn) or drawn
    return best[int(draw() * len(best))]


def _draw_owner(
    group: GroupIndex, mask: int, draw: Callable[[], float], memo: EligibleSlots | None
) -> tuple[OwnerQueues, int]:
    owners = group.owners_drawn
    count = len(owners)
    sums = group.owner_sums() if group.owner_weights else None
    for _ in range(_TRIES):
        owner = owners[int(draw() * count) if sums is None else _by_sums(sums, draw)]
        theirs = mask & owner.everyone.read()
        if theirs:
            return owner, theirs
    eligible = [(owner, theirs) for owner in owners if (theirs := mask & owner.everyone.read())]
    if sums is not None:
        weight = group.owner_weights.get
        sums = list(accumulate(weight(owner.name, 1.0) for owner, _ in eligible))
    if memo is not None:
        memo.owners, memo.owner_sums = eligible, sums
    return eligible[int(draw() * len(eligible)) if sums is None else _by_sums(sums, draw)]


def _by_sums(sums: Sequence[float], draw: Callable[[], float]) -> int:
    return bisect(sums, draw() * sums[-1], 0, len(sums) - 1)


def _draw_weight(owner: OwnerQueues, mask: int, draw: Callable[[], float]) -> int:
    parts = []
    total = 0.0
    for weight, cell in owner.weighted:
        part = mask & cell.read()
        if part:
            total += weight * part.bit_count()
            parts.append((total, part))
    drawn = draw() * total
    for until, part in parts:
        if drawn < until:
            return part
    return parts[-1][1]


def least_waste(shared: SharedSlot, queues: Iterable[IndexedQueue]) -> list[IndexedQueue]:
    """The task queues whose job fits and leaves the least draining waste; all that are alike.

    Formula 10 of $JOBSTATUS (ADR 0064): a pilot of A cores whose payloads hold c cores each and end at e idles A x
    last - sum(c x e) core-seconds. A job of c cores and s seconds makes that A x max(last, s) - c x s, and a sum that
    is the same for all jobs.
    """
    cores, free, busy_s, scaling = shared
    least, best = inf, list[IndexedQueue]()
    for queue in queues:
        key = queue.key
        takes = key.cores
        if takes > free:
            continue
        # `expected_seconds`, written out: on the writer's thread for up to 16 task queues of each claim.
        seconds = key.expected_seconds or key.norm_cpu_seconds / (takes * scaling)
        waste = max(busy_s, seconds) * cores - takes * seconds
        if waste < least:
            least, best = waste, [queue]
        elif waste == least:
            best.append(queue)
    return best
