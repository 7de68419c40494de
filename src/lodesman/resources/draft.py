"""What the configuration files say, before it is believed: raw values with their places, and faults.

Both readers (`load_cfg`, `load_toml`) write into one draft, so a tree may be spread over many files; `build`
checks the draft as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lodesman.errors import InvalidConfig
from lodesman.resources.model import Source, fold

SHOWN_FAULTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong (or, as a notice, odd), and where it stands."""

    message: str
    source: Source

    def as_dict(self) -> dict[str, Any]:
        """JSON values: message, source (file), section, line."""
        place = self.source
        return {"message": self.message, "source": place.file, "section": place.section, "line": place.line}

    def __str__(self) -> str:
        place = self.source
        line = f"line {place.line}" if place.line else ""
        where = ", ".join(part for part in (place.file, line, place.section) if part)
        return f"{where}: {self.message}" if where else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class RawParam:
    """A parameter as written. `commas`: commas in its text separate values (CFG has no other lists)."""

    name: str
    value: object
    source: Source
    commas: bool = False


class DraftNode:
    """A site, CE or queue as written: parameters by VO ("" for all) and folded name."""

    __slots__ = ("children", "grid", "layers", "name", "source")

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self.source = source
        self.grid = ""
        self.layers: dict[str, dict[str, RawParam]] = {}
        self.children: dict[str, DraftNode] = {}


class Draft:
    """Everything read so far."""

    def __init__(self, vos: Iterable[str] = ()) -> None:
        self.vos: dict[str, None] = dict.fromkeys(vos)
        self.sites: dict[str, DraftNode] = {}
        self.declarations: dict[str, RawParam] = {}
        self.groups: dict[str, dict[str, RawParam]] = {}
        self.faults: list[Fault] = []
        self.notices: list[Fault] = []

    def fault(self, message: str, source: Source) -> None:
        """Something is wrong: the configuration will be refused."""
        self.faults.append(Fault(message=message, source=source))

    def notice(self, message: str, source: Source) -> None:
        """Something is odd: the configuration stands."""
        self.notices.append(Fault(message=message, source=source))

    def node(self, among: dict[str, DraftNode], name: str, source: Source) -> DraftNode:
        """The node of that name, made if it is new; several files may speak of one node."""
        if not name.strip():
            self.fault("a name is empty", source)
        return among.setdefault(name, DraftNode(name, source))

    def put(self, node: DraftNode, vo: str, param: RawParam) -> None:
        """A parameter of a node (for a VO, or "" for all)."""
        self.put_once(node.layers.setdefault(vo, {}), param)

    def declare(self, param: RawParam) -> None:
        """A type declaration."""
        self.put_once(self.declarations, param)

    def put_once(self, into: dict[str, RawParam], param: RawParam) -> None:
        """Add under the folded name; the second time is a fault that names the first."""
        first = into.setdefault(fold(param.name), param)
        if first is not param:
            place = Fault(message=f"first as {first.name}", source=first.source)
            self.fault(f"{param.name} is given twice ({place})", param.source)


def refuse(faults: Iterable[Fault]) -> InvalidConfig:
    """All faults as one error, in the order of the files; `data["faults"]` has every one."""
    listed = sorted(faults, key=lambda fault: (fault.source.file, fault.source.line))
    shown = "\n".join(f"- {fault}" for fault in listed[:SHOWN_FAULTS])
    more = f"\n- and {len(listed) - SHOWN_FAULTS} more" if len(listed) > SHOWN_FAULTS else ""
    count = "1 fault" if len(listed) == 1 else f"{len(listed)} faults"
    first = listed[0].as_dict()
    return InvalidConfig(
        f"The resource configuration has {count}:\n{shown}{more}",
        source=first["source"],
        section=first["section"],
        line=first["line"],
        faults=[fault.as_dict() for fault in listed],
    )
