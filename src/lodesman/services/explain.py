"""`lode why JOB`: the chain from the job to a pilot, ending in never, not now or now (DESIGN 1, step 16).

never: as things are configured no queue can run it. not now: something must change, and it is said what.
now: a queue and a live or permitted pilot exist for which there is no reason against.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import apsw
import msgspec

from lodesman.director import story
from lodesman.jobs import JobState
from lodesman.matching import ResourceRequest, TaskQueueKey, explain, key_from_json
from lodesman.services.director_log import last_iteration
from lodesman.services.obstacles import Obstacles, find_obstacles
from lodesman.services.policy import Policy
from lodesman.services.sessions import load_pools
from lodesman.store.engine import only_row

NEVER, NOT_NOW, NOW = "never", "not now", "now"
PILOTS = """SELECT p.id, p.state, p.request, p.site, p.ce, p.queue, p.drain, p.last_seen,
EXISTS (SELECT 1 FROM attempt a WHERE a.pilot_id = p.id AND a.ended_at IS NULL)
FROM pilot p WHERE p.ended_at IS NULL AND p.vo = ?"""
AHEAD = "SELECT count(*) FROM job WHERE queued IS NOT NULL AND tq_id = ? AND id < ? AND state = 'Waiting'"


def explain_job(db: apsw.Connection, policy: Policy, job: dict[str, Any], *, now: float) -> dict[str, Any]:
    """The whole answer as JSON values."""
    answer: dict[str, Any] = {"id": job["id"], "state": job["state"], "reason": job["reason"]}
    if job["state"] not in (JobState.WAITING, JobState.HELD):
        return {**answer, "verdict": None, "summary": _ended(job)}
    key = _key(db, job["task_queue"])
    world = policy.world(key.vo)
    found = find_obstacles(key, _requirements(db, key.submit_pool), world)
    answer["task_queue"] = {"id": job["task_queue"], **_position(db, job)}
    answer["queues"] = {
        "total": found.total,
        "eligible": len(found.eligible),
        "ruled_out_by": [{"criterion": name, "queues": n} for name, n in found.counts],
        "nearest": list(found.nearest),
    }
    if not found.eligible:
        return {**answer, "verdict": NEVER, "summary": _never(found)}
    pilots = _pilots(db, key, now)
    answer["pilots"] = pilots
    answer["director"] = _director(db, job["task_queue"], now)
    if job["state"] == JobState.HELD:
        return {
            **answer,
            "verdict": NOT_NOW,
            "summary": f"It is held: {job['reason']}. Release it to let it run.",
        }
    return {**answer, **_verdict(found, pilots, answer["director"])}


def _key(db: apsw.Connection, tq_id: int) -> TaskQueueKey:
    return key_from_json(only_row(db, "SELECT key FROM task_queue WHERE id = ?", (tq_id,))[0])


def _requirements(db: apsw.Connection, pool: str) -> dict[str, Any]:
    """The Requirements behind a SubmitPool, from their canonical form."""
    if not pool:
        return {}
    row = db.execute("SELECT requirements FROM submit_pool WHERE id = ?", (pool,)).fetchone()
    if row is None:
        return {}
    return {name: values for name, (_, values) in msgspec.json.decode(row[0]).items()}


def _position(db: apsw.Connection, job: dict[str, Any]) -> dict[str, Any]:
    waiting = db.execute("SELECT waiting FROM queue_waiting WHERE tq_id = ?", (job["task_queue"],)).fetchone()
    ahead = only_row(db, AHEAD, (job["task_queue"], job["id"]))[0]
    return {"waiting": waiting[0] if waiting else 0, "rows_ahead": ahead}


def _pilots(db: apsw.Connection, key: TaskQueueKey, now: float) -> dict[str, Any]:
    """Live pilots held against the key by the matcher's own predicate."""
    pools = load_pools(db)
    counts = {"live": 0, "usable_idle": 0, "usable_busy": 0, "usable_waiting": 0, "draining": 0}
    youngest: float | None = None
    for _, state, request, site, ce, queue, drain, seen, busy in db.execute(PILOTS, (key.vo,)):
        counts["live"] += 1
        stored = msgspec.json.decode(request, type=ResourceRequest)
        offered = replace(stored, submit_pools=pools.of_queue((site, ce, queue)))
        if drain:
            counts["draining"] += 1
        elif not explain(key, offered):
            place = "usable_waiting" if state != "Running" else "usable_busy" if busy else "usable_idle"
            counts[place] += 1
        youngest = seen if youngest is None else max(youngest, seen or 0.0)
    return {**counts, "seen_seconds_ago": None if youngest is None else max(0.0, now - youngest)}


def _director(db: apsw.Connection, tq_id: int, now: float) -> dict[str, Any]:
    """What the last iteration said of this task queue, and how old that is."""
    found = last_iteration(db)
    if found is None:
        return {
            "decided_seconds_ago": None,
            "lines": ["The director has not decided anything yet."],
            "room": None,
        }
    at, plan = found
    rooms = plan.get("rooms", {})
    room = sum(one["room"] for one in rooms.values()) if isinstance(rooms, dict) else 0
    return {"decided_seconds_ago": max(0.0, now - at), "lines": list(story(plan, tq_id)), "room": room}


def _verdict(found: Obstacles, pilots: dict[str, Any], director: dict[str, Any]) -> dict[str, str]:
    queues = f"{len(found.eligible)} of {found.total} queues can run it"
    if pilots["usable_idle"] or pilots["usable_busy"] or pilots["usable_waiting"]:
        n = pilots["usable_idle"] + pilots["usable_busy"]
        waiting = pilots["usable_waiting"]
        text = f"{queues}; {n} running pilots can take it as they get free, {waiting} more are on their way."
        return {"verdict": NOW, "summary": text}
    if director["room"] is None or director["room"] > 0:
        return {
            "verdict": NOW,
            "summary": f"{queues}; the director may send pilots there and is expected to.",
        }
    lines = "; ".join(director["lines"][-2:])
    return {"verdict": NOT_NOW, "summary": f"{queues}, but no pilot may be sent there now: {lines}"}


def _never(found: Obstacles) -> str:
    lost = ", ".join(f"{name} rules out {n} of {found.total}" for name, n in found.counts[:3])
    text = f"No configured queue can run it: {lost or 'no queue is configured for its VO'}."
    if found.nearest:
        best = found.nearest[0]
        text += f" Smallest change: {' and '.join(best['change'])}, which gives {best['queues']} of {found.total} queues"
        text += f" ({'; '.join(best['example']['reasons'])})."
    return text


def _ended(job: dict[str, Any]) -> str:
    reason = f": {job['reason']}" if job["reason"] else ""
    return f"It is {job['state']}{reason}; it does not wait."
