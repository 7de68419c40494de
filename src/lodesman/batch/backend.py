"""The protocol of a batch system: submit copies of a pilot, ask for their states, cancel them.

All calls block and are safe from several threads. For every backend, an id that the batch system does not know is
UNKNOWN, neither ended nor failed; and when the system cannot be asked, the caller keeps what it knew: `status`, `cancel`
and `census` raise `BackendFault` with `transient=True`, and the numbers of `load` are None.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from lodesman.resources import QueueId

# Stands in a command for the absolute path of the copy's own pilot file on the worker node.
PILOT_FILE: Final = "{pilot_file}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotCopy:
    """One pilot to be submitted. Its file holds a secret: no argument, environment or log shows it, and its mode is 0600."""

    stamp: str
    pilot_file: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSpec:
    """What all copies of one submission share; 0 means no requirement.

    `command` is an argument list, never a shell text; each occurrence of `PILOT_FILE` in it is replaced.
    """

    queue: QueueId
    command: tuple[str, ...]
    cores: int = 1
    memory_mb: int = 0
    wall_seconds: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def unusable(spec: PilotSpec) -> str:
    """Why no process can have this command and environment; empty if one can."""
    if not spec.command:
        return "the command is empty"
    texts = (*spec.command, *spec.environment, *spec.environment.values())
    if any("\0" in text for text in texts) or any("=" in name or not name for name in spec.environment):
        return "the command or the environment contains a character that no process can have"
    try:
        for text in texts:
            os.fsencode(text)
    except UnicodeEncodeError:
        return "the command or the environment cannot be encoded"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitRefusal:
    """Why one copy was not submitted; `transient`: the same call may succeed later."""

    reason: str
    transient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitResult:
    """Each stamp of a submission is a key of exactly one of the two.

    `accepted` gives the native id, a text that the same backend understands after a restart too.
    """

    accepted: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, SubmitRefusal] = field(default_factory=dict)


class NativeState(StrEnum):
    """The state of a pilot in the batch system. ENDED is final and means that no process is left."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeStatus:
    """One observation of one pilot. `exit_code` is 128 + n for an end by signal n, and None if not known;
    `detail` is a sentence for people; `observed_at` is in UNIX seconds.
    """

    state: NativeState
    observed_at: float
    exit_code: int | None = None
    detail: str = ""


class CancelOutcome(StrEnum):
    """The result of a cancel.

    REMOVED: it waited and never starts. ORDERED: it runs and was ordered to end. ENDED: it had ended.
    UNKNOWN: no such pilot is known. FAILED: the order did not arrive, so cancel again.
    """

    REMOVED = "removed"
    ORDERED = "ordered"
    ENDED = "ended"
    UNKNOWN = "unknown"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLoad:
    """How many pilots of a queue wait and run at `observed_at` (UNIX seconds), and how many can run at once; None means
    unknown.
    """

    waiting: int | None
    running: int | None
    observed_at: float
    slots: int | None = None


class Backend(Protocol):
    """The five calls; the contract suite (tests/contract) runs on every implementation."""

    def submit(self, spec: PilotSpec, copies: Sequence[PilotCopy]) -> SubmitResult:
        """Submit all copies; a copy that fails is refused alone. Does not raise if the batch system refuses."""

    def status(self, native_ids: Sequence[str]) -> dict[str, NativeStatus]:
        """One answer for each id that was asked. Raises BackendFault."""

    def cancel(self, native_ids: Sequence[str]) -> dict[str, CancelOutcome]:
        """Order waiting and running pilots to end; asking twice does no harm. Raises BackendFault."""

    def census(self, stamps: Sequence[str] | None = None) -> dict[str, str]:
        """Stamp -> native id of the pilots that the system remembers, ended ones too; None: of all. Raises BackendFault."""

    def load(self, queue: QueueId) -> BatchLoad:
        """The load of one queue, None where it is unknown. Does not raise."""
