"""Reading and answering requests on bare ASGI: limits on every input, one shape for every error."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar

import msgspec

from lodesman.errors import InvalidRequest, LodesmanError, TooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY_SECONDS = 30.0
SMALL_BODY = 1 << 20
REPORT_BODY = 8 << 20
SUBMIT_BODY = 32 << 20

STATUS = {
    "unauthorized": 401,
    "forbidden": 403,
    "not-found": 404,
    "conflict": 409,
    "too-large": 413,
    "syntax": 400,
    "invalid-job": 400,
    "invalid-request": 400,
    "invalid-config": 400,
    "impossible": 422,
    "unavailable": 503,
    "backend": 502,
}
T = TypeVar("T")

JSON_HEADERS = [(b"content-type", b"application/json")]


class Disconnected(Exception):
    """The client went away before it had said everything."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises TooLarge over `limit` bytes, InvalidRequest if it does not come in time."""
    declared = header(scope, b"content-length")
    if declared and declared.isdigit() and int(declared) > limit:
        raise TooLarge(f"The request is larger than {limit} bytes.", limit=limit, size=int(declared))
    message = await receive() if declared == b"0" else await _in_time(receive)
    if not message.get("more_body"):
        return _part(message, limit)
    parts, size = [_part(message, limit)], 0
    while message.get("more_body"):
        message = await _in_time(receive)
        parts.append(_part(message, limit))
        size = sum(map(len, parts))
        if size > limit:
            raise TooLarge(f"The request is larger than {limit} bytes.", limit=limit)
    return b"".join(parts)


async def _in_time(receive: Receive) -> MutableMapping[str, Any]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await receive()
    except TimeoutError:
        raise InvalidRequest(f"The request was not complete after {BODY_SECONDS:.0f} seconds.") from None


def _part(message: MutableMapping[str, Any], limit: int) -> bytes:
    if message["type"] == "http.disconnect":
        raise Disconnected
    body: bytes = message.get("body", b"")
    if len(body) > limit:
        raise TooLarge(f"The request is larger than {limit} bytes.", limit=limit)
    return body


def header(scope: Scope, name: bytes) -> bytes:
    """One header, b'' if absent."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value)
    return b""


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """A checked body. Raises InvalidRequest that names what is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as wrong:
        raise InvalidRequest(f"The request does not fit its description: {wrong}.") from None
    except msgspec.DecodeError as wrong:
        raise InvalidRequest(f"The request is not JSON: {wrong}.") from None
    except RecursionError:
        raise InvalidRequest("The request is nested too deeply.") from None


async def send_json(send: Send, body: bytes, status: int = 200) -> None:
    """Answer with JSON that is already encoded."""
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: LodesmanError) -> None:
    """Answer with an error in its one shape."""
    status = STATUS.get(error.code, 500)
    body = msgspec.json.encode({"error": error.as_dict()})
    headers = [*JSON_HEADERS, (b"content-length", str(len(body)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 413:
        # The rest of the body is not read: the connection cannot be used again.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
