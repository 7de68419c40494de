"""Pilots: lists, single ones, and what the census and the director ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.server.store import Reader, readable
from lodesman.server.store.dialect import GIVEN, GIVEN_TEXT_TRIPLES, JOIN_IN_ORDER, by_index, keys
from lodesman.server.store.task_queues import keys_by_id
from lodesman.wire.nodes import QueueId
from lodesman.wire.pilots import UNREACHED_SECONDS, ListedPilot, Pilot
from lodesman.wire.requests import MOST_ID
from lodesman.wire.vocabulary import PilotState

# In the order of the members of `Pilot`.
_SHOWN = """id, stamp, state, vo, owner, grp, pilot_type, submission_pool, site, ce, queue, native_id, reason, jobs_done,
tq_id, created_at, submitted_at, joined_at, last_seen, ended_at, drain, backend, host, held_since, native_seen,
bound_job"""
_OF_JOIN_TOKEN = "id = (SELECT pilot_id FROM token WHERE hash = ? AND kind IN ('join', 'joined'))"
_NATIVE = "SELECT id, stamp, backend, native_id, site, ce, queue, sent_to FROM pilot"
_LOST = f"{_NATIVE} WHERE state = 'Lost' AND ended_at > ? AND backend = ? ORDER BY ended_at"
_LIVE = """SELECT p.id, p.state, p.vo, p.site, p.ce, p.queue, p.request, p.node, p.created_at, p.submitted_at, p.joined_at,
p.last_seen, p.tq_id, p.drain, EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL),
EXISTS (SELECT 1 FROM host h WHERE h.site = p.site AND h.name = p.node_host AND h.shut = 1), p.bound_job, p.sent_to, p.stamp,
p.backend, p.host, p.native_seen FROM pilot p WHERE p.ended_at IS NULL"""
_UNREACHED = f"""SELECT count(*) FROM pilot {by_index("pilot_live")}
WHERE ended_at IS NULL AND joined_at IS NULL AND drain = 0 AND host != '' AND native_seen <= ?"""
_NATIVES = f"{_NATIVE} WHERE ended_at IS NULL OR state = 'Lost'"
_ENDED = f"{_NATIVE} WHERE backend != 'local' AND backend = ? AND ended_at > ? AND ended_at <= ?"
_UNNAMED = """SELECT stamp FROM pilot
WHERE backend != 'local' AND backend = ? AND ended_at > ? AND native_id IS NULL AND joined_at IS NOT NULL"""
_WAITS = f"{_NATIVE} WHERE id = ? AND state = 'Submitted'"
_LEAVING = """SELECT id, CASE WHEN drain_reason = '' THEN 'it was drained' ELSE drain_reason END FROM pilot
WHERE ended_at IS NULL AND state = 'Submitted' AND drain = 1 ORDER BY random() LIMIT ?"""
_BY_QUEUE = """SELECT site, ce, queue, state, count(*) FROM pilot
WHERE ended_at IS NULL AND ? IN ('', vo) GROUP BY site, ce, queue, state"""
_RUNNING_BY_SITE = f"""SELECT a.site, count(*) FROM attempt a {by_index("attempt_live")}
LEFT JOIN pilot p ON p.id = a.pilot_id
WHERE a.ended_at IS NULL AND a.claim_token != '' AND ? IN ('', p.vo) GROUP BY a.site"""
_ORDERS = f"""SELECT pilot_id, job_id, number, stop_reason FROM attempt {by_index("attempt_live")}
WHERE ended_at IS NULL AND stop_reason IS NOT NULL"""
_LIVE_ATTEMPTS = f"""SELECT a.pilot_id, a.job_id, a.number, a.tq_id, a.claimed_at, a.started_at IS NOT NULL,
a.claim_token != '', p.site, p.ce, p.queue, p.node_host
FROM attempt a {by_index("attempt_live")} {JOIN_IN_ORDER} pilot p ON p.id = a.pilot_id WHERE a.ended_at IS NULL"""
_HELD = f"""SELECT pilot_id, tq_id, count(*) FROM attempt {by_index("attempt_live")}
WHERE ended_at IS NULL GROUP BY pilot_id, tq_id"""
_RUNNING_ATTEMPTS = f"""SELECT id, pilot_id, tq_id, claimed_at FROM attempt {by_index("attempt_live")}
WHERE ended_at IS NULL"""
_LIVE_SUMS = f"""SELECT count(*), coalesce(sum(job_id), 0), coalesce(sum(number), 0)
FROM attempt {by_index("attempt_live")} WHERE ended_at IS NULL"""
_STALLED = f"""SELECT DISTINCT a.pilot_id FROM attempt a {by_index("attempt_live")}
{JOIN_IN_ORDER} job j ON j.last_attempt = a.id AND j.id = a.job_id WHERE a.ended_at IS NULL AND j.state = 'Stalled'"""
_ATTEMPTS = "SELECT job_id, number, claimed_at FROM attempt WHERE pilot_id = ? AND ended_at IS NULL"
_JOBS_OF = f"""SELECT pilot_id, job_id FROM attempt {by_index("attempt_live")}
WHERE ended_at IS NULL AND claim_token != '' AND pilot_id IN {GIVEN} ORDER BY job_id"""
# Only a pilot's claim has a token.
_BOUND = f"""SELECT pilot_id, job_id, number FROM attempt {by_index("attempt_live")}
WHERE ended_at IS NULL AND claim_token = ''"""
_UNSTARTED = f"""SELECT p.id FROM pilot p {by_index("pilot_live")}
WHERE p.ended_at IS NULL AND p.joined_at IS NULL AND p.backend = ? AND NOT EXISTS
(SELECT 1 FROM token t WHERE t.pilot_id = p.id AND t.kind = 'join' AND t.expires_at >= ?)"""


class PilotRow(Pilot, frozen=True):
    """One row of `pilot`."""

    request: str  # JSON
    node: str  # JSON
    drain_reason: str = ""  # why it leaves, '' if a user said so
    sent_to: str = ""  # the queue of a forwarding node, as JSON; '': it runs where it was sent

    @property
    def queue_id(self) -> QueueId:
        """Where it was sent, or forwarded to; unknown parts are empty."""
        return QueueId(self.site, self.ce, self.queue)

    @property
    def submitted_to(self) -> QueueId:
        """Where it was sent."""
        return _sent_to(self.sent_to) or self.queue_id


class NativePilot(Struct, frozen=True):
    """A pilot at its batch system, in the queue that it was sent to."""

    id: int
    stamp: str
    backend: str
    native_id: str | None  # None if the batch system never answered
    queue_id: QueueId


class LivePilot(Struct, frozen=True):
    """What changes of a live pilot, and what it presents."""

    id: int
    state: str
    vo: str
    queue_id: QueueId
    request: str
    node: str
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    tq_id: int | None
    drain: int
    is_busy: int  # it has a live attempt
    is_shut: int = 0  # its host gets no jobs
    bound_job: int | None = None  # the only job that it runs
    sent_to: str = ""  # as in a row
    stamp: str = ""
    backend: str = ""
    host: str = ""  # this and `native_seen` are as in a `Pilot`
    native_seen: float | None = None

    def is_unreached(self, now: float) -> bool:
        """Whether its batch system says it runs, and it has not joined for too long."""
        runs = bool(self.host) and self.joined_at is None and not self.drain
        return runs and self.native_seen is not None and now - self.native_seen >= UNREACHED_SECONDS

    @property
    def submitted_to(self) -> QueueId:
        """Where its batch system counts it."""
        return _sent_to(self.sent_to) or self.queue_id


def _sent_to(text: str) -> QueueId | None:
    return QueueId(*msgspec.json.decode(text, type=tuple[str, str, str])) if text else None


def _pilots(db: Reader, which: str, *values: object) -> list[PilotRow]:
    return list(readable(_pilot, _rows(db, which, *values), "pilot"))


def _rows(db: Reader, which: str, *values: object) -> Iterable[tuple[Any, ...]]:
    return db.execute(
        f"SELECT {_SHOWN}, request, node, drain_reason, sent_to FROM pilot WHERE {which}", values
    )


def _pilot(number: int, stamp: str, state: str, *more: Any) -> PilotRow:
    return PilotRow(number, stamp, PilotState(state), *more)


def list_pilots(
    db: Reader, *, alive_only: bool, limit: int, vo: str = "", before: int = MOST_ID
) -> list[ListedPilot]:
    """Newest first, with ids less than `before`."""
    # Live pilots are few: sorting them costs less than walking through all that ended.
    which = f"{by_index('pilot_live')} WHERE ended_at IS NULL" if alive_only else "WHERE true"
    sql = f"SELECT {_SHOWN}, node_host FROM pilot {which} AND id < ? AND (? = '' OR vo = ?) ORDER BY id DESC LIMIT ?"
    rows = list(db.execute(sql, (before, vo, vo, limit)))
    jobs = jobs_of_pilots(db, [row[0] for row in rows])
    return list(readable(partial(_listed, jobs), rows, "pilot"))


def _listed(jobs: Mapping[int, list[int]], number: int, stamp: str, state: str, *more: Any) -> ListedPilot:
    return ListedPilot(number, stamp, PilotState(state), *(*more, jobs.get(number, [])))


def jobs_of_pilots(db: Reader, numbers: Sequence[int]) -> dict[int, list[int]]:
    """The running jobs by pilot."""
    by_pilot: dict[int, list[int]] = {}
    for pilot_id, job_id in db.execute(_JOBS_OF, (keys(numbers),)):
        by_pilot.setdefault(pilot_id, []).append(job_id)
    return by_pilot


def pilot_by_id(db: Reader, number: int) -> PilotRow | None:
    """None if there is none."""
    return next(starmap(_pilot, _rows(db, "id = ?", number)), None)


def pilots_by_id(db: Reader, numbers: Iterable[int]) -> list[PilotRow]:
    """Raises ValueError for a damaged row."""
    return list(starmap(_pilot, _rows(db, f"id IN {GIVEN}", keys(numbers))))


def pilot_by_stamp(db: Reader, stamp: str) -> PilotRow | None:
    """None if there is none."""
    return next(starmap(_pilot, _rows(db, "stamp = ?", stamp)), None)


def fate_of(db: Reader, stamp: str) -> Literal["", "ran", "ended"]:
    """Whether it has run, or ended before it did."""
    sql = "SELECT joined_at IS NOT NULL OR host != '', ended_at IS NOT NULL FROM pilot WHERE stamp = ?"
    has_run, has_ended = db.execute(sql, (stamp,)).fetchone() or (False, False)
    return "ran" if has_run else "ended" if has_ended else ""


def pilot_of_join_token(db: Reader, digest: bytes) -> PilotRow | None:
    """The pilot by its token's hash; None if unknown."""
    return next(starmap(_pilot, _rows(db, _OF_JOIN_TOKEN, digest)), None)


def live_pilots(db: Reader, backend: str = "") -> list[PilotRow]:
    """Pilots that have not ended, of one batch system or of all."""
    return _pilots(db, "ended_at IS NULL AND ? IN ('', backend)", backend)


def backends_of_pilots(db: Reader) -> set[str]:
    """Batch systems with live pilots."""
    return {name for (name,) in db.execute("SELECT DISTINCT backend FROM pilot WHERE ended_at IS NULL")}


def pilots_in_queues(db: Reader, queues: Iterable[QueueId]) -> list[PilotRow]:
    """Live pilots of these queues."""
    return _pilots(db, f"ended_at IS NULL AND (site, ce, queue) IN {GIVEN_TEXT_TRIPLES}", keys(queues))


def newest_pilot(db: Reader) -> int:
    """The largest id; 0 if there is none."""
    return int(db.only("SELECT coalesce(max(id), 0) FROM pilot")[0])


def left_bad_nodes(db: Reader, backend: str, *, after: int, among: Iterable[int]) -> list[PilotRow]:
    """Pilots that left a useless node without a job: ids above `after`, and `among` others."""
    left = "backend = ? AND jobs_done = 0 AND ended_at IS NOT NULL AND reason LIKE ?"
    about = (backend, f"{NODE_FAULT}%")
    # Two statements, each by the key: no planner reads few rows for both in one.
    pilots = _pilots(db, f"id > ? AND {left}", after, *about)
    others = keys(number for number in among if number <= after)
    return pilots if others == keys(()) else pilots + _pilots(db, f"id IN {GIVEN} AND {left}", others, *about)


def joined_pilots(db: Reader) -> list[PilotRow]:
    """Those that have not ended."""
    return _pilots(db, "state = 'Running' AND ended_at IS NULL")


def lost_pilots(db: Reader, backend: str, since: float) -> dict[int, NativePilot]:
    """Lost after that time, the longest lost first."""
    return {pilot.id: pilot for pilot in readable(_native, db.execute(_LOST, (since, backend)), "pilot")}


def ended_natives(db: Reader, backend: str, *, since: float, before: float) -> list[NativePilot]:
    """Pilots of a remote batch system that ended in this time."""
    return list(readable(_native, db.execute(_ENDED, (backend, since, before)), "pilot"))


def ended_without_native(db: Reader, backend: str, since: float) -> set[str]:
    """Stamps of pilots that joined and ended since then, before their batch system named them."""
    return {stamp for (stamp,) in db.execute(_UNNAMED, (backend, since))}


def live_natives(db: Reader) -> list[NativePilot]:
    """Pilots that live or were lost."""
    return list(readable(_native, db.execute(_NATIVES), "pilot"))


def _native(number: int, stamp: str, backend: str, native_id: str | None, *place: str) -> NativePilot:
    *names, sent_to = place
    return NativePilot(number, stamp, backend, native_id, _sent_to(sent_to) or QueueId(*names))


def pilots_in_short(db: Reader) -> list[LivePilot]:
    """All live pilots."""
    return [
        LivePilot(number, state, vo, QueueId(site, ce, queue), *more)
        for number, state, vo, site, ce, queue, *more in db.execute(_LIVE)
    ]


def unstarted_pilots(db: Reader, backend: str, now: float) -> list[int]:
    """Pilots whose join tokens expired before they joined."""
    return [number for (number,) in db.execute(_UNSTARTED, (backend, now))]


def _attempts_by_pilot(db: Reader) -> list[tuple[int, int, int]]:
    return list(db.execute(_HELD))


class RunningAttempt(NamedTuple):
    """A live attempt."""

    id: int
    pilot: int
    task_queue: int
    claimed_at: float  # UNIX seconds


def running_attempts(db: Reader) -> list[RunningAttempt]:
    """All live attempts."""
    return [RunningAttempt(*row) for row in db.execute(_RUNNING_ATTEMPTS)]


def taken_jobs(db: Reader) -> dict[int, int]:
    """Live attempts of each submission with `AtMost`."""
    by_queue = Counter[int]()
    for _, tq_id, jobs in _attempts_by_pilot(db):
        by_queue[tq_id] += jobs
    of_keys = keys_by_id(db, by_queue, {})
    by_submission = Counter[int]()
    for tq_id, key in of_keys.items():
        if key.at_most:
            by_submission[key.submission] += by_queue[tq_id]
    return by_submission


def unreached_pilots(db: Reader, before: float) -> int:
    """How many ran before then, by their batch systems, and have not joined."""
    return int(db.only(_UNREACHED, (before,))[0])


def running_jobs(db: Reader) -> int:
    """Live attempts that a pilot has taken."""
    return int(db.only("SELECT count(*) FROM attempt WHERE ended_at IS NULL AND claim_token != ''")[0])


def waiting_pilots(db: Reader, ids: Iterable[int]) -> Iterator[NativePilot]:
    """Those that wait at their batch systems now."""
    for number in ids:
        yield from readable(_native, db.execute(_WAITS, (number,)), "pilot")


def drained_waiting_pilots(db: Reader, limit: int) -> dict[int, str]:
    """Pilots that would leave at once when started, with the reason; a random choice."""
    return dict(db.execute(_LEAVING, (limit,)))


def pilots_by_queue(db: Reader, vo: str = "") -> list[tuple[QueueId, str, int]]:
    """(CE queue, state, number) of live pilots."""
    rows = db.execute(_BY_QUEUE, (vo,))
    return [(QueueId(site, ce, queue), state, n) for site, ce, queue, state, n in rows]


def running_jobs_by_site(db: Reader, vo: str = "") -> dict[str, int]:
    """Live attempts that a pilot has taken."""
    return dict(db.execute(_RUNNING_BY_SITE, (vo,)))


class _LiveAttempt(NamedTuple):
    pilot: int
    attempt: tuple[int, int]  # job and number
    tq_id: int
    claimed_at: float  # UNIX seconds
    place: tuple[str, ...]  # site, CE, queue and host of its pilot
    started: bool  # it was reported as Running
    taken: bool  # not bound to a pilot that has yet to claim it


def live_attempts(db: Reader) -> list[_LiveAttempt]:
    """All of them."""
    rows = db.execute(_LIVE_ATTEMPTS)
    return [
        _LiveAttempt(pilot, (job, number), tq_id, claimed_at, tuple(place), bool(started), bool(is_taken))
        for pilot, job, number, tq_id, claimed_at, started, is_taken, *place in rows
    ]


def live_sums(db: Reader) -> tuple[int, int, int]:
    """Their number, and sums of their jobs and numbers."""
    count, jobs, numbers = db.only(_LIVE_SUMS)
    return int(count), int(jobs), int(numbers)


def bound_attempts(db: Reader) -> dict[int, tuple[int, int]]:
    """Job and number by pilot."""
    return {pilot_id: (job, number) for pilot_id, job, number in db.execute(_BOUND)}


def stop_orders(db: Reader) -> list[tuple[int, int, int, str]]:
    """(pilot, job, number of the attempt, reason)."""
    return list(db.execute(_ORDERS))


def pilots_with_stalled_jobs(db: Reader) -> set[int]:
    """Pilots whose silence was noted."""
    return {pilot_id for (pilot_id,) in db.execute(_STALLED)}


def attempts_of_pilot(db: Reader, pilot_id: int) -> dict[tuple[int, int], float]:
    """Claimed at (UNIX seconds), by job and number."""
    return {(job, number): claimed_at for job, number, claimed_at in db.execute(_ATTEMPTS, (pilot_id,))}
