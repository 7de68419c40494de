"""The moves between the states of a job: DIRAC's table as far as its states exist here (ADR 0026)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lodesman.answers.vocabulary import JobState

_S = JobState

# One more move is made: to Done, when a lost attempt turns out to have succeeded (`commands.report`).
_MOVES: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        _S.HELD: frozenset({_S.WAITING, _S.KILLED, _S.DELETED}),
        _S.WAITING: frozenset({_S.MATCHED, _S.HELD, _S.DELETED, _S.KILLED}),
        _S.MATCHED: frozenset({_S.RUNNING, _S.WAITING, _S.DONE, _S.FAILED, _S.KILLED}),
        _S.RUNNING: frozenset({_S.STALLED, _S.COMPLETING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.STALLED: frozenset({_S.RUNNING, _S.COMPLETING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.COMPLETING: frozenset({_S.STALLED, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.DONE: frozenset({_S.DELETED}),
        _S.FAILED: frozenset({_S.WAITING, _S.DELETED}),
        _S.KILLED: frozenset({_S.WAITING, _S.DELETED}),
        _S.DELETED: frozenset(),
    }
)

TERMINAL = frozenset({_S.DONE, _S.FAILED, _S.KILLED, _S.DELETED})
# A pilot has it: there is a live attempt.
ACTIVE = frozenset({_S.MATCHED, _S.RUNNING, _S.STALLED, _S.COMPLETING})


def may_move(old: JobState, new: JobState) -> bool:
    """Whether the move is in the table; a state never moves to itself."""
    return new in _MOVES[old]
