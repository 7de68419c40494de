"""Tables of values per member: which members pass a question. Members are task queues asked by a resource, or the
reverse. None: anything goes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from lodesman.decide.masks.bits import Mask
from lodesman.decide.masks.cells import Cell, Cells

Values = tuple[str, ...]  # without duplicates

_ANSWERS_KEPT: Final = 64


class MaskColumn(Protocol):
    """One value of each member."""

    def add(self, bit: int, values: Any, /) -> None:
        """Add a member, whose bit is free."""

    def remove(self, bit: int, values: Any, /) -> None:
        """Undo `add`."""

    def narrow(self, mask: Mask, values: Any, /) -> Mask:
        """`mask` without the members that do not pass."""
        ...

    def settle(self) -> None:
        """See `Table.settle`."""


class _OneValue:
    __slots__ = ("by_value", "everyone")

    def __init__(self) -> None:
        self.everyone = Cell()
        self.by_value = Cells()

    def add(self, bit: int, value: Any) -> None:
        self.everyone.add(bit)
        self.by_value.add(bit, (value,))

    def remove(self, bit: int, value: Any) -> None:
        self.everyone.remove(bit)
        self.by_value.remove(bit, (value,))

    def settle(self) -> None:
        self.everyone.settle()
        self.by_value.settle()


class _ByValue:
    __slots__ = ("_anything", "_by_value", "_choosy")

    def __init__(self) -> None:
        self._anything = Cell()
        self._by_value = Cells()
        self._choosy = 0  # members that do not take anything

    def add(self, bit: int, values: Values | None) -> None:
        if values is None:
            self._anything.add(bit)
        else:
            self._choosy += 1
            self._by_value.add(bit, values)

    def remove(self, bit: int, values: Values | None) -> None:
        if values is None:
            self._anything.remove(bit)
        else:
            self._choosy -= 1
            self._by_value.remove(bit, values)

    def settle(self) -> None:
        self._anything.settle()
        self._by_value.settle()


class HasAny(_ByValue):
    """Members pass that share a value with the question, or take anything."""

    __slots__ = ()

    def narrow(self, mask: Mask, values: Values) -> Mask:
        """See `MaskColumn`."""
        if not self._choosy:
            return mask
        by_value = self._by_value
        if len(values) == 1:  # the common case, without a loop
            cell = by_value.get(values[0])
            return mask & (self._anything.read() if cell is None else self._anything.read() | cell.read())
        return mask & (self._anything.read() | by_value.any_of(values))


class HasNone(_ByValue):
    """Members pass without any asked value."""

    __slots__ = ()

    def narrow(self, mask: Mask, values: Values) -> Mask:
        """See `MaskColumn`."""
        return mask ^ (mask & self._by_value.any_of(values)) if self._by_value else mask


class HasAll(_ByValue):
    """Members pass that have every asked value, or take anything."""

    __slots__ = ()

    def narrow(self, mask: Mask, values: Values) -> Mask:
        """See `MaskColumn`."""
        for value in values:
            mask &= self._anything.read() | self._by_value.any_of((value,))
            if not mask:
                break
        return mask


class HasOnly:
    """Members pass whose values are all asked. The cells of rank k hold the members' k-th values."""

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        self._ranks: list[_OneValue] = []

    def add(self, bit: int, values: Values) -> None:
        """See `MaskColumn`."""
        while len(self._ranks) < len(values):
            self._ranks.append(_OneValue())
        for rank, value in zip(self._ranks, values, strict=False):
            rank.add(bit, value)

    def remove(self, bit: int, values: Values) -> None:
        """See `MaskColumn`."""
        for rank, value in zip(self._ranks, values, strict=False):
            rank.remove(bit, value)
        while self._ranks and not self._ranks[-1].by_value:
            self._ranks.pop()

    def settle(self) -> None:
        """See `MaskColumn`."""
        for rank in self._ranks:
            rank.settle()

    def narrow(self, mask: Mask, values: Values) -> Mask:
        """See `MaskColumn`."""
        for rank in self._ranks:
            concerned = mask & rank.everyone.read()
            if not concerned:
                continue
            by_value = rank.by_value
            if 2 * len(values) <= len(by_value):
                good = by_value.any_of(values)
                mask ^= concerned ^ (concerned & good)
            else:
                mask ^= concerned & by_value.any_of(by_value.keys() - values)
        return mask


class Numbers:
    """Members by a number, with prefix masks over blocks: numbers below 32 have their own blocks; above, a power of
    two has 16. A change drops the prefixes above it.
    """

    __slots__ = ("_answers", "_blocks", "_edges", "_prefixes", "_top")

    def __init__(self) -> None:
        self._answers: dict[int, Mask] = {}  # of `below`, since the last change
        self._blocks: dict[int, _OneValue] = {}  # members whose numbers are close to each other
        self._edges: list[int] = []
        self._prefixes: list[Mask] = []  # [i]: union of the first i + 1 blocks
        self._top: int | None = None  # the greatest number, None if not known

    def add(self, bit: int, number: int) -> None:
        """See `MaskColumn`."""
        name = block_of(number)
        block = self._blocks.get(name)
        if block is None:
            block = self._blocks[name] = _OneValue()
            insort(self._edges, name)
        if number not in block.by_value:
            self._top = None
        block.add(bit, number)
        del self._prefixes[bisect_left(self._edges, name) :]
        self._answers.clear()

    def remove(self, bit: int, number: int) -> None:
        """See `MaskColumn`."""
        name = block_of(number)
        block = self._blocks[name]
        place = bisect_left(self._edges, name)
        del self._prefixes[place:]
        self._answers.clear()
        block.remove(bit, number)
        if number not in block.by_value:
            self._top = None
        if not block.by_value:
            del self._blocks[name]
            del self._edges[place]

    def settle(self) -> None:
        """See `MaskColumn`."""
        for block in self._blocks.values():
            block.settle()
        self._prefix(len(self._edges))
        self.top()

    def top(self) -> int:
        """The greatest number; -1 if there is none."""
        if self._top is None:
            self._top = max(self._blocks[self._edges[-1]].by_value) if self._edges else -1
        return self._top

    def below(self, limit: int) -> Mask:
        """The members whose number is less than `limit`."""
        answer = self._answers.get(limit)
        if answer is not None:
            return answer
        name = block_of(limit)
        place = bisect_left(self._edges, name)
        mask = self._prefix(place)
        block = self._blocks.get(name)
        if block is not None:
            for number, cell in block.by_value.items():
                if number < limit:
                    mask |= cell.read()
        if len(self._answers) >= _ANSWERS_KEPT:
            self._answers.clear()
        self._answers[limit] = mask
        return mask

    def _prefix(self, blocks: int) -> Mask:
        if not blocks:
            return 0
        prefixes = self._prefixes
        mask = prefixes[-1] if prefixes else 0
        for name in self._edges[len(prefixes) : blocks]:
            mask |= self._blocks[name].everyone.read()
            prefixes.append(mask)
        return prefixes[blocks - 1]


def block_of(number: int) -> int:
    """The four bits after the leading one, and the magnitude."""
    if number < 32:
        return number
    shift = number.bit_length() - 5
    return (shift << 4) + (number >> shift)


class AtMost(Numbers):
    """Members pass whose number is not above the question."""

    __slots__ = ()

    def narrow(self, mask: Mask, number: int) -> Mask:
        """See `MaskColumn`."""
        top = self._top
        if number >= (self.top() if top is None else top):
            return mask
        return mask & self.below(number + 1)


class AtLeast(Numbers):
    """Members pass whose number is not below the question."""

    __slots__ = ()

    def narrow(self, mask: Mask, number: int) -> Mask:
        """See `MaskColumn`."""
        return mask ^ (mask & self.below(number))


class Table:
    """Members as bits, by criterion."""

    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[MaskColumn]) -> None:
        self.columns = tuple(columns)

    def add(self, bit: int, values: Iterable[Any]) -> None:
        """Add a member, whose bit is free."""
        for column, value in zip(self.columns, values, strict=True):
            column.add(bit, value)

    def remove(self, bit: int, values: Iterable[Any]) -> None:
        """Undo `add`."""
        for column, value in zip(self.columns, values, strict=True):
            column.remove(bit, value)

    def settle(self) -> None:
        """Do all postponed work: then many threads may ask while no member comes or goes."""
        for column in self.columns:
            column.settle()

    def narrow(self, mask: Mask, values: Iterable[Any]) -> Mask:
        """The members that pass every column; None asks nothing."""
        for column, value in zip(self.columns, values, strict=True):
            if value is not None:
                mask = column.narrow(mask, value)
                if not mask:
                    break
        return mask

    def lost(self, mask: Mask, values: Sequence[Any]) -> Iterator[tuple[int, Mask]]:
        """(column, the members of `mask` that it refuses)."""
        for place, (column, value) in enumerate(zip(self.columns, values, strict=True)):
            refused = 0 if value is None else mask & ~column.narrow(mask, value)
            if refused:
                yield place, refused
