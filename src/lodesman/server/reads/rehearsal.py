"""Dry runs of the director: one thing is replaced; facts and random numbers are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from lodesman.base.errors import NotFound, Unavailable
from lodesman.decide.broker.ad import SiteAd
from lodesman.decide.director.iteration import DirectorInput, decide
from lodesman.decide.director.record import Record, of_queues, replay, to_record
from lodesman.decide.explain.turns import Waiting
from lodesman.decide.rehearse.iteration import PlannedDecision, compare
from lodesman.decide.resources import NodePath
from lodesman.languages.classad import Ad
from lodesman.languages.classad.ads import AdAttribute
from lodesman.languages.classad.functions import read_checked
from lodesman.languages.classad.values import lower
from lodesman.server.loops.direct import Director
from lodesman.server.reads.plans import LiveState
from lodesman.server.reads.sites import exact_node
from lodesman.server.store import Reader
from lodesman.server.store.director import iteration
from lodesman.wire.director import DirectorRecord
from lodesman.wire.plans import DirectorPlans, PlannedIteration, PolicyPlan
from lodesman.wire.requests import PlanDirectorBody
from lodesman.wire.site_ads import PlanGatesBody
from lodesman.wire.vocabulary import TargetPolicy

SEED: Final = 1
"""Of the random numbers of all dry runs."""
_NOW: Final = "the next iteration draws other random numbers, and may see other loads"
_UNPLACED: Final = (
    "only pilots of the stored policy are placed: which CE queues could run the others is not stored"
)
_AS_ADVERTISED: Final = [
    "a site whose ad is changed has advertised this now, and counts what its last ad counted",
    "loads, breakers, rates of CEs and submission pools are those of the running director",
]


def director_apart(state: LiveState, hint: str = "", **changes: Any) -> Director:
    """The running director with these members changed; they share nothing that changes. Raises Unavailable."""
    running = state.director
    if running is None:
        raise Unavailable("The director does not run.", hint=hint)
    return replace(
        running,
        db=state.db,
        breakers=dict(running.breakers),
        buckets=dict(running.buckets),
        sites=running.sites.apart(),
        **changes,
    )


def rehearse(
    director: Director, state: LiveState, facts: DirectorInput, waiting: Sequence[Waiting]
) -> PlannedDecision:
    """What the director decides by these facts about these task queues."""
    state.tick()
    decision = decide(facts, options=director.options, now=state.now, seed=SEED)
    return PlannedDecision(decision, waiting, decision.target.most)


# --- policies of the target ------------------------------------------------------------------------------


def plan_director(body: PlanDirectorBody, state: LiveState) -> DirectorPlans:
    """An iteration by these policies. Raises NotFound for an unknown iteration or task queue, Unavailable."""
    if body.iteration is None:
        records = _of_now(body.policies, state)
        return _answer(body, records, at=state.now, placed=records, assumed=[_NOW, *state.left_out()])
    at, stored = iteration(state.db, body.iteration)
    own = TargetPolicy(stored.get("target", {}).get("policy", TargetPolicy.SEED))
    records = {
        policy: stored if policy is own else replay(stored, policy) for policy in body.policies or [own]
    }
    assumed = [_UNPLACED] if records.keys() - {own} else []
    return _answer(body, records, at=at, placed={own}, assumed=assumed)


def _of_now(policies: Sequence[TargetPolicy], state: LiveState) -> dict[TargetPolicy, Record]:
    director = director_apart(state, hint="A stored iteration can be planned.")
    named = policies or [director.options.target.policy]
    with state.db:  # one moment
        seen = director.look(state.now, state.faulty)
        # Gates count what a decision places: each has its own.
        sites = {policy: director.look_at_sites(state.now, without=state.faulty) for policy in named}
    records = {}
    for policy in named:
        state.tick()
        target = replace(director.options.target, policy=policy)
        options = replace(director.options, target=target)
        facts = msgspec.structs.replace(seen, sites=sites[policy])
        records[policy] = to_record(decide(facts, options=options, now=state.now, seed=SEED))
    return records


def _answer(
    body: PlanDirectorBody,
    records: Mapping[TargetPolicy, Record],
    *,
    at: float,
    placed: Collection[TargetPolicy],
    assumed: list[str],
) -> DirectorPlans:
    first = next(iter(records.values()))
    task_queues, queues = _task_queues(body, first), _queues(records)[: body.limit]
    plans = []
    for policy, record in records.items():
        asked_at = record["row_fields"].index("asked")
        extract = of_queues(record, task_queues)
        extract["rooms"] = {queue: record["rooms"][queue] for queue in queues if queue in record["rooms"]}
        plans.append(
            PolicyPlan(
                policy=policy,
                asked=sum(row[asked_at] for row in record["rows"]),
                placed=sum(count for *_, count in record["placements"]) if policy in placed else None,
                record=msgspec.json.decode(msgspec.json.encode(extract), type=DirectorRecord),
            )
        )
    return DirectorPlans(
        iteration=body.iteration,
        at=at,
        task_queues=len(first["rows"]),
        queues=len(first["rooms"]),
        plans=plans,
        assumed=assumed,
    )


def _task_queues(body: PlanDirectorBody, record: Record) -> set[int]:
    """Those that the body names, else those with most jobs. Raises NotFound."""
    tq_at, jobs_at = map(record["row_fields"].index, ("tq_id", "waiting_jobs"))
    jobs = {row[tq_at]: row[jobs_at] for row in record["rows"]}
    for tq_id in body.task_queues:
        if tq_id not in jobs:
            raise NotFound(f"The iteration has no task queue {tq_id}.", hint="See: lode tq ls")
    by_jobs = sorted(jobs, key=lambda tq_id: (-jobs[tq_id], tq_id))
    return set((body.task_queues or by_jobs)[: body.limit])


def _queues(records: Mapping[TargetPolicy, Record]) -> list[str]:
    """CE queues, by the most pilots that they get by any policy."""
    most: Counter[str] = Counter()
    for record in records.values():
        here: Counter[str] = Counter()
        for _, queue, count in record["placements"]:
            here[queue] += count
        most |= here
    names = {queue for record in records.values() for queue in record["rooms"]}
    return sorted(names, key=lambda queue: (-most[queue], queue))


# --- ads of sites ----------------------------------------------------------------------------------------


def plan_gates(body: PlanGatesBody, state: LiveState) -> PlannedIteration:
    """The next iteration as sites advertise themselves, and with these attributes instead. Raises NotFound for a site,
    SyntaxFault, Unavailable.
    """
    for site in body.gates:
        exact_node(state.policy.config.tree, NodePath(site))
    director = director_apart(state)
    ads_of = director.sites.ads
    changes = {
        site: [AdAttribute(name, read_checked(text)) for name, text in texts.items()]
        for site, texts in body.gates.items()
    }

    def advertised(db: Reader) -> Mapping[str, SiteAd]:
        ads = dict(ads_of(db))
        return ads | {
            site: _changed(site, ads.get(site), attributes, state.now) for site, attributes in changes.items()
        }

    with state.db:  # one moment for both
        before = _rehearse_now(director, state)
        director.sites = replace(director.sites, ads=advertised)
        after = _rehearse_now(director, state)
    return compare(before, after, body.limit, load_age=None, assumed=[*_AS_ADVERTISED, *state.left_out()])


def _rehearse_now(director: Director, state: LiveState) -> PlannedDecision:
    facts = director.look(state.now, state.faulty)
    waiting = [(demand.tq_id, demand.key, demand.waiting_jobs) for demand in facts.demands]
    return rehearse(director, state, facts, waiting)


def _changed(site: str, ad: SiteAd | None, changes: list[AdAttribute], now: float) -> SiteAd:
    """With changes, or made of these alone, as if it had come now."""
    entries = {} if ad is None else dict(ad.ad.entries)
    entries |= {lower(attribute.name): attribute for attribute in changes}
    if ad is not None:
        return replace(ad, ad=Ad(entries), received_at=now, rules={})
    return SiteAd(
        site=site,
        sequence=0,
        incarnation="",
        lifetime_s=1.0,
        received_at=now,
        ad=Ad(entries),
        stamps=frozenset(),
        stations=frozenset(),
    )
