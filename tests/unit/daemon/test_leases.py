"""Pilots that fall silent: whom the list of a moment ago names may have spoken since."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from lodesman.api.core import Core
from lodesman.daemon.server import Server
from lodesman.errors import Unavailable
from lodesman.services.sessions import PilotSession


class Quiet:
    """As much of the core as leases need: silent pilots, the commands that end them, and who was forgotten."""

    silent_pilots: Any = Core.silent_pilots
    is_silent: Any = Core.is_silent

    def __init__(self, last_seen: dict[int, float]) -> None:
        self.live = None
        self.lease_seconds = 10.0
        self.now = 100.0
        self.sessions = {pilot: cast("Any", Seen(at)) for pilot, at in last_seen.items()}
        self.ended: list[int] = []
        self.meanwhile: dict[int, Any] = {}

    def ticks(self) -> float:
        return self.now

    async def command(self, command: Any) -> int:
        self.meanwhile.get(command.pilot_id, lambda: None)()
        self.ended.append(command.pilot_id)
        return 0

    def forget_pilot(self, pilot_id: int) -> None:
        self.sessions.pop(pilot_id, None)


class Seen:
    """A session of which only the last word is known."""

    def __init__(self, last_seen: float) -> None:
        self.last_seen = last_seen


def end_silent(core: Quiet) -> list[int]:
    server = Server.__new__(Server)
    server.core = cast("Core", core)

    async def go() -> None:
        for pilot in Core.silent_pilots(cast("Core", core)):
            await server._lost(pilot)

    asyncio.run(go())
    return core.ended


def test_those_and_only_those_are_ended_whose_lease_has_ended() -> None:
    core = Quiet({1: 0.0, 2: 95.0, 3: 89.9, 4: 90.0})
    assert end_silent(core) == [1, 3]
    assert set(core.sessions) == {2, 4}


def test_a_pilot_that_speaks_while_another_is_being_ended_stays() -> None:
    core = Quiet({1: 0.0, 2: 0.0, 3: 0.0})
    core.meanwhile[1] = lambda: setattr(core.sessions[2], "last_seen", 100.0)
    assert end_silent(core) == [1, 3]
    assert set(core.sessions) == {2}


def test_a_pilot_that_left_while_another_is_being_ended_is_not_ended_twice() -> None:
    core = Quiet({1: 0.0, 2: 0.0})
    core.meanwhile[1] = lambda: core.forget_pilot(2)
    assert end_silent(core) == [1]


def test_one_that_cannot_be_ended_now_is_ended_the_next_time() -> None:
    core = Quiet({1: 0.0})

    def refuse() -> None:
        raise Unavailable("The disk is full.")

    core.meanwhile[1] = refuse
    assert end_silent(core) == []
    assert core.silent_pilots() == [1]
    core.meanwhile.clear()
    assert end_silent(core) == [1]


@pytest.mark.parametrize("pilot", [7, 0])
def test_who_is_not_there_is_not_silent(pilot: int) -> None:
    assert not Quiet({}).is_silent(pilot)


def test_a_session_has_what_is_asked_for() -> None:
    assert "last_seen" in PilotSession.__slots__
