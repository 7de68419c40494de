"""Is the server well, and what the hot process counts."""

from __future__ import annotations

import msgspec

from lodesman.api.core import Core
from lodesman.api.wire import Send, send_json
from lodesman.errors import Unavailable


async def health(core: Core, send: Send) -> None:
    """GET /health: 200 while the writer takes commands; `degraded` while the background process is silent, fails, or is
    started again in vain; how old the configuration in use is, and whether a change of it was refused. Raises Unavailable.
    """
    if not core.journal.is_open:
        raise Unavailable("The server takes no changes: its writer has ended.")
    now = core.clock()
    background = core.background.in_short(core.ticks())
    answer = {
        "status": "ok" if background["standing"] in ("ok", "starting") else "degraded",
        "time": now,
        "commits": core.journal.commits,
        "configuration": core.configuration().in_short(now),
        "background": background,
    }
    await send_json(send, msgspec.json.encode(answer))


async def hot_metrics(core: Core, send: Send) -> None:
    """GET /v1/hot/metrics: counters of the hot process, for the reading process's /metrics."""
    configuration = core.configuration()
    background = core.background
    ticks = core.ticks()
    answer = {
        "background_heard_seconds_ago": ticks - background.heard_or_since,
        "background_ok": int(background.standing(ticks) in ("ok", "starting")),
        "background_restarts_total": background.restarts,
        "configuration_loaded_timestamp_seconds": configuration.loaded_at,
        "configuration_refused": int(configuration.refused_at is not None),
        "configuration_refusals_total": configuration.refusals,
        "commits_total": core.journal.commits,
        "commands_total": core.journal.commands,
        "claims_total": core.claims,
        "claimed_jobs_total": core.claimed_jobs,
        "submitted_jobs_total": core.submitted_jobs,
        "pilots_joined": len(core.sessions),
    }
    await send_json(send, msgspec.json.encode(answer))
