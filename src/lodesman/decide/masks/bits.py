"""Masks: to and from lists and bits, and what excludes members."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import compress, count
from random import Random
from typing import Final, TypeVar

from msgspec import Struct

Mask = int  # members as bits
Plane = tuple[str, Mask]  # a criterion, and the members that it refuses

_DIRECT: Final = 8
_NARROW_BITS: Final = 64
# For each bit of a byte: a table that makes 1 of every byte that has it, else 0.
_HAS_BIT: Final = [bytes(byte >> bit & 1 for byte in range(256)) for bit in range(8)]
_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")

T = TypeVar("T")


def mask_of(members: Iterable[int]) -> Mask:
    """A member that comes an even number of times is not in it."""
    slots = members if isinstance(members, list) else list(members)
    if len(slots) <= _DIRECT:
        mask = 0
        for slot in slots:
            mask ^= 1 << slot
        return mask
    raw = bytearray((max(slots) >> 3) + 1)
    for slot in slots:
        raw[slot >> 3] ^= 1 << (slot & 7)
    return int.from_bytes(raw, "little")


def bits(mask: Mask) -> Iterator[int]:
    """Ascending. In portions: a step on a long mask copies all of it."""
    base = 0
    while mask:
        part = mask & 0xFFFF_FFFF_FFFF_FFFF
        while part:
            low = part & -part
            yield base + low.bit_length() - 1
            part ^= low
        mask >>= 64
        base += 64


def nth_bit(mask: Mask, n: int) -> int:
    """The n-th member, from 0. Halves the width: about twice the work of a bit count."""
    base = 0
    width = mask.bit_length()
    while n > 3 and width > _NARROW_BITS:
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


def numbered(members: Iterable[T], before: Mapping[T, int] | None = None) -> dict[T, int]:
    """A bit for each: `before` keep theirs, others take the lowest free."""
    numbers = dict(before or {})
    used = set(numbers.values())
    free = (bit for bit in count() if bit not in used)
    for member in members:
        if member not in numbers:
            numbers[member] = next(free)
    return numbers


class MaskMatrix:
    """Many masks side by side: one bit of all is read in a few steps."""

    __slots__ = ("_bytes", "_width")

    def __init__(self, rows: Sequence[Mask]) -> None:
        self._width = (max((mask.bit_length() for mask in rows), default=0) + 7) // 8
        self._bytes = b"".join([mask.to_bytes(self._width, "little") for mask in rows])

    def _column(self, bit: int) -> bytes:
        """1 for each row that has the bit, else 0."""
        if bit >= 8 * self._width:
            return b""
        return self._bytes[bit >> 3 :: self._width].translate(_HAS_BIT[bit & 7])

    def column(self, bit: int) -> Mask:
        """Rows with the bit."""
        return int(self._column(bit).translate(_DIGITS)[::-1] or b"0", 2)

    def among(self, names: Iterable[T], bit: int) -> tuple[T, ...]:
        """Names of rows with the bit."""
        return tuple(compress(names, self._column(bit)))


class Tally:
    """Numbers by bit: sums, changes and draws take a few steps on whole masks. Plane k is the mask of members whose
    number has bit k.
    """

    __slots__ = ("_planes", "positive")

    def __init__(self, numbers: Mapping[int, int] | None = None) -> None:
        """`numbers` by bit."""
        self._planes: list[Mask] = []
        for bit, number in (numbers or {}).items():
            self._grow(number.bit_length())
            for k in bits(number):
                self._planes[k] |= 1 << bit
        self._settle()

    def add(self, mask: Mask, amount: int) -> None:
        """Add to every number of a mask."""
        planes, place = self._planes, 0
        if amount:
            self.positive |= mask
        while amount:
            k, carry = place, mask if amount & 1 else 0
            while carry:
                if k >= len(planes):
                    self._grow(k + 1)
                planes[k], carry = planes[k] ^ carry, planes[k] & carry
                k += 1
            amount >>= 1
            place += 1

    def take_one(self, mask: Mask) -> None:
        """Lower every number of a mask by 1, down to 0."""
        borrow = mask & self.positive
        for k, plane in enumerate(self._planes):
            if not borrow:
                break
            self._planes[k] = plane ^ borrow
            borrow &= ~plane
        self._settle()

    def limit(self, mask: Mask, most: int) -> None:
        """Lower the numbers of a mask to `most`."""
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

    def total(self, mask: Mask) -> int:
        """The sum over a mask."""
        return sum((plane & mask).bit_count() << k for k, plane in enumerate(self._planes))

    def number(self, bit: int) -> int:
        """The number of one member."""
        return sum((plane >> bit & 1) << k for k, plane in enumerate(self._planes))

    def least(self, mask: Mask) -> Mask:
        """Members with the least number."""
        for plane in reversed(self._planes):
            mask = mask & ~plane or mask
        return mask

    def draw(self, mask: Mask, rng: Random) -> int:
        """A member, with chances proportional to its number."""
        # The very draw of `Random.choices`; rounding may reach the total itself.
        total = self.total(mask)
        place = min(int(rng.random() * total), total - 1)
        # The first bit at which the sum of the numbers up to it is above `place`.
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
        self.positive: Mask = 0  # the members whose number is above 0
        for plane in self._planes:
            self.positive |= plane


# --- what stands between a thing and many members ------------------------------------------------------------


class NearMiss(Struct, frozen=True, kw_only=True):
    """Criteria whose change admits the members of `mask`, which pass all others."""

    criteria: tuple[str, ...]
    mask: Mask
    count: int


def passing(planes: Iterable[Plane], full: Mask) -> Mask:
    """Members that no criterion refuses."""
    for _, mask in planes:
        full &= ~mask
    return full


def refused(planes: Iterable[Plane]) -> list[tuple[str, int]]:
    """Refused members by criterion; worst first."""
    counted = [(name, mask.bit_count()) for name, mask in planes if mask]
    return sorted(counted, key=lambda item: (-item[1], item[0]))


def nearest(planes: Iterable[Plane], full: Mask) -> Mask:
    """Members that the fewest criteria refuse."""
    against = Tally()
    for _, mask in planes:
        against.add(mask, 1)
    return against.least(full)


def near_misses(planes: Sequence[Plane], full: Mask) -> list[NearMiss]:
    """Sets of criteria against the nearest members; those that admit most come first."""
    groups: dict[tuple[str, ...], Mask] = {(): nearest(planes, full)}
    for name, mask in planes:
        for failed, members in list(groups.items()):
            hit = members & mask
            if not hit:
                continue
            if members == hit:
                del groups[failed]
            else:
                groups[failed] = members & ~mask
            groups[(*failed, name)] = hit
    misses = [
        NearMiss(criteria=failed, mask=mask, count=mask.bit_count())
        for failed, mask in groups.items()
        if failed and mask
    ]
    return sorted(misses, key=lambda miss: (-miss.count, miss.criteria))


class Slots(list[T | None]):
    """Members by bit."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: list[int] = []

    def put(self, member: T) -> int:
        """Give the lowest free bit."""
        if not self._free:
            self.append(member)
            return len(self) - 1
        bit = heappop(self._free)
        self[bit] = member
        return bit

    def free(self, bit: int) -> None:
        """Free a bit."""
        self[bit] = None
        heappush(self._free, bit)
