"""Why Requirements are true or not: each clause with its value, and its attributes on both sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from lodesman.languages.classad.ads import EMPTY, MOST_STEPS, Ad, Run, TooDear
from lodesman.languages.classad.closures import evaluate
from lodesman.languages.classad.nodes import Name, Node, Select, clauses, walk
from lodesman.languages.classad.values import ERROR, Value
from lodesman.languages.classad.write import write_expression, write_value
from lodesman.wire.classads import AttributeValue, ClauseRow

_SIDES = frozenset({"my", "target", "parent"})
_EXPLAINED: Final = 4
Pair = tuple[str, Value]


class Clause(Struct, frozen=True, kw_only=True):
    """A part of an expression that must be true, and its attributes."""

    text: str
    value: Value
    own: tuple[Pair, ...] = ()  # Those that its own ad has.
    other: tuple[Pair, ...] = ()  # Those of the other ad or of neither.
    cycle: tuple[str, ...] = ()  # Attributes that ask for each other, because of which it is ERROR.
    is_dear: bool = False  # It is ERROR because it needs too many steps.

    @property
    def row(self) -> ClauseRow:
        """The same for an answer."""
        return ClauseRow(
            clause=self.text,
            value=write_value(self.value),
            own=write_pairs(self.own),
            other=write_pairs(self.other),
            cycle=[*self.cycle],
            is_dear=self.is_dear,
        )


def write_pairs(pairs: Iterable[Pair]) -> list[AttributeValue]:
    """Names with their values as ads write them."""
    return [AttributeValue(name, write_value(value)) for name, value in pairs]


def explain(
    node: Node, my: Ad, target: Ad | None = None, *, now: float = 0.0, run: Run | None = None
) -> tuple[Clause, ...]:
    """The clauses share the steps of a `run`, more than a match may make."""
    run = run or explaining(now)
    return tuple([_clause(clause, my, target, run) for clause in clauses(node)])


def explaining(now: float) -> Run:
    """For clauses, and then the attributes in them."""
    return Run(now=now, most=_EXPLAINED * MOST_STEPS)


def _clause(node: Node, my: Ad, target: Ad | None, run: Run) -> Clause:
    run.cycle = ()
    value = evaluate(node, my, target, run=run)
    is_dear, cycle = run.is_spent, run.cycle
    own: dict[str, Value] = {}
    other: dict[str, Value] = {}
    for part in walk(node):
        match part:
            case Select(base=Name(key="my"), name=name):
                own[name] = _print_bounded(name, my, target, run)
            case Select(base=Name(key="target"), name=name):
                other[name] = _print_bounded(name, target or EMPTY, my, run)
            case Name(name=name, key=key) if key not in _SIDES:
                (own if name in my else other)[name] = _print_bounded(part, my, target, run)
    return Clause(
        text=write_expression(node),
        value=value,
        own=tuple(own.items()),
        other=tuple(other.items()),
        cycle=cycle,
        is_dear=is_dear,
    )


def _print_bounded(node: Node | str, my: Ad, target: Ad | None, run: Run) -> Value:
    value = evaluate(node, my, target, run=run)
    try:
        if isinstance(value, (str, tuple, Ad)):
            run.spend_on(value)
    except TooDear:
        return ERROR
    return value
