"""Job rows, their chain of events, and members of cohorts that have no row yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from lodesman.answers.vocabulary import JobState
from lodesman.errors import Conflict, NotFound
from lodesman.jobs.states import ACTIVE, may_move
from lodesman.store.ids import Ids
from lodesman.store.journal import Transaction

INSERT_EVENT = "INSERT INTO event (id, at, job_id, last_job, previous, kind, data) VALUES (?,?,?,?,?,?,?)"
INSERT_WAITING = """INSERT INTO job (id, submission_id, tq_id, template_id, state, queued, since, last_event,
max_attempts) VALUES (?,?,?,?,?,?,?,?,?)"""
# A member of a cohort has no row before it is claimed.
CLAIM_MEMBER = """INSERT INTO job (id, submission_id, tq_id, template_id, state, attempt, pilot_id, since, last_event,
last_attempt, max_attempts) VALUES (?,?,?,?,?,?,?,?,?,?,?)"""
INSERT_ATTEMPT = """INSERT INTO attempt
(id, job_id, number, previous, tq_id, cohort_id, pilot_id, claim_token, site, eligible, claimed_at)
VALUES (?,?,?,?,?,?,?,?,?,?,?)"""
CLAIM_ROW = """UPDATE job SET state = 'Matched', attempt = ?, pilot_id = ?, since = ?, last_event = ?,
last_attempt = ?, reason = '' WHERE id = ?"""
MOVE_ROW = """UPDATE job SET state = ?, pilot_id = ?, queued = coalesce(?, queued), since = ?, last_event = ?,
reason = ? WHERE id = ?"""
SELECT_ROW = """SELECT j.id, j.submission_id, j.tq_id, j.template_id, j.state, j.attempt, j.pilot_id, j.since,
j.last_event, j.last_attempt, j.max_attempts, j.reason, s.owner, s.grp, s.vo
FROM job j JOIN submission s ON s.id = j.submission_id"""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of `job` with its owner. `last_event`, `last_attempt` head the chains of the job."""

    id: int
    submission_id: int
    tq_id: int
    template_id: int
    state: JobState
    attempt: int
    pilot_id: int | None
    since: float
    last_event: int | None
    last_attempt: int | None
    max_attempts: int
    reason: str
    owner: str
    group: str
    vo: str


def read_row(tx: Transaction, job_id: int) -> JobRow | None:
    """The row of a job, None if it has none (never submitted, or an untouched member)."""
    found = tx.read(f"{SELECT_ROW} WHERE j.id = ?", (job_id,))
    return row_of(found[0]) if found else None


def rows_between(tx: Transaction, first: int, last: int, *, most: int) -> list[JobRow]:
    """The rows with first <= id <= last, ascending; `most` of them at most."""
    found = tx.read(f"{SELECT_ROW} WHERE j.id BETWEEN ? AND ? ORDER BY j.id LIMIT ?", (first, last, most))
    return [row_of(row) for row in found]


def row_of(values: tuple[Any, ...]) -> JobRow:
    """A JobRow from the columns of SELECT_ROW."""
    found: list[Any] = list(values)
    found[4] = JobState(found[4])
    return JobRow(*found)


def need_row(tx: Transaction, job_id: int) -> JobRow:
    """The row of a job. Raises NotFound."""
    row = read_row(tx, job_id)
    if row is None:
        raise NotFound(f"There is no job {job_id}.", job=job_id)
    return row


def add_event(tx: Transaction, ids: Ids, job_id: int, kind: str, *, previous: int | None, **data: Any) -> int:
    """Append one event of one job; returns its id, to be stored as the job's last event."""
    number = ids.event()
    body = msgspec.json.encode(data).decode() if data else None
    tx.later(INSERT_EVENT, (number, tx.now, job_id, None, previous, kind, body))
    return number


def add_range_event(tx: Transaction, ids: Ids, span: tuple[int, int], kind: str, **data: Any) -> None:
    """Append one event that holds for every job of `span` (first, last)."""
    body = msgspec.json.encode(data).decode() if data else None
    tx.later(INSERT_EVENT, (ids.event(), tx.now, *span, None, kind, body))


def move(tx: Transaction, ids: Ids, row: JobRow, new: JobState, *, reason: str = "", **data: Any) -> None:
    """Move a row to a new state and append the event. Raises Conflict if the table forbids the move.

    The caller keeps counters and fronts (see `services.live`).
    """
    if not may_move(row.state, new):
        raise Conflict(
            f"Job {row.id} is {row.state} and cannot become {new}.", job=row.id, state=row.state.value
        )
    if reason:
        data["reason"] = reason
    event = add_event(tx, ids, row.id, new.value, previous=row.last_event, **data)
    queued = 1 if new is JobState.WAITING else None
    pilot = row.pilot_id if new in ACTIVE else None
    tx.later(MOVE_ROW, (new.value, pilot, queued, tx.now, event, reason, row.id))
