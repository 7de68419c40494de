"""The web server's end: pending data is read first, unless the end is forced."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.config.sections import ServerSection
from lodesman.server.main.guarded import GuardedConnection
from lodesman.server.main.process import heed_hang_up, interrupt
from lodesman.server.main.web import OwnServer, Web


class Listening:
    """A listening socket of the loop."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def close(self) -> None:
        self.closed.set()

    async def wait_closed(self) -> None:
        """It is closed at once."""


class Waiting(GuardedConnection):
    """A connection whose claim waits at the server."""

    def __init__(self) -> None:
        self.answered = False

    def end_waiting(self) -> None:
        self.answered = True

    def shutdown(self) -> None:
        """It was answered, and has no more to say."""


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application."""


async def never() -> None:
    """What these tests do not come to."""


def web_with(before_stop: Any) -> tuple[Web, Listening]:
    web = Web(nothing, ServerSection(), on_start=never, before_stop=before_stop, on_stop=never)
    web.grace_seconds = 0
    listening = Listening()
    web.servers = [cast("Any", listening)]
    return web, listening


def test_pending_data_is_read_before_listening_ends():
    async def scene() -> None:
        told: list[bool] = []
        heard = asyncio.Event()

        async def before_stop() -> None:
            await heard.wait()
            told.append(listening.closed.is_set())

        web, listening = web_with(before_stop)
        claim = Waiting()
        web.serving.connections.add(claim)
        ending = asyncio.create_task(web.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        # Claims do not wait for that: a pilot that waits for jobs could be given one that comes back now.
        assert claim.answered
        assert not listening.closed.is_set()
        heard.set()
        web.serving.left(claim)
        await asyncio.wait_for(ending, 30)
        assert told == [False]
        assert listening.closed.is_set()

    asyncio.run(scene())


def test_a_second_ctrl_c_does_not_wait():
    async def scene() -> None:
        web, listening = web_with(asyncio.Event().wait)
        web.end_at_once()
        await asyncio.wait_for(web.stop(), 30)
        assert listening.closed.is_set()

    asyncio.run(scene())


@pytest.fixture
def hung_up():
    """SIGHUP as it is when a process starts; it is so again after the test."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_terminal_that_closes_ends_the_server_in_order(hung_up, monkeypatch, at_terminal):
    monkeypatch.setattr("lodesman.server.main.process._has_terminal", lambda: at_terminal)
    heed_hang_up(interrupt)  # while it starts
    with pytest.raises(KeyboardInterrupt) if at_terminal else nullcontext():
        os.kill(os.getpid(), signal.SIGHUP)
    web = Web(nothing, ServerSection(), on_start=never, before_stop=never, on_stop=never)
    heed_hang_up(web.end)
    os.kill(os.getpid(), signal.SIGHUP)
    assert web.ending.is_set() is at_terminal


def test_a_hang_up_that_nohup_ignores_stays_ignored(hung_up, monkeypatch):
    monkeypatch.setattr("lodesman.server.main.process._has_terminal", lambda: True)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    heed_hang_up(interrupt)
    os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("/nowhere")])
def test_what_lies_in_the_place_of_a_socket_is_no_hindrance(tmp_path, make):
    place = tmp_path / "reads.sock"
    make(place)

    async def listen() -> None:
        server = OwnServer(nothing, str(place))
        server.end()
        await server.serve()
        assert server.servers

    asyncio.run(listen())
    assert place.is_socket()


def test_a_folder_with_something_in_it_is_named(tmp_path):
    (tmp_path / "reads.sock" / "mine").mkdir(parents=True)
    with pytest.raises(Unavailable, match=r"reads.sock is in the place of a socket .* Move it away"):
        OwnServer(nothing, str(tmp_path / "reads.sock"))
