"""Requirements evaluated against all queues at once, by inverted bitsets (DESIGN 3.3).

A `QueueTable` is built once per VO and configuration. A set of requirements is then a few AND and OR of masks
instead of a loop over the queues; reasons are made only for the queues somebody asks about, by the very
predicate of `criterion.judge`. A property test holds: bit set <=> `eligibility.refusals` finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lodesman.answers.nodes import QueueId
from lodesman.resources.build import ResourceConfig
from lodesman.resources.columns import WholeColumn
from lodesman.resources.criterion import Criterion, compile_requirements
from lodesman.resources.eligibility import NodeVerdict, access_refusal, refusals
from lodesman.resources.inherit import ACCESS, Effective, EffectiveParams, all_queues
from lodesman.resources.kinds import TypeTable
from lodesman.resources.model import Scalar, Value
from lodesman.resources.planes import Change, NearestMiss, Plane, bits, changes, counts, nearest
from lodesman.resources.reasons import Reason

Requirements = Mapping[str, object]


class QueueTable:
    """All queues of a tree as one VO sees them ("": nobody in particular), in configured order."""

    def __init__(self, config: ResourceConfig, vo: str = "") -> None:
        self.types = config.types
        self.vo = vo
        ids: list[QueueId] = []
        self._params: list[EffectiveParams] = []
        for queue, params in all_queues(config.tree, vo=vo, types=self.types):
            ids.append(queue)
            self._params.append(params)
        self.queues = tuple(ids)
        """The identity of each queue; the index is its bit."""
        self.full = (1 << len(ids)) - 1
        """The mask of all queues."""
        self._ordinals = {queue: ordinal for ordinal, queue in enumerate(ids)}
        self._columns = _columns(self._params, self.types)
        self.open_to_vo = self._admitting()
        """The queues whose access list admits the VO."""

    def bit(self, queue: QueueId) -> int:
        """The bit of a queue; raises KeyError if there is no such queue."""
        return self._ordinals[queue]

    def params(self, queue: QueueId) -> Mapping[str, Effective]:
        """The effective values of a queue by folded name; raises KeyError if there is no such queue."""
        return self._params[self._ordinals[queue]]

    def names(self, mask: int) -> list[QueueId]:
        """The queues of a mask, in order."""
        return [self.queues[ordinal] for ordinal in bits(mask)]

    def sites(self, mask: int) -> tuple[str, ...]:
        """The sites of the queues of a mask, sorted."""
        return tuple(sorted({self.queues[ordinal].site for ordinal in bits(mask)}))

    def compile(self, requirements: Requirements) -> tuple[Criterion, ...]:
        """The criteria of a set of requirements under the types of this table; raises InvalidJob."""
        return compile_requirements(requirements, self.types)

    def eligible_mask(self, requirements: Requirements | tuple[Criterion, ...]) -> int:
        """The queues that fulfil all requirements and admit the VO. Raises InvalidJob."""
        criteria = requirements if isinstance(requirements, tuple) else self.compile(requirements)
        mask = self.open_to_vo
        columns = self._columns
        for criterion in criteria:
            column = columns.get(criterion.folded)
            if column is None:
                return 0
            mask &= column.met(criterion)
        return mask

    def offered(self, folded: str, mask: int) -> list[tuple[tuple[Scalar, ...], int]]:
        """What the queues of a mask offer of a parameter, and how many of them just that; who offers all (ANY) or nothing
        is left out.
        """
        column = self._columns.get(folded)
        found = () if column is None else column.offered
        return [(scalars, hit.bit_count()) for scalars, queues in found if (hit := queues & mask)]

    def assess(self, requirements: Requirements | tuple[Criterion, ...]) -> Assessment:
        """Which queues fail which requirement. Raises InvalidJob for bad requirements."""
        criteria = requirements if isinstance(requirements, tuple) else self.compile(requirements)
        failing: list[int] = []
        missing: list[int] = []
        for criterion in criteria:
            column = self._columns.get(criterion.folded)
            missing.append(self.full & ~column.present if column else self.full)
            failing.append(self.full & ~column.met(criterion) if column else self.full)
        return Assessment(
            table=self,
            criteria=criteria,
            failing=tuple(failing),
            missing=tuple(missing),
            denied=self.full & ~self.open_to_vo,
        )

    def reasons(self, ordinal: int, criteria: tuple[Criterion, ...]) -> tuple[Reason, ...]:
        """All that speaks against one queue."""
        return refusals(criteria, self._params[ordinal], vo=self.vo)

    def _admitting(self) -> int:
        verdicts: dict[int, bool] = {}  # siblings share the effective value they inherit
        mask = 0
        for ordinal, params in enumerate(self._params):
            access = params.get(ACCESS)
            if id(access) not in verdicts:
                verdicts[id(access)] = access_refusal(access, self.vo) is None
            mask |= verdicts[id(access)] << ordinal
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """A set of requirements held against all queues of a table.

    `failing` and `missing` (the parameter is not declared at all) have a mask per criterion; `denied` are the
    queues whose access list does not name the VO.
    """

    table: QueueTable
    criteria: tuple[Criterion, ...]
    failing: tuple[int, ...]
    missing: tuple[int, ...]
    denied: int

    @property
    def eligible(self) -> int:
        """The queues against which nothing speaks."""
        against = self.denied
        for mask in self.failing:
            against |= mask
        return self.table.full & ~against

    def counts(self) -> list[tuple[str, int]]:
        """How many queues fall away by each criterion, worst first; the access list counts as "VO"."""
        return counts(self._planes())

    def nearest(self) -> NearestMiss:
        """The queues with the fewest failing criteria."""
        return nearest(self._planes(), self.table.full)

    def changes(self) -> list[Change]:
        """For the nearest queues: the sets of criteria that they fail, those that admit most queues first."""
        return changes(self._planes(), self.table.full)

    def reasons(self, queue: QueueId) -> tuple[Reason, ...]:
        """All that speaks against one queue; raises KeyError if there is no such queue."""
        ordinal = self.table.bit(queue)
        bit = 1 << ordinal
        against = tuple(
            criterion for criterion, mask in zip(self.criteria, self.failing, strict=True) if mask & bit
        )
        return self.table.reasons(ordinal, against)

    def verdicts(self, mask: int | None = None) -> Iterator[NodeVerdict]:
        """A verdict with all reasons for each queue (of a mask)."""
        for ordinal in bits(self.table.full if mask is None else mask):
            queue = self.table.queues[ordinal]
            yield NodeVerdict(site=queue.site, ce=queue.ce, queue=queue.queue, reasons=self.reasons(queue))

    def _planes(self) -> list[Plane]:
        named = [(item.parameter, mask) for item, mask in zip(self.criteria, self.failing, strict=True)]
        return [(name, mask) for name, mask in (("VO", self.denied), *named) if mask]


def _columns(params: list[EffectiveParams], types: TypeTable) -> dict[str, WholeColumn]:
    masks: dict[str, dict[object, int]] = {}
    shown: dict[object, Value] = {}
    for ordinal, values in enumerate(params):
        bit = 1 << ordinal
        for folded, effective in values.items():
            value = effective.value
            # The types belong to the identity: 1 and True are equal in Python.
            key = (value, tuple(map(type, value)) if isinstance(value, tuple) else type(value))
            shown[key] = value
            holders = masks.setdefault(folded, {})
            holders[key] = holders.get(key, 0) | bit
    return {
        folded: WholeColumn([(shown[key], mask) for key, mask in holders.items()], types.get_folded(folded))
        for folded, holders in masks.items()
    }
