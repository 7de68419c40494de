"""The functions of ClassAds, as in HTCondor.

An unknown function, or a wrong number of arguments, is ERROR.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from msgspec import Struct

from lodesman.base.errors import fault_at
from lodesman.languages.classad.ads import Closure, Frame, Run, TooDear
from lodesman.languages.classad.contexts import CONTEXTS
from lodesman.languages.classad.nodes import FunctionCall, Node, constant_of, walk
from lodesman.languages.classad.parse import parse_expression
from lodesman.languages.classad.policies import POLICY_FUNCTIONS, RANDOM
from lodesman.languages.classad.regexp import reading_of
from lodesman.languages.classad.searches import SEARCHES, read_pattern
from lodesman.languages.classad.texts import (
    TEXT_COSTS,
    TEXT_FUNCTIONS,
    Cost,
    cost_by_character,
    cost_by_word,
    cost_of_texts,
    plain_number,
)
from lodesman.languages.classad.times import CLOCK_FUNCTIONS, TIME_FUNCTIONS
from lodesman.languages.classad.tokens import shown
from lodesman.languages.classad.values import (
    ERROR,
    STRICT,
    UNDEFINED,
    AbsTime,
    RelTime,
    Special,
    Value,
    is_ad,
    lower,
    number,
    same,
    steps_of,
    truth,
)
from lodesman.languages.classad.words import WORD_FUNCTIONS

_COMPARISONS: Final = {
    **{name: STRICT[name] for name in ("<", "<=", ">", ">=", "==", "!=")},
    "is": same,
    "isnt": STRICT["=!="],
}
_Real = int | float
_A_NAME: Final = 12
"""Steps to find an attribute and to begin with it."""
_A_CALL: Final = 8
_A_DEAR_CALL: Final = 32
"""Steps of a call that takes texts, times or patterns apart."""
_LONG: Final = 64
"""Characters of a text that cost nothing."""


class Function(Struct, frozen=True):
    """What a call does."""

    work: Callable[..., Value]
    least: int = 1  # Arguments, like `most`.
    most: int = 1
    cost: Cost | None = cost_of_texts  # Spends the steps of a call with these arguments; None: it has none.
    needs_run: bool = False  # The run comes before the arguments.

    def takes(self, count: int) -> bool:
        """Whether it takes so many arguments."""
        return self.least <= count <= self.most


# --- kinds ------------------------------------------------------------------------------------------------


def _is_kind(kind: type, value: Value) -> Value:
    return type(value) is kind


def _is_special(special: Special, value: Value) -> Value:
    return value is special


# --- conversions ------------------------------------------------------------------------------------------


def _int(value: Value) -> Value:
    plain = plain_number(value)
    return number(int(plain)) if isinstance(plain, (int, float)) else plain


def _real(value: Value) -> Value:
    number = plain_number(value)
    return float(number) if isinstance(number, (int, float)) else number


def _bool(value: Value) -> Value:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(lower(value), UNDEFINED)
    if isinstance(value, (AbsTime, RelTime)):
        return value.seconds != 0
    return truth(value)


def _to_whole(how: Callable[[float], int], value: Value) -> Value:
    plain = plain_number(value)
    return number(how(plain)) if isinstance(plain, (int, float)) else ERROR


def _pow(base: Value, exponent: Value) -> Value:
    left, right = plain_number(base), plain_number(exponent)
    if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
        return ERROR
    whole = type(base) is int and type(exponent) is int and right >= 0
    try:
        if whole:
            # Larger than this it cannot be: no power with millions of digits.
            return ERROR if abs(left) > 1 and right > 64 else number(int(left) ** int(right))
        return number(math.pow(left, right))
    except (OverflowError, ValueError):
        return ERROR


# --- lists ------------------------------------------------------------------------------------------------


def _cost_of_items(run: Run, values: list[Value]) -> None:
    """Each item is compared with the other arguments."""
    items = texts = longs = 0
    for argument in values:
        if isinstance(argument, tuple):
            items += len(argument)
            try:
                letters = sum(map(len, argument))  # type: ignore[arg-type]  # then they are no texts
                texts += letters if all(map(str.isascii, argument)) else 8 * letters  # type: ignore[arg-type]
            except TypeError:
                texts += sum([8 * len(item) for item in argument if isinstance(item, str)])
        elif isinstance(argument, str) and (len(argument) > _LONG or not argument.isascii()):
            longs += steps_of(argument)
    run.spend(items + items * longs + (texts >> 4))


def _size(value: Value) -> Value:
    if isinstance(value, (str, tuple)):
        return len(value)
    if isinstance(value, Special):
        return value
    return len(value) if is_ad(value) else ERROR  # type: ignore[arg-type]  # it is an ad


def _fold(step: Callable[[list[_Real]], _Real], empty: Value, listed: Value) -> Value:
    """Undefined items do not count."""
    if not isinstance(listed, tuple):
        return listed if isinstance(listed, Special) else ERROR
    items = [item for item in listed if item is not UNDEFINED]
    if not all(isinstance(item, (int, float)) for item in items):
        return ERROR
    if not items:
        return empty
    if len(items) == 1:
        return items[0]
    values: list[_Real] = [float(item) if isinstance(item, float) else int(item) for item in items]  # type: ignore[arg-type]
    if any(isinstance(item, float) for item in values):
        values = [float(item) for item in values]
    return number(step(values))


def _average(items: Value) -> Value:
    total = _fold(sum, 0, items)
    if isinstance(total, Special) or not isinstance(items, tuple):
        return total
    count = sum(item is not UNDEFINED for item in items)
    return total / count if count and isinstance(total, (int, float)) else 0


def _compares(decides: bool, name: Value, items: Value, value: Value) -> Value:
    """For any item (`decides` is true), or all."""
    if name is UNDEFINED:
        return UNDEFINED
    compare = _COMPARISONS.get(name) if isinstance(name, str) else None
    if compare is not None and items is UNDEFINED:
        return UNDEFINED
    if compare is None or not isinstance(items, tuple) or value is ERROR:
        return ERROR
    for item in items:
        held = compare(item, value)
        if held is ERROR:
            return ERROR
        if (held is True) is decides:
            return decides
    return not decides


def _member(compare: Callable[[Value, Value], Value], value: Value, items: Value) -> Value:
    if items is UNDEFINED or (value is UNDEFINED and compare is not same):
        return UNDEFINED
    if not isinstance(items, tuple) or isinstance(value, tuple) or is_ad(value):
        return ERROR
    if value is ERROR and compare is not same:
        return ERROR
    return any(compare(item, value) is True for item in items)


# --- others -----------------------------------------------------------------------------------------------


def _if_then_else(arguments: list[Closure]) -> Closure:
    if len(arguments) != 3:
        return lambda _: ERROR
    condition, yes, no = arguments

    def choose(frame: Frame) -> Value:
        decision = truth(condition(frame))
        if isinstance(decision, Special):
            return decision
        return yes(frame) if decision else no(frame)

    return choose


LAZY: Final[Mapping[str, Callable[[list[Closure]], Closure]]] = {"ifthenelse": _if_then_else}
"""Functions that do not need all their arguments."""


def _kinds() -> Iterable[tuple[str, Function]]:
    for name, kind in (
        ("string", str),
        ("integer", int),
        ("real", float),
        ("boolean", bool),
        ("list", tuple),
        ("abstime", AbsTime),
        ("reltime", RelTime),
    ):
        yield f"is{name}", Function(partial(_is_kind, kind), cost=None)
    yield "isclassad", Function(is_ad, cost=None)
    yield "isundefined", Function(partial(_is_special, UNDEFINED), cost=None)
    yield "iserror", Function(partial(_is_special, ERROR), cost=None)


FUNCTIONS: Final[Mapping[str, Function]] = {
    **dict(_kinds()),
    "int": Function(_int),
    "real": Function(_real),
    "bool": Function(_bool),
    "floor": Function(partial(_to_whole, math.floor)),
    "ceiling": Function(partial(_to_whole, math.ceil)),
    "ceil": Function(partial(_to_whole, math.ceil)),
    "round": Function(partial(_to_whole, round)),
    "pow": Function(_pow, 2, 2),
    "size": Function(_size, cost=None),
    "sum": Function(partial(_fold, sum, 0), cost=_cost_of_items),
    "min": Function(partial(_fold, min, UNDEFINED), cost=_cost_of_items),
    "max": Function(partial(_fold, max, UNDEFINED), cost=_cost_of_items),
    "avg": Function(_average, cost=_cost_of_items),
    "anycompare": Function(partial(_compares, True), 3, 3, cost=_cost_of_items),
    "allcompare": Function(partial(_compares, False), 3, 3, cost=_cost_of_items),
    "member": Function(partial(_member, STRICT["=="]), 2, 2, cost=_cost_of_items),
    "identicalmember": Function(partial(_member, same), 2, 2, cost=_cost_of_items),
    "time": Function(lambda run: int(run.now), 0, 0, cost=None, needs_run=True),
    **{
        name: Function(work, least, most, cost=TEXT_COSTS.get(name, cost_of_texts))
        for name, (work, least, most) in TEXT_FUNCTIONS.items()
    },
    **{
        name: Function(work, least, most, cost=cost_by_character)
        for name, (work, least, most) in (
            *POLICY_FUNCTIONS.items(),
            *TIME_FUNCTIONS.items(),
        )
    },
    **{
        name: Function(work, least, most, cost=cost_by_word)
        for name, (work, least, most) in WORD_FUNCTIONS.items()
    },
    **{
        name: Function(work, least, most, cost=None, needs_run=True)
        for name, (work, least, most) in CLOCK_FUNCTIONS.items()
    },
    "random": Function(RANDOM, 0, 1, cost=None, needs_run=True),
    **{
        name: Function(one.work, one.least, one.most, cost=None, needs_run=True)
        for name, one in SEARCHES.items()
    },
}
"""By name in small letters."""


CLOCKS: Final = frozenset({"time", "random", *CLOCK_FUNCTIONS})
"""In small letters; their values may change with the time."""
_BARRED: Final = {
    "eval": "eval hides what it asks for, so it cannot stand where others decide by it",
    "random": "random is worth something else each time, so it cannot stand where others decide by it",
}


def policy_mistakes(node: Node, run: Run) -> Iterator[tuple[FunctionCall, str]]:
    """The `mistakes` that may arise in a stored expression.

    Reading its patterns spends steps. Raises TooDear.
    """
    for part in walk(node):
        if isinstance(part, FunctionCall) and (why := mistake_of(part, run) or _BARRED.get(part.key)):
            yield part, why


def steps_of_expression(node: Node) -> int:
    """The cost of an attribute each time, without what it asks for."""
    return _A_NAME + sum(_steps_of_call(part) if isinstance(part, FunctionCall) else 1 for part in walk(node))


def _steps_of_call(call: FunctionCall) -> int:
    function = FUNCTIONS.get(call.key)
    is_dear = call.key in CONTEXTS or (
        function and (function.needs_run or function.cost in (cost_by_character, cost_by_word))
    )
    return _A_DEAR_CALL if is_dear else _A_CALL


def mistakes(node: Node) -> Iterator[tuple[FunctionCall, str]]:
    """The calls that are `error` with any arguments, each with the reason, without a full stop."""
    for part in walk(node):
        if isinstance(part, FunctionCall) and (why := mistake_of(part)):
            yield part, why


def mistake_of(call: FunctionCall, run: Run | None = None) -> str:
    """Why a call is `error` with any arguments, "" if not; calls within its arguments do not count.

    `run` spends steps for its pattern. Raises TooDear.
    """
    count = len(call.arguments)
    function, context = FUNCTIONS.get(call.key), CONTEXTS.get(call.key)
    if function is None and context is None and call.key not in LAZY:
        return f"there is no function {shown(call.name)} here"
    if (function is not None and not function.takes(count)) or (context and context.arguments != count):
        return f"{call.name} cannot have {count} {'argument' if count == 1 else 'arguments'}"
    if call.key not in SEARCHES:
        return ""
    pattern, options = constant_of(call.arguments[0]), options_of(call)
    if not isinstance(pattern, str) or options is None:
        return ""
    reading = read_pattern(run, pattern, options) if run else reading_of(pattern, options)
    return reading.mistake.rstrip(".")


def read_checked(text: str) -> Node:
    """Read an expression of a policy without such calls. Raises SyntaxFault."""
    node = parse_expression(text)
    try:
        for call, why in policy_mistakes(node, Run()):
            raise fault_at(text, call.start, why, hint="See: docs/how-to/classads.md.")
    except TooDear:
        raise fault_at(text, node.start, "an expression with too many or too large patterns") from None
    return node


def options_of(search: FunctionCall) -> str | None:
    """The options of a search, if written; None if only the evaluation tells."""
    at = SEARCHES[search.key].most - 1
    if len(search.arguments) <= at:
        return ""
    options = constant_of(search.arguments[at])
    return options if isinstance(options, str) else None
