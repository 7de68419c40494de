"""What another resource configuration would change: queues, parameters, groups, types, and who could run where. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeVar

from msgspec import Struct

from lodesman.decide.matching import GroupShare, TaskQueueKey, parts_of
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
    """At most `limit` rows, how many there are, and how many of them are left out."""
    found = list(rows)
    return plans.Cut(count=len(found), rows=found[:limit], more=max(0, len(found) - limit))


# --- queues and what runs there --------------------------------------------------------------------------


class JudgedTaskQueue(Struct, frozen=True, kw_only=True):
    """A task queue with jobs under both configurations. `before`, `after`: the queues that can run it.

    `becomes`: its waiting jobs would be Held, or its Held jobs released, and `why`.
    """

    id: int
    key: TaskQueueKey
    jobs: int
    held: bool
    before: int
    after: int
    becomes: _Becomes
    why: str


class JudgedPool(NamedTuple):
    """A SubmitPool with its queues under both configurations; `new_id` if changed types give it another identifier."""

    id: str
    new_id: str | None
    vo: str
    before: int
    after: int


def planned_queues(
    before: ResourceConfig, after: ResourceConfig, limit: int, tick: Callable[[], None]
) -> plans.PlannedQueues:
    """The queues that come, go and change. `tick` is called now and then."""
    old, new = (dict.fromkeys(one.tree.queue_ids()) for one in (before, after))
    return plans.PlannedQueues(
        before=len(old),
        after=len(new),
        added=cut((Place(*queue) for queue in new if queue not in old), limit),
        removed=cut((Place(*queue) for queue in old if queue not in new), limit),
        changed=cut(changed_queues(before, after, tick), limit),
    )


def planned_task_queues(found: Sequence[JudgedTaskQueue], limit: int) -> plans.PlannedTaskQueues:
    """What becomes of the task queues with jobs; the worst first."""
    affected = []
    for one in found:
        effect, key = _effect(one.before, one.after), one.key
        if one.becomes or effect["gained"] or effect["lost"]:
            affected.append(
                plans.AffectedTaskQueue(
                    id=one.id, owner=key.owner, group=key.group, vo=key.vo, jobs=one.jobs, held=one.held, **effect,
                    becomes=one.becomes, why=one.why,
                )
            )  # fmt: skip
    affected.sort(key=lambda one: (_RANKS[one.becomes], -(one.jobs if one.becomes else one.lost), one.id))
    return plans.PlannedTaskQueues(
        checked=len(found),
        impossible=_counted(affected, "impossible"),
        possible=_counted(affected, "possible"),
        changed=cut(affected, limit),
    )


def _counted(affected: Iterable[plans.AffectedTaskQueue], kind: _Becomes) -> plans.TaskQueuesAndJobs:
    sizes = [one.jobs for one in affected if one.becomes == kind]
    return plans.TaskQueuesAndJobs(task_queues=len(sizes), jobs=sum(sizes))


def planned_pools(found: Sequence[JudgedPool], limit: int) -> plans.PlannedPools:
    """What becomes of the SubmitPools."""
    affected = []
    for one in found:
        effect = _effect(one.before, one.after)
        if effect["gained"] or effect["lost"]:
            affected.append(plans.AffectedPool(id=one.id, new_id=one.new_id, vo=one.vo, **effect))
    return plans.PlannedPools(checked=len(found), changed=cut(affected, limit))


def _effect(before: int, after: int) -> dict[str, int]:
    """How many queues there are before and after, and how many come and go."""
    gained, lost = after & ~before, before & ~after
    return {
        "before": before.bit_count(), "after": after.bit_count(), "gained": gained.bit_count(), "lost": lost.bit_count(),
    }  # fmt: skip


def group_parts(
    found: Iterable[JudgedTaskQueue], before: Mapping[str, GroupShare], after: Mapping[str, GroupShare]
) -> list[plans.GroupPart]:
    """Each group's part of the starts, by VO, greatest gain first; a group that no queue serves has no part."""
    jobs: Counter[tuple[str, str]] = Counter()
    old: defaultdict[str, set[str]] = defaultdict(set)
    new: defaultdict[str, set[str]] = defaultdict(set)
    for one in found:
        vo, group = one.key.vo, one.key.group
        jobs[vo, group] += one.jobs
        if one.before and not one.held:
            old[vo].add(group)
        if one.after:
            new[vo].add(group)
    rows = []
    for (vo, group), number in jobs.items():
        share = plans.BeforeAfter(share_of(before, group), share_of(after, group))
        parts = parts_of(old[vo], before), parts_of(new[vo], after)
        part = plans.BeforeAfter(*(some.get(group, 0.0) for some in parts))
        rows.append(plans.GroupPart(vo=vo, group=group, jobs=number, share=share, part=part))
    return sorted(rows, key=lambda row: (row.vo, row.part.before - row.part.after, row.group))


def share_of(shares: Mapping[str, GroupShare], group: str) -> float:
    """The share of a group, the default one if it is not configured."""
    return shares.get(group, GroupShare()).share


# --- configurations --------------------------------------------------------------------------------------


def changed_queues(
    before: ResourceConfig, after: ResourceConfig, tick: Callable[[], None]
) -> Iterator[plans.ChangedQueue]:
    """For queues of both: the parameters whose effective values differ, once for all VOs (VO ""), and once for each VO
    that sees another difference.
    """
    overlaid = {vo for tree in (before.tree, after.tree) for _, node in tree.nodes() for vo in node.overlays}
    seen: dict[str, dict[QueueId, dict[str, plans.ChangedValue]]] = {}
    for vo in ("", *sorted(overlaid)):
        tick()
        old = dict(all_queues(before.tree, vo=vo, types=before.types))
        new = all_queues(after.tree, vo=vo, types=after.types)
        changes = {queue: _parameters(old[queue], params) for queue, params in new if queue in old}
        seen[vo] = {queue: found for queue, found in changes.items() if found}
    for queue in after.tree.queue_ids():
        for vo, found in seen.items():
            here = found.get(queue)
            if here is not None and (not vo or here != seen[""].get(queue)):
                yield plans.ChangedQueue(*queue, vo=vo, parameters=here)


def _parameters(before: EffectiveParams, after: EffectiveParams) -> dict[str, plans.ChangedValue]:
    found = {}
    for folded in dict.fromkeys((*before, *after)):
        old, new = before.get(folded), after.get(folded)
        either = new or old
        if either is not None and old is not new and not (old and new and _alike(old.value, new.value)):
            values: Any = old and old.value, new and new.value
            found[either.name] = plans.ChangedValue(*values)
    return found


def _alike(old: Any, new: Any) -> bool:
    # 1 and True are equal in Python and two values here.
    return old == new and [*map(type, as_scalars(old))] == [*map(type, as_scalars(new))]


def changed_groups(before: ResourceConfig, after: ResourceConfig) -> list[plans.ChangedGroup]:
    """Groups that come, go or change, by name, with the values that differ."""
    found = []
    for name, old, new, kind in _changes(before.groups, after.groups):
        pairs = {value: (getattr(old, value, None), getattr(new, value, None)) for value in _OF_A_GROUP}
        values = {value: plans.ChangedValue(a, b) for value, (a, b) in pairs.items() if a != b}
        found.append(plans.ChangedGroup(group=name, change=kind, values=values))
    return found


def changed_types(before: TypeTable, after: TypeTable) -> list[plans.ChangedType]:
    """Declarations of parameters that come, go or change, by name."""
    tables = ({one.name: _words(one) for one in table.all()} for table in (before, after))
    return [
        plans.ChangedType(parameter=name, change=kind, before=old, after=new)
        for name, old, new, kind in _changes(*tables)
    ]


def _changes(
    before: Mapping[str, T], after: Mapping[str, T]
) -> Iterator[tuple[str, T | None, T | None, plans.ChangeKind]]:
    """What comes, goes or changes, by name."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield name, old, new, "added" if old is None else "removed" if new is None else "changed"


def _words(declared: ParameterType) -> str:
    """A declaration as it could be written."""
    parts = (declared.kind.value, declared.unit, declared.operator, "merge" if declared.merge else "")
    return " ".join(part for part in parts if part)
