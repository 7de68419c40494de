"""Lists of jobs by id, owner, group, state and reason: rows and untouched members merged in the order of their ids.

No list reads job by job: rows come from one statement, members from the ranges of their cohorts, and both stop at the
limit. So a list of an array of a million is as quick as one of ten jobs. A user's own jobs are found from the user's own
submissions, however many jobs others have.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from lodesman.answers.jobs import Job
from lodesman.answers.requests import JobsQuery
from lodesman.store import Reader
from lodesman.store.dialect import JOIN_IN_ORDER, by_index, greatest, least
from lodesman.store.read import jobs

# Where members without a row can be.
_MEMBER_STATES = frozenset({"Waiting", "Held", "Killed", "Deleted"})
# Blocks of ids never overlap: of those that begin before the range only the last can reach into it.
_BLOCKS = "s.base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?), 0) AND s.base <= ?"
# One bound on each side: of two the database would take either, and walk on to the jobs of others.
_OF_OWN_JOBS = f"""FROM submission s {by_index("submission_owner")}
{JOIN_IN_ORDER} job j ON {_BLOCKS} AND j.id BETWEEN {greatest("s.base", "?")} AND {least("s.base + s.count - 1", "?")}"""
_BY_ID = "j.id >= ? AND j.id <= ?"
_ARRAYS = f"""SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo, s.name, s.created_at
FROM submission s {{}} WHERE s.count > 1 AND s.base + s.count > ? AND {_BLOCKS}"""
# What claims took of cohorts whose cursors are not written yet (`store.claim_log`): read once for a list.
REACHED = """SELECT a.cohort_id, max(a.job_id) + 1 FROM attempt a
WHERE a.id > (SELECT claims_at FROM leadership) AND a.cohort_id IS NOT NULL GROUP BY a.cohort_id"""
_COHORTS = """SELECT c.id, c.tq_id, c.cursor, c.template_id, c.start, c.stop, q.reason, q.since, r.reason,
r.next_reason, r.next_before FROM cohort c
LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE c.submission_id = ? AND c.start < ? AND c.stop > ?"""
_HOLES = """SELECT start, stop, state, reason, at, admin_held FROM hole
WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"""


class JobQuery(JobsQuery, kw_only=True):
    """What a user asks for, at most `limit` jobs, in some `states`.

    `owner` None: of all owners; else of this owner, and of the groups `shared` of `vo`, which share their jobs, or of the
    `whole_vo`.
    """

    owner: str | None = None
    shared: Sequence[str] = ()
    vo: str = ""
    whole_vo: bool = False
    states: Sequence[str] = ()

    @property
    def is_own(self) -> bool:
        """Whether all jobs have one owner."""
        return self.owner is not None and not self.shared and not self.whole_vo

    @property
    def order(self) -> str:
        """That of the ids."""
        return "DESC" if self.newest else "ASC"


@dataclass(frozen=True, slots=True)
class AlikeMembers:
    """Members [start, stop) of one cohort in one state."""

    start: int
    stop: int
    state: jobs.MemberState
    task_queue: int
    template: int


def list_jobs(db: Reader, query: JobQuery) -> list[Job]:
    """The jobs, as `job_by_id` shows each."""
    # One snapshot: a member that is claimed meanwhile is shown once, as it was.
    with db:
        rows = list(_rows(db, query))
        if not query.states or _MEMBER_STATES.intersection(query.states):
            rows = _with_members(db, query, rows)
    return rows


def _with_members(db: Reader, query: JobQuery, rows: list[Job]) -> list[Job]:
    first, last = query.first, query.last
    if len(rows) == query.limit and rows:
        # Members beyond the last row would not be shown.
        first, last = (rows[-1].id, last) if query.newest else (first, rows[-1].id)
    both = heapq.merge(rows, _members(db, query, first, last), key=lambda job: job.id, reverse=query.newest)
    return list(islice(both, query.limit))


def _rows(db: Reader, query: JobQuery) -> Iterator[Job]:
    where, values = _whose(query)
    if query.states:
        where += f" AND {jobs.STATE} IN ({', '.join('?' * len(query.states))})"
        values += tuple(query.states)
    if query.reason:
        where += f" AND {jobs.MAIN_REASON} = ?"
        values += (query.reason,)
    order, span = query.order, (query.first, query.last)
    if query.is_own:
        # Submissions in the order of their blocks, and in each its jobs: that is the order of the jobs.
        from_, by, values = _OF_OWN_JOBS, f"s.base {order}, j.id {order}", (*span, *span, *values)
    else:
        from_, by, values = f"{jobs.OF_JOBS} AND {_BY_ID}", f"j.id {order}", (*span, *values)
    sql = f"{jobs.JOB_FACTS} {from_} {jobs.WITH_FACTS} WHERE true{where} ORDER BY {by} LIMIT ?"
    return map(jobs.job_of, db.execute(sql, (*values, query.limit)))


def _whose(query: JobQuery) -> tuple[str, tuple[Any, ...]]:
    """The conditions on submissions and their values."""
    where, values = "", tuple[Any, ...]()
    if query.owner is not None:
        where += " AND (s.owner = ?"
        values += (query.owner,)
        if query.whole_vo:
            where += " OR s.vo = ?"
            values += (query.vo,)
        elif query.shared:
            where += f" OR s.vo = ? AND s.grp IN ({', '.join('?' * len(query.shared))})"
            values += (query.vo, *query.shared)
        where += ")"
    if query.group:
        where += " AND s.grp = ?"
        values += (query.group,)
    return where, values


def _members(db: Reader, query: JobQuery, first: int, last: int) -> Iterator[Job]:
    """Members without a row and with first <= id <= last, submission by submission."""
    where, values = _whose(query)
    arrays = _ARRAYS.format(by_index("submission_owner" if query.is_own else "submission_array"))
    reached = dict(db.execute(REACHED))
    for submission in db.execute(
        f"{arrays}{where} ORDER BY s.base {query.order}", (first, first, last, *values)
    ):
        base, count = submission[1:3]
        start, stop = max(first - base, 0), min(last - base + 1, count)
        runs = alike_members(db, submission, start, stop, reached)
        for run in sorted(runs, key=lambda run: run.start, reverse=query.newest):
            found = run.state
            if query.states and found.state not in query.states:
                continue
            if not query.reason or found.main_reason == query.reason:
                yield from _each(submission, run, newest=query.newest)


def alike_members(
    db: Reader, submission: tuple[Any, ...], start: int, stop: int, reached: Mapping[int, int]
) -> Iterator[AlikeMembers]:
    """The members [start, stop) that have no row, in runs of one state. `reached`: the next id, by cohort."""
    base, created = submission[1], submission[-1]
    for number, tq_id, cursor, template, begin, end, held, since, reason, first, before in db.execute(
        _COHORTS, (submission[0], stop, start)
    ):
        waits, soon = (jobs.run_state(created, held, since, why) for why in (reason, first))
        border = (before or 0) - base
        at, until = max(cursor, reached.get(number, 0) - base, start), min(end, stop)
        for left, right, *hole in db.execute(_HOLES, (number, until, max(begin, start))):
            yield from _split(AlikeMembers(at, min(left, until), waits, tq_id, template), border, soon)
            at = max(at, right)
            if hole[0] != "Moved":
                yield AlikeMembers(
                    max(left, start), min(right, stop), jobs.hole_state(*hole), tq_id, template
                )
        yield from _split(AlikeMembers(at, until, waits, tq_id, template), border, soon)


def _split(run: AlikeMembers, border: int, soon: jobs.MemberState) -> Iterator[AlikeMembers]:
    """Members that wait, if there are any: the turn of those before the border is next, for another reason."""
    if run.start < min(run.stop, border):
        yield replace(run, stop=min(run.stop, border), state=soon)
    if max(run.start, border) < run.stop:
        yield replace(run, start=max(run.start, border))


def _each(submission: tuple[Any, ...], run: AlikeMembers, *, newest: bool) -> Iterator[Job]:
    number, base, _, owner, group, vo, name, created = submission
    alike = jobs.untaken(
        base, run.state, owner=owner, group=group, vo=vo, name=name, submitted_at=created,
        task_queue=run.task_queue, template=run.template, submission=number, base=base,
    )  # fmt: skip
    indexes = range(run.start, run.stop)
    for index in reversed(indexes) if newest else indexes:
        job = copy(alike)
        job.id = base + index
        yield job
