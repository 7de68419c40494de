"""Where the effective values of a site, CE or queue come from: every level that says something, and where.

`inherit` decides what holds; here is told what it decided from. A property test holds both against each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lodesman.answers.nodes import NodePath
from lodesman.answers.vocabulary import Level
from lodesman.resources.inherit import (
    ACCESS,
    Effective,
    EffectiveParams,
    chain_of,
    type_defaults,
)
from lodesman.resources.kinds import TypeTable
from lodesman.resources.model import Node, ResourceTree, Source, Value, fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one level says of a parameter."""

    level: Level
    value: Value
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The value that holds, and what all levels say, the strongest first. A merged list holds them all together."""

    effective: Effective
    said: tuple[Said, ...]

    @property
    def beaten(self) -> tuple[Said, ...]:
        """What the levels say that have no part in the value."""
        return tuple(one for one in self.said if one.level not in self.effective.levels)


def find_nodes(tree: ResourceTree, path: str) -> tuple[NodePath, ...]:
    """The nodes that SITE, SITE/CE or SITE/CE/QUEUE may mean; names may hold slashes, so there may be several."""
    return tuple(_nodes(tree, path))


def _nodes(tree: ResourceTree, path: str) -> Iterator[NodePath]:
    for site in tree.sites.values():
        if path == site.name:
            yield NodePath(site.name)
        if not path.startswith(f"{site.name}/"):
            continue
        below = path[len(site.name) + 1 :]
        for element in site.ces.values():
            if below == element.name:
                yield NodePath(site.name, element.name)
            if below.startswith(f"{element.name}/") and below[len(element.name) + 1 :] in element.queues:
                yield NodePath(site.name, element.name, below[len(element.name) + 1 :])


def origins(tree: ResourceTree, node: NodePath, *, vo: str = "", types: TypeTable) -> dict[str, Origin]:
    """Every parameter of a node for a VO with all that is said of it, by folded name.

    Raises KeyError for a node that is not there.
    """
    chain = chain_of(tree, node, vo=vo, types=types)
    said: dict[str, list[Said]] = {}
    for level, holder, for_vo in _layers(tree, node, chain[0], vo=vo, types=types):
        for name, value in (holder.overlays.get(for_vo, {}) if for_vo else holder.params).items():
            folded = fold(name)
            if folded == ACCESS and value in ("", ()):
                continue
            source = holder.sources.get((for_vo, folded))
            said.setdefault(folded, []).append(Said(level=level, value=value, source=source))
    return {
        folded: Origin(effective=effective, said=tuple(reversed(said.get(folded, ()))))
        for folded, effective in chain[-1].items()
    }


def _layers(
    tree: ResourceTree, node: NodePath, of_its_site: EffectiveParams, *, vo: str, types: TypeTable
) -> Iterator[tuple[Level, Node, str]]:
    """All that can say something, the weakest first: level, who says it, and for which VO."""
    site = tree.sites[node.site]
    if node.ce:
        yield Level.DEFAULT, tree.defaults.of_all, ""
        element = site.ces[node.ce]
        of_type = type_defaults(element, of_its_site, vo=vo, types=types, defaults=tree.defaults)
        if of_type is not None:
            yield Level.CE_TYPE, of_type, ""
    holders: list[tuple[Level, Level, Node]] = [(Level.SITE, Level.SITE_VO, site)]
    if node.ce:
        holders.append((Level.CE, Level.CE_VO, site.ces[node.ce]))
    if node.queue:
        holders.append((Level.QUEUE, Level.QUEUE_VO, site.ces[node.ce].queues[node.queue]))
    for own, overlay, holder in holders:
        yield own, holder, ""
        if vo:
            yield overlay, holder, vo
