"""Sites and queues as configured, with what is going on there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lodesman.commands.site_mask import as_row
from lodesman.director.site_mask import Closing
from lodesman.matching.policy import Policy
from lodesman.resources import Effective, NodePath
from lodesman.store.engine import Reader

PILOTS = "SELECT site, ce, queue, state, count(*) FROM pilot WHERE ended_at IS NULL GROUP BY site, ce, queue, state"
ClosedBy = Callable[[NodePath], Sequence[Closing]]
RUNNING = "SELECT site, count(*) FROM attempt WHERE ended_at IS NULL GROUP BY site"


def list_sites(db: Reader, policy: Policy, closings: Sequence[Closing] = ()) -> list[dict[str, Any]]:
    """Every configured site with its queues, live pilots and running jobs, and what is closed of it."""
    pilots: Counter[tuple[str, str]] = Counter()
    for site, _, _, state, n in db.execute(PILOTS):
        pilots[site, state] += n
    running = dict(db.execute(RUNNING))
    return [
        {
            "site": site.name,
            "ces": len(site.ces),
            "queues": sum(len(ce.queues) for ce in site.ces.values()),
            "pilots": {state: n for (name, state), n in sorted(pilots.items()) if name == site.name},
            "running_jobs": running.get(site.name, 0),
            "closed": [as_row(one) for one in closings if one.site == site.name],
        }
        for site in policy.config.tree.sites.values()
    ]


def list_queues(
    db: Reader, policy: Policy, vo: str, *, closed_by: ClosedBy, origin: bool = False
) -> list[dict[str, Any]]:
    """Every queue that a VO may use, with its effective parameters, the level each came from, its pilots, and what closes
    it.

    With `origin` also the file and the line of each.
    """
    pilots: dict[tuple[str, str, str], dict[str, int]] = {}
    for site, ce, queue, state, n in db.execute(PILOTS):
        pilots.setdefault((site, ce, queue), {})[state] = n
    world = policy.vo_config(vo)
    return [
        {
            "site": offer.queue.site,
            "ce": offer.queue.ce,
            "queue": offer.queue.queue,
            "parameters": {
                found.name: {"value": found.value, "level": found.level.value, **_place(found, origin)}
                for found in world.table.params(offer.queue).values()
            },
            "pilots": pilots.get((offer.queue.site, offer.queue.ce, offer.queue.queue), {}),
            "closed": [as_row(one) for one in closed_by(offer.queue)],
        }
        for offer in world.offers
    ]


def _place(found: Effective, wanted: bool) -> dict[str, Any]:
    if not wanted:
        return {}
    return {"file": found.source.file, "line": found.source.line} if found.source else {"file": "", "line": 0}
