"""Lists of jobs by id, owner, group, state and reason: rows and untouched members merged in the order of their ids.

Nothing is looked at job by job: rows come from one statement, members from the ranges of their cohorts, and
both stop at the limit, so a list of an array of a million is as quick as one of ten jobs. One's own jobs are found from
one's own submissions, however many jobs others have.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lodesman.store.engine import Reader
from lodesman.store.views import (
    AND_WITH,
    JOB_FACTS,
    JOB_KEYS,
    MAIN_REASON,
    OF_JOBS,
    STATE,
    Row,
    hole_standing,
    run_standing,
)

# Where members without a row can be.
MEMBER_STATES = frozenset({"Waiting", "Held", "Killed", "Deleted"})
# Blocks of ids never overlap: of those that begin before the range only the last can reach into it.
BLOCKS = "s.base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?), 0) AND s.base <= ?"
# One bound on each side: of two the database would take either, and walk on to the jobs of others.
OF_OWN_JOBS = f"""FROM submission s INDEXED BY submission_owner
CROSS JOIN job j ON {BLOCKS} AND j.id BETWEEN max(s.base, ?) AND min(s.base + s.count - 1, ?)"""
BY_ID = "j.id >= ? AND j.id <= ?"
ARRAYS = f"""SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo, s.name, s.created_at
FROM submission s INDEXED BY {{}} WHERE s.count > 1 AND s.base + s.count > ? AND {BLOCKS}"""
# What claims took of cohorts whose cursors are not written yet (`store.claim_log`): read once for a list.
REACHED = """SELECT a.cohort_id, max(a.job_id) + 1 FROM attempt a
WHERE a.id > (SELECT claims_at FROM leadership) AND a.cohort_id IS NOT NULL GROUP BY a.cohort_id"""
COHORTS = """SELECT c.id, c.tq_id, c.cursor, c.template_id, c.start, c.stop, q.reason, q.since, r.reason
FROM cohort c LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE c.submission_id = ? AND c.start < ? AND c.stop > ?"""
HOLES = "SELECT start, stop, state, reason, at FROM hole WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Jobs with first <= id <= last, at most `limit`, the smallest or the greatest ids first.

    `owner` None: of everybody; else of this owner, and of the groups `shared` of `vo`, which share their jobs.
    Empty `states`, `group` and `reason` (the main reason why a job waits): all.
    """

    first: int
    last: int
    limit: int
    newest: bool = False
    owner: str | None = None
    shared: Sequence[str] = ()
    vo: str = ""
    group: str = ""
    states: Sequence[str] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    """Members [start, stop) of one cohort that stand alike."""

    start: int
    stop: int
    standing: Row
    cohort: tuple[Any, ...]


def list_jobs(db: Reader, query: JobQuery) -> list[Row]:
    """The jobs, as `views.find_job` shows each."""
    # One snapshot: a member that is claimed meanwhile is shown once, as it was.
    with db:
        rows = list(_rows(db, query))
        if not query.states or MEMBER_STATES.intersection(query.states):
            rows = _with_members(db, query, rows)
    return rows


def _with_members(db: Reader, query: JobQuery, rows: list[Row]) -> list[Row]:
    first, last = query.first, query.last
    if len(rows) == query.limit and rows:
        # Members beyond the last row would not be shown.
        first, last = (rows[-1]["id"], last) if query.newest else (first, rows[-1]["id"])
    members = _members(db, query, (first, last))
    both = heapq.merge(rows, members, key=lambda job: job["id"], reverse=query.newest)
    return list(islice(both, query.limit))


def _rows(db: Reader, query: JobQuery) -> Iterator[Row]:
    where, values = _whose(query)
    if query.states:
        where += f" AND {STATE} IN ({', '.join('?' * len(query.states))})"
        values += tuple(query.states)
    if query.reason:
        where += f" AND {MAIN_REASON} = ?"
        values += (query.reason,)
    order, span = "DESC" if query.newest else "ASC", (query.first, query.last)
    if _is_own(query):
        # Submissions in the order of their blocks, and in each its jobs: that is the order of the jobs.
        from_, by, values = OF_OWN_JOBS, f"s.base {order}, j.id {order}", (*span, *span, *values)
    else:
        from_, by, values = f"{OF_JOBS} AND {BY_ID}", f"j.id {order}", (*span, *values)
    found = db.execute(
        f"{JOB_FACTS} {from_} {AND_WITH} WHERE true{where} ORDER BY {by} LIMIT ?", (*values, query.limit)
    )
    return (dict(zip(JOB_KEYS, row, strict=True)) for row in found)


def _is_own(query: JobQuery) -> bool:
    return query.owner is not None and not query.shared


def _whose(query: JobQuery) -> tuple[str, tuple[Any, ...]]:
    """The conditions on submissions and their values."""
    where, values = "", tuple[Any, ...]()
    if query.owner is not None:
        where += " AND (s.owner = ?"
        values += (query.owner,)
        if query.shared:
            where += f" OR s.vo = ? AND s.grp IN ({', '.join('?' * len(query.shared))})"
            values += (query.vo, *query.shared)
        where += ")"
    if query.group:
        where += " AND s.grp = ?"
        values += (query.group,)
    return where, values


def _members(db: Reader, query: JobQuery, ids: tuple[int, int]) -> Iterator[Row]:
    """Members without a row, submission by submission."""
    where, values = _whose(query)
    order = "DESC" if query.newest else "ASC"
    arrays = ARRAYS.format("submission_owner" if _is_own(query) else "submission_array")
    reached = dict(db.execute(REACHED))
    for submission in db.execute(f"{arrays}{where} ORDER BY s.base {order}", (ids[0], *ids, *values)):
        base, count = submission[1:3]
        part = max(ids[0] - base, 0), min(ids[1] - base + 1, count)
        runs = sorted(
            _runs(db, submission, part, reached=reached), key=lambda run: run.start, reverse=query.newest
        )
        for run in filter(lambda run: _wanted(query, run.standing), runs):
            indexes = range(run.start, run.stop)
            for index in reversed(indexes) if query.newest else indexes:
                yield _member(submission, run, index)


def _wanted(query: JobQuery, standing: Row) -> bool:
    by_state = not query.states or standing["state"] in query.states
    return by_state and (not query.reason or standing["main_reason"] == query.reason)


def _runs(
    db: Reader, submission: tuple[Any, ...], part: tuple[int, int], *, reached: Mapping[int, int]
) -> Iterator[_Run]:
    """The members in `part` that have no row, as runs of one state each. `reached`: the next id, by cohort."""
    base, created = submission[1], submission[-1]
    start, stop = part
    for cohort in db.execute(COHORTS, (submission[0], stop, start)):
        number, _, cursor, _, begin, end, *why = cohort
        waits = run_standing(created, *why)
        at, until = max(cursor, reached.get(number, 0) - base, start), min(end, stop)
        for left, right, state, reason, since in db.execute(
            HOLES, (number, min(end, stop), max(begin, start))
        ):
            if at < min(left, until):
                yield _Run(at, min(left, until), waits, cohort)
            at = max(at, right)
            if state != "Moved":
                yield _Run(max(left, start), min(right, stop), hole_standing(state, reason, since), cohort)
        if at < until:
            yield _Run(at, until, waits, cohort)


def _member(submission: tuple[Any, ...], run: _Run, index: int) -> Row:
    number, base, _, owner, group, vo, name, created = submission
    return dict.fromkeys(JOB_KEYS) | {
        "id": base + index, "attempt": 0, **run.standing, "owner": owner, "group": group, "vo": vo, "name": name,
        "submitted_at": created, "task_queue": run.cohort[1], "template": run.cohort[3], "submission": number,
        "base": base,
    }  # fmt: skip
