"""How a wrong value becomes an InvalidJob that names the attribute, its place and what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from lodesman.errors import InvalidJob, LodesmanError
from lodesman.jobs.attributes import BY_SPELLING
from lodesman.jobs.parsed import shown
from lodesman.jobs.values import Mistake

PositionMap = Mapping[str, tuple[int, int]]
NO_POSITIONS: Final[PositionMap] = MappingProxyType({})


def invalid(name: str, mistake: Mistake, places: PositionMap, *, right: str = "", **data: Any) -> InvalidJob:
    """The error for the attribute that the text calls `name`; `right` completes "Give ..."."""
    label = shown(name)
    place = place_of(f"{name}/{mistake.below}", places) if mistake.below else place_of(name, places)
    where = ""
    if place is not None:
        data = {"line": place[0], "column": place[1], **data}
        where = _where(place)
    of_member = f" of member {data['member']}" if "member" in data else ""
    hint = f"Give {right}." if right else ""
    return InvalidJob(f"{label}{of_member} {mistake}{where}.", hint=hint, attribute=label, **data)


def locate(wrong: LodesmanError, places: PositionMap) -> None:
    """Put the line and column of its `attribute` into an error that was found where no positions are known.

    The sentence of an InvalidJob tells them too; that of a refusal (Impossible) stays what `lode why` says.
    """
    attribute = wrong.data.get("attribute")
    place = place_of(attribute, places) if attribute and "line" not in wrong.data else None
    if place is None:
        return
    wrong.data = {**wrong.data, "line": place[0], "column": place[1]}
    if isinstance(wrong, InvalidJob):
        wrong.message = f"{wrong.message.removesuffix('.')}{_where(place)}."


def place_of(attribute: str, places: PositionMap) -> tuple[int, int] | None:
    """Where an attribute stands, however the text spells it (case, aliases); else what it is part of, or None.

    Parts are told as errors do (`Requirements.Memory`) or as positions do (`Requirements/Memory`).
    """
    found = places.get(attribute)
    if found is not None or not places:
        return found
    wanted = _canonical(attribute)
    found = next((places[path] for path in places if _canonical(path) == wanted), None)
    above = attribute.partition("/")[0] if "/" in attribute else _holder(attribute)
    return found or (place_of(above, places) if above else None)


def _canonical(path: str) -> str:
    holder = _holder(path)
    if holder:
        path = f"{holder}/{path[len(holder) + 1 :]}"
    name, slash, below = path.partition("/")
    attribute = BY_SPELLING.get(name.casefold())
    return f"{attribute.name if attribute else name.casefold()}{slash}{below.strip().casefold()}"


def _holder(attribute: str) -> str:
    """`Requirements` of `Requirements.Memory`; '' for what is no part of it (`Parameters.x` is a name)."""
    name, dot, _ = attribute.partition(".")
    return name if dot and name.casefold() == "requirements" else ""


def _where(place: tuple[int, int]) -> str:
    return f" (line {place[0]}, column {place[1]})"
