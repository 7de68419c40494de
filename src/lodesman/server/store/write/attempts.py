"""Attempts: appended by claims, started and ended by reports, stopped by orders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct

from lodesman.languages.jobs.watches import JobMove
from lodesman.server.store.dialect import GIVEN, JOIN_IN_ORDER, greatest, keys, least
from lodesman.server.store.ids import Ids
from lodesman.server.store.read.upkeep import CHAIN
from lodesman.server.store.statement import AT_MOST_ONE, ONE, Statement
from lodesman.server.store.task_queues import SET_ROW_CURSOR
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.jobs import INSERT_EVENT, ROW, JobRow, WaitingJob, row_of
from lodesman.wire.vocabulary import JobState

# A member of a cohort has no row before it is claimed.
_CLAIM_MEMBER = Statement(
    sql="""INSERT INTO job (id, submission_id, tq_id, template_id, state, attempt, pilot_id, since, last_event,
    last_attempt, max_attempts) VALUES (?,?,?,?,?,?,?,?,?,?,?)""",
    key=(0,),
    mixes=True,
)
_CLAIM_ROW = Statement(
    sql="""UPDATE job SET state = 'Matched', attempt = ?, pilot_id = ?, since = ?, last_event = ?,
    last_attempt = ?, reason = '' WHERE id = ? AND state = 'Waiting'""",
    key=(-1,),
    mixes=True,
)
_INSERT_ATTEMPT = Statement(
    sql="""INSERT INTO attempt
    (id, job_id, number, previous, tq_id, cohort_id, pilot_id, claim_token, site, shares, claimed_at)
    VALUES (?,?,?,?,?,?,?,?,?,?,?)""",
    key=(0,),
)
_OF_CLAIM = """SELECT a.job_id, a.number, j.template_id, j.submission_id FROM attempt a JOIN job j ON j.id = a.job_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND a.claim_token = ?"""
# If a node's clock is ahead, the report of the end has the better start time: the first was cut. NULL if both are unknown.
_STARTED = least("coalesce(started_at, ?)", "coalesce(?, started_at)")
# Triggers add up the size of a user's outputs.
_END = Statement(
    sql=f"""UPDATE attempt SET ended_at = {greatest("?", "coalesce(started_at, 0)")}, outcome = ?, cause = ?,
    exit_code = ?, signal = ?, cpu_seconds = ?, wall_seconds = ?, max_rss_mb = ?,
    output_sha256 = coalesce(output_sha256, ?), output_size = coalesce(output_size, ?), message = ?, tail = ?,
    started_at = {_STARTED} WHERE id = ? AND ended_at IS NULL""",
    key=(-1,),
    reads=("job", "submission"),
    fires="sandbox_usage",
)
_STORE_OUTPUT = Statement(
    sql="UPDATE attempt SET output_sha256 = ?, output_size = ? WHERE id = ?",
    key=(-1,),
    reads=("job", "submission"),
    fires="sandbox_usage",
)
_CORRECT_OUTPUT = """UPDATE attempt SET output_size = ?, output_sha256 = coalesce(?, output_sha256)
WHERE id = ? AND output_size = ?"""
_INSERT_OUTPUT = Statement(sql="INSERT INTO small_output (attempt_id, content) VALUES (?,?)", key=(0,))
_DROP_OUTPUT = "DELETE FROM small_output WHERE attempt_id = ?"
_NOTE_LATE = Statement(
    sql="""UPDATE attempt SET message = ?, cpu_seconds = ?, wall_seconds = ?, max_rss_mb = ?
    WHERE id = ? AND wall_seconds IS NULL""",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_HAND_OUT = Statement(sql="UPDATE attempt SET claim_token = ? WHERE id = ?", key=(-1,))
_SET_SITE = Statement(sql="UPDATE attempt SET site = ? WHERE id = ?", key=(-1,))
# Its pilot may say so twice.
_START = Statement(
    sql="UPDATE attempt SET started_at = ? WHERE id = ? AND started_at IS NULL",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_ORDER_STOP = Statement(sql="UPDATE attempt SET stop_reason = ? WHERE id = ?", key=(-1,))
_LIVE_OF = "SELECT id, job_id, number FROM attempt WHERE pilot_id = ? AND ended_at IS NULL"
_STRAYS = f"""SELECT a.id, a.job_id, a.number, a.pilot_id, a.started_at IS NOT NULL,
p.id IS NOT NULL AND p.ended_at IS NULL AS lives FROM attempt a LEFT JOIN pilot p ON p.id = a.pilot_id
WHERE a.id IN {GIVEN} AND a.ended_at IS NULL ORDER BY a.number DESC, lives DESC, a.id"""
_JUDGED = "a.id, a.pilot_id, a.claimed_at, a.ended_at, a.outcome, a.cause, a.stop_reason, a.output_sha256"
_BY_ID = f"SELECT {_JUDGED} FROM attempt a WHERE a.id = ?"
_WITH_LAST = f"""SELECT {ROW}, {_JUDGED} FROM {GIVEN} given {JOIN_IN_ORDER} job j ON j.id = given.value
JOIN submission s ON s.id = j.submission_id LEFT JOIN attempt a ON a.id = j.last_attempt"""
_OF_JOB = len(ROW.split(","))
_EARLIER = f"""WITH RECURSIVE chain(id) AS (SELECT id FROM attempt WHERE id = ? UNION ALL
SELECT a.previous FROM chain c JOIN attempt a ON a.id = c.id WHERE a.previous IS NOT NULL AND a.number > ?)
SELECT {_JUDGED} FROM chain c JOIN attempt a ON a.id = c.id
WHERE a.number = ?"""
_BEFORE_START = f"""{CHAIN.format("attempt")} SELECT count(*) FROM attempt
WHERE id IN (SELECT id FROM chain) AND outcome = 'Released'
AND (cause = 'node-fault' OR (started_at IS NULL AND cause NOT IN ('not-taken', 'returned')))"""

MAX_TEXT = 2_000
NOT_KEPT: Final = ""
"""In place of the SHA-256 of an output that is not stored."""
ALONE: Final = "{}"
"""The groups that compete for a private pilot: none beside its own."""

# What a claim collects: no claim from another task queue reads it.
CLAIM_STATEMENTS = frozenset({_CLAIM_MEMBER, _CLAIM_ROW, _INSERT_ATTEMPT, INSERT_EVENT, SET_ROW_CURSOR})


class ClaimedAttempt(Struct, frozen=True, gc=False):
    """An attempt handed to a pilot; the template says what to run."""

    job_id: int
    attempt: int
    template_id: int
    submission_id: int


class AttemptRow(NamedTuple):
    """What judging a report needs of its attempt."""

    id: int
    pilot_id: int
    claimed_at: float
    ended_at: float | None
    outcome: str | None
    cause: str | None
    stop_reason: str | None
    output_sha256: str | None  # of the uploaded archive


class _PilotAttempt(NamedTuple):
    id: int
    job_id: int  # its pilot knows it by job and number
    number: int


class Stray(NamedTuple):
    """A live attempt that may be stray."""

    id: int
    job_id: int
    number: int
    pilot_id: int
    started: bool  # it was reported as Running
    pilot_lives: bool


class JobWithAttempt(NamedTuple):
    """A job with its last attempt."""

    row: JobRow
    attempt: AttemptRow | None


class AttemptReport(Struct, frozen=True, kw_only=True):
    """A pilot's report: times in UNIX seconds, durations in seconds; None: unknown."""

    id: int
    attempt: int
    state: str
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    max_rss_mb: float | None = None  # MB
    started: float | None = None
    ended: float | None = None
    output_sha256: str | None = None  # wherever the output is; NOT_KEPT: nowhere
    output: bytes | None = None  # the archive, if it came with the report
    tail: str = ""
    message: str = ""


class ClaimFacts(Struct, frozen=True, gc=False):
    """What an attempt stores of its claim."""

    pilot_id: int
    token: str  # '' while bound to a pilot that has not claimed yet
    site: str
    shares: str | None  # of the groups that competed, as JSON; None: not recorded


def append_claim(tx: Transaction, ids: Ids, claim: ClaimFacts, tq_id: int, job: WaitingJob) -> int:
    """Give a waiting job to a pilot; returns the id of the attempt."""
    number = job.attempt + 1
    event, attempt = ids.event(), ids.attempt()
    data = f'{{"attempt":{number},"pilot":{claim.pilot_id}}}'
    tx.later(INSERT_EVENT, (event, tx.now, job.id, None, job.last_event, "Matched", data))
    tx.later(
        _INSERT_ATTEMPT,
        (attempt, job.id, number, job.last_attempt, tq_id, job.cohort_id, claim.pilot_id, claim.token,
         claim.site, claim.shares, tx.now),
    )  # fmt: skip
    if job.cohort_id is None:
        tx.later(_CLAIM_ROW, (number, claim.pilot_id, tx.now, event, attempt, job.id))
    else:
        tx.later(
            _CLAIM_MEMBER,
            (job.id, job.submission_id, tq_id, job.template_id, "Matched", number, claim.pilot_id, tx.now, event,
             attempt, job.max_attempts),
        )  # fmt: skip
    if tx.moves is not None:
        tx.moves.append(JobMove(job.id, job.id, JobState.WAITING, JobState.MATCHED))
    return attempt


def claimed_with(tx: Transaction, pilot_id: int, token: str) -> list[ClaimedAttempt]:
    """A pilot's live attempts with this claim token."""
    return [ClaimedAttempt(*row) for row in tx.read(_OF_CLAIM, (pilot_id, token), past=CLAIM_STATEMENTS)]


def attempt_by_number(tx: Transaction, job: JobRow, number: int) -> AttemptRow | None:
    """None if the job has none."""
    if job.last_attempt is None or number > job.attempt:
        return None
    if number == job.attempt:
        return last_attempt(tx, job)
    return tx.reader().find(AttemptRow, _EARLIER, (job.last_attempt, number, number))


def jobs_with_attempts(tx: Transaction, job_ids: Iterable[int]) -> dict[int, JobWithAttempt]:
    """Jobs with their last attempts, in one read."""
    rows = tx.read(_WITH_LAST, (keys(job_ids),))
    return {
        row[0]: JobWithAttempt(
            row_of(*row[:_OF_JOB]), None if row[_OF_JOB] is None else AttemptRow(*row[_OF_JOB:])
        )
        for row in rows
    }


def last_attempt(tx: Transaction, job: JobRow) -> AttemptRow | None:
    """The job's last attempt; None without one."""
    return tx.reader().find(AttemptRow, _BY_ID, (job.last_attempt,))


def live_attempts_of(tx: Transaction, pilot_id: int) -> list[_PilotAttempt]:
    """The live attempts of a pilot."""
    return [_PilotAttempt(*row) for row in tx.read(_LIVE_OF, (pilot_id,))]


def live_strays(tx: Transaction, ids: Iterable[int]) -> list[Stray]:
    """Those that live: of a job the last number first, of a number a live pilot's."""
    return [Stray(*row) for row in tx.read(_STRAYS, (keys(ids),))]


def delete_attempt(tx: Transaction, attempt_id: int) -> None:
    """Delete a live attempt that no job has."""
    tx.write(_DROP_OUTPUT, (attempt_id,), rows=AT_MOST_ONE)
    tx.write("DELETE FROM usage_open WHERE attempt_id = ?", (attempt_id,), rows=AT_MOST_ONE)
    tx.write("DELETE FROM attempt WHERE id = ? AND ended_at IS NULL", (attempt_id,), rows=ONE)


def hand_out(tx: Transaction, attempt_id: int | None, token: str) -> None:
    """Let a pilot take its bound attempt, with this claim token."""
    tx.later(_HAND_OUT, (token, attempt_id))


def set_site(tx: Transaction, attempt_id: int | None, site: str) -> None:
    """Where the pilot of a bound attempt runs."""
    tx.later(_SET_SITE, (site, attempt_id))


def start_attempt(tx: Transaction, attempt_id: int | None, at: float) -> None:
    """Its payload runs."""
    tx.later(_START, (at, attempt_id))


def end_attempt(tx: Transaction, attempt_id: int | None, end: AttemptReport, *, again: bool = False) -> None:
    """`again`: replace the end of a lost one."""
    if again:
        tx.write("UPDATE attempt SET ended_at = NULL WHERE id = ?", (attempt_id,), rows=ONE)
        tx.write(_DROP_OUTPUT, (attempt_id,), rows=AT_MOST_ONE)
    values: tuple[Any, ...] = (
        end.ended or tx.now, end.state, end.cause, end.exit_code, end.signal, end.cpu_seconds, end.wall_seconds,
        end.max_rss_mb, end.output_sha256, None if end.output is None else len(end.output), end.message[:MAX_TEXT],
        end.tail, end.started, end.started, attempt_id,
    )  # fmt: skip
    tx.later(_END, values)
    if end.output is not None:
        tx.later(_INSERT_OUTPUT, (attempt_id, end.output))


def store_output(tx: Transaction, attempt_id: int, sha256: str, size: int) -> None:
    """Count an archive on the shelf from now on, whatever the pilot reports."""
    tx.later(_STORE_OUTPUT, (sha256, size, attempt_id))


def correct_output(tx: Transaction, attempt_id: int, before: int, size: int | None) -> bool:
    """Store the real size; None: the output is lost."""
    lost = NOT_KEPT if size is None else None
    return bool(tx.write(_CORRECT_OUTPUT, (size, lost, attempt_id, before), rows=AT_MOST_ONE))


def note_late_report(tx: Transaction, attempt_id: int, late: AttemptReport) -> None:
    """Keep a refused report, if nothing was known of the attempt's end."""
    message = f"{late.state} was reported when it no longer counted"
    tx.later(_NOTE_LATE, (message, late.cpu_seconds, late.wall_seconds, late.max_rss_mb, attempt_id))


def lost_before_start(tx: Transaction, job: JobRow) -> int:
    """How many went back with their pilots before they started, or from a useless node."""
    return int(tx.read(_BEFORE_START, (keys([job.last_attempt]),))[0][0])


def order_stop(tx: Transaction, attempt_id: int, reason: str) -> None:
    """Store the order to stop a live attempt."""
    tx.later(_ORDER_STOP, (reason, attempt_id))
