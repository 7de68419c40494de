"""Each rule as masks says the same as the rule for one pair, in both directions, whatever came and went."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.masks.bits import mask_of
from lodesman.decide.masks.table import AtLeast, AtMost, HasAll, HasAny, HasNone, HasOnly, Numbers, block_of
from lodesman.decide.matching.criteria import AT_MOST, CONTAINS, DISJOINT, OVERLAP, WITHIN

values = st.sets(st.sampled_from("abcdef"), max_size=5).map(lambda s: tuple(sorted(s)))
values_or_any = st.none() | values
numbers = st.one_of(
    st.integers(0, 70), st.integers(0, 2**40), st.sampled_from([31, 32, 33, 63, 64, 3600, 3601])
)


def build(masks, members, gone):
    """Members come in order; then those of `gone` leave."""
    for slot, member in enumerate(members):
        masks.add(slot, member)
        if slot % 3 == 0:
            masks.narrow((1 << slot) - 1, members[0] if members[0] is not None else ())
    for slot in gone:
        masks.remove(slot, members[slot])
    return mask_of([slot for slot in range(len(members)) if slot not in gone])


def narrowed(members, gone, passes):
    return mask_of([slot for slot, member in enumerate(members) if slot not in gone and passes(member)])


def worlds(member):
    return st.lists(member, min_size=1, max_size=25).flatmap(
        lambda members: st.tuples(
            st.just(members), st.sets(st.integers(0, len(members) - 1), max_size=len(members))
        )
    )


@pytest.mark.parametrize(
    ("rule", "member", "asked"),
    [
        (OVERLAP, values_or_any, values),
        (DISJOINT, values, values),
        (WITHIN, values, values),
        (CONTAINS, values, values),
    ],
    ids=["overlap", "disjoint", "within", "contains"],
)
@pytest.mark.parametrize("of_keys", [True, False], ids=["keys", "requests"])
@given(data=st.data())
def test_masks_agree_with_the_rule(rule, member, asked, of_keys, data):
    members, gone = data.draw(worlds(member))
    question = data.draw(asked)
    masks = rule.of_keys() if of_keys else rule.of_requests()

    def passes(one):
        return one is None or (rule.holds(one, question) if of_keys else rule.holds(question, one))

    everyone = build(masks, members, gone)
    assert masks.narrow(everyone, question) == narrowed(members, gone, passes)


@given(worlds(numbers), numbers)
def test_at_most_agrees_with_the_rule(world, asked):
    members, gone = world
    masks = AtMost()
    everyone = build_numbers(masks, members, gone)
    assert masks.narrow(everyone, asked) == narrowed(members, gone, lambda one: AT_MOST.holds(one, asked))


@given(worlds(numbers), numbers)
def test_at_least_agrees_with_the_rule(world, asked):
    members, gone = world
    masks = AtLeast()
    everyone = build_numbers(masks, members, gone)
    assert masks.narrow(everyone, asked) == narrowed(members, gone, lambda one: AT_MOST.holds(asked, one))


def build_numbers(masks, members, gone):
    for slot, member in enumerate(members):
        masks.add(slot, member)
        masks.narrow(-1, members[0])
    for slot in gone:
        masks.remove(slot, members[slot])
        masks.narrow(-1, members[slot])
    return mask_of([slot for slot in range(len(members)) if slot not in gone])


def test_the_mask_given_is_only_narrowed():
    masks = HasAny()
    for slot in range(4):
        masks.add(slot, ("a",))
    assert masks.narrow(0b0101, ("a",)) == 0b0101
    assert masks.narrow(0, ("a",)) == 0


def test_overlap_without_any_restriction_passes_all():
    masks = HasAny()
    masks.add(0, None)
    assert masks.narrow(1, ()) == 1


def test_overlap_with_nothing_offered_passes_only_those_that_take_anything():
    masks = HasAny()
    masks.add(0, None)
    masks.add(1, ("a",))
    assert masks.narrow(0b11, ()) == 0b01
    assert masks.narrow(0b11, ("a", "b")) == 0b11


def test_disjoint_with_nothing_asked_passes_all():
    masks = HasNone()
    masks.add(0, ("a",))
    assert masks.narrow(1, ()) == 1
    assert masks.narrow(1, ("a",)) == 0


@pytest.mark.parametrize("offered", [20, 200])
def test_within_few_and_many_offered(offered):
    """One way unites what is offered, the other what is not."""
    masks = HasOnly()
    names = [f"t{n:03}" for n in range(200)]
    for slot in range(199):
        masks.add(slot, (names[slot], names[slot + 1]))
    masks.add(199, ())
    assert masks.narrow((1 << 200) - 1, tuple(names[:offered])) == (1 << offered - 1) - 1 | 1 << 199


def test_within_drops_the_ranks_of_long_lists():
    masks = HasOnly()
    masks.add(0, ("a", "b", "c"))
    masks.add(1, ("a",))
    masks.remove(0, ("a", "b", "c"))
    assert len(masks._ranks) == 1
    assert masks.narrow(0b10, ("a",)) == 0b10


def test_contains_wants_every_value():
    masks = HasAll()
    masks.add(0, ("a", "b"))
    masks.add(1, ("a",))
    masks.add(2, None)
    assert masks.narrow(0b111, ("a", "b")) == 0b101
    assert masks.narrow(0b111, ()) == 0b111
    assert masks.narrow(0b111, ("z",)) == 0b100


def test_blocks_of_numbers_are_monotone_and_few():
    blocks = [block_of(number) for number in range(5_000)]
    assert blocks == sorted(blocks)
    assert blocks[:40:1][:33] == list(range(33))
    assert len({block_of(number) for number in range(0, 10**6, 7)}) < 300


@given(numbers, numbers)
def test_blocks_keep_the_order_of_numbers(one, other):
    if one <= other:
        assert block_of(one) <= block_of(other)


def test_numbers_know_their_greatest():
    masks = Numbers()
    assert masks.top() == -1
    masks.add(0, 10)
    masks.add(1, 70)
    assert masks.top() == 70
    masks.remove(1, 70)
    assert masks.top() == 10
    masks.add(2, 3)
    assert masks.top() == 10


def test_numbers_below_a_limit_after_each_change():
    masks = Numbers()
    for slot, number in enumerate([3_600, 3_601, 86_400, 0, 3_599]):
        masks.add(slot, number)
        assert masks.below(3_600) == mask_of(
            [s for s, n in enumerate([3_600, 3_601, 86_400, 0, 3_599][: slot + 1]) if n < 3_600]
        )
    assert masks.below(0) == 0
    assert masks.below(3_601) == 0b11001
    assert masks.below(10**9) == 0b11111
    masks.remove(3, 0)
    assert masks.below(3_601) == 0b10001


def test_numbers_remember_few_answers():
    masks = Numbers()
    masks.add(0, 5)
    for limit in range(1_000):
        assert masks.below(limit) == (1 if limit > 5 else 0)
    assert len(masks._answers) <= 64
