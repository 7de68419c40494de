"""States of a job, the moves between them, and who makes them (DESIGN 3.2; DIRAC's table as far as it exists here).

A claim of attempt n is the move Waiting -> Matched; `Rescheduled` is virtual in DIRAC and not a
state here: a job that goes back simply becomes Waiting again, with an event that says why. What DIRAC does between the
submission and Waiting is one transaction here, so it has no states (ADR 0026).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from lodesman.answers.vocabulary import JobState

_S = JobState

# A submission leads to one of these.
FIRST = frozenset({_S.WAITING, _S.HELD})
# One move more is made and is in no table: to Done, when a lost attempt turns out to have succeeded (`services.report`).
MOVES: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who moves a job on from a state, and what moves it on if that one never does.

    `timer` names a setting of the server's file as `section.option`.
    """

    who: str
    timer: str


_LEASE = "the lease, `pilots.lease_seconds`: the attempt ends, and the job waits again"

# No state lasts for ever without somebody whose turn it is (reference/dirac.md, I8).
OWNERS: Mapping[JobState, Owner] = MappingProxyType(
    {
        _S.HELD: Owner(
            who="whoever may release it; of what no queue can run, the pass over the configuration",
            timer="`submit_pools.refresh_seconds`; none for what a person holds: that is up to a person",
        ),
        _S.WAITING: Owner(
            who="the claim of a pilot that fits, for which the director cares",
            timer="`director.PollingTime`: pilots are sent; `submit_pools.refresh_seconds`: what no queue can run any "
            "more is Held",
        ),
        _S.MATCHED: Owner(who="the pilot that claimed it: it says when the payload runs", timer=_LEASE),
        _S.RUNNING: Owner(who="its pilot: it says when the payload ends", timer=_LEASE),
        _S.STALLED: Owner(
            who="its pilot, with its next word; else the hot process, which watches the leases", timer=_LEASE
        ),
        _S.COMPLETING: Owner(who="its pilot: it reports the end when the output is handed in", timer=_LEASE),
    }
)


def may_move(old: JobState, new: JobState) -> bool:
    """Is the move in the table? A state never moves to itself."""
    return new in MOVES[old]
