"""The last output of a job: live from its pilot's heartbeats, or as its last attempt left it."""

from __future__ import annotations

import msgspec

from lodesman.api.auth import may_touch, need_user
from lodesman.api.core import Core
from lodesman.api.wire import Send, send_json
from lodesman.commands.accounts import Principal
from lodesman.commands.forget import no_longer_known
from lodesman.errors import NotFound
from lodesman.store import views
from lodesman.store.last_output import last_output


async def job_logs(core: Core, send: Send, who: Principal, job_id: int) -> None:
    """GET /v1/jobs/{id}/logs."""
    need_user(who, "jobs:read")
    last = last_output(core.reader, job_id)
    if last is None and views.was_given_out(core.reader, job_id) and not views.find_job(core.reader, job_id):
        raise no_longer_known(job_id)
    if last is None or not may_touch(who, core.policy.sharing_groups())(last.owner, last.group, last.vo):
        raise NotFound(f"Job {job_id} has no output yet, or is not yours.", job=job_id)
    session = core.sessions.get(last.pilot or 0)
    tail, usage = last.tail, {}
    if not last.ended and session is not None:
        tail = session.tails.get((job_id, last.attempt), "")
        usage = session.usage.get((job_id, last.attempt), {})
    answer = {
        "id": job_id,
        "state": last.state,
        "attempt": last.attempt,
        "live": not last.ended,
        "tail": tail or "",
        **usage,
    }
    await send_json(send, msgspec.json.encode(answer))
