"""Random and hostile descriptions: the only thing that ever comes out is a record, a job or a LodesmanError.

Every error of a text has a line and a column that lie in the text, can be printed, and comes in bounded time.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kits.damage import damaged

from lodesman.base.errors import LodesmanError, SyntaxFault
from lodesman.languages.cfg import parse_cfg, write_cfg
from lodesman.languages.jobs import (
    Template,
    cohorts,
    read_description,
    read_job,
    spec_from_json,
    spec_to_json,
    write_description,
)
from lodesman.wire.vocabulary import FORMS

DATA = Path(__file__).parents[1] / "data"
SAMPLES = [
    *(path.read_text(encoding="utf-8") for path in sorted([*DATA.glob("jdl/*"), *DATA.glob("cfg/*")])),
    '{"Executable": "x", "Site": ["A", "B"], "CPUTime": 1e3, "Requirements": {"Memory": 4000, "Tag": ["\\u00e9"]}}',
    '{"Executable": "x", "Parameters": ["a", 1, true], "JobName": "%s_%n", "Environment": {"A": "b"}}',
]
SECONDS = 10.0
MOST_MEMBERS = 1_000

FORM = st.sampled_from([*FORMS, None])


def whole_way(text, form):
    """Text to record to job to cohorts to members and back to text: the road of a submission."""
    parsed = read_description(text, form=form)
    for target in FORMS:
        again = read_description(write_description(parsed.record, target), form=target)
        assert repr(again.record) == repr(parsed.record)
    description = read_job(parsed.record, parsed.positions)
    for notice in description.warnings:
        notice.message.encode()
    assert spec_from_json(spec_to_json(description.spec)) == description.spec
    if description.members and description.members.count > MOST_MEMBERS:
        return
    found = cohorts(description, places=parsed.positions)
    if description.members:
        template = Template(found[0].spec, description.members)
        for index in range(min(3, description.members.count)):
            template.expand(index, 10**9 + index)


def check_error(error, text, source=None):
    str(error).encode()
    assert error.data.get("source") == source
    assert len(str(error)) < 1_000
    assert error.as_dict()["code"] == error.code
    if isinstance(error, SyntaxFault):
        line, column = error.data["line"], error.data["column"]
        lines = text.count(b"\n" if isinstance(text, bytes) else "\n") + 1
        assert 1 <= line <= lines
        assert 1 <= column <= len(text) + 1


def survive(text, form=None):
    started = time.process_time()
    try:
        whole_way(text, form)
    except LodesmanError as error:
        check_error(error, text)
    assert time.process_time() - started < SECONDS


@given(st.text(max_size=200), FORM)
def test_any_text(text, form):
    survive(text, form)


@given(st.binary(max_size=200), FORM)
def test_any_bytes(data, form):
    survive(data, form)


TOKENS = st.sampled_from(
    ['"', "'", "\\", "{", "}", "[", "]", "(", ")", ";", ",", "=", "+=", ":", "#", "//", "/*", "*/", "\n", " ", "\t",
     "0", "1", "-1", "1.5", "1e3", "1e999", "0x1", "007", "9" * 20, "true", "null", "NaN", "Executable", "CPUTime",
     "Site", "Requirements", "Environment", "Parameters", "Parameters.X", "ParameterStep", '"x"', '"%s"', '"%(X)s"',
     '"%n"', "jdl:", "\0", "\ud800", "\ufeff", "é", "\u2028", "\x85", "\r"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(TOKENS, max_size=40).map("".join), FORM)
def test_any_row_of_tokens(text, form):
    survive(text, form)


STATEMENTS = st.tuples(
    st.sampled_from(
        ["Executable", "Arguments", "Site", "BannedSite", "CPUTime", "Priority", "Requirements", "Environment",
         "Parameters", "Parameters.X", "ParameterStart", "ParameterFactor", "WallTime", "OutputSandbox", "JobName",
         "InputSandbox", "Tag", "Own", "Owner", "MaxAttempts", "Exclusive"]
    ),
    st.sampled_from(
        ['"x"', '"%s"', '"%(X)s"', '"a %n \'b"', "5", "-5", "1e3", "1000001", "{}", '{"A", "B"}', "{1, 2, 3}",
         '{"a b", "c"}', '[ A = 1; B = {"x", "%s"} ]', "[]", "true", '"../x"', '"' + "x" * 300 + '"', "{{1}}",
         '"%j"', '"A=1;B=2"', "2.5", '"é"']
    ),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(STATEMENTS, max_size=7))
def test_any_choice_of_attributes_and_values(statements):
    survive(
        'Executable = "x";\n' + "\n".join(f"{name} = {value};" for name, value in dict(statements).items()),
        "jdl",
    )


@pytest.mark.slow
@settings(max_examples=300)
@given(damaged(SAMPLES, TOKENS), FORM)
def test_damaged_descriptions(text, form):
    survive(text, form)


@given(damaged(SAMPLES, TOKENS))
def test_damaged_configurations(text):
    try:
        section = parse_cfg(text, source="some.cfg")
    except LodesmanError as error:
        check_error(error, text, source="some.cfg")
    else:
        assert parse_cfg(write_cfg(section)) == section


HOSTILE = {
    "brackets": "[" * 1_000_000,
    "braces": "A = " + "{" * 1_000_000,
    "records": "A=[" * 300_000,
    "json arrays": '{"a":' + "[" * 900_000,
    "json objects": '{"a":' * 200_000,
    "cfg sections": "a{" * 500_000,
    "cfg nested jdl": "a = jdl:" + "{" * 900_000,
    "digits": "A = " + "7" * 1_000_000,
    "json digits": '{"a": ' + "7" * 1_000_000 + "}",
    "exponent": "A = 1e" + "9" * 900_000,
    "name": "A" * 1_000_000,
    "quotes": '"' * 1_000_000,
    "backslashes": 'A = "' + "\\" * 1_000_000,
    "open comments": "/*" * 500_000,
    "line comments": "//\n" * 300_000,
    "newlines": "\n" * 1_000_000,
    "semicolons": "A=1" + ";" * 1_000_000,
    "commas": "A = " + "," * 1_000_000,
    "list": "A = {" + "1," * 500_000 + "}",
    "attributes": "".join(f"A{index}=1;" for index in range(30_000)),
    "same names": "A=1;" * 200_000,
    "options": "".join(f"a{index} = b, c\n" for index in range(20_000)),
    "json names": "{" + ",".join(f'"a{index}":1' for index in range(30_000)) + "}",
    "long arguments": 'Executable = "x"; Arguments = "' + "a 'b' " * 150_000 + '";',
    "one argument": 'Executable = "x"; Arguments = "' + "a\\\\b" * 200_000 + '";',
    "environment": 'Executable = "x"; Environment = "' + "A=1;" * 200_000 + '";',
    "sites": 'Executable = "x"; Site = "' + "A," * 500_000 + '";',
    "percent signs": 'Executable = "x"; Parameters = 2; Arguments = "' + "%" * 900_000 + '";',
    "placeholders": 'Executable = "x"; Parameters = 900; JobName = "' + "%s" * 400_000 + '";',
    "powers": 'Executable = "x"; Parameters = 1000000; ParameterFactor = 9223372036854775807;',
    "fractions": 'Executable = "x"; Parameters = 1000000; ParameterFactor = 1e100; ParameterStep = 1e-300;',
    "requirements": 'Executable = "x"; Requirements = [' + "".join(f"A{i}=1;" for i in range(30_000)) + "];",
    "unknown": 'Executable = "x";' + "".join(f"CPUTimes{i}=1;" for i in range(20_000)),
    "blanks": " " * 1_000_000 + "A",
    "byte order marks": "\ufeff" * 300_000,
    "too large": "A = 1;" * 2_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_descriptions_are_answered_in_bounded_time(name):
    for form in (None, *FORMS):
        survive(HOSTILE[name], form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "character", ["\0", chr(0xD800), chr(0xDFFF), "\x01", "\x7f", "\x85", "\u2028", "\ufeff", "\U0010ffff"]
)
def test_odd_characters_everywhere(form, character):
    for sample in SAMPLES:
        for part in (0, len(sample) // 3, len(sample) // 2, len(sample)):
            survive(sample[:part] + character + sample[part:], form)
