"""Expressions against all queues at once, as masks. Operands of `&&`, `||` and `!` are judged once for each value of
queues, and once for all expressions with that text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, Final, NamedTuple

from msgspec import Struct

from lodesman.decide.masks.bits import Mask, mask_of
from lodesman.decide.resources.expression import ExpressionClause, left_at, value_of, without_target
from lodesman.decide.resources.inherit import EffectiveParam
from lodesman.decide.resources.model import Scalar
from lodesman.decide.resources.requirement import Requirement, expression
from lodesman.languages.classad import ERROR, UNDEFINED, Node, Value, write_expression
from lodesman.languages.classad.fast import FastCondition
from lodesman.languages.classad.nodes import Logic, Name, Unary, walk
from lodesman.languages.classad.values import Special
from lodesman.wire.vocabulary import Kind

_MOST_KNOWN: Final = 10_000


class PlacementClause(Struct, frozen=True, kw_only=True):
    """The rest of a clause for the broker."""

    left: Node  # TARGET is the ad of the site (`expression.holds_at`)
    queues: Mask  # fulfil the clause if `left` is true

    @property
    def text(self) -> str:
        """For people."""
        return write_expression(without_target(self.left))


class _Truth(NamedTuple):
    """Queues where a condition is true, false, an error; else undefined."""

    true: Mask
    false: Mask
    error: Mask


class _PossibleTruth(NamedTuple):
    """Queues where a clause with what changes may be true, and the rest of it."""

    mask: Mask
    left: tuple[PlacementClause, ...]


class _SaidValues:
    __slots__ = ("any", "ids", "masks", "plain", "values")

    def __init__(self, values_by_bit: Mapping[int, Value | None]) -> None:
        members: dict[tuple[object, type], list[int]] = {}
        self.values: list[Value] = []
        for bit, value in values_by_bit.items():
            # The types belong to the identity: 1 and True are equal in Python.
            kind = tuple(map(type, value)) if isinstance(value, tuple) else type(value)
            members.setdefault((value, kind), []).append(bit)  # type: ignore[arg-type]
        self.any = mask_of(members.pop((None, type(None)), ()))  # queues that say ANY
        self.values = [value for value, _ in members]  # type: ignore[misc]  # None is taken out
        self.plain = list(map(FastCondition.plain, self.values))  # the values as fast conditions need them
        self.masks = list(map(mask_of, members.values()))  # who says each of the values
        self.ids = [-1] * (max(values_by_bit, default=-1) + 1)  # for each bit, which of the values it is
        for number, bits in enumerate(members.values()):
            for bit in bits:
                self.ids[bit] = number


class ExpressionColumn:
    """All clauses over all queues."""

    offered: Final[list[tuple[tuple[Scalar, ...], Mask]]] = []  # admits a queue as a whole, unlike parameters

    def __init__(self, params: Mapping[int, Mapping[str, EffectiveParam]], vo: str) -> None:
        self._params = params
        self._vo = vo
        self._full = mask_of(params)
        self._columns: dict[str, _SaidValues] = {}
        self._known: dict[str, _Truth] = {}
        self._changing: dict[str, _PossibleTruth] = {}

    def met(self, requirement: Requirement) -> Mask:
        """Queues where every clause is true, or the ad decides."""
        return reduce(and_, map(self._clause, expression(requirement).clauses), self._full)

    def placement(self, criteria: Iterable[Requirement]) -> tuple[PlacementClause, ...]:
        """What the broker has to judge, with the queues."""
        expression_clauses = (
            clause
            for criterion in criteria
            if criterion.kind is Kind.EXPRESSION
            for clause in expression(criterion).clauses
        )
        return tuple(
            left for clause in expression_clauses if clause.changes for left in self._open(clause).left
        )

    def _clause(self, clause: ExpressionClause) -> Mask:
        mask = self._open(clause).mask if clause.changes else self._truth(clause.node).true
        return reduce(or_, (self._column(name).any for name in clause.asks), mask)

    def _open(self, clause: ExpressionClause) -> _PossibleTruth:
        possible = self._changing.get(clause.key)
        if possible is None:
            _make_room(self._changing)
            possible = self._changing[clause.key] = self._left(clause)
        return possible

    def _left(self, clause: ExpressionClause) -> _PossibleTruth:
        mask, by_text = 0, dict[str, PlacementClause]()
        columns = list(map(self._column, clause.asks))
        for key, queues in self._groups(columns):
            left = left_at(clause, _values(columns, key))
            mask |= 0 if left is False else queues
            if not isinstance(left, bool):
                text = write_expression(left)
                more = by_text[text].queues if text in by_text else 0
                by_text[text] = PlacementClause(left=left, queues=queues | more)
        return _PossibleTruth(mask, tuple(by_text.values()))

    # --- conditions ------------------------------------------------------------------------------------------

    def _truth(self, node: Node) -> _Truth:
        match node:
            case Logic(operator="&&", operands=operands):
                return self._all(operands)
            case Logic(operands=operands):
                return _negated(self._all(operands, inverse=True))
            case Unary(operator="!", operand=operand):
                return _negated(self._truth(operand))
            case _:
                key = write_expression(node)
                truth = self._known.get(key)
                if truth is None:
                    _make_room(self._known)
                    truth = self._known[key] = self._judged(node)
                return truth

    def _all(self, operands: Iterable[Node], *, inverse: bool = False) -> _Truth:
        """The first that is false or an error decides. `inverse`: all of what they are not."""
        false = error = 0
        true = undecided = self._full
        for operand in operands:
            truth = self._truth(operand)
            truth = _negated(truth) if inverse else truth
            false |= undecided & truth.false
            error |= undecided & truth.error
            undecided &= ~(truth.false | truth.error)
            true &= truth.true
        return _Truth(true & undecided, false, error)

    def _judged(self, node: Node) -> _Truth:
        names = sorted({part.key for part in walk(node) if isinstance(part, Name)})
        condition, columns = FastCondition(node), list(map(self._column, names))
        masks: dict[bool | Special, Mask] = {True: 0, False: 0, ERROR: 0, UNDEFINED: 0}
        for key, queues in self._groups(columns):
            quick = {name: column.plain[at] for name, column, at in zip(names, columns, key, strict=True)}
            result: bool | Special | None = condition.fast(quick)
            if result is None:
                result = condition.exact(dict(zip(names, _values(columns, key), strict=True)))
            masks[result] |= queues
        return _Truth(masks[True], masks[False], masks[ERROR])

    # --- values ----------------------------------------------------------------------------------------------

    def _groups(self, columns: Sequence[_SaidValues]) -> Iterator[tuple[Sequence[int], Mask]]:
        """Each set of values that queues have, and these queues, but for ANY."""
        if not columns:
            yield (), self._full
        elif len(columns) == 1:
            for number, mask in enumerate(columns[0].masks):
                yield (number,), mask
        else:
            members: dict[tuple[int, ...], list[int]] = {}
            for bit, key in enumerate(zip(*[column.ids for column in columns], strict=True)):
                members.setdefault(key, []).append(bit)
            for key, bits in members.items():
                if -1 not in key:
                    yield key, mask_of(bits)

    def _column(self, name: str) -> _SaidValues:
        column = self._columns.get(name)
        if column is None:
            values_by_bit = {bit: value_of(name, params, self._vo) for bit, params in self._params.items()}
            column = self._columns[name] = _SaidValues(values_by_bit)
        return column


def _values(columns: Sequence[_SaidValues], key: Sequence[int]) -> list[Value]:
    return [column.values[number] for column, number in zip(columns, key, strict=True)]


def _make_room(memo: dict[str, Any]) -> None:
    if len(memo) >= _MOST_KNOWN:
        memo.clear()


def _negated(truth: _Truth) -> _Truth:
    return _Truth(truth.false, truth.true, truth.error)
