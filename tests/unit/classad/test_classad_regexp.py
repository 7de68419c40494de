"""Regular expressions: the answers of Python's, in time that the text bounds."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.kits.table import hold_all
from tests.unit.classad.test_classad_values import ROOT, worth

from lodesman.base.errors import InvalidRequest
from lodesman.languages.classad import ERROR, Run, evaluate, parse_expression, regexp
from lodesman.languages.classad.patterns import MOST_STATES
from lodesman.languages.classad.regexp import read_regexp

RECORDED = (ROOT / "tests/data/classad/patterns.txt").read_text(encoding="utf-8").splitlines()[1:]
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


UNREADABLE = {
    "(": "never closed",
    ")": "a ) too many",
    "a)": "a ) too many",
    "(?<n>a)(?<n>b)": "two groups have the name n",
    "[": "never closed",
    "[a": "never closed",
    "*": "repeats nothing",
    "a**": "two repetitions",
    "a{2}{3}": "two repetitions",
    "^*": "repeats a place",
    r"\K+": "repeats a place",
    "(?i)*": "repeats nothing",
    "a{,3}": r"{,3} is a repetition in PCRE2 10.43 and no repetition before it: write {0,n} or \{",
    "a{ 1,3}": "{ 1,3} is a repetition in PCRE2 10.43",
    "a{3,2}": "{3,2} is no number of repetitions",
    "a{999}": "{999} is no number of repetitions: from few to many, at most 255",
    "[b-a]": "b-a runs backwards",
    r"[\d-z]": "a class of characters begins or ends a range",
    "[a-[:digit:]]": "a class of characters begins or ends a range",
    "[[:no:]]": "there is no class [:no:]",
    "[[.a.]]": "there is no class [.a.]",
    "[:alpha:]": "[:name:] stands only within brackets",
    r"(a)\1": r"references to groups \1 are not known here",
    r"(?<n>a)\k<n>": r"references to groups \k are not known here",
    r"(a)\g{1}": r"references to groups \g are not known here",
    "(?P<n>a)(?P=n)": "recursion and references (?P...) are not known here",
    "(a)(?R)?": "recursion (?R) are not known here",
    "(a)(?1)": "recursion (?1) are not known here",
    "(?(1)a)": "conditions (?(...)...) are not known here",
    "(?|a|b)": "groups that share their numbers (?|...) are not known here",
    "(?C1)a": "callouts (?C) are not known here",
    "(*UTF)a": "verbs (*...) are not known here",
    "(?xx)a": "groups that begin with (?x are not known here",
    "(?<=a|bc+)": "a lookbehind needs branches of one length each",
    r"(?=\K)a": "stands in a lookahead or lookbehind",
    r"\p{L}": r"properties \p{...} are not known here",
    r"\x{4G}": r"\x is not known",
    r"[\x{}]": r"\x is not known",
    r"\X": r"\X are not known here",
    r"\C": r"single bytes \C are not known here",
    r"\xe9": r"\xe9 is beyond ASCII: write the character itself",
    r"\y": r"\y is not known",
    r"\N{U+41}": r"\N{...} is not known",
    "\\": "ends in a backslash",
    "(?#a": "a (?# is never closed",
    "(" * 40 + ")" * 40: "too deep",
    "a" * MOST_STATES: "too long",
    "((a{99}){99}){99}": "repeats too much",
    "((((){255}){255}){255}){255}": "repeats too much",
}


def check_unreadable(case):
    pattern, why = case
    with pytest.raises(InvalidRequest, match=re.escape(why)):
        read_regexp(pattern)


def test_what_cannot_be_read_is_named():
    hold_all(UNREADABLE.items(), check_unreadable)


def check_recorded(line):
    expression, _, value = line.partition("\t")
    assert worth(expression) == value


def test_answers_of_htcondor_to_patterns():
    hold_all(RECORDED, check_recorded)


@pytest.mark.parametrize(
    "pattern", [r"(?=(a|aa)+$)b", r"(?>(a|aa)+)+b", r"(?<!(?=(a*)*c)a)b", r"(a|a)*+b", r"((a*)*)*(?=b)"]
)
def test_lookaround_spends_its_steps(pattern):
    run = Run(most=4_000)
    found = evaluate(parse_expression(f'regexp("{pattern}", "{"a" * 2_000}")'), run=run)
    assert found is ERROR
    assert run.is_spent
    assert evaluate(parse_expression(f'regexp("{pattern}", "{"a" * 9}")')) is False


def test_what_is_put_in_the_place_of_matches_is_bounded():
    run = Run()
    text = f'replaceAll("a", "{"a" * 9_000}", "{"b" * 9_000}")'
    assert evaluate(parse_expression(text), run=run) is ERROR
    assert evaluate(parse_expression('size(replaceAll("a", "aaa", "b\\\\0"))')) == 6


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
