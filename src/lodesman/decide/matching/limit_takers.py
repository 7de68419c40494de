"""Who uses what of limits, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from lodesman.decide.matching.limit_rules import RuleBook, RunPlace, Values
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Number

BucketName = tuple[str, Values, str]  # rule, values (as `values_shown`), resource


class RunningJob(NamedTuple):
    """A live attempt."""

    key: TaskQueueKey
    place: RunPlace
    claimed_at: float  # UNIX seconds


class Share(NamedTuple):
    """What one owner's jobs of a project take."""

    vo: str
    owner: str
    project: str
    amount: Number
    jobs: int


@dataclass(slots=True, eq=False)
class BucketLoad:
    """What live attempts take of a bucket's resource."""

    # claimed at, amount, key; in the order of the claims
    attempts: list[tuple[float, Number, TaskQueueKey]] = field(default_factory=list)

    def holders(self) -> list[Share]:
        """The shares, the largest amount first."""
        amounts_of: dict[tuple[str, str, str], list[Number]] = {}
        for _, amount, key in self.attempts:
            amounts_of.setdefault((key.vo, key.owner, key.project), []).append(amount)
        shares = [Share(*who, sum(amounts), len(amounts)) for who, amounts in amounts_of.items()]
        return sorted(shares, key=lambda share: (-share.amount, share.owner, share.project, share.vo))

    def full_since(self, limit: Number, need: Number) -> float | None:
        """The latest time since which less than `need` is left; None: enough is left."""
        used: Number = 0
        for at, amount, _ in self.attempts:
            used += amount
            if used + need > limit:
                return at
        return None

    def ends_needed(self, missing: Number) -> int | None:
        """How few attempts must end to free that much; None: all are not enough."""
        for count, amount in enumerate(sorted((amount for _, amount, _ in self.attempts), reverse=True), 1):
            missing -= amount
            if missing <= 0:
                return count
        return None


def values_shown(of_key: Values, of_place: Values) -> Values:
    """A bucket's values that are not empty."""
    return tuple(value for value in (*of_key, *of_place) if value)


def taken_by(book: RuleBook, attempts: Iterable[RunningJob]) -> dict[BucketName, BucketLoad]:
    """The use of all buckets."""
    loads: dict[BucketName, BucketLoad] = {}
    key_side, place_side = cache(book.of_key), cache(book.of_place)

    @cache
    def charged(key: TaskQueueKey, place: RunPlace) -> list[tuple[BucketName, Number]]:
        of_key, of_place = key_side(key), place_side(place)
        return [
            ((book.names[rule], values_shown(of_key.values(rule), of_place.values(rule)), need.resource), need.charge)
            for rule in _counting(book, of_key.bits & of_place.bits)
            for need in of_key.needs(rule)
            if need.charge
        ]  # fmt: skip

    for key, place, at in sorted(attempts, key=lambda attempt: attempt.claimed_at):
        for bucket, amount in charged(key, place):
            loads.setdefault(bucket, BucketLoad()).attempts.append((at, amount, key))
    return loads


def _counting(book: RuleBook, concerning: int) -> Iterator[int]:
    """The first rule of each set that concerns both sides."""
    for start, stop in book.sets:
        if bits := concerning & ((1 << stop) - (1 << start)):
            yield (bits & -bits).bit_length() - 1
