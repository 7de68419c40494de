"""What a step leaves out: a fault in one item costs that item alone, until the next pass tries it again."""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from lodesman.base.errors import Conflict, ServerFault, Unavailable, words_of

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_R = TypeVar("_R")

_NAMED: Final = 10_000  # the most of a pass that /health and `why` name
_LOGGED: Final = 100  # the most of a pass whose faults are logged
# Tries of a search, each of which does the whole step.
_TRIES: Final = 60  # in each of three orders, at first
_MORE_TRIES: Final = 20  # at each later pass until the search is done
_TRIES_AGAIN: Final = 4  # at each pass after it, whether what is at fault is mended


class Item(NamedTuple):
    """What a step handles one by one."""

    kind: str  # the word for it
    key: object

    def __str__(self) -> str:
        name = "/".join(map(str, self.key)) if isinstance(self.key, tuple) else str(self.key)
        return f"{self.kind} {name}".rstrip()


NOTHING: Final[frozenset[Item]] = frozenset()


def task_queue(number: int) -> Item:
    """A task queue as an item."""
    return Item("task queue", number)


def _is_of_item(fault: Exception) -> bool:
    """Whether an item may be at fault: not if the database or the hot process cannot answer now."""
    return isinstance(fault, ServerFault) or not isinstance(fault, (Conflict, Unavailable))


class StepPass:
    """One pass of a step."""

    def __init__(self, step: str, before: Mapping[str, str]) -> None:
        self.faults: dict[str, str] = {}  # by item that is left out
        self.more = 0  # items left out beside these
        self._step, self._before, self._logged = step, before, 0

    def leave_out(self, item: object, fault: Exception, *, others: int = 0) -> None:
        """Name an item, and log its fault if it is new; raises a fault that is of no item. `others`: how many are
        left out with it until it is known which is at fault.
        """
        if not _is_of_item(fault):
            raise fault
        name, words = str(item), words_of(fault)
        if others:
            words = f"with others until it is known which is at fault; {words}"
        if name not in self.faults and len(self.faults) >= _NAMED:
            self.more += 1
            return
        self.faults[name] = words
        if self._before.get(name) != words and self._logged < _LOGGED:
            self._logged += 1
            extra = {"step": self._step, "item": name, "others": others}
            log.error("a step left out what it could not handle", exc_info=fault, extra=extra)

    def leave_out_again(self, item: object, fault: Exception) -> None:
        """Leave out an item that was not tried alone since, in the words of before."""
        name = str(item)
        if name in self._before and len(self.faults) < _NAMED:
            self.faults[name] = self._before[name]
        else:
            self.leave_out(item, fault)

    @contextmanager
    def item(self, *items: object) -> Iterator[None]:
        """Handle one item, or several: a fault leaves them out."""
        try:
            yield
        except Exception as fault:
            for item in items:
                self.leave_out(item, fault)

    def in_parts(
        self, items: Sequence[_T], call: Callable[[list[_T]], _R], name: Callable[[_T], object]
    ) -> list[_R]:
        """What `call` answers to all items; where it fails, to halves, down to the item at fault."""
        try:
            return [call(list(items))]
        except Exception as fault:
            if len(items) < 2 or not _is_of_item(fault):
                self.leave_out(name(items[0]) if items else self._step, fault)
                return []
        half = len(items) // 2
        return [*self.in_parts(items[:half], call, name), *self.in_parts(items[half:], call, name)]


class LeftOutItems:
    """What the steps of a process left out. Any thread may ask; a step has one thread."""

    def __init__(self) -> None:
        self._by_step: dict[str, Mapping[str, str]] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[StepPass]:
        """One pass, which replaces what the last one left out."""
        pass_ = StepPass(name, self._by_step.get(name, {}))
        try:
            yield pass_
        finally:
            more = {f"more of {name}": f"{pass_.more} items"} if pass_.more else {}
            self._by_step[name] = pass_.faults | more

    def named(self) -> dict[str, str]:
        """Each item with the steps that leave it out, and why."""
        items: dict[str, list[str]] = {}
        for step, faults in list(self._by_step.items()):
            for item, fault in faults.items():
                items.setdefault(item, []).append(f"{step} ({fault})")
        return {item: "; ".join(words) for item, words in sorted(items.items())}


Group = tuple[Item, ...]
Part = tuple[Group, ...]
# Items by kind, in groups that one person may spoil at once, such as the task queues of an owner.
Kinds = Sequence[Sequence[Group]]


class Omission(NamedTuple):
    """What an attempt was made without."""

    proven: frozenset[Item] = NOTHING  # at fault
    parts: tuple[Part, ...] = ()  # of each of these some may be at fault

    @property
    def items(self) -> frozenset[Item]:
        """All of them."""
        return self.proven.union(*map(_items, self.parts))

    def among(self, items: frozenset[Item]) -> Omission:
        """Those that still exist."""
        parts = (_among(part, items) for part in self.parts)
        return Omission(self.proven & items, tuple(part for part in parts if part))


NO_OMISSION: Final = Omission()


def do_without_faulty(
    attempt: Callable[[frozenset[Item]], _R], stages: Callable[[], Sequence[Kinds]], left: StepPass, *,
    before: Omission = NO_OMISSION,
) -> tuple[_R, Omission]:  # fmt: skip
    """What an attempt brings, and what it was made without: the items at fault, as few as the search found.

    The search goes on from `before`; until it is done, some items left out are not at fault. `stages`: items by
    kind; kinds that contain others come earlier, and items that one cause may spoil are neighbours. Raises a fault
    that is of no item, or stays whatever is left out.
    """
    try:
        return attempt(NOTHING), NO_OMISSION
    except Exception as fault:
        if not _is_of_item(fault):
            raise
        trial = _Trial(attempt)
        omitted = trial.search(stages(), before)
        if omitted is None or trial.worked is None:
            raise
        result, omitted = trial.made_without(omitted, *trial.worked)
        for item in sorted(omitted.proven, key=str):
            if item in trial.faults:
                left.leave_out(item, trial.faults[item])
            else:
                left.leave_out_again(item, fault)
        for part in map(_items, omitted.parts):
            for item in part:
                if item not in omitted.proven:
                    left.leave_out(item, fault, others=len(part) - 1)
    return result, omitted


class _Trial(Generic[_R]):
    def __init__(self, attempt: Callable[[frozenset[Item]], _R]) -> None:
        self.faults: dict[Item, Exception] = {}  # where one item alone was taken back
        # The last result, and without which items it came.
        self.worked: tuple[_R, frozenset[Item]] | None = None
        self._attempt = attempt

    def search(self, stages: Sequence[Kinds], before: Omission) -> Omission | None:
        """As few items as a bounded number of tries finds; None if nothing helps."""
        everything = frozenset(chain.from_iterable(_items(kind) for kinds in stages for kind in kinds))
        before = before.among(everything)
        if before != NO_OMISSION and self._fault_without(before.items) is None:
            return self._go_on(before)
        if self._fault_without(everything) is not None:
            return None
        everywhere = [_items(kind) for kinds in stages for kind in kinds if kind]
        trials: list[Omission] = []
        for order in _orders(stages, everything - before.items):
            omitted = self._take_back(order, everything, before, _TRIES)
            trials.append(omitted._replace(parts=omitted.parts + before.parts))
            lost = trials[-1].items
            if all(2 * len(lost.intersection(kind)) < len(kind) for kind in everywhere):
                break
        return min(trials, key=lambda trial: len(trial.items))

    def made_without(self, omitted: Omission, result: _R, without: frozenset[Item]) -> tuple[_R, Omission]:
        """What the attempt brings without what the search left out. With a fault in another item by now, the last
        `result` counts, made `without` more.
        """
        if without == omitted.items:
            return result, omitted
        try:
            return self._attempt(omitted.items), omitted
        except Exception as fault:
            if not _is_of_item(fault):
                raise
        rest = tuple(sorted(without - omitted.items, key=str))
        return result, omitted._replace(parts=(*omitted.parts, (rest,))) if rest else omitted

    def _go_on(self, before: Omission) -> Omission:
        """Take back what is not proven to be at fault, else what is proven: it may be mended."""
        if before.parts:
            is_done = before.proven.issuperset(before.items)
            tries = _TRIES_AGAIN if is_done else _MORE_TRIES
            return self._take_back([before.parts], before.items, before, tries)
        parts = _halves((tuple(sorted(before.proven, key=str)),)) if len(before.proven) > 1 else ()
        return self._take_back([parts], before.items, before, _TRIES_AGAIN)

    def _take_back(
        self, stages: Iterable[Iterable[Part]], without: frozenset[Item], before: Omission, tries: int
    ) -> Omission:
        """Take parts back as long as it works without the rest; large parts and those of several groups first."""
        proven, later = set(before.proven), list[Part]()
        for stage in stages:
            parts = deque[Part](part for part in stage if len(part) > 1)
            single = deque[Part](part for part in stage if len(part) == 1)
            while (parts or single) and tries:
                part, tries = (parts or single).popleft(), tries - 1
                fault, items = self._fault_without(without.difference(_items(part))), _items(part)
                if fault is None:
                    without = without.difference(items)
                elif len(items) == 1:
                    proven.add(items[0])
                    self.faults[items[0]] = fault
                else:
                    for half in _halves(part):
                        (parts if len(half) > 1 else single).append(half)
            later += [*parts, *single]
        return Omission(without & proven, tuple(later))

    def _fault_without(self, without: frozenset[Item]) -> Exception | None:
        try:
            self.worked = self._attempt(without), without
        except Exception as fault:
            if not _is_of_item(fault):
                raise
            # What the attempt had in memory goes.
            traceback.clear_frames(fault.__traceback__)
            return fault
        return None


def _items(groups: Iterable[Group]) -> list[Item]:
    return list(chain.from_iterable(groups))


def _among(part: Iterable[Group], items: frozenset[Item]) -> Part:
    groups = (tuple(item for item in group if item in items) for group in part)
    return tuple(group for group in groups if group)


def _halves(part: Part) -> tuple[Part, Part]:
    if len(part) > 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    half = len(part[0]) // 2
    return (part[0][:half],), (part[0][half:],)


def _orders(stages: Sequence[Kinds], without: frozenset[Item]) -> Iterator[list[list[Part]]]:
    """First all kinds of a stage: of two items that cannot be handled together, the one is at fault that fails with
    everything taken back before. Where that loses too many, kind by kind, from the last, then from the first.
    """
    new = [[_among(kind, without) for kind in kinds] for kinds in stages]
    yield [[part] for kinds in new if (part := _mixed(kinds))]
    yield [[kind] for kinds in new for kind in reversed(kinds) if kind]
    yield [[kind] for kinds in new for kind in kinds if kind]


def _mixed(kinds: Sequence[Part]) -> Part:
    places = sorted(((n + 0.5) / len(kind), k, n) for k, kind in enumerate(kinds) for n in range(len(kind)))
    return tuple(kinds[k][n] for _, k, n in places)
