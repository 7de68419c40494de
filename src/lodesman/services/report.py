"""What pilots report of their attempts: started, ended; and the end of attempts whose pilot is lost.

Exactly once per attempt: a report of a stale attempt is refused and logged in the chain, never applied
(DESIGN 3.2). Payload causes end the job; all others send it back to its task queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lodesman.jobs.states import TERMINAL, JobState
from lodesman.services.live import Live
from lodesman.store import jobs
from lodesman.store.journal import Transaction

PAYLOAD_CAUSES = frozenset(
    {"exit", "signal", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "not-started"}
)
START_ATTEMPT = "UPDATE attempt SET started_at = ? WHERE id = ? AND started_at IS NULL"
END_ATTEMPT = """UPDATE attempt SET ended_at = ?, outcome = ?, cause = ?, exit_code = ?, signal = ?, cpu_seconds = ?,
wall_seconds = ?, max_rss_mb = ?, output_sha256 = ?, output_size = ?, message = ?, tail = ?,
started_at = coalesce(started_at, ?) WHERE id = ? AND ended_at IS NULL"""
LIVE_OF_PILOT = "SELECT job_id, number FROM attempt WHERE pilot_id = ? AND ended_at IS NULL"
ATTEMPT_END = "SELECT ended_at, pilot_id FROM attempt WHERE id = ?"
JOB_DONE = "UPDATE pilot SET jobs_done = jobs_done + 1 WHERE id = ?"
MAX_TEXT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One word of a pilot about one attempt (times in seconds, memory in MB)."""

    id: int
    attempt: int
    state: str
    cause: str = ""
    exit_code: int | None = None
    signal: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    max_rss_mb: float = 0.0
    started: float | None = None
    ended: float | None = None
    output_sha256: str | None = None
    output_size: int | None = None
    tail: str = ""
    message: str = ""


@dataclass(slots=True)
class TakeReports:
    """Apply the reports of one pilot, in order; answers one dict per report."""

    live: Live
    pilot_id: int
    reports: list[Report]

    def apply(self, tx: Transaction) -> list[dict[str, Any]]:
        """Each report is accepted or refused on its own."""
        return [self._one(tx, report) for report in self.reports]

    def _one(self, tx: Transaction, report: Report) -> dict[str, Any]:
        answer: dict[str, Any] = {"id": report.id, "attempt": report.attempt, "accepted": False}
        row = jobs.read_row(tx, report.id)
        if row is None or row.last_attempt is None:
            return {**answer, "reason": "no such attempt"}
        if row.attempt != report.attempt:
            return {**answer, "reason": "stale attempt"}
        ended_at, pilot_id = tx.read(ATTEMPT_END, (row.last_attempt,))[0]
        if pilot_id != self.pilot_id:
            return {**answer, "reason": "not your attempt"}
        if ended_at is not None:
            return self._after_end(tx, row, report, answer)
        if report.state == "Running":
            return {**answer, **self._started(tx, row, report)}
        end_attempt(self.live, tx, row, report, pilot_id=self.pilot_id)
        tx.later(JOB_DONE, (self.pilot_id,))
        return {**answer, "accepted": True}

    def _started(self, tx: Transaction, row: jobs.JobRow, report: Report) -> dict[str, Any]:
        tx.later(START_ATTEMPT, (report.started or tx.now, row.last_attempt))
        if row.state in (JobState.MATCHED, JobState.STALLED):
            jobs.move(tx, self.live.ids, row, JobState.RUNNING, attempt=row.attempt)
        return {"accepted": True}

    def _after_end(
        self, tx: Transaction, row: jobs.JobRow, report: Report, answer: dict[str, Any]
    ) -> dict[str, Any]:
        """The attempt has ended already: the same report again, or a late success after its lease."""
        if row.state is JobState.WAITING and report.state == "Done":
            # A late success counts while the next attempt is unclaimed.
            self.live.left(tx, row.tq_id, 1)
            event = jobs.add_event(
                tx, self.live.ids, row.id, "Done", previous=row.last_event, attempt=row.attempt, late=True
            )
            tx.later(jobs.MOVE_ROW, ("Done", None, None, tx.now, event, "", row.id))
            tx.later("UPDATE attempt SET ended_at = NULL WHERE id = ?", (row.last_attempt,))
            tx.later(END_ATTEMPT, _end_values(row, report, tx.now, "Done"))
            return {**answer, "accepted": True, "reason": "late"}
        return {**answer, "accepted": row.state in TERMINAL, "reason": "already ended"}


def end_attempt(live: Live, tx: Transaction, row: jobs.JobRow, report: Report, *, pilot_id: int) -> None:
    """End the live attempt of a job and move the job to where the cause sends it."""
    tx.later(END_ATTEMPT, _end_values(row, report, tx.now, report.state))
    orders = live.kill_orders.get(pilot_id)
    if orders:
        orders.pop((row.id, row.attempt), None)
    if row.state in TERMINAL:
        # Killed by its owner while it ran: the attempt ends now, the job ended then.
        return
    new, reason = _after(row, report)
    data = {"attempt": row.attempt, "cause": report.cause}
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
    live.kill_orders.pop(pilot_id, None)
    live.last_claims.pop(pilot_id, None)
    return len(found)
