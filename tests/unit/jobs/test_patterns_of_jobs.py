"""Patterns with stars and question marks: which texts are like them, and what the comparison costs at most."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from tests.kits.table import hold_all

from lodesman.languages.jobs.selection import Pattern, SelectionTooDear, StepBudget

LETTERS = st.text("ab%_\\", max_size=9)
SIGNS = {"*": ".*", "?": "."}


def is_like(pattern, text, most=1_000_000):
    return Pattern(pattern, "where").is_met(text, StepBudget(most))


@given(st.text("ab%_\\*?", max_size=8), LETTERS)
def test_texts_are_as_a_regular_expression_says(pattern, text):
    plain = "".join(SIGNS.get(sign) or re.escape(sign) for sign in pattern)
    assert is_like(pattern, text) is bool(re.fullmatch(plain, text, re.DOTALL))


@given(st.text('ab"/\\\né*?', max_size=6), st.lists(st.text('ab"/\\\né', max_size=6), max_size=4))
def test_what_is_ruled_out_in_json_is_in_no_text(text, items):
    pattern, budget = Pattern(text, "where"), StepBudget(1_000_000)
    expected = any(pattern.is_met(one, budget) for one in items)
    assert pattern.is_met_by_any(items, budget) is expected
    assert pattern.may_be_in(json.encode(items).decode(), budget) or not expected


CASES = [
    ("", "", True), ("", "a", False), ("*", "", True), ("?", "", False), ("?", "é", True), ("a*a", "a", False),
    ("a*a", "aa", True), ("*ab?", "abcabd", True), ("*a?c*", "abbabc", True), ("**??**", "a", False),
    ("a*b*c", "a\nb\nc", True), ("fit", "Fit", False), ("*aab*", "a" * 50 + "b", True),
]  # fmt: skip


def test_the_edges_of_texts_are_met():
    def check(case):
        pattern, text, expected = case
        assert is_like(pattern, text) is expected

    hold_all(CASES, check)


def spent(pattern, text):
    budget = StepBudget(10_000_000)
    with suppress(SelectionTooDear):
        Pattern(pattern, "where").is_met(text, budget)
    return budget.spent


def test_stars_cost_one_way_through_the_text():
    text = "a" * 10_000
    assert spent("*a" * 500 + "*b*", text) < 10 * len(text)
    assert spent(f"*{'a' * 400}b{'a' * 400}*", text) < 20 * len(text)
    assert spent("*a?" * 20 + "b*", text) > 50 * len(text)


@pytest.mark.parametrize("pattern", ["*a?a?a?b*", f"*{'a' * 90}b*", "a*a"])
def test_what_is_too_dear_is_refused_by_name(pattern):
    asked, budget = Pattern(pattern, "where"), StepBudget(5_000)
    with pytest.raises(SelectionTooDear) as caught:
        [asked.is_met("a" * 100, budget) for _ in range(1_000)]
    assert pattern[:20] in caught.value.message
    assert "5,000 steps" in caught.value.message
    assert caught.value.data == {"parameter": "where"}
