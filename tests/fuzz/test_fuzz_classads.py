"""Random and hostile ClassAds: read, or refused at a place in the text; evaluated without an exception, in bounded time."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kits.classad_kit import ad_text, expression
from tests.kits.damage import damaged

from lodesman.base.errors import SyntaxFault
from lodesman.languages.classad import evaluate, parse_ad, parse_expression, write_ad, write_expression
from lodesman.languages.classad.fast import MatchSide, fast_match
from lodesman.languages.classad.functions import FUNCTIONS

SECONDS = 10.0
DRAW = random.Random(7)
SAMPLES = [expression(DRAW, 4) for _ in range(40)] + [ad_text(DRAW) for _ in range(20)]
PIECES = st.sampled_from(
    [
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        "=",
        "==",
        "=?=",
        "?",
        ":",
        "?:",
        "&&",
        "||",
        "!",
        "-",
        "~",
        ".",
        "a",
        "MY",
        "TARGET",
        "PARENT",
        "is",
        "isnt",
        "undefined",
        "error",
        "true",
        "1",
        "1.5",
        "9" * 25,
        "1e999",
        '"',
        '"x"',
        "'",
        "'q'",
        "\\",
        "//",
        "/*",
        "*/",
        "\n",
        " ",
        "\x00",
        "\ud800",
        "\ufeff",
        "é",
        "\u2028",
        "regexp(",
        "strcat(",
        *sorted(FUNCTIONS),
    ]
)


def check_fault(fault: SyntaxFault, text: str) -> None:
    lines = text.split("\n")
    assert 1 <= fault.data["line"] <= len(lines)
    assert 1 <= fault.data["column"] <= len(lines[fault.data["line"] - 1]) + 1
    assert len(str(fault)) < 500
    str(fault).encode()


def survive(text: str) -> None:
    begun = time.process_time()
    try:
        node = parse_expression(text)
        evaluate(node)
        assert write_expression(parse_expression(write_expression(node))) == write_expression(node)
    except SyntaxFault as fault:
        check_fault(fault, text)
    try:
        ad = parse_ad(text)
        for entry in ad:
            evaluate(entry.name, ad, ad)
        fast_match(MatchSide(ad), MatchSide(ad))
        assert write_ad(parse_ad(write_ad(ad))) == write_ad(ad)
    except SyntaxFault as fault:
        check_fault(fault, text)
    assert time.process_time() - begun < SECONDS


@given(st.text(max_size=100))
def test_any_text(text):
    survive(text)


@pytest.mark.slow
@settings(max_examples=400)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_row_of_pieces(text):
    survive(text)


@pytest.mark.slow
@settings(max_examples=300)
@given(damaged(SAMPLES, PIECES))
def test_damaged_texts(text):
    survive(text)


HOSTILE = {
    "parentheses": "(" * 60_000,
    "lists": "{" * 60_000,
    "ads": "[a=" * 20_000,
    "selections": "a" + ".b" * 30_000,
    "operators": "!" * 60_000,
    "choices": "a?" * 30_000,
    "conjunctions": "a&&" * 20_000 + "a",
    "comments": "/*" * 30_000,
    "quotes": '"\\' * 30_000,
    "blanks": "1" + " " * 60_000 + "2",
    "regexp": 'regexp("' + "(a*)*" * 300 + 'b", "' + "a" * 60_000 + '")',
    "split": 'split("' + " " * 60_000 + 'x", " ,")',
    "digits": "1" * 60_000,
    "items": "{" + "1," * 30_000 + "1}",
    "versions": 'versionGE("' + "1" * 30_000 + '", "' + "1" * 30_000 + '2")',
    "powers": "pow(9, pow(9, pow(9, 9)))",
    "shifts": "1 << 9223372036854775807",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts(text):
    survive(text)
