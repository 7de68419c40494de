"""The floor of HTTP: uvicorn as the server runs it, reading a body and answering a constant.

python bench/bare.py PORT
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]
ANSWER = b'{"jobs":[' + b"x" * 350 + b'],"drain":false}'
START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())],
}


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer everything with the same bytes."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send(START)
    await send({"type": "http.response.body", "body": ANSWER})


if __name__ == "__main__":
    uvicorn.run(
        app, host="127.0.0.1", port=int(sys.argv[1]), loop="uvloop", http="httptools", ws="none", lifespan="off",
        log_config=None, access_log=False, server_header=False, date_header=False,
    )  # fmt: skip
