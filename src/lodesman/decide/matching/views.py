"""What a kind of resource may draw from, as a mask for each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from lodesman.decide.matching.criteria import WHERE, WHOSE
from lodesman.decide.matching.group_index import GroupIndex, OwnerQueues
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.spots import NONE_SHUT, ShutSlots

_VIEWS_AT_MOST: Final = 2048
_VIEW_BYTES: Final = 96 << 20

_description = attrgetter(
    "site", "platforms", "tags", "vo", "groups", "ce", "owner", "pilot_type", "required_tags", "job_types",
    "submission_pool", "job_classes",
)  # fmt: skip
# Longer lists of SubmitPools are distinguished by their version, if there is one (`PoolMap.of_queue`): a queue may serve
# thousands, and to hash them all would take longer than a choice.
_SHORT: Final = 8
_groups_of = WHOSE[1].of_request


def numbers_of(request: ResourceRequest) -> tuple[int, int, int]:
    """The cores, memory and CPU time left, in the order of HOW_MUCH."""
    return request.cores, request.memory_mb, request.norm_cpu_seconds


@dataclass(slots=True)
class Ballot:
    """Groups that a kind of resource serves."""

    groups: tuple[GroupIndex, ...]  # with a share
    cumulative: tuple[float, ...]  # the running sums of their shares
    without_share: tuple[GroupIndex, ...]
    weights: Mapping[GroupIndex, float]  # the shares, 1 without one
    competed: tuple[list[GroupIndex], str] = ([], "")  # those that competed last, and their weights as JSON


@dataclass(slots=True)
class Shortlist:
    """Groups for the next draw."""

    changes: int  # of the index
    shut: int  # the number of what was shut
    numbers: Sequence[int]
    groups: Sequence[GroupIndex]
    cumulative: Sequence[float]  # the running sums of their shares


@dataclass(slots=True)
class EligibleSlots:
    """A group's open slots that a resource may draw from, and what found them."""

    changes: int
    arrived: int
    shut: int
    numbers: Sequence[int]
    mask: int
    # who has some of the slots and which; None: not listed yet
    owners: list[tuple[OwnerQueues, int]] | None = None
    owner_sums: list[float] | None = None  # the running sums of their weights; None: these are alike


class View:
    """One description against the index."""

    __slots__ = (
        "_fits", "_found", "_masks", "_seen", "_where", "ballot", "group_names", "shortlist", "version", "vo",
    )  # fmt: skip

    def __init__(self, request: ResourceRequest) -> None:
        self.vo = request.vo
        self.group_names: tuple[str, ...] | None = _groups_of(request)
        self.version = -1  # of the index, when the ballot was made
        self.ballot = Ballot((), (), (), {})
        self.shortlist: Shortlist | None = None
        self._where: Sequence[Any] = tuple(criterion.of_request(request) for criterion in WHERE)
        self._masks: list[int] = []
        self._seen: list[int] = []
        # By group: the numbers that asked last, and the slots that they and all else admit, once as many had arrived.
        self._fits: list[tuple[int, Sequence[int], int]] = []
        self._found: list[EligibleSlots | None] = []

    def renew(self, ballot: Ballot, *, version: int, group_numbers: int) -> None:
        """Groups or shares changed."""
        self.ballot = ballot
        self.version = version
        self.shortlist = None
        more = group_numbers - len(self._masks)
        self._masks += [0] * more
        self._seen += [0] * more
        self._fits += [(-1, (), 0)] * more
        self._found = [None] * len(self._masks)

    def mask(self, group: GroupIndex, numbers: Sequence[int], shut: ShutSlots = NONE_SHUT) -> int:
        """The slots that the resource may draw from now."""
        number, left = group.number, group.open
        arrived, of_numbers, mask = self._fits[number]
        if arrived == group.arrived and of_numbers == numbers:
            mask &= left
        elif self._seen[number] == group.arrived:
            mask = self._masks[number]
            if mask & left:
                mask = group.narrow_numbers(mask, numbers)
                self._fits[number] = group.arrived, numbers, mask
            mask &= left
        else:
            # A node too small for anything must not pay for task queues that come and go.
            mask = group.narrow_numbers(left, numbers)
            if mask:
                missed = group.arrived - self._seen[number]
                self._masks[number] = group.catch_up(self._masks[number], missed, self._where)
                self._seen[number] = group.arrived
                mask &= self._masks[number]
        # Last, since most groups have nothing for the resource.
        return mask ^ (mask & shut[number]) if mask else 0

    def find_slots(self, group: GroupIndex, numbers: Sequence[int], shut: ShutSlots) -> EligibleSlots:
        """The same, remembered while nothing opens, closes or arrives."""
        closed = shut[group.number]
        slots = self._found[group.number]
        if (
            slots is not None
            and slots.changes == group.changes
            and slots.arrived == group.arrived
            and slots.shut == closed
            and slots.numbers == numbers
        ):
            return slots
        slots = self._found[group.number] = EligibleSlots(
            group.changes, group.arrived, closed, numbers, self.mask(group, numbers, shut)
        )
        return slots


class Views:
    """By description. A view found in the old half moves to the young one; a full young half becomes the old one."""

    __slots__ = ("_index", "_old", "_young")

    def __init__(self, index: Index) -> None:
        self._index = index
        self._young: dict[Any, View] = {}
        self._old: dict[Any, View] = {}

    def view_of(self, request: ResourceRequest) -> View:
        """The view of what the request describes."""
        pools = request.submit_pools
        version = None if len(pools) <= _SHORT else request.pools_version
        described = _description(request), pools if version is None else version
        view = self._young.get(described)
        if view is None:
            view = self._old.pop(described, None) or View(request)
            each = len(self._index) // 4 + 128 * self._index.group_numbers() + 1024
            if len(self._young) >= max(64, min(_VIEWS_AT_MOST, _VIEW_BYTES // each)):
                self._old = self._young
                self._young = {}
            self._young[described] = view
        return view
