"""What clients ask and hear that wait for jobs: `GET /v1/jobs/wait` and the events of `GET /v1/jobs/events`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.vocabulary import JobState

LONGEST_WAIT = 50
"""The server keeps one question for these seconds; a client asks again."""
MOST_RANGES = 1_000
MOST_ENDED = 10_000

_Seconds = Annotated[int, Meta(ge=0, le=LONGEST_WAIT)]
_Ended = Annotated[int, Meta(ge=0, le=MOST_ENDED)]


class WaitQuery(Struct, frozen=True, omit_defaults=True):
    """Jobs to wait for. It is answered when all of them have ended, or when one becomes Held."""

    jobs: str = ""  # `12,15,20-22`, at most 1,000 jobs or ranges.
    any: bool = False  # When one of them has ended.
    held: bool = False  # Jobs that are Held count as ended.
    seconds: _Seconds = LONGEST_WAIT  # It is answered after that at the latest.
    limit: _Ended = 100  # Of the jobs that the answer names.


class EventsQuery(Struct, frozen=True, omit_defaults=True):
    """Jobs whose changes are asked for."""

    jobs: str = ""  # As of `WaitQuery`.


class EndedJob(Struct, frozen=True):
    """A job that has ended, with what its last attempt said."""

    id: int
    state: JobState
    ended_at: float  # UNIX seconds.
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None


class Waited(Struct, frozen=True):
    """How the jobs stand that the caller may see."""

    over: bool  # What was waited for has come.
    left: int  # Jobs that have not ended.
    states: dict[JobState, int]  # How many are in which state.
    unknown: int = 0  # Jobs that were purged, so that it is not known how they ended.
    failed: EndedJob | None = None  # The Failed job with the lowest id, when the wait is over.
    jobs: list[EndedJob] = []  # Those that ended, the lowest ids first, when the wait is over.
    more: bool = False  # More jobs ended than `jobs` has.


class JobStates(Struct, frozen=True):
    """The data of the events `states`, which comes first, and `resync`: changes were left out, and this is how the jobs
    stand now.
    """

    states: dict[JobState, int]
    left: int
    unknown: int = 0


class StreamEnded(Struct, frozen=True):
    """The data of the event `end`, the last one of a stream that ends before its time."""

    # Of an error. With `unavailable` to ask again shows what the caller may see now; with another one it is of no
    # use.
    code: str
    message: str  # Why it ends.
    hint: str = ""


class StateChanged(Struct, frozen=True):
    """The data of an event `change`: the jobs from `first` to `last` went from one state to another."""

    first: int
    last: int
    old: JobState
    new: JobState
    cause: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
