"""The optimizers: each checks or prepares a draft and returns it, or refuses the job."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from lodesman.errors import InvalidJob
from lodesman.jobs import is_plain_name
from lodesman.matching import key_of, spelled_requirements, submit_pool_id
from lodesman.submission.draft import Draft, World
from lodesman.submission.obstacles import find_obstacles, never_text
from lodesman.submission.possible import possible_queues

FEW: Final = 10
CORRECT: Final = "Correct the name, or leave it out."
WAIT: Final = (
    "Correct the name, leave it out, or submit with --hold-if-impossible: then it need not be there yet."
)
WAITED_FOR: Final = ("Site", "SubmitPool")
LISTED: Final = dict.fromkeys(("Site", "BannedSite"), "lode site ls lists the sites.") | {
    "GridCE": "lode queue ls lists the CEs."
}


def check_names(draft: Draft, world: World) -> Draft:
    """Sites and submission pools that nobody configured are refused, with what was probably meant.

    A job that may be Held waits for them. A site that is banned is no place to wait for: it is misspelled. Nor is a
    place whose name is no name elsewhere (`is_plain_name`): such a name must be that of a place.
    """
    spec = draft.spec
    site = f"no site {{}} for VO {world.vo}"
    if not draft.hold:
        _check("Site", spec.sites, world.sites, site)
        if world.pools is not None:
            _check("SubmitPool", spec.submission_pools, world.pools, "no submission pool {}")
    elif odd := _odd(spec.sites):
        _check("Site", odd, world.sites, site)
    _check("BannedSite", spec.banned_sites, world.sites, site)
    if odd := _odd(spec.grid_ces):
        ces = frozenset(offer.queue.ce for offer in world.offers)
        _check("GridCE", odd, ces, f"no CE {{}} for VO {world.vo}")
    return draft


def _odd(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_plain_name(name)]


def _check(attribute: str, names: Sequence[str], known: frozenset[str], sentence: str) -> None:
    """Raises InvalidJob for the first name that is not known, with what to do."""
    for name in names:
        if name not in known:
            told = _nearest(name, known) or _known(attribute, known)
            raise InvalidJob(
                f"{attribute}: there is {sentence.format(repr(name))}.",
                hint=f"{told} {WAIT if attribute in WAITED_FOR and is_plain_name(name) else CORRECT}",
                attribute=attribute,
            )


def _nearest(name: str, known: frozenset[str]) -> str:
    """What was probably meant, whatever its case; '' if nothing is near."""
    folded = {one.casefold(): one for one in sorted(known)}
    near = difflib.get_close_matches(name.casefold(), folded, 1, 0.6)
    return f"Did you mean {folded[near[0]]}?" if near else ""


def _known(attribute: str, known: frozenset[str]) -> str:
    if attribute != "SubmitPool":
        return LISTED[attribute]
    return f"There are {', '.join(sorted(known)[:FEW])}."


def make_submit_pool(draft: Draft, world: World) -> Draft:
    """Requirements become a SubmitPool: a hash of their canonical form, and its eligible queues (RFC #7)."""
    wanted = draft.spec.requirements
    if not wanted:
        return draft
    return replace(
        draft,
        requirements=spelled_requirements(wanted, world.types),
        submit_pool=submit_pool_id(wanted, world.types, world.vo),
        pool_mask=world.table.eligible_mask(wanted),
    )


def make_key(draft: Draft, _world: World) -> Draft:
    """The task queue that the job will join."""
    key = key_of(draft.spec, owner=draft.owner, group=draft.group, vo=draft.vo, submit_pool=draft.submit_pool)
    return replace(draft, key=key)


def check_possible(draft: Draft, world: World) -> Draft:
    """Is there a configured queue whose pilots could ever take the job? If not, say what stands in the way."""
    assert draft.key is not None  # noqa: S101
    if possible_queues(draft.key, draft.pool_mask, world):
        return draft
    return replace(draft, never=never_text(find_obstacles(draft.key, draft.spec.requirements, world)))
