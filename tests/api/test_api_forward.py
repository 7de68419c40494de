"""The forwarder, against a scripted process on a Unix socket."""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial

import pytest

from lodesman.base.errors import InvalidJob, Unavailable
from lodesman.server.http import hot, wire
from lodesman.server.http.hot import HotApp
from lodesman.server.http.wire import ORIGIN, origin_of
from lodesman.server.live.pulse import Pulse
from lodesman.wire.jsv import JsvSection, VerifyBody
from lodesman.wire.requests import SubmitBody

MB = 1 << 20


class Upstream:
    """What the reading process would be: `answer` is coroutine(reader, writer) after the head was read."""

    def __init__(self, house, path):
        self.house, self.path = house, path
        self.pulse = Pulse(path, house.core.background, house.core.ticks)
        self.heads: list[bytes] = []
        self.written = 0
        self.seen_end = asyncio.Event()
        self._server: asyncio.Server | None = None

    def start(self, answer):
        async def serve(reader, writer):
            try:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await answer(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass  # the test checks what came before
            finally:
                self.seen_end.set()
                writer.close()

        self._server = self.house.run(asyncio.start_unix_server(serve, path=str(self.path)))

    def stop(self):
        if self._server is not None:
            self._server.close()
            self.house.run(self._server.wait_closed())

    def header(self, name):
        lines = self.heads[-1].split(b"\r\n")
        return [line.split(b": ", 1)[1] for line in lines if line.lower().startswith(name + b":")]


def says(status=200, body=b"{}", headers=b""):
    async def answer(_reader, writer):
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n%s\r\n" % (status, len(body), headers) + body)
        await writer.drain()

    return answer


@pytest.fixture
def upstream(house, tmp_path):
    found = Upstream(house, tmp_path / "reads.sock")
    house.app.forward = partial(hot.forward, found.pulse)
    yield found
    found.stop()


def test_an_answer_comes_through_as_it_is(house, upstream):
    upstream.start(says(418, b'{"tea": true}', b"x-sha256: abc\r\ncontent-type: application/json\r\n"))
    answer = house.call("GET", "/v1/sites?a=1&b=%20", token="ann")
    assert (answer.status, answer.json) == (418, {"tea": True})
    assert answer.headers["x-sha256"] == "abc"
    assert upstream.heads[0].startswith(b"GET /v1/sites?a=1&b=%20 HTTP/1.1\r\n")
    assert upstream.header(b"authorization") == [f"Bearer {house.tokens['ann']}".encode()]


def test_headers_that_belong_to_one_connection_stay_on_it(house, upstream):
    hop = b"connection: close\r\nkeep-alive: 5\r\nupgrade: x\r\n"
    upstream.start(says(headers=hop))
    given = {"connection": "keep-alive, x", "te": "trailers", "expect": "100-continue", "x-own": "kept"}
    answer = house.call("GET", "/v1/sites", token="ann", headers=given)
    assert {"connection", "keep-alive", "upgrade"} & set(answer.headers) == set()
    for name in (b"connection", b"te", b"expect"):
        assert upstream.header(name) == []
    assert upstream.header(b"x-own") == [b"kept"]


def test_the_address_of_the_client_comes_with_it_and_not_what_the_client_says(house, upstream):
    upstream.start(says())
    house.call("GET", "/v1/sites", token="ann", headers={"x-lode-origin": "10.9.9.9"})
    assert upstream.header(ORIGIN) == [b"127.0.0.1"]
    over_the_socket = {"client": None, "headers": [(ORIGIN, b"10.0.0.7")]}
    assert origin_of(over_the_socket) == "10.0.0.7"
    assert origin_of({**over_the_socket, "client": ("127.0.0.1", 1)}) == "127.0.0.1"
    assert origin_of({"client": None, "headers": []}) == ""


def test_a_body_is_passed_on(house, upstream):
    got = []

    async def answer(reader, writer):
        got.append(await reader.readexactly(300))
        await says()(reader, writer)

    upstream.start(answer)
    chunks = [b"a" * 100, b"b" * 100, b"c" * 100]
    sent = house.call("POST", "/v1/sandboxes", token="ann", chunks=chunks, headers={"content-length": "300"})
    assert sent.status == 200
    assert got == [b"".join([b"a" * 100, b"b" * 100, b"c" * 100])]


def test_a_body_without_a_length_is_refused(house, upstream):
    upstream.start(says())
    chunked = {"content-length": "", "transfer-encoding": "chunked"}
    for method, path in (
        ("POST", "/v1/sandboxes"),
        ("PUT", "/v1/jobs/1/attempts/1/output"),
        ("GET", "/v1/sites"),
    ):
        answer = house.call(method, path, b"x", token="ann", headers=chunked)
        assert (answer.status, answer.code) == (400, "invalid-request")
    assert upstream.heads == [] or all(b"transfer-encoding" not in head for head in upstream.heads)


def test_while_the_reading_process_is_away_the_answer_is_try_again(house, upstream):
    for make in (lambda: None, upstream.path.touch):
        make()
        answer = house.call("GET", "/v1/sites", token="ann")
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "unavailable", "1")
    assert house.submitted() == 1  # what changes something goes on
    assert house.call("GET", "/health").status == 200


@pytest.mark.parametrize(
    "words",
    [
        b"",
        b"HTTP/1.1 200",
        b"no http at all\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"x" * (hot._HEAD_LIMIT * 3),
    ],
)
def test_an_answer_that_is_none_is_try_again(house, upstream, words):
    async def answer(_reader, writer):
        writer.write(words)
        await writer.drain()

    upstream.start(answer)
    answer_ = house.call("GET", "/v1/sites", token="ann")
    assert (answer_.status, answer_.code) == (503, "unavailable")


def test_an_answer_that_does_not_come(house, upstream, monkeypatch):
    monkeypatch.setattr(hot, "_ANSWER_SECONDS", 0.05)

    async def answer(reader, _writer):
        await reader.read()  # until the forwarder gives up

    upstream.start(answer)
    assert house.call("GET", "/v1/sites", token="ann").status == 503
    house.run(upstream.seen_end.wait())


def test_an_answer_that_breaks_off_is_seen_to_be_broken(house, upstream):
    """Never a complete answer, and never a second one: the server then ends the connection."""

    async def answer(_reader, writer):
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nhalf")
        await writer.drain()

    upstream.start(answer)
    task, connection = house.open("GET", "/v1/jobs/1/output", token="ann")
    house.run(task)
    assert [message["type"] for message in connection.sent].count("http.response.start") == 1
    assert connection.sent[-1].get("more_body") is True


def test_a_refusal_that_comes_before_the_body_was_sent_is_passed_on(house, upstream):
    """An upload that is too large: the answer must not be lost in what was still on its way."""

    async def answer(reader, writer):
        await reader.readexactly(10)
        await says(413, b'{"error": {"code": "too-large", "message": "m"}}')(reader, writer)
        await reader.read()

    upstream.start(answer)
    chunks = [b"x" * 65_536] * 200
    task, connection = house.open(
        "POST", "/v1/sandboxes", token="ann", chunks=chunks, headers={"content-length": str(65_536 * 200)}
    )
    house.run(task)
    assert (connection.answer().status, connection.answer().code) == (413, "too-large")
    house.run(upstream.seen_end.wait())


def test_a_client_that_goes_away_during_its_upload_ends_the_connection(house, upstream):
    ended = []

    async def answer(reader, _writer):
        ended.append(await reader.read())

    upstream.start(answer)
    task, connection = house.open(
        "POST", "/v1/sandboxes", token="ann", chunks=[b"ab", b"cd", b"ef"], headers={"content-length": "6"}
    )
    connection.break_off_after(2)
    house.run(task)
    house.run(upstream.seen_end.wait())
    assert ended == [b"abcd"]


def test_a_client_that_goes_away_before_the_answer_ends_the_connection(house, upstream):
    asked = asyncio.Event()

    async def answer(reader, _writer):
        asked.set()
        assert await reader.read() == b""

    upstream.start(answer)
    task, connection = house.open("GET", "/v1/sites", token="ann")
    house.run(asked.wait())
    connection.gone.set()
    house.run(upstream.seen_end.wait())
    house.run(task)
    assert connection.sent == []


def test_an_upload_that_stops_does_not_hold_the_connection(house, upstream, monkeypatch):
    monkeypatch.setattr(wire, "BODY_SECONDS", 0.05)

    async def answer(reader, _writer):
        await reader.read()

    upstream.start(answer)
    task, connection = house.open(
        "POST", "/v1/sandboxes", token="ann", chunks=[b"ab", b"cd"], headers={"content-length": "6"}
    )
    connection.stall_after(1)
    house.run(task)
    assert connection.answer().status == 503
    house.run(upstream.seen_end.wait())


@pytest.mark.slow
def test_a_slow_client_slows_the_source_and_fills_no_memory(house, upstream):
    """100 MB wait at the source, not in the server, while the client takes nothing."""

    async def answer(_reader, writer):
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: %d\r\n\r\n" % (100 * MB))
        for _ in range(100):
            writer.write(b"x" * MB)
            await writer.drain()
            upstream.written += MB

    upstream.start(answer)
    task, connection = house.open("GET", "/v1/jobs/1/output", token="ann")
    house.run(connection.stop_taking(after=2))
    house.run(quiet(lambda: upstream.written))
    assert upstream.written < 10 * MB
    connection.take_again()
    house.run(task)
    assert sum(len(message.get("body", b"")) for message in connection.sent) == 100 * MB
    assert connection.sent[-1].get("more_body", False) is False


async def quiet(value):
    """Wait until a number has not changed for many turns of the loop."""
    before, turns = value(), 0
    while turns < 200:
        await asyncio.sleep(0)
        turns = turns + 1 if value() == before else 0
        before = value()


def test_a_head_request_has_no_body(house, upstream):
    async def answer(reader, writer):
        writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 500\r\n\r\n")
        await reader.read()  # the connection stays open, as a server's does

    upstream.start(answer)
    answer_ = house.call("HEAD", "/v1/sandboxes/abc", token="ann")
    assert (answer_.status, answer_.headers["content-length"], answer_.body) == (200, "500", b"")


def test_an_answer_ends_with_its_length_though_the_connection_stays(house, upstream):
    async def answer(reader, writer):
        await says(body=json.dumps({"a": 1}).encode())(reader, writer)
        await reader.read()

    upstream.start(answer)
    assert house.call("GET", "/v1/sites", token="ann").json == {"a": 1}


def test_the_hot_process_forwards_what_it_does_not_answer_itself(house, upstream):
    upstream.start(says())
    assert isinstance(house.app, HotApp)
    for method, path in (("GET", "/v1/jobs"), ("GET", "/"), ("PATCH", "/v1/jobs"), ("GET", "/v1/tokens")):
        house.call(method, path, token="ann")
    assert len(upstream.heads) == 4


# --- the server's verifier --------------------------------------------------------------------------------


def ask_verifier(house, upstream):
    body = VerifyBody(SubmitBody(text="x"), "ann", ("physics",), JsvSection())
    return house.run(hot.ask_verifier(upstream.pulse, "service-token", body))


def test_a_submission_is_sent_to_the_verifier_with_the_token_of_the_server(house, upstream):
    upstream.start(says(body=b'{"jobs":[{"record":{"A":1},"resolution":null,"notices":[]}]}'))
    (job,) = ask_verifier(house, upstream).jobs
    assert job.record == {"A": 1}
    assert upstream.header(b"authorization") == [b"Bearer service-token"]


def test_what_refuses_a_submission_there_refuses_it_here_with_the_same_words(house, upstream):
    refusal = InvalidJob("Unable to run job: no.", hint="Ask.", attribute="N")
    upstream.start(says(400, json.dumps({"error": refusal.as_dict()}).encode()))
    with pytest.raises(InvalidJob) as caught:
        ask_verifier(house, upstream)
    assert caught.value.as_dict() == refusal.as_dict()


async def breaks_off(_reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
    await writer.drain()


async def ends(_reader, _writer):
    """It was killed in the middle of a dialogue."""


@pytest.mark.parametrize("answer", [None, ends, breaks_off])
def test_a_verifier_that_is_not_there_or_ends_is_a_refusal_that_says_to_try_again(house, upstream, answer):
    if answer is not None:
        upstream.start(answer)
    with pytest.raises(Unavailable) as caught:
        ask_verifier(house, upstream)
    assert caught.value.hint == "Try again."


def test_a_token_that_is_revoked_ends_the_connection_at_once(house, upstream):
    async def never(reader, _writer):
        await reader.read()  # until the other end closes

    upstream.start(never)
    task, connection = house.open("GET", "/v1/sites", token="ann")
    while not upstream.heads:
        house.run(asyncio.sleep(0))
    digest = hashlib.sha256(house.tokens["ann"].encode()).hexdigest()
    assert house.call("DELETE", f"/v1/tokens/{digest}", token="admin").status == 200
    house.run(task)
    assert connection.answer().code == "unauthorized"
    house.run(upstream.seen_end.wait())
