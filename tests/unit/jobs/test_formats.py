"""The three languages carry one record to each other without loss, and the language of a text is detected."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.base.errors import InvalidRequest, SyntaxFault, TooLarge
from lodesman.languages.jobs.description import _detect_form, read_description, write_description
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, TextLimits, find_problem
from lodesman.wire.vocabulary import FORMS

DATA = Path(__file__).parents[2] / "data"

MARKS = "\",\\ #{}=;jdl:[]\n\t'%+1.e-/*"
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.text(MARKS, max_size=10),
    st.sampled_from(
        ["true", "1", "1.10", "1e3", "jdl:{1}", "007", "", " a", '"a"', '"a" "b"', "a,b", "1e+16"]
    ),
)
SCALARS = st.one_of(
    TEXTS, st.integers(INT_MIN, INT_MAX), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
    st.sampled_from(
        [
            "JobName",
            "arguments",
            "Environment",
            "Requirements",
            "Parameters.X",
            "a b",
            "a=b",
            "x+",
            "#y",
            '"q"',
            "{",
        ]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
RECORDS = st.dictionaries(NAMES, VALUES, max_size=6).filter(lambda record: find_problem(record) is None)


@pytest.mark.slow
@at_most(200)
@given(RECORDS)
def test_every_conversion_between_the_languages_is_without_loss(record):
    texts = {form: write_description(record, form) for form in FORMS}
    for source, target in itertools.permutations(FORMS, 2):
        there = read_description(texts[source], form=source).record
        back = read_description(write_description(there, target), form=target).record
        # repr: types, order and the sign of zero count too.
        assert repr(back) == repr(record), (source, target)


@given(RECORDS)
def test_writing_what_was_read_gives_the_same_text(record):
    for form in FORMS:
        text = write_description(record, form)
        assert write_description(read_description(text, form=form).record, form) == text


@given(RECORDS)
def test_every_first_level_attribute_has_a_position(record):
    for form in FORMS:
        parsed = read_description(write_description(record, form), form=form)
        assert parsed.form == form
        assert set(parsed.positions) >= set(record)


@pytest.mark.parametrize("path", sorted(DATA.glob("jdl/*.jdl")), ids=lambda path: path.name)
def test_jdl_samples_are_taken_for_jdl(path):
    text = path.read_text(encoding="utf-8")
    assert _detect_form(text) == "jdl"
    if path.name == "grid_expressions.jdl":
        with pytest.raises(SyntaxFault) as caught:
            read_description(text)
        assert caught.value.data == {"line": 7, "column": 18}
        return
    record = read_description(text).record
    for form in FORMS:
        assert read_description(write_description(record, form), form=form).record == record


@pytest.mark.parametrize("path", sorted(DATA.glob("cfg/*.cfg")), ids=lambda path: path.name)
def test_cfg_samples_are_taken_for_cfg(path):
    parsed = read_description(path.read_bytes())
    assert parsed.form == "cfg"
    for form in FORMS:
        assert read_description(write_description(parsed.record, form), form=form).record == parsed.record


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", "cfg"),
        ("{}", "json"),
        ('\n  {"a": 1}', "json"),
        ("# note\n{", "json"),
        ('[{"Executable": "x"}]', "json"),
        ("[\n\t{}\n]", "json"),
        ("[]", "jdl"),
        ("  # note\n [ a = 1 ]", "jdl"),
        ("// note\na = 1", "jdl"),
        ("/* note */ a = 1", "jdl"),
        ("a = 1;", "jdl"),
        ("a = 1; b = 2", "jdl"),
        ('a = "x;y"; b = 2', "jdl"),
        ("a = {1, 2}", "jdl"),
        ("a = [ b = 1 ]", "jdl"),
        ("'odd name' = 1", "jdl"),
        ("a = 1 ; // note\nb = 2", "jdl"),
        ('a =\n  "x"\n;\n', "jdl"),
        ("Requirements = other.Memory > 4;\n", "jdl"),
        ("a = 1", "cfg"),
        ('a = "x"', "cfg"),
        ("a = x y z\nb = 1", "cfg"),
        ("Section\n{\n}", "cfg"),
        ("Section {\n a = 1\n}", "cfg"),
        ("# c\n\n# d\na = b", "cfg"),
        ("a = find . -name x -exec rm {} +\n", "cfg"),
        ("a += 1", "cfg"),
    ],
)
def test_the_language_of_a_text_is_detected(text, form):
    assert _detect_form(text) == form


@given(RECORDS.filter(lambda record: record))
def test_written_jdl_and_json_are_recognised(record):
    for form in ("jdl", "json"):
        assert read_description(write_description(record, form)).form == form


def test_a_text_that_both_read_means_the_same_to_both():
    text = 'Executable = "ls"'
    assert read_description(text, form="jdl").record == read_description(text, form="cfg").record


def test_bytes_and_byte_order_marks_are_recognised():
    assert read_description(b'\xef\xbb\xbf{"a": 1}').form == "json"
    assert read_description(b"\xef\xbb\xbf[ a = 1 ]").record == {"a": 1}


def test_a_form_that_is_given_is_obeyed():
    with pytest.raises(SyntaxFault):
        read_description("[ a = 1 ]", form="json")
    with pytest.raises(InvalidRequest, match="not a form") as caught:
        read_description("a = 1", form="yaml")  # type: ignore[arg-type]
    assert "jdl, cfg, json" in caught.value.hint
    with pytest.raises(InvalidRequest):
        write_description({}, "xml")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [*FORMS, None])
def test_limits_hold_in_every_language(form):
    limits = TextLimits(text_bytes=100)
    with pytest.raises(TooLarge) as caught:
        read_description("[" * 101, form=form, limits=limits)
    assert caught.value.data == {"limit": 100, "size": 101}
    with pytest.raises(TooLarge):
        read_description(b"\xff" * 10_000_000, form=form)


@given(st.text(MARKS + "a{}[]()=;\n ", max_size=80))
def test_detection_never_fails(text):
    assert _detect_form(text) in FORMS
