"""Configuration files before the check. What is given twice must be the same (in DIRAC the later file wins: the order
of files would move pilots).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import InvalidConfig
from lodesman.decide.resources.kinds import ParameterType
from lodesman.decide.resources.model import FilePosition, fold
from lodesman.wire.nodes import NodePath
from lodesman.wire.vocabulary import Kind

# DIRAC's words for what groups have, and ours.
_OF_GROUPS = {"jobshare": "share", "allowbackgroundtqs": "background"}
_KINDS_OF_GROUPS = {"share": Kind.NUMBER, "background": Kind.BOOLEAN, "job_sharing": Kind.BOOLEAN}
# As Grid Engine spells it.
_OF_QUEUES = {"jc_list": "JcList"}
_SHOWN_FAULTS = 5

# DIRAC's words for limits of a place, and the one for all jobs in the place of an attribute.
RUNNING: Final = "RunningLimit"
DELAY: Final = "MatchingDelay"
ALL_JOBS: Final = "MaxRunningJobs"


class Fault(Struct, frozen=True, kw_only=True):
    """What is wrong (or, as a notice, odd), and where."""

    message: str
    source: FilePosition

    def as_dict(self) -> dict[str, Any]:
        """JSON values: message, source (file), section, line."""
        place = self.source
        return {"message": self.message, "source": place.file, "section": place.section, "line": place.line}

    def __str__(self) -> str:
        place = self.source
        line = f"line {place.line}" if place.line else ""
        where = ", ".join(part for part in (place.file, line, place.section) if part)
        return f"{where}: {self.message}" if where else self.message


class RawParam(Struct, frozen=True, kw_only=True):
    """A parameter as written."""

    name: str
    value: object
    source: FilePosition
    commas: bool = False  # commas in its text separate values (CFG has no other lists)


@dataclass(slots=True)
class DraftNode:
    """A site, CE or queue as written."""

    name: str
    source: FilePosition
    grid: str = ""
    # parameters by VO ("" for all) and folded name
    layers: dict[str, dict[str, RawParam]] = field(default_factory=lambda: defaultdict(dict))
    # for each child without one of its own (DIRAC's options in `CEs` and `Queues`)
    for_children: dict[str, RawParam] = field(default_factory=dict)
    children: dict[str, DraftNode] = field(default_factory=dict)


class RepeatedParam(Struct, frozen=True, kw_only=True):
    """A parameter that is given once more."""

    first: RawParam
    again: RawParam
    declared: ParameterType | None = None  # its type, if it is none of a resource


class DraftLimit(NamedTuple):
    """The subject of limits of a site or CE."""

    kind: str
    path: NodePath
    attribute: str  # of jobs, '' for all of them


class ConfigDraft:
    """Everything read so far."""

    def __init__(self, vos: Iterable[str] = ()) -> None:
        self.vos: dict[str, None] = dict.fromkeys(vos)
        self.vo_of_all = ""  # DIRAC with one VO: that of groups which name none
        self.sites: dict[str, DraftNode] = {}
        self.ce_defaults = DraftNode("CEDefaults", FilePosition())
        self.ce_types: dict[str, DraftNode] = {}
        self.declarations: dict[str, RawParam] = {}
        self.groups: dict[str, dict[str, RawParam]] = {}
        self.limits: dict[DraftLimit, dict[str, RawParam]] = {}  # by value of the attribute
        self.repeated: list[RepeatedParam] = []
        self.faults: list[Fault] = []
        self.notices: list[Fault] = []

    def fault(self, message: str, source: FilePosition) -> None:
        """The configuration will be refused."""
        self.faults.append(Fault(message=message, source=source))

    def notice(self, message: str, source: FilePosition) -> None:
        """The configuration stands."""
        self.notices.append(Fault(message=message, source=source))

    def node(self, among: dict[str, DraftNode], name: str, source: FilePosition) -> DraftNode:
        """The node of that name, made if new."""
        if not name.strip():
            self.fault("a name is empty", source)
        return among.setdefault(name, DraftNode(name, source))

    def put(self, into: dict[str, RawParam], param: RawParam, declared: ParameterType | None = None) -> None:
        """Add a parameter to a layer or to the declarations; a second time is noted. `declared`: its type, if it is
        none of a resource.
        """
        if not declared:
            param = replace(param, name=_OF_QUEUES.get(fold(param.name), param.name))
        first = into.setdefault(declared.name if declared else fold(param.name), param)
        if first is not param:
            self.repeated.append(RepeatedParam(first=first, again=param, declared=declared))

    def put_group(self, group: str, param: RawParam) -> None:
        """Add what a group has."""
        name = _OF_GROUPS.get(fold(param.name), fold(param.name))
        declared = ParameterType(name=name, kind=_KINDS_OF_GROUPS.get(name, Kind.STRING))
        self.put(self.groups.setdefault(group, {}), param, declared)

    def put_limit(self, of: DraftLimit, param: RawParam) -> None:
        """Add a limit by value of an attribute, or under ALL_JOBS."""
        if not of.attribute and (of.kind != RUNNING or fold(param.name) != fold(ALL_JOBS)):
            more = f", or {ALL_JOBS} for all jobs" if of.kind == RUNNING else ""
            message = f"{of.kind}: {param.name} is a value; an attribute with its values is expected{more}"
            self.fault(message, param.source)
            return
        name = param.name if of.attribute else ALL_JOBS
        self.put(self.limits.setdefault(of, {}), param, ParameterType(name=name, kind=Kind.NUMBER))


def refuse(faults: Iterable[Fault]) -> InvalidConfig:
    """All faults as one error; `data["faults"]` has every one."""
    listed = sorted(dict.fromkeys(faults), key=lambda fault: (fault.source.file, fault.source.line))
    first = listed[0].source
    message = f"{listed[0]}."
    if len(listed) > 1:
        lines = "".join(f"\n- {fault}" for fault in listed[:_SHOWN_FAULTS])
        more = f"\n- and {len(listed) - _SHOWN_FAULTS} more" if len(listed) > _SHOWN_FAULTS else ""
        message = f"The configuration has {len(listed)} faults:{lines}{more}"
    return InvalidConfig(
        message,
        source=first.file,
        section=first.section,
        line=first.line,
        faults=[fault.as_dict() for fault in listed],
    )
