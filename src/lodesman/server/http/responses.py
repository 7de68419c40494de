"""Answers that are no JSON of a call: texts, and files, whole or in part."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from lodesman.base.errors import InvalidRequest
from lodesman.server.http.wire import Receive, Scope, Send, header, send_answer

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
