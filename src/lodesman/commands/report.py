"""What pilots report of their attempts: started, ended; and the end of attempts whose pilot is lost.

Exactly once per attempt: a report of a stale attempt is refused, logged, and noted with the attempt; it changes no
job. Payload causes end the job; all others send it back to its task queue. A success that comes after its pilot was
lost counts while the next attempt is unclaimed (DESIGN 3.2), even if there was to be none.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

from lodesman.answers.vocabulary import JobState
from lodesman.commands.live import Live
from lodesman.jobs.states import TERMINAL
from lodesman.store import jobs
from lodesman.store.journal import Transaction

log = logging.getLogger(__name__)

PAYLOAD_CAUSES = frozenset(
    {"exit", "signal", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "not-started"}
)
START_ATTEMPT = "UPDATE attempt SET started_at = ? WHERE id = ? AND started_at IS NULL"
END_ATTEMPT = """UPDATE attempt SET ended_at = ?, outcome = ?, cause = ?, exit_code = ?, signal = ?, cpu_seconds = ?,
wall_seconds = ?, max_rss_mb = ?, output_sha256 = ?, output_size = ?, message = ?, tail = ?,
started_at = coalesce(started_at, ?) WHERE id = ? AND ended_at IS NULL"""
REOPEN = "UPDATE attempt SET ended_at = NULL WHERE id = ?"
NOTE_LATE = """UPDATE attempt SET message = ?, cpu_seconds = ?, wall_seconds = ?, max_rss_mb = ?
WHERE id = ? AND wall_seconds IS NULL"""
LIVE_OF_PILOT = "SELECT job_id, number FROM attempt WHERE pilot_id = ? AND ended_at IS NULL"
LAST_ATTEMPT = "SELECT id, pilot_id, ended_at, outcome, cause, stop_reason FROM attempt WHERE id = ?"
EARLIER_ATTEMPT = """WITH RECURSIVE chain(id) AS (SELECT ?1 UNION ALL
SELECT a.previous FROM chain c JOIN attempt a ON a.id = c.id WHERE a.previous IS NOT NULL AND a.number > ?2)
SELECT a.id, a.pilot_id, a.ended_at, a.outcome, a.cause, a.stop_reason FROM chain c JOIN attempt a ON a.id = c.id
WHERE a.number = ?2"""
JOB_DONE = "UPDATE pilot SET jobs_done = jobs_done + 1 WHERE id = ?"
MAX_TEXT = 2_000
# Why an attempt ended of which its pilot said nothing.
LOST = "pilot-lost"
LEASE_EXPIRED = "lease-expired"
# Where the job may be whose lost attempt turns out to have succeeded.
STILL_OPEN = frozenset({JobState.WAITING, JobState.HELD, JobState.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One word of a pilot about one attempt (times in seconds, memory in MB); None: nobody knows."""

    id: int
    attempt: int
    state: str
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    max_rss_mb: float | None = None
    started: float | None = None
    ended: float | None = None
    output_sha256: str | None = None
    output_size: int | None = None
    tail: str = ""
    message: str = ""


class _Attempt(NamedTuple):
    """What the judgement of a report needs of its attempt."""

    id: int
    pilot_id: int
    ended_at: float | None
    outcome: str | None
    cause: str | None
    stop_reason: str | None

    @property
    def is_lost(self) -> bool:
        """Whether it ended without a word of its pilot."""
        return self.outcome == "Released" and self.cause in (LOST, LEASE_EXPIRED)


@dataclass(slots=True)
class TakeReports:
    """Apply the reports of one pilot, in order; answers one dict per report."""

    live: Live
    pilot_id: int
    reports: list[Report]

    def apply(self, tx: Transaction) -> list[dict[str, Any]]:
        """Each report is accepted or refused on its own."""
        return [
            {"id": report.id, "attempt": report.attempt, **self._one(tx, report)} for report in self.reports
        ]

    def _one(self, tx: Transaction, report: Report) -> dict[str, Any]:
        row = jobs.read_row(tx, report.id)
        attempt = None if row is None else _find_attempt(tx, row, report.attempt)
        if row is None or attempt is None:
            return _refused("no such attempt")
        if attempt.pilot_id != self.pilot_id:
            return _refused("not your attempt")
        if attempt.ended_at is not None:
            return self._after_end(tx, row, report, attempt)
        if report.state == "Running":
            return self._started(tx, row, report)
        end_attempt(self.live, tx, row, report, pilot_id=self.pilot_id)
        tx.later(JOB_DONE, (self.pilot_id,))
        return {"accepted": True}

    def _started(self, tx: Transaction, row: jobs.JobRow, report: Report) -> dict[str, Any]:
        tx.later(START_ATTEMPT, (report.started or tx.now, row.last_attempt))
        if row.state in (JobState.MATCHED, JobState.STALLED):
            jobs.move(tx, self.live.ids, row, JobState.RUNNING, attempt=row.attempt)
        return {"accepted": True}

    def _after_end(
        self, tx: Transaction, row: jobs.JobRow, report: Report, attempt: _Attempt
    ) -> dict[str, Any]:
        """The attempt has ended already: the same report again, a late success, or one that comes too late."""
        if report.state == attempt.outcome or (report.state == "Running" and not attempt.is_lost):
            return {"accepted": True, "reason": "already ended"}
        stale = attempt.id != row.last_attempt
        counts = attempt.is_lost and attempt.stop_reason is None and row.state in STILL_OPEN and not stale
        if report.state == "Done" and counts:
            self._late_success(tx, row, report)
            return {"accepted": True, "reason": "late"}
        if report.state != "Running":
            self._too_late(tx, row, report, attempt)
        return _refused("stale attempt" if stale else "already ended")

    def _late_success(self, tx: Transaction, row: jobs.JobRow, report: Report) -> None:
        """The job is Done after all. No move of the table: only a lost attempt's success leads here."""
        if row.state is JobState.WAITING:
            self.live.left(tx, row.tq_id, 1)
        event = jobs.add_event(
            tx, self.live.ids, row.id, "Done", previous=row.last_event, attempt=row.attempt, late=True
        )
        tx.later(jobs.MOVE_ROW, ("Done", None, None, tx.now, event, "", row.id))
        tx.write(REOPEN, (row.last_attempt,))
        tx.later(END_ATTEMPT, _end_values(row, report, tx.now, "Done"))
        tx.later(JOB_DONE, (self.pilot_id,))

    def _too_late(self, tx: Transaction, row: jobs.JobRow, report: Report, attempt: _Attempt) -> None:
        """Keep what a refused report tells: with the attempt, if nothing was known of its end, and in the log."""
        if attempt.is_lost:
            told = f"{report.state} was reported when it no longer counted"
            figures = report.cpu_seconds, report.wall_seconds, report.max_rss_mb
            tx.later(NOTE_LATE, (told, *figures, attempt.id))
        log.warning(
            "a report came too late and was refused",
            extra={"job": row.id, "attempt": report.attempt, "pilot": self.pilot_id, "state": report.state,
                   "cause": report.cause, "job_state": row.state.value, "job_attempt": row.attempt},
        )  # fmt: skip


def _refused(reason: str) -> dict[str, Any]:
    return {"accepted": False, "reason": reason}


def _find_attempt(tx: Transaction, row: jobs.JobRow, number: int) -> _Attempt | None:
    """The attempt of a job with this number, None if it has none."""
    if row.last_attempt is None or number > row.attempt:
        return None
    found = (
        tx.read(LAST_ATTEMPT, (row.last_attempt,))
        if number == row.attempt
        else tx.read(EARLIER_ATTEMPT, (row.last_attempt, number))
    )
    return _Attempt(*found[0]) if found else None


def end_attempt(live: Live, tx: Transaction, row: jobs.JobRow, report: Report, *, pilot_id: int) -> None:
    """End the live attempt of a job and move the job to where the cause, or an order of its owner, sends it."""
    tx.later(END_ATTEMPT, _end_values(row, report, tx.now, report.state))
    ordered = live.stopped(tx, pilot_id, (row.id, row.attempt))
    if row.state in TERMINAL:
        # Killed by its owner while it ran: the attempt ends now, the job ended then.
        return
    # An order to stop a job that has not ended is one to run it again, whatever became of this attempt.
    new, reason = _after(row, report) if ordered is None else (JobState.WAITING, ordered)
    data: dict[str, Any] = {"attempt": row.attempt, "cause": report.cause}
    if report.exit_code is not None:
        data["exit_code"] = report.exit_code
    jobs.move(tx, live.ids, row, new, reason=reason, **data)
    if new is JobState.WAITING:
        live.came_back(tx, row.tq_id, row.id)


def _after(row: jobs.JobRow, report: Report) -> tuple[JobState, str]:
    """The state that the end of an attempt leads to, and the reason that users see."""
    if report.state == "Done":
        return JobState.DONE, ""
    reason = _reason(report)
    if report.cause in PAYLOAD_CAUSES:
        return JobState.FAILED, reason
    if row.attempt >= row.max_attempts:
        return JobState.FAILED, f"{reason}; maximum of {row.max_attempts} attempts reached"
    return JobState.WAITING, reason


def _reason(report: Report) -> str:
    words = {
        "exit": f"exit code {report.exit_code}",
        "signal": f"ended by signal {report.signal}",
        "cpu-limit": "over its CPU time",
        "wall-limit": "over its wall time",
        "memory-limit": "over its memory",
        "output-limit": "over its output size",
        "not-started": "could not be started",
        "input": "input sandbox missing or damaged",
        "pilot-shutdown": "its pilot was shut down",
        "pilot-lost": "its pilot ended without a word",
        "lease-expired": "its pilot fell silent",
    }.get(report.cause, report.cause or report.state)
    return f"{words}: {report.message}"[:MAX_TEXT] if report.message else words


def _end_values(row: jobs.JobRow, report: Report, now: float, outcome: str) -> tuple[Any, ...]:
    return (
        report.ended or now, outcome, report.cause, report.exit_code, report.signal, report.cpu_seconds,
        report.wall_seconds, report.max_rss_mb, report.output_sha256, report.output_size,
        report.message[:MAX_TEXT], report.tail, report.started, row.last_attempt,
    )  # fmt: skip


def end_all_attempts(live: Live, tx: Transaction, pilot_id: int, cause: str) -> int:
    """End every live attempt of a pilot that is gone; their jobs go back. Returns how many."""
    found = tx.read(LIVE_OF_PILOT, (pilot_id,))
    for job_id, number in found:
        row = jobs.need_row(tx, job_id)
        end = Report(id=job_id, attempt=number, state="Released", cause=cause)
        end_attempt(live, tx, row, end, pilot_id=pilot_id)
    live.forget_pilot(tx, pilot_id)
    return len(found)
