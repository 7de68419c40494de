"""The values of the backend protocol: what they refuse, hide and default to."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.shell_pilots import shell_spec

from lodesman.decide.resources import QueueId
from lodesman.pilot.context import parse_pilot_file
from lodesman.server.engines.backend import (
    BatchLoad,
    CancelOutcome,
    NativeState,
    NativeStatus,
    SubmitRefusal,
    SubmitResult,
    join_token_of,
    split_stamp,
    stamp_of,
    why_unusable,
)

QUEUE = QueueId("site", "ce", "queue")


def test_a_secret_is_not_printed():
    spec = shell_spec(QUEUE, "s1", "hush")
    assert "hush" not in repr(spec)
    assert "s1" in repr(spec)


def test_values_are_frozen():
    load = BatchLoad(waiting=None, running=3, observed_at=1.0)
    with pytest.raises(AttributeError):
        load.running = 4  # type: ignore[misc]


def test_an_unknown_number_is_not_zero():
    load = BatchLoad(waiting=None, running=0, observed_at=1.0)
    assert load.waiting is None
    assert load.running == 0


def test_states_are_their_words():
    assert [str(state) for state in NativeState] == ["waiting", "held", "running", "ended", "unknown"]
    assert {str(outcome) for outcome in CancelOutcome} == {"removed", "ordered", "ended", "unknown", "failed"}


def test_an_exit_code_is_unknown_unless_reported():
    assert NativeStatus(state=NativeState.ENDED, observed_at=2.0).exit_code is None


def test_results_are_empty_unless_reported():
    assert SubmitResult() == SubmitResult(accepted={}, refused={})
    assert SubmitRefusal(reason="full", transient=True) != SubmitRefusal(reason="full", transient=False)


def test_nothing_is_asked_by_default():
    spec = shell_spec(QUEUE, "s1")
    assert (spec.cores, spec.memory_mb, spec.wall_seconds, dict(spec.environment)) == (1, 0, 0, {})


def test_a_stamp_names_submission_and_copy():
    assert shell_spec(QUEUE, "abc", count=2).stamps() == {1: "abc-1", 2: "abc-2"}
    assert split_stamp("abc-12") == ("abc", 12)


@pytest.mark.parametrize(
    "text", ["", "abc", "abc-", "-1", "a-b-1", "abc-x", "abc-\u0661", "../b-1", "x" * 49 + "-1"]
)
def test_what_is_no_stamp_of_a_copy(text):
    assert split_stamp(text) is None


def test_the_pilot_derives_the_same_identity():
    file = {"servers": ["http://127.0.0.1:1"], "submission": "abc", "secret": "hush"}
    found = parse_pilot_file(json.dumps(file), 7)
    assert (found.stamp, found.join_token) == (stamp_of("abc", 7), join_token_of("hush", 7))
    assert join_token_of("hush", 7) != join_token_of("hush", 8)


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"python": "a\0b"}, "character"),
        ({"options": ("a\0b",)}, "character"),
        ({"environment": {"A\0": "b"}}, "character"),
        ({"environment": {"A": "b\0"}}, "character"),
        ({"environment": {"A=B": "c"}}, "character"),
        ({"environment": {"": "c"}}, "character"),
        ({"python": "\ud800"}, "encoded"),
        ({"environment": {"A": "\ud800"}}, "encoded"),
    ],
)
def test_what_no_process_can_be_given_is_named(more, word):
    assert word in why_unusable(shell_spec(QUEUE, "s1", **more))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_other_text_can_be_given(text):
    spec = shell_spec(QueueId(text, text, text), "s1", python=text, environment={"A": text})
    assert why_unusable(spec) == ""
