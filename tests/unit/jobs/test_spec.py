"""JobSpec and members as JSON values: compact, and exact both ways through text."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.spec import (
    JobSpec,
    ParametricMembers,
    ValueSequence,
    spec_from_json,
    spec_to_json,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
SCALARS = st.one_of(
    TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
RAW = st.one_of(SCALARS, st.lists(SCALARS, max_size=3))
SPECS = st.builds(
    JobSpec,
    executable=TEXT.filter(bool),
    arguments=TEXTS,
    name=TEXT,
    std_output=TEXT,
    environment=st.dictionaries(TEXT, TEXT, max_size=3),
    sites=TEXTS,
    tags=TEXTS,
    user_priority=st.integers(0, 10),
    cores=st.integers(1, 4096),
    norm_cpu_seconds=st.integers(1, 10**9),
    requirements=st.dictionaries(
        TEXT, SCALARS | st.lists(SCALARS, min_size=1, max_size=3).map(tuple), max_size=3
    ),
    exclusive=st.booleans(),
    extra=st.dictionaries(TEXT, RAW, max_size=2),
    deferred=st.dictionaries(TEXT, RAW, max_size=2),
)


def through_text(value):
    return msgspec.json.decode(msgspec.json.encode(value))


@given(SPECS)
def test_a_spec_comes_back_exactly(spec):
    assert repr(spec_from_json(through_text(spec_to_json(spec)))) == repr(spec)


def test_only_what_is_no_default_is_stored():
    assert spec_to_json(JobSpec(executable="x")) == {"executable": "x"}
    assert spec_to_json(JobSpec(executable="x", cores=4, sites=("A",), max_attempts=3)) == {
        "executable": "x",
        "sites": ("A",),
        "cores": 4,
    }


def test_an_empty_executable_is_a_default_and_so_no_stored_job():
    with pytest.raises(InvalidRequest):
        spec_from_json(spec_to_json(JobSpec(executable="")))


@pytest.mark.parametrize("values", [{}, {"executable": "x", "colour": "red"}, {"cores": 1}])
def test_what_was_never_stored_is_refused(values):
    with pytest.raises(InvalidRequest):
        spec_from_json(values)


NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(-1e100, 1e100))
SEQUENCES = st.one_of(
    st.builds(ValueSequence, values=st.lists(SCALARS, min_size=1, max_size=4).map(tuple)),
    st.builds(ValueSequence, start=NUMBERS, step=NUMBERS, factor=NUMBERS),
)
MEMBERS = st.one_of(
    st.builds(
        ParametricMembers,
        count=st.integers(1, 10**6),
        start=NUMBERS,
        step=NUMBERS,
        factor=NUMBERS,
        named=st.dictionaries(TEXT, SEQUENCES, max_size=2),
        unnamed=st.booleans(),
    ),
    st.builds(
        ParametricMembers, count=st.just(2), values=st.lists(SCALARS, min_size=2, max_size=2).map(tuple)
    ),
)


@given(MEMBERS)
def test_members_come_back_exactly(members):
    text = msgspec.json.encode(members)
    assert repr(msgspec.json.decode(text, type=ParametricMembers)) == repr(members)


def test_members_that_are_alike_are_one_number():
    assert msgspec.json.encode(ParametricMembers(count=1_000_000)) == b'{"count":1000000}'
