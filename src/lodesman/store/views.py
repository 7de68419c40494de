"""Read-only views for lists, states and counts: rows and untouched members look the same here."""

from __future__ import annotations

from typing import Any

import msgspec

from lodesman.store.engine import Reader, only_row

Row = dict[str, Any]

# Jobs that wait in a task queue which no configured queue can run are Held (`q`: its hold).
STATE = "CASE WHEN j.state = 'Waiting' AND q.tq_id IS NOT NULL THEN 'Held' ELSE j.state END"
STATE_OF_ROWS = f"""SELECT s.owner, s.grp, {STATE}, count(*) FROM job j JOIN submission s ON s.id = j.submission_id
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id GROUP BY 1, 2, 3"""
STATE_OF_RUNS = """SELECT s.owner, s.grp, iif(q.tq_id IS NULL, 'Waiting', 'Held'), sum(c.stop - c.cursor - coalesce(
  (SELECT sum(h.stop - max(h.start, c.cursor)) FROM hole h WHERE h.cohort_id = c.id AND h.stop > c.cursor), 0))
FROM cohort_now c JOIN submission s ON s.id = c.submission_id LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id
WHERE c.cursor < c.stop GROUP BY 1, 2, 3"""
STATE_OF_HOLES = """SELECT s.owner, s.grp, h.state, sum(h.stop - h.start) FROM hole h JOIN cohort c ON c.id = h.cohort_id
JOIN submission s ON s.id = c.submission_id WHERE h.state != 'Moved' GROUP BY s.owner, s.grp, h.state"""
ALL_STATES = (STATE_OF_ROWS, STATE_OF_RUNS, STATE_OF_HOLES)
# Those of one VO.
STATES_OF_VO = (
    STATE_OF_ROWS.replace("GROUP BY", "WHERE s.vo = ? GROUP BY"),
    STATE_OF_RUNS.replace("GROUP BY", "AND s.vo = ? GROUP BY"),
    STATE_OF_HOLES.replace("GROUP BY", "AND s.vo = ? GROUP BY"),
)
# Those of one user, found from the submissions; the jobs of one are neighbours.
STATES_OF_OWNER = (
    f"""SELECT s.owner, s.grp, {STATE}, count(*) FROM submission s INDEXED BY submission_owner
    CROSS JOIN job j ON j.id >= s.base AND j.id < s.base + s.count
    LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id WHERE s.owner = ? GROUP BY 1, 2, 3""",
    STATE_OF_RUNS.replace("GROUP BY", "AND s.owner = ? GROUP BY"),
    STATE_OF_HOLES.replace("GROUP BY", "AND s.owner = ? GROUP BY"),
)
# (owner, group, VO, state, reason, jobs, first, own state, of them started): reasons of what failed or is held only.
ROWS_BY_REASON = f"""SELECT s.owner, s.grp, s.vo, {STATE} AS stands,
iif(j.state IN ('Held', 'Failed', 'Killed'), j.reason, '') AS why, count(*), min(j.id), j.state, sum(j.attempt > 0)
FROM job j JOIN submission s ON s.id = j.submission_id LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id
GROUP BY s.owner, s.grp, s.vo, stands, why, j.state"""
HELD_BY_QUEUE = "j.state = 'Waiting' AND q.tq_id IS NOT NULL"
# Of waiting jobs, and of those Held with their task queue: the main reason, None if it was not judged yet.
MAIN_REASON = "iif(j.state = 'Waiting', iif(q.tq_id IS NULL, r.reason, 'impossible'), NULL)"
JOB_FACTS = f"""SELECT j.id, {STATE}, j.attempt, iif({HELD_BY_QUEUE}, max(j.since, q.since), j.since),
iif({HELD_BY_QUEUE}, q.reason, j.reason),
iif({HELD_BY_QUEUE}, 'impossible', iif(j.state = 'Held', 'user', NULL)), s.owner, s.grp, s.vo, s.name, s.created_at, j.tq_id,
j.template_id, j.submission_id, j.last_event, j.last_attempt, a.site, a.pilot_id, a.claimed_at, a.started_at,
a.ended_at, a.outcome, a.cause, a.exit_code, a.signal, a.cpu_seconds, a.wall_seconds, a.max_rss_mb,
a.output_sha256, a.output_size, a.message, s.base, {MAIN_REASON}"""
OF_JOBS = "FROM job j JOIN submission s ON s.id = j.submission_id"
AND_WITH = """LEFT JOIN attempt a ON a.id = j.last_attempt
LEFT JOIN task_queue_hold q ON q.tq_id = j.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = j.tq_id"""
JOB_KEYS = (
    "id", "state", "attempt", "since", "reason", "held_by", "owner", "group", "vo", "name", "submitted_at", "task_queue",
    "template", "submission", "last_event", "last_attempt", "site", "pilot", "claimed_at", "started_at",
    "ended_at", "outcome", "cause", "exit_code", "signal", "cpu_seconds", "wall_seconds", "max_rss_mb",
    "output_sha256", "output_size", "message", "base", "main_reason",
)  # fmt: skip
MEMBER_COHORTS = """SELECT c.id, c.cursor, c.tq_id, c.template_id, s.owner, s.grp, s.vo, s.name, s.created_at,
s.base, s.id, q.reason, q.since, r.reason FROM cohort c JOIN submission s ON s.id = c.submission_id
LEFT JOIN task_queue_hold q ON q.tq_id = c.tq_id LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE s.base = (SELECT max(base) FROM submission WHERE base <= ?1) AND s.base + s.count > ?1
AND c.start <= ?1 - s.base AND c.stop > ?1 - s.base ORDER BY c.id DESC LIMIT 1"""
QUEUE_EVENTS = "SELECT id, at, kind, reason FROM task_queue_event WHERE tq_id = ?"
TASK_QUEUES = """SELECT q.id, q.key, iif(h.tq_id IS NULL, c.jobs, 0), iif(h.tq_id IS NULL, 0, c.jobs), q.created_at,
iif(h.tq_id IS NULL, r.reason, 'impossible') AS why, iif(h.tq_id IS NULL, r.detail, h.reason), coalesce(h.since, r.since)
FROM queue_jobs c JOIN task_queue q ON q.id = c.tq_id LEFT JOIN task_queue_hold h ON h.tq_id = c.tq_id
LEFT JOIN task_queue_reason r ON r.tq_id = c.tq_id
WHERE c.jobs > 0 AND (?1 = '' OR why = ?1) AND (?3 = '' OR json_extract(q.key, '$.vo') = ?3)
ORDER BY c.jobs DESC, q.id LIMIT ?2"""
HOLE_AT = "SELECT state, reason, at FROM hole WHERE cohort_id = ? AND start <= ? AND stop > ?"


def was_given_out(db: Reader, job_id: int) -> bool:
    """Whether there ever was a job with this id."""
    return 0 < job_id < int(only_row(db, "SELECT next_job FROM leadership")[0])


def job_counts(db: Reader, owner: str | None = None, *, vo: str = "") -> list[tuple[str, str, str, int]]:
    """(owner, group, state, jobs) over rows, runs and holes: of everybody, of one VO, or of one owner."""
    sums: dict[tuple[str, str, str], int] = {}
    queries, values = (STATES_OF_VO, (vo,)) if vo else (ALL_STATES, ())
    if owner is not None:
        queries, values = STATES_OF_OWNER, (owner,)
    with db:
        for query in queries:
            for name, group, state, n in db.execute(query, values):
                if n:
                    sums[name, group, state] = sums.get((name, group, state), 0) + n
    return [(*key, n) for key, n in sorted(sums.items())]


def find_job(db: Reader, job_id: int) -> Row | None:
    """One job with its last attempt, whether or not it has a row; None if it was never submitted, or is forgotten."""
    for look in (_row, _member, _row, _member):  # a member that is taken, or released, between two looks
        found = look(db, job_id)
        if found is not None:
            return found
    return None


def _row(db: Reader, job_id: int) -> Row | None:
    row = db.execute(f"{JOB_FACTS} {OF_JOBS} {AND_WITH} WHERE j.id = ?", (job_id,)).fetchone()
    return None if row is None else dict(zip(JOB_KEYS, row, strict=True))


def _member(db: Reader, job_id: int) -> Row | None:
    """A member without a row; None if it was taken: it has got its row meanwhile, or is forgotten."""
    found = db.execute(MEMBER_COHORTS, (job_id,)).fetchone()
    if found is None:
        return None
    cohort, cursor, tq_id, template, owner, group, vo, name, created, base, submission, *why = found
    hole = db.execute(HOLE_AT, (cohort, job_id - base, job_id - base)).fetchone()
    if hole[0] == "Moved" if hole else job_id - base < cursor:
        return None
    standing = hole_standing(hole[0], hole[1], hole[2]) if hole else run_standing(created, *why)
    return dict.fromkeys(JOB_KEYS) | {
        "id": job_id, "attempt": 0, **standing, "owner": owner, "group": group, "vo": vo, "name": name,
        "submitted_at": created, "task_queue": tq_id, "template": template, "submission": submission, "base": base,
    }  # fmt: skip


def run_standing(created: float, held: str | None, since_held: float | None, main_reason: str | None) -> Row:
    """How members stand that were never touched. `held`: why no configured queue can run their task queue."""
    if held is None or since_held is None:
        return {
            "state": "Waiting",
            "since": created,
            "reason": "",
            "held_by": None,
            "main_reason": main_reason,
        }
    since = max(created, since_held)
    return {
        "state": "Held",
        "since": since,
        "reason": held,
        "held_by": "impossible",
        "main_reason": "impossible",
    }


def hole_standing(state: str, reason: str, since: float) -> Row:
    """How members of a hole stand."""
    held_by = "user" if state == "Held" else None
    return {"state": state, "since": since, "reason": reason, "held_by": held_by, "main_reason": None}


def job_events(db: Reader, job: Row) -> list[Row]:
    """The events of a job, oldest first: its own chain, those of ranges that hold it, those of its task queue."""
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
    return _with_task_queue(db, job, events)


def _with_task_queue(db: Reader, job: Row, events: list[tuple[int, Row]]) -> list[Row]:
    """Put in what happened to the job's task queue while the job waited in it."""
    tq_id = job["task_queue"]
    told: list[tuple[int, Row]] = [
        (int(number), {"at": at, "event": kind, "reason": reason, "task_queue": tq_id})
        for number, at, kind, reason in db.execute(QUEUE_EVENTS, (tq_id,))
    ]
    out: list[Row] = []
    stands, held = "", None
    # By number, not by time: clocks jump.
    for _, event in sorted([*events, *told], key=lambda pair: pair[0]):
        if "task_queue" in event:
            held = event if event["event"] == "Held" else None
            if stands in ("", event["event"]):
                continue
            stands = event["event"]
        elif event["event"] == "Held" and stands == "Held" and "by" not in event:
            continue
        else:
            stands = _stands(event)
        out.append(event)
        if stands == "Waiting" and held is not None:
            out.append({**held, "at": event["at"]})
            stands = "Held"
    return out


def _stands(event: Row) -> str:
    """Whether a job waits after an event of its own: Waiting, Held with its task queue, or '' for neither."""
    if event["event"] in ("Submitted", "Waiting"):
        return "Waiting"
    return "Held" if event["event"] == "Held" and "by" not in event else ""


def _event(at: float, kind: str, data: str | None) -> Row:
    return {"at": at, "event": kind, **(msgspec.json.decode(data) if data else {})}


def job_attempts(db: Reader, job: Row) -> list[Row]:
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


def list_pilots(db: Reader, *, alive_only: bool, limit: int, vo: str = "") -> list[Row]:
    """Pilots, newest first; `vo`: only those of one VO."""
    # Those alive are few: sorting them costs less than walking through all that ended.
    from_ = (
        "FROM pilot INDEXED BY pilot_live WHERE ended_at IS NULL" if alive_only else "FROM pilot WHERE true"
    )
    keys = ("id", "stamp", "state", "vo", "owner", "group", "pilot_type", "submission_pool", "task_queue", "site",
            "ce", "queue", "native_id", "created_at", "submitted_at", "joined_at", "last_seen", "ended_at", "drain",
            "reason", "jobs_done")  # fmt: skip
    rows = db.execute(
        f"""SELECT id, stamp, state, vo, owner, grp, pilot_type, submission_pool, tq_id, site, ce, queue, native_id,
        created_at, submitted_at, joined_at, last_seen, ended_at, drain, reason, jobs_done {from_}
        AND (?1 = '' OR vo = ?1) ORDER BY id DESC LIMIT ?2""",
        (vo, limit),
    )
    return [dict(zip(keys, row, strict=True)) for row in rows]


def list_task_queues(db: Reader, *, limit: int, reason: str = "", vo: str = "") -> list[Row]:
    """Task queues with jobs that wait, or are Held because no configured queue can run them; fullest first.

    `reason`: only those with that main reason; it is None until the task queue was judged. `vo`: only those of one VO.
    """
    return [
        {"id": number, "waiting": waiting, "held": held, "created_at": created, "main_reason": why, "detail": detail,
         "since": since, **msgspec.json.decode(key)}
        for number, key, waiting, held, created, why, detail, since in db.execute(TASK_QUEUES, (reason, limit, vo))
    ]  # fmt: skip
