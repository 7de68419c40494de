"""What a loop leaves out because it cannot handle it: a fault in one item costs that item alone.

The next pass tries it again. Until then /health and `why` name it; the log has the fault once.
"""

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

# How many of one pass are named, and of how many the log has the fault.
_NAMED: Final = 10_000
_LOGGED: Final = 100
# Of a search for what is at fault, in each of three orders; and later at each pass, until it is done. Each of them does the
# whole step.
_TRIES: Final = 60
_MORE_TRIES: Final = 20
# At each pass, whether what is at fault is mended.
_TRIES_AGAIN: Final = 4


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
    """One pass of a step. `faults`: by what it left out, the fault in words; `more`: how many it left out beside these."""

    def __init__(self, step: str, before: Mapping[str, str]) -> None:
        self.faults: dict[str, str] = {}
        self.more = 0
        self._step, self._before, self._logged = step, before, 0

    def leave_out(self, item: object, fault: Exception, *, others: int = 0) -> None:
        """Name an item that is left out, and have its fault in the log unless it was there before. `others`: how many are
        left out with it, since it is not known yet which of them is at fault. Raises the fault if it is of no item.
        """
        if not is_of_item(fault):
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
        """Leave out an item that was at fault before, and was not tried alone since; what was said of it stays."""
        name = str(item)
        if name in self._before and len(self.faults) < _NAMED:
            self.faults[name] = self._before[name]
        else:
            self.leave_out(item, fault)

    @contextmanager
    def item(self, *items: object) -> Iterator[None]:
        """Handle one item, or several of which each may be at fault: a fault leaves them out."""
        try:
            yield
        except Exception as fault:
            for item in items:
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
            more = {f"more of {name}": f"{found.more} items"} if found.more else {}
            self._by_step[name] = found.faults | more

    def named(self) -> dict[str, str]:
        """Each item with the steps that leave it out, and why."""
        found: dict[str, list[str]] = {}
        for step, faults in list(self._by_step.items()):
            for item, fault in faults.items():
                found.setdefault(item, []).append(f"{step} ({fault})")
        return {item: "; ".join(words) for item, words in sorted(found.items())}


Group = tuple[Item, ...]
Part = tuple[Group, ...]
Kinds = Sequence[Sequence[Group]]
"""Items by kind; of a kind those together of which one person may have many at fault, the task queues of an owner."""


class Omitted(NamedTuple):
    """What an attempt was made without. `proven`: those that are at fault; `parts`: of each of these some may be."""

    proven: frozenset[Item] = NOTHING
    parts: tuple[Part, ...] = ()

    @property
    def items(self) -> frozenset[Item]:
        """All of them."""
        return self.proven.union(*map(_items, self.parts))

    def among(self, items: frozenset[Item]) -> Omitted:
        """Those of them that there still are."""
        parts = (_among(part, items) for part in self.parts)
        return Omitted(self.proven & items, tuple(part for part in parts if part))


NONE_OMITTED: Final = Omitted()


def do_without_faulty(
    attempt: Callable[[frozenset[Item]], _R], stages: Callable[[], Sequence[Kinds]], left: StepPass, *,
    before: Omitted = NONE_OMITTED,
) -> tuple[_R, Omitted]:  # fmt: skip
    """What an attempt brings, with all items if it can be, and what it was made without: those at fault, of whatever kinds,
    and as long as a search is not done those among which they are. `before`: what the last one was made without; from there
    the search goes on. `stages`: all items there are, by kind; those that contain others in a stage before these, and those
    that may be at fault for one cause beside each other in a kind.

    Raises the fault of the attempt if it is of no item, or stays whatever is left out.
    """
    try:
        return attempt(NOTHING), NONE_OMITTED
    except Exception as fault:
        if not is_of_item(fault):
            raise
        trial = _Trial(attempt)
        found = trial.search(stages(), before)
        if found is None or trial.worked is None:
            raise
        result, found = trial.made_without(found, *trial.worked)
        for item in sorted(found.proven, key=str):
            if item in trial.faults:
                left.leave_out(item, trial.faults[item])
            else:
                left.leave_out_again(item, fault)
        for part in map(_items, found.parts):
            for item in part:
                if item not in found.proven:
                    left.leave_out(item, fault, others=len(part) - 1)
    return result, found


class _Trial(Generic[_R]):
    """Tries an attempt without some of its items. `faults`: what it met with where one item alone was taken back; `worked`:
    what the last try brought that brought anything, and without which items.
    """

    def __init__(self, attempt: Callable[[frozenset[Item]], _R]) -> None:
        self.faults: dict[Item, Exception] = {}
        self.worked: tuple[_R, frozenset[Item]] | None = None
        self._attempt = attempt

    def search(self, stages: Sequence[Kinds], before: Omitted) -> Omitted | None:
        """What to leave out so that it works, as few as it finds in a bounded number of tries; None if nothing helps."""
        everything = frozenset(chain.from_iterable(_items(kind) for kinds in stages for kind in kinds))
        before = before.among(everything)
        if before != NONE_OMITTED and self._fault_without(before.items) is None:
            return self._go_on(before)
        if self._fault_without(everything) is not None:
            return None
        everywhere = [_items(kind) for kinds in stages for kind in kinds if kind]
        found: list[Omitted] = []
        for order in _orders(stages, everything - before.items):
            one = self._take_back(order, everything, before, _TRIES)
            found.append(one._replace(parts=one.parts + before.parts))
            lost = found[-1].items
            if all(2 * len(lost.intersection(kind)) < len(kind) for kind in everywhere):
                break
        return min(found, key=lambda one: len(one.items))

    def made_without(self, found: Omitted, result: _R, without: frozenset[Item]) -> tuple[_R, Omitted]:
        """What the attempt brings without what the search found. A fault that comes and goes may be in another item by now:
        then the `result` of the last try that brought one, made `without` more, and some of these are at fault, too.
        """
        if without == found.items:
            return result, found
        try:
            return self._attempt(found.items), found
        except Exception as fault:
            if not is_of_item(fault):
                raise
        rest = tuple(sorted(without - found.items, key=str))
        return result, found._replace(parts=(*found.parts, (rest,))) if rest else found

    def _go_on(self, before: Omitted) -> Omitted:
        """Take back what is not known to be at fault; if that is nothing, what was: it may be mended."""
        if before.parts:
            is_done = before.proven.issuperset(before.items)
            tries = _TRIES_AGAIN if is_done else _MORE_TRIES
            return self._take_back([before.parts], before.items, before, tries)
        parts = _halves((tuple(sorted(before.proven, key=str)),)) if len(before.proven) > 1 else ()
        return self._take_back([parts], before.items, before, _TRIES_AGAIN)

    def _take_back(
        self, stages: Iterable[Iterable[Part]], without: frozenset[Item], before: Omitted, tries: int
    ) -> Omitted:
        """Take parts back as long as it works without the rest: at any time there is an answer. The large ones first, and
        those of several groups before those of one.
        """
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
        return Omitted(without & proven, tuple(later))

    def _fault_without(self, without: frozenset[Item]) -> Exception | None:
        try:
            self.worked = self._attempt(without), without
        except Exception as fault:
            if not is_of_item(fault):
                raise
            # What the attempt had in memory goes.
            traceback.clear_frames(fault.__traceback__)
            return fault
        return None


def _items(groups: Iterable[Group]) -> list[Item]:
    return list(chain.from_iterable(groups))


def _among(part: Iterable[Group], items: frozenset[Item]) -> Part:
    groups = (tuple(one for one in group if one in items) for group in part)
    return tuple(group for group in groups if group)


def _halves(part: Part) -> tuple[Part, Part]:
    """Of several groups some go to each half; one group is divided."""
    if len(part) > 1:
        return part[: len(part) // 2], part[len(part) // 2 :]
    half = len(part[0]) // 2
    return (part[0][:half],), (part[0][half:],)


def _orders(stages: Sequence[Kinds], without: frozenset[Item]) -> Iterator[list[list[Part]]]:
    """In which orders items are taken back, of these alone. All kinds of a stage at once: where two items cannot be handled
    together, the one is at fault with which none of the others can be, and some of these were taken back before it. Where
    that fails, kind by kind, the last ones first, then the first ones.
    """
    new = [[_among(kind, without) for kind in kinds] for kinds in stages]
    yield [[part] for kinds in new if (part := _mixed(kinds))]
    yield [[kind] for kinds in new for kind in reversed(kinds) if kind]
    yield [[kind] for kinds in new for kind in kinds if kind]


def _mixed(kinds: Sequence[Part]) -> Part:
    """The groups of several kinds as one row, each kind spread over all of it."""
    places = sorted(((n + 0.5) / len(kind), k, n) for k, kind in enumerate(kinds) for n in range(len(kind)))
    return tuple(kinds[k][n] for _, k, n in places)
