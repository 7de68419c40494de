"""Deleting what is old: jobs with their chains, and what nothing refers to any more."""

from __future__ import annotations

from collections.abc import Sequence

from lodesman.server.store import accounting, audit
from lodesman.server.store.dialect import GIVEN, GIVEN_PAIRS, greatest, keys
from lodesman.server.store.ids import mark_ids
from lodesman.server.store.read.upkeep import CHAIN, ENDED_STATES, OLD_JOBS, OldJob
from lodesman.server.store.statement import ANY, ONE, exactly
from lodesman.server.store.transaction import Transaction
from lodesman.wire.service import PurgeOrder

_HOLES = f"""UPDATE hole SET state = 'Moved', reason = '' WHERE (cohort_id, start) IN {GIVEN_PAIRS}
AND state IN ({ENDED_STATES}) AND at < ?"""
_EMPTY = f"""SELECT s.id FROM submission s WHERE s.id IN {GIVEN}
AND NOT EXISTS (SELECT 1 FROM job j WHERE j.id BETWEEN s.base AND s.base + s.count - 1)"""
_PILOTS_PURGED = f"UPDATE usage_fold SET pilots_purged = {greatest('pilots_purged', '?')}"
# The templates of single jobs that were changed.
_CHANGED = f"""DELETE FROM template WHERE id IN (SELECT j.template_id FROM job j JOIN submission s ON s.id = j.submission_id
WHERE j.id IN {GIVEN} AND j.template_id NOT BETWEEN s.first_template AND s.last_template
AND NOT EXISTS (SELECT 1 FROM cohort c WHERE c.submission_id = s.id AND c.template_id = j.template_id))"""
# What belongs to a submission, in the order of deletion, a limited number of rows at once.
_BELONGINGS = (
    f"""DELETE FROM hole WHERE (cohort_id, start) IN (SELECT h.cohort_id, h.start FROM cohort c
    JOIN hole h ON h.cohort_id = c.id WHERE c.submission_id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM template WHERE id IN (SELECT t.id FROM cohort c
    JOIN template t ON t.id = c.template_id WHERE c.submission_id IN {GIVEN} LIMIT ?)""",
    f"DELETE FROM cohort WHERE id IN (SELECT id FROM cohort WHERE submission_id IN {GIVEN} LIMIT ?)",
    f"""DELETE FROM template WHERE id IN (SELECT t.id FROM submission s
    JOIN template t ON t.id BETWEEN s.first_template AND s.last_template WHERE s.id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM event WHERE id IN (SELECT e.id FROM submission s JOIN event e
    ON e.last_job IS NOT NULL AND e.job_id BETWEEN s.base AND s.base + s.count - 1 WHERE s.id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM dependency WHERE (job_id, first, ok) IN (SELECT job_id, first, ok FROM dependency
    WHERE submission_id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM submission_reader WHERE (submission_id, reader) IN (SELECT submission_id, reader
    FROM submission_reader WHERE submission_id IN {GIVEN} LIMIT ?)""",
    f"""DELETE FROM sandbox_use WHERE (owner, sha256, submission_id) IN (SELECT owner, sha256, submission_id
    FROM sandbox_use WHERE submission_id IN {GIVEN} LIMIT ?)""",
)


def old_jobs(tx: Transaction, ids: Sequence[int], before: float) -> list[OldJob]:
    """Jobs that ended before that time, together with their attempts."""
    return [OldJob(*row) for row in tx.read(f"{OLD_JOBS} AND j.id IN {GIVEN}", (before, keys(ids)))]


def delete_jobs(tx: Transaction, jobs: Sequence[OldJob]) -> None:
    """Delete jobs with all their events and attempts."""
    mark_ids(tx, "event", "attempt", "template")
    last = {"event": [job.last_event for job in jobs], "attempt": [job.last_attempt for job in jobs]}
    accounting.add_before_purge(tx, [head for head in last["attempt"] if head is not None])
    small = f"{CHAIN.format('attempt')} DELETE FROM small_output WHERE attempt_id IN (SELECT id FROM chain)"
    tx.write(small, (keys(head for head in last["attempt"] if head is not None),), rows=ANY)
    for table, heads in last.items():
        sql = f"{CHAIN.format(table)} DELETE FROM {table} WHERE id IN (SELECT id FROM chain)"
        tx.write(sql, (keys(head for head in heads if head is not None),), rows=ANY)
    tx.write(_CHANGED, (keys(job.id for job in jobs),), rows=ANY)
    tx.write(
        f"DELETE FROM job WHERE id IN {GIVEN}",
        (keys(job.id for job in jobs),),
        rows=exactly(len(jobs)),
    )


def delete_left(tx: Transaction, old: PurgeOrder) -> None:
    """Purge members that were never taken, unreferenced templates, ended pilots with unused tokens, old audit entries."""
    audit.delete_old(tx, old.before)
    if old.holes:
        tx.write(_HOLES, (keys(old.holes), old.before), rows=ANY)
    if old.templates:
        mark_ids(tx, "template")
        tx.write(f"DELETE FROM template WHERE id IN {GIVEN}", (keys(old.templates),), rows=ANY)
    if old.pilots:
        mark_ids(tx, "pilot")
        ended = f"SELECT id FROM pilot WHERE id IN {GIVEN} AND ended_at < ?"
        for sql in (
            f"DELETE FROM token WHERE pilot_id IN ({ended})",
            f"DELETE FROM pilot WHERE id IN ({ended})",
        ):
            tx.write(sql, (keys(old.pilots), old.before), rows=ANY)
        tx.write(_PILOTS_PURGED, (old.before,), rows=ONE)


def those_gone(tx: Transaction, ids: Sequence[int]) -> set[int]:
    """Submissions that no longer exist."""
    return {*ids} - {
        row[0] for row in tx.read(f"SELECT id FROM submission WHERE id IN {GIVEN}", (keys(ids),))
    }


def delete_submissions(tx: Transaction, ids: Sequence[int], most: int) -> bool:
    """Submissions without jobs, at most `most` rows of each table; false if there is more."""
    empty = keys(row[0] for row in tx.read(_EMPTY, (keys(ids),)))
    mark_ids(tx, "submission", "cohort", "template", "event")
    for statement in _BELONGINGS:
        if tx.write(statement, (empty, most), rows=ANY) >= most:
            return False
    tx.write(f"DELETE FROM submission WHERE id IN {GIVEN}", (empty,), rows=ANY)
    return True
