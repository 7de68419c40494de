"""A resource configuration from CFG and TOML texts, checked as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field

from lodesman.base.errors import LodesmanError, SyntaxFault, TooLarge
from lodesman.decide.resources import model
from lodesman.decide.resources.draft import ConfigDraft, DraftNode, Fault, RawParam, RepeatedParam, refuse
from lodesman.decide.resources.inherit import EffectiveParam, all_queues
from lodesman.decide.resources.kinds import ParameterType, TypeTable, boolean_of, parse_type, typed_value
from lodesman.decide.resources.load_cfg import CFG_SECTIONS, fill_from_cfg, note_vos
from lodesman.decide.resources.load_toml import fill_from_toml, parse_toml
from lodesman.decide.resources.model import BadValue, FilePosition
from lodesman.decide.resources.place_limits import PlaceLimit, place_limits
from lodesman.decide.resources.settings import check_value, queue_settings, with_processor_tags
from lodesman.decide.resources.units import number_in
from lodesman.languages.cfg import parse_cfg
from lodesman.wire.vocabulary import Kind

_LEAST_SHARE = 0.001  # DIRAC's floor of a priority: a share of 0 would mean "never"
_TAG, _REQUIRED_TAG = model.fold("Tag"), model.fold("RequiredTag")
_SHOWN_TEXT = 80
_KINDS = ("site", "CE", "queue")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_POSITION = re.compile(r"\Aline [0-9]+, (?=column )")

_Layer = Mapping[str, RawParam]


class ResourceConfig(Struct, frozen=True, kw_only=True):
    """Configured resources and groups."""

    tree: model.ResourceTree = field(default_factory=model.ResourceTree)
    types: TypeTable = field(default_factory=TypeTable)
    groups: Mapping[str, model.GroupConfig] = field(default_factory=dict)
    vos: tuple[str, ...] = ()
    limits: tuple[PlaceLimit, ...] = ()  # of sites and CEs on what runs there
    notices: tuple[Fault, ...] = ()  # odd things that did not stop it


def load_resources(
    texts: Iterable[tuple[str, str]], *, vos: Iterable[str] = (), faults: Iterable[Fault] = ()
) -> ResourceConfig:
    """`texts`: (file name, text); `*.toml` is TOML, else CFG. `faults`: found before. Raises InvalidConfig with all
    faults in `data["faults"]`.
    """
    draft = ConfigDraft(vos)
    draft.faults.extend(faults)
    # All VOs are known before the first overlay is read; then what the files say, in their order.
    fillers: list[Callable[[], None]] = []
    for file, text in texts:
        slips: list[SyntaxFault] = []
        try:
            if file.lower().endswith(".toml"):
                tables = parse_toml(text, source=file)
                fillers.append(partial(fill_from_toml, draft, tables, text=text, file=file))
            else:
                root = parse_cfg(text, source=file, faults=slips)
                note_vos(draft, root)
                fillers.append(partial(fill_from_cfg, draft, root, file=file))
        except (SyntaxFault, TooLarge) as fault:
            draft.faults.append(fault_of(fault, file))
        for slip in slips:
            # DIRAC's own files, of which most is for other programs, give options twice in sections not read here.
            section = slip.data.get("section", "").strip("/").partition("/")[0]
            if not section or section in CFG_SECTIONS:
                draft.faults.append(fault_of(slip, file))
    for fill in fillers:
        fill()
    return build(draft)


def fault_of(error: LodesmanError, file: str) -> Fault:
    """A reader's complaint as one fault of many."""
    message = _POSITION.sub("", str(error)).rstrip(".")
    place = FilePosition(file=file, section=error.data.get("section", ""), line=error.data.get("line", 0))
    return Fault(message=message, source=place)


def build(draft: ConfigDraft) -> ResourceConfig:
    """Raises InvalidConfig with `faults`."""
    declared: list[ParameterType] = []
    for raw in draft.declarations.values():
        try:
            declared.append(parse_type(raw.name, raw.value))
        except BadValue as fault:
            draft.fault(f"{raw.name}: {fault}", raw.source)
    types = TypeTable(declared)
    for repeated in draft.repeated:
        if not _alike(repeated, types):
            first, again = repeated.first, repeated.again
            place = Fault(message=f"{first.name} = {_written(first.value)}", source=first.source)
            message = f"{again.name} is given twice: {_written(again.value)} here, and {place}"
            draft.fault(message, again.source)
    maker = _NodeMaker(draft, types)
    tree = model.ResourceTree(
        sites=maker.nodes(draft.sites),
        ce_defaults=maker.node(draft.ce_defaults),
        ce_types=MappingProxyType({name: maker.node(node) for name, node in draft.ce_types.items()}),
    )
    groups = {name: _group(draft, name, raw) for name, raw in draft.groups.items()}
    limits = tuple(place_limits(draft, tree))
    for message, source in _lacking_tags(tree, types):
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
        limits=limits,
        notices=tuple(dict.fromkeys(draft.notices)),
    )


def _alike(repeated: RepeatedParam, types: TypeTable) -> bool:
    """Whether "4 GB" and 4096, say, are the same in the parameter's type."""
    raws = (repeated.first, repeated.again)
    if len({repr(raw.value) for raw in raws}) == 1:
        return True
    declared = repeated.declared or types.get(repeated.first.name)
    try:
        values = [typed_value(raw.value, declared, commas=raw.commas) for raw in raws]
    except BadValue:
        return False
    # 1 and True are equal in Python and two values here.
    return (
        values[0] == values[1] and len({tuple(map(type, model.as_scalars(value))) for value in values}) == 1
    )


def _written(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_written, value)) or "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = " ".join(str(value).split())
    return f"{text[:_SHOWN_TEXT]}..." if len(text) > _SHOWN_TEXT else text or "nothing"


class _NodeMaker:
    """Makes frozen nodes, noting faults in the draft."""

    def __init__(self, draft: ConfigDraft, types: TypeTable) -> None:
        self._draft = draft
        self._types = types

    def nodes(
        self, drafts: Mapping[str, DraftNode], shared: _Layer = _NOTHING, depth: int = 0
    ) -> Mapping[str, model.Node]:
        """A site or CE without children gets a notice."""
        made: dict[str, model.Node] = {}
        for name, node in drafts.items():
            children = self.nodes(node.children, node.for_children, depth + 1)
            if not children and depth < 2:
                self._draft.notice(f"{_KINDS[depth]} {node.name} has no {_KINDS[depth + 1]}", node.source)
            made[name] = self.node(node, shared, children)
        return MappingProxyType(made)

    def node(
        self, node: DraftNode, shared: _Layer = _NOTHING, children: Mapping[str, model.Node] = _NOTHING
    ) -> model.Node:
        layers = {**node.layers, "": {**shared, **node.layers.get("", {})}}
        values = {vo: MappingProxyType(self._values(layer)) for vo, layer in layers.items()}
        sources = {(vo, folded): raw.source for vo, layer in layers.items() for folded, raw in layer.items()}
        return model.Node(
            name=node.name,
            params=values.pop(""),
            overlays=MappingProxyType(values),
            sources=MappingProxyType(sources),
            source=node.source,
            grid=node.grid,
            children=children,
        )

    def _values(self, layer: _Layer) -> dict[str, model.Value]:
        out: dict[str, model.Value] = {}
        for folded, raw in layer.items():
            declared = self._types.get_folded(folded)
            if raw.value == "" and declared is not None and declared.kind not in (Kind.STRING, Kind.LIST):
                self._draft.notice(f"{raw.name} is empty and counts as not given", raw.source)
                continue
            try:
                value = typed_value(raw.value, declared, commas=raw.commas)
                notices = check_value(folded, value)
            except BadValue as fault:
                self._draft.fault(f"{raw.name}: {fault}", raw.source)
            else:
                out[raw.name] = value
                for notice in notices:
                    self._draft.notice(f"{raw.name}: {notice}", raw.source)
        return out


# --- groups ---------------------------------------------------------------------------------------------


def _group(draft: ConfigDraft, name: str, raw: Mapping[str, RawParam]) -> model.GroupConfig:
    def value(key: str, read: Callable[[Any], Any], default: Any) -> Any:
        param = raw.get(key)
        if param is None:
            return default
        try:
            return read(param.value)
        except BadValue as fault:
            draft.fault(f"{param.name}: {fault}", param.source)
            return default

    share = value("share", _share, model.DEFAULT_SHARE)
    if share < _LEAST_SHARE:
        raw_share = raw["share"]
        draft.notice(f"{raw_share.name}: a share below {_LEAST_SHARE} counts as that", raw_share.source)
    properties = value("properties", _texts_of, [])
    return model.GroupConfig(
        name=name,
        vo=value("vo", _text, "") or draft.vo_of_all,
        share=max(share, _LEAST_SHARE),
        job_sharing=value("job_sharing", boolean_of, False) or "jobsharing" in map(model.fold, properties),
        background=value("background", boolean_of, False),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadValue("a text is expected")
    return value.strip()


def _share(value: object) -> float:
    share = float(number_in(value))
    if share < 0:
        raise BadValue("a share is not negative")
    return share


def _texts_of(value: object) -> list[str]:
    texts = model.split_list(value) if isinstance(value, str) else value if isinstance(value, list) else []
    return [item for item in texts if isinstance(item, str)]


# --- RequiredTag within Tag -------------------------------------------------------------------------------


def _lacking_tags(tree: model.ResourceTree, types: TypeTable) -> Iterator[tuple[str, FilePosition]]:
    """Queues that require a tag which they do not offer: no job can have it. Once for each place."""
    nodes = [tree.ce_defaults, *tree.ce_types.values(), *(node for _, node in tree.nodes())]
    names = chain.from_iterable(chain(node.params, *node.overlays.values()) for node in nodes)
    if not any(model.fold(name) == _REQUIRED_TAG for name in names):
        return
    reported: set[object] = set()
    for vo in dict.fromkeys(("", *(vo for node in nodes for vo in node.overlays))):
        for queue, params in all_queues(tree, vo=vo, types=types):
            required, offered = params.get(_REQUIRED_TAG), _texts(params.get(_TAG))
            if required is None or model.ANY in offered:
                continue
            cores = queue_settings(params, types).processors or 1
            offered = with_processor_tags(offered, cores)
            lacking = tuple(tag for tag in _texts(required) if tag not in offered)
            place = required.source or queue
            if lacking and (place, lacking) not in reported:
                reported.add((place, lacking))
                of_vo = f" for VO {vo}" if vo else ""
                message = (
                    f"RequiredTag: queue {'/'.join(queue)} requires {', '.join(lacking)}{of_vo} and does not offer "
                    "it: no job could ever run there; name it in Tag, too"
                )
                yield message, required.source or FilePosition()


def _texts(effective: EffectiveParam | None) -> tuple[str, ...]:
    return () if effective is None else tuple(map(model.as_text, model.as_scalars(effective.value)))
