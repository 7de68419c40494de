"""What another resource configuration would change: queues, parameters, groups, types, and who runs where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.resources import GroupConfig, ParameterType, QueueId, ResourceConfig, TypeTable
from lodesman.decide.resources.inherit import EffectiveParams, all_queues
from lodesman.decide.resources.model import as_scalars
from lodesman.wire import plans
from lodesman.wire.nodes import Place

_OF_A_GROUP: Final = tuple(name for name in GroupConfig.__struct_fields__ if name != "name")
_RANKS: Final = {"impossible": 0, "possible": 1, None: 2}

T = TypeVar("T")
_Becomes = Literal["impossible", "possible"] | None


def cut(rows: Iterable[T], limit: int) -> plans.Cut[T]:
    """At most `limit` rows, and how many there are."""
    all_rows = list(rows)
    return plans.Cut(count=len(all_rows), rows=all_rows[:limit], more=max(0, len(all_rows) - limit))


# --- queues and what runs there --------------------------------------------------------------------------


class JudgedTaskQueue(Struct, frozen=True, kw_only=True):
    """A task queue under both configurations."""

    id: int
    key: TaskQueueKey
    jobs: int
    held: bool
    before: int  # the CE queues that can run it, a mask
    after: int
    becomes: _Becomes  # impossible: its waiting jobs would be Held; possible: its Held jobs released
    why: str


class JudgedPool(NamedTuple):
    """A SubmitPool under both configurations."""

    id: str
    new_id: str | None  # if changed types give it another identifier
    vo: str
    before: int  # its CE queues, a mask
    after: int


def planned_queues(
    before: ResourceConfig, after: ResourceConfig, limit: int, tick: Callable[[], None]
) -> plans.PlannedQueues:
    """Queues that come, go and change. `tick` is called now and then."""
    old, new = (dict.fromkeys(config.tree.queue_ids()) for config in (before, after))
    return plans.PlannedQueues(
        before=len(old),
        after=len(new),
        added=cut((Place(*queue) for queue in new if queue not in old), limit),
        removed=cut((Place(*queue) for queue in old if queue not in new), limit),
        changed=cut(changed_queues(before, after, tick), limit),
    )


def planned_task_queues(judged: Sequence[JudgedTaskQueue], limit: int) -> plans.PlannedTaskQueues:
    """What becomes of task queues with jobs; the worst first."""
    affected = []
    for queue in judged:
        effect, key = _effect(queue.before, queue.after), queue.key
        if queue.becomes or effect["gained"] or effect["lost"]:
            affected.append(
                plans.AffectedTaskQueue(
                    id=queue.id, owner=key.owner, group=key.group, vo=key.vo, jobs=queue.jobs, held=queue.held, **effect,
                    becomes=queue.becomes, why=queue.why,
                )
            )  # fmt: skip
    affected.sort(
        key=lambda queue: (_RANKS[queue.becomes], -(queue.jobs if queue.becomes else queue.lost), queue.id)
    )
    return plans.PlannedTaskQueues(
        checked=len(judged),
        impossible=_counted(affected, "impossible"),
        possible=_counted(affected, "possible"),
        changed=cut(affected, limit),
    )


def _counted(affected: Iterable[plans.AffectedTaskQueue], kind: _Becomes) -> plans.TaskQueuesAndJobs:
    sizes = [row.jobs for row in affected if row.becomes == kind]
    return plans.TaskQueuesAndJobs(task_queues=len(sizes), jobs=sum(sizes))


def planned_pools(judged: Sequence[JudgedPool], limit: int) -> plans.PlannedPools:
    """What becomes of the SubmitPools."""
    affected = []
    for pool in judged:
        effect = _effect(pool.before, pool.after)
        if effect["gained"] or effect["lost"]:
            affected.append(plans.AffectedPool(id=pool.id, new_id=pool.new_id, vo=pool.vo, **effect))
    return plans.PlannedPools(checked=len(judged), changed=cut(affected, limit))


def _effect(before: int, after: int) -> dict[str, int]:
    gained, lost = after & ~before, before & ~after
    return {
        "before": before.bit_count(), "after": after.bit_count(), "gained": gained.bit_count(), "lost": lost.bit_count(),
    }  # fmt: skip


# --- configurations --------------------------------------------------------------------------------------


def changed_queues(
    before: ResourceConfig, after: ResourceConfig, tick: Callable[[], None]
) -> Iterator[plans.ChangedQueue]:
    """Queues of both whose effective parameters differ: for all VOs (VO ""), and for each VO with another difference."""
    overlaid = {vo for tree in (before.tree, after.tree) for _, node in tree.nodes() for vo in node.overlays}
    seen: dict[str, dict[QueueId, dict[str, plans.ChangedValue]]] = {}
    for vo in ("", *sorted(overlaid)):
        tick()
        old = dict(all_queues(before.tree, vo=vo, types=before.types))
        new = all_queues(after.tree, vo=vo, types=after.types)
        values = {queue: _parameters(old[queue], params) for queue, params in new if queue in old}
        seen[vo] = {queue: changes for queue, changes in values.items() if changes}
    for queue in after.tree.queue_ids():
        for vo, changes in seen.items():
            here = changes.get(queue)
            if here is not None and (not vo or here != seen[""].get(queue)):
                yield plans.ChangedQueue(*queue, vo=vo, parameters=here)


def _parameters(before: EffectiveParams, after: EffectiveParams) -> dict[str, plans.ChangedValue]:
    changes = {}
    for folded in dict.fromkeys((*before, *after)):
        old, new = before.get(folded), after.get(folded)
        either = new or old
        if either is not None and old is not new and not (old and new and _alike(old.value, new.value)):
            values: Any = old and old.value, new and new.value
            changes[either.name] = plans.ChangedValue(*values)
    return changes


def _alike(old: Any, new: Any) -> bool:
    # 1 and True are equal in Python and two values here.
    return old == new and [*map(type, as_scalars(old))] == [*map(type, as_scalars(new))]


def changed_groups(before: ResourceConfig, after: ResourceConfig) -> list[plans.ChangedGroup]:
    """Groups that come, go or change, with the values that differ."""
    rows = []
    for name, old, new, kind in _changes(before.groups, after.groups):
        pairs = {value: (getattr(old, value, None), getattr(new, value, None)) for value in _OF_A_GROUP}
        values = {value: plans.ChangedValue(a, b) for value, (a, b) in pairs.items() if a != b}
        rows.append(plans.ChangedGroup(group=name, change=kind, values=values))
    return rows


def changed_types(before: TypeTable, after: TypeTable) -> list[plans.ChangedType]:
    """Declarations that come, go or change, by name."""
    tables = ({declared.name: _words(declared) for declared in table.all()} for table in (before, after))
    return [
        plans.ChangedType(parameter=name, change=kind, before=old, after=new)
        for name, old, new, kind in _changes(*tables)
    ]


def _changes(
    before: Mapping[str, T], after: Mapping[str, T]
) -> Iterator[tuple[str, T | None, T | None, plans.ChangeKind]]:
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield name, old, new, "added" if old is None else "removed" if new is None else "changed"


def _words(declared: ParameterType) -> str:
    parts = (declared.kind.value, declared.unit, declared.operator, "merge" if declared.merge else "")
    return " ".join(part for part in parts if part)
