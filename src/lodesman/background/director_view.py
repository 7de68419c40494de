"""The director's last iteration as one caller may see it: all of it, or what concerns one VO."""

from __future__ import annotations

from typing import Any

import msgspec

from lodesman.store import Reader
from lodesman.store.director import last_iteration
from lodesman.store.read.task_queues import queues_of_vo


def iteration_for(db: Reader, vo: str) -> tuple[float | None, Any]:
    """When the director last decided, and what, as JSON values; (None, None) if it never did.

    `vo`: only of the task queues of this VO; '' for all. Rooms of CE queues and totals are everybody's.
    """
    found = last_iteration(db)
    if found is None:
        return None, None
    at, plan = found
    if not vo:
        return at, msgspec.Raw(plan.encode())
    return at, _of(msgspec.json.decode(plan), queues_of_vo(db, vo))


def _of(plan: dict[str, Any], seen: set[int]) -> dict[str, Any]:
    """The record (`director.record`) without what it tells of other task queues."""
    found = dict(plan)
    if "rows" in plan:
        place = plan["row_fields"].index("tq_id")
        found["rows"] = [row for row in plan["rows"] if row[place] in seen]
    for name in ("asks", "no_pool"):
        if name in plan:
            found[name] = [one for one in plan[name] if one["tq_id"] in seen]
    if "placements" in plan:
        found["placements"] = [one for one in plan["placements"] if one[0] in seen]
    if "borrowed" in plan:
        found["borrowed"] = {tq_id: n for tq_id, n in plan["borrowed"].items() if int(tq_id) in seen}
    return found
