"""Decisions as JSON values and back, as stored and read by `why`. Rows follow `row_fields`; only counts and examples
of refusals are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter, itemgetter
from random import Random
from typing import Any

from msgspec.structs import asdict

from lodesman.base.errors import NotFound, counted
from lodesman.decide.director.iteration import Decision
from lodesman.decide.director.limits import Clamp
from lodesman.decide.director.options import formula_options, read_options
from lodesman.decide.director.placement import OrderOutcome, PlacementResult
from lodesman.decide.director.plan import Plan, PlanRow, TaskQueueDemand, arithmetic, make_plan
from lodesman.decide.director.queues import CandidateQueue, QueueLoad, Room, others
from lodesman.decide.director.target import TargetFacts, target_of
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.wire.director import DirectorPlan, DirectorTarget
from lodesman.wire.vocabulary import ClampName, RefusalKind, TargetPolicy

Record = dict[str, Any]

_PLAIN_FIELDS = tuple(name for name in PlanRow.__struct_fields__ if name != "clamps")
_ROW_VALUES = attrgetter(*_PLAIN_FIELDS)
_CLAMP_FIELDS = Clamp.__struct_fields__
_CLAMP_VALUES = attrgetter(*_CLAMP_FIELDS)
_LOAD_FIELDS = ("waiting", "running", "observed_at", "told_by")

# of these the CE queues are kept, too, as bits, where no pilot was placed
OF_SITES = frozenset({RefusalKind.UNMATCHED, RefusalKind.NOT_ADMITTED})
MOST_ROWS = 20_000
_MOST_ASKS = 10_000
_MOST_EXAMPLES = 5_000


def to_record(decision: Decision, *, examples: int = 5) -> Record:
    """`examples`: CE queues per task queue and kind."""
    plan, placement = decision.plan, decision.placement
    outcomes = placement.outcomes[:_MOST_ASKS]
    rows: Sequence[PlanRow] = plan.rows
    if len(rows) > MOST_ROWS:  # those that ask are kept before others
        kept = sorted(rows, key=lambda row: (row.asked == 0, row.tq_id))[:MOST_ROWS]
        rows = sorted(kept, key=lambda row: row.tq_id)
    each = min(examples, _MOST_EXAMPLES // max(1, len(outcomes)))
    return {
        "now": decision.now,
        "seed": decision.seed,
        "options": formula_options(decision.options),
        **_arithmetic(decision.target, plan, rows),
        "left_out": len(plan.rows) - len(rows) + len(placement.outcomes) - len(outcomes),
        "borrowed": {str(tq_id): n for tq_id, n in decision.supply.borrowed.items() if n},
        "aside": {reason.value: n for reason, n in decision.supply.aside.items()},
        "spare": len(decision.supply.spare),
        "cancel": list(decision.excess.cancel),
        "asks": [_ask(outcome, placement, each) for outcome in outcomes],
        "no_pool": [
            {
                "tq_id": refusal.tq_id,
                "asked": refusal.asked,
                "tries": [[t.pool, t.outcome.value] for t in refusal.tries],
            }
            for refusal in decision.pool_refusals[:_MOST_ASKS]
        ],
        "placements": [
            [placed.order.tq_id, str(placed.queue_id), placed.count]
            for placed in placement.placements[:MOST_ROWS]
        ],
        "load_fields": list(_LOAD_FIELDS),
        "rooms": {
            str(queue.queue_id): _room(queue, placement.rooms[queue.queue_id], placement.left[queue.queue_id])
            for queue in placement.places.queues.values()
        },
    }


def _arithmetic(target: DirectorTarget, plan: Plan, rows: Sequence[PlanRow]) -> Record:
    return {
        "target": asdict(target),
        "plan": {name: getattr(plan, name) for name in DirectorPlan.__struct_fields__},
        "row_fields": [*_PLAIN_FIELDS, "clamps"],
        "rows": [[*_ROW_VALUES(row), [*map(_CLAMP_VALUES, row.clamps)]] for row in rows],
    }


def replay(record: Mapping[str, Any], policy: TargetPolicy) -> Record:
    """A record as another policy would have made it, without placements. Raises NotFound if too little is stored."""
    if "seed" not in record:
        raise NotFound("An older release stored this iteration, and too little of it to compute it again.")
    if record["left_out"] and len(record["rows"]) >= MOST_ROWS:
        raise NotFound(f"This iteration had more than {MOST_ROWS:,} task queues; not all are stored.")
    options = read_options(record["options"] | {"TargetPolicy": policy})
    facts = {name: record["target"][name] for name in TargetFacts.__struct_fields__}
    rows = [_row(record["row_fields"], row) for row in record["rows"]]
    demands = [
        TaskQueueDemand(
            tq_id=row.tq_id,
            key=TaskQueueKey(owner="", group="", vo="", norm_cpu_seconds=row.norm_cpu_seconds),
            weight=row.weight,
            waiting_jobs=row.waiting_jobs,
        )
        for row in rows
    ]
    usable = {row.tq_id: row.usable_waiting for row in rows}
    target, rng = target_of(TargetFacts(**facts), options), Random(record["seed"])
    plan = make_plan(demands, usable_waiting=usable, target=target, options=options, rng=rng)
    unplaced: Record = {"asks": [], "no_pool": [], "placements": [], "cancel": []}
    return {**record, **_arithmetic(target, plan, plan.rows), **unplaced}


def _room(queue: CandidateQueue, room: Room, left: int) -> Record:
    load = queue.load
    return {
        "wanted": room.wanted,
        "room": room.room,
        "left": left,
        "slots": queue.slots,
        "others": others(queue),
        "clamps": [*map(_CLAMP_VALUES, room.clamps)],
        "load": [load.waiting, load.running, round(load.observed_at, 1), load.source],
    }


def loads_of(record: Mapping[str, Any]) -> dict[str, QueueLoad]:
    """A record's loads, by queue."""
    names = record.get("load_fields", ())
    if not set(_LOAD_FIELDS) <= set(names):
        return {}
    values_of = itemgetter(*(names.index(name) for name in _LOAD_FIELDS))
    rooms = record["rooms"].items()
    return {queue: QueueLoad(*values_of(room["load"])) for queue, room in rooms if "load" in room}


def of_queues(
    record: Mapping[str, Any], seen: Collection[int], places: Collection[str] | None = None
) -> Record:
    """Leaves out other task queues and CE queues; totals stay."""
    column = record.get("row_fields", ["tq_id"]).index("tq_id")
    tq_id_at = {"rows": column, "asks": "tq_id", "no_pool": "tq_id", "placements": 0}
    part = dict(record)
    for name in tq_id_at.keys() & record.keys():
        part[name] = [row for row in record[name] if row[tq_id_at[name]] in seen]
    if "borrowed" in record:
        part["borrowed"] = {tq_id: n for tq_id, n in record["borrowed"].items() if int(tq_id) in seen}
    if places is not None and "rooms" in record:
        part |= {"rooms": _at(places, record["rooms"]), "cancel": []}
        part["asks"] = [
            ask
            | {"refused": [no | {"examples": _at(places, no["examples"])} for no in ask.get("refused", ())]}
            for ask in part.get("asks", ())
        ]
    return part


def _at(places: Collection[str], by_place: Mapping[str, Any]) -> Record:
    return {place: value for place, value in by_place.items() if place in places}


class Stories:
    """A record prepared for questions about task queues."""

    __slots__ = ("_names", "_record", "asks", "no_pool", "rows")

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record
        self._names: Sequence[str] = record["row_fields"]
        place = list(self._names).index("tq_id")
        self.rows: dict[int, Sequence[Any]] = {row[place]: row for row in record["rows"]}
        self.asks: dict[int, Mapping[str, Any]] = {entry["tq_id"]: entry for entry in record["asks"]}
        self.no_pool: dict[int, Mapping[str, Any]] = {entry["tq_id"]: entry for entry in record["no_pool"]}

    def lines(self, tq_id: int) -> tuple[str, ...]:
        """What was done for a task queue, and why; the verdict first."""
        values = self.rows.get(tq_id)
        if values is None and self._record.get("left_out"):
            return ("pilots: not recorded, the iteration had too many task queues to keep them all",)
        if values is None:
            return ("pilots: none asked because the task queue was not there at that iteration",)
        row = _row(self._names, values)
        ask, no_pool = self.asks.get(tq_id), self.no_pool.get(tq_id)
        lines = list(arithmetic(Plan(**self._record["plan"]), row))
        if no_pool is not None:
            lines += [f"submission pool {name}: {outcome}" for name, outcome in no_pool["tries"]]
        if ask is not None:
            lines += _ask_lines(ask)
        if row.asked > 0 and ask is None and no_pool is None:
            return (
                f"pilots: {row.asked} requested, what became of them is not recorded: there were too many",
                *lines,
            )
        return (_verdict(row, ask), *lines)


def _verdict(row: PlanRow, ask: Mapping[str, Any] | None) -> str:
    if ask is not None and ask["placed"] > 0:
        return f"pilots: {ask['placed']} of {row.asked} asked were placed"
    if ask is not None:
        return f"pilots: {row.asked} asked, none placed because no CE queue would take one"
    if row.asked > 0:
        return f"pilots: {row.asked} asked, none placed because no submission pool would take them"
    cause = f"the draw of this iteration was {row.drawn} at a mean of {row.mean:g}"
    if row.waiting_jobs == 0:
        cause = "no job waits"
    elif row.clamps:
        cause = row.clamps[-1].detail
    return f"pilots: none asked because {cause}"


def _ask_lines(ask: Mapping[str, Any]) -> list[str]:
    kind = "private" if ask["private"] else "generic"
    whose = f", with the identity {ask['account']}" if ask.get("account") else ""
    lines = [f"{kind} pilots ({ask['reason']}) through submission pool {ask['pool']}{whose}"]
    for refusal in ask["refused"]:
        lines.append(f"{counted(refusal['count'], 'CE queue')}: {refusal['kind']}")
        lines += [f"  {name}: {'; '.join(why)}" for name, why in refusal["examples"].items() if why]
    return lines


def _ask(outcome: OrderOutcome, placement: PlacementResult, examples: int) -> Record:
    order = outcome.order
    return {
        "tq_id": order.tq_id,
        "asked": order.count,
        "placed": outcome.placed,
        "pool": order.pool,
        "private": order.identity.private,
        "owner": order.identity.owner,
        "group": order.identity.group,
        "reason": order.identity.reason.value,
        "draw": order.identity.draw,
        "account": order.identity.account,
        "refused": _refused(outcome, placement, examples),
    }


def _refused(outcome: OrderOutcome, placement: PlacementResult, examples: int) -> list[Record]:
    shown: dict[RefusalKind, dict[str, list[str]]] = {refused.kind: {} for refused in outcome.refused}
    for refusal in placement.refusals(outcome, each=examples):
        words = [*map(str, refusal.reasons), *(bite.detail for bite in refusal.clamps)]
        shown[refusal.kind][str(refusal.queue_id)] = words
    return [
        {"kind": refused.kind.value, "count": refused.count, "examples": shown[refused.kind]}
        | ({"queues": f"{refused.mask:x}"} if refused.kind in OF_SITES and not outcome.placed else {})
        for refused in outcome.refused
    ]


def _row(names: Sequence[str], row: Sequence[Any]) -> PlanRow:
    """Without fields of other releases."""
    values = dict(zip(names, row, strict=True))
    bites = [dict(zip(_CLAMP_FIELDS, bite, strict=True)) for bite in values.pop("clamps", ())]
    clamps = tuple(Clamp(**(bite | {"name": ClampName(bite["name"])})) for bite in bites)
    return PlanRow(**{name: values[name] for name in _PLAIN_FIELDS if name in values}, clamps=clamps)
