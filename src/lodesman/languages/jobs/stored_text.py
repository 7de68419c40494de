"""A description, or the key of a task queue, as the store has it: a JSON text that is read once for all questions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_NULL: Final = msgspec.Raw(b"null")

DAMAGED: Final = (msgspec.DecodeError, UnicodeError)
"""What all methods raise for a text that is no record in JSON."""


class StoredText:
    """Its members are decoded when they are asked for. A path has at most one record above the member."""

    __slots__ = ("_items", "_records", "_top")

    def __init__(self, text: str) -> None:
        self._top: Mapping[str, msgspec.Raw] = _MEMBERS.decode(text) or {}
        self._records: dict[str, Mapping[str, msgspec.Raw]] = {}
        self._items: dict[Sequence[str], Collection[str]] = {}

    def encoded(self, path: Sequence[str]) -> str:
        """A member as it is written; `null` without it."""
        return bytes(self._find(path)).decode()

    def value(self, path: Sequence[str]) -> Any:
        """A member; None without it."""
        return msgspec.json.decode(self._find(path))

    def items(self, path: Sequence[str]) -> Collection[str]:
        """The items of a list, each once, in their order."""
        if path not in self._items:
            found = self.value(path)
            several = found if isinstance(found, list) else () if found is None else (found,)
            self._items[path] = dict.fromkeys(map(str, several)).keys()
        return self._items[path]

    def _find(self, path: Sequence[str]) -> msgspec.Raw:
        *above, name = path
        record = self._record(above[0]) if above else self._top
        return record.get(name, _NULL)

    def _record(self, name: str) -> Mapping[str, msgspec.Raw]:
        if name not in self._records:
            self._records[name] = _MEMBERS.decode(self._top.get(name, _NULL)) or {}
        return self._records[name]
