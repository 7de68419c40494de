"""Private or generic: whose pilot is submitted for a task queue.

A private pilot runs as the owner and group of its task queue and serves nobody else (with JobSharing: its
whole group); a generic one runs as the pool's generic identity and serves all groups of the VO. It presents
PilotType "private" to the matcher only if the task queue asks for private pilots. Source: seed
taskqueue-director; deviation: PrivatePilotFraction is the fraction of *private* pilots, as its description
says; the inequality on the page yields the complement (a fix of its authors eight days later turned it).
`LegacyPrivatePilotFraction` gives the page's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from lodesman.director.demand import TaskQueueDemand
from lodesman.director.options import PoolOptions
from lodesman.matching.request import GENERIC, PRIVATE, ResourceRequest


class TypeReason(StrEnum):
    """What decided between private and generic."""

    TASK_QUEUE = "the task queue asks for private pilots"
    DRAWN = "drawn by PrivatePilotFraction"


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotIdentity:
    """Who the pilots run as (owner, group, VO) and whom they serve.

    serves_owner: empty for a whole group; serves_group: None for every group of the VO. pilot_type: what
    they present. draw: the random number used, None if none was needed.
    """

    private: bool
    owner: str
    group: str
    vo: str
    serves_owner: str = ""
    serves_group: str | None = None
    pilot_type: str = GENERIC
    reason: TypeReason
    draw: float | None = None


def choose_identity(demand: TaskQueueDemand, *, options: PoolOptions, rng: Random) -> PilotIdentity:
    """The identity of the pilots of one submission; `options` are those of the pool drawn for it."""
    asks_private = demand.key.pilot_type.lower() == PRIVATE
    if asks_private:
        return _private(demand, pilot_type=PRIVATE, reason=TypeReason.TASK_QUEUE)
    draw = rng.random()
    if wants_private(options.private_fraction, draw, legacy=options.legacy_fraction):
        return _private(demand, pilot_type=GENERIC, reason=TypeReason.DRAWN, draw=draw)
    return _generic(demand, options, reason=TypeReason.DRAWN, draw=draw)


def wants_private(fraction: float, draw: float, *, legacy: bool = False) -> bool:
    """Does a draw from [0, 1) give a private pilot? With `legacy` the page's inverted test."""
    return fraction < draw if legacy else fraction > draw


def presented(template: ResourceRequest, identity: PilotIdentity, *, submission_pool: str) -> ResourceRequest:
    """What a pilot of that identity on that CE queue presents to the matcher; `template` is of its VO."""
    groups = template.groups
    if identity.serves_group is not None:
        # A queue that is open to some groups only stays closed to the others.
        is_open = groups is None or identity.serves_group in groups
        groups = (identity.serves_group,) if is_open else ()
    return replace(
        template,
        groups=groups,
        owner=identity.serves_owner,
        pilot_type=identity.pilot_type,
        submission_pool=submission_pool,
    )


def _private(
    demand: TaskQueueDemand, *, pilot_type: str, reason: TypeReason, draw: float | None = None
) -> PilotIdentity:
    key = demand.key
    return PilotIdentity(
        private=True,
        owner=key.owner,
        group=key.group,
        vo=key.vo,
        serves_owner="" if demand.job_sharing else key.owner,
        serves_group=key.group,
        pilot_type=pilot_type,
        reason=reason,
        draw=draw,
    )


def _generic(
    demand: TaskQueueDemand, options: PoolOptions, *, reason: TypeReason, draw: float | None = None
) -> PilotIdentity:
    return PilotIdentity(
        private=False,
        owner=options.generic_owner,
        group=options.generic_group,
        vo=demand.key.vo,
        reason=reason,
        draw=draw,
    )
