"""Numbers with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.resources.model import BadValue
from lodesman.decide.resources.units import _LIMIT, convert, number_in, plain_number


@pytest.mark.parametrize(
    ("value", "unit", "number"),
    [
        (4000, "MB", 4000),
        (4000.0, "MB", 4000),
        ("4000", "MB", 4000),
        (" 4000.0 ", "MB", 4000),
        ("4000 MB", "MB", 4000),
        ("4000mb", "MB", 4000),
        ("4000 MiB", "MB", 4000),
        ("4000M", "MB", 4000),
        ("4e3", "MB", 4000),
        ("4 GB", "MB", 4096),
        ("4 GiB", "MB", 4096),
        ("4G", "GB", 4),
        ("512 kB", "MB", 0.5),
        ("1 TB", "MB", 1024 * 1024),
        ("1048576 B", "MB", 1),
        ("0.1 GB", "MB", 102.4),
        ("2 d", "s", 172_800),
        ("1.5 h", "s", 5400),
        ("10 min", "s", 600),
        ("10 m", "s", 600),
        ("1 week", "s", 604_800),
        ("250 ms", "s", 0.25),
        ("90", "min", 90),
        ("90 s", "min", 1.5),
        ("2.5 GHz", "MHz", 2500),
        ("12 HS06", "HS06", 12),
        ("12 hs06", "HS06", 12),
        ("-3", "", -3),
        ("+.5", "", 0.5),
        ("5.", "", 5),
        (0, "", 0),
    ],
)
def test_what_is_read(value, unit, number):
    found = number_in(value, unit)
    assert found == number
    assert type(found) is type(number)


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        ("lots", "MB"),
        ("", "MB"),
        ("4000 frogs", "MB"),
        ("4000 s", "MB"),
        ("4 GB", "s"),
        ("4 MB", ""),
        ("12 MB", "HS06"),
        ("4000, 5000", "MB"),
        ("1 2", "MB"),
        ("0x10", ""),
        ("1_000", ""),
        ("١٢", ""),
        ("nan", ""),
        ("inf", ""),
        ("1e999", ""),
        ("1e-999", ""),
        ("9" * 65, ""),
        (float("inf"), ""),
        (float("nan"), ""),
        (10**400, ""),
        ("1e299 EB", "B"),
        (True, ""),
        (None, ""),
        ([1], ""),
    ],
)
def test_what_is_refused(value, unit):
    with pytest.raises(BadValue):
        number_in(value, unit)


def test_a_fault_says_which_unit_would_fit():
    with pytest.raises(BadValue, match=r"unit 'frogs' does not fit here \(want 'mb'\)"):
        number_in("4 frogs", "MB")


def test_memory_units_are_binary():
    assert number_in("1 GB", "B") == 2**30
    assert number_in("1 GB", "MB") == number_in("1 GiB", "MB") == 1024


def test_m_is_a_minute_among_times_and_a_megabyte_among_sizes():
    assert number_in("1 m", "s") == 60
    assert number_in("1 m", "B") == 2**20


def test_tiny_numbers_are_numbers():
    assert number_in("1e-10", "") == 1e-10
    assert number_in("0", "") == 0
    assert number_in("0e5", "") == 0


def test_plain_number_is_none_for_other_texts():
    assert plain_number("4000") == 4000
    assert plain_number("4000 MB") is None
    assert plain_number("x86_64") is None


def test_convert():
    assert convert(4, unit="GB", to="MB") == 4096
    assert convert(90, unit="s", to="min") == 1.5
    with pytest.raises(BadValue):
        convert(1, unit="s", to="MB")


def test_the_largest_numbers():
    assert number_in(_LIMIT - 1) == _LIMIT - 1
    with pytest.raises(BadValue, match="too large"):
        number_in(-_LIMIT)


@given(st.integers(-(10**60), 10**60))
def test_text_and_integer_are_one(number):
    assert number_in(str(number)) == number_in(number) == number


@given(st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or 1e-250 < abs(x) < 1e290))
def test_text_and_float_are_one(number):
    found = number_in(number)
    assert number_in(repr(number)) == found
    assert float(found) == number


@given(st.one_of(st.text(), st.from_regex(r"[0-9.eE+-]{0,12} ?[a-zA-Z]{0,3}", fullmatch=True)))
def test_any_text_is_a_number_or_a_fault(text):
    try:
        found = number_in(text, "MB")
    except BadValue:
        return
    assert isinstance(found, int | float)
    assert number_in(found, "MB") == found


@given(
    st.integers(0, 10**9), st.sampled_from(["B", "kB", "MB", "GB"]), st.sampled_from(["B", "kB", "MB", "GB"])
)
def test_convert_goes_back_where_exact(number, unit, to):
    there = convert(number, unit=unit, to=to)
    if isinstance(there, int):
        assert convert(there, unit=to, to=unit) == number


@pytest.mark.parametrize(
    "text",
    ["2048.00000000000000001", "2047.99999999999999999", "0." + "9" * 30, "1e17", "99999999999999999.5"],
)
def test_a_fraction_that_rounds_to_a_whole_number_is_that_int(text):
    found = number_in(text)
    assert type(found) is int
    assert found == number_in(float(text))


@given(st.integers(0, 10**20), st.integers(0, 10**25))
def test_of_equal_numbers_there_is_one(whole, rest):
    """An int and a float that are equal would be two values of one parameter, by which was met first."""
    found = number_in(f"{whole}.{rest:025d}")
    assert type(found) is int or not found.is_integer()
