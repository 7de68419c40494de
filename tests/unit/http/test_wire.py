"""Reading bodies within limits and deadlines, decoding them, and the one shape of errors."""

from __future__ import annotations

import asyncio
import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lodesman.base import errors
from lodesman.base.errors import (
    InvalidRequest,
    LodesmanError,
    ServerFault,
    SyntaxFault,
    TooLarge,
    Unavailable,
)
from lodesman.server.http import wire
from lodesman.wire.accounts import Principal

ANN, BOB = Principal(kind="user", name="ann"), Principal(kind="user", name="bob")
SERVICE = Principal(kind="service")


def read(chunks, *, limit=100, declared=None, end="body"):
    """What `read_body` makes of these chunks; `end`: what the client does then."""
    pending = list(chunks)

    async def receive():
        if pending:
            body = pending.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(pending) or end != "body"}
        if end == "gone":
            return {"type": "http.disconnect"}
        await asyncio.Event().wait()
        return {}

    async def run():
        headers = [] if declared is None else [(b"content-length", declared)]
        with wire.room_for({"headers": headers}, limit, ANN):
            return await wire.read_body(receive, limit)

    return asyncio.run(run()), len(pending)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_a_body_is_the_sum_of_its_parts(chunks):
    whole = b"".join(chunks)
    assert read(chunks, limit=200) == (whole, 0)
    assert read(chunks, limit=200, declared=b"%d" % len(whole))[0] == whole


@given(st.integers(1, 50), st.integers(1, 60))
def test_no_more_is_kept_than_the_limit(parts, size):
    chunks = [b"x" * size] * parts
    if parts > 1 and parts * size > 100:
        with pytest.raises(TooLarge) as caught:
            read(chunks, limit=100)
        assert caught.value.data["limit"] == 100
    else:
        assert len(read(chunks, limit=max(100, size))[0]) == parts * size


def test_a_body_that_announces_too_much_is_not_read_at_all():
    with pytest.raises(TooLarge) as caught:
        read([b"x"], declared=b"101")
    assert caught.value.data == {"limit": 100, "size": 101}


@pytest.mark.parametrize("declared", [b"", b"many", b"-5", b"1e3", "\N{SUPERSCRIPT TWO}".encode()])
def test_a_length_that_is_no_number_limits_nothing_and_breaks_nothing(declared):
    assert read([b"abc"], declared=declared)[0] == b"abc"


def test_a_client_that_goes_away_says_nothing_more():
    with pytest.raises(wire.Disconnected):
        read([b"half"], end="gone")
    with pytest.raises(wire.Disconnected):
        read([], end="gone", declared=b"0")


def test_a_task_that_is_cancelled_while_it_reads_stays_cancelled():
    async def never():
        await asyncio.Event().wait()

    async def run():
        task = asyncio.ensure_future(wire.read_body(never, 10))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(run())


@pytest.fixture
def take(monkeypatch):
    """Room for bodies of more than 5 bytes: 100 for those of more than 10, 80 of them for one caller; else 30 and 20."""
    monkeypatch.setattr(wire, "JOIN_BODY", 5)
    monkeypatch.setattr(wire, "SMALL_BODY", 10)
    monkeypatch.setattr(wire, "_LARGE", wire.BodyRoom(100, 80))
    monkeypatch.setattr(wire, "_SMALL", wire.BodyRoom(30, 20))
    return lambda declared, who=ANN: wire.room_for(
        {"headers": [(b"content-length", declared)] if declared else []}, 60, who
    )


def test_large_bodies_share_what_memory_there_is_for_them(take):
    with take(b"60"), take(b"10"):  # until they are answered, and not only read
        for declared in (b"60", b""):  # without a length it may become as long as is allowed
            with pytest.raises(Unavailable), take(declared, BOB):
                pass
    with pytest.raises(ValueError, match="bug"), take(b"60"):
        raise ValueError("bug")
    with take(b""):
        assert wire._LARGE.free == 40
    assert (wire._LARGE.free, wire._LARGE.taken) == (100, {})


def test_one_caller_leaves_room_to_others_with_whatever_token(take):
    with take(b"10"), take(b"10", replace(ANN, token=b"another")):
        with pytest.raises(Unavailable), take(b"10"):
            pass
        with take(b"5"), take(b"10", BOB):  # few bytes are not counted
            pass
    with take(b"10", SERVICE), take(b"10", SERVICE), take(b"10", SERVICE):
        pass


class Thing(msgspec.Struct):
    name: str
    count: int = 1


THING = msgspec.json.Decoder(Thing)


def test_a_good_body_is_decoded():
    assert wire.decode(THING, b'{"name": "x", "other": [1]}') == Thing("x")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b'{"name": "\xff"}', "not JSON"),
        (b'{"name": "\\ud800"}', "not JSON"),
        (b"{}", "name"),
        (b'{"name": 5}', "name"),
        (b'{"name": "x", "count": "5"}', "count"),
        (b'{"name": "x", "other": ' + b"[" * 100_000, "nested"),
        (b"[]", "array"),
        (b"null", "null"),
    ],
)
def test_a_bad_body_is_refused_with_what_is_wrong(body, word):
    with pytest.raises(InvalidRequest, match=word):
        wire.decode(THING, body)


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(body):
    with contextlib.suppress(InvalidRequest):
        assert isinstance(wire.decode(THING, body), Thing)


def test_a_header_is_found_by_its_name():
    scope = {"headers": [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]}
    assert (wire.header(scope, b"a"), wire.header(scope, b"b"), wire.header(scope, b"c")) == (b"1", b"2", b"")


def every_error():
    todo, found = [LodesmanError], []
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += [one for one in kind.__subclasses__() if one.__module__ == errors.__name__]
    return found


def example_of(kind):
    return kind("No.", line=1, column=2) if kind is SyntaxFault else kind("No.", hint="Do.", limit=5)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_each_error_has_a_status_and_one_shape(kind):
    status, headers, body = wire.error_answer(example_of(kind))
    assert 400 <= status < 600
    assert (status == 500) == (kind in (LodesmanError, ServerFault))
    told = json.loads(body)["error"]
    assert told["code"] == kind.code
    assert told["message"].endswith("No.")
    found = dict(headers)
    assert found[b"content-length"] == b"%d" % len(body)
    assert (b"retry-after" in found) == (status in (429, 503))
    assert (b"www-authenticate" in found) == (status == 401)
    assert (found.get(b"connection") == b"close") == (status in (413, 429))


def test_codes_and_statuses_belong_together():
    codes = {kind.code for kind in every_error() if kind is not LodesmanError}
    assert codes == set(wire.STATUS)
