"""Bits and cells: what the masks of the index are made of (DESIGN 3.3).

A *slot* is the place of one member in a table; member i is bit i of a mask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

FLUSH_AT: Final = 512  # changes that a cell lets wait
SPARSE_BITS: Final = 4096  # a mask with fewer than one bit in so many is not kept
DIRECT: Final = 8
NARROW_BITS: Final = 64
MANY: Final = 16  # values from which on they are looked up together


def bits_of(slots: Sequence[int]) -> int:
    """The mask in which a slot is set if it comes an odd number of times."""
    if len(slots) <= DIRECT:
        mask = 0
        for slot in slots:
            mask ^= 1 << slot
        return mask
    raw = bytearray((max(slots) >> 3) + 1)
    for slot in slots:
        raw[slot >> 3] ^= 1 << (slot & 7)
    return int.from_bytes(raw, "little")


def nth_slot(mask: int, n: int) -> int:
    """The slot of the n-th set bit, n from 0; the mask has more than n bits.

    Halves the width until it is small: about twice the work of one count of bits.
    """
    base = 0
    width = mask.bit_length()
    while n > 3 and width > NARROW_BITS:
        half = width >> 1
        low = mask & ((1 << half) - 1)
        count = low.bit_count()
        if n < count:
            mask = low
            width = half
        else:
            n -= count
            mask >>= half
            base += half
            width -= half
    while n:
        mask &= mask - 1
        n -= 1
    return base + (mask & -mask).bit_length() - 1


class Cell:
    """The members that have one value. Changes wait in a list until somebody reads.

    So a task queue that names 500 sites costs 500 short appends, and a thousand queues that come at once
    cost each mask one copy. A mask of few bits is made anew at each read and not kept: 100,000
    owners with one task queue each must not hold 100,000 masks.
    """

    __slots__ = ("_mask", "flips", "size")

    def __init__(self) -> None:
        self._mask = 0
        self.flips: list[int] = []  # slots that came or went since the mask was made
        self.size = 0

    def add(self, slot: int) -> None:
        """Set a bit that is not set."""
        self.size += 1
        self.flips.append(slot)
        if len(self.flips) >= FLUSH_AT:
            self.flush()

    def remove(self, slot: int) -> None:
        """Clear a bit that is set."""
        self.size -= 1
        self.flips.append(slot)
        if len(self.flips) >= FLUSH_AT:
            self.flush()

    def flush(self) -> None:
        """Bring the mask up to date."""
        self._mask ^= bits_of(self.flips)
        self.flips.clear()

    def read(self) -> int:
        """The mask as it is now."""
        flips = self.flips
        if flips:
            if not self._mask and len(flips) * SPARSE_BITS <= flips[0]:
                return bits_of(flips)
            self.flush()
        return self._mask


class CellsByValue(dict[str, Cell]):
    """Cells by value; a value without members has no cell."""

    __slots__ = ()

    def add(self, slot: int, values: Iterable[str]) -> None:
        """Note a member under each of its values."""
        for value in values:
            cell = self.get(value)
            if cell is None:
                cell = self[value] = Cell()
            # Cell.add, written out: a task queue may list hundreds of sites.
            cell.size += 1
            cell.flips.append(slot)
            if len(cell.flips) >= FLUSH_AT:
                cell.flush()

    def remove(self, slot: int, values: Iterable[str]) -> None:
        """Forget what `add` noted."""
        for value in values:
            cell = self[value]
            cell.size -= 1
            cell.flips.append(slot)
            if not cell.size:
                del self[value]
            elif len(cell.flips) >= FLUSH_AT:
                cell.flush()

    def any_of(self, values: Collection[str]) -> int:
        """The members that have at least one of the values."""
        found = 0
        if len(values) > MANY:
            values = self.keys() & values  # most have no cell
        for value in values:
            cell = self.get(value)
            if cell is not None:
                found |= cell.read()
        return found
