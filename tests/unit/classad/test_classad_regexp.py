"""Regular expressions: the answers of Python's, in time that the text bounds."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.classad import regexp
from lodesman.classad.regexp import MOST_STATES, read_regexp
from lodesman.errors import InvalidRequest

ATOMS = st.sampled_from(
    ["a", "b", "A", ".", "^", "$", "[ab]", "[^a]", "[a-c]", r"\d", r"\W", r"\.", "1", "(?:a|b)", "\n", r"\s"]
)
REPEATS = st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "*?"])


@st.composite
def patterns(draw, depth=2):
    pieces = []
    for _ in range(draw(st.integers(0, 4))):
        atom = f"({draw(patterns(depth - 1))})" if depth and draw(st.booleans()) else draw(ATOMS)
        pieces.append(atom + ("" if atom in "^$" else draw(REPEATS)))
    return "|".join(["".join(pieces), *([draw(ATOMS)] if draw(st.booleans()) else [])])


@at_most(400)
@given(patterns(), st.text("abA1.\n", max_size=8), st.sampled_from(["", "i", "s", "m", "is"]))
def test_as_python_says(pattern, text, options):
    flags = sum((getattr(re, one.upper()) for one in options), re.RegexFlag.ASCII)
    assert read_regexp(pattern, options).is_found(text) == bool(re.search(pattern, text, flags))


@at_most(200)
@given(
    patterns(),
    st.lists(st.text("abA1.\n", max_size=8), max_size=6),
    st.sampled_from(["", "i", "m"]),
    st.integers(0, 9),
)
def test_what_is_remembered_of_other_texts_changes_no_answer(pattern, texts, options, most):
    read = read_regexp(pattern, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regexp, "_MOST_STEPS", most)
        found = [read.is_found(text) for text in [*texts, *texts]]
    assert found == [read_regexp(pattern, options).is_found(text) for text in texts] * 2


@pytest.mark.slow
def test_what_is_remembered_of_a_pattern_is_bounded():
    """All of these texts go through states that no other one has seen."""
    read = read_regexp("(" + "|".join(f"a.{{{n}}}b" for n in range(40)) + ")c")
    draw = random.Random(4)
    for _ in range(300):
        read.is_found("".join(draw.choices("ab", k=80)))
    assert 0 < len(read._steps) <= regexp._MOST_STEPS
    assert sum(map(len, read._nows)) <= regexp._MOST_KEPT
    assert set(read._steps.values()) <= set(read._nows)


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[",
        "[a",
        "*",
        "a**",
        "a{2",
        "a{,3}",
        "a{3,2}",
        "a{999}",
        "(?=a)",
        "(?P<x>a)",
        r"\1",
        r"\b",
        "\\",
        "[b-a]",
        "(" * 40 + ")" * 40,
        "a" * MOST_STATES,
        "((a{99}){99}){99}",
        "((((){255}){255}){255}){255}",
        "{",
    ],
)
def test_what_cannot_be_read(pattern):
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_regexp(pattern)


def test_what_takes_others_years():
    assert read_regexp("(a+)+$").is_found("a" * 2_000 + "b") is False
    assert read_regexp("(a|a)*b").is_found("a" * 2_000) is False


def test_ranges_in_brackets_count_as_states_do():
    ranges = "".join(f"{chr(0x100 + 3 * n)}-{chr(0x101 + 3 * n)}" for n in range(400))
    assert read_regexp(f"[{ranges}]{{9}}").size > 900
    with pytest.raises(InvalidRequest, match="too long"):
        read_regexp(f"[{ranges}]{{50}}")


def test_blanks_may_not_count():
    assert read_regexp("a b", "x").is_found("ab")
