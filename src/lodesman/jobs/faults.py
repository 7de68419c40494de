"""How a wrong value becomes an InvalidJob that names the attribute, its place and what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from lodesman.errors import InvalidJob
from lodesman.jobs.parsed import shown
from lodesman.jobs.values import Mistake

PositionMap = Mapping[str, tuple[int, int]]
NO_POSITIONS: Final[PositionMap] = MappingProxyType({})


def invalid(name: str, mistake: Mistake, places: PositionMap, *, right: str = "", **data: Any) -> InvalidJob:
    """The error for the attribute that the text calls `name`; `right` completes "Give ..."."""
    label = shown(name)
    place = places.get(f"{name}/{mistake.below}") if mistake.below else None
    place = place or places.get(name)
    where = ""
    if place is not None:
        data = {"line": place[0], "column": place[1], **data}
        where = f" (line {place[0]}, column {place[1]})"
    of_member = f" of member {data['member']}" if "member" in data else ""
    hint = f"Give {right}." if right else ""
    return InvalidJob(f"{label}{of_member} {mistake}{where}.", hint=hint, attribute=label, **data)
