"""The last 64 kB of a payload's standard output and error, as text that any store can keep."""

from __future__ import annotations

import os
from collections.abc import Sequence

TAIL_BYTES = 65_536


def read_tail(streams: Sequence[tuple[str, int]], limit: int = TAIL_BYTES) -> str:
    """The tails of some (name, open file descriptor), together at most `limit` bytes of UTF-8."""
    return join_tails([(name, _last(descriptor, limit)) for name, descriptor in streams], limit)


def join_tails(streams: Sequence[tuple[str, bytes]], limit: int = TAIL_BYTES) -> str:
    """One text out of the ends of some streams; its name goes before each, if two have content."""
    full = [(name, content) for name, content in streams if content]
    if not full:
        return ""
    if len(full) == 1:
        return _clean(full[0][1], limit)
    parts = []
    left = limit
    # The shortest first: what it leaves over is the others'.
    for shares, (name, content) in zip(range(len(full), 0, -1), sorted(full, key=lambda item: len(item[1]))):
        head = _clean(f"--- {name} ---\n".encode("utf-8", "replace"), 300)
        body = _clean(content, left // shares - len(head.encode()) - 1)
        part = head + body + ("" if body.endswith("\n") else "\n")
        left -= len(part.encode())
        parts.append((name, part))
    order = [name for name, _ in full]
    return "".join(part for _, part in sorted(parts, key=lambda item: order.index(item[0])))


def _clean(content: bytes, limit: int) -> str:
    """The end of `content` as text without NUL, at most `limit` bytes when encoded."""
    if limit <= 0:
        return ""
    raw = content[-limit:]
    if len(content) > limit:
        # Not to begin inside a character: its later bytes are 10xxxxxx, three at most.
        while raw and raw[0] & 0xC0 == 0x80 and len(raw) > limit - 3:
            raw = raw[1:]
    text = raw.decode("utf-8", "replace").replace("\0", "\ufffd")
    # What replaces a bad byte is longer than it.
    return text.encode()[-limit:].decode("utf-8", "ignore")


def _last(descriptor: int, limit: int) -> bytes:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, limit, max(0, size - limit))
