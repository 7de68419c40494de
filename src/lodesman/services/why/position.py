"""Where a job stands in its task queue: how many wait there, and how many of them go before it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lodesman.store.engine import Reader, only_row

MOST_ROWS: Final = 10_000
MOST_RUNS: Final = 200
COUNT = "SELECT waiting, row_cursor, as_of FROM task_queue_count WHERE tq_id = ?"
# Claims that are in the attempts alone so far (store.claim_log): few, and read once.
CLAIMED = """SELECT cohort_id, max(job_id), sum(id > ?) FROM attempt
WHERE id > (SELECT claims_at FROM leadership) AND tq_id = ? GROUP BY cohort_id"""
ROWS_AHEAD = """SELECT count(*) FROM (SELECT 1 FROM job
  WHERE queued IS NOT NULL AND tq_id = ? AND id >= ? AND id < ? AND state = 'Waiting' LIMIT ?)"""
RUNS_AHEAD = """SELECT id, base, cursor, min(stop, ?2 - base) FROM cohort
WHERE tq_id = ?1 AND cursor < stop AND first < ?2 ORDER BY first LIMIT ?3"""
HOLES = """SELECT coalesce(sum(min(stop, ?3) - max(start, ?2)), 0) FROM hole
WHERE cohort_id = ?1 AND stop > ?2 AND start < ?3"""


def position(db: Reader, job: Mapping[str, Any]) -> dict[str, Any]:
    """`waiting` jobs of its task queue, `ahead` of them; counting ends early, and then `more_ahead` is set."""
    tq_id, job_id = job["task_queue"], job["id"]
    found = db.execute(COUNT, (tq_id,)).fetchone()
    if found is None:
        return {"waiting": 0, "ahead": 0, "more_ahead": False}
    waiting, first, as_of = found
    claimed = {cohort: (last, n) for cohort, last, n in db.execute(CLAIMED, (as_of, tq_id))}
    rows = only_row(db, ROWS_AHEAD, (tq_id, first, job_id, MOST_ROWS))[0]
    runs = list(db.execute(RUNS_AHEAD, (tq_id, job_id, MOST_RUNS)))
    ahead = rows
    for cohort, base, cursor, stop in runs:
        start = max(cursor, claimed[cohort][0] - base + 1) if cohort in claimed else cursor
        if start < stop:
            ahead += stop - start - only_row(db, HOLES, (cohort, start, stop))[0]
    return {
        "waiting": max(0, waiting - sum(n for _, n in claimed.values())),
        "ahead": ahead,
        "more_ahead": rows >= MOST_ROWS or len(runs) >= MOST_RUNS,
    }
