"""Connections that read beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from lodesman.server.store import Reader

_T = TypeVar("_T")


class ReaderBeside:
    """A reader for one thread at a time."""

    def __init__(self, db: Reader) -> None:
        self.db = db
        self.lock = asyncio.Lock()

    async def read(self, function: Callable[..., _T], *values: Any, **named: Any) -> _T:
        """`function(reader, *values)` in a thread, to its end also if its caller has gone."""
        return await asyncio.shield(self._read(function, *values, **named))

    async def _read(self, function: Callable[..., _T], *values: Any, **named: Any) -> _T:
        async with self.lock:
            return await asyncio.to_thread(function, self.db, *values, **named)
