"""What an application answers, as it goes over the wire: lengths, chunks, heads alone, and what is left half done."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from tests.unit.main.test_connections import Hasty

from lodesman.base.errors import InvalidRequest
from lodesman.server.http.wire import FileResponse, asked_part
from lodesman.server.main.connections import ConnectionGroup, HttpConnection

GET = b"GET /a%20b?c=d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


def start(*headers, status=200):
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(text, *, more=False):
    return {"type": "http.response.body", "body": text, "more_body": more}


def talk(app, *parts, then=None):
    """All that comes back until the end of the connection; `then` runs beside, with the server's state."""

    async def main():
        serving = ConnectionGroup(app)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: HttpConnection(serving), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            if then is not None:
                await then(serving, reader, writer)
            return await asyncio.wait_for(reader.read(), 30)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            server.close()
            await asyncio.wait_for(serving.wait_idle(), 30)

    with asyncio.Runner(loop_factory=Hasty) as runner:
        return runner.run(main())


def sends(*messages):
    async def app(_scope, _receive, send):
        for message in messages:
            await send(message)

    return app


def test_what_the_application_is_told_of_a_request():
    told = []

    async def app(scope, receive, send):
        told.append({**scope, "client": scope["client"][0]})
        told.append(await receive())
        await sends(start((b"content-length", b"0")), body(b""))(scope, receive, send)

    talk(app, GET)
    scope, message = told
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("GET", "/a b", b"/a%20b")
    assert (scope["query_string"], scope["http_version"], scope["client"]) == (b"c=d", "1.1", "127.0.0.1")
    assert (b"host", b"x") in scope["headers"]
    assert message == {"type": "http.request", "body": b"", "more_body": False}


@pytest.mark.parametrize(
    ("request_line", "messages", "answer"),
    [
        ("GET", (start((b"content-length", b"2")), body(b"o", more=True), body(b"k")),
         b"content-length: 2\r\nconnection: close\r\n\r\nok"),
        ("GET", (start(), body(b"some", more=True), body(b"", more=True), body(b"more")),
         b"connection: close\r\n\r\n4\r\nsome\r\n4\r\nmore\r\n0\r\n\r\n"),
        ("HEAD", (start((b"Content-Length", b"9")), body(b"unsent")), b"content-length: 9\r\nconnection: close\r\n\r\n"),
        ("GET", (start(status=204), body(b"unsent")), b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"),
        ("GET", (start((b"transfer-encoding", b"gzip"), (b"content-length", b"0")), body(b"")),
         b"200 OK\r\ncontent-length: 0\r\n"),
    ],
)  # fmt: skip
def test_how_long_an_answer_is(request_line, messages, answer):
    came = talk(sends(*messages), GET.replace(b"GET", request_line.encode()))
    assert answer in came
    assert came.count(b"connection: close") == 1


def test_a_client_of_http_1_0_gets_no_chunks():
    came = talk(sends(start(), body(b"one", more=True), body(b"two")), b"GET / HTTP/1.0\r\n\r\n")
    assert came == b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonetwo"


@pytest.mark.parametrize(
    "messages",
    [
        (start((b"content-length", b"3")), body(b"longer")),
        (start((b"content-length", b"30")), body(b"shorter")),
        (start((b"x", b"a\r\nset-cookie: b")), body(b"")),
        (start((b"a\nb", b"c")), body(b"")),
        (start(), start(), body(b"")),
        (body(b"without a head"),),
        (start(),),
        (start(), body(b"half", more=True)),
        (),
    ],
)
def test_what_is_no_answer_ends_the_connection_and_is_never_taken_for_one(messages):
    came = talk(sends(*messages), GET.replace(b"connection: close", b"x: y"))
    assert b"set-cookie" not in came
    assert came.count(b"HTTP/1.1") <= 1
    assert b"\r\n0\r\n\r\n" not in came


def test_a_bug_before_the_answer_is_answered_and_one_within_it_cuts_it_off():
    async def early(_scope, _receive, _send):
        raise KeyError("bug")

    async def late(_scope, _receive, send):
        await send(start())
        await send(body(b"half", more=True))
        raise KeyError("bug")

    assert talk(early, GET).startswith(b"HTTP/1.1 503")
    came = talk(late, GET)
    assert came.endswith(b"4\r\nhalf\r\n")  # without the last chunk


def test_requests_in_a_row_are_answered_in_their_order_with_their_bodies():
    async def app(scope, receive, send):
        text = (await receive())["body"]
        await asyncio.sleep(0.01 if scope["path"] == "/0" else 0)
        await sends(start((b"content-length", b"2")), body(scope["path"][1:].encode() + text))(
            scope, receive, send
        )

    one = b"POST /%d HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n%c"
    came = talk(
        app,
        *(one % (n, b"a"[0] + n) for n in range(5)),
        GET.replace(b"GET", b"POST").replace(b"/a%20b?c=d", b"/5"),
    )
    texts = [part.split(b"\r\n\r\n")[1] for part in came.split(b"HTTP/1.1 200 OK")[1:]]
    assert texts[:5] == [b"0a", b"1b", b"2c", b"3d", b"4e"]


def test_an_answer_waits_for_a_client_that_does_not_read(monkeypatch):
    piece, sent, paused = b"x" * 100_000, [], asyncio.Event()

    async def app(_scope, _receive, send):
        await send(start())
        for _ in range(100):
            await send(body(piece, more=True))
            sent.append(1)
        await send(body(b""))

    pause = HttpConnection.pause_writing

    async def slow(_serving, _reader, _writer):
        await paused.wait()
        assert 0 < len(sent) < 100

    monkeypatch.setattr(HttpConnection, "pause_writing", lambda self: (pause(self), paused.set()))

    assert len(talk(app, GET, then=slow)) > 9_000_000


def test_a_client_that_goes_away_is_known_to_what_answers_it():
    heard = []

    async def app(_scope, receive, send):
        while (await receive())["type"] != "http.disconnect":
            pass
        await send(start())  # nobody reads it
        heard.append("gone")

    async def leave(serving, _reader, writer):
        writer.close()
        await serving.wait_idle()

    talk(app, GET, then=leave)
    assert heard == ["gone"]


@pytest.mark.parametrize(
    "words", [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nhost: x\r\n\r\n",
              b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
              b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"],
)  # fmt: skip
def test_what_is_no_request_is_refused_in_the_shape_of_all_errors(words):
    async def app(_scope, receive, _send):
        await receive()
        await receive()

    head, _, text = talk(app, words).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in head
    assert b'"code":"invalid-request"' in text


def test_another_protocol_is_not_spoken():
    asks = GET.replace(b"connection: close", b"connection: upgrade\r\nupgrade: websocket")
    came = talk(sends(start((b"content-length", b"2")), body(b"ok")), asks + b"more of another protocol")
    assert came == b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"


def test_a_server_that_ends_lets_an_answer_come_to_its_end():
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def app(scope, receive, send):
        asked.set()
        await go_on.wait()
        await sends(start((b"content-length", b"2")), body(b"ok"))(scope, receive, send)

    async def end(serving, _reader, _writer):
        await asked.wait()
        for connection in list(serving.connections):
            connection.shutdown()
        go_on.set()

    assert talk(app, GET.replace(b"connection: close", b"x: y"), then=end).endswith(
        b"connection: close\r\n\r\nok"
    )


# --- files


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("", None), ("bytes=2-5", (2, 6)), ("bytes=7-", (7, 10)), ("bytes=-3", (7, 10)), ("bytes=-30", (0, 10)),
        ("bytes=0-99", (0, 10)), ("bytes=10-", (10, 10)), ("bytes=30-40", (10, 10)), ("bytes=-0", (10, 10)),
    ],
)  # fmt: skip
def test_the_part_of_a_file_that_is_asked_for(asked, part):
    assert asked_part(asked.encode(), 10) == part


@pytest.mark.parametrize(
    "asked", ["bytes=-", "bytes=5-2", "bytes=1-2,4-5", "lines=1-2", "bytes=a-b", f"bytes={10**19}-", "5-"]
)
def test_what_is_no_part_of_a_file_is_refused(asked):
    with pytest.raises(InvalidRequest, match="Range must be one part in bytes"):
        asked_part(asked.encode(), 10)


@pytest.mark.parametrize(
    ("header", "status", "content", "more"),
    [
        (b"x: y", b"200 OK", b"0123456789", b"accept-ranges: bytes"),
        (b"range: bytes=3-4", b"206 Partial Content", b"34", b"content-range: bytes 3-4/10"),
        (b"range: bytes=10-", b"416", b"", b"content-range: bytes */10"),
        (b"range: bytes=3-4\r\nif-range: then", b"200 OK", b"0123456789", b"content-length: 10"),
    ],
)
def test_a_file_or_a_part_of_it(tmp_path, header, status, content, more):
    (tmp_path / "f").write_bytes(b"0123456789")
    answer = FileResponse(tmp_path / "f", media_type="text/plain", headers={"x-sha256": "abc"})
    head, _, text = talk(answer, GET.replace(b"host: x", header)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status)
    assert (text, more in head, b"x-sha256: abc" in head) == (content, True, True)
    assert talk(answer, GET.replace(b"host: x", header).replace(b"GET", b"HEAD")).endswith(b"\r\n\r\n")
