"""Jobs, attempts and pilots counted. Each function reads all of them: for a thread."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import (
    GIVEN,
    JOIN_IN_ORDER,
    by_index,
    greatest,
    keys,
    least,
    member,
    member_if_whole,
)
from lodesman.server.store.read.jobs import STATE
from lodesman.server.store.read.why import last_attempt_before
from lodesman.wire.groups import Currency
from lodesman.wire.jobs import Count
from lodesman.wire.server import PilotCount, Spread
from lodesman.wire.usage import HeldBy, PilotHoursBy
from lodesman.wire.vocabulary import JobState, PilotState

_OF_ROWS = f"""SELECT s.owner, s.grp, {STATE}, count(*) FROM job j JOIN submission s ON s.id = j.submission_id
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id WHERE {{}} GROUP BY 1, 2, 3"""
# The jobs of one owner are found from the submissions; the jobs of one submission are neighbours.
_OF_OWN_ROWS = f"""SELECT s.owner, s.grp, {STATE}, count(*) FROM submission s {by_index("submission_owner")}
{JOIN_IN_ORDER} job j ON j.id >= s.base AND j.id < s.base + s.count
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id WHERE {{}} GROUP BY 1, 2, 3"""
_OF_RUNS = f"""SELECT s.owner, s.grp, CASE WHEN q.tq_id IS NULL THEN 'Waiting' ELSE 'Held' END,
sum(c.stop - c.cursor - coalesce((SELECT sum(h.stop - {greatest("h.start", "c.cursor")}) FROM hole h
  WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0))
FROM cohort_now c JOIN submission s ON s.id = c.submission_id LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id
WHERE c.cursor < c.stop AND {{}} GROUP BY 1, 2, 3"""
_OF_HOLES = """SELECT s.owner, s.grp, h.state, sum(h.stop - h.start) FROM hole h JOIN cohort c ON c.id = h.cohort_id
JOIN submission s ON s.id = c.submission_id WHERE h.state != 'Moved' AND {} GROUP BY s.owner, s.grp, h.state"""

# The members of `_JobFaults`, the stored state, how many had an attempt. Only failed, killed and held jobs have a reason.
_REASONS_OF_ROWS = f"""SELECT s.owner, s.grp, s.vo, {STATE} AS shown,
CASE WHEN j.state IN ('Held', 'Failed', 'Killed') THEN j.reason ELSE '' END AS why, count(*), min(j.id), j.state,
sum(CASE WHEN j.attempt > 0 THEN 1 ELSE 0 END)
FROM job j JOIN submission s ON s.id = j.submission_id LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id
GROUP BY s.owner, s.grp, s.vo, shown, why, j.state"""
_REASONS_OF_HOLES = """SELECT s.owner, s.grp, s.vo, h.state, h.reason,
sum(h.stop - h.start), min(c.base + h.start), h.state, 0
FROM hole h JOIN cohort c ON c.id = h.cohort_id JOIN submission s ON s.id = c.submission_id
WHERE h.state != 'Moved' GROUP BY s.owner, s.grp, s.vo, h.state, h.reason"""
# All waiting jobs of a task queue that no configured queue can run, under the id of the first.
_HELD_QUEUES = f"""SELECT {member("q.key", "owner")}, {member("q.key", "group")}, {member("q.key", "vo")},
'Held', h.reason, n.jobs, coalesce(
  (SELECT min(id) FROM job WHERE queued IS NOT NULL AND tq_id = h.tq_id AND state = 'Waiting'),
  (SELECT min(base + cursor) FROM cohort WHERE tq_id = h.tq_id AND cursor < stop)), 'Held', 0
FROM task_queue_hold h JOIN task_queue q ON q.id = h.tq_id JOIN queue_jobs n ON n.tq_id = h.tq_id WHERE n.jobs > 0"""
# In the order of the members of `AttemptSums`, without those that their pilots gave back before they started.
_ATTEMPTS = """SELECT a.site, CASE WHEN a.ended_at IS NOT NULL THEN a.outcome END, coalesce(s.grp, ''), a.shares, count(*),
coalesce(sum(a.cpu_seconds), 0.0)
FROM attempt a LEFT JOIN job j ON j.id = a.job_id LEFT JOIN submission s ON s.id = j.submission_id
WHERE (? = '' OR s.vo = ?) AND (a.started_at IS NOT NULL OR coalesce(a.cause, '') != 'returned') GROUP BY 1, 2, 3, 4"""
_TIMES = """SELECT a.claimed_at - s.created_at, a.ended_at - a.started_at
FROM attempt a JOIN job j ON j.id = a.job_id AND j.last_attempt = a.id JOIN submission s ON s.id = j.submission_id
WHERE a.ended_at IS NOT NULL AND (? = '' OR s.vo = ?) ORDER BY a.id DESC LIMIT ?"""
_TWICE = """SELECT count(*) - count(DISTINCT job_id * 10000 + number)
FROM (SELECT job_id, number FROM attempt ORDER BY id DESC LIMIT ?) newest"""
_PILOTS = (
    "SELECT site, state, count(*) FROM pilot WHERE ? = '' OR vo = ? GROUP BY site, state ORDER BY site, state"
)
# One sum for each time slice. An attempt holds cores from its start until its end, or now. One that its pilot gave back is
# no start.
_USED = "SELECT tq_id, {} FROM attempt WHERE id > ? AND id <= ? GROUP BY tq_id"
_USED_BEFORE = f"""SELECT tq_id, {{}} FROM attempt {by_index("attempt_live")} WHERE ended_at IS NULL AND id <= ?
GROUP BY tq_id"""
_HELD_UNTIL = least("coalesce(ended_at, ?)", "?")
_HELD_FROM = greatest("coalesce(started_at, ?)", "claimed_at", "?")
_SUM_OF: Final[dict[Currency, str]] = {
    "starts": "sum(CASE WHEN claimed_at > ? AND coalesce(cause, '') != 'returned' THEN 1 ELSE 0 END)",
    "core-seconds": f"sum({greatest('0', f'{_HELD_UNTIL} - {_HELD_FROM}')})",
}
# Pilots of these days. One that never joined began when it was seen to run; a lost one ended when it was last heard.
_BEGAN = "coalesce(p.joined_at, CASE WHEN p.host != '' THEN p.native_seen END)"
_PILOTS_OF_DAYS = f"""SELECT p.id, p.site || '/' || p.ce || '/' || p.queue AS queue, p.site, p.grp, p.vo, p.state,
p.ended_at, p.native_id, CAST(coalesce({member_if_whole("p.request", "cores")}, '1') AS BIGINT) AS cores, {_BEGAN} AS began,
CASE WHEN p.ended_at IS NULL THEN ? WHEN p.state != 'Lost' THEN p.ended_at
ELSE {least(f"coalesce(p.last_seen, {_BEGAN}, p.ended_at)", "p.ended_at")} END AS gone
FROM pilot p WHERE (p.ended_at IS NULL OR p.ended_at > ?) AND p.created_at < ? AND ? IN ('', p.vo)"""
_FIRST_BEGAN = f"SELECT min(h.began) FROM ({_PILOTS_OF_DAYS}) h"
_HELD_MS = "CAST(round(1000 * {}) AS BIGINT)".format(
    greatest("0", f"{least('h.gone', '?')} - {greatest('h.began', '?')}")
)
_HELD_BY = f"""SELECT {{}}, count(h.began), sum(CASE WHEN h.began < ? AND h.ended_at IS NULL THEN 1 ELSE 0 END),
coalesce(sum(CASE WHEN h.began < ? THEN h.cores * {_HELD_MS} END), 0),
sum(CASE WHEN h.began IS NULL AND h.ended_at IS NOT NULL AND h.native_id IS NOT NULL THEN 1 ELSE 0 END),
sum(CASE WHEN h.began IS NOT NULL AND h.state = 'Lost' THEN 1 ELSE 0 END)
FROM ({_PILOTS_OF_DAYS}) h WHERE h.began IS NULL OR h.began < ? GROUP BY 1, 2"""
_PAYLOAD_MS = "CAST(round(1000 * {}) AS BIGINT)".format(
    greatest(
        "0",
        f"{least('coalesce(a.ended_at, ?)', 'h.gone', '?')} - {greatest('a.started_at', 'h.began', '?')}",
    )
)
_USED_OF_HELD = f"""SELECT {{}}, a.tq_id, sum({_PAYLOAD_MS}) FROM attempt a
{JOIN_IN_ORDER} ({_PILOTS_OF_DAYS}) h ON h.id = a.pilot_id
WHERE a.id > ? AND a.started_at IS NOT NULL AND h.began IS NOT NULL GROUP BY 1, 2, 3"""
_CORES = f"""SELECT id, CAST(coalesce({member("key", "cores")}, '1') AS BIGINT) FROM task_queue WHERE id IN {GIVEN}"""
# What a reader distinguishes, as (name, VO).
_HOLDERS: Final[dict[PilotHoursBy, str]] = {
    "queue": "h.queue, ''", "site": "h.site, ''", "group": "h.grp, h.vo", "vo": "h.vo, h.vo",
}  # fmt: skip
# How far the server's clock may have been set back.
_CLOCK_SLACK_SECONDS: Final = 3_600.0
# How many of the newest attempts are searched for times and duplicate numbers.
_NEWEST: Final = 100_000
# The most reasons of one owner, the most frequent: no owner's failures hide another's.
REASONS_OF_ONE: Final = 200
_FAULTY = frozenset({"Held", "Failed", "Killed"})


class _JobFaults(NamedTuple):
    owner: str
    group: str
    vo: str
    state: str
    reason: str
    jobs: int
    id: int  # of the first


class AttemptSums(NamedTuple):
    """Equal attempts at a site."""

    site: str
    outcome: str | None  # None: they run
    group: str
    shares: str | None  # of the groups that competed, as JSON; None: not recorded
    attempts: int
    cpu_seconds: float


class UsageFacts(Struct, frozen=True, kw_only=True):
    """All jobs, attempts and pilots at one moment."""

    states: Counter[str]
    started: int  # jobs that had an attempt
    faults: Sequence[_JobFaults]
    attempts: Sequence[AttemptSums]
    same_number_twice: int
    waiting: Spread
    running: Spread
    pilots: Sequence[PilotCount]


_COUNT_WAITING: Final = f"""SELECT count(*), coalesce(sum(w.waiting), 0) FROM queue_waiting w
  JOIN task_queue q ON q.id = w.tq_id WHERE w.waiting > 0 AND (? = '' OR ? = {member("q.key", "vo")})"""


def count_jobs(db: Reader, owner: str | None = None, *, vo: str = "") -> list[Count]:
    """Count jobs by owner, group and state: of all owners, one VO, or one owner."""
    where, values = ("s.vo = ?", (vo,)) if vo else ("true", ())
    if owner is not None:
        where, values = "s.owner = ?", (owner,)
    sums: Counter[tuple[str, str, str]] = Counter()
    with db:
        for sql in (_OF_ROWS if owner is None else _OF_OWN_ROWS, _OF_RUNS, _OF_HOLES):
            for name, group, state, n in db.execute(sql.format(where), values):
                sums[name, group, state] += n
    rows = ((*key, n) for key, n in sorted(sums.items()) if n)
    return list(
        readable(lambda name, group, state, n: Count(name, group, JobState(state), n), rows, "jobs of")
    )


def count_pilots(db: Reader, vo: str = "") -> list[PilotCount]:
    """Count pilots by site and state."""
    rows = db.execute(_PILOTS, (vo, vo))
    return list(
        readable(lambda site, state, n: PilotCount(site, PilotState(state), n), rows, "pilots of site")
    )


def count_waiting(db: Reader, vo: str = "") -> tuple[int, int]:
    """Task queues with waiting jobs, and these jobs."""
    return db.only(_COUNT_WAITING, (vo, vo))


def used_by_queue(
    db: Reader, currency: Currency, begins: Sequence[float], now: float, *, after: int, last: int
) -> list[tuple[int, ...]]:
    """(task queue, starts or seconds since each of `begins`), after < id <= last."""
    return list(db.execute(*_used(_USED, currency, begins, now, after, last)))


def used_by_older(
    db: Reader, currency: Currency, begins: Sequence[float], now: float, *, last: int
) -> list[tuple[int, ...]]:
    """The same of earlier attempts that have not ended."""
    return list(db.execute(*_used(_USED_BEFORE, currency, begins, now, last)))


def _used(
    sql: str, currency: Currency, begins: Sequence[float], now: float, *span: int
) -> tuple[str, tuple[float, ...]]:
    sums = ", ".join([_SUM_OF[currency]] * len(begins))
    values = [(begin,) if currency == "starts" else (now, now, now, begin) for begin in begins]
    return sql.format(sums), (*(value for some in values for value in some), *span)


def usage_facts(db: Reader, vo: str = "") -> UsageFacts:
    """Read in one snapshot, of all jobs or of one VO."""
    states: Counter[str] = Counter()
    with db:
        faults, started = _faults(db, states, vo)
        times = list(db.execute(_TIMES, (vo, vo, _NEWEST)))
        return UsageFacts(
            states=states,
            started=started,
            faults=faults,
            attempts=list(map(AttemptSums._make, db.execute(_ATTEMPTS, (vo, vo)))),
            same_number_twice=db.only(_TWICE, (_NEWEST,))[0],
            waiting=spread(row[0] for row in times),
            running=spread(row[1] for row in times if row[1] is not None),
            pilots=count_pilots(db, vo),
        )


def _faults(db: Reader, states: Counter[str], of_vo: str) -> tuple[list[_JobFaults], int]:
    by_owner: dict[tuple[str, str, str], list[_JobFaults]] = defaultdict(list)
    total = 0
    for sql in (_REASONS_OF_ROWS, _REASONS_OF_HOLES, _HELD_QUEUES):
        for *row, state, started in db.execute(sql):
            fault = _JobFaults(*row)
            if of_vo and fault.vo != of_vo:
                continue
            if sql is not _HELD_QUEUES:  # its jobs are counted with the rows and runs
                states[fault.state] += fault.jobs
            total += started
            # Jobs that are Held with their task queue are named with it.
            if state in _FAULTY:
                by_owner[fault.owner, fault.group, fault.vo].append(fault)
    where, values = ("s.vo = ?", (of_vo,)) if of_vo else ("true", ())
    for _, _, state, n in db.execute(_OF_RUNS.format(where), values):
        states[state] += n
    kept = [sorted(rows, key=lambda fault: -fault.jobs)[:REASONS_OF_ONE] for rows in by_owner.values()]
    return [fault for rows in kept for fault in rows], total


def spread(durations: Iterable[float]) -> Spread:
    """Percentiles by nearest rank, in seconds."""
    ordered = sorted(value for value in durations if math.isfinite(value))
    count = len(ordered)

    def rank(percent: int) -> float | None:
        return ordered[max(0, -(-count * percent // 100) - 1)] if ordered else None

    return Spread(count, rank(50), rank(90), rank(95), rank(99), rank(100))


def pilot_hours(
    db: Reader, by: PilotHoursBy, since: float, until: float, now: float, *, vo: str
) -> tuple[list[HeldBy], float]:
    """What pilots held from `since` to `until`, or now (UNIX seconds), most first; and when the last purged one
    ended.
    """
    until, of_days = min(until, now), (now, since, min(until, now), vo)
    with db:
        values = (until, until, until, since, *of_days, until)
        held: dict[tuple[str, str], tuple[int, ...]] = {
            (row[0], row[1]): row[2:] for row in db.execute(_HELD_BY.format(_HOLDERS[by]), values)
        }
        (first,) = db.only(_FIRST_BEGAN, of_days)
        used = _used_of_held(db, by, first, (now, until, since, *of_days))
        (purged,) = db.only("SELECT pilots_purged FROM usage_fold")
    rows = [_held_by(*who, tuple(map(int, sums)), used[who]) for who, sums in held.items()]
    return sorted(rows, key=lambda holder: (-holder.held_core_seconds, holder.name, holder.vo)), purged


def _held_by(name: str, vo: str, sums: Sequence[int], used_ms: int) -> HeldBy:
    pilots, live, held_ms, unknown_starts, unknown_ends = sums
    used_ms = min(used_ms, held_ms)  # each time is rounded by itself
    return HeldBy(
        name=name, vo=vo, pilots=pilots, live=live, held_core_seconds=held_ms / 1_000,
        used_core_seconds=used_ms / 1_000, idle_core_seconds=(held_ms - used_ms) / 1_000,
        unknown_starts=unknown_starts, unknown_ends=unknown_ends,
    )  # fmt: skip


def _used_of_held(
    db: Reader, by: PilotHoursBy, first: float | None, values: tuple[float | str, ...]
) -> Counter[tuple[str, str]]:
    """Milliseconds of cores that payloads held; unknown cores count as one."""
    used: Counter[tuple[str, str]] = Counter()
    if first is None:
        return used
    after = last_attempt_before(db, first - _CLOCK_SLACK_SECONDS)
    rows = list(db.execute(_USED_OF_HELD.format(_HOLDERS[by]), (*values, after)))
    cores = dict(db.execute(_CORES, (keys({row[2] for row in rows}),)))
    for name, vo, queue, used_ms in rows:
        used[name, vo] += int(used_ms) * cores.get(queue, 1)
    return used
