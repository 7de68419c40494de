"""What limits are made of: rules in sets, each with a side of the task queue and a side of the place (see `limits`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Number, Value

Values = tuple[str, ...]
GroupSlots = Mapping[int, int]
"""Slots of task queues, by the number of their group."""


class RunPlace(NamedTuple):
    """Where a job would run."""

    site: str = ""
    ce: str = ""
    queue: str = ""
    host: str = ""


class Need(NamedTuple):
    """What a job needs of a resource, and what it takes of it while it runs. `fits`: of one that jobs do not use up, whether
    this is within a limit, whatever others use.
    """

    resource: str
    amount: Value
    charge: Number
    fits: Callable[[Value, Value], bool] | None = None


class KeySide(Protocol):
    """What rules see of a task queue; equal for task queues that they see alike."""

    @property
    def bits(self) -> int:
        """The rules that may concern it."""

    def values(self, rule: int) -> Values:
        """Of the bucket."""

    def needs(self, rule: int) -> tuple[Need, ...]:
        """Of each resource that the rule limits and that the job needs."""


class PlaceSide(Protocol):
    """What rules see of a place."""

    @property
    def bits(self) -> int:
        """The rules that may concern it."""

    def values(self, rule: int) -> Values:
        """Of the bucket."""

    def limits(self, rule: int) -> Mapping[str, Value]:
        """By resource."""


class RuleBook(Protocol):
    """Rules by number, those of a set one after the other."""

    @property
    def sets(self) -> Sequence[tuple[int, int]]:
        """The first rule of each set, and the one after its last."""

    @property
    def by_place(self) -> int:
        """The rules that count places apart: of all others, places have the same values."""

    @property
    def names(self) -> Sequence[str]:
        """Of each rule."""

    def kind_of(self, key: TaskQueueKey) -> Hashable:
        """All that rules see of a task queue."""

    def of_key(self, key: TaskQueueKey) -> KeySide:
        """The side of a task queue; asked once for each kind."""

    def of_place(self, place: RunPlace) -> PlaceSide:
        """The side of a place; asked once for each."""


class BucketUse(Struct, frozen=True):
    """A bucket as it is now: what is used and allowed of one resource. `least`: the smallest amount that jobs need for which
    there is no room, None if there are no such jobs or it was not asked. `never`: of a job that was asked about, whether it
    would not fit if nothing were used.
    """

    rule: str
    of_key: Values
    of_place: Values
    resource: str
    used: Number
    limit: Value
    least: Value | None = None
    never: bool = False
