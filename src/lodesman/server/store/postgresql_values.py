"""Values on their way to PostgreSQL and back, as SQLite takes and gives them.

The server infers the types of all values: so a statement is prepared once, whichever of its values are None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from psycopg import adapters
from psycopg.adapt import AdaptersMap, Buffer, Dumper, Loader
from psycopg.types.numeric import Int8Dumper

# PostgreSQL keeps no such character in a text.
_NUL: Final = "\0"
NO_NUL: Final = "\N{REPLACEMENT CHARACTER}"


class _Integer(Int8Dumper):
    """A number of any width."""

    oid = 0


class _Float(Dumper):
    """Not a number is NULL."""

    def dump(self, obj: float) -> bytes | None:
        return None if math.isnan(obj) else repr(obj).encode()


class _Flag(Dumper):
    """0 or 1."""

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


class _Text(Dumper):
    def dump(self, obj: str) -> bytes:
        return (obj.replace(_NUL, NO_NUL) if _NUL in obj else obj).encode()


class _LoadedFlag(Loader):
    def load(self, data: Buffer) -> int:
        return int(data == b"t")


class _LoadedNumber(Loader):
    """A sum of integers."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


def _adapters() -> AdaptersMap:
    found = AdaptersMap(adapters)
    for kind, dumper in ((int, _Integer), (float, _Float), (bool, _Flag), (str, _Text)):
        found.register_dumper(kind, dumper)
    found.register_loader("bool", _LoadedFlag)
    found.register_loader("numeric", _LoadedNumber)
    return found


class _Context:
    """What a new connection takes its adapters from."""

    adapters = _adapters()
    connection = None


ADAPTERS: Final = _Context()


def _numbers(column: Sequence[Any]) -> str:
    text = str(list(column))[1:-1]
    return text.replace("None", "NULL").replace("nan", "NULL").replace("True", "1").replace("False", "0")


def _texts(column: Sequence[str | None]) -> str:
    return ",".join("NULL" if one is None else f'"{_quoted(one)}"' for one in column)


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text


def _blobs(column: Sequence[bytes | None]) -> str:
    return ",".join("NULL" if one is None else f'"\\\\x{one.hex()}"' for one in column)


_ELEMENTS: Final[dict[str, Callable[[Sequence[Any]], str]]] = {"text": _texts, "bytea": _blobs}


def array(kind: str, column: Sequence[Any]) -> str:
    """A column of values as the text of an array of a type."""
    return f"{{{_ELEMENTS.get(kind, _numbers)(column)}}}"
