"""Texts for people: nothing steers a terminal, times are ages, numbers can be read."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import counted
from lodesman.user.cli import words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hello", "hello"),
        ("Größe 7", "Größe 7"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x9b31m", r"\x9b31m"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\ud800", r"\ud800"),
        (None, "None"),
        (12, "12"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text, shown):
    assert words.plain(text) == shown


@given(st.text())
def test_plain_text_is_printable_whatever_comes(text):
    assert words.plain(text).isprintable()
    assert words.plain(words.plain(text)) == words.plain(text)


@given(st.text())
def test_lines_keep_their_ends_and_nothing_else(text):
    shown = words.plain_lines(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "-"),
        (-5, "0 s"),
        (0, "0 s"),
        (0.04, "0.0 s"),
        (3.25, "3.2 s"),
        (59, "59 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7_199, "120 min"),
        (7_200, "2.0 h"),
        (19_800, "5.5 h"),
        (172_800, "2 d"),
        (86_400 * 400, "400 d"),
    ],
)
def test_spans_have_the_unit_that_suits_them(seconds, shown):
    assert words.span(seconds) == shown


def test_ages_are_whole_and_never_negative():
    assert words.age(1_000.0, 1_003.4) == "3 s"
    assert words.age(1_000.0, 999.0) == "0 s"
    assert words.age(None, 1_000.0) == "-"
    assert words.age(0.0, 86_400.0 * 3) == "3 d"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0, "0"), (1_234_567, "1,234,567"), (1.5, "1.5"), (2.0, "2"), (1_000.25, "1,000.25")],
)
def test_numbers(value, shown):
    assert words.number(value) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "-"),
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (20 << 20, "20 MiB"),
        (3 << 40, "3.0 TiB"),
    ],
)
def test_sizes(count, shown):
    assert words.size(count) == shown


def test_counts_have_their_noun():
    assert counted(1, "job") == "1 job"
    assert counted(0, "job") == "0 jobs"
    assert counted(1_000_000, "task queue") == "1,000,000 task queues"


def test_states_stand_in_the_order_of_a_life():
    counts = {"Done": 3, "Odd\x1b": 1, "Waiting": 1_200, "Stalled": 4, "Running": 2, "Failed": 0}
    assert words.states(counts) == r"1,200 Waiting, 2 Running, 4 Stalled, 3 Done, 1 Odd\x1b"
    assert words.states({}) == "none"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("", "-"),
        (True, "yes"),
        (["a", 1], "a, 1"),
        ([], "-"),
        ({"a": 1, "b": "x\ny"}, r"a=1, b=x\ny"),
        (0, "0"),
    ],
)
def test_json_values_as_a_word_or_two(value, shown):
    assert words.shown(value) == shown
