"""Expressions as closures: what they mean, exactly.

A name is sought in the ad where it stands, then in those around it, then in TARGET; one of MY not in TARGET. In an
attribute of the other ad MY and TARGET change places.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from lodesman.languages.classad.ads import EMPTY, SIDES, Ad, AdAttribute, Closure, Frame, Run, TooDear
from lodesman.languages.classad.contexts import CONTEXTS, Evaluator
from lodesman.languages.classad.functions import FUNCTIONS, LAZY, steps_of_expression
from lodesman.languages.classad.nodes import (
    SCOPE_WORDS,
    AdLiteral,
    Binary,
    Conditional,
    Constant,
    FunctionCall,
    ListLiteral,
    Logic,
    Name,
    Node,
    Select,
    Subscript,
    Unary,
    constant_of,
)
from lodesman.languages.classad.parse import entries_of
from lodesman.languages.classad.values import (
    ERROR,
    STRICT,
    UNDEFINED,
    Special,
    UnaryName,
    Value,
    is_true,
    lower,
    steps_of,
    truth,
    unary,
)


def evaluate(node: Node | str, my: Ad = EMPTY, target: Ad | None = None, *, run: Run | None = None) -> Value:
    """The value of an expression or attribute, UNDEFINED if there is none. Never raises.

    An expression that asks for itself, is too deep or needs too many steps is ERROR.
    """
    frame = Frame(my, my, target, run or Run())
    try:
        if isinstance(node, str):
            return _look_up(frame, my, lower(node))
        return compile_node(node)(frame)
    except (RecursionError, TooDear):
        return ERROR


def worth(closure: Closure, frame: Frame) -> Value:
    """What an expression is worth. Never raises."""
    try:
        return closure(frame)
    except (RecursionError, TooDear):
        return ERROR


def matches(my: Ad, target: Ad, *, run: Run | None = None) -> bool:
    """Whether both Requirements are true for each other."""
    run = run or Run()
    return is_true(_requirements(my, target, run)) and is_true(_requirements(target, my, run))


def _requirements(my: Ad, target: Ad, run: Run) -> Value:
    entry = my.entries.get("requirements")
    run.steps = 0
    return UNDEFINED if entry is None else worth(_closure_of(entry), Frame(my, my, target, run))


def _look_up(frame: Frame, ad: Ad, key: str) -> Value:
    """`key`: in small letters."""
    value = ad.constants.get(key)
    if value is not None:
        return value
    entry = ad.entries.get(key)
    if entry is None:
        return UNDEFINED
    run = frame.run
    closure = entry.closure or _closure_of(entry)
    run.steps += entry.steps
    if run.steps > run.most:
        raise TooDear
    if entry in run.busy:
        run.cycle = run.cycle or tuple(attribute.name for attribute in run.busy[run.busy.index(entry) :])
        return ERROR
    run.busy.append(entry)
    try:
        return closure(_frame_in(frame, ad))
    finally:
        run.busy.pop()


def _closure_of(entry: AdAttribute) -> Closure:
    if entry.closure is None:
        entry.steps = steps_of_expression(entry.node)
        entry.closure = compile_node(entry.node)
    return entry.closure


def _frame_in(frame: Frame, ad: Ad) -> Frame:
    root = ad.root()
    if root is frame.my:
        return frame if ad is frame.ad else Frame(ad, frame.my, frame.target, frame.run)
    if root is frame.target:
        return Frame(ad, root, frame.my, frame.run)
    return Frame(ad, root, None, frame.run)


# --- parts ------------------------------------------------------------------------------------------------


def compile_node(node: Node) -> Closure:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of node
    """The closure of an expression."""
    constant = constant_of(node)
    if constant is not None:
        return lambda _: constant
    match node:
        case Name(key=key):
            return _name(key)
        case Select(base=Name(key="my" | "target" as side), key=key) if key not in SCOPE_WORDS:
            return _side(side, key)
        case Select(base=base, key=key):
            return _select(compile_node(base), key)
        case Subscript(base=base, index=index):
            return _subscript(compile_node(base), compile_node(index))
        case Unary(operator=operator, operand=operand):
            return _unary(operator, compile_node(operand))
        case Binary(operator="?:", left=left, right=right):
            return _default(compile_node(left), compile_node(right))
        case Binary(operator=operator, left=left, right=right):
            value = constant_of(right)
            if operator in _PLAIN and value is not None and type(value) in {int, str}:
                return _against(operator, compile_node(left), value)
            return _strict(operator, compile_node(left), compile_node(right))
        case Logic(operator=operator, operands=operands):
            return _logic([compile_node(part) for part in operands], decides=operator == "||")
        case Conditional(condition=condition, yes=yes, no=no):
            return _choice(compile_node(condition), compile_node(yes), compile_node(no))
        case FunctionCall():
            return _call(node)
        case ListLiteral(items=items):
            return _list([compile_node(part) for part in items])
        case AdLiteral():
            nested = Ad(entries_of(node))
            return lambda frame: nested.nested_in(frame.ad)
        case Constant(value=value):
            return lambda _: value


def _name(key: str) -> Closure:
    if key in {"my", "target", "parent"}:
        return partial(_ad, key)

    def name(frame: Frame) -> Value:
        ad: Ad | None = frame.ad
        while ad is not None:
            value = ad.constants.get(key)
            if value is not None:
                return value
            if key in ad.entries:
                return _look_up(frame, ad, key)
            ad = ad.outer
            frame.run.steps += 1
        target = frame.target
        return UNDEFINED if target is None else _look_up(frame, target, key)

    return name


def _ad(key: str, frame: Frame) -> Value:
    ad = SIDES[key](frame)
    return UNDEFINED if ad is None else ad


def _side(side: str, key: str) -> Closure:
    if side == "my":
        own = _select(lambda frame: frame.ad, key)

        def of_my(frame: Frame) -> Value:
            value = frame.ad.constants.get(key)
            return own(frame) if value is None else value

        return of_my

    def of_target(frame: Frame) -> Value:
        target = frame.target
        if target is None:
            return UNDEFINED
        value = target.constants.get(key)
        return _look_up(frame, target, key) if value is None else value

    return of_target


_LONG: Final = 64
"""Characters of a text that cost nothing."""


def _select(base: Closure, key: str) -> Closure:
    def select(frame: Frame) -> Value:
        return _select_from(frame, base(frame), key)

    return select


def _select_from(frame: Frame, base: Value, key: str) -> Value:
    """An attribute of an ad, or those around it; of a list, that of each item."""
    if isinstance(base, Special):
        return base
    if isinstance(base, tuple):
        frame.run.spend(len(base))
        return tuple([_select_from(frame, item, key) for item in base])
    if not isinstance(base, Ad):
        return ERROR
    ad: Ad | None = base
    if key in SCOPE_WORDS and key not in base.entries:
        side = SIDES[key](_frame_in(frame, base))
        return UNDEFINED if side is None else side
    while ad is not None:
        value = ad.constants.get(key)
        if value is not None:
            return value
        if key in ad.entries:
            return _look_up(frame, ad, key)
        ad = ad.outer
        frame.run.spend(1)
    return UNDEFINED


def _list(parts: list[Closure]) -> Closure:
    def made(frame: Frame) -> Value:
        items = tuple([part(frame) for part in parts])
        # As it would be printed: lists in lists, and texts, may stand in it more than once.
        frame.run.spend_on(items)
        return items

    return made


def _subscript(base: Closure, index: Closure) -> Closure:
    def subscript(frame: Frame) -> Value:
        container, at = base(frame), index(frame)
        if container is ERROR or at is ERROR:
            return ERROR
        if container is UNDEFINED or at is UNDEFINED:
            return UNDEFINED
        if isinstance(container, tuple) and type(at) is int:
            return container[at] if 0 <= at < len(container) else ERROR
        if isinstance(container, Ad) and isinstance(at, str):
            frame.run.spend(steps_of(at))
            return _select_from(frame, container, lower(at))
        return ERROR

    return subscript


_PLAIN: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def _strict(name: str, left: Closure, right: Closure) -> Closure:
    operation, plain = STRICT[name], _PLAIN.get(name)
    if name in {"=?=", "=!="}:

        def identity(frame: Frame) -> Value:
            value = left(frame)
            if type(value) is str and (len(value) > _LONG or not value.isascii()):
                frame.run.spend(steps_of(value))
            return operation(value, right(frame))

        return identity
    if plain is None:
        return lambda frame: operation(left(frame), right(frame))

    def comparison(frame: Frame) -> Value:
        value, other = left(frame), right(frame)
        kind = type(value)
        if kind is type(other):
            # The usual cases, without a second call.
            if kind is int or kind is float:
                return plain(value, other)
            if kind is str and len(value) < _LONG > len(other) and value.isascii() and other.isascii():  # type: ignore[union-attr,arg-type]  # both are
                return plain(value.lower(), other.lower())  # type: ignore[union-attr]
        if kind is str:
            frame.run.spend(steps_of(value) + steps_of(other))
        return operation(value, other)

    return comparison


def _against(name: str, left: Closure, right: Value) -> Closure:
    operation, plain, kind = STRICT[name], _PLAIN[name], type(right)
    bare = lower(right) if isinstance(right, str) else right

    def against(frame: Frame) -> Value:
        value = left(frame)
        if type(value) is kind:
            if type(value) is str and (len(value) > _LONG or not value.isascii()):
                frame.run.spend(steps_of(value))
            return plain(lower(value) if kind is str else value, bare)  # type: ignore[arg-type]  # a text then
        return operation(value, right)

    return against


def _unary(operator: UnaryName, operand: Closure) -> Closure:
    return lambda frame: unary(operator, operand(frame))


def _default(left: Closure, right: Closure) -> Closure:
    def default(frame: Frame) -> Value:
        value = left(frame)
        return right(frame) if value is UNDEFINED else value

    return default


def _logic(operands: list[Closure], *, decides: bool) -> Closure:
    """`||` is decided by true, `&&` by false; what is right of that is not asked."""

    def logic(frame: Frame) -> Value:
        unknown = False
        for operand in operands:
            value = operand(frame)
            if value is not True and value is not False:
                value = truth(value)
                if value is ERROR:
                    return ERROR
                if value is UNDEFINED:
                    unknown = True
                    continue
            if value is decides:
                return decides
        return UNDEFINED if unknown else not decides

    return logic


def _choice(condition: Closure, yes: Closure, no: Closure) -> Closure:
    def choice(frame: Frame) -> Value:
        decision = truth(condition(frame))
        if isinstance(decision, Special):
            return decision
        return yes(frame) if decision else no(frame)

    return choice


_EVALUATOR: Final = Evaluator(compile_node, _closure_of, _frame_in)


def _call(node: FunctionCall) -> Closure:
    arguments = [compile_node(argument) for argument in node.arguments]
    if node.key in LAZY:
        return LAZY[node.key](arguments)
    context = CONTEXTS.get(node.key)
    if context and context.arguments == len(arguments):
        return context.work(node, _EVALUATOR)
    function = FUNCTIONS.get(node.key)
    if function is None or not function.takes(len(arguments)):
        return lambda _: ERROR
    work: Callable[..., Value] = function.work
    cost = function.cost
    if function.needs_run:
        return lambda frame: work(frame.run, *[argument(frame) for argument in arguments])
    if cost is None:
        return lambda frame: work(*[argument(frame) for argument in arguments])

    def call(frame: Frame) -> Value:
        values = [argument(frame) for argument in arguments]
        cost(frame.run, values)
        return work(*values)

    return call
