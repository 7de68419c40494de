"""Sites and queues as configured, with their pilots, jobs and closings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from lodesman.answers.sites import EffectiveValue, QueueRow, SiteRow
from lodesman.commands.site_mask import answer_of
from lodesman.director.site_mask import Closing
from lodesman.matching.policy import Policy
from lodesman.resources import Effective, NodePath, QueueId, Source
from lodesman.store import Reader
from lodesman.store.read.pilots import pilots_by_queue, running_jobs_by_site

ClosedBy = Callable[[NodePath], Sequence[Closing]]


def list_sites(db: Reader, policy: Policy, closings: Sequence[Closing] = ()) -> list[SiteRow]:
    """Every configured site with its queues, live pilots and running jobs, and what is closed of it."""
    pilots: Counter[tuple[str, str]] = Counter()
    for found in pilots_by_queue(db):
        pilots[found.queue_id.site, found.state] += found.count
    running = running_jobs_by_site(db)
    return [
        SiteRow(
            site=site.name,
            ces=len(site.ces),
            queues=sum(len(ce.queues) for ce in site.ces.values()),
            pilots={state: n for (name, state), n in sorted(pilots.items()) if name == site.name},
            running_jobs=running.get(site.name, 0),
            closed=[answer_of(one) for one in closings if one.site == site.name],
        )
        for site in policy.config.tree.sites.values()
    ]


def list_queues(
    db: Reader, policy: Policy, vo: str, *, closed_by: ClosedBy, origin: bool = False
) -> list[QueueRow]:
    """Every queue that a VO may use, with its effective parameters, the level each came from, its pilots, and what closes
    it.

    With `origin` also the file and the line of each.
    """
    pilots: dict[QueueId, dict[str, int]] = {}
    for found in pilots_by_queue(db):
        pilots.setdefault(found.queue_id, {})[found.state] = found.count
    world = policy.vo_config(vo)
    return [
        QueueRow(
            site=offer.queue.site,
            ce=offer.queue.ce,
            queue=offer.queue.queue,
            parameters={
                found.name: _effective(found, origin) for found in world.table.params(offer.bit).values()
            },
            pilots=pilots.get(offer.queue, {}),
            closed=[answer_of(one) for one in closed_by(offer.queue)],
        )
        for offer in world.offers
    ]


def _effective(found: Effective, origin: bool) -> EffectiveValue:
    value = list(found.value) if isinstance(found.value, tuple) else found.value
    if not origin:
        return EffectiveValue(value, found.level)
    source = found.source or Source()
    return EffectiveValue(value, found.level, source.file, source.line)
