"""Changes of what the writer keeps in memory, with their inverses: undone if the transaction fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class MemoryChanges:
    """The inverses of what was changed in memory, in `undo`."""

    __slots__ = ("undo",)

    def __init__(self) -> None:
        self.undo: list[Callable[[], object]] = []

    def put(self, memory: dict[K, V], key: K, value: V) -> None:
        """Put a value into memory."""
        undo = (
            partial(memory.__setitem__, key, memory[key]) if key in memory else partial(memory.pop, key, None)
        )
        self.undo.append(undo)
        memory[key] = value

    def drop(self, memory: dict[K, V], key: K) -> V | None:
        """Take a key out of memory; returns its value, None if it was not there."""
        value = memory.pop(key, None)
        if value is not None:
            self.undo.append(partial(memory.__setitem__, key, value))
        return value

    def add(self, memory: set[K], item: K) -> None:
        """Add an item to a set in memory."""
        if item not in memory:
            memory.add(item)
            self.undo.append(partial(memory.discard, item))

    def discard(self, memory: set[K], item: K) -> None:
        """Take an item out of a set in memory."""
        if item in memory:
            memory.discard(item)
            self.undo.append(partial(memory.add, item))

    def roll_back_memory(self) -> None:
        """Undo the changes in memory, newest first."""
        while self.undo:
            self.undo.pop()()
