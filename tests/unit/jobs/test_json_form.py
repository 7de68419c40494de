"""JSON descriptions: what JSON knows and the other languages do not is refused with its place."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob, SyntaxFault, TooLarge
from lodesman.languages.jobs.description import read_description, write_description
from lodesman.languages.jobs.record import ARRAY_LIMITS, TextLimits

read_json = partial(read_description, form="json")
write_json = partial(write_description, form="json")


def test_an_object_is_read_with_the_places_of_its_names():
    parsed = read_json('{\n  "A": 1,\n  "R": {"B": [true, {"C": "x"}], "D": {}}\n}')
    assert parsed.record == {"A": 1, "R": {"B": [True, {"C": "x"}], "D": {}}}
    assert parsed.form == "json"
    assert dict(parsed.positions) == {
        "A": (2, 3),
        "R": (3, 3),
        "R/B": (3, 9),
        "R/B[1]/C": (3, 22),
        "R/D": (3, 34),
    }
    assert len(parsed.positions) == 5
    assert parsed.positions.get("X") is None


def test_names_and_texts_with_every_mark_keep_their_places():
    text = '{"a\\":": "x\\\\", "b": "\\":", "\\u00e9": ["a:b", "{", "]"], "c": {"d\\\\": 1}}'
    parsed = read_json(text)
    assert parsed.record == {'a":': "x\\", "b": '":', "é": ["a:b", "{", "]"], "c": {"d\\": 1}}
    assert parsed.positions["é"] == (1, text.index('"\\u00e9"') + 1)
    assert parsed.positions["c/d\\"] == (1, text.index('"d') + 1)


@pytest.mark.parametrize("text", ['{"a": 1}', b'{"a": 1}', b'\xef\xbb\xbf{"a": 1}', ' \n{"a" : 1}\n'])
def test_text_and_bytes(text):
    assert read_json(text).record == {"a": 1}


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "expecting value"),
        ("{", 1, 2, "expecting property name"),
        ('{"a": 1,}', 1, 9, "property name"),
        ('{"a": 1,, }', 1, 9, "property name"),
        ('{"a" 1}', 1, 6, "':'"),
        ('{"a": 1} x', 1, 10, "extra data"),
        ('{"a":\n  tru}', 2, 3, "expecting value"),
        ('{"a": "x\ny"}', 1, 9, "control character"),
        ('{"a": "x', 1, 7, "unterminated string"),
        ('{"a": 01}', 1, 8, "delimiter"),
        ("{'a': 1}", 1, 2, "property name"),
        ("[1]", 1, 1, "one JSON object, and this is a list"),
        ('\n [{"Executable": "x"}]', 2, 2, "one JSON object, and this is a list"),
        (' "text"', 1, 2, "one JSON object"),
        ('{"a": NaN}', 1, 2, "not finite"),
        ('{"a": [1, -Infinity]}', 1, 2, "not finite"),
        ('{"a": 1e999}', 1, 2, "not finite"),
        ('{"a": null}', 1, 2, "null"),
        ('{"x": 1,\n "a": {"b": null}}', 2, 8, "null"),
        ('{"a": 9223372036854775808}', 1, 2, "64 bits"),
        ('{"a": ' + "9" * 30 + "}", 1, 2, "64 bits"),
        ('{"a": ' + "9" * 6_000 + "}", 1, 7, "64 bits"),
        ('{"a": "\\ud800"}', 1, 2, "surrogate"),
        ('{"a": "\\u0000"}', 1, 2, "NUL"),
        ('{"\\ud800": 1}', 1, 2, "control character"),
        ('{"": 1}', 1, 2, "empty"),
        ('{"a": 1, "a": 2}', 1, 10, "a is given twice, first at line 1, column 2"),
        ('{"a": 1,\n "A": 2}', 2, 2, "A is given twice, first as a"),
        ('{"r": {"b": 1, "b": 1}}', 1, 16, "b is given twice, first at line 1, column 8"),
        ('{"r": [{"b": 1}, {"b": 2, "b": 3}]}', 1, 27, "given twice"),
        ('{"x\\":": 1, "a": "\\":", "a": 2}', 1, 25, "given twice"),
        (b'{"a": "\xff"}', 1, 8, "UTF-8"),
        ('{"\\ud800": ' + "[" * 100_000, 1, 43, "nested deeper than 32"),
        ("[" * 100_000, 1, 33, "nested deeper than 32"),
        ('{"a":' * 5_000, 1, 161, "nested deeper than 32"),
    ],
)
def test_faults_have_a_place_and_say_what_is_wrong(text, line, column, words):
    with pytest.raises(SyntaxFault) as caught:
        read_json(text)
    assert words in caught.value.message
    assert (caught.value.data["line"], caught.value.data["column"]) == (line, column)


def test_text_that_resembles_names_does_not_count():
    text = json.dumps({"a": 'b": 1, "a": 2', "c": ['"a":', '\\": "'], "d": "\\"})
    assert read_json(text).record == json.loads(text)


def test_environment_variables_are_case_sensitive():
    record = {"Environment": {"no_proxy": "a", "NO_PROXY": "b"}}
    assert read_json(json.dumps(record)).record == record


@pytest.mark.slow
def test_sizes_are_limited():
    big = json.dumps({"Parameters": list(range(250_001))})
    with pytest.raises(TooLarge):
        read_json(big)
    with pytest.raises(SyntaxFault, match="more than 250000 values"):
        read_json(big, limits=TextLimits(text_bytes=10_000_000))
    assert len(read_json(big, limits=ARRAY_LIMITS).record["Parameters"]) == 250_001


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        '{"a": "' + "\\" * 900_000,
        '{"a": ' + '"' * 900_000,
        '{"a": [' + '{"b": 1, "b": 2},' * 50_000 + "1]}",
        "{" + ",".join(f'"a{index}": 1' for index in range(60_000)) + ', "a1": 2}',
        '{"a": ' + "[" * 900_000,
        '{"' + "x" * 500_000 + '": {' + ",".join(f'"a{i}": {{"b": null}}' for i in range(20_000)) + "}}",
    ],
)
def test_hostile_texts_are_refused_in_linear_time(text):
    started = time.process_time()
    with pytest.raises(SyntaxFault):
        read_json(text)
    assert time.process_time() - started < 30


def test_writing_is_readable():
    assert write_json({"A": "x", "B": [1, 2.5]}) == '{\n  "A": "x",\n  "B": [\n    1,\n    2.5\n  ]\n}\n'


@pytest.mark.parametrize("value", [None, float("inf"), -(2**63) - 1, "\udfff", {"x": {1, 2}}])
def test_what_json_cannot_say_is_not_written(value):
    with pytest.raises(InvalidJob):
        write_json({"A": value})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def check_place(fault):
    assert fault.data["line"] >= 1
    assert fault.data["column"] >= 1


@given(st.dictionaries(st.text(max_size=6), JSON, max_size=5), st.booleans())
def test_any_json_is_read_as_it_is_or_refused_with_a_place(value, escape):
    text = json.dumps(value, ensure_ascii=escape)
    try:
        parsed = read_json(text)
    except SyntaxFault as fault:
        check_place(fault)
    else:
        assert parsed.record == value
        assert set(parsed.positions) >= set(value)


@given(st.text(max_size=40) | st.text('{}[]":,\\a1 \n', max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        record = read_json(text).record
    except SyntaxFault:
        return
    assert record == json.loads(text)


def test_a_name_that_is_empty_leaves_no_colon_of_its_own():
    with pytest.raises(SyntaxFault) as caught:
        read_json('{"": 1}')
    assert caught.value.message == "line 1, column 2: an empty attribute name."
    with pytest.raises(InvalidJob) as refused:
        write_json({"": 1})
    assert refused.value.message == "An empty attribute name."
    with pytest.raises(SyntaxFault, match=r"a/: an empty attribute name\."):
        read_json('{"a": {"": 1}}')


def test_a_list_of_jobs_gets_a_suggestion():
    with pytest.raises(SyntaxFault) as caught:
        read_json('[{"Executable": "x"}, {"Executable": "y"}]')
    assert caught.value.hint.startswith("Write each job into a file of its own")
