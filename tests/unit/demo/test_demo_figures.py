"""Numbers, times and foreign texts as short plain words."""

from __future__ import annotations

import math

import pytest
from examples.demo.figures import clip, duration, number, percent, plain
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0, 0, "0"),
        (1234567, 0, "1,234,567"),
        (2.5, 1, "2.5"),
        (3000.0, 0, "3,000"),
        (10**30, 0, "1.0e+30"),
        (1e300, 1, "1.0e+300"),
        (None, 0, "unknown"),
        (math.nan, 0, "unknown"),
        (math.inf, 0, "unknown"),
    ],
)
def test_number(value, digits, text):
    assert number(value, 10, digits=digits) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.00 s"),
        (0.254, "0.25 s"),
        (9.999, "10 s"),
        (74.4, "74 s"),
        (600, "10.0 min"),
        (7200, "2.0 h"),
        (3 * 86_400, "3.0 d"),
        (-1, "unknown"),
        (math.nan, "unknown"),
        (None, "unknown"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@given(st.floats(0, 1e300))
def test_a_duration_fits_its_column(seconds):
    assert len(duration(seconds)) <= 12


@pytest.mark.parametrize(
    ("part", "whole", "text"), [(1, 4, "25.0 %"), (0, 4, "0.0 %"), (0, 0, "unknown"), (None, 4, "unknown")]
)
def test_percent(part, whole, text):
    assert percent(part, whole) == text


def test_plain_disarms_what_steers_a_terminal():
    assert plain("a\nb\tc\x1b[31m\x07d") == "a b c?[31m?d"


@pytest.mark.parametrize(
    ("text", "width", "keep", "clipped"),
    [
        ("short", 5, "start", "short"),
        ("somewhat long", 8, "start", "somew..."),
        ("/a/long/path/picture.png", 14, "end", "...picture.png"),
        ("the start and the end", 13, "ends", "the s...e end"),
        ("long", 3, "start", "..."),
        ("long", 0, "end", ""),
        ("long", -2, "ends", ""),
    ],
)
def test_clip(text, width, keep, clipped):
    assert clip(text, width, keep=keep) == clipped


@given(st.text(), st.integers(0, 40), st.sampled_from(["start", "ends", "end"]))
def test_clipped_fits_and_is_one_printable_line(text, width, keep):
    clipped = clip(text, width, keep=keep)
    assert len(clipped) <= width
    assert clipped.isprintable()
