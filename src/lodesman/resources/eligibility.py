"""Which nodes of the resource tree fulfil selections, and why the others do not (seed rfc7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lodesman.answers.vocabulary import Kind
from lodesman.errors import InvalidRequest
from lodesman.resources.build import ResourceConfig
from lodesman.resources.criterion import Criterion, compile_requirements, judge, offers
from lodesman.resources.inherit import ACCESS, Effective, EffectiveParams, of_ce, of_queue, of_site
from lodesman.resources.model import ComputingElement, Site, as_text
from lodesman.resources.reasons import AccessDenied, Reason

NODE_KINDS = ("Queue", "CE", "Site")

Select = Mapping[str, object]
NodeTree = dict[str, dict[str, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeVerdict:
    """What was found about one node; no reason means eligible. `ce` and `queue` are "" for nodes above."""

    site: str
    ce: str = ""
    queue: str = ""
    reasons: tuple[Reason, ...] = ()

    @property
    def eligible(self) -> bool:
        """Whether nothing speaks against the node."""
        return not self.reasons


def access_refusal(access: Effective | None, vo: str) -> AccessDenied | None:
    """Why a VO may not use a node with this access list (parameter VO); None if it may.

    No list and an empty list admit everybody. Without a VO ("") nothing is checked.
    """
    if access is None or not vo:
        return None
    allowed = offers(access.value, Kind.LIST, "")
    if not allowed or vo in allowed:
        return None
    return AccessDenied(vo=vo, allowed=tuple(as_text(item) for item in allowed), level=access.level)


def refusals(
    criteria: tuple[Criterion, ...], params: Mapping[str, Effective], *, vo: str = ""
) -> tuple[Reason, ...]:
    """All that speaks against a node with these effective values; empty if it is eligible."""
    denied = access_refusal(params.get(ACCESS), vo)
    judged = (judge(criterion, params.get(criterion.folded)) for criterion in criteria)
    return (*([denied] if denied else ()), *(reason for reason in judged if reason is not None))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    above: tuple[Criterion, ...]
    node: tuple[Criterion, ...]


class Resources:
    """The resources of one VO, or ("" as VO) of nobody in particular: no overlays, no access lists."""

    def __init__(self, config: ResourceConfig, *, vo: str = "") -> None:
        self._tree = config.tree
        self._types = config.types
        self._vo = vo

    def get_eligible_nodes(
        self, node_kind: str, ce_select: Select | None = None, queue_select: Select | None = None
    ) -> NodeTree:
        """The eligible nodes as {site: {CE: [queues]}}; branches without an eligible node are left out.

        For 'Queue', `ce_select` is held against the values of the CE and `queue_select` against those of the
        queue. For 'CE' and 'Site' there is one selection, the first, held against the values of the node
        itself; the tree then ends at that level. Raises InvalidRequest for another kind or a second
        selection there, InvalidJob for a value that its type cannot read. The selections are not changed.
        """
        found: NodeTree = {}
        for verdict in self.explain_nodes(node_kind, ce_select, queue_select):
            if verdict.eligible:
                ces = found.setdefault(verdict.site, {})
                queues = ces.setdefault(verdict.ce, []) if verdict.ce else []
                queues.extend([verdict.queue] if verdict.queue else ())
        return found

    getEligibleNodes = get_eligible_nodes  # noqa: N815 - DIRAC's spelling, as the seed has it

    def explain_nodes(
        self, node_kind: str, ce_select: Select | None = None, queue_select: Select | None = None
    ) -> list[NodeVerdict]:
        """A verdict for every node of the kind, in order; arguments and errors as `get_eligible_nodes`."""
        if node_kind not in NODE_KINDS:
            raise InvalidRequest(f"No node kind {node_kind!r}: it is one of {', '.join(NODE_KINDS)}.")
        if queue_select and node_kind != "Queue":
            raise InvalidRequest(f"A queue selection makes no sense for nodes of kind {node_kind!r}.")
        search = _Search(
            above=compile_requirements(ce_select or {}, self._types),
            node=compile_requirements(queue_select or {}, self._types),
        )
        return list(self._verdicts(node_kind, search))

    def _verdicts(self, node_kind: str, search: _Search) -> Iterator[NodeVerdict]:
        for site in self._tree.sites.values():
            params = of_site(site, vo=self._vo, types=self._types)
            if node_kind == "Site":
                yield NodeVerdict(site=site.name, reasons=refusals(search.above, params, vo=self._vo))
                continue
            for element in site.ces.values():
                yield from self._verdicts_of_ce(node_kind, search, (site, element), params)

    def _verdicts_of_ce(
        self, node_kind: str, search: _Search, place: tuple[Site, ComputingElement], above: EffectiveParams
    ) -> Iterator[NodeVerdict]:
        site, element = place
        params = of_ce(element, above, vo=self._vo, types=self._types, defaults=self._tree.defaults)
        if node_kind == "CE":
            reasons = refusals(search.above, params, vo=self._vo)
            yield NodeVerdict(site=site.name, ce=element.name, reasons=reasons)
            return
        of_element = refusals(search.above, params)
        for queue in element.queues.values():
            own = of_queue(queue, params, vo=self._vo, types=self._types)
            reasons = (*of_element, *refusals(search.node, own, vo=self._vo))
            yield NodeVerdict(site=site.name, ce=element.name, queue=queue.name, reasons=reasons)
