"""The words of RetryOn, and what they cover."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs import JobSpec, read_job, read_retry, retry_text
from lodesman.languages.jobs.retries import PAYLOAD_CAUSES, RetryRule, read_retry_causes


def spec(**record):
    return read_job({"Executable": "x", **record}).spec


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        (75, ("75",)),
        ("75", ("75",)),
        ([75, "100-110", "memory-limit"], ("75", "100-110", "memory-limit")),
        ("75, signal", ("75", "signal")),
        (["exit"], ("exit",)),
    ],
)
def test_causes_codes_and_ranges_are_read(given_, read):
    assert spec(RetryOn=given_).retry_on == read


@pytest.mark.parametrize(
    "wrong", [0, 256, "0-5", "9-3", "5-256", "killed", "pilot-lost", True, {}, [[1]], 1.5, "x"]
)
def test_what_is_none_is_refused(wrong):
    with pytest.raises(InvalidJob, match="RetryOn"):
        spec(RetryOn=wrong)


@pytest.mark.parametrize("wrong", [0.5, 11, "x", True, [2]])
def test_a_factor_makes_memory_grow(wrong):
    assert spec(RetryMemoryFactor="1.5").retry_memory_factor == 1.5
    with pytest.raises(InvalidJob, match="RetryMemoryFactor"):
        spec(RetryMemoryFactor=wrong)


def test_who_lets_memory_grow_is_tried_again_for_it():
    rule = read_retry(retry_text(JobSpec(executable="x", retry_memory_factor=2.0)))
    assert rule.covers("memory-limit", None)
    assert not rule.covers("exit", 1)
    assert retry_text(JobSpec(executable="x")) is None
    assert not any(read_retry(None).covers(cause, 1) for cause in PAYLOAD_CAUSES)


@given(st.lists(st.integers(1, 255), min_size=2, max_size=2).map(sorted), st.integers(0, 255))
def test_a_range_covers_its_codes_alone(bounds, code):
    first, last = bounds
    rule = RetryRule(read_retry_causes([f"{first}-{last}"]))
    assert rule.covers("exit", code) == (first <= code <= last)
    assert not rule.covers("signal", code)


@given(st.integers(0, 1 << 30), st.floats(1.0, 10.0), st.integers(0, 1 << 30))
def test_memory_never_grows_beyond_what_is_allowed(memory, factor, most):
    found = RetryRule(("memory-limit",), factor).more_memory(memory, None, most)
    assert found <= min(most or 1 << 30, 1 << 30)
    assert most or found >= min(memory, 1 << 30)
