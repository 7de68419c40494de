"""What the hot process thinks of the background process, by what it hears."""

from __future__ import annotations

import pytest

from lodesman.server.live.pulse import (
    _MANY_RESTARTS,
    _RESTARTS_WITHIN,
    _SILENT_SECONDS,
    _START_SECONDS,
    BackgroundHealth,
)
from lodesman.wire.server import BackgroundStatus
from lodesman.wire.service import BackgroundState


def test_it_may_take_its_time_to_start():
    health = BackgroundHealth(at=100.0)
    assert health.standing(100.0 + _START_SECONDS) == "starting"
    assert health.standing(101.0 + _START_SECONDS) == "silent"
    assert health.answer(110.0) == BackgroundStatus("starting", None, 0, [])


def test_it_is_well_while_it_says_so():
    health = BackgroundHealth(at=0.0)
    health.reported(200.0, BackgroundState({}))
    assert health.standing(200.0 + _SILENT_SECONDS) == "ok"
    assert health.standing(201.0 + _SILENT_SECONDS) == "silent"
    assert health.answer(203.0).age_seconds == 3.0


def test_steps_that_fail_are_named_without_their_faults():
    health = BackgroundHealth(at=0.0)
    health.reported(5.0, BackgroundState({"reasons": "KeyError: secret", "director": "IOError: disk"}))
    assert health.standing(5.0) == "failing"
    assert health.answer(5.0).failing == ["director", "reasons"]
    health.reported(10.0, BackgroundState({}))
    assert health.standing(10.0) == "ok"


@pytest.mark.parametrize("heard", [True, False])
def test_one_that_is_started_again_in_vain(heard):
    health = BackgroundHealth(at=0.0)
    at = 0.0
    for n in range(_MANY_RESTARTS):
        assert health.standing(at) in ("ok", "starting")
        at += 10.0
        if heard:
            health.reported(at, BackgroundState({}))
        health.ended(at)
        assert health.restarts == n + 1
    assert health.standing(at) == "restarting"
    health.reported(at + _RESTARTS_WITHIN, BackgroundState({}))
    assert health.standing(at + _RESTARTS_WITHIN) == "ok"


def test_an_old_end_counts_no_more():
    health = BackgroundHealth(at=0.0)
    for number in range(10):
        at = number * _RESTARTS_WITHIN
        health.ended(at)
        health.reported(at, BackgroundState({}))
        assert health.standing(at) == "ok"
    assert health.restarts == 10
