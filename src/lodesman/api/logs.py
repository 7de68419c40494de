"""The last output of a job: live from its pilot's heartbeats, or as its last attempt left it."""

from __future__ import annotations

import msgspec

from lodesman.api.auth import may_touch, need_user
from lodesman.api.core import Core
from lodesman.api.wire import Send, send_json
from lodesman.errors import NotFound
from lodesman.services.accounts import Principal
from lodesman.services.forgetting.forget import no_longer_known
from lodesman.store import views

LAST = """SELECT j.state, j.attempt, s.owner, s.grp, s.vo, a.pilot_id, a.tail, a.ended_at FROM job j
JOIN submission s ON s.id = j.submission_id LEFT JOIN attempt a ON a.id = j.last_attempt WHERE j.id = ?"""


async def job_logs(core: Core, send: Send, who: Principal, job_id: int) -> None:
    """GET /v1/jobs/{id}/logs."""
    need_user(who, "jobs:read")
    row = core.reader.execute(LAST, (job_id,)).fetchone()
    if row is None and views.was_given_out(core.reader, job_id) and not views.find_job(core.reader, job_id):
        raise no_longer_known(job_id)
    if row is None or not may_touch(who, core.policy.sharing_groups())(row[2], row[3], row[4]):
        raise NotFound(f"Job {job_id} has no output yet, or is not yours.", job=job_id)
    state, attempt, _, _, _, pilot_id, tail, ended = row
    session = core.sessions.get(pilot_id or 0)
    usage = {}
    if ended is None and session is not None:
        tail = session.tails.get((job_id, attempt), "")
        usage = session.usage.get((job_id, attempt), {})
    answer = {
        "id": job_id,
        "state": state,
        "attempt": attempt,
        "live": ended is None,
        "tail": tail or "",
        **usage,
    }
    await send_json(send, msgspec.json.encode(answer))
