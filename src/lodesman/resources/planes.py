"""What stands against many members at once: counting obstacles, and the smallest change that would help.

A *plane* is a criterion and the mask of the members that it refuses. Nothing here knows what members or criteria
are; queues held against a job and queues held against Requirements are both counted here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Plane = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Criteria whose change would admit members that pass all others."""

    parameters: tuple[str, ...]
    mask: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestMiss:
    """The members that the fewest criteria refuse: `fewest` of them (0: eligible)."""

    fewest: int
    mask: int


def passing(planes: Sequence[Plane], full: int) -> int:
    """The members that no criterion refuses."""
    for _, mask in planes:
        full &= ~mask
    return full


def counts(planes: Sequence[Plane]) -> list[tuple[str, int]]:
    """How many members fall away by each criterion, worst first."""
    counted = [(name, mask.bit_count()) for name, mask in planes if mask]
    return sorted(counted, key=lambda item: (-item[1], item[0]))


def nearest(planes: Sequence[Plane], full: int) -> NearestMiss:
    """The members with the fewest criteria against them (bit-sliced counters, one for each power of two)."""
    slices: list[int] = []
    for _, mask in planes:
        carry = mask
        for index, one in enumerate(slices):
            slices[index], carry = one ^ carry, one & carry
            if not carry:
                break
        if carry:
            slices.append(carry)
    fewest = 0
    candidates = full
    for index in range(len(slices) - 1, -1, -1):
        without = candidates & ~slices[index]
        if without:
            candidates = without
        else:
            fewest |= 1 << index
    return NearestMiss(fewest=fewest, mask=candidates)


def changes(planes: Sequence[Plane], full: int) -> list[Change]:
    """For the nearest members: the sets of criteria against them, those that admit most members first."""
    groups: dict[tuple[str, ...], int] = {(): nearest(planes, full).mask}
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
    found = [
        Change(parameters=failed, mask=mask, count=mask.bit_count())
        for failed, mask in groups.items()
        if failed and mask
    ]
    return sorted(found, key=lambda change: (-change.count, change.parameters))


def bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, ascending. In portions: a step on a long mask copies all of it."""
    base = 0
    while mask:
        part = mask & 0xFFFF_FFFF_FFFF_FFFF
        while part:
            low = part & -part
            yield base + low.bit_length() - 1
            part ^= low
        mask >>= 64
        base += 64
