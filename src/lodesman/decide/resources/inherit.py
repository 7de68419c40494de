"""Effective values: queue(VO) > queue > CE(VO) > CE > site(VO) > site > CE type > default, the level remembered.

A deeper level replaces a higher one; a type with `merge` unites all levels. An empty VO access list says nothing (RFC
#5). The two weakest levels are DIRAC's defaults (`/Resources/Computing`), for CEs and queues only. A CE's type is its
effective `CEType`, else its `Backend`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lodesman.decide.resources import model
from lodesman.decide.resources.kinds import TypeTable
from lodesman.decide.resources.model import Node, Value, fold
from lodesman.wire.nodes import NodePath, QueueId
from lodesman.wire.vocabulary import Level

ACCESS = "vo"  # folded name of the access list
# By depth: the levels of a node and of its overlay, and the parameter that its name is.
_LEVELS = (
    (Level.SITE, Level.SITE_VO, "Site"),
    (Level.CE, Level.CE_VO, "CEName"),
    (Level.QUEUE, Level.QUEUE_VO, "QueueName"),
)
_CE_TYPE = ("cetype", "backend")  # folded; the first that is there names the type


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveParam:
    """The value for a node, and its level."""

    name: str
    value: Value
    level: Level  # the deepest that contributed
    levels: tuple[Level, ...]  # all that contributed; more than one only if merged
    said: Value  # what `level` itself says
    source: model.FilePosition | None = None
    implied: bool = False  # it is a node's own name
    # what would hold without `level`
    above: EffectiveParam | None = field(default=None, compare=False, repr=False)

    def all_said(self) -> Iterator[EffectiveParam]:
        """What levels say, the strongest first; `said` of each is its own value."""
        here: EffectiveParam | None = self
        while here is not None:
            if not here.implied:
                yield here
            here = here.above


EffectiveParams = dict[str, EffectiveParam]  # by folded name


def effective_params(
    tree: model.ResourceTree, node: NodePath, *, vo: str = "", types: TypeTable | None = None
) -> Mapping[str, EffectiveParam]:
    """Every parameter of a node for a VO, by folded name. Raises KeyError for an unknown node."""
    site = tree.sites[node.site]
    inheritance = _Inheritance(tree, vo, types or TypeTable())
    params = inheritance.params_of(site, {}, 0)
    if node.ce:
        ce = site.children[node.ce]
        params = inheritance.params_of_ce(ce, site, params)
        if node.queue:
            params = inheritance.params_of(ce.children[node.queue], params, 2)
    return params


def all_queues(
    tree: model.ResourceTree, *, vo: str = "", types: TypeTable
) -> Iterator[tuple[QueueId, EffectiveParams]]:
    """Siblings share inherited values."""
    inheritance = _Inheritance(tree, vo, types)
    for site in tree.sites.values():
        of_site = inheritance.params_of(site, {}, 0)
        for ce in site.children.values():
            of_ce = inheritance.params_of_ce(ce, site, of_site)
            for queue in ce.children.values():
                yield QueueId(site.name, ce.name, queue.name), inheritance.params_of(queue, of_ce, 2)


class _Inheritance:
    def __init__(self, tree: model.ResourceTree, vo: str, types: TypeTable) -> None:
        self._tree = tree
        self._vo = vo
        self._types = types

    def params_of(self, node: Node, above: EffectiveParams, depth: int) -> EffectiveParams:
        own, overlay, name = _LEVELS[depth]
        params = dict(above)
        above_name = params.get(fold(name))
        if not depth or above_name is None:
            params[fold(name)] = EffectiveParam(
                name=name,
                value=node.name,
                level=own,
                levels=(own,),
                said=node.name,
                implied=True,
                above=above_name,
            )
        self._lay(params, node, own)
        if self._vo and self._vo in node.overlays:
            self._lay(params, node, overlay, self._vo)
        return params

    def params_of_ce(self, ce: Node, site: Node, of_site: EffectiveParams) -> EffectiveParams:
        """A CE's parameters, with the defaults beneath its site's."""
        tree = self._tree
        untyped = self.params_of(ce, self._over_defaults({Level.DEFAULT: tree.ce_defaults}, site, of_site), 1)
        of_type = tree.ce_types.get(_ce_type(untyped)) if tree.ce_types else None
        if of_type is None:
            return untyped
        defaults = {Level.DEFAULT: tree.ce_defaults, Level.CE_TYPE: of_type}
        return self.params_of(ce, self._over_defaults(defaults, site, of_site), 1)

    def _over_defaults(
        self, defaults: Mapping[Level, Node], site: Node, of_site: EffectiveParams
    ) -> EffectiveParams:
        params: EffectiveParams = {}
        for level, node in defaults.items():
            self._lay(params, node, level)
        return self.params_of(site, params, 0) if params else of_site

    def _lay(self, params: EffectiveParams, node: Node, level: Level, vo: str = "") -> None:
        for name, value in (node.overlays[vo] if vo else node.params).items():
            folded = fold(name)
            if folded == ACCESS and value in ("", ()):
                continue
            declared = self._types.get_folded(folded)
            above = params.get(folded)
            united, levels = value, [level]
            if above is not None and declared is not None and declared.merge:
                united = model.without_repetition((*model.as_scalars(above.value), *model.as_scalars(value)))
                levels = [*above.levels, level]
            params[folded] = EffectiveParam(
                name=name,
                value=united,
                level=level,
                levels=tuple(levels),
                source=node.sources.get((vo, folded)),
                said=value,
                above=above,
            )


def _ce_type(params: Mapping[str, EffectiveParam]) -> str:
    """'' if the parameters name none."""
    named = (params[name].value for name in _CE_TYPE if name in params)
    return next((text for value in named for text in map(model.as_text, model.as_scalars(value)) if text), "")
