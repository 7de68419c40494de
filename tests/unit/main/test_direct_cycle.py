"""Direct calls on real sockets: as quick as they come, and as careful as any other request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref

import pytest
from tests.unit.main.test_connections import Hasty, pass_time

from lodesman.base.errors import InvalidRequest
from lodesman.server.http.wire import json_answer, read_body, send_answer
from lodesman.server.main.connections import ConnectionGroup
from lodesman.server.main.guarded import GuardedConnection
from lodesman.wire.call import JOIN_BODY, SMALL_BODY

HEAD = b"POST /fast HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Asked:
    """A call that waits until the test answers it."""

    def __init__(self, reply):
        self.reply = reply
        self.is_gone = asyncio.Event()

    def gone(self):
        self.is_gone.set()

    def end_soon(self):
        self.reply(*json_answer(b'"soon"'))


class App:
    """What the protocol sees of the hot process: one direct call, and all else behind ASGI."""

    def __init__(self):
        self.calls: list[Asked] = []
        self.bodies: list[bytes] = []
        self.by_asgi: list[str] = []
        self.came = asyncio.Event()
        self.direct = {"/fast": self.fast}

    def fast(self, scope, body, reply):
        self.bodies.append(body)
        if body == b"bad":
            raise InvalidRequest("That is bad.")
        if body == b"bug":
            raise KeyError("bug")
        asked = Asked(reply)
        self.calls.append(asked)
        self.came.set()
        if not body.startswith(b"wait"):
            reply(*json_answer(b'"' + body + b'"'))
        return asked

    async def __call__(self, scope, receive, send):
        self.by_asgi.append(f"{scope['method']} {scope['path']}")
        if scope["method"] == "POST" and scope["path"] in self.direct:
            body = await read_body(receive, SMALL_BODY)
            self.bodies.append(body)
            await send_answer(send, *json_answer(b'"%b"' % body))
        else:
            await send_answer(send, *json_answer(b'"asgi"'))


class Served:
    """The application behind the protocol, and connections to it."""

    def __init__(self, app):
        self.app = app
        self.state = ConnectionGroup(app, quiet_seconds=5.0)
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self):
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: GuardedConnection(self.state), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    @contextlib.asynccontextmanager
    async def connected(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def answer_of(reader):
    """Status and body of one answer."""
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line)
    return int(head.split()[1]), await reader.readexactly(int(fields[b"content-length"])), fields


def run(script):
    async def main():
        app = App()
        async with Served(app).running() as served:
            return await asyncio.wait_for(script(served, app), 60)

    with asyncio.Runner(loop_factory=Hasty) as runner:
        return runner.run(main())


def request(body):
    return HEAD % len(body) + body


def test_many_calls_on_one_connection_without_the_web_server_s_task():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            for number in range(20):
                writer.write(request(b"call %d" % number))
                status, body, _ = await answer_of(reader)
                assert (status, body) == (200, b'"call %d"' % number)
        assert app.by_asgi == []

    run(script)


def test_a_body_byte_by_byte():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            for n in range(len(request(b"slow"))):
                writer.write(request(b"slow")[n : n + 1])
                await writer.drain()
                await asyncio.sleep(0)
            assert (await answer_of(reader))[1] == b'"slow"'
        assert app.bodies == [b"slow"]

    run(script)


@pytest.mark.parametrize(
    ("body", "status", "code"), [(b"bad", 400, b"invalid-request"), (b"bug", 503, b"unavailable")]
)
def test_refusals_and_bugs_are_answered_and_the_connection_lives(body, status, code):
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(request(body))
            told = await answer_of(reader)
            assert told[0] == status
            assert code in told[1]
            writer.write(request(b"next"))
            assert (await answer_of(reader))[1] == b'"next"'

    run(script)


def test_answers_come_in_the_order_of_the_requests():
    """A request that follows a waiting one is answered after it, as HTTP wants it."""

    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(request(b"wait") + request(b"second") + b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
            await app.came.wait()
            assert app.bodies == [b"wait"]
            app.calls[0].reply(*json_answer(b'"first"'))
            got = [(await answer_of(reader))[1] for _ in range(3)]
            assert got == [b'"first"', b'"second"', b'"asgi"']

    run(script)


def test_a_client_that_hangs_up_is_noticed_and_an_answer_after_that_is_lost_quietly():
    async def script(served, app):
        async with served.connected() as (_, writer):
            writer.write(request(b"wait"))
            await app.came.wait()
        await app.calls[0].is_gone.wait()
        app.calls[0].reply(*json_answer(b"1"))

    run(script)


@pytest.mark.parametrize(
    "unusual",
    [
        b"POST /fast HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n",
        b"POST /fast HTTP/1.0\r\ncontent-length: 2\r\n\r\n",
        b"POST /%66ast HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n",
        b"POST /fast?a=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n",
    ],
)
def test_what_is_unusual_goes_the_long_way_to_the_same_call(unusual):
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(unusual)
            if b"expect" in unusual:
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"ok")
            status, body, _ = await answer_of(reader)
            assert (status, body) == (200, b'"ok"')
        assert app.by_asgi == ["POST /fast"]
        assert app.bodies == [b"ok"]

    run(script)


def test_other_methods_are_not_direct():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(b"GET /fast HTTP/1.1\r\nhost: x\r\n\r\n")
            assert (await answer_of(reader))[1] == b'"asgi"'
        assert app.bodies == []

    run(script)


def test_a_body_that_is_too_large_is_refused_and_ends_the_connection():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(HEAD % (10 * SMALL_BODY) + b"x" * (JOIN_BODY + 1))
            status, body, fields = await answer_of(reader)
            assert (status, b"too-large" in body, fields[b"connection"]) == (413, True, b"close")
            assert await reader.read() == b""
        assert app.bodies == []

    run(script)


def test_a_client_that_wants_to_close_is_closed_after_its_answer():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(b"POST /fast HTTP/1.1\r\nconnection: close\r\ncontent-length: 3\r\n\r\nend")
            status, body, fields = await answer_of(reader)
            assert (status, body, fields[b"connection"]) == (200, b'"end"', b"close")
            assert await reader.read() == b""

    run(script)


def test_when_the_server_ends_what_waits_is_answered_and_closed():
    async def script(served, app):
        async with served.connected() as (reader, writer):
            writer.write(request(b"wait"))
            await app.came.wait()
            for connection in list(served.state.connections):
                connection.shutdown()
            status, body, fields = await answer_of(reader)
            assert (status, body, fields[b"connection"]) == (200, b'"soon"', b"close")
            assert await reader.read() == b""

    run(script)


@pytest.mark.slow
def test_a_connection_that_is_quiet_for_long_after_a_call_is_closed_and_no_other():
    async def script(served, app):
        async with served.connected() as (reader, writer), served.connected() as (quiet, other):
            for number in range(4):
                writer.write(request(b"call"))
                assert (await answer_of(reader))[1] == b'"call"'
                if number == 0:
                    app.came.clear()
                    other.write(request(b"wait"))
                    await app.came.wait()
                await pass_time(3.0)  # what is idle for 5 seconds is closed
            app.calls[1].reply(*json_answer(b'"late"'))
            assert (await answer_of(quiet))[1] == b'"late"'
            await pass_time(3.0)
            await pass_time(3.0)
            assert (await quiet.read(), await reader.read()) == (b"", b"")

    run(script)


def test_an_answered_call_leaves_nothing_for_the_collector_of_garbage():
    async def script(served, app):
        gc.disable()
        try:
            async with served.connected() as (reader, writer):
                writer.write(request(b"wait"))
                await app.came.wait()
                asked = app.calls.pop()
                asked.reply(*json_answer(b"1"))
                gone = weakref.ref(asked)
                del asked
                await answer_of(reader)
                assert gone() is None
        finally:
            gc.enable()

    run(script)
