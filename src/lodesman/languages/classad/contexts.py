"""Functions about expressions: their value in other ads, their text, and the value of a text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lodesman.base.errors import SyntaxFault
from lodesman.languages.classad.ads import Ad, AdAttribute, Closure, Frame
from lodesman.languages.classad.nodes import FunctionCall, Name, Node, Select, walk
from lodesman.languages.classad.parse import parse_expression
from lodesman.languages.classad.texts import print_value
from lodesman.languages.classad.values import ERROR, UNDEFINED, Special, Value, is_true, steps_of
from lodesman.languages.classad.write import write_expression

_TO_READ: Final = 4
_TO_WRITE: Final = 4
"""Steps for a character of a text read as an expression."""


class Evaluator(NamedTuple):
    """How to evaluate expressions and attributes, and the frame of a found ad."""

    compiled: Callable[[Node], Closure]
    closure_of: Callable[[AdAttribute], Closure]
    within: Callable[[Frame, Ad], Frame]


class _ContextCall(NamedTuple):
    work: Callable[[FunctionCall, Evaluator], Closure]
    arguments: int


def _attribute(node: Node, frame: Frame) -> AdAttribute | None:
    ad: Ad | None = None
    match node:
        case Name(key=key) | Select(base=Name(key="my"), key=key):
            ad = frame.ad
        case Select(base=Name(key="target"), key=key):
            ad, node = frame.target, node.base
        case _:
            return None
    while ad is not None:
        if key in ad.entries:
            return ad.entries[key]
        ad = ad.outer
    if isinstance(node, Name) and frame.target is not None:
        return frame.target.entries.get(key)
    return None


def _each(node: FunctionCall, how: Evaluator) -> Callable[[Frame], Value]:
    """The values of an expression in each ad of a list. An attribute found here is its expression."""
    expression = node.arguments[0]
    own, items = how.compiled(expression), how.compiled(node.arguments[1])
    size = sum(1 for _ in walk(expression))

    def each(frame: Frame) -> Value:
        value = items(frame)
        if not isinstance(value, tuple):
            return UNDEFINED if value is UNDEFINED else ERROR
        entry = _attribute(expression, frame)
        closure = own if entry is None else how.closure_of(entry)
        frame.run.spend((1 + max(size, entry.steps if entry else 0)) * len(value))
        values: list[Value] = []
        for item in value:
            if isinstance(item, Ad):
                values.append(closure(how.within(frame, item)))
            else:
                values.append(UNDEFINED if item is UNDEFINED else ERROR)
        return tuple(values)

    return each


def _in_each(node: FunctionCall, how: Evaluator) -> Closure:
    each = _each(node, how)

    def in_each(frame: Frame) -> Value:
        values = each(frame)
        frame.run.spend_on(values)
        return values

    return in_each


def _matches(node: FunctionCall, how: Evaluator) -> Closure:
    each = _each(node, how)

    def count(frame: Frame) -> Value:
        values = each(frame)
        if values is UNDEFINED:
            return 0
        return sum(map(is_true, values)) if isinstance(values, tuple) else values

    return count


def _unparse(node: FunctionCall, _: Evaluator) -> Closure:
    (expression,) = node.arguments

    def unparse(frame: Frame) -> Value:
        if not isinstance(expression, (Name, Select)):
            return ERROR
        entry = frame.ad.entries.get(expression.key) if isinstance(expression, Name) else None
        if entry is None:
            return ""
        frame.run.spend(_TO_WRITE * sum(1 for _ in walk(entry.node)))
        text = write_expression(entry.node)
        frame.run.spend(steps_of(text))
        return text

    return unparse


def _eval(node: FunctionCall, how: Evaluator) -> Closure:
    argument = how.compiled(node.arguments[0])

    def evaluated(frame: Frame) -> Value:
        value = argument(frame)
        if isinstance(value, Special):
            return ERROR
        frame.run.spend_on(value)
        text = print_value(value)
        frame.run.spend(_TO_READ * (8 + len(text)))
        try:
            read = parse_expression(text)
        except SyntaxFault:
            return ERROR
        return how.compiled(read)(frame)

    return evaluated


CONTEXTS: Final[Mapping[str, _ContextCall]] = {
    "evalineachcontext": _ContextCall(_in_each, 2),
    "countmatches": _ContextCall(_matches, 2),
    "unparse": _ContextCall(_unparse, 1),
    "eval": _ContextCall(_eval, 1),
}
"""By name in small letters. Their arguments are not evaluated before: they mean something else elsewhere."""
