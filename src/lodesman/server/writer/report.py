"""What pilots report: attempts started and ended, what they still have, and silence."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from lodesman.base.errors import Forbidden
from lodesman.decide.director.hosts import NODE_FAILED, NODE_FAULT, Failure, failed_at_once
from lodesman.languages.jobs.retries import PAYLOAD_CAUSES
from lodesman.languages.jobs.spec import TERMINAL
from lodesman.server.store import accounting
from lodesman.server.store.accounting import RETURNED
from lodesman.server.store.hosts import note_failure
from lodesman.server.store.sandboxes import may_hand_in
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, jobs
from lodesman.server.store.write.attempts import MAX_TEXT, NOT_KEPT, AttemptReport, AttemptRow, JobWithAttempt
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.store.write.pilots import count_job
from lodesman.server.writer.bookings import Attempt
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.retry import after_failure, attempts_used_up
from lodesman.wire.hosts import HostName
from lodesman.wire.pilots import ReportResult
from lodesman.wire.service import UploadedOutput
from lodesman.wire.vocabulary import JobState

log = logging.getLogger(__name__)

# The clocks of nodes differ, and CPU time is measured in ticks.
_CLOCKS_DIFFER = 1.1
_MOST_MB = 1 << 30
# Causes of attempts that ended without their pilot's word.
LOST = "pilot-lost"
_LEASE_EXPIRED = "lease-expired"
UNNAMED = "not-named"
_SHUTDOWN = "pilot-shutdown"
NOT_TAKEN = "not-taken"
"""The cause of an attempt that its bound pilot never claimed."""
_TOO_LATE = "a report came too late and was refused"
_TAKEN_WITHOUT = "a report named an output that is not stored, and was taken without it"
_LACKS_OUTPUT = "Its output is not stored."
BEYOND_SIZE = (
    "its pilot said that it runs more at once than it has room for, while others waited for this job"
)
TAKEN_BACK = "it had not started for long in a pilot that had it to run later, while others waited for it"
# A job that ends its node before it is reported as Running looks like one that never started.
_MOST_LOST_BEFORE_START = 20
# The states in which a job can still take a lost attempt's success.
_STILL_OPEN = frozenset({JobState.WAITING, JobState.HELD, JobState.FAILED})


def most_mb(memory_mb: float) -> float:
    """The most memory possible in a pilot of `memory_mb` (0: unknown)."""
    return min(_MOST_MB, 2 * memory_mb + 4_096) if memory_mb else _MOST_MB


def bounded_times(cpu_seconds: float, wall_seconds: float, *, life: float, cores: int) -> tuple[float, float]:
    """CPU and wall seconds that an attempt of this age can have used."""
    wall = min(wall_seconds, max(0.0, life))
    return min(cpu_seconds, cores * (wall or max(0.0, life)) * _CLOCKS_DIFFER), wall


def _possible(
    report: AttemptReport, attempt: AttemptRow, *, cores: int, memory_mb: float, now: float
) -> AttemptReport:
    """Bounds numbers, and shifts times into the attempt. A time of 0 is unknown."""
    life = now - attempt.claimed_at
    cpu, wall = bounded_times(report.cpu_seconds or 0.0, report.wall_seconds or 0.0, life=life, cores=cores)
    # The clock of a node may be hours off: the duration of the payload is right all the same.
    times = [at for at in (report.started, report.ended) if at] or [now]
    shift = min(0.0, now - max(times)) or max(0.0, attempt.claimed_at - min(times))
    start = None if not report.started else max(attempt.claimed_at, min(report.started + shift, now))
    end = None if not report.ended else max(start or attempt.claimed_at, min(report.ended + shift, now))
    rss = None if report.max_rss_mb is None else min(report.max_rss_mb, most_mb(memory_mb))
    return replace(report, cpu_seconds=cpu, wall_seconds=wall, started=start, ended=end, max_rss_mb=rss)


def _with_stored(report: AttemptReport, attempt: AttemptRow) -> AttemptReport:
    """Names the output that exists: uploaded, else as it came."""
    if attempt.output_sha256:
        return replace(report, output_sha256=attempt.output_sha256, output=None)
    if report.output is not None or report.output_sha256 is None:
        return report
    return replace(report, output_sha256=NOT_KEPT, message=f"{report.message} {_LACKS_OUTPUT}".lstrip())


def not_handed_in(job: int, attempt: int) -> Forbidden:
    """The refusal of an output."""
    return Forbidden("This attempt is not this pilot's, or it has ended.", job=job, attempt=attempt)


def register_output(tx: Transaction, stored: UploadedOutput) -> None:
    """Raises Forbidden if its attempt does not count any more."""
    attempt = may_hand_in(tx.reader(), stored.pilot, stored.job, stored.attempt)
    if attempt is None:
        raise not_handed_in(stored.job, stored.attempt)
    attempts.store_output(tx, attempt, stored.sha256, stored.size)


def take_reports(
    tx: Transaction, live: WriterState, pilot_id: int, reports: Iterable[AttemptReport], *, cores: int,
    memory_mb: float = 0, host: HostName | None = None,
) -> list[ReportResult]:  # fmt: skip
    """Accept or refuse each report, in order. `cores`, `memory_mb` (0: unknown), `host`: of the pilot."""
    unusual: dict[str, list[Mapping[str, object]]] = {_TOO_LATE: [], _TAKEN_WITHOUT: []}
    results = []
    all_reports = list(reports)
    # Read once for all: changes are written together, but before a job is judged again.
    jobs_by_id, seen = attempts.jobs_with_attempts(tx, {sent.id for sent in all_reports}), set[int]()
    bound = partial(_possible, cores=cores, memory_mb=memory_mb, now=tx.now)
    for report in all_reports:
        if report.id in seen:
            jobs_by_id |= attempts.jobs_with_attempts(tx, [report.id])
        seen.add(report.id)
        job = jobs_by_id.get(report.id)
        results.append(
            _take_report(tx, live, pilot_id, report, job=job, bound=bound, host=host, unusual=unusual)
        )
    ended = sum(
        sent.state in ("Done", "Failed") and result.accepted and result.reason is UNSET
        for sent, result in zip(all_reports, results, strict=True)
    )
    if ended:
        live.pilots.note_ended(tx, pilot_id, ended)
    # Whatever the order of starts and ends: what has ended makes room.
    live.pilots.fit(tx, pilot_id, cores, memory_mb)
    for words, of in unusual.items():
        if of:
            log.warning(words, extra={**of[0], "reports": len(of)})
    return results


def _take_report(
    tx: Transaction,
    live: WriterState,
    pilot_id: int,
    report: AttemptReport,
    *,
    job: JobWithAttempt | None,
    bound: Callable[[AttemptReport, AttemptRow], AttemptReport],
    host: HostName | None,
    unusual: Mapping[str, list[Mapping[str, object]]],
) -> ReportResult:
    """`bound` makes numbers possible; `unusual` collects what is logged, by message."""
    row, attempt = job or (None, None)
    if row is not None and report.attempt != row.attempt:
        attempt = attempts.attempt_by_number(tx, row, report.attempt)
    if row is None or attempt is None:
        return _refused(report, "no such attempt")
    if attempt.pilot_id != pilot_id:
        return _refused(report, "not your attempt")
    report = _with_stored(bound(report, attempt), attempt)
    details = {
        "job": row.id, "attempt": report.attempt, "pilot": pilot_id, "state": report.state, "cause": report.cause,
        "job_state": row.state.value, "job_attempt": row.attempt,
    }  # fmt: skip
    if attempt.ended_at is not None:
        result = _after_end(tx, live, row, report, attempt)
        if not result.accepted and report.state != "Running":
            unusual[_TOO_LATE].append(details)
        return result
    if report.output_sha256 == NOT_KEPT:
        unusual[_TAKEN_WITHOUT].append(details)
    if report.state == "Running":
        attempts.start_attempt(tx, row.last_attempt, report.started or tx.now)
        live.pilots.started(tx, pilot_id, (row.id, row.attempt))
        if row.state in (JobState.MATCHED, JobState.STALLED):
            jobs.move(tx, live.ids, row, JobState.RUNNING, attempt=row.attempt)
    else:
        end_attempt(live, tx, _charged(tx, row, report), report, pilot_id=pilot_id, host=host)
    return _accepted(report)


def _charged(tx: Transaction, row: JobRow, report: AttemptReport) -> JobRow:
    cause = report.cause if report.state == "Released" else ""
    if cause == RETURNED and row.state is JobState.MATCHED:
        return jobs.allow_another(tx, row)
    if cause == _SHUTDOWN:
        return never_started(tx, row)
    return _uncharged(tx, row) if cause == NODE_FAULT else row


def _after_end(
    tx: Transaction, live: WriterState, row: JobRow, report: AttemptReport, attempt: AttemptRow
) -> ReportResult:
    is_lost = attempt.outcome == "Released" and attempt.cause in (LOST, _LEASE_EXPIRED, UNNAMED)
    if report.state == attempt.outcome or (report.state == "Running" and not is_lost):
        return _accepted(report, "already ended")
    stale = attempt.id != row.last_attempt
    counts = is_lost and attempt.stop_reason is None and row.state in _STILL_OPEN and not stale
    if report.state == "Done" and counts:
        if row.state is JobState.WAITING:
            live.queues.left(tx, row.tq_id, 1)
        jobs.force_move(tx, live.ids, row, JobState.DONE, attempt=row.attempt, late=True)
        accounting.take_out(tx, attempt.id)
        attempts.end_attempt(tx, row.last_attempt, report, again=True)
        count_job(tx, attempt.pilot_id)
        return _accepted(report, "late")
    if report.state != "Running" and is_lost:
        accounting.take_out(tx, attempt.id)
        attempts.note_late_report(tx, attempt.id, report)
    return _refused(report, "stale attempt" if stale else "already ended")


def _accepted(report: AttemptReport, reason: str | UnsetType = UNSET) -> ReportResult:
    return ReportResult(report.id, report.attempt, accepted=True, reason=reason)


def _refused(report: AttemptReport, reason: str) -> ReportResult:
    return ReportResult(report.id, report.attempt, accepted=False, reason=reason)


def end_attempt(
    live: WriterState,
    tx: Transaction,
    row: JobRow,
    report: AttemptReport,
    *,
    pilot_id: int,
    host: HostName | None = None,
) -> None:
    """Move the job where the cause, or an order of its owner, sends it. An immediate failure counts against the `host`."""
    attempts.end_attempt(tx, row.last_attempt, report)
    live.bookings.ended(tx, pilot_id, (row.id, row.attempt))
    ordered = live.pilots.stopped(tx, pilot_id, (row.id, row.attempt))
    if row.state in TERMINAL:
        # Killed by its owner while it ran: the attempt ends now, the job ended then.
        return
    ran = 0.0 if report.started is None else (report.ended or tx.now) - report.started
    if host is not None and host.host and ordered is None and failed_at_once(report.state, report.cause, ran):
        note_failure(tx, Failure(tx.now, host, row.tq_id, row.id, ran))
    # An order to stop a job that has not ended means to run it again, whatever became of this attempt.
    row, new, reason = _after(tx, live, row, report) if ordered is None else (row, JobState.WAITING, ordered)
    exit_code = {} if report.exit_code is None else {"exit_code": report.exit_code}
    jobs.move(tx, live.ids, row, new, reason=reason, attempt=row.attempt, cause=report.cause, **exit_code)
    if new is JobState.DONE or (ordered is None and report.cause in PAYLOAD_CAUSES):
        count_job(tx, pilot_id)
    if new is JobState.WAITING:
        live.queues.came_back(tx, row.tq_id, row.id)


def _after(
    tx: Transaction, live: WriterState, row: JobRow, report: AttemptReport
) -> tuple[JobRow, JobState, str]:
    """The job, its new state, the reason for users."""
    if report.state == "Done":
        return row, JobState.DONE, ""
    reason = _reason(report)
    if report.cause in PAYLOAD_CAUSES:
        return after_failure(tx, live, row, report, reason)
    if row.attempt >= row.max_attempts:
        return row, JobState.FAILED, f"{reason}; {attempts_used_up(tx, row)}"
    return row, JobState.WAITING, reason


def _reason(report: AttemptReport) -> str:
    words = {
        UNNAMED: "its pilot did not name it in three heartbeats",
        "exit": f"exit code {report.exit_code}",
        "signal": f"ended by signal {report.signal}",
        "cpu-limit": "over its CPU time",
        "wall-limit": "over its wall time",
        "memory-limit": "over its memory",
        "output-limit": "over its output size",
        "not-started": "could not be started",
        "never-started": "never started",
        "warden-lost": "the process above it was killed",
        "input": "input sandbox missing or damaged",
        NODE_FAULT: NODE_FAILED,
        _SHUTDOWN: "its pilot was shut down",
        "pilot-lost": "its pilot ended without a word",
        "lease-expired": "its pilot fell silent",
        RETURNED: "its pilot gave it back before it started",
        NOT_TAKEN: "the pilot that it was bound to did not take it",
    }.get(report.cause, report.cause or report.state)
    if report.cause == RETURNED and report.message in (TAKEN_BACK, BEYOND_SIZE):
        return report.message
    message = (
        report.message.removeprefix(f"The job ended with {words}")
        .removeprefix("; ")
        .removeprefix(". ")
        .rstrip(".")
    )
    text = message if report.cause == "exit" else report.message
    return f"{words}: {text}"[:MAX_TEXT] if text else words


def take_back(live: WriterState, tx: Transaction, pilot_id: int, why: str) -> bool:
    """Let the job bound to a pilot wait again; false without one. The attempt does not count."""
    bound = live.pilots.bound.get(pilot_id)
    if bound is None:
        return False
    row = jobs.allow_another(tx, jobs.need_row(tx, bound[0]))
    end = AttemptReport(id=row.id, attempt=bound[1], state="Released", cause=NOT_TAKEN, message=why)
    end_attempt(live, tx, row, end, pilot_id=pilot_id)
    return True


def never_started(tx: Transaction, row: JobRow) -> JobRow:
    """An attempt that never ran does not count, up to a number of them."""
    return _uncharged(tx, row) if row.state is JobState.MATCHED else row


def _uncharged(tx: Transaction, row: JobRow) -> JobRow:
    """Allow one more attempt, unless too many ended so."""
    free = row.attempt <= _MOST_LOST_BEFORE_START or (
        attempts.lost_before_start(tx, row) < _MOST_LOST_BEFORE_START
    )
    return jobs.allow_another(tx, row) if free else row


_ON_A_NODE = frozenset({JobState.RUNNING, JobState.COMPLETING})


def give_back(tx: Transaction, live: WriterState, pilot_id: int, unnamed: Iterable[Attempt]) -> int:
    """Release attempts that a pilot does not have; returns how many were live."""
    ended = 0
    for job_id, number in unnamed:
        row, held = jobs.row_by_id(tx, job_id), live.pilots.held.get(pilot_id, {})
        if live.pilots.bound.get(pilot_id) == (job_id, number):
            ended += take_back(live, tx, pilot_id, "it did not ask for it in three heartbeats")
        elif row is not None and row.attempt == number and (job_id, number) in held:
            end = AttemptReport(id=job_id, attempt=number, state="Released", cause=UNNAMED)
            row = never_started(tx, row)
            end_attempt(live, tx, row, end, pilot_id=pilot_id)
            ended += 1
    return ended


def note_silence(tx: Transaction, live: WriterState, since: Mapping[int, float]) -> int:
    """Stall the jobs of silent pilots; returns how many. `since`: last word of each (UNIX seconds)."""
    stalled = 0
    for pilot_id, at in since.items():
        if pilot_id not in live.pilots.running:
            continue
        tx.add(live.pilots.silent, pilot_id)
        reason = f"its pilot has said nothing since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S UTC}"
        for row in _rows(tx, pilot_id):
            if row.state in _ON_A_NODE:
                details = {"attempt": row.attempt, "silent_since": at}
                jobs.move(tx, live.ids, row, JobState.STALLED, reason=reason, **details)
                stalled += 1
    return stalled


def note_heartbeat(
    tx: Transaction, live: WriterState, pilot_id: int, reported: Mapping[Attempt, bool]
) -> int:
    """Move jobs by what their pilot has. `reported`: attempt -> whether its output is being handed in."""
    moved = left = 0
    for row in _rows(tx, pilot_id):
        hands_in = reported.get((row.id, row.attempt))
        if hands_in:
            live.pilots.handed_in(tx, pilot_id, (row.id, row.attempt))
        if row.state is JobState.STALLED and hands_in is None:
            left += 1
        elif row.state is JobState.STALLED or (row.state is JobState.RUNNING and hands_in):
            new = JobState.COMPLETING if hands_in else JobState.RUNNING
            jobs.move(tx, live.ids, row, new, attempt=row.attempt)
            moved += 1
    # What it did not name may come in its next word.
    if not left:
        tx.discard(live.pilots.silent, pilot_id)
    return moved


def _rows(tx: Transaction, pilot_id: int) -> list[JobRow]:
    jobs_by_id = attempts.jobs_with_attempts(
        tx, [attempt.job_id for attempt in attempts.live_attempts_of(tx, pilot_id)]
    )
    return [row for row, _ in jobs_by_id.values()]
