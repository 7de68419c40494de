"""The protocol of a batch system: submit copies of a pilot, ask for their states, cancel them.

All calls block and are safe from several threads. A pilot that the batch system does not list is UNKNOWN. When the
system cannot be asked, each call but `submit` raises `BackendFault`, with `transient=True` if the same call may
succeed later.

A pilot is known by its stamp and its native id. A native id may be given out again: a backend compares both, and
answers UNKNOWN where they do not belong together.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from lodesman.decide.resources import QueueId

_SUBMISSION: Final = re.compile(r"[A-Za-z0-9_]{1,48}")
OUTPUT_BYTES: Final = 64 << 10
"""How much of a pilot's output is shown: its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotSpec:
    """One submission: `count` copies of one pilot, numbered from 1. In cores, MB and seconds, 0 means no
    requirement.

    Nothing in it is a file of the server. A copy runs `PYTHON PROGRAM --file FILE --copy NUMBER` in a folder of its
    own: `program` (a zipapp) is in PROGRAM, `pilot_file` in FILE with mode 0600, since no argument, environment or
    log may show this secret.
    """

    queue: QueueId
    submission: str
    count: int
    program: bytes = field(repr=False)
    pilot_file: bytes = field(repr=False)
    python: str = "python3"
    cores: int = 1
    memory_mb: int = 0
    wall_seconds: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()  # words for the submit command, as an administrator gave them
    forwards: bool = False  # what is behind the queue chooses where the copies run

    def stamps(self) -> dict[int, str]:
        """Number -> stamp of all copies."""
        return {number: stamp_of(self.submission, number) for number in range(1, self.count + 1)}


def stamp_of(submission: str, number: int) -> str:
    """The stamp of a copy."""
    return f"{submission}-{number}"


def split_stamp(stamp: str) -> tuple[str, int] | None:
    """The submission and the number of a copy; None for a text that is no stamp of a copy."""
    submission, dash, number = stamp.rpartition("-")
    if dash and number.isascii() and number.isdigit() and _SUBMISSION.fullmatch(submission):
        return submission, int(number)
    return None


def join_token_of(secret: str, number: int) -> str:
    """The join token of a copy; neither the secret nor other tokens follow from it. The pilot derives it likewise
    (`pilot.context.parse_pilot_file`).
    """
    return hmac.new(secret.encode(), str(number).encode(), hashlib.sha256).hexdigest()


def why_unusable(spec: PilotSpec) -> str:
    """Why no process can have these words and this environment; '' if one can."""
    if not _SUBMISSION.fullmatch(spec.submission):
        return "a submission has 1 to 48 letters, digits and '_'"
    texts = (spec.python, *spec.options, *spec.environment, *spec.environment.values())
    if any("\0" in text for text in texts) or any("=" in name or not name for name in spec.environment):
        return "the command or the environment contains a character that no process can have"
    try:
        for text in texts:
            os.fsencode(text)
    except UnicodeEncodeError:
        return "the command or the environment cannot be encoded"
    return ""


class SubmitRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a copy was not submitted; `transient`: the same call may succeed later."""

    reason: str
    transient: bool


class SubmitResult(msgspec.Struct, frozen=True, kw_only=True):
    """Each stamp is a key of at most one of the two. Of one in neither it is not known whether it was submitted: a
    census finds out.
    """

    # Its native id, which outlasts a restart and means something to people there.
    accepted: Mapping[str, str] = msgspec.field(default_factory=dict)
    refused: Mapping[str, SubmitRefusal] = msgspec.field(default_factory=dict)


def refuse_all(spec: PilotSpec, reason: str, *, transient: bool) -> SubmitResult:
    """Refuse all copies for one reason."""
    return SubmitResult(
        refused=dict.fromkeys(spec.stamps().values(), SubmitRefusal(reason=reason, transient=transient))
    )


class NativeState(StrEnum):
    """The state of a pilot in the batch system. ENDED is final: no process is left. HELD does not start by itself."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


class NativeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One observation of one pilot; times in UNIX seconds, None and '' where they are not known."""

    state: NativeState
    observed_at: float
    exit_code: int | None = None  # 128 + n for an end by signal n
    detail: str = ""  # a sentence for people
    word: str = ""  # the state in the batch system's words, with its reason
    host: str = ""  # where it runs or ran
    started_at: float | None = None
    ended_at: float | None = None


class CancelOutcome(StrEnum):
    """REMOVED: it never starts. ORDERED: it runs and was ordered to end. ENDED: it had ended. UNKNOWN: no such
    pilot is known. FAILED: the order did not arrive, so cancel again.
    """

    REMOVED = "removed"
    ORDERED = "ordered"
    ENDED = "ended"
    UNKNOWN = "unknown"
    FAILED = "failed"


class BatchLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A queue at `observed_at` (UNIX seconds); None: unknown. `waiting`, `running` and `held` count our pilots by
    the batch system's list.
    """

    observed_at: float
    fault: str = ""  # why nothing newer is known
    credential: str = ""  # why nothing may be submitted with what the system is asked with
    waiting: int | None = None
    running: int | None = None
    held: int | None = None
    others_waiting: int | None = None  # jobs that are none of ours
    others_running: int | None = None  # jobs that are none of ours
    slots: int | None = None  # pilots that can run there at once, with those that run
    free_cores: int | None = None  # cores that no job has


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """The most of one submission: copies, and bytes of its script with all that travels in it."""

    copies: int = 1_000
    script_bytes: int = 4 << 20


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a queue would ever run such a pilot, in the batch system's words; None: it does not say. `final`:
    that does not pass by itself.
    """

    possible: bool | None
    detail: str = ""
    final: bool = False


class Backend(Protocol):
    """The calls; tests/contract runs on every implementation."""

    sizes: Sizes

    def submit(self, spec: PilotSpec) -> SubmitResult:
        """Submit all copies; refusals do not raise. A known submission is refused: it never runs twice. Raises
        BackendFault if it is not known whether any copy was submitted.
        """

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """Stamp -> status, one for each of `pilots` (stamp -> native id)."""

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """Order pilots (stamp -> native id) to end; asking twice does no harm."""

    def census(self) -> dict[str, str]:
        """Stamp -> native id of all pilots that the system remembers, ended ones too."""

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, BatchLoad]:
        """The loads of these queues, asked for together."""

    def check(self, spec: PilotSpec) -> Check:
        """Ask without submitting anything."""

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """The end of what a pilot wrote, at most OUTPUT_BYTES, also after its end; None if nothing is kept."""

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Remove what is kept of ended pilots (stamp -> native id)."""
