"""Tar archives that may be meant to harm, read member by member with little memory whatever their headers claim."""

from __future__ import annotations

import gzip
import math
import re
import tarfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Callable, cast

# What `members` raises for an archive that cannot be read.
DAMAGED = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, ValueError, RecursionError)
# tarfile reads names and other extensions of a header in one piece, whatever length they claim, and keeps those of
# headers that follow one another. All that stands before the content of one member is counted together.
_MAX_HEADER = 4 << 20
# Characters that steer a terminal, or turn the direction of what it shows.
_STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class GuardedStream:
    """A stream whose `check` may raise before each read."""

    def __init__(self, stream: BinaryIO, check: Callable[[int], None]) -> None:
        self._stream = stream
        self._check = check
        self.seek = stream.seek
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        """Check, and read."""
        self._check(size)
        return self._stream.read(size)


def members(raw: BinaryIO) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Members of a tar archive, plain or gzip, each to be read before the next. Raises what is in `DAMAGED`."""
    left: float = _MAX_HEADER

    def check(size: int) -> None:
        nonlocal left
        left -= size
        if size < 0 or left < 0:
            raise tarfile.ReadError("it has a header that is too long")

    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    stream = cast("BinaryIO", gzip.GzipFile(fileobj=raw)) if packed else raw
    with tarfile.open(fileobj=cast("BinaryIO", GuardedStream(stream, check)), mode="r:") as tar:
        while (member := tar.next()) is not None:
            if member.size < 0:
                raise tarfile.ReadError("it has a member of negative size")
            left = math.inf
            yield tar, member
            left = _MAX_HEADER
            # They would be kept to the end.
            tar.members.clear()  # type: ignore[attr-defined]
            tar.pax_headers = {}


def steers(name: str) -> bool:
    """Whether a name has characters that steer a terminal."""
    return _STEERS.search(name) is not None
