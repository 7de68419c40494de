"""Effective values: queue(VO) > queue > CE(VO) > CE > site(VO) > site, the level remembered (DESIGN 3.3).

Scalars and lists of a deeper level replace those above; a parameter whose type says `merge` unites the values
of all levels. An empty VO access list says nothing: the list above it stands (RFC #5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lodesman.resources.kinds import TypeTable
from lodesman.resources.model import (
    ComputingElement,
    Level,
    Node,
    Queue,
    QueueId,
    ResourceTree,
    Site,
    Source,
    Value,
    as_scalars,
    fold,
    without_repetition,
)

ACCESS = "vo"  # folded name of the access list
SITE_NAME, CE_NAME, QUEUE_NAME = "Site", "CEName", "QueueName"


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
    tree: ResourceTree, queue: QueueId, *, vo: str = "", types: TypeTable | None = None
) -> Mapping[str, Effective]:
    """Every parameter of a queue for a VO, by folded name. Raises KeyError for a queue that is not there."""
    table = types or TypeTable()
    site = tree.sites[queue.site]
    element = site.ces[queue.ce]
    above = of_ce(element, of_site(site, vo=vo, types=table), vo=vo, types=table)
    return of_queue(element.queues[queue.queue], above, vo=vo, types=table)


def of_site(site: Site, *, vo: str, types: TypeTable) -> EffectiveParams:
    """The parameters of a site, its name (`Site`) among them unless a parameter is called so."""
    return _layered(site, {}, (Level.SITE, Level.SITE_VO, SITE_NAME), vo=vo, types=types)


def of_ce(element: ComputingElement, above: EffectiveParams, *, vo: str, types: TypeTable) -> EffectiveParams:
    """The parameters of a CE of a site whose parameters are `above`."""
    return _layered(element, above, (Level.CE, Level.CE_VO, CE_NAME), vo=vo, types=types)


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
            ce_params = of_ce(element, site_params, vo=vo, types=types)
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
        united = value if before is None else _union(before.value, value)
        levels = (level,) if before is None else (*before.levels, level)
        source = node.sources.get((vo, folded))
        params[folded] = Effective(name=name, value=united, level=level, levels=levels, source=source)


def _union(above: Value, own: Value) -> Value:
    return without_repetition((*as_scalars(above), *as_scalars(own)))
