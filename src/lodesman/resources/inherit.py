"""Effective values: queue(VO) > queue > CE(VO) > CE > site(VO) > site > CE type > default, the level remembered.

Scalars and lists of a deeper level replace those above; a parameter whose type says `merge` unites the values
of all levels. An empty VO access list says nothing: the list above it stands (RFC #5).

The two weakest levels are DIRAC's defaults for all CEs and for CEs of a type; they hold for CEs and queues, not for
sites. The type of a CE is its effective `CEType`, else its `Backend`; a queue cannot change it. Sources: DESIGN 3.3;
`/Resources/Computing` of DIRAC's administrators' guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from lodesman.answers.nodes import NodePath, QueueId
from lodesman.answers.vocabulary import Level
from lodesman.resources.kinds import TypeTable
from lodesman.resources.model import (
    CeDefaults,
    ComputingElement,
    Node,
    Queue,
    ResourceTree,
    Site,
    Source,
    Value,
    as_scalars,
    as_text,
    fold,
    without_repetition,
)

ACCESS = "vo"  # folded name of the access list
SITE_NAME, CE_NAME, QUEUE_NAME = "Site", "CEName", "QueueName"
CE_TYPE_NAMES = ("cetype", "backend")  # folded; the first that is there names the type


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """The value that holds for a node, and who said so.

    `level` is the deepest level that contributed, `levels` all of them (more than one only if merged).
    `source` is None for the node's own names.
    """

    name: str
    value: Value
    level: Level
    levels: tuple[Level, ...]
    source: Source | None = None


EffectiveParams = dict[str, Effective]  # by folded name


def effective_params(
    tree: ResourceTree, node: NodePath, *, vo: str = "", types: TypeTable | None = None
) -> Mapping[str, Effective]:
    """Every parameter of a node for a VO, by folded name: of (site, CE, queue), or with empty names of what is above.

    Raises KeyError for a node that is not there.
    """
    return chain_of(tree, node, vo=vo, types=types or TypeTable())[-1]


def chain_of(tree: ResourceTree, node: NodePath, *, vo: str, types: TypeTable) -> list[EffectiveParams]:
    """The parameters of the site, of the CE and of the queue, as far as the names go. Raises KeyError."""
    named, ce, queue = node
    site = tree.sites[named]
    found = [of_site(site, vo=vo, types=types)]
    if ce:
        element = site.ces[ce]
        found.append(of_ce(element, found[-1], vo=vo, types=types, defaults=tree.defaults))
        if queue:
            found.append(of_queue(element.queues[queue], found[-1], vo=vo, types=types))
    return found


def of_site(site: Site, *, vo: str, types: TypeTable) -> EffectiveParams:
    """The parameters of a site, its name (`Site`) among them unless a parameter is called so."""
    return _layered(site, {}, (Level.SITE, Level.SITE_VO, SITE_NAME), vo=vo, types=types)


def of_ce(
    element: ComputingElement,
    above: EffectiveParams,
    *,
    vo: str,
    types: TypeTable,
    defaults: CeDefaults,
) -> EffectiveParams:
    """The parameters of a CE of a site whose parameters are `above`, with the defaults beneath them."""
    layer = (Level.CE, Level.CE_VO, CE_NAME)
    beneath: tuple[tuple[Level, Node], ...] = ((Level.DEFAULT, defaults.of_all),)
    of_type = type_defaults(element, above, vo=vo, types=types, defaults=defaults)
    if of_type is not None:
        beneath = (*beneath, (Level.CE_TYPE, of_type))
    return _layered(element, _over(beneath, above, types), layer, vo=vo, types=types)


def type_defaults(
    element: ComputingElement, above: EffectiveParams, *, vo: str, types: TypeTable, defaults: CeDefaults
) -> Node | None:
    """The defaults of the type that a CE is of; what they say themselves does not change it."""
    if not defaults.of_type:
        return None
    layer = (Level.CE, Level.CE_VO, CE_NAME)
    untyped = _over(((Level.DEFAULT, defaults.of_all),), above, types)
    return defaults.of_type.get(ce_type(_layered(element, untyped, layer, vo=vo, types=types)))


def ce_type(params: Mapping[str, Effective]) -> str:
    """The type of a CE with these parameters, "" if they name none."""
    named = (params[name].value for name in CE_TYPE_NAMES if name in params)
    return next((text for value in named for text in map(as_text, as_scalars(value)) if text), "")


def _over(
    beneath: tuple[tuple[Level, Node], ...], above: EffectiveParams, types: TypeTable
) -> EffectiveParams:
    """The parameters of a site over what CEs have by default."""
    if not any(node.params for _, node in beneath):
        return above
    params: EffectiveParams = {}
    for level, node in beneath:
        _lay(params, node, level=level, types=types)
    for folded, own in above.items():
        declared = types.get_folded(folded)
        before = params.get(folded) if declared is not None and declared.merge else None
        params[folded] = own if before is None else _united(before, own)
    return params


def _united(before: Effective, own: Effective) -> Effective:
    """The values of several levels together; the deepest has the say on all else."""
    return replace(own, value=_union(before.value, own.value), levels=(*before.levels, *own.levels))


def of_queue(queue: Queue, above: EffectiveParams, *, vo: str, types: TypeTable) -> EffectiveParams:
    """The parameters of a queue of a CE whose parameters are `above`."""
    return _layered(queue, above, (Level.QUEUE, Level.QUEUE_VO, QUEUE_NAME), vo=vo, types=types)


def all_queues(
    tree: ResourceTree, *, vo: str = "", types: TypeTable
) -> Iterator[tuple[QueueId, EffectiveParams]]:
    """Every queue with its parameters; siblings share the values they inherit."""
    for site in tree.sites.values():
        site_params = of_site(site, vo=vo, types=types)
        for element in site.ces.values():
            ce_params = of_ce(element, site_params, vo=vo, types=types, defaults=tree.defaults)
            for queue in element.queues.values():
                params = of_queue(queue, ce_params, vo=vo, types=types)
                yield QueueId(site.name, element.name, queue.name), params


def _layered(
    node: Node, above: EffectiveParams, layer: tuple[Level, Level, str], *, vo: str, types: TypeTable
) -> EffectiveParams:
    own, overlay, name_parameter = layer
    named = Effective(name=name_parameter, value=node.name, level=own, levels=(own,))
    params = dict(above)
    params.setdefault(fold(name_parameter), named)
    _lay(params, node, level=own, types=types)
    if vo and vo in node.overlays:
        _lay(params, node, level=overlay, types=types, vo=vo)
    return params


def _lay(params: EffectiveParams, node: Node, *, level: Level, types: TypeTable, vo: str = "") -> None:
    """Put one layer of a node (its own parameters, or those of a VO) over what lies beneath."""
    for name, value in (node.overlays[vo] if vo else node.params).items():
        folded = fold(name)
        if folded == ACCESS and value in ("", ()):
            continue
        declared = types.get_folded(folded)
        before = params.get(folded) if declared is not None and declared.merge else None
        source = node.sources.get((vo, folded))
        own = Effective(name=name, value=value, level=level, levels=(level,), source=source)
        params[folded] = own if before is None else _united(before, own)


def _union(above: Value, own: Value) -> Value:
    return without_repetition((*as_scalars(above), *as_scalars(own)))
