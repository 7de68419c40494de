"""Sequences of parametric descriptions: DIRAC's rule, in closed form, for any member."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs.members import value_at
from lodesman.languages.jobs.parametric import _MAX_MEMBERS as MAX_MEMBERS
from lodesman.languages.jobs.parametric import read_members
from lodesman.languages.jobs.spec import ParametricMembers, ValueSequence


def members(**parameters):
    """Read parameters; `__` in a keyword stands for the dot."""
    given_ = {name.replace("__", "."): value for name, value in parameters.items()}
    return read_members({name.lower(): (name, value) for name, value in given_.items()}, {})


def wrong(**parameters):
    with pytest.raises(InvalidJob) as caught:
        members(**parameters)
    assert caught.value.hint
    return caught.value


def values(sequence, count):
    return [value_at(sequence, index) for index in range(count)]


def step_by_step(start, step, factor, count):
    """The rule as it is defined."""
    found = [start]
    for _ in range(count - 1):
        found.append(found[-1] * factor + step)
    return found


@pytest.mark.parametrize(
    ("start", "step", "factor", "expected"),
    [
        (1, 0, 1, [1, 1, 1, 1]),
        (0, 1, 1, [0, 1, 2, 3]),
        (100, -25, 1, [100, 75, 50, 25]),
        (1, 0, 2, [1, 2, 4, 8]),
        (1, 1, 2, [1, 3, 7, 15]),
        (5, 2, 0, [5, 2, 2, 2]),
        (5, 2, -1, [5, -3, 5, -3]),
        (1, 0, -2, [1, -2, 4, -8]),
        (-1, 1, 2, [-1, -1, -1, -1]),
        (0, 0, 7, [0, 0, 0, 0]),
        (0.5, 0.5, 1, [0.5, 1.0, 1.5, 2.0]),
        (1, 0.5, 1, [1, 1.5, 2.0, 2.5]),
        (1.0, 0, 0.5, [1.0, 0.5, 0.25, 0.125]),
        (0.1, 0.1, 1, [0.1, 0.2, 0.3, 0.4]),
        (1, 0, 1.1, [1, 1.1, 1.21, 1.331]),
        (2, 1.5, 0, [2, 1.5, 1.5, 1.5]),
        (2.0, 1, 0.0, [2.0, 1.0, 1.0, 1.0]),
    ],
)
def test_closed_forms(start, step, factor, expected):
    found = values(ValueSequence(start=start, step=step, factor=factor), 4)
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]


SMALL = st.integers(-50, 50)


@given(SMALL, SMALL, st.integers(-5, 5), st.integers(1, 25))
def test_whole_numbers_follow_the_rule_exactly(start, step, factor, count):
    found = values(ValueSequence(start=start, step=step, factor=factor), count)
    assert found == step_by_step(start, step, factor, count)
    assert all(type(value) is int for value in found)


@given(st.floats(-100, 100), st.floats(-100, 100), st.floats(-2, 2), st.integers(1, 30))
def test_fractions_follow_the_rule_rounded_once(start, step, factor, count):
    def exact(number):
        return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)

    assume(all(abs(number) > 1e-9 or number == 0 for number in (start, step, factor, factor - 1)))
    found = values(ValueSequence(start=start, step=step, factor=factor), count)
    for value, expected in zip(
        found, step_by_step(exact(start), exact(step), exact(factor), count), strict=True
    ):
        assert value == pytest.approx(float(expected), rel=1e-12, abs=1e-12)


def test_member_k_costs_the_same_wherever_it_is():
    sequences = [
        ValueSequence(start=5, step=3),
        ValueSequence(start=0.5, step=0.25),
        ValueSequence(start=2.0, step=0.1, factor=0.999),
        ValueSequence(start=7, step=-7, factor=2),
    ]
    started = time.process_time()
    for sequence in sequences:
        for index in (0, 1, 500_000, 999_999):
            for _ in range(50):
                value_at(sequence, index)
    assert time.process_time() - started < 10
    assert value_at(sequences[0], 999_999) == 5 + 3 * 999_999
    assert value_at(sequences[1], 999_999) == 0.5 + 0.25 * 999_999
    assert value_at(sequences[2], 999_999) == pytest.approx(100.0)


def test_a_count_makes_alike_members():
    found = members(Parameters=1_000_000)
    assert found == ParametricMembers(count=1_000_000)
    assert values(found, 2) == [1, 1]


def test_listed_values_keep_their_types():
    found = members(Parameters=["a", 1, 1.5, True])
    assert found.count == 4
    assert values(found, 4) == ["a", 1, 1.5, True]


def test_start_step_and_factor_with_numbers_as_text():
    found = members(Parameters="5", ParameterStart="10", ParameterStep="-2.5", parameterFACTOR=2)
    assert (found.count, found.start, found.step, found.factor) == (5, 10, -2.5, 2)
    assert type(found.start) is int


def test_named_sequences_beside_the_unnamed_one():
    found = members(
        Parameters=3,
        ParameterStart=100,
        Parameters__X=["a", "b", "c"],
        Parameters__My_y=3,
        ParameterStep__my_Y=5,
        ParameterStart__Z=7,
    )
    assert found.count == 3
    assert found.start == 100
    assert found.unnamed
    assert found.named == {
        "X": ValueSequence(values=("a", "b", "c")),
        "My_y": ValueSequence(step=5),
        "Z": ValueSequence(start=7),
    }


def test_named_sequences_alone():
    found = members(Parameters__X=["a", "b"])
    assert (found.count, found.unnamed, found.values) == (2, False, None)


@pytest.mark.parametrize(
    ("parameters", "attribute", "words"),
    [
        ({"Parameters": 0}, "Parameters", "is too small"),
        ({"Parameters": -3}, "Parameters", "is negative"),
        ({"Parameters": MAX_MEMBERS + 1}, "Parameters", "is too large"),
        ({"Parameters": "many"}, "Parameters", "not a number"),
        ({"Parameters": 1.5}, "Parameters", "not a whole number"),
        ({"Parameters": {"X": [1]}}, "Parameters", "is a record"),
        ({"Parameters": []}, "Parameters", "is an empty list"),
        ({"Parameters": [[1], [2]]}, "Parameters", "has a list as value 0"),
        ({"Parameters": [1, {"a": 2}]}, "Parameters", "has a record as value 1"),
        ({"Parameters": [1, None]}, "Parameters", "has null as value 1"),
        ({"Parameters": [float("nan")]}, "Parameters", "has a number as value 0"),
        ({"Parameters": [2**63]}, "Parameters", "has a number as value 0"),
        ({"Parameters": 2, "Parameters__X": [1, 2, 3]}, "Parameters.X", "has 3 values, but Parameters has 2"),
        ({"Parameters__A": [1], "Parameters__B": 5}, "Parameters.B", "has 5 values, but Parameters.A has 1"),
        ({"ParameterStart": 5}, "ParameterStart", "stands without Parameters"),
        ({"ParameterStart__X": 5}, "ParameterStart.X", "stands without Parameters"),
        ({"ParameterStep": 1, "Parameters__X": [1]}, "ParameterStep", "stands without Parameters"),
        (
            {"Parameters": [1, 2], "ParameterStep": 1},
            "ParameterStep",
            "beside the values that Parameters lists",
        ),
        ({"Parameters": 2, "ParameterStart": "x"}, "ParameterStart", "is text, not a number"),
        ({"Parameters": 2, "ParameterStart": True}, "ParameterStart", "is a truth value, not a number"),
        ({"Parameters": 2, "ParameterStart": [1]}, "ParameterStart", "is a list, not a number"),
        ({"Parameters": 2, "ParameterStep": 2**63}, "ParameterStep", "is too large"),
        ({"Parameters": 2, "ParameterStep": 1e101}, "ParameterStep", "is too large"),
        ({"Parameters": 2, "ParameterStep": "1_000"}, "ParameterStep", "is text, not a number"),
        ({"Parameters": 2, "ParameterStep": "٣"}, "ParameterStep", "is text, not a number"),
        ({"Parameters": 2, "ParameterStep": "9" * 5_000}, "ParameterStep", "is too large"),
        ({"Parameters": 2, "ParameterStep": "nan"}, "ParameterStep", "is too large"),
        ({"Parameters": 2, "ParameterStep": "1e999"}, "ParameterStep", "is too large"),
        ({"Parameters": 64, "ParameterFactor": 2}, "Parameters", "leaves the range of numbers at member 63"),
        ({"Parameters": 10**6, "ParameterFactor": 2, "ParameterStart": -1}, "Parameters", "at member 64"),
        ({"Parameters": 3, "ParameterStart": 2**62, "ParameterStep": 2**62}, "Parameters", "at member 2"),
        ({"Parameters": 10**6, "ParameterFactor": 1.5}, "Parameters", "leaves the range of numbers"),
        ({"Parameters__": [1]}, "Parameters.", "no placeholder can name"),
        ({"Parameters__a b": [1]}, "Parameters.a b", "no placeholder can name"),
        (
            {f"Parameters__x{index}": [1] for index in range(401)},
            "Parameters.x0",
            "401 attributes of parameters",
        ),
    ],
)
def test_what_is_wrong_is_named(parameters, attribute, words):
    error = wrong(**parameters)
    assert error.data["attribute"] == attribute
    assert words in error.message


def test_the_largest_power_that_fits():
    assert value_at(members(Parameters=63, ParameterFactor=2), 62) == 2**62


@pytest.mark.parametrize("parameters", [{"ParameterFactor": -1}, {"ParameterStart": 0, "ParameterFactor": 9},
                                        {"ParameterStart": 2, "ParameterStep": -2, "ParameterFactor": 2},
                                        {"ParameterFactor": 0, "ParameterStep": 7}, {"ParameterFactor": 0.5}])  # fmt: skip
def test_a_million_members_that_stay_in_range(parameters):
    found = members(Parameters=MAX_MEMBERS, **parameters)
    assert isinstance(value_at(found, MAX_MEMBERS - 1), (int, float))


INTS = st.integers(-(2**63), 2**63 - 1)


@given(
    st.sampled_from([1, 2, 100, 10**6]), *[st.one_of(INTS, st.integers(-3, 3), st.floats(-1e100, 1e100))] * 3
)
def test_what_is_accepted_is_in_range_for_every_member(count, start, step, factor):
    try:
        found = members(Parameters=count, ParameterStart=start, ParameterStep=step, ParameterFactor=factor)
    except InvalidJob:
        return
    for index in {0, 1, count // 2, count - 1} - {count}:
        value = value_at(found, index)
        assert -(2**63) <= value < 2**63 if isinstance(value, int) else abs(value) < float("inf")
