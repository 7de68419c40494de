"""Requirements held against all queues at once, by masks of queues.

A `QueueTable` is made once per VO and configuration. A set of Requirements is then a few AND and OR of masks instead of a
loop over the queues; reasons are made only for the queues in question, by the very predicate of `criterion.judge`. A
property test holds: a bit is set <=> `criterion.refusals` finds nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from lodesman.answers.nodes import QueueId
from lodesman.answers.vocabulary import Kind
from lodesman.masks.bits import Mask, bits, mask_of
from lodesman.resources.build import ResourceConfig
from lodesman.resources.criterion import Criterion, access_refusal, offers, refusals
from lodesman.resources.inherit import ACCESS, Effective, EffectiveParams, all_queues
from lodesman.resources.kinds import AT_LEAST, ParameterType, TypeTable, spelled_number, truth_of
from lodesman.resources.model import Scalar, Value
from lodesman.resources.reasons import Reason
from lodesman.resources.versions import version_key


class Numbering:
    """The bit of each CE queue in every mask of queues (ADR 0028). Frozen; equal ones have equal bits."""

    __slots__ = ("_hash", "bits")

    def __init__(self, bits: Mapping[QueueId, int]) -> None:
        self.bits = bits
        self._hash = hash(frozenset(bits.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbering) and self.bits == other.bits

    def __hash__(self) -> int:
        return self._hash

    @classmethod
    def of(cls, queues: Iterable[QueueId]) -> Numbering:
        """The queues in their order."""
        return cls({queue: bit for bit, queue in enumerate(queues)})

    def extended(self, queues: Iterable[QueueId]) -> Numbering:
        """The same with these queues, too: new ones get the lowest free bits."""
        new = [queue for queue in dict.fromkeys(queues) if queue not in self.bits]
        if not new:
            return self
        taken = frozenset(self.bits.values())
        free = (bit for bit in count() if bit not in taken)
        return Numbering({**self.bits, **dict(zip(new, free, strict=False))})

    def mask(self, queues: Iterable[QueueId]) -> Mask:
        """The mask of these queues; one without a bit is in no mask."""
        return mask_of({self.bits[queue] for queue in queues if queue in self.bits})

    def queues(self, mask: Mask) -> Iterator[QueueId]:
        """The queues of a mask."""
        return (queue for queue, bit in self.bits.items() if mask >> bit & 1)


class QueueTable:
    """All queues of a tree as one VO sees them ("": no VO in particular)."""

    def __init__(self, config: ResourceConfig, vo: str = "", numbering: Numbering | None = None) -> None:
        """`numbering` has every queue; without one they are numbered in configured order."""
        self.types = config.types
        self.vo = vo
        self.numbering = numbering or Numbering.of(config.tree.queue_ids())
        self.queues: dict[int, QueueId] = {}
        """The queues by their bits, in configured order."""
        self._params: dict[int, EffectiveParams] = {}
        for queue, params in all_queues(config.tree, vo=vo, types=self.types):
            bit = self.numbering.bits[queue]
            self.queues[bit] = queue
            self._params[bit] = params
        self.full = mask_of(self.queues)
        """The mask of all queues."""
        self._columns = _columns(self._params, self.types)
        self.open_to_vo = self._admitting()
        """The queues whose access list admits the VO."""

    def bit(self, queue: QueueId) -> int | None:
        """The bit of a queue of this table."""
        bit = self.numbering.bits.get(queue)
        return bit if bit in self.queues else None

    def params(self, bit: int) -> Mapping[str, Effective]:
        """The effective values of a queue by folded name; raises KeyError if there is no such queue."""
        return self._params[bit]

    def sites(self, mask: Mask) -> tuple[str, ...]:
        """The sites of the queues of a mask, sorted."""
        return tuple(sorted({self.queues[bit].site for bit in bits(mask)}))

    def eligible_mask(self, criteria: Iterable[Criterion]) -> Mask:
        """The queues that fulfil all criteria and admit the VO."""
        mask = self.open_to_vo
        for criterion in criteria:
            column = self._columns.get(criterion.folded)
            if column is None:
                return 0
            mask &= column.met(criterion)
        return mask

    def failing(self, criteria: Iterable[Criterion]) -> list[Mask]:
        """By criterion, the queues that do not fulfil it."""
        columns = ((one, self._columns.get(one.folded)) for one in criteria)
        return [self.full & ~column.met(one) if column else self.full for one, column in columns]

    def offered(self, folded: str, mask: Mask) -> list[tuple[tuple[Scalar, ...], int]]:
        """What the queues of a mask offer of a parameter, and how many of them just that; ANY and nothing are left out."""
        column = self._columns.get(folded)
        found = () if column is None else column.offered
        return [(scalars, hit.bit_count()) for scalars, queues in found if (hit := queues & mask)]

    def reasons(self, bit: int, criteria: tuple[Criterion, ...]) -> tuple[Reason, ...]:
        """All that speaks against one queue."""
        return refusals(criteria, self._params[bit], vo=self.vo)

    def _admitting(self) -> Mask:
        admits: dict[Value | None, bool] = {}  # siblings inherit one value
        admitting = []
        for bit, params in self._params.items():
            access = params.get(ACCESS)
            value = None if access is None else access.value
            if value not in admits:
                admits[value] = access_refusal(access, self.vo) is None
            if admits[value]:
                admitting.append(bit)
        return mask_of(admitting)


# --- one parameter of all queues -------------------------------------------------------------------------

_Offer = tuple[Scalar, Mask]
"""A value, and the queues that offer it."""


class _Values(Protocol):
    def met(self, criterion: Criterion) -> Mask:
        """The queues whose values fulfil the criterion, but for wildcards."""


class _Column:
    """One parameter over all queues: which of them leave it open (ANY), the rest by their values."""

    __slots__ = ("_open", "_values", "offered")

    def __init__(self, values: Iterable[tuple[Value, Mask]], declared: ParameterType | None) -> None:
        kind, unit = (declared.kind, declared.unit) if declared else (Kind.DEDUCED, "")
        operator = declared.operator if declared else ""
        self._open = 0
        self.offered: list[tuple[tuple[Scalar, ...], Mask]] = []
        """What is offered, all values of a queue together, and the queues that offer just that."""
        for value, mask in values:
            scalars = offers(value, kind, unit)
            if scalars is None:
                self._open |= mask
            elif scalars:
                self.offered.append((scalars, mask))
        single = [(scalar, mask) for scalars, mask in self.offered for scalar in scalars]
        self._values = _values(kind, operator, single)

    def met(self, criterion: Criterion) -> Mask:
        """The queues that fulfil the criterion."""
        return self._values.met(criterion) | self._open


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
            ((value, mask_of(members)) for value, members in found.values()), types.get_folded(folded)
        )
        for folded, found in holders.items()
    }


def _values(kind: Kind, operator: str, offered: Sequence[_Offer]) -> _Values:
    if kind is Kind.DEDUCED:
        return _Deduced(offered)
    key: Callable[[Any], Any] = version_key if kind is Kind.VERSION else _same
    return _Ordered(offered, key) if operator == AT_LEAST else _Equal(offered, key)


def _same(value: Any) -> Any:
    return value


def _masks(offered: Iterable[tuple[Any, Mask]]) -> dict[Any, Mask]:
    masks: dict[Any, Mask] = {}
    for value, mask in offered:
        masks[value] = masks.get(value, 0) | mask
    return masks


class _Equal:
    """For kinds that compare by equality; `key` gives equal values one form."""

    def __init__(self, offered: Iterable[_Offer], key: Callable[[Any], Any]) -> None:
        self._key = key
        self._masks = _masks((key(value), mask) for value, mask in offered)

    def met(self, criterion: Criterion) -> Mask:
        """The queues that offer one of the wanted values."""
        found = 0
        for wanted in criterion.wanted:
            found |= self._masks.get(self._key(wanted), 0)
        return found


class _Ordered:
    """For kinds where more is better; `key` gives values a form that orders them."""

    def __init__(self, offered: Iterable[_Offer], key: Callable[[Any], Any]) -> None:
        self._key = key
        masks = _masks((key(value), mask) for value, mask in offered)
        self._forms = sorted(masks)
        self._as_much: list[Mask] = [0] * (len(self._forms) + 1)
        for index in range(len(self._forms) - 1, -1, -1):
            self._as_much[index] = self._as_much[index + 1] | masks[self._forms[index]]

    def met(self, criterion: Criterion) -> Mask:
        """The queues that offer at least the least of the wanted values."""
        return self.at_least(min(map(self._key, criterion.wanted)))

    def at_least(self, form: Any) -> Mask:
        """The queues that offer this much or more."""
        return self._as_much[bisect_left(self._forms, form)]


class _Deduced:
    """For undeclared parameters: what counts depends on both sides (`kinds`, last paragraph)."""

    def __init__(self, offered: Sequence[_Offer]) -> None:
        texts = [(value, mask) for value, mask in offered if isinstance(value, str)]
        truths = [(value, mask) for value, mask in offered if isinstance(value, bool)]
        numbers = [(value, mask) for value, mask in offered if not isinstance(value, str | bool)]
        spelled = [(n, mask) for value, mask in texts if (n := spelled_number(value)) is not None]
        spoken = [(truth, mask) for value, mask in texts if (truth := truth_of(value)) is not None]
        self._texts = _masks(texts)
        self._truths = _masks(truths)
        self._truths_and_texts = _masks([*truths, *spoken])
        self._any_number = bool(numbers)
        self._numbers = _Ordered(numbers, _same)
        self._numbers_and_texts = _Ordered([*numbers, *spelled], _same)

    def met(self, criterion: Criterion) -> Mask:
        """The queues that offer what one of the wanted values asks for."""
        found = 0
        for wanted in criterion.wanted:
            found |= self._met_by(wanted)
        return found

    def _met_by(self, wanted: Scalar) -> Mask:
        if isinstance(wanted, bool):
            return self._truths_and_texts.get(wanted, 0)
        if not isinstance(wanted, str):
            return self._numbers_and_texts.at_least(wanted)
        found = self._texts.get(wanted, 0)
        if self._any_number and (number := spelled_number(wanted)) is not None:
            found |= self._numbers.at_least(number)
        if self._truths and (truth := truth_of(wanted)) is not None:
            found |= self._truths.get(truth, 0)
        return found
