"""The members with a value, as a mask that is brought up to date when it is read."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from lodesman.decide.masks.bits import Mask, mask_of

_FLUSH_AT: Final = 512  # changes that a cell lets wait
_SPARSE_BITS: Final = 4096  # a mask with fewer than one bit in this many is not kept
_MANY: Final = 16  # values from which on they are looked up together


class Cell:
    """The members with one value. Changes wait in a list until the mask is read: a task queue that names 500 sites
    costs 500 short appends. A mask of few bits is not kept: 100,000 owners must not hold 100,000 masks.
    """

    __slots__ = ("_mask", "flips", "size")

    def __init__(self) -> None:
        self._mask = 0
        self.flips: list[int] = []  # members that came or went since the mask was made
        self.size = 0

    def add(self, bit: int) -> None:
        """Add a member."""
        self.size += 1
        self.flips.append(bit)
        if len(self.flips) >= _FLUSH_AT:
            self.flush()

    def remove(self, bit: int) -> None:
        """Remove a member."""
        self.size -= 1
        self.flips.append(bit)
        if len(self.flips) >= _FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        """Bring the mask up to date."""
        self._mask ^= mask_of(self.flips)
        self.flips.clear()

    def read(self) -> Mask:
        """The mask as it is now."""
        if self.flips:
            if self._is_sparse():
                return mask_of(self.flips)
            self.flush()
        return self._mask

    def settle(self) -> None:
        """See `Table.settle`."""
        if self.flips and not self._is_sparse():
            self.flush()

    def _is_sparse(self) -> bool:
        return not self._mask and len(self.flips) * _SPARSE_BITS <= self.flips[0]


class Cells(dict[Any, Cell]):
    """By value; a value without members has none."""

    __slots__ = ()

    def add(self, bit: int, values: Iterable[Any]) -> None:
        """Add a member with these values."""
        for value in values:
            cell = self.get(value)
            if cell is None:
                cell = self[value] = Cell()
            # Cell.add, written out: a task queue may list hundreds of sites.
            cell.size += 1
            cell.flips.append(bit)
            if len(cell.flips) >= _FLUSH_AT:
                cell.flush()

    def remove(self, bit: int, values: Iterable[Any]) -> None:
        """Undo `add`."""
        for value in values:
            cell = self[value]
            cell.size -= 1
            cell.flips.append(bit)
            if not cell.size:
                del self[value]
            elif len(cell.flips) >= _FLUSH_AT:
                cell.flush()

    def settle(self) -> None:
        """See `Table.settle`."""
        for cell in self.values():
            cell.settle()

    def any_of(self, values: Collection[str]) -> Mask:
        """The members with at least one of the values."""
        members = 0
        if len(values) > _MANY:
            values = self.keys() & values  # most have no cell
        for value in values:
            cell = self.get(value)
            if cell is not None:
                members |= cell.read()
        return members
