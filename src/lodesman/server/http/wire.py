"""Requests and answers on bare ASGI: limits on every input, one shape for every error."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from lodesman.base.errors import InvalidRequest, LodesmanError, TooLarge, Unavailable
from lodesman.wire.accounts import Principal
from lodesman.wire.call import JOIN_BODY, SMALL_BODY
from lodesman.wire.requests import Paged

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# The time limit of a body: BODY_SECONDS, and a second more for each SLOWEST_BYTES.
BODY_SECONDS = 30.0
SLOWEST_BYTES = 1 << 16

STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "conflict": 409,
    "too-large": 413,
    "storage-full": 413,
    "syntax": 400,
    "invalid-job": 400,
    "invalid-request": 400,
    "invalid-config": 400,
    "impossible": 422,
    "unavailable": 503,
    "server-fault": 500,
    "too-often": 429,
    "backend": 502,
}
_T = TypeVar("_T")

_BOUND = re.compile(
    r"Expected `(\w+)`( of length)? (>=|<=|matching regex) (.+) - at `(.+)`", re.ASCII | re.DOTALL
)
_BOUNDS = {">=": "at least", "<=": "at most"}
_ENTRIES = ("entry", "entries")
_UNITS = {"str": ("character", "characters"), "array": _ENTRIES, "object": _ENTRIES}
# By a part of the pattern (`bodies`).
_PATTERNS = {
    "A-Za-z0-9._@-": "only letters, digits and . _ @ - may stand in it",
    "0-9a-f": "64 hexadecimal digits in lower case",
    "jdl|cfg|json": "one of jdl, cfg, json",
}

Headers = list[tuple[bytes, bytes]]
# Status, headers and body.
Answer = tuple[int, Headers, bytes]

METRICS_TYPE = b"text/plain; version=0.0.4"
_JSON = (b"content-type", b"application/json")
_HEADERS: dict[int, Headers] = {
    401: [(b"www-authenticate", b"Bearer")],
    # The rest of the body is not read: the connection cannot be used again.
    413: [(b"connection", b"close")],
    429: [(b"retry-after", b"1"), (b"connection", b"close")],
    503: [(b"retry-after", b"1")],
}
# Of a request that the hot process forwards: nobody else may say it.
ORIGIN = b"x-lode-origin"


class Disconnected(Exception):
    """The client went away before the request was complete."""


@dataclass(slots=True)
class BodyRoom:
    """Memory that bodies of one kind may take. Belongs to one event loop."""

    free: int  # bytes
    most_of_one: int  # what one caller may take, unless it is a process of the server
    taken: Counter[tuple[str, str, int]] = field(default_factory=Counter)


_SMALL, _LARGE = BodyRoom(64 << 20, 16 << 20), BodyRoom(96 << 20, 48 << 20)


@contextmanager
def room_for(scope: Scope, limit: int, who: Principal) -> Iterator[None]:
    """Around a request with a body, whose bytes are taken from those for its kind. Raises TooLarge, Unavailable while
    others, or the caller, take all.
    """
    declared = content_length(scope)
    size = limit if declared is None else declared
    if size > limit:
        raise TooLarge(f"The request is larger than {limit} bytes.", limit=limit, size=size)
    if size <= JOIN_BODY:  # those are not counted
        yield
        return
    room, caller = _LARGE if size > SMALL_BODY else _SMALL, (who.kind, who.name, who.pilot_id)
    own = 0 if who.kind == "service" else room.taken[caller]
    if size > room.free or own + size > room.most_of_one:
        raise Unavailable("Too many large requests are on their way.", hint="Try again in a moment.")
    room.free -= size
    room.taken[caller] += size
    try:
        yield
    finally:
        room.free += size
        room.taken[caller] -= size
        if not room.taken[caller]:
            del room.taken[caller]


async def read_body(receive: Receive, limit: int) -> bytes:
    """Raises TooLarge over `limit` bytes, Disconnected when the client goes away or is too slow (`main.guarded`)."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise TooLarge(f"The request is larger than {limit} bytes.", limit=limit)
        more = message.get("more_body", False)
    return b"".join(parts)


async def gone(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, _T]) -> _T:
    """The result, if the client stays for it. Raises Disconnected."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Disconnected
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()


def header(scope: Scope, name: bytes) -> bytes:
    """One header, b'' if absent."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def origin_of(scope: Scope) -> str:
    """The address that a request comes from, '' if it has none."""
    client = scope.get("client")
    return str(client[0]) if client else header(scope, ORIGIN).decode("latin-1")


def content_length(scope: Scope) -> int | None:
    """None if the head does not say it as a number."""
    declared = header(scope, b"content-length")
    return int(declared) if declared.isdigit() else None


def decode(decoder: msgspec.json.Decoder[_T], body: bytes) -> _T:
    """Raises InvalidRequest that names what is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as wrong:
        raise InvalidRequest(_in_words(str(wrong))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
        raise InvalidRequest(f"The request is not JSON: {wrong}.") from None
    except RecursionError:
        raise InvalidRequest("The request is nested too deeply.") from None


def _in_words(wrong: str) -> str:
    """For people where it is about bounds, lengths and patterns."""
    match = _BOUND.fullmatch(wrong)
    if match is None:
        return f"The request does not fit its description: {wrong}."
    kind, length, bound, value, place = match.groups()
    if bound in _BOUNDS:
        unit = f" {_UNITS.get(kind, _ENTRIES)[float(value) != 1]}" if length else ""
        needed = f"{_BOUNDS[bound]} {float(value):,.15g}{unit}"
    else:
        needed = next((words for part, words in _PATTERNS.items() if part in value), f"it must match {value}")
    return f"{place.removeprefix('$.')}: {needed}."


async def send_answer(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send it whole."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def json_answer(body: bytes, status: int = 200) -> Answer:
    """Of encoded JSON."""
    return status, [_JSON, (b"content-length", b"%d" % len(body))], body


def metrics_answer(text: bytes) -> Answer:
    """What Prometheus scrapes."""
    return 200, [(b"content-type", METRICS_TYPE), (b"content-length", b"%d" % len(text))], text


def error_answer(error: LodesmanError) -> Answer:
    """An error in its one shape."""
    body = msgspec.json.encode({"error": error.as_dict()})
    status, headers, _ = json_answer(body, STATUS.get(error.code, 500))
    return status, headers + _HEADERS.get(status, []), body


# --- pages: a cursor names the last row of one; clients give it as `after` and need not know what it says ------------------

_R = TypeVar("_R")


def page(
    rows: Sequence[_R], limit: int, cursor_of: Callable[[_R], object]
) -> tuple[list[_R], dict[str, Any]]:
    """At most `limit` rows, and what the answer says of the others: `more`, `cursor`."""
    some = list(rows[:limit])
    if len(rows) <= limit:
        return some, {}
    return some, {"more": True, "cursor": str(cursor_of(some[-1])) if some else ""}


def page_after(
    rows: Iterable[_R], query: Paged, cursor_of: Callable[[_R], object]
) -> tuple[list[_R], dict[str, Any]]:
    """The page of a whole list that a query asks for. Raises InvalidRequest if the row of its cursor is gone."""
    left = iter(rows)
    if query.after and not any(str(cursor_of(row)) == query.after for row in left):
        raise InvalidRequest(
            "The row that `after` names is not in the list any more.", hint="Begin again without it."
        )
    return page(list(islice(left, query.limit + 1)), query.limit, cursor_of)


# --- answers that are no JSON of a call: texts, and files, whole or in part ----------------------------------------------

_CHUNK: Final = 1 << 18
_RANGE: Final = re.compile(rb"bytes=([0-9]{1,18})?-([0-9]{1,18})?")


class Response:
    """A text or bytes."""

    def __init__(
        self,
        body: bytes = b"",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str = "",
    ) -> None:
        named = dict(headers or {}) | ({"content-type": media_type} if media_type else {})
        self.body, self.status = body, status
        self.headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [pair for pair in self.headers if pair[0] != b"content-length"]
        length = (b"content-length", b"%d" % len(self.body))
        await send_answer(send, self.status, [*headers, length], self.body)


class FileResponse(Response):
    """A file, or the part that a `Range` asks for."""

    def __init__(self, path: Path, *, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(headers=headers, media_type=media_type)
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Piece by piece, read in threads. Raises OSError if it cannot be opened, InvalidRequest."""
        file = await asyncio.to_thread(self.path.open, "rb")
        with closing(file):
            size = os.fstat(file.fileno()).st_size
            headers = [*self.headers, (b"accept-ranges", b"bytes")]
            part = None if header(scope, b"if-range") else asked_part(header(scope, b"range"), size)
            begin, end = (0, size) if part is None else part
            if part is not None:
                where = b"%d-%d" % (begin, end - 1) if begin < end else b"*"
                headers.append((b"content-range", b"bytes %b/%d" % (where, size)))
            status = 200 if part is None else 206 if begin < end else 416
            headers.append((b"content-length", b"%d" % (end - begin)))
            await send({"type": "http.response.start", "status": status, "headers": headers})
            file.seek(begin)
            left = 0 if scope["method"] == "HEAD" else end - begin
            while left > 0:
                piece = await asyncio.to_thread(file.read, min(left, _CHUNK))
                if not piece:
                    return  # it became shorter: the connection ends, so that the client sees it
                left -= len(piece)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def asked_part(text: bytes, size: int) -> tuple[int, int] | None:
    """Begin and end, equal if there is no such part; None: the whole file. Raises InvalidRequest."""
    if not text:
        return None
    match = _RANGE.fullmatch(text.strip())
    first, last = match.groups(b"") if match else (b"", b"")
    if not (first or last) or (first and last and int(last) < int(first)):
        raise InvalidRequest(
            "Range must be one part in bytes, such as bytes=0-499, bytes=500- or bytes=-500."
        )
    if not first:
        return max(0, size - int(last)) if int(last) else size, size
    begin = int(first)
    return min(begin, size), max(min(begin, size), min(size, int(last) + 1) if last else size)
