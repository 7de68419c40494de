"""Why Requirements are true or not: each clause with its value, and what the attributes in it are worth on both sides."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from lodesman.answers.classads import AttributeValue, ClauseRow
from lodesman.classad.ads import EMPTY, Ad, Run
from lodesman.classad.closures import evaluate
from lodesman.classad.nodes import Name, Node, Select, clauses, walk
from lodesman.classad.values import Value
from lodesman.classad.write import write_expression, write_value

_SIDES = frozenset({"my", "target", "parent"})
Pair = tuple[str, Value]


class Clause(Struct, frozen=True, kw_only=True):
    """A part of an expression that must be true, as written, its value, and the attributes in it.

    `own`, `other`: (name, value) of those that its own ad has, and those of the other ad or of neither. `cycle`: names of
    attributes that ask for each other, because of which it is ERROR.
    """

    text: str
    value: Value
    own: tuple[Pair, ...] = ()
    other: tuple[Pair, ...] = ()
    cycle: tuple[str, ...] = ()

    @property
    def row(self) -> ClauseRow:
        """The same as an answer has it."""
        return ClauseRow(
            clause=self.text,
            value=write_value(self.value),
            own=written(self.own),
            other=written(self.other),
            cycle=[*self.cycle],
        )


def written(pairs: Iterable[Pair]) -> list[AttributeValue]:
    """Names with their values as ads write them."""
    return [AttributeValue(name, write_value(value)) for name, value in pairs]


def explain(node: Node, my: Ad, target: Ad | None = None, *, now: float = 0.0) -> tuple[Clause, ...]:
    """The clauses of an expression of an ad, in their order."""
    return tuple(_clause(one, my, target, now) for one in clauses(node))


def _clause(node: Node, my: Ad, target: Ad | None, now: float) -> Clause:
    run = Run(now=now)
    value = evaluate(node, my, target, run=run)
    own: dict[str, Value] = {}
    other: dict[str, Value] = {}
    for part in walk(node):
        match part:
            case Select(base=Name(key="my"), name=name):
                own[name] = evaluate(name, my, target, run=Run(now=now))
            case Select(base=Name(key="target"), name=name):
                other[name] = evaluate(name, target or EMPTY, my, run=Run(now=now))
            case Name(name=name, key=key) if key not in _SIDES:
                found = evaluate(part, my, target, run=Run(now=now))
                (own if name in my else other)[name] = found
    return Clause(
        text=write_expression(node),
        value=value,
        own=tuple(own.items()),
        other=tuple(other.items()),
        cycle=run.cycle,
    )
