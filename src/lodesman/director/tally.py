"""A small number for each CE queue, kept as bit planes: sums and draws over masks of queues.

Plane k is the mask of the queues whose number has bit k. So the sum over any set of queues, a change of many
numbers at once and a weighted draw cost a few operations on whole masks, not a loop over the queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from lodesman.resources import bits


class Tally:
    """Numbers of 0 or more by bit; those that were never set are 0."""

    __slots__ = ("_planes", "positive")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        """`numbers` are those of bit 0, 1, 2, ..."""
        self._planes: list[int] = []
        for bit, number in enumerate(numbers):
            self._grow(number.bit_length())
            for k in bits(number):
                self._planes[k] |= 1 << bit
        self.positive = 0
        """The mask of the numbers above 0."""
        self._settle()

    def add(self, mask: int, amount: int) -> None:
        """Add an amount of 0 or more to every number of a mask."""
        for place in bits(amount):
            k, carry = place, mask
            while carry:
                self._grow(k + 1)
                self._planes[k], carry = self._planes[k] ^ carry, self._planes[k] & carry
                k += 1
        if amount:
            self.positive |= mask

    def take_one(self, mask: int) -> None:
        """Lower every number of a mask by 1; those at 0 stay there."""
        borrow = mask & self.positive
        for k, plane in enumerate(self._planes):
            if not borrow:
                break
            self._planes[k] = plane ^ borrow
            borrow &= ~plane
        self._settle()

    def limit(self, mask: int, most: int) -> None:
        """Lower the numbers of a mask that are above `most` to it."""
        above, equal = 0, mask
        for k in reversed(range(max(len(self._planes), most.bit_length()))):
            plane = self._planes[k] if k < len(self._planes) else 0
            if most >> k & 1:
                equal &= plane
            else:
                above |= equal & plane
                equal &= ~plane
        if above:
            self._planes = [
                plane & ~above | (above if most >> k & 1 else 0) for k, plane in enumerate(self._planes)
            ]
            self._settle()

    def total(self, mask: int) -> int:
        """The sum over a mask."""
        return sum((plane & mask).bit_count() << k for k, plane in enumerate(self._planes))

    def numbers(self, count: int) -> list[int]:
        """The numbers of the first `count` bits."""
        found = [0] * count
        for k, plane in enumerate(self._planes):
            for bit in bits(plane & ((1 << count) - 1)):
                found[bit] += 1 << k
        return found

    def draw(self, mask: int, rng: Random) -> int:
        """A bit of the mask, each with the chance of its number; one of them must be above 0."""
        # The very draw of `Random.choices`; rounding may reach the total itself.
        total = self.total(mask)
        return self._at(mask, min(int(rng.random() * total), total - 1))

    def _at(self, mask: int, place: int) -> int:
        """The first bit at which the sum of the numbers up to it is above `place`."""
        planes = [plane & mask for plane in self._planes]
        base, width = 0, mask.bit_length()
        while width > 1:
            half = width >> 1
            low = [plane & ((1 << half) - 1) for plane in planes]
            below = sum(plane.bit_count() << k for k, plane in enumerate(low))
            if place < below:
                planes, width = low, half
            else:
                planes = [plane >> half for plane in planes]
                place -= below
                base += half
                width -= half
        return base

    def _grow(self, planes: int) -> None:
        self._planes += [0] * (planes - len(self._planes))

    def _settle(self) -> None:
        self.positive = 0
        for plane in self._planes:
            self.positive |= plane


def mask_of(members: Iterable[int]) -> int:
    """The mask with these bits."""
    raw = bytearray()
    for bit in members:
        raw += bytes(max(0, (bit >> 3) + 1 - len(raw)))
        raw[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(raw, "little")
