"""Ranges of job ids: what is written, what is meant."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidRequest
from lodesman.user.cli.arguments import Range, parse_ranges, total

MOST_ID = 2**53 - 1

IDS = st.integers(1, 300)
RANGES = st.lists(st.tuples(IDS, IDS).map(lambda pair: Range(min(pair), max(pair))), max_size=20)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["12"], [(12, 12)]),
        (["12-40"], [(12, 40)]),
        (["12,15,20-22"], [(12, 12), (15, 15), (20, 22)]),
        (["20-22", "12", "15"], [(12, 12), (15, 15), (20, 22)]),
        (["1-5", "6", "4-9"], [(1, 9)]),
        (["5", "5", "5"], [(5, 5)]),
        ([" 7 , 9 "], [(7, 7), (9, 9)]),
        (["7,,9,"], [(7, 7), (9, 9)]),
        (["007"], [(7, 7)]),
        ([str(MOST_ID)], [(MOST_ID, MOST_ID)]),
        ([], []),
    ],
)
def test_what_is_written(words, expected):
    assert parse_ranges(words) == tuple(Range(*pair) for pair in expected)


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("x", "'x' is not a job"),
        ("", "'' names no job"),
        (" , ", "names no job"),
        ("1-", "'1-' is not a job"),
        ("-1", "'-1' is not a job"),
        ("1-2-3", "is not a job"),
        ("1.5", "is not a job"),
        ("١٢", "is not a job"),
        ("40-12", "runs backwards. Write 12-40"),
        ("0", "count from 1"),
        ("0-5", "count from 1"),
        (str(MOST_ID + 1), "There is no job"),
        ("9" * 30, "is not a job"),
        ("\x1b[31m", "is not a job"),
    ],
)
def test_what_is_refused(word, named):
    with pytest.raises(InvalidRequest) as caught:
        parse_ranges([word])
    assert named in str(caught.value)
    assert str(caught.value).isprintable()


def test_what_is_refused_is_named_as_what_it_should_be():
    for word, told in (("x", "'x' is not a pilot. "), ("0", "There is no pilot 0. Pilot ids count from 1.")):
        with pytest.raises(InvalidRequest) as caught:
            parse_ranges([word], what="pilot")
        assert str(caught.value).startswith(told)


def test_too_many_separate_ranges_are_refused():
    assert len(parse_ranges([",".join(str(2 * n) for n in range(1, 1_001))])) == 1_000
    with pytest.raises(InvalidRequest, match="1001 separate jobs or ranges"):
        parse_ranges([",".join(str(2 * n) for n in range(1, 1_002))])


@given(RANGES)
def test_the_same_ids_ascending_each_once(ranges):
    found = parse_ranges(map(str, ranges))
    ids = [number for one in found for number in range(one.first, one.last + 1)]
    assert ids == sorted({number for one in ranges for number in range(one.first, one.last + 1)})
    assert all(left.last < right.first for left, right in pairwise(found))
    assert total(found) == len(ids)
    assert parse_ranges(map(str, found)) == found


@given(st.text(max_size=30))
def test_any_text_is_ranges_or_an_error_for_people(text):
    found: tuple[Range, ...] = ()
    said = ""
    try:
        found = parse_ranges([text])
    except InvalidRequest as fault:
        said = str(fault)
    assert said.isprintable()
    assert all(1 <= one.first <= one.last <= MOST_ID for one in found)


def test_what_is_named_by_itself_is_no_range():
    assert parse_ranges(["5", "6", "7-9", "10", "8", "6"]) == (
        Range(5, 5),
        Range(6, 6),
        Range(7, 9),
        Range(10, 10),
    )
