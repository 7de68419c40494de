"""A draft becomes a resource configuration, checked as a whole: all faults are found, then reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lodesman.resources.criterion import TEXT_KINDS, split_list
from lodesman.resources.draft import Draft, DraftNode, Fault, RawParam, refuse
from lodesman.resources.kinds import ParameterType, TypeTable, boolean_of, parse_type
from lodesman.resources.model import (
    DEFAULT_SHARE,
    BadValue,
    ComputingElement,
    GroupConfig,
    Queue,
    ResourceTree,
    Site,
    Source,
    Value,
    as_text,
    fold,
)
from lodesman.resources.settings import check_type, check_value, with_unit
from lodesman.resources.units import number_in
from lodesman.resources.values import typed_value

LEAST_SHARE = 0.001  # DIRAC's floor of a priority: a share of 0 would mean "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceConfig:
    """What the configuration says of resources and groups. `notices`: odd things that did not stop it."""

    tree: ResourceTree = field(default_factory=ResourceTree)
    types: TypeTable = field(default_factory=TypeTable)
    groups: Mapping[str, GroupConfig] = field(default_factory=dict)
    vos: tuple[str, ...] = ()
    notices: tuple[Fault, ...] = ()


def build(draft: Draft) -> ResourceConfig:
    """The configuration. Raises InvalidConfig with `faults`, each with file, section and line."""
    types = _types(draft)
    maker = _NodeMaker(draft, types)
    sites = {name: maker.site(node) for name, node in draft.sites.items()}
    groups = {name: _group(draft, name, raw) for name, raw in draft.groups.items()}
    if draft.faults:
        raise refuse(draft.faults)
    vos = dict.fromkeys((*draft.vos, *(group.vo for group in groups.values() if group.vo)))
    return ResourceConfig(
        tree=ResourceTree(sites=MappingProxyType(sites)),
        types=types,
        groups=MappingProxyType(groups),
        vos=tuple(vos),
        notices=tuple(draft.notices),
    )


def _types(draft: Draft) -> TypeTable:
    declared: list[ParameterType] = []
    for raw in draft.declarations.values():
        try:
            found = parse_type(raw.name, raw.value)
            check_type(found)
        except BadValue as fault:
            draft.fault(f"{raw.name}: {fault}", raw.source)
        else:
            declared.append(with_unit(found))
    return TypeTable(declared)


class _NodeMaker:
    """Makes frozen nodes of draft nodes, noting faults in the draft."""

    def __init__(self, draft: Draft, types: TypeTable) -> None:
        self._draft = draft
        self._types = types

    def site(self, node: DraftNode) -> Site:
        ces = {name: self.ce(child) for name, child in node.children.items()}
        if not ces:
            self._draft.notice(f"site {node.name} has no CE", node.source)
        params, overlays, sources = self.layers(node)
        return Site(
            name=node.name, grid=node.grid, source=node.source, ces=MappingProxyType(ces),
            params=params, overlays=overlays, sources=sources,
        )  # fmt: skip

    def ce(self, node: DraftNode) -> ComputingElement:
        queues = {name: self.queue(child) for name, child in node.children.items()}
        if not queues:
            self._draft.notice(f"CE {node.name} has no queue", node.source)
        params, overlays, sources = self.layers(node)
        return ComputingElement(
            name=node.name, source=node.source, queues=MappingProxyType(queues),
            params=params, overlays=overlays, sources=sources,
        )  # fmt: skip

    def queue(self, node: DraftNode) -> Queue:
        params, overlays, sources = self.layers(node)
        return Queue(name=node.name, source=node.source, params=params, overlays=overlays, sources=sources)

    def layers(
        self, node: DraftNode
    ) -> tuple[Mapping[str, Value], Mapping[str, Mapping[str, Value]], Mapping[tuple[str, str], Source]]:
        """Own parameters, overlays and sources of a node."""
        values = {vo: self.values(layer) for vo, layer in node.layers.items()}
        sources = {
            (vo, folded): raw.source for vo, layer in node.layers.items() for folded, raw in layer.items()
        }
        own = values.pop("", {})
        overlays = {vo: MappingProxyType(layer) for vo, layer in values.items()}
        return MappingProxyType(own), MappingProxyType(overlays), MappingProxyType(sources)

    def values(self, layer: Mapping[str, RawParam]) -> dict[str, Value]:
        out: dict[str, Value] = {}
        for folded, raw in layer.items():
            declared = self._types.get_folded(folded)
            if raw.value == "" and declared is not None and declared.kind not in TEXT_KINDS:
                self._draft.notice(f"{raw.name} is empty and counts as not given", raw.source)
                continue
            try:
                value = typed_value(raw.value, declared, commas=raw.commas)
                check_value(folded, value)
            except BadValue as fault:
                self._draft.fault(f"{raw.name}: {fault}", raw.source)
            else:
                out[raw.name] = value
        return out


def _group(draft: Draft, name: str, raw: Mapping[str, RawParam]) -> GroupConfig:
    reader = _GroupReader(draft, raw)
    properties = [fold(item) for item in reader.texts("properties")]
    return GroupConfig(
        name=name,
        vo=reader.text("vo"),
        share=reader.share(),
        job_sharing="jobsharing" in properties or reader.flag("job_sharing"),
        background=reader.flag("background") or reader.flag("allowbackgroundtqs"),
    )


class _GroupReader:
    def __init__(self, draft: Draft, raw: Mapping[str, RawParam]) -> None:
        self._draft = draft
        self._raw = raw

    def text(self, key: str) -> str:
        found = self._raw.get(key)
        if found is None:
            return ""
        if not isinstance(found.value, str):
            self._draft.fault(f"{found.name}: a text is expected", found.source)
            return ""
        return found.value.strip()

    def texts(self, key: str) -> list[str]:
        found = self._raw.get(key)
        value = found.value if found is not None else ()
        if isinstance(value, str):
            return split_list(value)
        return [as_text(item) for item in value if isinstance(item, str)] if isinstance(value, list) else []

    def flag(self, key: str) -> bool:
        found = self._raw.get(key)
        try:
            return found is not None and boolean_of(found.value)
        except BadValue as fault:
            self._fault(found, fault)
            return False

    def share(self) -> float:
        found = self._raw.get("share") or self._raw.get("jobshare")
        if found is None:
            return DEFAULT_SHARE
        try:
            share = float(number_in(found.value))
            if share < 0:
                raise BadValue("a share is not negative")
        except BadValue as fault:
            self._fault(found, fault)
            return LEAST_SHARE
        if share < LEAST_SHARE:
            self._draft.notice(f"{found.name}: a share below {LEAST_SHARE} counts as that", found.source)
        return max(share, LEAST_SHARE)

    def _fault(self, raw: RawParam | None, fault: BadValue) -> None:
        if raw is not None:
            self._draft.fault(f"{raw.name}: {fault}", raw.source)
