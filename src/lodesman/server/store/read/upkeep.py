"""Suspects of the reconciler, and what is old enough to purge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from lodesman.languages.jobs.spec import ACTIVE, IDLE, TERMINAL
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, by_index, greatest, keys

_ON_A_NODE = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
_AT_REST = ", ".join(f"'{state}'" for state in sorted(IDLE))
_SUSPECT_JOBS = f"""SELECT j.id FROM job j WHERE j.id > ? AND j.id <= ?
AND ((j.state = 'Waiting' AND j.queued IS NULL) OR (j.state IN ({_ON_A_NODE})
AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.id = j.last_attempt AND a.ended_at IS NULL)))
ORDER BY j.id LIMIT ?"""
_STRAY_ATTEMPTS = f"""SELECT a.id FROM attempt a {by_index("attempt_live")} LEFT JOIN job j ON j.id = a.job_id
LEFT JOIN pilot p ON p.id = a.pilot_id WHERE a.ended_at IS NULL AND (j.id IS NULL OR j.last_attempt IS NULL
OR j.last_attempt != a.id OR j.state IN ({_AT_REST}) OR p.id IS NULL OR p.ended_at IS NOT NULL)
ORDER BY a.number DESC, a.id LIMIT ?"""
# Waiting rows, and waiting members of untouched runs, by task queue.
_WAITING_ROWS = """SELECT tq_id, count(*) AS n FROM job
WHERE queued IS NOT NULL AND tq_id BETWEEN ? AND ? AND state = 'Waiting' GROUP BY tq_id"""
_REACHED = """SELECT a.cohort_id, max(a.job_id) - k.base + 1 AS cursor FROM attempt a JOIN cohort k ON k.id = a.cohort_id
WHERE a.id > (SELECT claims_at FROM leadership) GROUP BY a.cohort_id, k.base"""
_OPEN_RUNS = f"""SELECT c.id, c.tq_id, c.stop, {greatest("c.cursor", "coalesce(r.cursor, 0)")} AS cursor
FROM cohort c LEFT JOIN ({_REACHED}) r ON r.cohort_id = c.id WHERE c.cursor < c.stop AND c.tq_id BETWEEN ? AND ?"""
_IN_HOLES = f"""coalesce((SELECT sum(h.stop - {greatest("h.start", "o.cursor")}) FROM hole h
  WHERE h.cohort_id = o.id AND h.stop > o.cursor), 0)"""
_WAITING_MEMBERS = (
    f"""SELECT o.tq_id, {greatest("0", f"o.stop - o.cursor - {_IN_HOLES}")} AS n FROM ({_OPEN_RUNS}) o"""
)
_WRONG_COUNTS = f"""SELECT q.tq_id, q.jobs, coalesce(n.jobs, 0) FROM queue_jobs q LEFT JOIN (
  SELECT tq_id, sum(n) AS jobs FROM ({_WAITING_ROWS} UNION ALL {_WAITING_MEMBERS}) waiting GROUP BY tq_id
) n ON n.tq_id = q.tq_id WHERE q.tq_id BETWEEN ? AND ? AND q.jobs != coalesce(n.jobs, 0)"""


def last_of_portion(
    db: Reader, table: Literal["job", "attempt", "task_queue_count"], after: int, portion: int
) -> int | None:
    """The greatest id of the next portion; None at the end."""
    column = "tq_id" if table == "task_queue_count" else "id"
    ids = f"SELECT {column} AS id FROM {table} WHERE {column} > ? ORDER BY {column} LIMIT ?"
    number: int | None = db.only(f"SELECT max(id) FROM ({ids}) portion", (after, portion))[0]
    return number


def suspect_jobs(db: Reader, after: int, last: int, limit: int) -> list[int]:
    """Jobs (after < id <= last) that wait in no task queue, or are active without a live attempt."""
    return [row[0] for row in db.execute(_SUSPECT_JOBS, (after, last, limit))]


def stray_attempts(db: Reader, limit: int) -> list[int]:
    """Live attempts that their jobs do not name, or whose pilots have ended."""
    return [row[0] for row in db.execute(_STRAY_ATTEMPTS, (limit,))]


def wrong_counts(db: Reader, first: int, last: int) -> list[tuple[int, int, int]]:
    """(task queue, stored, counted), first <= id <= last."""
    return list(db.execute(_WRONG_COUNTS, (first, last) * 3))


# Ids and times rise together unless a clock was set back: rows this much later are read, too.
_CLOCK_SLACK_SECONDS = 3_600.0

ENDED_STATES = ", ".join(f"'{state.value}'" for state in sorted(TERMINAL))
_SUBMISSIONS = "SELECT id, base, count, created_at FROM submission WHERE id > ? ORDER BY id LIMIT ?"
# A job that was killed while it ran ends before its attempt: its pilot still reports it.
OLD_JOBS = f"""SELECT j.id, j.attempt, j.last_event, j.last_attempt FROM job j LEFT JOIN attempt a ON a.id = j.last_attempt
WHERE j.state IN ({ENDED_STATES}) AND j.since < ? AND (j.last_attempt IS NULL OR a.ended_at IS NOT NULL)"""
# The events or attempts of jobs, from the last of each.
CHAIN = f"""WITH RECURSIVE chain (id) AS (SELECT * FROM {GIVEN} given
UNION SELECT t.previous FROM chain c JOIN {{0}} t ON t.id = c.id WHERE t.previous IS NOT NULL)"""
_EVENTS = f"{CHAIN.format('event')} SELECT count(*) FROM event WHERE id IN (SELECT id FROM chain)"
_TAILS = f"""{CHAIN.format("attempt")}
SELECT job_id, sum(coalesce(length(tail), 0)) FROM attempt WHERE id IN (SELECT id FROM chain) GROUP BY job_id"""
_HOLES = f"""SELECT h.cohort_id, h.start FROM cohort c JOIN hole h ON h.cohort_id = c.id
WHERE c.submission_id BETWEEN ? AND ? AND h.state IN ({ENDED_STATES}) AND h.at < ? LIMIT ?"""
# Batches: submissions with templates of their own for each job, and no runs.
_BATCHES = """SELECT s.id, s.base, s.base + s.count - 1, s.first_template, s.last_template FROM submission s
WHERE s.id BETWEEN ? AND ? AND s.last_template > s.first_template
AND NOT EXISTS (SELECT 1 FROM cohort c WHERE c.submission_id = s.id)"""
# All rows, and all that is left of the runs, are in these states.
_NOTHING_BUT = f"""NOT EXISTS
(SELECT 1 FROM job j WHERE j.id BETWEEN s.base AND s.base + s.count - 1 AND j.state NOT IN ({{0}}))
AND NOT EXISTS (SELECT 1 FROM cohort_now c WHERE c.submission_id = s.id AND (
  EXISTS (SELECT 1 FROM hole h WHERE h.cohort_id = c.id AND h.state NOT IN ({{0}}))
  OR c.stop - c.cursor > coalesce((SELECT sum(h.stop - {greatest("h.start", "c.cursor")}) FROM hole h
    WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0)))"""
_FINISHED = f"""SELECT s.id FROM submission s WHERE s.id BETWEEN ? AND ? AND s.created_at < ?
AND {_NOTHING_BUT.format("'Moved'")}"""
# Deleted is final: no such job will ever need its input files again.
_WITHOUT_NEED = f"""SELECT s.id FROM submission s WHERE s.id IN (SELECT submission_id FROM sandbox_use)
AND {_NOTHING_BUT.format("'Moved', 'Deleted'")} LIMIT ?"""
_PILOTS = "SELECT id, ended_at, created_at FROM pilot WHERE id > ? ORDER BY id LIMIT ?"
_ATTEMPTS = "SELECT id, pilot_id, claimed_at FROM attempt WHERE id > ? ORDER BY id LIMIT ?"
_QUEUES = """SELECT c.tq_id, c.emptied_at FROM task_queue_count c WHERE c.waiting = 0 AND c.emptied_at < ?
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.tq_id = c.tq_id AND j.queued IS NOT NULL)
AND c.tq_id NOT IN (SELECT tq_id FROM cohort)
AND c.tq_id NOT IN (SELECT tq_id FROM pilot WHERE ended_at IS NULL AND tq_id IS NOT NULL)"""


class OldJob(NamedTuple):
    """An ended job, with the heads of its chains."""

    id: int
    attempts: int  # numbered from 1 to this
    last_event: int | None
    last_attempt: int | None


class SubmissionSpan(NamedTuple):
    """Adjacent submissions."""

    first: int
    last: int
    first_job: int
    last_job: int


def _made_before(db: Reader, sql: str, before: float, portion: int) -> Iterator[list[Any]]:
    """In portions by id, up to those made after that time (last column)."""
    last = 0
    while True:
        rows = list(db.execute(sql, (last, portion)))
        yield rows
        if len(rows) < portion or rows[-1][-1] >= before + _CLOCK_SLACK_SECONDS:
            return
        last = rows[-1][0]


def old_submissions(db: Reader, before: float, portion: int) -> Iterator[SubmissionSpan]:
    """Oldest first: later ones cannot have ended before."""
    for rows in _made_before(db, _SUBMISSIONS, before, portion):
        old = [row for row in rows if row[-1] < before]
        if old:
            yield SubmissionSpan(old[0][0], old[-1][0], old[0][1], old[-1][1] + old[-1][2] - 1)


def old_jobs(
    db: Reader, span: SubmissionSpan, before: float, portion: int
) -> Iterator[list[tuple[int, int]]]:
    """(job, stored bytes of output), in portions."""
    sql, first = f"{OLD_JOBS} AND j.id BETWEEN ? AND ? ORDER BY j.id LIMIT ?", span.first_job
    while True:
        cursor = db.execute(sql, (before, first, span.last_job, portion))
        rows = [OldJob(*row) for row in cursor]
        if rows:
            yield _weighed(db, rows)
        if len(rows) < portion:
            return
        first = rows[-1].id + 1


def _weighed(db: Reader, jobs: Sequence[OldJob]) -> list[tuple[int, int]]:
    events = keys(job.last_event for job in jobs if job.last_event is not None)
    attempts = keys(job.last_attempt for job in jobs if job.last_attempt is not None)
    db.only(_EVENTS, (events,))  # brings their pages into memory (ADR 0020)
    tails = dict(db.execute(_TAILS, (attempts,)))
    return [(job.id, int(tails.get(job.id, 0))) for job in jobs]


def old_holes(db: Reader, span: SubmissionSpan, before: float, most: int) -> list[tuple[int, int]]:
    """(cohort, start) of members killed or deleted before then."""
    return list(db.execute(_HOLES, (span.first, span.last, before, most)))


def left_templates(db: Reader, span: SubmissionSpan) -> Iterator[tuple[int, list[int]]]:
    """(batch, templates) of purged jobs, where the batch has others."""
    for number, first, last, *templates in list(db.execute(_BATCHES, (span.first, span.last))):
        # In this order: no job ever takes up a template that none had.
        existing = {
            row[0] for row in db.execute("SELECT id FROM template WHERE id BETWEEN ? AND ?", templates)
        }
        named = db.execute("SELECT DISTINCT template_id FROM job WHERE id BETWEEN ? AND ?", (first, last))
        left = existing - {row[0] for row in named}
        if left:
            yield number, sorted(left)


def finished_submissions(db: Reader, span: SubmissionSpan, before: float) -> list[int]:
    """Submissions without a job left; they stay so."""
    return [row[0] for row in db.execute(_FINISHED, (span.first, span.last, before))]


def submissions_without_need(db: Reader, most: int) -> list[int]:
    """Whose jobs will never need their input files again."""
    return [row[0] for row in db.execute(_WITHOUT_NEED, (most,))]


def old_pilots(db: Reader, before: float, portion: int) -> Iterator[list[int]]:
    """Pilots that ended before then, named by no attempt, in portions."""
    # Few: most of the attempts that began before that time are purged.
    named = {row[1] for rows in _made_before(db, _ATTEMPTS, before, portion) for row in rows}
    for rows in _made_before(db, _PILOTS, before, portion):
        old = [row[0] for row in rows if row[1] is not None and row[1] < before and row[0] not in named]
        if old:
            yield old


def old_queues(db: Reader, before: float) -> list[tuple[int, float]]:
    """(id, emptied at) of those that no job names."""
    return list(db.execute(_QUEUES, (before,)))
