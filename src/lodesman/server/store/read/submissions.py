"""Submissions by owner, group, name and time; their jobs counted from cohorts and rows.

Rows are counted in blocks of ids: counts of quiet blocks can be kept (`reads.submission_counts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from lodesman.languages.jobs.selection import is_exact
from lodesman.server.store import Reader
from lodesman.server.store.dialect import GIVEN, JOIN_IN_ORDER, by_index, greatest, keys, member
from lodesman.server.store.read.job_filter import asks_hidden, build_filter
from lodesman.server.store.read.job_selector import JobKind, JobSelector
from lodesman.server.store.readers import ReadsAs
from lodesman.wire.job_queries import JobsQuery, SubmissionsQuery
from lodesman.wire.requests import MOST_ID
from lodesman.wire.vocabulary import MainReason

BLOCK: Final = 4_096
"""How many ids are counted together."""
# How far the server's clock may have been set back.
_CLOCK_SLACK_SECONDS: Final = 3_600.0
_LAST_BEFORE = f"""SELECT base FROM submission {by_index("submission_created")} WHERE created_at < ?
ORDER BY created_at DESC LIMIT 1"""
_IDS = "SELECT base, base + count - 1 FROM submission WHERE id = ?"
_FIRST_AFTER = f"""SELECT base FROM submission {by_index("submission_created")} WHERE created_at > ?
ORDER BY created_at LIMIT 1"""
# Jobs of a batch have their names in templates of their own.
_OWN_NAME = member("t.body", "spec", "name")
_IS_NAMED = f"""(s.name = ? OR s.name = '' AND EXISTS (SELECT 1 FROM template t
WHERE t.id >= s.first_template AND t.id <= s.last_template AND {_OWN_NAME} = ?))"""
_HAS_NAME = f"""(s.name = ? OR s.name = '' AND EXISTS (SELECT 1 FROM template t
WHERE t.id = j.template_id AND {_OWN_NAME} = ?))"""
_SUBMISSIONS = f"""SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo, CASE WHEN s.name != '' THEN s.name ELSE
coalesce((SELECT {_OWN_NAME} FROM template t WHERE t.id = s.first_template), '') END, s.created_at
FROM submission s {{}} WHERE s.base >= ? AND s.base < ?{{}} ORDER BY s.base DESC LIMIT ?"""
# The columns of `JobKind`.
_ALIKE_ROWS = f"""SELECT DISTINCT s.id, j.tq_id, j.template_id, s.name FROM submission s
{JOIN_IN_ORDER} job j ON j.id >= s.base AND j.id < s.base + s.count WHERE s.id IN {GIVEN}"""
_ALIKE_MEMBERS = f"""SELECT DISTINCT s.id, c.tq_id, c.template_id, s.name FROM submission s
{JOIN_IN_ORDER} cohort c ON c.submission_id = s.id WHERE s.id IN {GIVEN}"""
# The columns of `RowCount`.
_ROWS = """SELECT j.tq_id, j.state, coalesce(a.site, ''), coalesce(a.cause, ''), count(*) FROM job j
LEFT JOIN attempt a ON a.id = j.last_attempt WHERE j.id >= ? AND j.id < ? GROUP BY 1, 2, 3, 4"""
_WAITING = f"""SELECT c.submission_id, c.tq_id, sum(c.stop - c.cursor - coalesce((
  SELECT sum(h.stop - {greatest("h.start", "c.cursor")}) FROM hole h WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0))
FROM cohort_now c WHERE c.submission_id IN {GIVEN} AND c.cursor < c.stop GROUP BY 1, 2"""
_HOLES = f"""SELECT c.submission_id, h.state, sum(h.stop - h.start) FROM cohort c JOIN hole h ON h.cohort_id = c.id
WHERE c.submission_id IN {GIVEN} AND h.state != 'Moved' GROUP BY 1, 2"""
_HELD_QUEUES = f"SELECT tq_id FROM task_queue_hold WHERE tq_id IN {GIVEN}"
_REASONS = f"SELECT tq_id, reason FROM task_queue_reason WHERE tq_id IN {GIVEN}"
_LAST_EVENT = "SELECT coalesce(max(id), 0) FROM event"
_CHANGED = f"""SELECT DISTINCT job_id / {BLOCK}, coalesce(last_job, job_id) / {BLOCK} FROM event
WHERE id > ? AND id <= ?"""


class Sight(NamedTuple):
    """Whose jobs a user may see."""

    user: str | None = None  # sees own jobs; None: all jobs
    shared: Sequence[str] = ()  # groups of the VO whose jobs are seen, too
    vo: str = ""
    whole_vo: bool = False  # all jobs of the VO are seen
    reads: ReadsAs = ReadsAs()  # for what others share


EVERYTHING: Final = Sight()


# Lists of jobs and of submissions have their filters alike.
_Filter = JobsQuery | SubmissionsQuery


class StoredSubmission(NamedTuple):
    """A submission."""

    id: int
    base: int
    size: int
    owner: str
    group: str
    vo: str
    name: str  # of the first of its jobs, as in the description
    created_at: float


class RowCount(NamedTuple):
    """Equal jobs with a row."""

    tq_id: int
    state: str
    site: str  # this and the cause are of the last attempt, '' without one
    cause: str
    jobs: int


def submission_conditions(
    query: _Filter, sight: Sight, *, of_jobs: bool = False
) -> tuple[str, tuple[Any, ...]]:
    """SQL, without patterns, for submissions `s` or their jobs `j`; and its values."""
    parts: list[tuple[str, tuple[Any, ...]]] = []
    if query.owner:
        parts.append(("s.owner = ?", (query.owner,)))
    if sight.user is not None and sight.user != query.owner:
        parts.append(_seen_by(sight))
        parts += [_seen_by(_shown(sight, query.where))] if query.where else []
    if query.shared:
        parts.append(sight.reads.condition)
    if query.group:
        parts.append(("s.grp = ?", (query.group,)))
    if query.name and is_exact(query.name):
        parts.append((_HAS_NAME if of_jobs else _IS_NAMED, (query.name, query.name)))
    job_filter = build_filter(query)
    if test := job_filter.of_job() if of_jobs else job_filter.of_submission():
        parts.append(test)
    if query.since:
        parts.append(("s.created_at >= ?", (float(query.since),)))
    if query.until < MOST_ID:
        parts.append(("s.created_at <= ?", (float(query.until),)))
    if query.submission:
        parts.append(("s.id = ?", (query.submission,)))
    text = "".join(f" AND {words}" for words, _ in parts)
    return text, tuple(value for _, values in parts for value in values)


def _shown(sight: Sight, where: Sequence[str]) -> Sight:
    """Whose descriptions are shown whole: searching others would reveal them."""
    return sight._replace(whole_vo=False, reads=ReadsAs() if asks_hidden(where) else sight.reads)


def _seen_by(sight: Sight) -> tuple[str, tuple[Any, ...]]:
    more: tuple[str, ...] = ()
    others = ""
    if sight.whole_vo:
        others, more = " OR s.vo = ?", (sight.vo,)
    elif sight.shared:
        marks = ", ".join("?" * len(sight.shared))
        others, more = f" OR s.vo = ? AND s.grp IN ({marks})", (sight.vo, *sight.shared)
    if sight.reads.names:
        words, values = sight.reads.condition
        others, more = f"{others} OR {words}", (*more, *values)
    return f"(s.owner = ?{others})", (sight.user, *more)


def ids_within(db: Reader, query: _Filter) -> tuple[int, int]:
    """The first and last id possible."""
    if query.submission:
        return db.execute(_IDS, (query.submission,)).fetchone() or (1, 0)
    first, last = None, None
    if query.since:
        first = db.find(int, _LAST_BEFORE, (query.since - _CLOCK_SLACK_SECONDS,))
    if query.until < MOST_ID:
        last = db.find(int, _FIRST_AFTER, (query.until + _CLOCK_SLACK_SECONDS,))
    return first or 1, last or MOST_ID


def list_submissions(
    db: Reader, query: _Filter, sight: Sight, *, before: int, most: int, selector: JobSelector | None = None
) -> list[StoredSubmission]:
    """Newest first. `selector`: conditions beyond SQL. Raises SelectionTooDear."""
    where, values = submission_conditions(query, sight)
    first, last = ids_within(db, query)
    index = by_index("submission_owner") if query.owner else ""
    sql, before = _SUBMISSIONS.format(index, where), min(before, last + 1)
    listed: list[StoredSubmission] = []
    while True:
        rows = [StoredSubmission(*row) for row in db.execute(sql, (first, before, *values, most))]
        listed += rows if selector is None else _with_meant_jobs(db, rows, selector)
        if len(rows) < most or len(listed) >= most:
            return listed[:most]
        before = rows[-1].base


def _with_meant_jobs(
    db: Reader, stored: Sequence[StoredSubmission], selector: JobSelector
) -> list[StoredSubmission]:
    values, jobs = (keys([submission.id for submission in stored]),), dict[int, list[JobKind]]()
    for sql in (_ALIKE_ROWS, _ALIKE_MEMBERS):
        for number, *row in db.execute(sql, values):
            jobs.setdefault(number, []).append(JobKind(*row))
    selector.forget()
    selector.learn(db, (job for submission in stored for job in jobs.get(submission.id, ())))
    return [submission for submission in stored if any(map(selector.judge, jobs.get(submission.id, ())))]


def count_rows(db: Reader, ids: range) -> list[RowCount]:
    """Jobs with these ids that have a row."""
    return [RowCount(*row) for row in db.execute(_ROWS, (ids.start, ids.stop))]


def waiting_members(db: Reader, submissions: Iterable[int]) -> list[tuple[int, int, int]]:
    """(submission, task queue, number), without a row."""
    return list(db.execute(_WAITING, (keys(submissions),)))


def other_members(db: Reader, submissions: Iterable[int]) -> list[tuple[int, str, int]]:
    """(submission, state, number), without a row."""
    return list(db.execute(_HOLES, (keys(submissions),)))


def judged_queues(db: Reader, queues: Collection[int]) -> tuple[set[int], dict[int, str]]:
    """Which task queues are held, and why jobs wait in others."""
    values = (keys(queues),)
    held = {row[0] for row in db.execute(_HELD_QUEUES, values)}
    # An unknown reason is damaged, and judged anew.
    return held, {
        tq_id: text for tq_id, text in db.execute(_REASONS, values) if text in frozenset(MainReason)
    }


def last_event(db: Reader) -> int:
    """The number of the newest event."""
    return int(db.only(_LAST_EVENT)[0])


def changed_blocks(db: Reader, after: int, last: int) -> list[tuple[int, int]]:
    """(first, last) of blocks with events after one, up to the `last`."""
    return [(first, end) for first, end in db.execute(_CHANGED, (after, last))]
