"""A draft becomes a resource configuration, checked as a whole: all faults are found, then reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lodesman.resources.criterion import TEXT_KINDS, split_list
from lodesman.resources.draft import Draft, DraftNode, Fault, RawParam, Repeated, refuse
from lodesman.resources.kinds import ParameterType, TypeTable, boolean_of, parse_type
from lodesman.resources.model import (
    DEFAULT_SHARE,
    BadValue,
    CeDefaults,
    ComputingElement,
    GroupConfig,
    Node,
    Queue,
    ResourceTree,
    Site,
    Source,
    Value,
    as_scalars,
    as_text,
    fold,
)
from lodesman.resources.required_tags import lacking_tags
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
    for repeated in draft.repeated:
        if not _alike(repeated, types):
            draft.conflict(repeated)
    maker = _NodeMaker(draft, types)
    defaults = maker.defaults()
    sites = {name: maker.site(node) for name, node in draft.sites.items()}
    groups = {name: _group(draft, name, raw) for name, raw in draft.groups.items()}
    tree = ResourceTree(sites=MappingProxyType(sites), defaults=defaults)
    for message, source in lacking_tags(tree, types):
        # DIRAC loads such a file and refuses the pilots: so do we, and say it.
        (draft.notice if source.section.startswith("/") else draft.fault)(message, source)
    if draft.faults:
        raise refuse(draft.faults)
    vos = dict.fromkeys((*draft.vos, *(group.vo for group in groups.values() if group.vo)))
    return ResourceConfig(
        tree=tree,
        types=types,
        groups=MappingProxyType(groups),
        vos=tuple(vos),
        notices=tuple(dict.fromkeys(draft.notices)),
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


def _alike(repeated: Repeated, types: TypeTable) -> bool:
    """Whether a parameter that is given twice says the same both times: "4 GB" and 4096 of a number MB do."""
    raws = (repeated.first, repeated.again)
    if len({repr(raw.value) for raw in raws}) == 1:
        return True
    declared = repeated.declared or types.get(repeated.first.name)
    try:
        values = [typed_value(raw.value, declared, commas=raw.commas) for raw in raws]
    except BadValue:
        return False
    # 1 and True are equal in Python and two values here.
    return values[0] == values[1] and len({tuple(map(type, as_scalars(value))) for value in values}) == 1


class _NodeMaker:
    """Makes frozen nodes of draft nodes, noting faults in the draft."""

    def __init__(self, draft: Draft, types: TypeTable) -> None:
        self._draft = draft
        self._types = types

    def defaults(self) -> CeDefaults:
        of_type = {name: self.node(node) for name, node in self._draft.ce_types.items()}
        return CeDefaults(of_all=self.node(self._draft.ce_defaults), of_type=MappingProxyType(of_type))

    def node(self, node: DraftNode) -> Node:
        params, overlays, sources = self.layers(node)
        return Node(name=node.name, source=node.source, params=params, overlays=overlays, sources=sources)

    def site(self, node: DraftNode) -> Site:
        ces = {name: self.ce(child, node.for_children) for name, child in node.children.items()}
        if not ces:
            self._draft.notice(f"site {node.name} has no CE", node.source)
        params, overlays, sources = self.layers(node)
        return Site(
            name=node.name, grid=node.grid, source=node.source, ces=MappingProxyType(ces),
            params=params, overlays=overlays, sources=sources,
        )  # fmt: skip

    def ce(self, node: DraftNode, shared: Mapping[str, RawParam]) -> ComputingElement:
        queues = {name: self.queue(child, node.for_children) for name, child in node.children.items()}
        if not queues:
            self._draft.notice(f"CE {node.name} has no queue", node.source)
        params, overlays, sources = self.layers(node, shared)
        return ComputingElement(
            name=node.name, source=node.source, queues=MappingProxyType(queues),
            params=params, overlays=overlays, sources=sources,
        )  # fmt: skip

    def queue(self, node: DraftNode, shared: Mapping[str, RawParam]) -> Queue:
        params, overlays, sources = self.layers(node, shared)
        return Queue(name=node.name, source=node.source, params=params, overlays=overlays, sources=sources)

    def layers(
        self, node: DraftNode, shared: Mapping[str, RawParam] = MappingProxyType({})
    ) -> tuple[Mapping[str, Value], Mapping[str, Mapping[str, Value]], Mapping[tuple[str, str], Source]]:
        """Own parameters (with those that it shares with its siblings), overlays and sources of a node."""
        layers = {**node.layers, "": {**shared, **node.layers.get("", {})}}
        values = {vo: self.values(layer) for vo, layer in layers.items()}
        sources = {(vo, folded): raw.source for vo, layer in layers.items() for folded, raw in layer.items()}
        own = values.pop("")
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
        vo=reader.text("vo") or draft.vo_of_all,
        share=reader.share(),
        job_sharing="jobsharing" in properties or reader.flag("job_sharing"),
        background=reader.flag("background"),
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
        found = self._raw.get("share")
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
