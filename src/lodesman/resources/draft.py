"""What the configuration files say, before it is believed: raw values with their places, and faults.

Both readers (`load_cfg`, `load_toml`) write into one draft, so a tree may be spread over many files; `build`
checks the draft as a whole.

What is given twice, in one file or in two, must be the same both times, as the parameter's type reads it; otherwise
it is a fault that names both places. (DIRAC lets the later file win: which one that is depends on the order of
the files, and a slip of the pen would move pilots.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lodesman.answers.vocabulary import Kind
from lodesman.errors import InvalidConfig
from lodesman.resources.kinds import ParameterType
from lodesman.resources.model import Source, fold

# DIRAC's words for what groups have, and ours.
OF_GROUPS = {"jobshare": "share", "allowbackgroundtqs": "background"}
KINDS_OF_GROUPS = {"share": Kind.NUMBER, "background": Kind.BOOLEAN, "job_sharing": Kind.BOOLEAN}
SHOWN_FAULTS = 5
SHOWN_TEXT = 80


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
    """A site, CE or queue as written: parameters by VO ("" for all) and folded name.

    `for_children`: what each child has that does not say otherwise itself (DIRAC's options in `CEs` and `Queues`).
    """

    __slots__ = ("children", "for_children", "grid", "layers", "name", "source")

    def __init__(self, name: str, source: Source) -> None:
        self.name = name
        self.source = source
        self.grid = ""
        self.layers: dict[str, dict[str, RawParam]] = {}
        self.for_children: dict[str, RawParam] = {}
        self.children: dict[str, DraftNode] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """A parameter that is given once more. `declared`: its type, if it is none of a resource."""

    first: RawParam
    again: RawParam
    declared: ParameterType | None = None


class Draft:
    """Everything read so far."""

    def __init__(self, vos: Iterable[str] = ()) -> None:
        self.vos: dict[str, None] = dict.fromkeys(vos)
        self.vo_of_all = ""
        """DIRAC with one VO: that of groups which name none."""
        self.sites: dict[str, DraftNode] = {}
        self.ce_defaults = DraftNode("CEDefaults", Source())
        self.ce_types: dict[str, DraftNode] = {}
        self.declarations: dict[str, RawParam] = {}
        self.groups: dict[str, dict[str, RawParam]] = {}
        self.repeated: list[Repeated] = []
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
        self._put(node.layers.setdefault(vo, {}), fold(param.name), param)

    def put_for_children(self, node: DraftNode, param: RawParam) -> None:
        """A parameter of all children of a node that have none of that name."""
        self._put(node.for_children, fold(param.name), param)

    def declare(self, param: RawParam) -> None:
        """A type declaration."""
        self._put(self.declarations, fold(param.name), param)

    def put_group(self, group: str, param: RawParam) -> None:
        """What a group has."""
        folded = OF_GROUPS.get(fold(param.name), fold(param.name))
        declared = ParameterType(name=folded, kind=KINDS_OF_GROUPS.get(folded, Kind.STRING))
        self._put(self.groups.setdefault(group, {}), folded, param, declared)

    def _put(
        self,
        into: dict[str, RawParam],
        folded: str,
        param: RawParam,
        declared: ParameterType | None = None,
    ) -> None:
        """Add under the folded name; the second time is noted."""
        first = into.setdefault(folded, param)
        if first is not param:
            self.repeated.append(Repeated(first=first, again=param, declared=declared))

    def conflict(self, repeated: Repeated) -> None:
        """A parameter is given twice and not alike."""
        first, again = repeated.first, repeated.again
        place = Fault(message=f"{first.name} = {written(first.value)}", source=first.source)
        message = f"{again.name} is given twice: {written(again.value)} here, and {place}"
        self.fault(message, again.source)


def written(value: object) -> str:
    """A raw value as a word or two."""
    if isinstance(value, list):
        return ", ".join(map(written, value)) or "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = " ".join(str(value).split())
    return f"{text[:SHOWN_TEXT]}..." if len(text) > SHOWN_TEXT else text or "nothing"


def refuse(faults: Iterable[Fault]) -> InvalidConfig:
    """All faults as one error, in the order of the files; `data["faults"]` has every one."""
    listed = sorted(dict.fromkeys(faults), key=lambda fault: (fault.source.file, fault.source.line))
    first = listed[0].as_dict()
    return InvalidConfig(
        _sentence(listed),
        source=first["source"],
        section=first["section"],
        line=first["line"],
        faults=[fault.as_dict() for fault in listed],
    )


def _sentence(listed: list[Fault]) -> str:
    if len(listed) == 1:
        return f"{listed[0]}."
    shown = "".join(f"\n- {fault}" for fault in listed[:SHOWN_FAULTS])
    more = f"\n- and {len(listed) - SHOWN_FAULTS} more" if len(listed) > SHOWN_FAULTS else ""
    return f"The configuration has {len(listed)} faults:{shown}{more}"
