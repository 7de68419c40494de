"""The optimizers: each checks or prepares a draft and returns it, or refuses the job."""

from __future__ import annotations

import difflib
from dataclasses import replace

from lodesman.errors import InvalidJob
from lodesman.matching import canonical_requirements, eligible_offers, key_of, submit_pool_id
from lodesman.submission.draft import Draft, World

FEW = 3


def check_sites(draft: Draft, world: World) -> Draft:
    """Sites that nobody configured are refused, with what was probably meant."""
    for attribute, names in (("Site", draft.spec.sites), ("BannedSite", draft.spec.banned_sites)):
        for name in names:
            if name not in world.sites:
                near = difflib.get_close_matches(name, world.sites, 1, 0.6)
                hint = f"Did you mean {near[0]}?" if near else "lode site ls lists the sites."
                raise InvalidJob(
                    f"{attribute}: there is no site {name!r} for VO {world.vo}.",
                    hint=hint,
                    attribute=attribute,
                )
    return draft


def make_submit_pool(draft: Draft, world: World) -> Draft:
    """Requirements become a SubmitPool: a hash of their canonical form, and its eligible queues (RFC #7)."""
    wanted = draft.spec.requirements
    if not wanted:
        return draft
    canonical = canonical_requirements(wanted, world.types)
    return replace(
        draft,
        requirements=canonical,
        submit_pool=submit_pool_id(wanted, world.types),
        pool_mask=world.table.eligible_mask(wanted),
    )


def make_key(draft: Draft, _world: World) -> Draft:
    """The task queue that the job will join."""
    key = key_of(draft.spec, owner=draft.owner, group=draft.group, vo=draft.vo, submit_pool=draft.submit_pool)
    return replace(draft, key=key)


def check_possible(draft: Draft, world: World) -> Draft:
    """Is there a configured queue whose pilots could ever take the job? If not, say what stands in the way."""
    assert draft.key is not None  # noqa: S101
    if draft.submit_pool and not draft.pool_mask:
        return replace(draft, never=_no_queue_fulfils(draft, world))
    if eligible_offers(draft.key, world.offers, draft.pool_mask, first_only=True):
        return draft
    return replace(draft, never=_no_offer_fits(draft, world))


def _no_queue_fulfils(draft: Draft, world: World) -> str:
    found = world.table.assess(draft.spec.requirements)
    total = len(world.table.queues)
    lost = ", ".join(f"{name} rules out {n} of {total}" for name, n in found.counts()[:FEW])
    nearest = found.changes()[:1]
    change = (
        f"; nearest: change {' and '.join(nearest[0].parameters)} ({nearest[0].count} queues)"
        if nearest
        else ""
    )
    return f"no queue of VO {world.vo} fulfils the Requirements: {lost}{change}"


def _no_offer_fits(draft: Draft, world: World) -> str:
    """Count, per criterion, the queues that it rules out; the fewest other obstacles come first."""
    assert draft.key is not None  # noqa: S101
    counts: dict[str, int] = {}
    for offer in world.offers:
        for reason in offer.reasons(draft.key, draft.pool_mask):
            name = type(reason).__name__
            counts[name] = counts.get(name, 0) + 1
    lost = sorted(counts.items(), key=lambda item: -item[1])[:FEW]
    parts = ", ".join(f"{name} rules out {n} of {len(world.offers)}" for name, n in lost)
    return f"no queue of VO {world.vo} can run it: {parts or 'no queue is configured'}"
