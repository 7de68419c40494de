"""How the commands of a batch system are run: on this machine, or on another one by SSH."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["CommandResult", "Runner"]


class CommandResult(NamedTuple):
    """A command that ended. Bytes that are no UTF-8 are replaced."""

    code: int  # 128 + n for an end by signal n
    out: str
    err: str


class Runner(Protocol):
    """Where and as whom commands run. All words arrive as they are: no shell changes them."""

    def run(self, words: Sequence[str], *, stdin: bytes = b"", seconds: float = 60.0) -> CommandResult:
        """Run a command to its end, with `LC_ALL=C`. Raises BackendFault, transient: it cannot be started, or was
        killed after this time, and may have had its effect.
        """
