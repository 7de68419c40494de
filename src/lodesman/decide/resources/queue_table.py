"""Requirements against all queues at once. A property test holds: a bit is set <=> `requirement.mismatches` finds
nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any

from msgspec.structs import replace

from lodesman.decide.masks.bits import Mask, bits, mask_of, numbered
from lodesman.decide.resources.expression_table import ExpressionColumn, PlacementClause
from lodesman.decide.resources.inherit import ACCESS, EffectiveParam, EffectiveParams, all_queues
from lodesman.decide.resources.kinds import (
    AT_LEAST,
    ParameterType,
    TypeTable,
    spelled_number,
    truth_of,
    version_key,
)
from lodesman.decide.resources.load import ResourceConfig
from lodesman.decide.resources.model import Scalar, Value
from lodesman.decide.resources.requirement import CONSTRAINT, Mismatch, Requirement, mismatches, offers
from lodesman.wire.nodes import QueueId
from lodesman.wire.vocabulary import Kind


class QueueTable:
    """A tree's queues as one VO sees them. `bits`: as stored; queues without one are numbered behind them."""

    def __init__(
        self, config: ResourceConfig, vo: str = "", bits: Mapping[QueueId, int] | None = None
    ) -> None:
        self.types = config.types
        self.vo = vo
        self._bits = numbered(config.tree.queue_ids(), bits)
        self.queues = {self._bits[queue]: queue for queue in config.tree.queue_ids()}  # in configured order
        inherited = all_queues(config.tree, vo=vo, types=self.types)
        self._params = {self._bits[queue]: params for queue, params in inherited}
        self.full = mask_of(self.queues)  # all queues
        columns = _columns(self._params, self.types)
        access = columns.get(ACCESS)
        lists = access.offered if access and vo else ()
        self._expressions = ExpressionColumn(self._params, vo)
        self._columns: dict[str, _Column | ExpressionColumn] = {**columns, CONSTRAINT: self._expressions}
        self.open_to_vo = self.full & ~reduce(
            or_, (mask for admitted, mask in lists if vo not in admitted), 0
        )
        """The queues whose access list admits the VO."""

    def bit(self, queue: QueueId) -> int | None:
        """None if the queue has no bit."""
        return self._bits.get(queue)

    def params(self, bit: int) -> Mapping[str, EffectiveParam]:
        """A queue's effective values by folded name; raises KeyError."""
        return self._params[bit]

    def sites(self, mask: Mask) -> tuple[str, ...]:
        """Sites of the queues, sorted."""
        return tuple(sorted({self.queues[bit].site for bit in bits(mask)}))

    def eligible_mask(self, criteria: Iterable[Requirement]) -> Mask:
        """The queues that fulfil all criteria and admit the VO."""
        mask = self.open_to_vo
        for requirement in criteria:
            column = self._columns.get(requirement.folded)
            if column is None:
                return 0
            mask &= column.met(requirement)
        return mask

    def failing(self, criteria: Iterable[Requirement]) -> list[Mask]:
        """By requirement, the queues that fail it."""
        columns = ((criterion, self._columns.get(criterion.folded)) for criterion in criteria)
        return [self.full & ~column.met(criterion) if column else self.full for criterion, column in columns]

    def offered(self, folded: str, mask: Mask) -> list[tuple[tuple[Scalar, ...], int]]:
        """The queues' values of a parameter, and how many have each, but for ANY."""
        column = self._columns.get(folded)
        offers = () if column is None else column.offered
        return [(scalars, hit.bit_count()) for scalars, queues in offers if (hit := queues & mask)]

    def placement(self, criteria: Sequence[Requirement]) -> tuple[PlacementClause, ...]:
        """What only sites' ads decide of the expressions, for queues that fulfil all else."""
        clauses = self._expressions.placement(criteria)
        mask = self.eligible_mask(criteria) if clauses else 0
        return tuple(
            [replace(clause, queues=clause.queues & mask) for clause in clauses if clause.queues & mask]
        )

    def reasons(self, bit: int, criteria: tuple[Requirement, ...]) -> tuple[Mismatch, ...]:
        """What speaks against one queue."""
        return mismatches(criteria, self._params[bit], vo=self.vo)


# --- one parameter of all queues -------------------------------------------------------------------------

_Offer = tuple[Scalar, Mask]  # a value, and the queues that offer it
_MetBy = Callable[[Scalar], Mask]  # the queues whose values fulfil a wanted value, but for wildcards


class _Column:
    __slots__ = ("_met_by", "_open", "offered")

    def __init__(self, values: Iterable[tuple[Value, Mask]], declared: ParameterType | None) -> None:
        kind, unit = (declared.kind, declared.unit) if declared else (Kind.DEDUCED, "")
        self._open = 0
        # all values of a queue together, and the queues that offer just that
        self.offered: list[tuple[tuple[Scalar, ...], Mask]] = []
        for value, mask in values:
            scalars = offers(value, kind, unit)
            if scalars is None:
                self._open |= mask
            elif scalars:
                self.offered.append((scalars, mask))
        single = [(scalar, mask) for scalars, mask in self.offered for scalar in scalars]
        self._met_by = _deduced(single) if declared is None else _declared(single, declared)

    def met(self, requirement: Requirement) -> Mask:
        met = self._open
        for wanted in requirement.wanted:
            met |= self._met_by(wanted)
        return met


def _columns(params: Mapping[int, EffectiveParams], types: TypeTable) -> dict[str, _Column]:
    holders: dict[str, dict[object, tuple[Value, list[int]]]] = {}
    for bit, values in params.items():
        for folded, effective in values.items():
            value = effective.value
            # The types belong to the identity: 1 and True are equal in Python.
            key = (value, tuple(map(type, value)) if isinstance(value, tuple) else type(value))
            holders.setdefault(folded, {}).setdefault(key, (value, []))[1].append(bit)
    return {
        folded: _Column(
            ((value, mask_of(members)) for value, members in params_of.values()), types.get_folded(folded)
        )
        for folded, params_of in holders.items()
    }


def _declared(offered: Sequence[_Offer], declared: ParameterType) -> _MetBy:
    if declared.kind is Kind.VERSION:
        masks = _masks((version_key(str(value)), mask) for value, mask in offered)
    else:
        masks = _masks(offered)
    met_by = _at_least(masks) if declared.operator == AT_LEAST else lambda wanted: masks.get(wanted, 0)
    return (lambda wanted: met_by(version_key(str(wanted)))) if declared.kind is Kind.VERSION else met_by


def _masks(offered: Iterable[tuple[Any, Mask]]) -> dict[Any, Mask]:
    masks: dict[Any, Mask] = {}
    for value, mask in offered:
        masks[value] = masks.get(value, 0) | mask
    return masks


def _at_least(masks: Mapping[Any, Mask]) -> Callable[[Any], Mask]:
    forms = sorted(masks)
    as_much = [*accumulate((masks[form] for form in reversed(forms)), or_, initial=0)][::-1]
    return lambda form: as_much[bisect_left(forms, form)]


def _deduced(offered: Sequence[_Offer]) -> _MetBy:
    """For undeclared parameters: what counts depends on both sides (`kinds`)."""
    texts = [(value, mask) for value, mask in offered if isinstance(value, str)]
    truths = [(value, mask) for value, mask in offered if isinstance(value, bool)]
    numbers = [(value, mask) for value, mask in offered if not isinstance(value, str | bool)]
    spelled = [(n, mask) for value, mask in texts if (n := spelled_number(value)) is not None]
    spoken = [(truth, mask) for value, mask in texts if (truth := truth_of(value)) is not None]
    of_text, of_truth = _masks(texts), _masks(truths)
    of_truth_or_text = _masks([*truths, *spoken])
    at_least, at_least_or_text = _at_least(_masks(numbers)), _at_least(_masks([*numbers, *spelled]))

    def met_by(wanted: Scalar) -> Mask:
        if isinstance(wanted, bool):
            return of_truth_or_text.get(wanted, 0)
        if not isinstance(wanted, str):
            return at_least_or_text(wanted)
        met = of_text.get(wanted, 0)
        if numbers and (number := spelled_number(wanted)) is not None:
            met |= at_least(number)
        if truths and (truth := truth_of(wanted)) is not None:
            met |= of_truth.get(truth, 0)
        return met

    return met_by
