"""Jobs: rows and their chains of events, submissions with templates."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Any

import msgspec
from msgspec import Struct

from lodesman.base.errors import Conflict, NotFound
from lodesman.languages.jobs.spec import ACTIVE, TERMINAL, may_move
from lodesman.languages.jobs.watches import JobMove
from lodesman.server.store.database import Reader
from lodesman.server.store.dialect import by_index
from lodesman.server.store.ids import Ids
from lodesman.server.store.read.jobs import StoredTemplate
from lodesman.server.store.statement import AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.vocabulary import JobState

INSERT_EVENT = Statement(
    sql="INSERT INTO event (id, at, job_id, last_job, previous, kind, data) VALUES (?,?,?,?,?,?,?)",
    key=(0,),
)
_INSERT_WAITING = Statement(
    sql="""INSERT INTO job (id, submission_id, tq_id, template_id, state, queued, since, last_event,
    max_attempts) VALUES (?,?,?,?,'Waiting',1,?,?,?)""",
    key=(0,),
)
_INSERT_MEMBER = Statement(
    sql="""INSERT INTO job (id, submission_id, tq_id, template_id, state, queued, since, max_attempts, reason)
    VALUES (?,?,?,?,?,1,?,?,?)""",
    key=(0,),
)
_MOVE_ROW = Statement(
    sql="""UPDATE job SET state = ?, pilot_id = ?, queued = coalesce(?, queued), since = ?, last_event = ?,
    reason = ?, admin_held = coalesce(?, admin_held) WHERE state = ? AND id = ?""",
    key=(-1,),
)
_ALLOW_ANOTHER = Statement(sql="UPDATE job SET max_attempts = max_attempts + 1 WHERE id = ?", key=(-1,))
_NAME_ATTEMPT = Statement(sql="UPDATE job SET attempt = ?, last_attempt = ? WHERE id = ?", key=(-1,))
_ADOPT = Statement(
    sql="""UPDATE job SET state = ?, pilot_id = ?, since = ?, last_event = ?, reason = ''
    WHERE id = ? AND state = 'Waiting'""",
    key=(-1,),
)
_SET_LAST_EVENT = Statement(sql="UPDATE job SET last_event = ? WHERE id = ?", key=(-1,))
# Attempts added by `allow_another` stay.
_CHANGE_ROW = """UPDATE job SET tq_id = ?, template_id = ?, max_attempts = ? + max_attempts
- coalesce((SELECT t.max_attempts FROM template t WHERE t.id = job.template_id), max_attempts), last_event = ?
WHERE id = ?"""
# Other jobs may need the templates of the submission and of its runs.
_DROP_CHANGED = """DELETE FROM template WHERE id = ? AND NOT EXISTS (SELECT 1 FROM submission s
WHERE s.id = ? AND template.id BETWEEN s.first_template AND s.last_template)
AND NOT EXISTS (SELECT 1 FROM cohort c WHERE c.submission_id = ? AND c.template_id = template.id)"""
_REQUEUE = "UPDATE job SET queued = 1 WHERE id = ? AND state = 'Waiting' AND queued IS NULL"
ROW = """j.id, j.submission_id, j.tq_id, j.template_id, j.state, j.attempt, j.pilot_id, j.since,
j.last_event, j.last_attempt, j.max_attempts, j.reason, s.owner, s.grp, s.vo, j.admin_held"""
SELECT_ROW = f"SELECT {ROW} FROM job j JOIN submission s ON s.id = j.submission_id"
_INSERT_SUBMISSION = Statement(
    sql="""INSERT INTO submission
    (id, base, count, owner, grp, vo, name, created_at, form, record, members, request_id, held, first_template,
    last_template, resolution) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
    key=(0,),
)
_INSERT_TEMPLATE = Statement(
    sql="INSERT INTO template (id, expand, max_attempts, body, retry, resolution) VALUES (?,?,?,?,?,?)",
    key=(0,),
)
_OF_REQUEST = """SELECT id, base, count, held, grp, name, record, members FROM submission
WHERE owner = ? AND request_id = ?"""
# Blocks of ids never overlap: of those before the range only the last can reach into it.
_SUBMISSIONS_IN = """SELECT id, base, count, owner, grp, vo, name FROM submission {}
WHERE base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?), 0) AND base <= ? AND base + count > ?{}
ORDER BY base"""
_SUBMISSIONS_OF_ALL = _SUBMISSIONS_IN.format("", "")
_SUBMISSIONS_OF_ONE = _SUBMISSIONS_IN.format(by_index("submission_owner"), " AND owner = ?")


class JobRow(Struct, frozen=True, gc=False):
    """One row of `job` with its owner."""

    id: int
    submission_id: int
    tq_id: int
    template_id: int
    state: JobState
    attempt: int
    pilot_id: int | None
    since: float
    last_event: int | None  # this and the next head the chains of the job
    last_attempt: int | None
    max_attempts: int
    reason: str
    owner: str
    group: str
    vo: str
    admin_held: int = 0  # an administrator held it, and none has released it


class WaitingJob(Struct, frozen=True, gc=False):
    """A job that waits."""

    id: int
    submission_id: int
    template_id: int
    attempt: int
    last_event: int | None
    last_attempt: int | None
    max_attempts: int
    cohort_id: int | None = None  # it is a member without a row


class NewSubmission(Struct, frozen=True, kw_only=True):
    """A submission before it is stored."""

    owner: str
    group: str
    vo: str
    name: str
    form: str
    record: str
    members: str | None
    count: int
    request_id: str | None = None
    resolution: str | None = None


class _EarlierSubmission(Struct, frozen=True):
    id: int
    base: int
    count: int
    held: int
    group: str
    name: str
    record: str
    members: str | None


class IdBlock(Struct, frozen=True):
    """The ids of a submission, and whose they are."""

    submission: int
    base: int  # the first id
    count: int
    owner: str
    group: str
    vo: str
    name: str  # '': each job has one of its own, or none


def row_by_id(tx: Transaction, job_id: int) -> JobRow | None:
    """None if it was never submitted, or is an untouched member."""
    return tx.reader().find(row_of, f"{SELECT_ROW} WHERE j.id = ?", (job_id,))


def rows_between(tx: Transaction, first: int, last: int, *, most: int) -> list[JobRow]:
    """Rows, ascending, at most `most`."""
    rows = tx.read(f"{SELECT_ROW} WHERE j.id BETWEEN ? AND ? ORDER BY j.id LIMIT ?", (first, last, most))
    return [row_of(*row) for row in rows]


def need_row(tx: Transaction, job_id: int) -> JobRow:
    """Read a row. Raises NotFound."""
    row = row_by_id(tx, job_id)
    if row is None:
        raise NotFound(f"There is no job {job_id}.", job=job_id)
    return row


def row_of(job_id: int, submission: int, tq_id: int, template: int, state: str, *more: Any) -> JobRow:
    """From the columns `ROW`."""
    return JobRow(job_id, submission, tq_id, template, JobState(state), *more)


def insert_waiting(tx: Transaction, tq_id: int, job: WaitingJob) -> None:
    """Store a new waiting row."""
    tx.later(
        _INSERT_WAITING,
        (job.id, job.submission_id, tq_id, job.template_id, tx.now, job.last_event, job.max_attempts),
    )


def insert_member(tx: Transaction, tq_id: int, job: WaitingJob, state: JobState, reason: str) -> None:
    """Give a member of an array a row."""
    tx.later(
        _INSERT_MEMBER,
        (job.id, job.submission_id, tq_id, job.template_id, state.value, tx.now, job.max_attempts, reason),
    )


def requeue_row(tx: Transaction, job_id: int) -> bool:
    """False if it is in its task queue, or waits no more."""
    return bool(tx.write(_REQUEUE, (job_id,), rows=AT_MOST_ONE))


def allow_another(tx: Transaction, row: JobRow) -> JobRow:
    """Do not count the last attempt, which never began."""
    tx.later(_ALLOW_ANOTHER, (row.id,))
    return msgspec.structs.replace(row, max_attempts=row.max_attempts + 1)


def clear_last_attempt(tx: Transaction, job_id: int) -> None:
    """The attempt that the row names does not exist."""
    tx.write("UPDATE job SET last_attempt = NULL WHERE id = ?", (job_id,), rows=ONE)


# --- events and moves ------------------------------------------------------------------------------------


def add_event(tx: Transaction, ids: Ids, job_id: int, kind: str, *, previous: int | None, **data: Any) -> int:
    """Append an event of one job; returns its id, the job's next `last_event`."""
    number = ids.event()
    body = msgspec.json.encode(data).decode() if data else None
    tx.later(INSERT_EVENT, (number, tx.now, job_id, None, previous, kind, body))
    return number


def move_range(tx: Transaction, ids: Ids, jobs: range, old: JobState, new: JobState, **data: Any) -> None:
    """Append the event of members without a row that changed state (`add_hole`, `change_hole`)."""
    add_range_event(tx, ids, jobs, new.value, **data)
    if tx.moves is not None:
        tx.moves.append(JobMove(jobs[0], jobs[-1], old, new, data))


def add_range_event(tx: Transaction, ids: Ids, jobs: range, kind: str, **data: Any) -> None:
    """Append one event for all these ids."""
    body = msgspec.json.encode(data).decode() if data else None
    tx.later(INSERT_EVENT, (ids.event(), tx.now, jobs[0], jobs[-1], None, kind, body))


def note_event(tx: Transaction, ids: Ids, row: JobRow, kind: str, **data: Any) -> None:
    """Append an event without a change of state."""
    event = add_event(tx, ids, row.id, kind, previous=row.last_event, **data)
    tx.later(_SET_LAST_EVENT, (event, row.id))


def move(tx: Transaction, ids: Ids, row: JobRow, new: JobState, *, reason: str = "", **data: Any) -> None:
    """Raises Conflict if the table of moves forbids it. The caller keeps counters and fronts (`writer.live`)."""
    if not may_move(row.state, new):
        raise Conflict(
            f"Job {row.id} is {row.state} and cannot become {new}.", job=row.id, state=row.state.value
        )
    force_move(tx, ids, row, new, reason=reason, **data)


def force_move(
    tx: Transaction,
    ids: Ids,
    row: JobRow,
    new: JobState,
    *,
    reason: str = "",
    admin: bool = False,
    **data: Any,
) -> None:
    """Make a move outside the table: a lost attempt's late success, or an administrator's hold (`admin`) of a held job."""
    if reason:
        data["reason"] = reason
    event = add_event(tx, ids, row.id, new.value, previous=row.last_event, **data)
    queued = 1 if new is JobState.WAITING else None
    pilot = row.pilot_id if new in ACTIVE else None
    held = {JobState.HELD: admin, JobState.WAITING: False}.get(new)
    if new in TERMINAL:
        tx.ended.append((row.submission_id, row.id, row.id))
    tx.later(_MOVE_ROW, (new.value, pilot, queued, tx.now, event, reason, held, row.state.value, row.id))
    if tx.moves is not None:
        tx.moves.append(JobMove(row.id, row.id, row.state, new, data))


def name_attempt(tx: Transaction, row: JobRow, number: int, attempt_id: int) -> JobRow:
    """Let a job name a live attempt as its last."""
    tx.later(_NAME_ATTEMPT, (number, attempt_id, row.id))
    return msgspec.structs.replace(row, attempt=number, last_attempt=attempt_id)


def adopt(tx: Transaction, ids: Ids, row: JobRow, new: JobState, *, pilot_id: int) -> None:
    """Let a waiting job go on with its last attempt, which a pilot has."""
    data = {"attempt": row.attempt, "pilot": pilot_id, "by": "reconciler"}
    event = add_event(tx, ids, row.id, new.value, previous=row.last_event, **data)
    tx.later(_ADOPT, (new.value, pilot_id, tx.now, event, row.id))
    if tx.moves is not None:
        tx.moves.append(JobMove(row.id, row.id, row.state, new, data))


def change_row(
    tx: Transaction, ids: Ids, row: JobRow, *, tq_id: int, template: int, max_attempts: int, **data: Any
) -> None:
    """Give it another task queue and template; an own template is deleted."""
    event = add_event(tx, ids, row.id, "Changed", previous=row.last_event, **data)
    tx.write(_CHANGE_ROW, (tq_id, template, max_attempts, event, row.id), rows=ONE)
    tx.write(_DROP_CHANGED, (row.template_id, row.submission_id, row.submission_id), rows=AT_MOST_ONE)


def forget_name(tx: Transaction, submission_id: int) -> None:
    """Let jobs have the names in their templates."""
    tx.write("UPDATE submission SET name = '' WHERE id = ?", (submission_id,), rows=ONE)


# --- submissions -----------------------------------------------------------------------------------------


def insert_submission(
    tx: Transaction, new: NewSubmission, *, number: int, base: int, held: int, templates: Collection[int]
) -> None:
    """`templates`: the numbers of its own."""
    tx.later(
        _INSERT_SUBMISSION,
        (number, base, new.count, new.owner, new.group, new.vo, new.name, tx.now, new.form, new.record,
         new.members, new.request_id, held, min(templates), max(templates), new.resolution),
    )  # fmt: skip


class Fill(IntEnum):
    """What a claim fills in: nothing; placeholders of a member and its index; its index alone."""

    NOTHING = 0
    ALL = 1
    INDEX = 2


def insert_template(tx: Transaction, number: int, new: StoredTemplate) -> None:
    """Store what jobs have in common."""
    tx.later(_INSERT_TEMPLATE, (number, int(new.fill), *new[1:]))


def submission_of_request(tx: Transaction, owner: str, request_id: str) -> _EarlierSubmission | None:
    """The owner's submission with this request id."""
    return tx.reader().find(_EarlierSubmission, _OF_REQUEST, (owner, request_id))


def submissions_between(tx: Transaction, first: int, last: int, *, owner: str = "") -> Iterator[IdBlock]:
    """Submissions in order, read one by one: there may be many."""
    return stored_between(tx.reader(), first, last, owner=owner)


def stored_between(db: Reader, first: int, last: int, *, owner: str = "") -> Iterator[IdBlock]:
    """As `submissions_between`, of what is committed."""
    sql, values = (_SUBMISSIONS_OF_ONE, (owner,)) if owner else (_SUBMISSIONS_OF_ALL, ())
    return (IdBlock(*row) for row in db.execute(sql, (first, last, first, *values)))
