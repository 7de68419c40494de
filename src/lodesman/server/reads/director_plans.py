"""Dry runs of the director: one iteration of now, or a stored one, by several policies of its target.

Nothing is stored or submitted. All policies see the same facts and the same random numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from lodesman.base.errors import NotFound, Unavailable
from lodesman.decide.director.iteration import decide
from lodesman.decide.director.record import Record, of_queues, replay, to_record
from lodesman.server.reads.plans import LiveState
from lodesman.server.reads.rehearsal import SEED
from lodesman.server.store.director import iteration
from lodesman.wire.pilots import DirectorRecord
from lodesman.wire.plans import DirectorPlans, PolicyPlan
from lodesman.wire.requests import PlanDirectorBody
from lodesman.wire.vocabulary import TargetPolicy

_NOW: Final = "the next iteration draws other random numbers, and may see other loads"
_UNPLACED: Final = (
    "only pilots of the stored policy are placed: which CE queues could run the others is not stored"
)


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
    """What the director would decide now. It shares nothing with the running one that changes."""
    running = state.director
    if running is None:
        raise Unavailable("The director does not run.", hint="A stored iteration can be planned.")
    named = policies or [running.options.target.policy]
    director = replace(
        running,
        db=state.db,
        breakers=dict(running.breakers),
        buckets=dict(running.buckets),
        sites=running.sites.apart(),
    )
    with state.db:  # one moment
        seen = director.look(state.now, state.faulty)
        # Gates count what a decision places: each has its own.
        sites = {policy: director.look_at_sites(state.now, without=state.faulty) for policy in named}
    records = {}
    for policy in named:
        state.tick()
        target = replace(running.options.target, policy=policy)
        options = replace(running.options, target=target)
        found = msgspec.structs.replace(seen, sites=sites[policy])
        records[policy] = to_record(decide(found, options=options, now=state.now, seed=SEED))
    return records


def _answer(
    body: PlanDirectorBody,
    records: Mapping[TargetPolicy, Record],
    *,
    at: float,
    placed: Collection[TargetPolicy],
    assumed: list[str],
) -> DirectorPlans:
    """The answer, with those task queues and CE queues that the body asks for."""
    first = next(iter(records.values()))
    task_queues, queues = _task_queues(body, first), _queues(records)[: body.limit]
    plans = []
    for policy, record in records.items():
        asked_at = record["row_fields"].index("asked")
        some = of_queues(record, task_queues)
        some["rooms"] = {queue: record["rooms"][queue] for queue in queues if queue in record["rooms"]}
        plans.append(
            PolicyPlan(
                policy=policy,
                asked=sum(row[asked_at] for row in record["rows"]),
                placed=sum(count for *_, count in record["placements"]) if policy in placed else None,
                record=msgspec.json.decode(msgspec.json.encode(some), type=DirectorRecord),
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
    """Those named, or those with most jobs. Raises NotFound."""
    tq_at, jobs_at = map(record["row_fields"].index, ("tq_id", "waiting_jobs"))
    jobs = {row[tq_at]: row[jobs_at] for row in record["rows"]}
    for tq_id in body.task_queues:
        if tq_id not in jobs:
            raise NotFound(f"The iteration has no task queue {tq_id}.", hint="See: lode tq ls")
    by_jobs = sorted(jobs, key=lambda tq_id: (-jobs[tq_id], tq_id))
    return set((body.task_queues or by_jobs)[: body.limit])


def _queues(records: Mapping[TargetPolicy, Record]) -> list[str]:
    """All CE queues, those first that get most pilots by any policy."""
    most: Counter[str] = Counter()
    for record in records.values():
        here: Counter[str] = Counter()
        for _, queue, count in record["placements"]:
            here[queue] += count
        most |= here
    names = {queue for record in records.values() for queue in record["rooms"]}
    return sorted(names, key=lambda queue: (-most[queue], queue))
