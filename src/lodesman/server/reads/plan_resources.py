"""A dry run of another resource configuration.

The refresh that would take it in judges task queues and SubmitPools. No batch system is asked: loads are those of
the director's last iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.broker.site_wishes import WishedQueues
from lodesman.decide.director.supply import PilotView
from lodesman.decide.explain.last_iteration import RecordedIteration
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.explain.verdict import counted, since, span
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.rehearse import resources as plan
from lodesman.decide.rehearse.iteration import PlannedDecision, compare
from lodesman.decide.rehearse.shares import ShareChange, group_parts
from lodesman.decide.resources import LOCAL, ResourceConfig
from lodesman.server.engines.backend import BatchLoad
from lodesman.server.loops.census import BackendWatch
from lodesman.server.loops.direct import Director
from lodesman.server.loops.hosts import local_hosts
from lodesman.server.loops.left_out import Item, StepPass, task_queue
from lodesman.server.loops.refresh import RefreshInput, evaluate, judge, read_refresh_input, runnable
from lodesman.server.loops.site_matching import handling_of_wish, places_of, wishes_of
from lodesman.server.loops.standing import AWAY, mark_shut, pilot_view
from lodesman.server.reads.plans import LiveState, corrected_by_usage, set_by_command
from lodesman.server.reads.rehearsal import director_apart, rehearse
from lodesman.server.store.director import closings
from lodesman.server.store.read.pilots import pilots_in_short
from lodesman.server.writer.reoffer import Offers
from lodesman.server.writer.sessions import host_of, rewrite_request
from lodesman.server.writer.submit_pools import PoolIds
from lodesman.wire.nodes import QueueId, Remark
from lodesman.wire.plans import PlannedIteration, ResourcesPlan

_OFTEN: Final = 256
_APART: Final = ", "
"""Between the names of several batch systems that reported one load."""


class ConfigPools:
    """One configuration, with the queues that serve each SubmitPool (a `director.PoolServing`)."""

    def __init__(
        self, policy: Policy, seen: RefreshInput, ads: Mapping[str, SiteAd], now: float, left: StepPass
    ) -> None:
        self.policy = policy
        self.pools = evaluate(policy, seen.pools, left.item)
        """The queues that fulfil the Requirements of each SubmitPool, whatever ads of sites say."""
        wishes = wishes_of(policy, seen.pools, left.item)
        handling = partial(handling_of_wish, left)
        self._unfit = WishedQueues().unfit(wishes, ads, places_of(policy), now, handling)

    def mask(self, pool: str, /) -> int | None:
        """The queues that serve a pool; None if that is unknown."""
        queues = self.pools.get(pool)
        return None if queues is None else queues & ~self._unfit.get(pool, 0)

    def bit(self, place: QueueId, /) -> int | None:
        """The bit of a queue; None if it has none."""
        return self.policy.bits.get(place)


def plan_resources(
    after: ResourceConfig, files: Sequence[str], state: LiveState, *, limit: int
) -> ResourcesPlan:
    """What a configuration that these files make would change; lists have at most `limit` members."""
    before, seen = state.policy.config, read_refresh_input(state.db)
    bare = replace(
        state.policy, config=after, loaded_at=None, verdicts={}
    )  # new queues get bits of their own
    policy = replace(bare, verdicts={}, inhabited=_ResidentsThen(state, bare))
    state.tick()
    ads, left = state.keeper.ads.look(state.db), StepPass("a dry run of a configuration", {})
    old = ConfigPools(state.policy, seen, ads, state.now, left)
    state.tick()
    new = ConfigPools(policy, seen, ads, state.now, left)
    state.tick()
    renewed = {pool: new_id for pool, new_id, _ in PoolIds().changed(after.types, seen.pools)}
    task_queues = _task_queues(old, new, seen, state, left)
    pools = [
        plan.JudgedPool(pool.id, renewed.get(pool.id), pool.vo, old.pools[pool.id], new.pools[pool.id])
        for pool in seen.pools
        if pool.id in old.pools and pool.id in new.pools
    ]
    state.tick()
    return ResourcesPlan(
        files=list(files),
        queues=plan.planned_queues(before, after, limit, state.tick),
        groups=plan.changed_groups(before, after),
        parts=group_parts(task_queues, ShareChange(before=state.policy.shares(), after=policy.shares())),
        types=plan.changed_types(before.types, after.types),
        task_queues=plan.planned_task_queues(task_queues, limit),
        submit_pools=plan.planned_pools(pools, limit),
        director=_director(state, old, new, task_queues, limit),
        notices=[Remark(**notice.as_dict()) for notice in after.notices]
        + corrected_by_usage(policy)
        + set_by_command(policy)
        + [Remark(f"{item} is left out: {words}", "", "", 0) for item, words in left.faults.items()],
    )


def _task_queues(
    old: ConfigPools, new: ConfigPools, seen: RefreshInput, state: LiveState, left: StepPass
) -> list[plan.JudgedTaskQueue]:
    judged = list[plan.JudgedTaskQueue]()
    held, released = map(dict, judge(new.policy, seen, new.pools, left.item))
    rows = sorted((row for row in seen.queues if row.jobs), key=lambda row: row.id)
    for number, row in enumerate(rows):
        if number % _OFTEN == 0:
            state.tick()
        holds, frees = row.held is None and row.id in held, row.id in released
        with left.item(task_queue(row.id)):
            judged.append(
                plan.JudgedTaskQueue(
                    id=row.id,
                    key=row.key,
                    jobs=row.jobs,
                    held=row.held is not None,
                    before=runnable(row, old.policy, old.pools),
                    after=runnable(row, new.policy, new.pools),
                    becomes="impossible" if holds else "possible" if frees else None,
                    why=held[row.id] if holds else released[row.id] if frees else "",
                )
            )
    return judged


# --- what the director would do --------------------------------------------------------------------------


@dataclass(slots=True)
class RecordedLoads:
    """Stands for one batch system, and reports what that reported for the last iteration."""

    name: str
    last: RecordedIteration | None
    now: float
    empty: set[QueueId] = field(default_factory=set)  # queues without a load, which are taken for empty
    observed: list[float] = field(default_factory=list)  # when the loads that it reported were

    def load(self, queue: QueueId) -> BatchLoad:
        """The load of one queue; never raises."""
        last, name = self.last, "/".join(queue)
        load = None if last is None else last.loads.get(name)
        # An older release kept no loads.
        if load is None and last is not None and name in last.record["rooms"]:
            return BatchLoad(waiting=None, running=None, observed_at=self.now)
        sources = [] if load is None else load.source.split(_APART)
        if load is None or self.name not in sources:
            self.empty.add(QueueId(*queue))
            return _load(0, 0, 0, self.now)
        if load.is_known:
            self.observed.append(load.observed_at)
        if self.name != sources[0]:  # all of them together are reported once
            return _load(0, 0, 0, load.observed_at)
        # What is not ours in a queue of this machine counts as a pilot there.
        others = 0 if self.name == LOCAL or last is None else last.record["rooms"][name].get("others")
        return _load(load.waiting, load.running, others, load.observed_at)


def _load(waiting: int | None, running: int | None, others: int | None, at: float) -> BatchLoad:
    return BatchLoad(
        waiting=waiting, running=running, others_waiting=others, others_running=0, observed_at=at
    )


def _decide(
    director: Director,
    state: LiveState,
    side: ConfigPools,
    waiting: Sequence[Waiting],
    pilots: Sequence[PilotView] | None = None,
) -> PlannedDecision:
    """`pilots`: None for those that are there."""
    director.policy, now = side.policy, state.now
    waiting = [row for row in waiting if task_queue(row[0]) not in state.faulty]
    table = KeyTable({tq_id: key for tq_id, key, _ in waiting})
    vos, without = director.vos_of(waiting), state.faulty
    seen = director.snapshot(waiting, vos, table=table, serving=side, now=now, without=without)
    facts = seen if pilots is None else msgspec.structs.replace(seen, pilots=pilots)
    return rehearse(director, state, facts, waiting)


def _pilots(state: LiveState, offers: Offers) -> Iterator[PilotView]:
    """Live pilots, each with what its queue would offer (ADR 0024)."""
    request_then: dict[tuple[Any, ...], str] = {}
    mask = closings(state.db)
    live = pilots_in_short(state.db)
    for pilot in mark_shut(live, local_hosts(state.db, live, state.now)):
        if Item("pilot", pilot.id) in state.faulty:
            continue
        place, text = pilot.queue_id, pilot.request
        vo = msgspec.json.decode(text).get("vo", "")
        joined = pilot.joined_at is not None and offers.differ_by_host(vo, place)
        host = host_of(pilot.node) if joined else None
        if (place, text, host) not in request_then:
            offer = offers(vo, place, host)
            request_then[place, text, host] = (offer and rewrite_request(text, offer)) or text
        yield pilot_view(
            structs.replace(pilot, request=request_then[place, text, host]), state.now, mask=mask
        )


class _ResidentsThen:
    """A `Policy.inhabited` by another configuration."""

    def __init__(self, state: LiveState, policy: Policy) -> None:
        # It asks for no residents itself: what queues offer depends on none.
        self._state, self._policy = state, replace(policy, verdicts={}, inhabited=lambda _: frozenset())

    def __call__(self, queues: frozenset[QueueId], /) -> frozenset[ResourceRequest]:
        return frozenset(request for queue, request in self._found if queue in queues)

    @cached_property
    def _found(self) -> list[tuple[QueueId, ResourceRequest]]:
        views = _pilots(self._state, Offers(self._policy))
        requests = [view.request for view in views if view.standing not in AWAY]
        return [(QueueId(view.site, view.ce, view.queue), view) for view in requests]


def _director(
    state: LiveState, old: ConfigPools, new: ConfigPools, judged: Sequence[plan.JudgedTaskQueue], limit: int
) -> PlannedIteration | None:
    """None if no director runs."""
    running, last = state.director, state.keeper.snapshot.iteration
    if running is None:
        return None
    decided = since(None if last is None else last.at, state.now)
    empty, observed = set[QueueId](), list[float]()
    loads = {
        name: RecordedLoads(name=name, last=last, now=state.now, empty=empty, observed=observed)
        for name in running.watches
    }
    # Loads count as fresh as when the director went by them.
    max_age = running.options.max_load_age_s + (decided or 0.0)
    pools = running.pools()
    director = director_apart(
        state,
        options=replace(running.options, max_load_age_s=max_age),
        watches=cast("Mapping[str, BackendWatch]", loads),
        pools=lambda: dict(pools),
    )
    with state.db:  # one moment for both
        # Limits, dependencies and `AtMost` count as they do now.
        startable = {
            demand.tq_id: demand.waiting_jobs for demand in director.look(state.now, state.faulty).demands
        }
        waiting = [
            (queue.id, queue.key, startable[queue.id])
            for queue in judged
            if not queue.held and queue.id in startable
        ]
        then = [
            (queue.id, queue.key, startable.get(queue.id, queue.jobs))
            for queue in judged
            if (queue.becomes == "possible" and not queue.key.waits_for_jobs)
            or (not queue.held and not queue.becomes and queue.id in startable)
        ]
        before = _decide(director, state, old, waiting)
        state.tick()
        after = _decide(director, state, new, then, list(_pilots(state, Offers(new.policy))))
    age = since(min(observed, default=None), state.now)
    return compare(
        before, after, limit, load_age=age, assumed=_assumed(decided, sorted(empty)) + state.left_out()
    )


def _assumed(decided: float | None, empty: Sequence[QueueId]) -> list[str]:
    assumed = ["the director has not decided yet"]
    if decided is not None:
        assumed = [f"loads are those of the director's last iteration, {span(decided)} ago"]
    if empty:
        queues = counted(len(empty), "queue")
        assumed.append(f"{queues} without a load yet taken for empty, for instance {empty[0]}")
    return [*assumed, "breakers, rates of CEs and submission pools are those of the running director"]
