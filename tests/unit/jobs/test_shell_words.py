"""Words of a command line, split as `shlex` splits them."""

from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.languages.jobs.values import Mistake, _split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  ", []),
        ("a", ["a"]),
        (" a  b\tc\n", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("a'b'\"c\"d", ["abcd"]),
        ("''", [""]),
        ('a "" b', ["a", "", "b"]),
        (r"a\ b", ["a b"]),
        (r"'a\b'", [r"a\b"]),
        (r'"a\b \" \\ "', [r'a\b " \ ']),
        (r"\'", ["'"]),
        ("$HOME `x` #c *", ["$HOME", "`x`", "#c", "*"]),
        ("é\u00a0ü", ["é\u00a0ü"]),
        ("a\x0bb", ["a\x0bb"]),
    ],
)
def test_words(text, words):
    assert _split_words(text) == words == shlex.split(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a 'b", "has a ' that is never closed (character 3 of the text)"),
        ('x"', 'has a " that is never closed (character 2 of the text)'),
        ("a\\", "has a backslash at the end (character 2 of the text)"),
    ],
)
def test_a_broken_quote_has_its_place(text, words):
    with pytest.raises(Mistake) as caught:
        _split_words(text)
    assert str(caught.value) == words


def split_or_none(split, text):
    try:
        return split(text)
    except ValueError:
        return None


@at_most(300)
@given(st.text(" \t\n\r\"'\\ab#%$;é\x0b\x1c") | st.text())
def test_the_same_as_shlex(text):
    assert split_or_none(_split_words, text) == split_or_none(shlex.split, text)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6))
def test_quoted_words_come_back(words):
    assert _split_words(shlex.join(words)) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["x" * 500_000, "'" * 500_000, '"x"' * 150_000, "\\x" * 200_000, '"' + "\\" * 500_001]
)
def test_long_texts_take_linear_time(text):
    started = time.process_time()
    split_or_none(_split_words, text)
    assert time.process_time() - started < 30
