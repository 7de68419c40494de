"""Sets of slots as the bits of one integer, kept per attribute value (DESIGN 3.3, index).

Member i of a table is bit i of a mask. Each class here holds one attribute of all members and narrows a mask to
the members that pass one rule. The rules work in both directions: members may be task queues asked by a
resource, or resources asked by a task queue (`criteria.py` says which). Values are tuples without duplicates;
None stands for "anything goes".
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from lodesman.matching.cells import Cell, CellsByValue

Values = tuple[str, ...]

ANSWERS_AT_MOST: Final = 64


class OverlapMasks:
    """Passes members that share a value with what is asked, and members that take anything (None)."""

    __slots__ = ("_anything", "_by_value", "_choosy")

    def __init__(self) -> None:
        self._anything = Cell()
        self._by_value = CellsByValue()
        self._choosy = 0  # members that do not take anything

    def add(self, slot: int, values: Values | None) -> None:
        """A member with these values."""
        if values is None:
            self._anything.add(slot)
        else:
            self._choosy += 1
            self._by_value.add(slot, values)

    def remove(self, slot: int, values: Values | None) -> None:
        """The inverse of `add`."""
        if values is None:
            self._anything.remove(slot)
        else:
            self._choosy -= 1
            self._by_value.remove(slot, values)

    def narrow(self, mask: int, asked: Values) -> int:
        """`mask` without the members that do not pass."""
        if not self._choosy:
            return mask
        by_value = self._by_value
        if len(asked) == 1:  # the common case, without a loop
            cell = by_value.get(asked[0])
            return mask & (self._anything.read() if cell is None else self._anything.read() | cell.read())
        return mask & (self._anything.read() | by_value.any_of(asked))


class DisjointMasks:
    """Passes members that have none of the asked values."""

    __slots__ = ("_by_value",)

    def __init__(self) -> None:
        self._by_value = CellsByValue()

    def add(self, slot: int, values: Values) -> None:
        """A member with these values."""
        self._by_value.add(slot, values)

    def remove(self, slot: int, values: Values) -> None:
        """The inverse of `add`."""
        self._by_value.remove(slot, values)

    def narrow(self, mask: int, asked: Values) -> int:
        """`mask` without the members that do not pass."""
        return mask ^ (mask & self._by_value.any_of(asked)) if self._by_value else mask


class WithinMasks:
    """Passes members all of whose values are among those asked.

    A member's values are noted by rank: its first value in the cells of rank 0, its second in those of
    rank 1, ... A member passes if at each rank it has either no value or one that is asked. So few asked
    values cost few unions, however many values the members know.
    """

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        self._ranks: list[tuple[Cell, CellsByValue]] = []

    def add(self, slot: int, values: Values) -> None:
        """A member with these values."""
        while len(self._ranks) < len(values):
            self._ranks.append((Cell(), CellsByValue()))
        for (everyone, by_value), value in zip(self._ranks, values, strict=False):
            everyone.add(slot)
            by_value.add(slot, (value,))

    def remove(self, slot: int, values: Values) -> None:
        """The inverse of `add`."""
        for (everyone, by_value), value in zip(self._ranks, values, strict=False):
            everyone.remove(slot)
            by_value.remove(slot, (value,))
        while self._ranks and not self._ranks[-1][0].size:
            self._ranks.pop()

    def narrow(self, mask: int, asked: Values) -> int:
        """`mask` without the members that do not pass."""
        for everyone, by_value in self._ranks:
            concerned = mask & everyone.read()
            if not concerned:
                continue
            if 2 * len(asked) <= len(by_value):
                good = by_value.any_of(asked)
                mask ^= concerned ^ (concerned & good)
            else:
                mask ^= concerned & by_value.any_of(by_value.keys() - asked)
        return mask


class ContainsMasks:
    """Passes members that have every asked value, and members that have all there are (None)."""

    __slots__ = ("_anything", "_by_value")

    def __init__(self) -> None:
        self._anything = Cell()
        self._by_value = CellsByValue()

    def add(self, slot: int, values: Values | None) -> None:
        """A member with these values."""
        if values is None:
            self._anything.add(slot)
        else:
            self._by_value.add(slot, values)

    def remove(self, slot: int, values: Values | None) -> None:
        """The inverse of `add`."""
        if values is None:
            self._anything.remove(slot)
        else:
            self._by_value.remove(slot, values)

    def narrow(self, mask: int, asked: Values) -> int:
        """`mask` without the members that do not pass."""
        for value in asked:
            mask &= self._anything.read() | self._by_value.any_of((value,))
            if not mask:
                break
        return mask


class _Block:
    """Members whose numbers are close to each other."""

    __slots__ = ("by_value", "everyone")

    def __init__(self) -> None:
        self.everyone = Cell()
        self.by_value: dict[int, Cell] = {}


class NumberMasks:
    """Members by a number. Exact, with prefix masks over blocks of close numbers.

    Numbers below 32 have blocks of their own, above that a power of two has 16 blocks: a few hundred blocks
    whatever the number of distinct values. A change forgets the prefixes above it; the next question
    makes them again.
    """

    __slots__ = ("_answers", "_blocks", "_edges", "_prefixes", "_top")

    def __init__(self) -> None:
        self._answers: dict[int, int] = {}  # what `below` said since the last change
        self._blocks: dict[int, _Block] = {}
        self._edges: list[int] = []
        self._prefixes: list[int] = []  # [i]: union of the first i + 1 blocks
        self._top: int | None = None  # the greatest number, None if not known

    def add(self, slot: int, number: int) -> None:
        """A member with this number."""
        name = _block_of(number)
        block = self._blocks.get(name)
        if block is None:
            block = self._blocks[name] = _Block()
            insort(self._edges, name)
        cell = block.by_value.get(number)
        if cell is None:
            cell = block.by_value[number] = Cell()
            self._top = None
        cell.add(slot)
        block.everyone.add(slot)
        del self._prefixes[bisect_left(self._edges, name) :]
        self._answers.clear()

    def remove(self, slot: int, number: int) -> None:
        """The inverse of `add`."""
        name = _block_of(number)
        block = self._blocks[name]
        place = bisect_left(self._edges, name)
        del self._prefixes[place:]
        self._answers.clear()
        block.everyone.remove(slot)
        cell = block.by_value[number]
        cell.remove(slot)
        if not cell.size:
            del block.by_value[number]
            self._top = None
        if not block.by_value:
            del self._blocks[name]
            del self._edges[place]

    def top(self) -> int:
        """The greatest number of a member; -1 if there is none."""
        if self._top is None:
            self._top = max(self._blocks[self._edges[-1]].by_value) if self._edges else -1
        return self._top

    def below(self, limit: int) -> int:
        """The members whose number is less than `limit`."""
        known = self._answers.get(limit)
        if known is not None:
            return known
        name = _block_of(limit)
        place = bisect_left(self._edges, name)
        mask = self._prefix(place)
        block = self._blocks.get(name)
        if block is not None:
            for number, cell in block.by_value.items():
                if number < limit:
                    mask |= cell.read()
        if len(self._answers) >= ANSWERS_AT_MOST:
            self._answers.clear()
        self._answers[limit] = mask
        return mask

    def _prefix(self, blocks: int) -> int:
        """The union of the lowest `blocks` blocks."""
        if not blocks:
            return 0
        prefixes = self._prefixes
        mask = prefixes[-1] if prefixes else 0
        for name in self._edges[len(prefixes) : blocks]:
            mask |= self._blocks[name].everyone.read()
            prefixes.append(mask)
        return prefixes[blocks - 1]


def _block_of(number: int) -> int:
    """The block of a number: monotone, the four bits after the leading one and the magnitude."""
    if number < 32:
        return number
    shift = number.bit_length() - 5
    return (shift << 4) + (number >> shift)


class AtMostMasks(NumberMasks):
    """Passes members whose number is not above the one asked."""

    __slots__ = ()

    def narrow(self, mask: int, asked: int) -> int:
        """`mask` without the members that do not pass."""
        top = self._top
        if asked >= (self.top() if top is None else top):
            return mask
        return mask & self.below(asked + 1)


class AtLeastMasks(NumberMasks):
    """Passes members whose number is not below the one asked."""

    __slots__ = ()

    def narrow(self, mask: int, asked: int) -> int:
        """`mask` without the members that do not pass."""
        return mask ^ (mask & self.below(asked))
