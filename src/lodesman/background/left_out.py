"""What a loop leaves out because it cannot handle it: a fault in one item costs that item alone.

The next pass tries it again. Until then /health and `why` name it; the log has the fault once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

from lodesman.errors import Conflict, ServerFault, Unavailable

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_R = TypeVar("_R")

# If so many of one pass are at fault, it is not they that are.
_MOST: Final = 100
# Of a search for what is at fault, for each kind: each of them does the whole step.
_TRIES: Final = 60
_LETTERS: Final = 300


class Item(NamedTuple):
    """What a loop handles one by one: `kind` is the word for it."""

    kind: str
    key: object

    def __str__(self) -> str:
        name = "/".join(map(str, self.key)) if isinstance(self.key, tuple) else str(self.key)
        return f"{self.kind} {name}".rstrip()


NOTHING: Final[frozenset[Item]] = frozenset()


def task_queue(number: int) -> Item:
    """A task queue as an item."""
    return Item("task queue", number)


def is_of_item(fault: Exception) -> bool:
    """Whether a fault may be that of an item: that the database or the hot process cannot answer now says nothing of it."""
    return isinstance(fault, ServerFault) or not isinstance(fault, (Conflict, Unavailable))


class StepPass:
    """One pass of a step. `faults`: by what it left out, the fault in words."""

    def __init__(self, step: str, before: Mapping[str, str]) -> None:
        self.faults: dict[str, str] = {}
        self._step, self._before = step, before

    def leave_out(self, item: object, fault: Exception) -> None:
        """Name an item that is left out, and have its fault in the log unless it was there before. Raises the fault if it is
        of no item, or of too many.
        """
        if not is_of_item(fault) or len(self.faults) >= _MOST:
            raise fault
        name, words = str(item), f"{type(fault).__name__}: {fault}"[:_LETTERS]
        self.faults[name] = words
        if self._before.get(name) != words:
            extra = {"step": self._step, "item": name}
            log.error("a step left out what it could not handle", exc_info=fault, extra=extra)

    @contextmanager
    def item(self, item: object) -> Iterator[None]:
        """Handle one item; a fault leaves it out."""
        try:
            yield
        except Exception as fault:
            self.leave_out(item, fault)

    def in_parts(
        self, items: Sequence[_T], call: Callable[[list[_T]], _R], name: Callable[[_T], object]
    ) -> list[_R]:
        """What `call` answers to all of them at once; where it fails, to halves, down to the item at fault."""
        try:
            return [call(list(items))]
        except Exception as fault:
            if len(items) < 2 or not is_of_item(fault):
                self.leave_out(name(items[0]) if items else self._step, fault)
                return []
        half = len(items) // 2
        return [*self.in_parts(items[:half], call, name), *self.in_parts(items[half:], call, name)]


class LeftOut:
    """What the steps of a process left out at their last passes. Any thread may ask; each step has one thread at a time."""

    def __init__(self) -> None:
        self._by_step: dict[str, Mapping[str, str]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[StepPass]:
        """One pass of a step; what it leaves out takes the place of what its last pass did."""
        found = StepPass(name, self._by_step.get(name, {}))
        try:
            yield found
        finally:
            self._by_step[name] = found.faults

    def named(self) -> dict[str, str]:
        """Each item with the steps that leave it out, and why."""
        found: dict[str, list[str]] = {}
        for step, faults in list(self._by_step.items()):
            for item, fault in faults.items():
                found.setdefault(item, []).append(f"{step} ({fault})")
        return {item: "; ".join(words) for item, words in sorted(found.items())}


def do_without_faulty(
    attempt: Callable[[frozenset[Item]], _R], items: Callable[[], Sequence[Sequence[Item]]], left: StepPass, *,
    before: frozenset[Item] = NOTHING,
) -> tuple[_R, frozenset[Item]]:  # fmt: skip
    """What an attempt brings, with all items if it can be, and what it was made without: the fewest items, all of one kind,
    so that it works; those that were at fault `before`, if that is enough. `items`: all that there are, by kind.

    Raises the fault of the attempt if it is of no item, or if too many are at fault.
    """
    try:
        return attempt(NOTHING), NOTHING
    except Exception as fault:
        works = partial(_works, attempt)
        faulty = before
        if not is_of_item(fault) or not (before and works(before)):
            faulty = least_at_fault(works, items()) if is_of_item(fault) else NOTHING
        if not faulty:
            raise
        for item in sorted(faulty, key=str):
            left.leave_out(item, fault)
    return attempt(faulty), faulty


def _works(attempt: Callable[[frozenset[Item]], object], without: frozenset[Item]) -> bool:
    try:
        attempt(without)
    except Exception as fault:
        if not is_of_item(fault):
            raise
        return False
    return True


def least_at_fault(
    works: Callable[[frozenset[Item]], bool], kinds: Sequence[Sequence[Item]]
) -> frozenset[Item]:
    """The fewest items, all of one kind, without which it works, found by halving; of several kinds that have as few, the
    first. Empty if no kind is at fault, or too many items are. `works`: whether it works without these.
    """
    found: list[list[Item]] = []
    for items in kinds:
        if culprits := _culprits(works, items):
            found.append(culprits)
        if len(culprits) == 1:
            break
    return frozenset(min(found, key=len, default=()))


def _culprits(works: Callable[[frozenset[Item]], bool], items: Sequence[Item]) -> list[Item]:
    everything, found = frozenset(items), list[Item]()
    if not items or not works(everything):
        return []
    parts, tries = [list(items)], 0
    while parts:
        part, tries = parts.pop(), tries + 1
        if tries > _TRIES:
            return []
        if works(everything.difference(part)):
            continue
        if len(part) == 1:
            found += part
        else:
            parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return found if works(frozenset(found)) else []
