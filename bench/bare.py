"""The floor of HTTP: the server's own connections, reading a body and answering a constant.

python bench/bare.py PORT
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvloop

from lodesman.server.main.connections import ConnectionGroup, HttpConnection

Message = MutableMapping[str, Any]
ANSWER = b'{"jobs":[' + b"x" * 350 + b'],"drain":false}'
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())],
}


async def app(
    _scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer everything with the same bytes."""
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send({"type": "http.response.body", "body": ANSWER})


async def serve(port: int) -> None:
    """Until it is killed."""
    serving = ConnectionGroup(app)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HttpConnection(serving), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(sys.argv[1])))
