"""What one resource configuration says and another does not: queues, effective parameters, groups, types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import count
from typing import Any

from lodesman.background.pool_pass import Renumbering
from lodesman.resources import GroupConfig, ParameterType, QueueId, ResourceConfig, ResourceTree, TypeTable
from lodesman.resources.inherit import EffectiveParams, all_queues
from lodesman.resources.model import as_scalars

OF_A_GROUP = tuple(one.name for one in fields(GroupConfig) if one.name != "name")
Change = dict[str, Any]


class QueueMap:
    """The queues of two trees: which come, which go, and the bits of one as bits of the other."""

    def __init__(self, before: ResourceTree, after: ResourceTree) -> None:
        old, new = list(before.queue_ids()), list(after.queue_ids())
        places = {queue: bit for bit, queue in enumerate(new)}
        known = frozenset(old)
        self.before, self.after = len(old), len(new)
        self.removed = [queue for queue in old if queue not in places]
        self.added = [queue for queue in new if queue not in known]
        # Those that go are moved behind the others, where they are cut off.
        self._full = (1 << len(new)) - 1
        behind = count(len(new))
        self._numbers = Renumbering([places[queue] if queue in places else next(behind) for queue in old])

    def move(self, mask: int) -> int:
        """A mask of the old tree as one of the new, without the queues that go."""
        return self._numbers.of(mask) & self._full


def changed_queues(
    before: ResourceConfig, after: ResourceConfig, tick: Callable[[], None]
) -> Iterator[Change]:
    """For queues of both: the parameters whose effective values differ.

    Once as everybody sees them (VO ""), and once for each VO that sees another difference. `tick` is called now and
    then.
    """
    seen: dict[str, dict[QueueId, Change]] = {}
    for vo in ("", *sorted(_overlaid(before.tree) | _overlaid(after.tree))):
        tick()
        seen[vo] = dict(_differences(before, after, vo))
    of_all = seen[""]
    for queue in after.tree.queue_ids():
        for vo, found in seen.items():
            here = found.get(queue)
            if here is not None and (not vo or here != of_all.get(queue)):
                yield {**queue._asdict(), "vo": vo, "parameters": here}


def _differences(before: ResourceConfig, after: ResourceConfig, vo: str) -> Iterator[tuple[QueueId, Change]]:
    old = dict(all_queues(before.tree, vo=vo, types=before.types))
    for queue, new in all_queues(after.tree, vo=vo, types=after.types):
        known = old.get(queue)
        found = {} if known is None else _parameters(known, new)
        if found:
            yield queue, found


def _parameters(before: EffectiveParams, after: EffectiveParams) -> Change:
    """{name: {"before", "after"}}; None where there is no value."""
    found = {}
    for folded in dict.fromkeys((*before, *after)):
        old, new = before.get(folded), after.get(folded)
        if old is new or (old is not None and new is not None and _alike(old.value, new.value)):
            continue
        told = new or old
        assert told is not None  # noqa: S101
        found[told.name] = {"before": old.value if old else None, "after": new.value if new else None}
    return found


def _alike(old: Any, new: Any) -> bool:
    # 1 and True are equal in Python and two values here.
    return old == new and [*map(type, as_scalars(old))] == [*map(type, as_scalars(new))]


def _overlaid(tree: ResourceTree) -> set[str]:
    """The VOs for which some site, CE or queue has parameters of its own."""
    found: set[str] = set()
    for site in tree.sites.values():
        found.update(site.overlays)
        for element in site.ces.values():
            found.update(element.overlays, *(queue.overlays for queue in element.queues.values()))
    return found


def changed_groups(before: ResourceConfig, after: ResourceConfig) -> list[Change]:
    """Groups that come, go or change, by name, with the values that differ."""
    found = []
    for name in sorted({*before.groups, *after.groups}):
        old, new = before.groups.get(name), after.groups.get(name)
        pairs = {value: (getattr(old, value, None), getattr(new, value, None)) for value in OF_A_GROUP}
        if old != new:
            values = {value: {"before": a, "after": b} for value, (a, b) in pairs.items() if a != b}
            found.append({"group": name, "change": _kind(old, new), "values": values})
    return found


def changed_types(before: TypeTable, after: TypeTable) -> list[Change]:
    """Declarations of parameters that come, go or change, by name."""
    old, new = ({one.name: _words(one) for one in table.all()} for table in (before, after))
    return [
        {
            "parameter": name,
            "change": _kind(old.get(name), new.get(name)),
            "before": old.get(name),
            "after": new.get(name),
        }
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    ]


def _words(declared: ParameterType) -> str:
    """A declaration as it could be written."""
    parts = (declared.kind.value, declared.unit, declared.operator, "merge" if declared.merge else "")
    return " ".join(part for part in parts if part)


def _kind(old: object, new: object) -> str:
    return "added" if old is None else "removed" if new is None else "changed"
