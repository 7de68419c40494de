"""What became of pilots: the batch system's word, and its silence, which is no word."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lodesman.batch import NativeState, NativeStatus
from lodesman.director import QueueId
from lodesman.services.census import GIVEN_UP_SECONDS, LOST_AFTER_SECONDS, SETTLE_SECONDS, Census
from lodesman.services.pilots import Join, NewPilot, PilotSubmitted, PreparePilots, hash_token

SHORT = QueueId("North", "cn", "short")


class Batch:
    """Knows what it was told: native id -> state, stamp -> native id."""

    def __init__(self) -> None:
        self.states: dict[str, NativeStatus] = {}
        self.known: dict[str, str] = {}
        self.asked: list[str] = []

    def says(self, native_id, state, **more):
        self.states[native_id] = NativeStatus(state=state, observed_at=0.0, **more)

    def status(self, native_ids):
        self.asked += native_ids
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=0.0)
        return {one: self.states.get(one, unknown) for one in native_ids}

    def census(self, stamps=None):
        return {stamp: native for stamp, native in self.known.items() if stamps is None or stamp in stamps}


class World:
    """A census over one batch system."""

    def __init__(self, base) -> None:
        self.base, self.batch = base, Batch()
        self.posted: list[Any] = []
        self.told: list[Any] = []
        self.census = Census(
            base.db, {"local": cast("Any", self.batch)}, post=lambda *words: self.posted.append(words),
            told=lambda *words: self.told.append(words),
        )  # fmt: skip

    def pilot(self, stamp, *, submitted=True, joined=False):
        base = self.base
        (number,) = base.do(PreparePilots(base.live, [NewPilot(
            stamp=stamp, vo="lab", site="North", ce="cn", queue="short", request={},
            join_hash=hash_token(f"join-{stamp}"),
        )]))  # fmt: skip
        if submitted:
            base.do(PilotSubmitted(base.live, {stamp: (f"native-{stamp}", "")}))
        if joined:
            base.do(Join(base.live, f"join-{stamp}", "nonce", {}))
        return number

    def tick(self, after=0.0):
        self.posted.clear()
        return self.census.tick(self.base.clock + after)


@pytest.fixture
def world(base):
    return World(base)


def test_pilots_that_wait_and_run_are_left_alone(world):
    world.pilot("a")
    world.pilot("b", joined=True)
    world.batch.says("native-a", NativeState.WAITING)
    world.batch.says("native-b", NativeState.RUNNING)
    assert world.tick() == 0
    assert world.posted == []


def test_a_pilot_that_the_batch_system_does_not_list_is_not_gone(world):
    world.pilot("a", joined=True)
    assert world.tick(after=1e6) == 0
    assert world.posted == []


def test_an_ended_pilot_is_told_once_lost_if_it_had_joined(world):
    number = world.pilot("a", joined=True)
    world.batch.says("native-a", NativeState.ENDED, exit_code=137, detail="killed by a signal")
    assert world.tick() == 1
    assert world.posted == [("ended", {"pilot": number, "state": "Lost", "reason": "killed by a signal"})]
    assert world.told == [(SHORT, True, "")]  # it had joined: the queue works


def test_a_pilot_that_joined_speaks_for_its_queue_once(world):
    world.pilot("a", joined=True)
    world.pilot("b")
    for _ in range(3):
        world.tick()
    assert world.told == [(SHORT, True, "")]
    world.pilot("c", joined=True)
    world.tick()
    assert world.told == [(SHORT, True, "")] * 2


def test_an_ended_pilot_that_never_joined_speaks_against_its_queue(world):
    number = world.pilot("a")
    world.batch.says("native-a", NativeState.ENDED, exit_code=2)
    world.tick()
    assert world.posted == [
        ("ended", {"pilot": number, "state": "Aborted", "reason": "ended with exit code 2"})
    ]
    assert world.told == [(SHORT, False, "ended with exit code 2")]


def test_pilots_whose_end_is_known_are_asked_no_more(world):
    world.pilot("a", joined=True)
    world.base.do(PilotSubmitted(world.base.live, {"a": (None, "refused")}))
    world.tick()
    world.batch.asked.clear()
    world.base.writer.execute("UPDATE pilot SET ended_at = 1 WHERE stamp = 'a'")
    world.tick()
    assert world.batch.asked == []


def test_a_reference_that_was_lost_is_found_by_its_stamp(world):
    world.pilot("a", submitted=False)
    world.batch.known["a"] = "native-a"
    assert world.tick(after=LOST_AFTER_SECONDS - 1) == 0
    assert world.posted == []  # its submission may be under way
    world.tick(after=LOST_AFTER_SECONDS + 1)
    assert world.posted == [("submitted", {"a": ("native-a", "")})]


def test_a_pilot_that_nobody_finds_is_given_up_after_long(world):
    world.pilot("a", submitted=False)
    world.tick(after=LOST_AFTER_SECONDS + 1)
    assert world.posted == []
    world.tick(after=GIVEN_UP_SECONDS + 1)
    ((name, outcome),) = world.posted
    assert (name, outcome["a"][0]) == ("submitted", None)
    assert outcome["a"][1]


def test_a_submission_that_died_with_its_process_is_given_up_soon(world):
    """Else a pilot that nobody submits would keep its place in the queue's limits for an hour."""
    world.pilot("a", submitted=False)
    world.pilot("b", submitted=False)
    world.batch.known["b"] = "native-b"
    world.census._started = world.base.clock + 1
    world.tick(after=SETTLE_SECONDS)
    assert world.posted == []  # the process before may still be ending
    world.tick(after=SETTLE_SECONDS + 2)
    ((name, outcome),) = world.posted
    assert (name, outcome["b"]) == ("submitted", ("native-b", ""))
    assert outcome["a"][0] is None


def test_a_submission_of_this_process_is_not_given_up_soon(world):
    world.census._started = world.base.clock - 1
    world.pilot("a", submitted=False)
    world.tick(after=SETTLE_SECONDS * 3)
    assert world.posted == []


def test_a_pilot_that_joined_before_its_reference_was_stored_is_never_given_up(world):
    world.pilot("a", submitted=False, joined=True)
    world.tick(after=GIVEN_UP_SECONDS * 10)
    assert world.posted == []
