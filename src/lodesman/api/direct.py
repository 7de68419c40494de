"""Calls without a task of their own: what pilots ask thousands of times a second (ADR 0021).

A direct call gets the whole body and a place for its answer, and returns at once. The web server's protocol
(`daemon.connections`) makes them straight from the parser; `answer` serves the same call behind plain ASGI.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from lodesman.api.wire import (
    SMALL_BODY,
    Answer,
    Disconnected,
    Headers,
    Receive,
    Scope,
    Send,
    error_answer,
    read_body,
    send_answer,
)
from lodesman.errors import LodesmanError, Unavailable

log = logging.getLogger(__name__)

# Status, headers, body; called once, on the event loop, unless the client went away before.
Reply = Callable[[int, Headers, bytes], None]


class Asked(Protocol):
    """A call on its way."""

    def gone(self) -> None:
        """The client hung up."""

    def end_soon(self) -> None:
        """The server is about to end: answer without further waiting."""


Call = Callable[[Scope, bytes, Reply], Asked]


def begin(call: Call, scope: Scope, body: bytes, reply: Reply) -> Asked | None:
    """Make the call. None if it was refused, which has been replied."""
    try:
        return call(scope, body, reply)
    except LodesmanError as error:
        reply(*error_answer(error))
    except Exception as bug:  # a bug costs one request, never the server
        reply(*failed(scope["path"], bug))
    return None


def failed(path: str, bug: Exception) -> Answer:
    """The answer to a request that met a bug, which is logged with its traceback."""
    log.error("a request failed", exc_info=bug, extra={"path": path})
    return error_answer(Unavailable("The server failed to answer this; its log says why."))


async def answer(call: Call, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a direct call behind ASGI. Raises Disconnected when the client hangs up before there is an answer."""
    done: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def reply(status: int, headers: Headers, text: bytes) -> None:
        if not done.done():
            done.set_result((status, headers, text))

    def hung_up(_gone: object) -> None:
        done.cancel()

    asked = begin(call, scope, await read_body(scope, receive, SMALL_BODY), reply)
    gone = asyncio.ensure_future(receive())
    gone.add_done_callback(hung_up)
    try:
        await asyncio.wait({done})
    finally:
        gone.remove_done_callback(hung_up)
        gone.cancel()
        answered = done.done() and not done.cancelled()
        if asked is not None and not answered:
            asked.gone()
    if not answered:
        raise Disconnected
    await send_answer(send, *done.result())
