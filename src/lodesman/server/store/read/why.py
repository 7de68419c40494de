"""What explanations read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from heapq import merge, nlargest
from itertools import filterfalse, islice
from typing import Any, Final, NamedTuple

import msgspec

from lodesman.base.errors import NotFound
from lodesman.decide.explain.pilot_facts import PilotFacts
from lodesman.decide.explain.verdict import since, verdict_of
from lodesman.decide.matching import key_from_json, wanted_of
from lodesman.server.store import UNREADABLE, Reader, damaged, readable
from lodesman.server.store.dialect import GIVEN, keys, least, member
from lodesman.server.store.hosts import host_record
from lodesman.server.store.read.pilots import pilot_by_id, pilot_by_stamp
from lodesman.wire.hosts import HostName, reported_host
from lodesman.wire.jobs import Job
from lodesman.wire.nodes import QueueId
from lodesman.wire.pilots import NOT_NEEDED
from lodesman.wire.service import WaitReason
from lodesman.wire.task_queues import WaitingFor, WaitingReasons
from lodesman.wire.vocabulary import MainReason, PilotState
from lodesman.wire.why_jobs import QueuePosition
from lodesman.wire.why_queues import SentPilot

MOST_ROWS: Final = 10_000
_MOST_RUNS: Final = 200
_LONGEST_ID: Final = 18
_AFTER_ALL: Final = 1 << 53
_COUNT = "SELECT waiting, row_cursor, as_of FROM task_queue_count WHERE tq_id = ?"
# Claims that are in the attempts alone so far (`store.claim_log`): few.
_CLAIMED = """SELECT cohort_id, max(job_id), sum(CASE WHEN id > ? THEN 1 ELSE 0 END) FROM attempt
WHERE id > (SELECT claims_at FROM leadership) AND tq_id = ? GROUP BY cohort_id"""
_ROWS_AHEAD = """SELECT count(*) FROM (SELECT 1 FROM job
  WHERE queued IS NOT NULL AND tq_id = ? AND id >= ? AND id < ? AND state = 'Waiting' LIMIT ?) ahead"""
_ROWS = """SELECT id FROM job WHERE queued IS NOT NULL AND tq_id = ? AND id >= ? AND state = 'Waiting'
ORDER BY id LIMIT ?"""
_RUNS_AHEAD = """SELECT id, base, cursor, stop FROM cohort
WHERE tq_id = ? AND cursor < stop AND first < ? ORDER BY first LIMIT ?"""
_HOLES = """SELECT coalesce(sum(CASE WHEN stop < ? THEN stop ELSE ? END - CASE WHEN start > ? THEN start ELSE ? END), 0)
FROM hole WHERE cohort_id = ? AND stop > ? AND start < ?"""
_HOLES_OF = "SELECT start, stop FROM hole WHERE cohort_id = ? AND start < ? AND stop > ?"
# The event of a hole is as old as the hole. Nearest first: ranges are rarely long.
_RANGE_EVENT = """SELECT data FROM event WHERE last_job IS NOT NULL AND job_id BETWEEN ? AND ? AND last_job >= ?
AND kind = 'Held' AND at = ? ORDER BY job_id DESC, id DESC LIMIT 1"""
_POOL = "SELECT requirements, refreshed_at FROM submit_pool WHERE id = ?"
_BINDING = """SELECT p.id, p.site, p.ce, p.queue, a.claimed_at, p.joined_at FROM job j
JOIN attempt a ON a.id = j.last_attempt JOIN pilot p ON p.id = a.pilot_id
WHERE j.id = ? AND a.ended_at IS NULL AND a.claim_token = ''"""
_RUNNING = """SELECT q.key FROM attempt a JOIN task_queue q ON q.id = a.tq_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL ORDER BY a.id"""
_OF_QUEUE = """SELECT state, coalesce(submitted_at, created_at) FROM pilot
WHERE ended_at IS NULL AND site = ? AND ce = ? AND queue = ? AND ? IN ('', vo)"""
_LAST_SENT = """SELECT id, stamp, state, reason, drain, created_at, joined_at, ended_at, jobs_done,
coalesce(nullif(node_host, ''), host) FROM (SELECT * FROM pilot ORDER BY id DESC LIMIT ?) sent
WHERE site = ? AND ce = ? AND queue = ? AND ? IN ('', vo) ORDER BY id DESC LIMIT ?"""
# Held task queues are not judged any more: their hold is their reason.
_GROUPED = f"""WITH judged AS (
  SELECT n.jobs, CASE WHEN h.tq_id IS NULL THEN r.reason ELSE 'impossible' END AS why, coalesce(r.detail, '') AS detail,
  coalesce(h.since, r.since) AS since, r.next_reason,
  CASE WHEN h.tq_id IS NULL AND r.next_reason IS NOT NULL THEN {least("r.next_jobs", "n.jobs")} ELSE 0 END AS next_jobs
  FROM queue_jobs n JOIN task_queue q ON q.id = n.tq_id
  LEFT JOIN task_queue_hold h ON h.tq_id = n.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = n.tq_id
  WHERE n.jobs > 0 AND (h.tq_id IS NOT NULL OR r.reason IS NOT NULL) AND (? = '' OR ? = {member("q.key", "vo")}))
SELECT why, detail, count(*), sum(jobs), min(since) FROM (
  SELECT why, detail, jobs - next_jobs AS jobs, since FROM judged
  UNION ALL SELECT next_reason, '', next_jobs, since FROM judged) parts
WHERE jobs > 0 GROUP BY 1, 2 ORDER BY sum(jobs) DESC"""
_STARTS = """SELECT s.vo, count(*), sum(CASE WHEN a.shares = '{}' THEN 1 ELSE 0 END), min(a.claimed_at)
FROM attempt a JOIN job j ON j.id = a.job_id
JOIN submission s ON s.id = j.submission_id
WHERE a.id >= coalesce((SELECT id FROM attempt ORDER BY id DESC LIMIT 1 OFFSET ?), 0) AND a.claimed_at > ?
GROUP BY s.vo"""
_CLAIMED_AT = "SELECT id, claimed_at FROM attempt WHERE id BETWEEN ? AND ? ORDER BY id LIMIT 1"
_LAST_OF_SOME = "SELECT max(id) FROM (SELECT id FROM attempt WHERE id > ? ORDER BY id LIMIT ?) ahead"
_STARTS_OF_QUEUES = """SELECT tq_id, CAST(claimed_at / 60 AS INTEGER), count(*), min(claimed_at), max(claimed_at)
FROM attempt WHERE id > ? AND id <= ? GROUP BY 1, 2"""
_RAN = (
    "SELECT id, tq_id, claimed_at, ended_at FROM attempt WHERE ended_at IS NOT NULL AND outcome != 'Released'"
)
_RAN_BETWEEN = f"{_RAN} AND id > ? AND id <= ? ORDER BY id DESC LIMIT ?"
_RAN_AMONG = f"{_RAN} AND id IN {GIVEN}"


def last_attempt_before(db: Reader, at: float) -> int:
    """The last attempt claimed before a time, found by halving."""
    low, high = db.only("SELECT coalesce(min(id), 1) - 1, coalesce(max(id), 0) FROM attempt")
    while low < high:
        middle = (low + high) // 2 + 1
        row = db.execute(_CLAIMED_AT, (middle, high)).fetchone()
        if row is None or row[1] >= at:
            high = middle - 1
        else:
            low = row[0]
    return int(low)


def starts_after(
    db: Reader, attempt: int, *, most: int
) -> tuple[list[tuple[int, int, int, float, float]], int]:
    """(task queue, minute, job starts, first, last), and the last attempt counted."""
    last = db.only(_LAST_OF_SOME, (attempt, most))[0] or attempt
    return list(db.execute(_STARTS_OF_QUEUES, (attempt, last))), int(last)


def ended_attempts(
    db: Reader, after: int, last: int, among: Iterable[int], *, most: int
) -> list[tuple[int, float, float]]:
    """(task queue, claimed at, ended at); after < id <= last, or `among`; the newest `most` of each, without those
    given back.
    """
    some = nlargest(most, among)
    rows = {row[0]: row[1:] for row in db.execute(_RAN_BETWEEN, (after, last, most))}
    if some:
        rows |= {row[0]: row[1:] for row in db.execute(_RAN_AMONG, (keys(some),))}
    return [rows[number] for number in sorted(rows)]


def queue_position(db: Reader, tq_id: int | None, job_id: int) -> QueuePosition:
    """If counting ends early, `more_ahead` is set."""
    row = db.execute(_COUNT, (tq_id,)).fetchone()
    if row is None:
        return QueuePosition(waiting=0, ahead=0, more_ahead=False)
    waiting, first, as_of = row
    claimed = {cohort: (last, n) for cohort, last, n in db.execute(_CLAIMED, (as_of, tq_id))}
    rows = db.only(_ROWS_AHEAD, (tq_id, first, job_id, MOST_ROWS))[0]
    runs = list(db.execute(_RUNS_AHEAD, (tq_id, job_id, _MOST_RUNS)))
    ahead = rows
    for cohort, base, cursor, end in runs:
        start = max(cursor, claimed[cohort][0] - base + 1) if cohort in claimed else cursor
        stop = min(end, job_id - base)
        if start < stop:
            holes = db.only(_HOLES, (stop, stop, start, start, cohort, start, stop))[0]
            ahead += stop - start - holes
    return QueuePosition(
        waiting=max(0, waiting - sum(n for _, n in claimed.values())),
        ahead=ahead,
        more_ahead=rows >= MOST_ROWS or len(runs) >= _MOST_RUNS,
    )


def waiting_job(db: Reader, tq_id: int, number: int) -> int:
    """A job by its place in the order of claims, from 0; above all ids if there are fewer."""
    row = db.execute(_COUNT, (tq_id,)).fetchone()
    first, as_of = (0, 0) if row is None else row[1:]
    claimed = {cohort: last + 1 for cohort, last, _ in db.execute(_CLAIMED, (as_of, tq_id))}
    runs: list[Iterable[int]] = [(job_id for (job_id,) in db.execute(_ROWS, (tq_id, first, number + 1)))]
    for cohort, base, cursor, stop in db.execute(_RUNS_AHEAD, (tq_id, _AFTER_ALL, _MOST_RUNS)):
        start = max(base + cursor, claimed.get(cohort, 0))
        holes = {
            base + n for hole in db.execute(_HOLES_OF, (cohort, stop, start - base)) for n in range(*hole)
        }
        members = range(start, min(base + stop, start + number + 1 + len(holes)))
        runs.append(filterfalse(holes.__contains__, members))
    return next(islice(merge(*runs), number, None), _AFTER_ALL)


def holder_name(db: Reader, job: Job) -> str | None:
    """None if no user holds it, or no name was kept."""
    if job.held_by not in ("user", "admin"):
        return None
    if job.last_event is not None:
        data = db.only("SELECT data FROM event WHERE id = ?", (job.last_event,))[0]
    else:
        ids = job.base, job.id, job.id
        data = next(iter(db.execute(_RANGE_EVENT, (*ids, job.since))), (None,))[0]
    name = msgspec.json.decode(data).get("name") if data else None
    return None if name is None else str(name)


def requirements_of(db: Reader, pool: str, tq_id: int) -> Mapping[str, Any] | None:
    """Requirements of a task queue, or else of its SubmitPool; None if both are gone."""
    if not pool:
        return {}
    stored = db.execute("SELECT requirements FROM task_queue WHERE id = ?", (tq_id,)).fetchone() or ("",)
    text = stored[0] or next(iter(db.execute(_POOL, (pool,))), ("",))[0]
    return wanted_of(text) if text else None


def evaluated_at(db: Reader, pool: str) -> float | None:
    """None if the SubmitPool's queues are unknown, or it is gone."""
    return db.find(lambda _, at: at, _POOL, (pool,))


def queues_of_pool(db: Reader, pool: str) -> frozenset[QueueId]:
    """The CE queues that serve it."""
    rows = db.execute("SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ?", (pool,))
    return frozenset(QueueId(*row) for row in rows)


class Binding(NamedTuple):
    """The pilot to which a job is bound."""

    id: int
    queue: QueueId  # where it was sent
    since: float
    joined_at: float | None


def binding_of(db: Reader, job_id: int) -> Binding | None:
    """None if the job waits for no particular pilot."""
    return db.find(lambda number, *more: Binding(number, QueueId(*more[:3]), *more[3:]), _BINDING, (job_id,))


def stored_reasons(db: Reader) -> dict[int, WaitReason]:
    """Reasons by task queue."""
    rows = db.execute(
        "SELECT tq_id, reason, detail, next_reason, next_jobs, next_before FROM task_queue_reason"
    )
    return dict(readable(_judged, rows, "reason of task queue"))


def _judged(
    tq_id: int, reason: str, detail: str, following: str | None, *rest: Any
) -> tuple[int, WaitReason]:
    return tq_id, WaitReason(MainReason(reason), detail, MainReason(following) if following else None, *rest)


def waiting_by_reason(db: Reader, vo: str = "") -> WaitingReasons:
    """Most jobs first, of all VOs or of one."""
    at, facts_at = db.execute("SELECT at, facts_at FROM reason_pass").fetchone() or (None, None)
    rows = [
        WaitingFor(
            reason=MainReason(reason), verdict=verdict_of(MainReason(reason)), detail=detail, task_queues=queues,
            jobs=jobs, since=since,
        )
        for reason, detail, queues, jobs, since in db.execute(_GROUPED, (vo, vo))
        if reason in frozenset(MainReason)  # others are damaged, and judged anew
    ]  # fmt: skip
    return WaitingReasons(at=at, facts_at=facts_at, reasons=rows)


def starts_by_vo(db: Reader, *, most: int, after: float) -> list[tuple[str, int, int, float]]:
    """(VO, starts, those by private pilots, first) after a time, among the last `most`."""
    return list(db.execute(_STARTS, (most - 1, after)))


def pilot_facts(db: Reader, name: str, vo: str = "") -> PilotFacts:
    """A pilot by number or stamp. Raises NotFound, ServerFault if the row is damaged."""
    is_id = name.isascii() and name.isdigit() and len(name) <= _LONGEST_ID
    try:
        row = (pilot_by_id(db, int(name)) if is_id else None) or pilot_by_stamp(db, name)
    except UNREADABLE as fault:
        raise damaged(f"pilot {name[:100]}", fault) from None
    if row is None or vo not in ("", row.vo):
        raise NotFound(f"There is no pilot {name[:100]}.", hint="See: lode pilot ls --all.", pilot=name[:100])
    report = _node_of(row.node)
    node = report or {}
    pools, host = node.get("submit_pools"), HostName(row.site, reported_host(node.get("host")))
    record = host_record(db, host) if host.host else None
    keys = [key_from_json(key) for (key,) in db.execute(_RUNNING, (row.id,))]
    return PilotFacts(
        row=row,
        drain_reason=row.drain_reason,
        host=host,
        shut=record if record is not None and record.shut else None,
        promised=[(key.cores, key.memory_mb) for key in keys],
        is_damaged=report is None,
        stale_pools=pools.get("stale") or 0 if isinstance(pools, dict) else 0,
    )


def node_of_pilot(db: Reader, number: int) -> dict[str, Any]:
    """What a pilot reported of its machine."""
    return _node_of(*db.only("SELECT node FROM pilot WHERE id = ?", (number,))) or {}


def _node_of(text: str) -> dict[str, Any] | None:
    with suppress(*UNREADABLE):
        return dict(msgspec.json.decode(text, type=dict[str, Any]))
    return None


def pilots_of_queue(db: Reader, place: QueueId, vo: str = "") -> list[tuple[str, float]]:
    """State and submission time of each live pilot in a CE queue."""
    return list(db.execute(_OF_QUEUE, (*place, vo)))


def last_sent(
    db: Reader, place: QueueId, now: float, *, among: int, most: int, vo: str = ""
) -> list[SentPilot]:
    """Newest first, `among` the last sent anywhere."""
    rows = db.execute(_LAST_SENT, (among, *place, vo, most))
    return list(readable(partial(_sent, now), rows, "pilot"))


def _sent(now: float, number: int, *row: Any) -> SentPilot:
    stamp, state, reason, drain, created, joined, ended, done, host = row
    return SentPilot(
        id=number, stamp=stamp, state=PilotState(state), reason=reason or ("draining" if drain and ended is None else ""),
        sent_seconds_ago=max(0.0, now - created), joined=joined is not None, ended_seconds_ago=since(ended, now),
        jobs_done=done, host=host, ordered=bool(drain) or reason == NOT_NEEDED,
    )  # fmt: skip
