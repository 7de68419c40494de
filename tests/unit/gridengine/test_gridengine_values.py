"""Values of complexes: what Grid Engine 8.1.9 reads, and that equal values have one text."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig
from lodesman.languages.gridengine.values import (
    ComplexType,
    RelOp,
    holds,
    is_numeric,
    read_value,
    write_value,
)

KIB, MIB, GIB, TIB = (1024**power for power in range(1, 5))
NUMBERS = [ComplexType.INT, ComplexType.DOUBLE, ComplexType.MEMORY]
TEXTS = [ComplexType.STRING, ComplexType.CSTRING, ComplexType.RESTRING, ComplexType.HOST]


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("17", 17), ("+3", 3), ("-1", -1), ("1.5", Fraction(3, 2)), (".5", Fraction(1, 2)), ("5.", 5),
        ("1e3", 1000), ("2E-1", Fraction(1, 5)), ("010", 8), ("0x10", 16), ("0X1f", 31), ("089", 89), ("00", 0),
        ("1k", 1000), ("1K", KIB), ("1m", 10**6), ("1M", MIB), ("1g", 10**9), ("1G", GIB), ("1t", 10**12), ("2T", 2 * TIB),
        ("1.5G", 3 * GIB // 2), ("0x2K", 2 * KIB), ("0.1K", Fraction(512, 5)), ("INFINITY", math.inf),
        ("infinity", math.inf), ("4000000000", 4_000_000_000),
    ],
)  # fmt: skip
def test_numbers_of_all_types_are_read_alike(kind, text, value):
    assert read_value(kind, text) == value


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "K",
        "1P",
        "1Gb",
        "1 G",
        "1.5.5",
        "abc",
        "nan",
        "inf",
        "1e999",
        "--1",
        "1:0",
        "0x",
        "-",
        ".",
        "\u0663",
    ],
)
def test_what_is_no_number_is_refused(kind, text):
    with pytest.raises(InvalidConfig, match="is no value of type") as caught:
        read_value(kind, text)
    assert caught.value.data == {"value": text, "type": kind}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:0:0", 0), ("1:0:0", 3600), ("1::5", 3605), ("::5", 5), ("1:90:90", 9090), ("90", 90), ("1.5", 2), ("1.2", 1),
        ("010", 8), ("0x10", 16), ("1k", 1000), ("-5", -5), ("2:30", 150), ("INFINITY", math.inf), ("100:00:00", 360_000),
    ],
)  # fmt: skip
def test_times_are_seconds(text, seconds):
    assert read_value(ComplexType.TIME, text) == seconds


@pytest.mark.parametrize("text", ["1:2:3:4", "", ":", "::", "a:b", "1:-2:3", "1:2.5:3", "1h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InvalidConfig, match="hours:minutes:seconds"):
        read_value(ComplexType.TIME, text)


@pytest.mark.parametrize(("text", "value"), [("TRUE", 1), ("true", 1), ("1", 1), ("False", 0), ("0", 0)])
def test_truth(text, value):
    assert read_value(ComplexType.BOOL, text) == value


@pytest.mark.parametrize("text", ["yes", "T", "no", "", "INFINITY"])
def test_what_is_no_truth_is_refused(text):
    with pytest.raises(InvalidConfig, match="Write TRUE or FALSE"):
        read_value(ComplexType.BOOL, text)


def test_texts_stay_as_they_are_and_hosts_have_no_case():
    assert read_value(ComplexType.STRING, "lx-AMD64") == "lx-AMD64"
    assert read_value(ComplexType.HOST, "Node1.Example") == "node1.example"
    for kind in TEXTS:
        with pytest.raises(InvalidConfig):
            read_value(kind, "")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ComplexType.MEMORY, 6 * GIB, "6G"), (ComplexType.MEMORY, 1536 * MIB, "1536M"), (ComplexType.MEMORY, 1000, "1000"),
        (ComplexType.MEMORY, 2048, "2K"), (ComplexType.MEMORY, 0, "0"), (ComplexType.MEMORY, 5 * TIB, "5T"),
        (ComplexType.MEMORY, -KIB, "-1K"), (ComplexType.TIME, 3600, "3600"), (ComplexType.BOOL, 1, "TRUE"),
        (ComplexType.BOOL, 0, "FALSE"), (ComplexType.DOUBLE, Fraction(1, 10), "0.1"), (ComplexType.DOUBLE, 3, "3"),
        (ComplexType.DOUBLE, Fraction(-5, 4), "-1.25"), (ComplexType.DOUBLE, 0.25, "0.25"), (ComplexType.INT, 8, "8"),
        (ComplexType.TIME, math.inf, "INFINITY"), (ComplexType.STRING, "a b", "a b"), (ComplexType.INT, Fraction(6, 2), "3"),
    ],
)  # fmt: skip
def test_canonical_text(kind, value, text):
    assert write_value(kind, value) == text


DECIMALS = st.decimals(-(10**12), 10**12, places=6).map(lambda number: f"{number:f}")


@given(st.sampled_from([*NUMBERS, ComplexType.TIME]), DECIMALS, st.sampled_from(["", *"kKmMgGtT"]))
def test_what_is_written_reads_as_the_same_value(kind, digits, unit):
    value = read_value(kind, digits + unit)
    assert read_value(kind, write_value(kind, value)) == value


@given(st.lists(st.tuples(DECIMALS, st.sampled_from(["", *"kKmM"])), max_size=20), st.randoms())
def test_what_is_booked_and_given_back_sums_up_to_nothing(texts, order):
    values = [read_value(ComplexType.DOUBLE, digits + unit) for digits, unit in texts]
    total = sum(values)
    order.shuffle(values)
    for value in values:
        total -= value
    assert total == 0


@pytest.mark.parametrize(
    ("relation", "less", "equal", "more"),
    [
        (RelOp.EQ, False, True, False), (RelOp.NE, True, False, True), (RelOp.LT, True, False, False),
        (RelOp.LE, True, True, False), (RelOp.GT, False, False, True), (RelOp.GE, False, True, True),
        (RelOp.EXCL, False, True, False),
    ],
)  # fmt: skip
def test_relations(relation, less, equal, more):
    for kind, small, large in ((ComplexType.MEMORY, GIB, 2 * GIB), (ComplexType.DOUBLE, Fraction(1, 3), 1)):
        assert holds(kind, relation, small, large) is less
        assert holds(kind, relation, large, large) is equal
        assert holds(kind, relation, large, small) is more
    assert holds(ComplexType.STRING, relation, "a", "b") is less
    assert holds(ComplexType.STRING, relation, "b", "b") is equal
    assert holds(ComplexType.STRING, relation, "b", "a") is more


@pytest.mark.parametrize(
    ("kind", "requested", "offered", "fits"),
    [
        (ComplexType.STRING, "lx*", "lx-amd64", True), (ComplexType.STRING, "LX*", "lx-amd64", False),
        (ComplexType.CSTRING, "LX*", "lx-amd64", True), (ComplexType.HOST, "NODE?", "node1", True),
        (ComplexType.RESTRING, "sol*|lx*", "lx-amd64", True), (ComplexType.RESTRING, "sol*|hp*", "lx-amd64", False),
        (ComplexType.RESTRING, "lx*&*64", "lx-amd64", True), (ComplexType.RESTRING, "lx*&!*64", "lx-amd64", False),
        (ComplexType.RESTRING, "!sol*", "lx-amd64", True), (ComplexType.STRING, "lx", "lx-amd64", False),
    ],
)  # fmt: skip
def test_texts_are_compared_as_patterns(kind, requested, offered, fits):
    assert holds(kind, RelOp.EQ, requested, offered) is fits
    assert holds(kind, RelOp.NE, requested, offered) is not fits


def test_which_types_are_numbers():
    assert [kind for kind in ComplexType if not is_numeric(kind)] == TEXTS
