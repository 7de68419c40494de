"""Bits, the n-th of them, columns of bits, near misses, and cells that let their changes wait."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.masks.bits import (
    MaskMatrix,
    bits,
    mask_of,
    near_misses,
    nearest,
    nth_bit,
    numbered,
    passing,
    refused,
)  # fmt: skip
from lodesman.decide.masks.cells import _FLUSH_AT, _SPARSE_BITS, Cell, Cells

masks = st.sets(st.integers(0, 400), max_size=60)


@given(masks)
def test_a_mask_and_its_bits_are_inverse(slots):
    mask = mask_of(sorted(slots))
    assert list(bits(mask)) == sorted(slots)
    assert mask.bit_count() == len(slots)
    assert mask_of(slots) == mask_of(bit for bit in slots) == mask


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 30)), st.lists(st.integers(0, 20)))
def test_members_keep_their_bits_and_new_ones_take_the_lowest_free(known, members):
    known = {member: bit for bit, member in {bit: member for member, bit in known.items()}.items()}
    found = numbered(members, known)
    assert known.items() <= found.items()
    assert found.keys() == known.keys() | set(members)
    assert len(set(found.values())) == len(found)
    new = [member for member in dict.fromkeys(members) if member not in known]
    free = [bit for bit in range(60) if bit not in known.values()]
    assert [found[member] for member in new] == free[: len(new)]
    assert numbered(members) == {member: bit for bit, member in enumerate(dict.fromkeys(members))}


@pytest.mark.parametrize("times", [1, 2, 3, 20, 21])
def test_a_slot_that_comes_twice_is_not_set(times):
    """Few slots and many go different ways."""
    assert mask_of([7] * times) == (1 << 7) * (times % 2)


def test_no_slots_have_no_bits():
    assert mask_of([]) == 0
    assert list(bits(0)) == []


@given(masks.filter(bool), st.randoms(use_true_random=False))
def test_the_nth_bit_is_the_nth(slots, rng):
    ordered = sorted(slots)
    n = rng.randrange(len(ordered))
    assert nth_bit(mask_of(ordered), n) == ordered[n]


def test_the_nth_bit_of_a_wide_mask():
    rng = random.Random(3)
    ordered = sorted(rng.sample(range(100_000), 2_000))
    mask = mask_of(ordered)
    for n in (0, 1, 3, 4, 5, 999, 1_000, 1_998, 1_999):
        assert nth_bit(mask, n) == ordered[n]


def test_the_nth_bit_of_a_mask_without_gaps():
    assert [nth_bit((1 << 300) - 1, n) for n in range(300)] == [*range(300)]


def test_a_cell_shows_each_change_at_the_next_read():
    cell = Cell()
    assert cell.read() == 0
    cell.add(3)
    cell.add(9)
    assert (cell.read(), cell.size) == (0b1000001000, 2)
    cell.remove(3)
    assert (cell.read(), cell.size) == (0b1000000000, 1)
    cell.remove(9)
    assert (cell.read(), cell.size) == (0, 0)


def test_a_change_and_its_inverse_between_two_reads_leave_nothing():
    cell = Cell()
    cell.add(5)
    cell.remove(5)
    assert cell.read() == 0


def test_unread_changes_do_not_accumulate():
    cell = Cell()
    for slot in range(10 * _FLUSH_AT):
        cell.add(slot)
    assert len(cell.flips) < _FLUSH_AT
    assert cell.read() == (1 << 10 * _FLUSH_AT) - 1
    for slot in range(10 * _FLUSH_AT):
        cell.remove(slot)
        assert len(cell.flips) < _FLUSH_AT
    assert cell.read() == 0


def test_a_lone_bit_far_up_is_not_kept_as_a_mask():
    cell = Cell()
    cell.add(_SPARSE_BITS)
    assert cell.read() == 1 << _SPARSE_BITS
    assert cell._mask == 0
    cell.add(1)
    cell.add(2)
    assert cell.read() == 1 << _SPARSE_BITS | 0b110
    assert cell._mask != 0


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=80))
def test_a_cell_is_a_set(steps):
    cell = Cell()
    members: set[int] = set()
    for slot, read in steps:
        if slot in members:
            members.remove(slot)
            cell.remove(slot)
        else:
            members.add(slot)
            cell.add(slot)
        if read:
            assert cell.read() == mask_of(sorted(members))
        assert cell.size == len(members)
    assert cell.read() == mask_of(sorted(members))


def test_a_value_without_members_has_no_cell():
    cells = Cells()
    cells.add(1, ("a", "b"))
    cells.add(2, ("b",))
    cells.remove(1, ("a", "b"))
    assert set(cells) == {"b"}
    assert cells.any_of(("a", "b", "c")) == 0b100
    cells.remove(2, ("b",))
    assert not cells


def test_many_members_of_many_values_in_any_order():
    cells = Cells()
    values = [f"v{n}" for n in range(5)]
    for slot in range(2 * _FLUSH_AT):
        cells.add(slot, (values[slot % 5], values[(slot + 1) % 5]))
    assert cells.any_of(values) == (1 << 2 * _FLUSH_AT) - 1
    for slot in range(0, 2 * _FLUSH_AT, 2):
        cells.remove(slot, (values[slot % 5], values[(slot + 1) % 5]))
    odd = mask_of(range(1, 2 * _FLUSH_AT, 2))
    assert cells.any_of(values) == odd
    assert cells.any_of(("v0",)) == mask_of([s for s in range(1, 2 * _FLUSH_AT, 2) if s % 5 in {0, 4}])


@given(st.lists(st.integers(0, 2**70), max_size=30), st.integers(0, 80))
def test_a_column_of_masks_has_their_bits(rows, bit):
    table = MaskMatrix(rows)
    having = [number for number, mask in enumerate(rows) if mask >> bit & 1]
    assert list(bits(table.column(bit))) == having
    assert table.among([f"n{number}" for number in range(len(rows))], bit) == tuple(f"n{n}" for n in having)


PLANES = st.lists(st.integers(0, 255), max_size=6).map(
    lambda found: [(f"c{number}", mask) for number, mask in enumerate(found)]
)


@given(PLANES, st.integers(0, 255))
def test_near_misses_are_those_of_counting(planes, full):
    failed = {bit: tuple(name for name, mask in planes if mask >> bit & 1) for bit in bits(full)}
    assert list(bits(passing(planes, full))) == [bit for bit, names in failed.items() if not names]
    fewest = min(map(len, failed.values()), default=0)
    assert list(bits(nearest(planes, full))) == [bit for bit, names in failed.items() if len(names) == fewest]
    found = near_misses(planes, full)
    wanted = {names for names in failed.values() if names and len(names) == fewest}
    assert {one.criteria for one in found} == wanted
    for one in found:
        assert list(bits(one.mask)) == [bit for bit, names in failed.items() if names == one.criteria]
        assert one.count == one.mask.bit_count()
    assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
    assert refused(planes) == sorted(
        ((name, mask.bit_count()) for name, mask in planes if mask), key=lambda item: (-item[1], item[0])
    )
