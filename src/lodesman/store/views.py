"""Read-only views for lists, states and counts: rows and untouched members look the same here."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from lodesman.store.engine import only_row

Row = dict[str, Any]

STATE_OF_ROWS = """SELECT s.owner, s.grp, j.state, count(*) FROM job j JOIN submission s ON s.id = j.submission_id
GROUP BY s.owner, s.grp, j.state"""
STATE_OF_RUNS = """SELECT s.owner, s.grp, 'Waiting', sum(c.stop - c.cursor - coalesce(
  (SELECT sum(h.stop - max(h.start, c.cursor)) FROM hole h WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0))
FROM cohort_now c JOIN submission s ON s.id = c.submission_id WHERE c.cursor < c.stop GROUP BY s.owner, s.grp"""
STATE_OF_HOLES = """SELECT s.owner, s.grp, h.state, sum(h.stop - h.start) FROM hole h JOIN cohort c ON c.id = h.cohort_id
JOIN submission s ON s.id = c.submission_id WHERE h.state != 'Moved' GROUP BY s.owner, s.grp, h.state"""
JOB = """SELECT j.id, j.state, j.attempt, j.since, j.reason, s.owner, s.grp, s.vo, s.name, s.created_at, j.tq_id,
j.template_id, j.submission_id, j.last_event, j.last_attempt, a.site, a.pilot_id, a.claimed_at, a.started_at,
a.ended_at, a.outcome, a.cause, a.exit_code, a.signal, a.cpu_seconds, a.wall_seconds, a.max_rss_mb,
a.output_sha256, a.output_size, a.message, s.base
FROM job j JOIN submission s ON s.id = j.submission_id LEFT JOIN attempt a ON a.id = j.last_attempt"""
JOB_KEYS = (
    "id", "state", "attempt", "since", "reason", "owner", "group", "vo", "name", "submitted_at", "task_queue",
    "template", "submission", "last_event", "last_attempt", "site", "pilot", "claimed_at", "started_at",
    "ended_at", "outcome", "cause", "exit_code", "signal", "cpu_seconds", "wall_seconds", "max_rss_mb",
    "output_sha256", "output_size", "message", "base",
)  # fmt: skip
MEMBER_COHORTS = """SELECT c.id, c.tq_id, c.cursor, c.template_id, s.owner, s.grp, s.vo, s.name, s.created_at,
s.base, s.id, c.start, c.stop FROM cohort c JOIN submission s ON s.id = c.submission_id
WHERE s.base <= ?1 AND s.base + s.count > ?1 AND c.start <= ?1 - s.base AND c.stop > ?1 - s.base
ORDER BY c.id DESC LIMIT 1"""
HOLE_AT = "SELECT state, reason, at FROM hole WHERE cohort_id = ? AND start <= ? AND stop > ?"


def job_counts(db: apsw.Connection) -> list[tuple[str, str, str, int]]:
    """(owner, group, state, jobs) over rows, runs and holes."""
    sums: dict[tuple[str, str, str], int] = {}
    for query in (STATE_OF_ROWS, STATE_OF_RUNS, STATE_OF_HOLES):
        for owner, group, state, n in db.execute(query):
            if n:
                sums[owner, group, state] = sums.get((owner, group, state), 0) + n
    return [(*key, n) for key, n in sorted(sums.items())]


def find_job(db: apsw.Connection, job_id: int) -> Row | None:
    """One job with its last attempt, whether or not it has a row; None if it was never submitted."""
    row = db.execute(f"{JOB} WHERE j.id = ?", (job_id,)).fetchone()
    if row is not None:
        return dict(zip(JOB_KEYS, row, strict=True))
    found = db.execute(MEMBER_COHORTS, (job_id,)).fetchone()
    return None if found is None else _member(db, job_id, found)


def _member(db: apsw.Connection, job_id: int, found: tuple[Any, ...]) -> Row:
    cohort, tq_id, _, template, owner, group, vo, name, created, base, submission, _, _ = found
    hole = db.execute(HOLE_AT, (cohort, job_id - base, job_id - base)).fetchone()
    state, reason, since = hole or ("Waiting", "", created)
    return dict.fromkeys(JOB_KEYS) | {
        "id": job_id, "state": state, "attempt": 0, "since": since, "reason": reason, "owner": owner,
        "group": group, "vo": vo, "name": name, "submitted_at": created, "task_queue": tq_id,
        "template": template, "submission": submission, "base": base,
    }  # fmt: skip


def job_events(db: apsw.Connection, job: Row) -> list[Row]:
    """The events of a job, oldest first: its own chain and those of ranges that hold it."""
    events: list[tuple[int, Row]] = []
    number = job["last_event"]
    while number is not None:
        at, previous, kind, data = only_row(
            db, "SELECT at, previous, kind, data FROM event WHERE id = ?", (number,)
        )
        events.append((number, _event(at, kind, data)))
        number = previous
    ranges = db.execute(
        "SELECT id, at, kind, data FROM event WHERE last_job IS NOT NULL AND job_id BETWEEN ? AND ? AND last_job >= ?",
        (job["base"], job["id"], job["id"]),
    )
    events.extend((row[0], _event(*row[1:])) for row in ranges)
    # By number, not by time: clocks jump.
    return [event for _, event in sorted(events, key=lambda pair: pair[0])]


def _event(at: float, kind: str, data: str | None) -> Row:
    return {"at": at, "event": kind, **(msgspec.json.decode(data) if data else {})}


def job_attempts(db: apsw.Connection, job: Row) -> list[Row]:
    """Every attempt of a job, first to last."""
    keys = ("id", "number", "previous", "pilot", "site", "claimed_at", "started_at", "ended_at", "outcome", "cause",
            "exit_code", "signal", "cpu_seconds", "wall_seconds", "max_rss_mb", "message")  # fmt: skip
    attempts, number = [], job["last_attempt"]
    while number is not None:
        row = only_row(
            db,
            """SELECT id, number, previous, pilot_id, site, claimed_at, started_at, ended_at, outcome, cause, exit_code,
            signal, cpu_seconds, wall_seconds, max_rss_mb, message FROM attempt WHERE id = ?""",
            (number,),
        )
        found = dict(zip(keys, row, strict=True))
        number = found.pop("previous")
        attempts.append(found)
    return attempts[::-1]


def list_pilots(db: apsw.Connection, *, alive_only: bool, limit: int) -> list[Row]:
    """Pilots, newest first."""
    from_, where = "FROM pilot", "WHERE ended_at IS NULL" if alive_only else ""
    keys = ("id", "stamp", "state", "vo", "owner", "group", "pilot_type", "submission_pool", "task_queue", "site",
            "ce", "queue", "native_id", "created_at", "submitted_at", "joined_at", "last_seen", "ended_at", "drain",
            "reason", "jobs_done")  # fmt: skip
    rows = db.execute(
        f"""SELECT id, stamp, state, vo, owner, grp, pilot_type, submission_pool, tq_id, site, ce, queue, native_id,
        created_at, submitted_at, joined_at, last_seen, ended_at, drain, reason, jobs_done {from_} {where}
        ORDER BY id DESC LIMIT ?""",
        (limit,),
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def list_task_queues(db: apsw.Connection, *, limit: int) -> list[Row]:
    """Task queues with waiting jobs, fullest first."""
    rows = db.execute(
        """SELECT q.id, q.key, c.waiting, q.created_at FROM task_queue q JOIN queue_waiting c ON c.tq_id = q.id
        WHERE c.waiting > 0 ORDER BY c.waiting DESC LIMIT ?""",
        (limit,),
    )
    return [
        {"id": number, "waiting": waiting, "created_at": created, **msgspec.json.decode(key)}
        for number, key, waiting, created in rows
    ]
