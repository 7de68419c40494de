"""Jobs in ranges of ids: whose they are, their states, and how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import islice

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.spec import TERMINAL
from lodesman.languages.jobs.watches import CountedJobs
from lodesman.server.store import Reader
from lodesman.server.store.read.job_lists import REACHED, MemberRun, alike_members
from lodesman.server.store.read.jobs import OF_JOBS
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import EndedJob

_MOST_SUBMISSIONS = 100_000
# Blocks of ids never overlap: of those that begin before the range only the last can reach into it.
_REACHES_IN = """s.base >= coalesce((SELECT max(base) FROM submission WHERE base <= ?), 0)
AND s.base <= ? AND s.base + s.count > ?"""
_BLOCKS = f"SELECT s.id, s.base, s.count, s.owner, s.grp, s.vo FROM submission s WHERE {_REACHES_IN} ORDER BY s.base LIMIT ?"
_ARRAYS = f"SELECT s.id, s.base, s.count, s.created_at FROM submission s WHERE s.count > 1 AND {_REACHES_IN} ORDER BY s.base"
_ROWS = """SELECT j.state, j.state = 'Waiting' AND q.tq_id IS NOT NULL, count(*) FROM job j
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id WHERE j.id BETWEEN ? AND ? GROUP BY 1, 2"""
_ENDED = f"""SELECT j.id, j.state, j.since, a.exit_code, a.signal, a.cause {OF_JOBS}
LEFT JOIN attempt a ON a.id = j.last_attempt WHERE j.id BETWEEN ? AND ? AND j.state IN ({{}}) ORDER BY j.id LIMIT ?"""


def visible_parts(
    db: Reader, ranges: Iterable[range], may: Callable[[str, str, str], bool], shared: Container[int] = ()
) -> list[tuple[range, list[range]]]:
    """What `may` admits by (owner, group, vo), or is `shared`; adjacent submissions are joined. Raises
    InvalidRequest for too many.
    """
    visible, left = [], _MOST_SUBMISSIONS
    for ids in ranges:
        parts: list[range] = []
        for number, base, count, *whose in db.execute(_BLOCKS, (ids[0], ids[-1], ids[0], left + 1)):
            left -= 1
            if left < 0:
                most = f"{_MOST_SUBMISSIONS:,}"
                raise InvalidRequest(
                    f"These are jobs of more than {most} submissions.", hint="Wait for fewer jobs."
                )
            if not (may(*whose) or number in shared):
                continue
            part = range(max(base, ids.start), min(base + count, ids.stop))
            if parts and parts[-1].stop == part.start:
                part = range(parts.pop().start, part.stop)
            parts.append(part)
        visible.append((ids, parts))
    return visible


def count_states(db: Reader, ranges: Sequence[range]) -> CountedJobs:
    """The states of all these jobs, in one snapshot."""
    states, stopped = Counter[JobState](), 0
    with db:
        (batch,) = db.only("SELECT batch FROM leadership")
        reached = dict(db.execute(REACHED))
        for ids in ranges:
            for state, by_queue, count in db.execute(_ROWS, (ids[0], ids[-1])):
                states[JobState(state)] += count
                stopped += count if by_queue else 0
            for _, run in _members(db, ids, reached):
                by_queue, count = run.state.held_by == "impossible", run.stop - run.start
                states[JobState.WAITING if by_queue else run.state.state] += count
                stopped += count if by_queue else 0
    unknown = sum(map(len, ranges)) - sum(states.values())
    return CountedJobs(batch, states, stopped, unknown)


def ended_jobs(db: Reader, ranges: Sequence[range], limit: int) -> list[EndedJob]:
    """At most `limit`, by id."""
    ended: list[EndedJob] = []
    with db:
        reached = dict(db.execute(REACHED))
        for ids in ranges:
            left = limit - len(ended)
            if left <= 0:
                break
            part = [*_ended_rows(db, ids, TERMINAL, left)]
            for base, run in _members(db, ids, reached):
                if run.state.state in TERMINAL:
                    numbers = islice(range(base + run.start, base + run.stop), left)
                    part += [EndedJob(number, run.state.state, run.state.since) for number in numbers]
            ended += sorted(part, key=lambda job: job.id)[:left]
    return ended


def first_failed(db: Reader, ranges: Sequence[range]) -> EndedJob | None:
    """The Failed job with the lowest id."""
    failed = (job for ids in ranges for job in _ended_rows(db, ids, (JobState.FAILED,), 1))
    return next(failed, None)


def _ended_rows(db: Reader, ids: range, states: Iterable[JobState], limit: int) -> Iterator[EndedJob]:
    words = [job_state.value for job_state in states]
    sql = _ENDED.format(", ".join("?" * len(words)))
    for job, state, *more in db.execute(sql, (ids[0], ids[-1], *words, limit)):
        yield EndedJob(job, JobState(state), *more)


def _members(db: Reader, ids: range, reached: dict[int, int]) -> Iterator[tuple[int, MemberRun]]:
    """Without a row, in runs of one state."""
    for submission in list(db.execute(_ARRAYS, (ids[0], ids[-1], ids[0]))):
        base, count = submission[1:3]
        start, stop = max(ids.start - base, 0), min(ids.stop - base, count)
        for run in alike_members(db, submission, start, stop, reached):
            if run.start < run.stop:
                yield base, run
