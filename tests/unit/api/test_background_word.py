"""What the hot process thinks of the background process, by what it hears."""

from __future__ import annotations

import pytest

from lodesman.api.background_word import (
    MANY_RESTARTS,
    RESTARTS_WITHIN,
    SILENT_SECONDS,
    START_SECONDS,
    BackgroundWord,
)


def test_it_may_take_its_time_to_start():
    word = BackgroundWord(since=100.0)
    assert word.standing(100.0 + START_SECONDS) == "starting"
    assert word.standing(101.0 + START_SECONDS) == "silent"
    assert word.in_short(110.0) == {"standing": "starting", "age_seconds": None, "restarts": 0, "failing": []}


def test_it_is_well_while_it_says_so():
    word = BackgroundWord(since=0.0)
    word.heard(200.0, {})
    assert word.standing(200.0 + SILENT_SECONDS) == "ok"
    assert word.standing(201.0 + SILENT_SECONDS) == "silent"
    assert word.in_short(203.0)["age_seconds"] == 3.0


def test_steps_that_fail_are_named_without_their_faults():
    word = BackgroundWord(since=0.0)
    word.heard(5.0, {"reasons": "KeyError: secret", "director": "IOError: disk"})
    assert word.standing(5.0) == "failing"
    assert word.in_short(5.0)["failing"] == ["director", "reasons"]
    word.heard(10.0, {})
    assert word.standing(10.0) == "ok"


@pytest.mark.parametrize("heard", [True, False])
def test_one_that_is_started_again_in_vain(heard):
    word = BackgroundWord(since=0.0)
    at = 0.0
    for n in range(MANY_RESTARTS):
        assert word.standing(at) in ("ok", "starting")
        at += 10.0
        if heard:
            word.heard(at, {})
        word.ended(at)
        assert word.restarts == n + 1
    assert word.standing(at) == "restarting"
    word.heard(at + RESTARTS_WITHIN, {})
    assert word.standing(at + RESTARTS_WITHIN) == "ok"


def test_an_old_end_counts_no_more():
    word = BackgroundWord(since=0.0)
    for number in range(10):
        at = number * RESTARTS_WITHIN
        word.ended(at)
        word.heard(at, {})
        assert word.standing(at) == "ok"
    assert word.restarts == 10
