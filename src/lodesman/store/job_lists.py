"""Lists of jobs by id, owner, group and state: rows and untouched members merged in the order of their ids.

Nothing is looked at job by job: rows come from one statement, members from the ranges of their cohorts, and
both stop at the limit, so a list of an array of a million is as quick as one of ten jobs.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import apsw

from lodesman.store.views import JOB, JOB_KEYS, STATE, Row, hole_standing, run_standing

# No submission has more members; so one that reaches `first` begins at most this far before it.
MOST_MEMBERS = 1_000_000
COHORTS = """SELECT c.id, c.tq_id, c.cursor, c.template_id, c.start, c.stop, q.reason, q.since
FROM cohort_now c LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id
WHERE c.submission_id = ? AND c.start < ? AND c.stop > ?"""
HOLES = "SELECT start, stop, state, reason, at FROM hole WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQuery:
    """Jobs with first <= id <= last, at most `limit`, the smallest or the greatest ids first.

    `owner` None: of everybody; else of this owner, and of the groups `shared` of `vo`, which share their jobs.
    Empty `states` and `group`: all.
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


@dataclass(frozen=True, slots=True)
class _Run:
    """Members [start, stop) of one cohort that stand alike."""

    start: int
    stop: int
    standing: Row
    cohort: tuple[Any, ...]


def list_jobs(db: apsw.Connection, query: JobQuery) -> list[Row]:
    """The jobs, as `views.find_job` shows each."""
    rows = list(_rows(db, query))
    first, last = query.first, query.last
    if len(rows) == query.limit and rows:
        # Members beyond the last row would not be shown.
        first, last = (rows[-1]["id"], last) if query.newest else (first, rows[-1]["id"])
    members = _members(db, query, (first, last))
    both = heapq.merge(rows, members, key=lambda job: job["id"], reverse=query.newest)
    return list(islice(both, query.limit))


def _rows(db: apsw.Connection, query: JobQuery) -> Iterator[Row]:
    where, values = _whose(query)
    if query.states:
        where += f" AND {STATE} IN ({', '.join('?' * len(query.states))})"
        values += tuple(query.states)
    order = "DESC" if query.newest else "ASC"
    found = db.execute(
        f"{JOB} WHERE j.id >= ? AND j.id <= ?{where} ORDER BY j.id {order} LIMIT ?",
        (query.first, query.last, *values, query.limit),
    )
    return (dict(zip(JOB_KEYS, row, strict=True)) for row in found)


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


def _members(db: apsw.Connection, query: JobQuery, ids: tuple[int, int]) -> Iterator[Row]:
    """Members without a row, submission by submission."""
    where, values = _whose(query)
    order = "DESC" if query.newest else "ASC"
    submissions = db.execute(
        f"""SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo, s.name, s.created_at FROM submission s
        WHERE s.base > ? AND s.base <= ? AND s.base + s.count > ? AND s.count > 1{where} ORDER BY s.base {order}""",
        (ids[0] - MOST_MEMBERS, ids[1], ids[0], *values),
    )
    for submission in submissions:
        base, count = submission[1:3]
        part = max(ids[0] - base, 0), min(ids[1] - base + 1, count)
        runs = sorted(_runs(db, submission, part), key=lambda run: run.start, reverse=query.newest)
        for run in runs:
            if query.states and run.standing["state"] not in query.states:
                continue
            indexes = range(run.start, run.stop)
            for index in reversed(indexes) if query.newest else indexes:
                yield _member(submission, run, index)


def _runs(db: apsw.Connection, submission: tuple[Any, ...], part: tuple[int, int]) -> Iterator[_Run]:
    """The members in `part` that have no row, as runs of one state each."""
    created = submission[-1]
    start, stop = part
    for cohort in db.execute(COHORTS, (submission[0], stop, start)):
        number, _, cursor, _, begin, end, held, since_held = cohort
        waits = run_standing(created, held, since_held)
        at, until = max(cursor, start), min(end, stop)
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
