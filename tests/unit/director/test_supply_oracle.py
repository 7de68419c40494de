"""Pilots given away by masks against pilots given away pair by pair: the same supply in random worlds.

The oracle asks the predicate about every pilot and every task queue, and gives pilots one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.plan import TaskQueueDemand, allowance
from lodesman.decide.director.supply import PilotStanding, PilotView, _NeedyQueues, count_supply
from lodesman.decide.masks.bits import mask_of
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId

NOW = 1_000_000.0


@dataclass
class Pairwise:
    """The oracle's ledger: who got how many, and who has which pilots left."""

    demands: list[TaskQueueDemand]
    pools: Any
    counted: Counter[int] = field(default_factory=Counter)
    borrowed: Counter[int] = field(default_factory=Counter)
    spare: dict[int, bool] = field(default_factory=dict)  # pilot -> whether it is useless

    def fits(self, key: TaskQueueKey, request: ResourceRequest) -> bool:
        """As at a claim: with the SubmitPools of the pilot's queue."""
        served = self.pools.of(QueueId(request.site, request.ce, request.queue))
        return not explain(key, replace(request, submit_pools=served))

    def fill(
        self, groups: dict[tuple[int | None, ResourceRequest], list[int]], levels: dict[int, int]
    ) -> None:
        keys = {demand.tq_id: demand.key for demand in self.demands}
        for (tq_id, request), pilots in groups.items():
            if tq_id in keys and self.fits(keys[tq_id], request):
                self.give(pilots, tq_id, tq_id, levels[tq_id])
        needy = sorted(keys, key=lambda tq_id: (self.counted[tq_id] - levels[tq_id], tq_id))
        for request in dict.fromkeys(request for (_, request), pilots in groups.items() if pilots):
            for tq_id in needy:
                for (own, presents), pilots in groups.items():
                    if presents == request and self.fits(keys[tq_id], request):
                        self.give(pilots, own, tq_id, levels[tq_id])

    def give(self, pilots: list[int], own: int | None, tq_id: int, level: int) -> None:
        while pilots and self.counted[tq_id] < level:
            pilots.pop()
            self.counted[tq_id] += 1
            self.borrowed[tq_id] += own != tq_id


def pairwise(demands: list[TaskQueueDemand], pilots: list[PilotView], pools: Any) -> Pairwise:
    """Two rounds: up to the jobs, then up to the allowance. What is left is in `spare`."""
    groups: dict[tuple[int | None, ResourceRequest], list[int]] = {}
    last = sorted(
        pilots, key=lambda one: (one.standing is PilotStanding.IDLE, -one.submitted_at, -one.pilot_id)
    )
    for pilot in last:
        groups.setdefault((pilot.tq_id, pilot.request), []).append(pilot.pilot_id)
    groups = dict(sorted(groups.items(), key=lambda item: item[0][1].groups is None))
    ledger = Pairwise(demands, pools)
    jobs = {one.tq_id: one.waiting_jobs for one in demands}
    ledger.fill(groups, jobs)
    allowed = {k: allowance(n, DirectorOptions()) if n else 0 for k, n in jobs.items()}
    ledger.fill(groups, allowed)
    ledger.spare = {
        number: not any(ledger.fits(one.key, request) for one in demands)
        for (_, request), left in groups.items()
        for number in left
    }
    return ledger


SITES = st.sampled_from("ABC")
WANTED = st.tuples(
    st.integers(0, 9),
    st.lists(SITES, max_size=2).map(lambda found: tuple(sorted(set(found)))),
    st.sampled_from(["ann", "bob"]),
    st.sampled_from([10, 100]),
    st.sampled_from(["", "", "req1:a", "req1:b", "req1:nobody"]),
)
PILOT = st.tuples(
    SITES,
    st.one_of(st.none(), st.integers(0, 9)),
    st.sampled_from([PilotStanding.WAITING, PilotStanding.IDLE]),
    st.sampled_from([None, ("users",)]),
    st.sampled_from([50, 100]),
    st.integers(0, 5),
)


PLACES = [QueueId(site, "ce", "q") for site in "ABC"]
SERVED = st.lists(st.sampled_from(PLACES[:2]), unique=True)


@given(
    st.lists(WANTED, max_size=9),
    st.lists(PILOT, max_size=60),
    st.fixed_dictionaries({"req1:a": SERVED, "req1:b": SERVED}),
    st.lists(st.integers(0, 30), min_size=2, max_size=2, unique=True),
)
def test_masks_give_pilots_away_as_pairs_do(demand, pilot, pools, wanted, given_pilots, served, numbers):
    demands = [
        demand(
            k,
            waiting_jobs=jobs,
            sites=sites,
            owner=owner,
            norm_cpu_seconds=cpu,
            submit_pool=pool,
        )
        for k, (jobs, sites, owner, cpu, pool) in enumerate(wanted)
    ]
    pilots = [
        pilot(k, site=site, tq_id=tq_id, standing=standing, groups=groups, norm_cpu_seconds=cpu,
              owner="ann" if groups else "", submitted_at=NOW - age)
        for k, (site, tq_id, standing, groups, cpu, age) in enumerate(given_pilots)
    ]  # fmt: skip
    found = pools(dict(zip(PLACES, numbers, strict=False)), served)
    table = KeyTable({one.tq_id: one.key for one in demands})
    supply = count_supply(
        demands, pilots, table=table, serving=found, now=NOW,
        options=DirectorOptions(max_pilot_waiting_hours=1.0),
    )  # fmt: skip
    oracle = pairwise(demands, pilots, found)
    assert supply.counted == {one.tq_id: oracle.counted[one.tq_id] for one in demands}
    assert supply.borrowed == {one.tq_id: oracle.borrowed[one.tq_id] for one in demands}
    assert {one.pilot_id: one.pilot_id in supply.useless for one in supply.spare} == oracle.spare


@given(st.permutations(range(60)), st.sets(st.integers(0, 59)), st.lists(st.integers(0, 59), max_size=50))
def test_the_most_needy_come_first_however_many_are_closed(order, among, closed):
    """Few are searched and many walked over; both ways, and after any number was closed, the order holds."""
    needy = _NeedyQueues(order)
    left = set(order)
    for bit in closed:
        if bit in left:
            needy.close(bit)
            left.discard(bit)
        assert list(needy.among(mask_of(among))) == [one for one in order if one in among and one in left]


def test_one_may_be_closed_while_the_others_come():
    needy = _NeedyQueues(range(20))
    seen = []
    for bit in needy.among(mask_of(range(20))):
        seen.append(bit)
        needy.close(bit)
    assert seen == list(range(20))
    assert needy.open == 0
