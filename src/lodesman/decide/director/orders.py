"""Orders for a task queue: its submission pool, and whose pilots. A private pilot serves owner and group of its task
queue alone (with JobSharing: its whole group); a generic one all groups of the VO.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from random import Random
from typing import NamedTuple

from msgspec import Struct, structs

from lodesman.decide.director.options import DirectorOptions, IdentityRule, PoolOptions
from lodesman.decide.director.plan import Plan, TaskQueueDemand
from lodesman.decide.matching.request import GENERIC, PRIVATE, ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.wire.vocabulary import PoolOutcome


class PoolState(Struct, frozen=True, kw_only=True):
    """A submission pool now."""

    name: str
    enabled: bool = True
    running: int = 0  # threads at work
    queued: int = 0  # tasks that wait
    max: int = 2  # maxThreadsInPool
    total: int = 40  # totalThreadsInPool
    elsewhere: bool = False  # the director does not handle it

    @property
    def room(self) -> int:
        """The submissions it still takes: pilots of one task queue to one CE queue."""
        return max(0, max(0, self.max - self.running) + self.total - self.queued)

    @property
    def is_full(self) -> bool:
        """Whether it takes no more tasks."""
        return not self.room


class PoolTry(NamedTuple):
    """A pool that was asked."""

    pool: str
    outcome: PoolOutcome


def choose_pool(
    names: Sequence[str],
    states: dict[str, PoolState],
    rng: Random,
    *,
    serves: Callable[[str], bool] = lambda _: True,
) -> tuple[str | None, tuple[PoolTry, ...]]:
    """Draw an enabled pool that `serves` a queue and has room. A full one is disabled until the next cycle; the choice
    counts in `states`.
    """
    order = list(names)
    rng.shuffle(order)
    tries: list[PoolTry] = []
    for name in order:
        state = states.get(name)
        if state is None:
            outcome = PoolOutcome.UNKNOWN
        elif state.elsewhere:
            outcome = PoolOutcome.ELSEWHERE
        elif not serves(name):
            outcome = PoolOutcome.NO_QUEUE
        elif not state.enabled:
            outcome = PoolOutcome.DISABLED
        elif state.is_full:
            outcome = PoolOutcome.FULL
            states[name] = structs.replace(state, enabled=False)
        else:
            states[name] = structs.replace(state, queued=state.queued + 1)
            return name, (*tries, PoolTry(name, PoolOutcome.TAKEN))
        tries.append(PoolTry(name, outcome))
    return None, tuple(tries)


class TypeReason(StrEnum):
    """What decided between private and generic."""

    TASK_QUEUE = "the task queue asks for private pilots"
    FORCED = "the task queue asks for generic pilots"
    DRAWN = "drawn by PrivatePilotFraction"


class PilotIdentity(Struct, frozen=True, kw_only=True):
    """Who pilots run as, and whom they serve."""

    private: bool
    owner: str
    group: str
    serves_owner: str = ""  # '' for a whole group
    serves_group: str | None = None  # None for every group of the VO
    pilot_type: str = GENERIC  # what they present
    reason: TypeReason
    draw: float | None = None  # the random number used, None if none was needed
    account: str = ""  # the identity with which they are submitted, '' for the batch system's own


def choose_identity(demand: TaskQueueDemand, *, options: PoolOptions, rng: Random) -> PilotIdentity:
    """The identity for one submission."""
    key, draw = demand.key, None
    private_tq = key.pilot_type.lower() == PRIVATE
    if key.force_generic or private_tq:
        is_private = not key.force_generic
        reason = TypeReason.TASK_QUEUE if is_private else TypeReason.FORCED
    else:
        reason, draw = TypeReason.DRAWN, rng.random()
        is_private = wants_private(options.private_fraction, draw, legacy=options.legacy_fraction)
    if not is_private:
        owner, group = options.generic_owner, options.generic_group
        return PilotIdentity(private=False, owner=owner, group=group, reason=reason, draw=draw)
    return PilotIdentity(
        private=True,
        owner=key.owner,
        group=key.group,
        serves_owner="" if demand.job_sharing else key.owner,
        serves_group=key.group,
        pilot_type=PRIVATE if private_tq else GENERIC,
        reason=reason,
        draw=draw,
    )


def account_of(who: PilotIdentity, pool: PoolOptions, rules: Mapping[str, IdentityRule]) -> str:
    """The identity that submits: for private pilots the closest, for others the pool's."""
    if who.private:
        fitting = {
            name: (bool(rule.owner), bool(rule.group))
            for name, rule in rules.items()
            if rule.owner in ("", who.owner) and rule.group in ("", who.group) and (rule.owner or rule.group)
        }
        if fitting:
            return max(fitting, key=fitting.__getitem__)
    return pool.identity.lower()


def name_as(backend: str, account: str) -> str:
    """A batch system's name for an identity."""
    return f"{backend}+{account}"


def submitted_to(backend: str, account: str, rules: Mapping[str, IdentityRule]) -> str:
    """Where an identity submits pilots for a batch system."""
    rule = rules.get(account)
    return name_as(backend, account) if rule is not None and backend in rule.backends else backend


def wants_private(fraction: float, draw: float, *, legacy: bool = False) -> bool:
    """Whether a draw from [0, 1) gives a private pilot. `legacy`: the page's inverted test."""
    return fraction < draw if legacy else fraction > draw


def private_pools(options: DirectorOptions) -> frozenset[str]:
    """Pools that draw private pilots for task queues that take both kinds; '': a default one does."""
    drawing = {
        name for name, pool in options.pools.items()
        if (pool.private_fraction < 1 if pool.legacy_fraction else pool.private_fraction > 0)
    }  # fmt: skip
    return frozenset(drawing | ({""} if drawing.intersection(options.default_submission_pools) else set()))


def presented(template: ResourceRequest, identity: PilotIdentity, *, submission_pool: str) -> ResourceRequest:
    """What a pilot presents to the matcher; `template`: of its queue and VO."""
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


class PilotOrder(Struct, frozen=True, kw_only=True):
    """Pilots of one identity, one task queue and one pool."""

    tq_id: int
    key: TaskQueueKey
    count: int
    pool: str
    identity: PilotIdentity


class PoolRefusal(Struct, frozen=True, kw_only=True):
    """A task queue whose pilots no submission pool took."""

    tq_id: int
    asked: int
    tries: tuple[PoolTry, ...]


def make_orders(
    demands: Sequence[TaskQueueDemand],
    plan: Plan,
    pools: Mapping[str, PoolState],
    options: DirectorOptions,
    rng: Random,
    *,
    serves: Callable[[TaskQueueKey, str], bool] = lambda _key, _pool: True,
) -> tuple[list[PilotOrder], list[PoolRefusal]]:
    """A pool and an identity for each task queue that gets pilots; in random order, since pools may fill up."""
    by_id = {demand.tq_id: demand for demand in demands}
    counts = [(by_id[row.tq_id], row.asked) for row in plan.rows if row.asked > 0]
    rng.shuffle(counts)
    # Those that were disabled for being full get another chance.
    states = {name: structs.replace(state, enabled=True) for name, state in pools.items()}
    elsewhere = (name for name, pool in options.pools.items() if pool.elsewhere)
    states |= {name: PoolState(name=name, elsewhere=True) for name in elsewhere}
    orders, refused = [], []
    for demand, count in counts:
        key = demand.key
        named = key.submission_pools or options.default_submission_pools
        pool, tries = choose_pool(named, states, rng, serves=partial(serves, key))
        if pool is None:
            refused.append(PoolRefusal(tq_id=demand.tq_id, asked=count, tries=tries))
            continue
        pool_options = options.pools.get(pool, options.pool_defaults)
        identity = choose_identity(demand, options=pool_options, rng=rng)
        identity = structs.replace(identity, account=account_of(identity, pool_options, options.identities))
        orders.append(PilotOrder(tq_id=demand.tq_id, key=key, count=count, pool=pool, identity=identity))
    return orders, refused
