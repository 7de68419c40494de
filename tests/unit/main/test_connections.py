"""Heads of requests: in one piece, in many, too large, too late. On real sockets of one loop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from lodesman.server.main import connections, guarded
from lodesman.server.main.connections import ConnectionGroup
from lodesman.server.main.guarded import GuardedConnection

REQUEST = b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"


class Hasty(asyncio.SelectorEventLoop):
    """A loop whose time can be moved on: what takes long takes a test no time, however slow the machine is."""

    skipped = 0.0

    def time(self):
        return super().time() + self.skipped


async def pass_time(seconds):
    """Let that time pass, and what became due happen."""
    asyncio.get_running_loop().skipped += seconds
    for _ in range(5):
        await asyncio.sleep(0)


async def closed(writer):
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


class Served:
    """An application that says what it got, behind the guarded protocol."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []
        self.came = asyncio.Event()
        self.hold = asyncio.Event()
        self.hold.set()
        self.port = 0

    async def app(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.seen.append((scope["path"], body))
        self.came.set()
        await self.hold.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    @contextlib.asynccontextmanager
    async def running(self):
        serving = ConnectionGroup(self.app, quiet_seconds=5.0)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: GuardedConnection(serving), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for one in list(serving.connections):
                one.transport.close()
            for task in list(serving.tasks):
                task.cancel()
            await asyncio.gather(*serving.tasks, return_exceptions=True)

    async def talk(self, *parts, then_wait=0.0):
        """Send the parts one by one and wait; returns all that came back until the end of the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.001)
            await pass_time(then_wait)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            await closed(writer)


def run(script, seconds=60.0):
    async def main():
        async with Served().running() as served:
            return await asyncio.wait_for(script(served), seconds)

    with asyncio.Runner(loop_factory=Hasty) as runner:
        return runner.run(main())


CLOSING = REQUEST.replace(b"host: x", b"connection: close")


def test_a_request_in_one_piece():
    async def script(served):
        answer = await served.talk(CLOSING)
        assert served.seen == [("/a", b"abc")]
        return answer

    assert run(script).endswith(b"\r\n\r\nok")


def test_a_request_byte_by_byte():
    async def script(served):
        answer = await served.talk(*(CLOSING[n : n + 1] for n in range(len(CLOSING))))
        assert served.seen == [("/a", b"abc")]
        return answer

    assert run(script).endswith(b"ok")


def test_many_requests_on_one_connection(monkeypatch):
    monkeypatch.setattr(guarded, "_HEAD_BYTES", 200)

    async def script(served):
        answer = await served.talk(*[REQUEST] * 20, REQUEST[:10], REQUEST[10:], CLOSING)
        assert len(served.seen) == 22
        return answer

    assert run(script).count(b"200 OK") == 22


@pytest.mark.parametrize("start", [b"GET /" + b"x" * 100, b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nname: "])
def test_a_head_that_never_ends_is_cut_off(monkeypatch, start):
    monkeypatch.setattr(guarded, "_HEAD_BYTES", 10_000)
    sent = []

    async def script(served):
        def pieces():
            yield start
            while True:
                piece = b"y: " + b"z" * 997 if start.endswith(b"\r\n") else b"z" * 1_000
                sent.append(len(piece))
                yield piece + (b"\r\n" if start.endswith(b"\r\n") else b"")

        return await served.talk(*_until(pieces(), 300))

    answer = run(script)
    assert b"400" in answer.split(b"\r\n")[0] or answer == b""


def _until(pieces, most):
    return [piece for piece, _ in zip(pieces, range(most), strict=False)]


def test_a_large_head_in_a_few_pieces_is_taken(monkeypatch):
    head = b"GET /b HTTP/1.1\r\nconnection: close\r\n" + b"a: " + b"x" * 20_000 + b"\r\n\r\n"

    async def script(served):
        return await served.talk(head[:5_000], head[5_000:10_000], head[10_000:])

    assert run(script).endswith(b"ok")


@pytest.mark.parametrize("words", [b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nname: value\r\n"])
def test_a_late_head_is_answered_with_a_timeout(words):
    async def script(served):
        answer = await served.talk(words, then_wait=guarded._HEAD_SECONDS)
        assert served.seen == []
        return answer

    assert b"in time" in run(script)


def test_a_client_that_says_nothing_at_all_is_left():
    async def script(served):
        return await served.talk(then_wait=guarded._HEAD_SECONDS)

    assert run(script) == b""


def test_trickling_does_not_win_time(monkeypatch):
    monkeypatch.setattr(guarded, "_HEAD_SECONDS", 0.05)

    async def script(served):
        return await served.talk(*[b"x: y\r\n" if n else b"GET / HTTP/1.1\r\n" for n in range(500)])

    answer = run(script)
    assert b"in time" in answer or answer == b""


HALF = REQUEST.replace(b"content-length: 3", b"content-length: 30")


def test_a_late_body_is_answered_with_a_timeout(monkeypatch):
    monkeypatch.setattr(guarded, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(guarded, "SLOWEST_BYTES", 1e12)

    async def script(served):
        answer = await served.talk(HALF)
        assert served.seen == [("/a", b"abc")]  # what a client that goes away leaves
        return answer

    head, _, body = run(script).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    assert json.loads(body)["error"]["code"] == "invalid-request"


def test_a_body_that_comes_fast_enough_has_more_time(monkeypatch):
    monkeypatch.setattr(guarded, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(guarded, "SLOWEST_BYTES", 1)

    async def script(served):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(CLOSING.replace(b"content-length: 3", b"content-length: 6"))
        await asyncio.sleep(0.2)
        writer.write(b"def")
        answer = await reader.read()
        await closed(writer)
        return answer, served.seen

    answer, seen = run(script)
    assert answer.endswith(b"ok")
    assert seen == [("/a", b"abcdef")]


def test_a_head_and_its_body_leave_in_one_piece(monkeypatch):
    sent = []
    write = GuardedConnection.write
    monkeypatch.setattr(GuardedConnection, "write", lambda self, data: (sent.append(data), write(self, data)))

    async def script(served):
        return await served.talk(CLOSING)

    assert run(script) == b"".join(sent)
    assert sent == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"]


def test_an_answer_may_take_longer_than_a_head(monkeypatch):
    monkeypatch.setattr(guarded, "_HEAD_SECONDS", 1.0)

    async def script(served):
        served.hold.clear()
        asking = asyncio.ensure_future(served.talk(CLOSING))
        await served.came.wait()
        await pass_time(5.0)
        assert not asking.done()
        served.hold.set()
        return await asking

    assert run(script).endswith(b"ok")


def test_a_client_that_expects_continue_gets_it():
    asking = CLOSING.removesuffix(b"\r\n\r\nabc") + b"\r\nexpect: 100-continue\r\n\r\n"

    async def script(served):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(asking)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"abc")
        answer = await reader.read()
        await closed(writer)
        return answer

    answer = run(script)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"ok")


def test_half_a_second_request_does_not_garble_the_answer_to_the_first(monkeypatch):
    monkeypatch.setattr(guarded, "_HEAD_SECONDS", 0.05)

    async def script(served):
        served.hold.clear()
        return await served.talk(REQUEST, b"GET /b HT")

    assert run(script) == b""


def test_a_connection_may_be_idle_between_requests(monkeypatch):
    monkeypatch.setattr(guarded, "_HEAD_SECONDS", 1.0)

    async def script(served):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"ok")).endswith(b"ok")
            await pass_time(3.0)  # the web server itself ends what is idle for 5 seconds
        await closed(writer)
        return len(served.seen)

    assert run(script) == 2


@pytest.mark.slow
def test_a_connection_that_is_gone_leaves_nothing_for_the_garbage_collector():
    """Its requests, answered or not, and its timers end with it."""

    async def script(served):
        gc.collect()
        gc.disable()
        try:
            served.hold.clear()
            for ask in (REQUEST, REQUEST * 20, b"POST /a HT"):
                _, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(ask)
                await writer.drain()
                if ask.endswith(b"abc"):
                    await served.came.wait()
                await closed(writer)
            served.hold.set()
            await pass_time(1.0)
            await asyncio.sleep(0.05)
            kinds = ("Exchange", "GuardedConnection")
            return [one for one in map(type, gc.get_objects()) if one.__name__ in kinds]
        finally:
            gc.enable()

    assert run(script) == []


def test_requests_that_are_piled_up_on_one_connection_end_it():
    async def script(served):
        served.hold.clear()
        answer = await served.talk(REQUEST * 200)
        return answer, len(served.seen)

    answer, seen = run(script)
    assert answer == b""  # a word would be read as the answer to the first
    assert seen <= 1


def test_some_requests_may_wait_for_the_answer_to_another():
    async def script(served):
        last = REQUEST.replace(b"host: x", b"connection: close")
        return await served.talk(REQUEST * 19 + last), served.seen

    answers, seen = run(script)
    assert answers.count(b"HTTP/1.1 200") == len(seen) == 20


# --- sockets of the server's own


@pytest.mark.parametrize(
    ("me", "root", "closed"), [("mine", 0, 0), ("another", "mine", 0), ("another", "another", 1)]
)
def test_only_the_server_s_own_user_and_root_may_speak_on_its_unix_socket(monkeypatch, me, root, closed):
    uids = {"mine": os.getuid(), "another": 54_321, 0: 0}
    monkeypatch.setattr(connections, "_ROOT", uids[root])
    monkeypatch.setattr(connections.os, "getuid", lambda: uids[me])
    ends = []

    async def connect():
        near, far = socket.socketpair()
        with near, far:
            transport: Any = SimpleNamespace(
                get_extra_info=lambda name: near if name == "socket" else None, close=lambda: ends.append(1)
            )
            connections.OwnConnection(ConnectionGroup(Served().app)).connection_made(transport)

    asyncio.run(connect())
    assert len(ends) == closed


# --- what strangers send


@pytest.mark.parametrize(
    "piece", [b"POST /a HTTP/1.1\r\nx: ", b"POST /a HTTP/1.1\r\nhost: x\r\ncontent-length: 90000\r\n\r\n"]
)
def test_all_bytes_of_requests_without_a_token_have_one_limit(monkeypatch, piece):
    monkeypatch.setattr(guarded, "_UNKNOWN_BYTES", 5_000)

    async def main(served):
        first, second = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        for _, writer in (first, second):
            writer.write(piece + b"y" * (4_000 - len(piece)))
        ended = await asyncio.wait(
            [asyncio.ensure_future(reader.read(1)) for reader, _ in (first, second)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert len(ended[0]) == 1
        for _, writer in (first, second):
            await closed(writer)

    run(main)
    assert guarded._StrangerBytes.bytes == 0
