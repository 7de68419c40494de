"""What the three readers share: limits, positions, decoding, and what a record can hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob, SyntaxFault, TooLarge, fault_at, line_column
from lodesman.languages.jobs.description import read_description, write_description
from lodesman.languages.jobs.record import (
    ARRAY_LIMITS,
    INT_MAX,
    INT_MIN,
    Positions,
    TextLimits,
    child_path,
    find_problem,
    name_problem,
    shown,
)


@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [
        ("", 0, (1, 1)),
        ("abc", 2, (1, 3)),
        ("a\nbc", 2, (2, 1)),
        ("a\nbc", 3, (2, 2)),
        ("a\n", 1, (1, 2)),
        ("a\n", 2, (2, 1)),
        ("é\nü=x", 3, (2, 2)),
        ("a\r\nb", 3, (2, 1)),
    ],
)
def test_line_and_column_count_from_one_in_characters(text, offset, place):
    assert line_column(text, offset) == place


@given(st.text("ab\n", max_size=40), st.data())
def test_line_and_column_lead_back_to_the_offset(text, data):
    offset = data.draw(st.integers(0, len(text)))
    line, column = line_column(text, offset)
    assert sum(len(part) + 1 for part in text.split("\n")[: line - 1]) + column - 1 == offset


def test_positions_are_a_mapping_that_counts_lines_when_asked():
    positions = Positions("A = 1;\nB = 2;", lambda text: {"A": 0, "B": text.index("B")})
    assert dict(positions) == {"A": (1, 1), "B": (2, 1)}
    assert len(positions) == 2
    assert positions.get("C") is None


def test_fault_at_gives_line_and_column_in_message_and_data():
    fault = fault_at("ab\ncd", 4, "something odd", hint="Do this.")
    assert isinstance(fault, SyntaxFault)
    assert str(fault) == "line 2, column 2: something odd. Do this."
    assert fault.data == {"line": 2, "column": 2}
    assert fault.code == "syntax"


def test_a_text_over_the_limit_is_refused_with_both_sizes():
    with pytest.raises(TooLarge) as caught:
        read_description("A = " + "x" * 7, limits=TextLimits(text_bytes=10))
    assert caught.value.data == {"limit": 10, "size": 11}
    read_description("A = " + "x" * 6, limits=TextLimits(text_bytes=10))


def test_the_limit_counts_bytes_not_characters():
    read_description("A=" + "é" * 4, limits=TextLimits(text_bytes=10))
    with pytest.raises(TooLarge) as caught:
        read_description("A=" + "é" * 5, limits=TextLimits(text_bytes=10))
    assert caught.value.data["size"] == 12
    with pytest.raises(TooLarge):
        read_description(b"A=" + b"x" * 9, limits=TextLimits(text_bytes=10))


def test_ten_megabytes_are_over_every_limit():
    for limits in (TextLimits(), ARRAY_LIMITS):
        with pytest.raises(TooLarge):
            read_description(b" " * 10_000_000, limits=limits)


def test_bytes_are_utf8_and_a_byte_order_mark_is_dropped():
    assert read_description("A = é".encode()).record == {"A": "é"}
    assert read_description(b"\xef\xbb\xbfA = abc").record == {"A": "abc"}
    assert read_description("\ufeffA = abc").record == {"A": "abc"}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (b'a = 1;\nb = "\xff";', 2, 6, "0xff is not UTF-8"),
        (b"\xc3", 1, 1, "not UTF-8"),
        ("a\nb\0c", 2, 2, "NUL"),
        ("ab\ud800", 1, 3, "surrogate"),
    ],
)
def test_what_is_no_text_is_refused_with_its_place(text, line, column, words):
    with pytest.raises(SyntaxFault) as caught:
        read_description(text)
    assert words in caught.value.message
    assert (caught.value.data["line"], caught.value.data["column"]) == (line, column)
    assert caught.value.hint


GOOD = {
    "A": "text",
    "B": 1,
    "C": -1.5,
    "D": True,
    "E": [],
    "F": {},
    "G": [[1, "x"], {"A": {"B": [True]}}],
    "H": INT_MIN,
    "I": INT_MAX,
    "Environment": {"http_proxy": "a", "HTTP_PROXY": "b"},
}


def test_a_good_record_has_no_problem():
    assert find_problem(GOOD) is None


@pytest.mark.parametrize(
    ("record", "path", "words"),
    [
        ({"A": None}, "A", "null"),
        ({"A": {"B": [1, None]}}, "A/B[1]", "null"),
        ({"A": INT_MAX + 1}, "A", "64 bits"),
        ({"A": INT_MIN - 1}, "A", "64 bits"),
        ({"A": float("nan")}, "A", "finite"),
        ({"A": [float("-inf")]}, "A[0]", "finite"),
        ({"A": "x\0y"}, "A", "NUL"),
        ({"A": "\ud800"}, "A", "surrogate"),
        ({"A": (1, 2)}, "A", "tuple"),
        ({"A": b"x"}, "A", "bytes"),
        ({"A": 1, "a": 2}, "a", "twice, first as A"),
        ({"R": {"Mem": 1, "MEM": 2}}, "R/MEM", "twice"),
        ({"": 1}, "", "empty"),
        ({"a\nb": 1}, "a\nb", "control"),
        ({"x" * 256: 1}, "x" * 255, "256 characters"),
        ({1: 2}, "[1]", "not text"),
    ],
)
def test_what_no_language_can_hold_is_found_with_its_path(record, path, words):
    problem = find_problem(record)
    assert problem is not None
    assert problem.path == path
    assert words in problem.message


def test_depth_is_counted_in_containers():
    limits = TextLimits(depth=3)
    assert find_problem({"A": {"B": [1]}}, limits) is None
    problem = find_problem({"A": {"B": [[1]]}}, limits)
    assert problem is not None
    assert (problem.path, problem.message) == ("A/B[0]", "nested deeper than 3 levels")


def test_values_are_counted():
    limits = TextLimits(nodes=4)
    assert find_problem({"A": [1, 2, 3]}, limits) is None
    problem = find_problem({"A": [1, 2, 3, 4]}, limits)
    assert problem is not None
    assert problem.message == "more than 4 values in all"


@pytest.mark.slow
def test_a_python_value_of_any_depth_is_judged_without_recursion():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    problem = find_problem({"A": deep})
    assert problem is not None
    assert "deeper" in problem.message


def test_a_problem_of_a_record_without_text_becomes_an_invalid_job():
    with pytest.raises(InvalidJob) as caught:
        write_description({"A": {"B\n": 1}}, "json")
    assert caught.value.data == {"attribute": "A/B\\n"}
    assert str(caught.value) == "A/B\\n: a control character in an attribute name."
    with pytest.raises(InvalidJob, match=r"^An empty attribute name\.$"):
        write_description({"": 1}, "json")


def test_paths_are_short_whatever_the_names():
    path = ""
    for _ in range(100):
        path = child_path(path, "x" * 1_000)
    assert len(path) < 500
    assert child_path("A", 3) == "A[3]"
    assert child_path("A", "B") == "A/B"
    assert child_path("", "B") == "B"


@pytest.mark.parametrize(
    ("text", "result"),
    [("abc", "abc"), ("a\x00b", "a\\x00b"), ("é", "é"), ("\ud800", "\\ud800"), ("x" * 41, "x" * 37 + "...")],
)
def test_text_is_shown_short_and_printable(text, result):
    assert shown(text) == result


@given(st.text())
def test_what_is_shown_can_always_be_printed(text):
    assert shown(text).isprintable()
    shown(text).encode()


def test_names_are_judged_by_length_and_characters():
    assert name_problem("Parameters.X") == ""
    assert name_problem("odd name, é") == ""
    assert name_problem("x" * 255) == ""
    assert name_problem("x" * 256)
    assert name_problem("a\x85")
    assert name_problem(5)
