"""Lists of jobs: rows and untouched members merged in the order of their ids.

Rows come from one statement, members from ranges of cohorts. A user's jobs are found from the user's submissions,
however many jobs others have.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from msgspec import Struct, structs
from msgspec.structs import replace

from lodesman.languages.jobs.selection import StepBudget
from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import GIVEN, JOIN_IN_ORDER, by_index, greatest, keys, least
from lodesman.server.store.read import jobs
from lodesman.server.store.read.job_filter import build_filter
from lodesman.server.store.read.job_selector import JobKind, JobSelector
from lodesman.server.store.read.submissions import EVERYTHING, Sight, ids_within, submission_conditions
from lodesman.wire.job_queries import JobsQuery
from lodesman.wire.jobs import Job
from lodesman.wire.requests import MOST_ID

# The states of members without a row.
_MEMBER_STATES = frozenset({"Waiting", "Held", "Killed", "Deleted"})
# Blocks of ids never overlap: of those before the range only the last can reach into it.
_BLOCKS = "s.base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?), 0) AND s.base <= ?"
# One bound on each side: given two, the database might take the wrong one, and walk over the jobs of others.
_OF_OWN_JOBS = f"""FROM submission s {by_index("submission_owner")}
{JOIN_IN_ORDER} job j ON {_BLOCKS} AND j.id BETWEEN {greatest("s.base", "?")} AND {least("s.base + s.count - 1", "?")}"""
_OWN_BLOCKS = f"""SELECT s.base, s.count FROM submission s {by_index("submission_owner")}
WHERE {_BLOCKS}{{}} AND s.base + s.count > ? ORDER BY s.base {{}} LIMIT ?"""
_ALIKE = "SELECT j.id, j.tq_id, j.template_id, s.name"
_BY_IDS = f"""{jobs.JOB_FACTS} {jobs.OF_JOBS} {jobs.WITH_FACTS} WHERE j.id IN {GIVEN} ORDER BY j.id {{}}"""
MOST_STEPS = 500_000_000
"""What a list may spend on texts of jobs: a few seconds of a thread."""
# How many submissions are read at once; a submission with more jobs than `_LARGE` is read by itself.
_PORTION = 1_000
_LARGE = 5_000
# Attempts that did not end well have an index.
_OF_CAUSE = f"""FROM attempt a {by_index("attempt_cause")}
{JOIN_IN_ORDER} job j ON a.outcome != 'Done' AND a.cause = ? AND j.id = a.job_id AND j.last_attempt = a.id
JOIN submission s ON s.id = j.submission_id"""
_BY_ID = "j.id >= ? AND j.id <= ?"
_ARRAYS = f"""SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo, s.name, s.created_at
FROM submission s {{}} WHERE s.count > 1 AND s.base + s.count > ? AND {_BLOCKS}"""
# How far claims got in cohorts whose cursors are not written yet (`store.claim_log`).
REACHED = """SELECT a.cohort_id, max(a.job_id) + 1 FROM attempt a
WHERE a.id > (SELECT claims_at FROM leadership) AND a.cohort_id IS NOT NULL GROUP BY a.cohort_id"""
_COHORTS = """SELECT c.id, c.tq_id, c.cursor, c.template_id, c.start, c.stop, q.reason, q.since, r.reason,
r.next_reason, r.next_before FROM cohort c
LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE c.submission_id = ? AND c.start < ? AND c.stop > ?"""
_HOLES = """SELECT start, stop, state, reason, at, admin_held FROM hole
WHERE cohort_id = ? AND start < ? AND stop > ? ORDER BY start"""


class JobQuery(JobsQuery, frozen=True, kw_only=True):
    """What a user asks for: at most `limit` jobs."""

    sight: Sight = EVERYTHING  # what the user may see
    states: Sequence[str] = ()

    @property
    def needs_attempt(self) -> bool:
        """Whether only jobs with an attempt match."""
        return bool(self.site or self.cause)

    @property
    def order(self) -> str:
        """The order of the ids."""
        return "DESC" if self.newest else "ASC"


class MemberRun(Struct, frozen=True):
    """Members [start, stop) of one cohort in one state."""

    start: int
    stop: int
    state: jobs.MemberState
    task_queue: int
    template: int


def list_jobs(db: Reader, query: JobQuery, budget: StepBudget | None = None) -> list[Job]:
    """Raises SelectionTooDear."""
    job_filter = build_filter(query)
    selector = JobSelector(job_filter, budget or StepBudget(MOST_STEPS))
    # One snapshot: a member that is claimed meanwhile is shown once, as it was.
    with db:
        first, last = ids_within(db, query)
        query = structs.replace(query, first=max(query.first, first), last=min(query.last, last))
        rows = list(_rows(db, query, selector if job_filter.is_judged_here else None))
        if not query.needs_attempt and (not query.states or _MEMBER_STATES.intersection(query.states)):
            rows = _with_members(db, query, rows, selector)
    return rows


def _with_members(db: Reader, query: JobQuery, rows: list[Job], selector: JobSelector) -> list[Job]:
    first, last = query.first, query.last
    if len(rows) == query.limit and rows:
        # Members beyond the last row would not be shown.
        first, last = (rows[-1].id, last) if query.newest else (first, rows[-1].id)
    members = _members(db, query, selector, first, last)
    both = heapq.merge(rows, members, key=lambda job: job.id, reverse=query.newest)
    return list(islice(both, query.limit))


def _rows(db: Reader, query: JobQuery, selector: JobSelector | None) -> Iterator[Job]:
    if query.cause or not query.owner:
        yield from _selected(db, query, selector)
        return
    left = query.limit
    for first, last, is_large in _parts(db, query):
        part = structs.replace(query, first=max(first, query.first), last=min(last, query.last), limit=left)
        if is_large:
            # The submission meets these conditions; if they are given, a database may sort all its jobs.
            part = structs.replace(part, owner="", group="", submission=0, since=0, sight=EVERYTHING)
        selected = list(_selected(db, part, selector))
        yield from selected
        left -= len(selected)
        if left <= 0:
            return


def _parts(db: Reader, query: JobQuery) -> Iterator[tuple[int, int, bool]]:
    """(first id, last id, whether it is one large submission); small ones together, so that a database sorts only a
    part.
    """
    where, values = submission_conditions(query, query.sight)
    sql, first, last = _OWN_BLOCKS.format(where, query.order), query.first, query.last
    while blocks := list(db.execute(sql, (first, last, *values, first, _PORTION))):
        low, high, size = MOST_ID, 0, 0
        for base, count in blocks:
            if size and size + count > _LARGE:
                yield low, high, False
                low, high, size = MOST_ID, 0, 0
            if count > _LARGE:
                yield base, base + count - 1, True
            else:
                low, high, size = min(low, base), max(high, base + count - 1), size + count
        if size:
            yield low, high, False
        base, count = blocks[-1]
        first, last = (first, base - 1) if query.newest else (base + count, last)


def _selected(db: Reader, query: JobQuery, selector: JobSelector | None) -> Iterator[Job]:
    if selector is None:
        yield from _whole(db, query)
        return
    left, portion = query.limit, structs.replace(query, limit=_PORTION)
    while left > 0:
        candidates = [(number, JobKind(*columns)) for number, *columns in _read(db, portion, _ALIKE)]
        selector.forget()
        selector.learn(db, (alike for _, alike in candidates))
        meant = [number for number, alike in candidates if selector.judge(alike)][:left]
        if meant:
            yield from readable(jobs.job_of, db.execute(_BY_IDS.format(query.order), (keys(meant),)), "job")
        left -= len(meant)
        if len(candidates) < _PORTION:
            return
        reached = candidates[-1][0]
        ids = (portion.first, reached - 1) if query.newest else (reached + 1, portion.last)
        portion = structs.replace(portion, first=ids[0], last=ids[1])


def _whole(db: Reader, query: JobQuery) -> Iterator[Job]:
    while query.limit > 0:
        rows = list(_read(db, query, jobs.JOB_FACTS))
        whole = list(readable(jobs.job_of, rows, "job"))
        yield from whole
        if len(rows) < query.limit:
            return
        reached, left = rows[-1][0], query.limit - len(whole)
        first, last = (query.first, reached - 1) if query.newest else (reached + 1, query.last)
        query = structs.replace(query, first=first, last=last, limit=left)


def _read(db: Reader, query: JobQuery, select: str) -> Iterator[tuple[Any, ...]]:
    where, values = submission_conditions(query, query.sight, of_jobs=True)
    if query.states:
        # The stored states if they suffice: the database has statistics of a column.
        column = jobs.STATE if {"Waiting", "Held"}.intersection(query.states) else "j.state"
        where += f" AND {column} IN ({', '.join('?' * len(query.states))})"
        values += tuple(query.states)
    if query.reason:
        where += f" AND {jobs.MAIN_REASON} = ?"
        values += (query.reason,)
    if query.site:
        where += " AND a.site = ?"
        values += (query.site,)
    order, facts = query.order, jobs.WITH_FACTS
    span: tuple[str | int, ...] = (query.first, query.last)
    from_, by = f"{jobs.OF_JOBS} AND {_BY_ID}", f"j.id {order}"
    if query.cause:
        from_, facts, span = f"{_OF_CAUSE} AND {_BY_ID}", jobs.WITH_QUEUE_FACTS, (query.cause, *span)
    elif query.owner:
        # The order of submissions by their blocks, and of jobs in each, is the order of jobs.
        from_, by, span = _OF_OWN_JOBS, f"s.base {order}, j.id {order}", (*span, *span)
    sql = f"{select} {from_} {facts} WHERE true{where} ORDER BY {by} LIMIT ?"
    return iter(db.execute(sql, (*span, *values, query.limit)))


def _members(db: Reader, query: JobQuery, selector: JobSelector, first: int, last: int) -> Iterator[Job]:
    where, values = submission_conditions(query, query.sight)
    arrays = _ARRAYS.format(by_index("submission_owner" if query.owner else "submission_array"))
    reached = dict(db.execute(REACHED))
    for submission in db.execute(
        f"{arrays}{where} ORDER BY s.base {query.order}", (first, first, last, *values)
    ):
        base, count, name = submission[1], submission[2], submission[6]
        start, stop = max(first - base, 0), min(last - base + 1, count)
        runs = list(alike_members(db, submission, start, stop, reached))
        selector.forget()
        selector.learn(db, (JobKind(run.task_queue, run.template, name) for run in runs))
        for run in sorted(runs, key=lambda run: run.start, reverse=query.newest):
            state = run.state
            if query.states and state.state not in query.states:
                continue
            if not selector.judge(JobKind(run.task_queue, run.template, name)):
                continue
            if not query.reason or state.main_reason == query.reason:
                yield from _each(submission, run, newest=query.newest)


def alike_members(
    db: Reader, submission: tuple[Any, ...], start: int, stop: int, reached: Mapping[int, int]
) -> Iterator[MemberRun]:
    """Without a row, in runs of one state. `reached`: the next id, by cohort."""
    base, created = submission[1], submission[-1]
    for number, tq_id, cursor, template, begin, end, held, since, reason, first, before in db.execute(
        _COHORTS, (submission[0], stop, start)
    ):
        waits, soon = (jobs.run_state(created, held, since, why) for why in (reason, first))
        border = (before or 0) - base
        at, until = max(cursor, reached.get(number, 0) - base, start), min(end, stop)
        for left, right, *hole in db.execute(_HOLES, (number, until, max(begin, start))):
            yield from _split(MemberRun(at, min(left, until), waits, tq_id, template), border, soon)
            at = max(at, right)
            if hole[0] != "Moved":
                yield MemberRun(max(left, start), min(right, stop), jobs.hole_state(*hole), tq_id, template)
        yield from _split(MemberRun(at, until, waits, tq_id, template), border, soon)


def _split(run: MemberRun, border: int, soon: jobs.MemberState) -> Iterator[MemberRun]:
    """Members before the border are next, for another reason."""
    if run.start < min(run.stop, border):
        yield replace(run, stop=min(run.stop, border), state=soon)
    if max(run.start, border) < run.stop:
        yield replace(run, start=max(run.start, border))


def _each(submission: tuple[Any, ...], run: MemberRun, *, newest: bool) -> Iterator[Job]:
    number, base, _, owner, group, vo, name, created = submission
    alike = jobs.untaken_member(
        base, run.state, owner=owner, group=group, vo=vo, name=name, submitted_at=created,
        task_queue=run.task_queue, template=run.template, submission=number, base=base,
    )  # fmt: skip
    indexes = range(run.start, run.stop)
    for index in reversed(indexes) if newest else indexes:
        yield replace(alike, id=base + index)
