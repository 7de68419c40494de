"""Whether jobs, task queues or pilots changed: marks of the database that a few look-ups read, whatever its size."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.dialect import by_index

_NEWEST: Final = "(SELECT coalesce(max(id), 0) FROM {0})"
# Whatever a submission, a claim, a move of a job or a judgement of a task queue changes, it takes a new number.
_NUMBERS: Final = f"""SELECT l.incarnation, l.next_job, s.rekeyed, s.version, {_NEWEST.format("attempt")},
{_NEWEST.format("event")}, {_NEWEST.format("task_queue_event")}, {_NEWEST.format("pilot")},
{_NEWEST.format("director_iteration")}, m.version
FROM leadership l, submit_pool_state s, site_mask_state m"""
# From the index alone. That one leaves a state and another enters it changes the sum.
_PILOTS: Final = f"""SELECT state, count(*), sum(id) FROM pilot {by_index("pilot_live")}
WHERE ended_at IS NULL GROUP BY state ORDER BY state"""


class Marks(NamedTuple):
    """Alike as long as no job, task queue or state of a pilot changed. Repaired counters, heartbeats and orders to leave
    change no mark: who goes by marks reads all anew now and then.
    """

    numbers: tuple[Any, ...]
    pilots: tuple[tuple[Any, ...], ...]


def change_marks(db: Reader) -> Marks:
    """The marks now."""
    return Marks(tuple(db.only(_NUMBERS)), tuple(tuple(row) for row in db.execute(_PILOTS)))
