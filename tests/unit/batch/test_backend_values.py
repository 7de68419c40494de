"""The values of the backend protocol: what they refuse, hide and default to."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.batch.backend import (
    BatchLoad,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotCopy,
    PilotSpec,
    SubmitRefusal,
    SubmitResult,
    unusable,
)
from lodesman.resources import QueueId

QUEUE = QueueId("site", "ce", "queue")


def test_a_secret_is_not_printed():
    copy = PilotCopy(stamp="s1", pilot_file=b'{"join_token": "hush"}')
    assert "hush" not in repr(copy)
    assert "s1" in repr(copy)


def test_values_are_frozen():
    load = BatchLoad(waiting=None, running=3, observed_at=1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        load.running = 4  # type: ignore[misc]


def test_an_unknown_number_is_not_zero():
    load = BatchLoad(waiting=None, running=0, observed_at=1.0)
    assert load.waiting is None
    assert load.running == 0


def test_states_are_their_words():
    assert [str(state) for state in NativeState] == ["waiting", "running", "ended", "unknown"]
    assert {str(outcome) for outcome in CancelOutcome} == {"removed", "ordered", "ended", "unknown", "failed"}


def test_an_exit_code_is_unknown_unless_reported():
    assert NativeStatus(state=NativeState.ENDED, observed_at=2.0).exit_code is None


def test_results_are_empty_unless_reported():
    assert SubmitResult() == SubmitResult(accepted={}, refused={})
    assert SubmitRefusal(reason="full", transient=True) != SubmitRefusal(reason="full", transient=False)


def test_nothing_is_asked_by_default():
    spec = PilotSpec(queue=QUEUE, command=("true",))
    assert (spec.cores, spec.memory_mb, spec.wall_seconds, dict(spec.environment)) == (1, 0, 0, {})


@pytest.mark.parametrize(
    ("command", "environment", "word"),
    [
        ((), {}, "empty"),
        (("a\0b",), {}, "character"),
        (("true",), {"A\0": "b"}, "character"),
        (("true",), {"A": "b\0"}, "character"),
        (("true",), {"A=B": "c"}, "character"),
        (("true",), {"": "c"}, "character"),
        (("true", "\ud800"), {}, "encoded"),
        (("true",), {"A": "\ud800"}, "encoded"),
    ],
)
def test_what_no_process_can_be_given_is_named(command, environment, word):
    reason = unusable(PilotSpec(queue=QUEUE, command=command, environment=environment))
    assert word in reason


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_other_text_can_be_given(text):
    spec = PilotSpec(queue=(text, text, text), command=("true", text), environment={"A": text})
    assert unusable(spec) == ""
