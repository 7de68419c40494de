"""What clients ask and hear that wait for jobs: `GET /v1/jobs/wait` and the events of `GET /v1/jobs/events`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.vocabulary import JobState

LONGEST_WAIT = 50
"""Seconds that the server keeps one question; a client that waits longer asks again."""
MOST_RANGES = 1_000
MOST_ENDED = 10_000

_Seconds = Annotated[int, Meta(ge=0, le=LONGEST_WAIT)]
_Ended = Annotated[int, Meta(ge=0, le=MOST_ENDED)]


class WaitQuery(Struct, frozen=True, omit_defaults=True):
    """`jobs`: `12,15,20-22`, at most 1,000 jobs or ranges. Answered when all of them have ended (`any`: one of them; `held`:
    jobs that are Held count, too), when one becomes Held, and at the latest after `seconds`. `limit`: of the jobs that the
    answer names.
    """

    jobs: str = ""
    any: bool = False
    held: bool = False
    seconds: _Seconds = LONGEST_WAIT
    limit: _Ended = 100


class EventsQuery(Struct, frozen=True, omit_defaults=True):
    """`jobs`: as of `WaitQuery`."""

    jobs: str = ""


class EndedJob(Struct, frozen=True):
    """A job that has ended, with what its last attempt said; `ended_at` in UNIX seconds."""

    id: int
    state: JobState
    ended_at: float
    exit_code: int | None = None
    signal: int | None = None
    cause: str | None = None


class Waited(Struct, frozen=True):
    """How the jobs that the caller may see stand, by state. `over`: what was waited for has come. `left`: jobs that have not
    ended. `unknown`: jobs that were purged, so that it is not known how they ended. `failed`: the Failed job with the lowest
    id; `jobs`: those that ended, the lowest ids first, and `more` of them. Both are given when the wait is over.
    """

    over: bool
    left: int
    states: dict[JobState, int]
    unknown: int = 0
    failed: EndedJob | None = None
    jobs: list[EndedJob] = []
    more: bool = False


class JobStates(Struct, frozen=True):
    """The data of the events `states`, which comes first, and `resync`: changes were left out, and this is how the jobs
    stand now, by state.
    """

    states: dict[JobState, int]
    left: int
    unknown: int = 0


class StreamEnded(Struct, frozen=True):
    """The data of the event `end`, the last one of a stream that ends before its time: the `code` of an error, and why. With
    the code `unavailable` to ask again shows what the caller may see now; with another one it is of no use.
    """

    code: str
    message: str
    hint: str = ""


class StateChanged(Struct, frozen=True):
    """The data of an event `change`: the jobs from `first` to `last` went from state `old` to `new`."""

    first: int
    last: int
    old: JobState
    new: JobState
    cause: str | UnsetType = UNSET
    exit_code: int | UnsetType = UNSET
