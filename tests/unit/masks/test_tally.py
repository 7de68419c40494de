"""Numbers as bit planes: the same as a list of numbers."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.masks.bits import Tally, mask_of

NUMBERS = st.lists(st.one_of(st.integers(0, 12), st.integers(0, 10**6)), min_size=1, max_size=40)


def members(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def positive(numbers: list[int]) -> int:
    return mask_of(bit for bit, number in enumerate(numbers) if number > 0)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "take", "limit"]), st.integers(0, 2**40 - 1), st.integers(0, 70)),
    max_size=12,
)


@given(NUMBERS, CHANGES)
def test_any_row_of_changes_gives_what_a_list_gives(numbers, changes):
    tally = Tally(dict(enumerate(numbers)))
    for word, mask, amount in changes:
        here = mask & ((1 << len(numbers)) - 1)
        if word == "add":
            tally.add(here, amount)
            numbers = [n + amount * (here >> bit & 1) for bit, n in enumerate(numbers)]
        elif word == "take":
            tally.take_one(here)
            numbers = [max(0, n - (here >> bit & 1)) for bit, n in enumerate(numbers)]
        else:
            tally.limit(here, amount)
            numbers = [min(n, amount) if here >> bit & 1 else n for bit, n in enumerate(numbers)]
        assert [tally.number(bit) for bit in range(len(numbers))] == numbers
        assert tally.positive == positive(numbers)
        least = min(numbers[bit] for bit in members(here)) if here else None
        assert members(tally.least(here)) == [bit for bit in members(here) if numbers[bit] == least]
        assert tally.total(mask) == sum(numbers[bit] for bit in members(here))


@given(NUMBERS, st.integers(0, 2**40 - 1), st.integers(0, 2**32))
def test_a_draw_is_that_of_random_choices(numbers, mask, seed):
    """The same random number gives the same queue, so a decision replays."""
    tally = Tally(dict(enumerate(numbers)))
    among = [bit for bit in members(mask) if bit < len(numbers) and numbers[bit] > 0]
    if not among:
        return
    ours, theirs = random.Random(seed), random.Random(seed)
    for _ in range(5):
        wanted = theirs.choices(among, weights=[numbers[bit] for bit in among])
        assert [tally.draw(mask, ours)] == wanted
    assert ours.random() == theirs.random()


def test_a_draw_follows_the_numbers():
    tally = Tally({0: 10, 2: 30, 3: 60})
    rng = random.Random(1)
    drawn = Counter(tally.draw(0b1111, rng) for _ in range(10_000))
    assert drawn[1] == 0
    assert drawn[0] == pytest.approx(1_000, abs=150)
    assert drawn[3] == pytest.approx(6_000, abs=250)
    assert {tally.draw(0b0101, rng) for _ in range(100)} == {0, 2}


class Always:
    """A random source that says one thing."""

    def __init__(self, says: float) -> None:
        self.says = says

    def random(self) -> float:
        return self.says


@pytest.mark.parametrize(("says", "bit"), [(0.0, 1), (0.499, 1), (0.5, 5), (0.9999999999999999, 5), (1.0, 5)])
def test_the_ends_of_a_draw(says, bit):
    """1.0 stands for a product that was rounded up to the total."""
    assert Tally({1: 2, 5: 2}).draw(0b1111111, Always(says)) == bit


def test_nothing_was_ever_set():
    tally = Tally()
    assert (tally.total(0b11), tally.positive, tally.number(1), tally.least(0b11)) == (0, 0, 0, 0b11)
    tally.take_one(0b11)
    tally.limit(0b11, 3)
    tally.add(0b11, 0)
    assert (tally.positive, tally.number(0), tally.number(1)) == (0, 0, 0)
