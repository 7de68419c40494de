"""States of a job and the moves allowed between them (DESIGN 3.2; DIRAC's table plus Held).

A claim of attempt n is the move Waiting -> Matched; `Rescheduled` is virtual in DIRAC and not a
state here: a job that goes back simply becomes Waiting again, with an event that says why.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """Where a job is. The value is the word users see."""

    SUBMITTING = "Submitting"
    RECEIVED = "Received"
    CHECKING = "Checking"
    STAGING = "Staging"
    HELD = "Held"
    WAITING = "Waiting"
    MATCHED = "Matched"
    RUNNING = "Running"
    STALLED = "Stalled"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    DONE = "Done"
    FAILED = "Failed"
    KILLED = "Killed"
    DELETED = "Deleted"


_S = JobState

MOVES: dict[JobState, frozenset[JobState]] = {
    _S.SUBMITTING: frozenset({_S.RECEIVED, _S.CHECKING, _S.DELETED, _S.KILLED}),
    _S.RECEIVED: frozenset({_S.CHECKING, _S.WAITING, _S.FAILED, _S.DELETED, _S.KILLED}),
    _S.CHECKING: frozenset({_S.STAGING, _S.WAITING, _S.HELD, _S.FAILED, _S.DELETED, _S.KILLED}),
    _S.STAGING: frozenset({_S.CHECKING, _S.WAITING, _S.FAILED, _S.KILLED}),
    _S.HELD: frozenset({_S.CHECKING, _S.WAITING, _S.KILLED, _S.DELETED}),
    _S.WAITING: frozenset({_S.MATCHED, _S.CHECKING, _S.HELD, _S.DELETED, _S.KILLED}),
    _S.MATCHED: frozenset({_S.RUNNING, _S.WAITING, _S.DONE, _S.FAILED, _S.KILLED}),
    _S.RUNNING: frozenset({_S.STALLED, _S.COMPLETING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
    _S.STALLED: frozenset({_S.RUNNING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
    _S.COMPLETING: frozenset({_S.DONE, _S.FAILED, _S.COMPLETED, _S.STALLED, _S.KILLED}),
    _S.COMPLETED: frozenset({_S.DONE, _S.FAILED}),
    _S.DONE: frozenset({_S.DELETED}),
    _S.FAILED: frozenset({_S.WAITING, _S.CHECKING, _S.DELETED}),
    _S.KILLED: frozenset({_S.WAITING, _S.CHECKING, _S.DELETED}),
    _S.DELETED: frozenset(),
}

TERMINAL = frozenset({_S.DONE, _S.COMPLETED, _S.FAILED, _S.KILLED, _S.DELETED})
ACTIVE = frozenset({_S.MATCHED, _S.RUNNING, _S.STALLED, _S.COMPLETING})


def may_move(old: JobState, new: JobState) -> bool:
    """Is the move in the table? A state never moves to itself."""
    return new in MOVES[old]
