"""Another attempt after a payload failed (ADR 0070)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from lodesman.base.errors import counted
from lodesman.languages import jobs as languages
from lodesman.languages.jobs.retries import MEMORY
from lodesman.server.store import submit_pools
from lodesman.server.store.read.jobs import retry_of, stored_template
from lodesman.server.store.task_queues import key_and_requirements
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import jobs
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.writer.live import WriterState
from lodesman.wire.vocabulary import JobState


def after_failure(
    tx: Transaction, live: WriterState, row: JobRow, report: AttemptReport, reason: str
) -> tuple[JobRow, JobState, str]:
    """The job, its new state, the reason for users. `reason`: why the attempt ended."""
    rule = languages.read_retry(retry_of(tx.reader(), row.template_id))
    if not rule.covers(report.cause, report.exit_code):
        return row, JobState.FAILED, reason
    if row.attempt >= row.max_attempts:
        return row, JobState.FAILED, f"{reason}; {attempts_used_up(tx, row)}"
    again = f"attempt {row.attempt + 1} of {row.max_attempts}, since {reason}"
    if report.cause == MEMORY and rule.memory_factor > 1.0:
        key, _ = key_and_requirements(tx.reader(), row.tq_id)
        most_mb = live.limits.retry_memory_mb
        memory_mb = rule.more_memory(key.memory_mb, report.max_rss_mb, most_mb)
        if memory_mb <= key.memory_mb:
            words = f"{reason}; a retry may ask for at most {most_mb} MB of memory"
            return row, JobState.FAILED, words if most_mb else reason
        return _with_memory(tx, live, row, memory_mb), JobState.WAITING, f"{again}; now with {memory_mb} MB"
    return row, JobState.WAITING, again


def attempts_used_up(tx: Transaction, row: JobRow) -> str:
    """Says that a job has had all its attempts."""
    most = stored_template(tx.reader(), row.template_id).max_attempts
    beside = row.max_attempts - most
    words = f"maximum of {counted(most, 'attempt')} reached"
    return f"{words}, beside {beside} that did not start" if beside > 0 else words


def _with_memory(tx: Transaction, live: WriterState, row: JobRow, memory_mb: int) -> JobRow:
    """Give the job that much memory: another task queue, and a template of its own."""
    key, requirements = key_and_requirements(tx.reader(), row.tq_id)
    queues = live.queues
    tq_id = queues.queue_for(tx, replace(key, memory_mb=memory_mb), requirements)
    if not queues.index.waiting(tq_id) and tq_id not in queues.held:
        submit_pools.ask_for_pass(tx)  # whether any queue has that much, no pass has judged
    old, number = stored_template(tx.reader(), row.template_id), live.ids.template()
    body: dict[str, dict[str, Any]] = msgspec.json.decode(old.body)
    body.setdefault("spec" if old.fill == jobs.Fill.ALL else "limits", {})["memory_mb"] = memory_mb
    jobs.insert_template(tx, number, old._replace(body=msgspec.json.encode(body).decode()))
    jobs.change_row(
        tx, live.ids, row, tq_id=tq_id, template=number, max_attempts=old.max_attempts, attributes=["Memory"]
    )
    return jobs.need_row(tx, row.id)
