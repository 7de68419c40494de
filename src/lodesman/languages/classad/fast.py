"""Faster matches: Requirements as generated Python, for ads of numbers and texts.

Names and values travel as constants; the code contains no text of an ad. Where it cannot judge exactly (an attribute
is missing, an expression, or of another kind), the closures do. So both always agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, NoReturn

from lodesman.languages.classad.ads import Ad, Frame, Run
from lodesman.languages.classad.closures import compile_node, evaluate, worth
from lodesman.languages.classad.nodes import (
    Binary,
    Conditional,
    Constant,
    FunctionCall,
    ListLiteral,
    Logic,
    Name,
    Node,
    Select,
    Unary,
    constant_of,
)
from lodesman.languages.classad.parse import parse_expression
from lodesman.languages.classad.values import STRICT, Special, Value, is_true, lower, truth
from lodesman.languages.classad.write import write_expression

_EXACT: Final = 1 << 53
"""Up to here, whole numbers and real ones are the same."""
_ORDERED: Final = frozenset({"<", "<=", ">", ">="})
_EQUAL: Final = {"==": "", "!=": "not "}
_NUMBERS: Final = frozenset({int, float, bool})


def _refuse(_: object, __: object) -> NoReturn:
    raise TypeError


class _Opaque:
    """An attribute that the generated code must not judge."""

    __slots__ = ()
    __hash__ = object.__hash__

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _refuse

    def __bool__(self) -> NoReturn:
        raise TypeError


class _Texts(frozenset[str]):
    """A list of texts: searched, not compared."""

    __slots__ = ()
    __hash__ = frozenset.__hash__
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse


_OPAQUE: Final = _Opaque()
_Plain = bool | int | float | str | _Texts | _Opaque
_Flat = Mapping[str, _Plain]
Test = Callable[[_Flat, _Flat], Any]


class _TooHard(Exception):
    """A part of the expression is left to the closures."""


def _plain(value: Value) -> _Plain:
    if isinstance(value, str):
        return lower(value)
    if isinstance(value, tuple):
        texts = [lower(item) for item in value if isinstance(item, str)]
        return _Texts(texts) if len(texts) == len(value) else _OPAQUE
    if isinstance(value, (int, float)) and (isinstance(value, float) or abs(value) <= _EXACT):
        return value
    return _OPAQUE


# --- what generated code calls ------------------------------------------------------------------------------


def _equal(left: _Plain, right: _Plain) -> bool:
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return left == right
    if type(left) is str and type(right) is str:
        return left == right
    raise TypeError


def _identical(left: _Plain, right: _Plain) -> bool:
    if type(left) not in _NUMBERS:
        raise TypeError
    return type(left) is type(right) and left == right


def _true(value: _Plain) -> bool:
    if type(value) in _NUMBERS:
        return bool(value)
    raise TypeError


def _among(value: _Plain, choices: _Plain) -> bool:
    if type(value) is str and type(choices) is _Texts:
        return value in choices
    raise TypeError


def _compute(operator: str, left: Any, right: Any) -> _Plain:
    result = STRICT[operator](left, right)
    if isinstance(result, Special):
        raise TypeError
    return _plain(result)


# --- the code -----------------------------------------------------------------------------------------------


class _Writer:
    """Python for one expression. `constants`: its values by name."""

    def __init__(self) -> None:
        self.constants: dict[str, object] = {
            "__builtins__": {}, "equal": _equal, "identical": _identical, "true": _true, "among": _among,
        }  # fmt: skip

    def constant(self, value: object) -> str:
        name = f"k{len(self.constants)}"
        self.constants[name] = value
        return name

    def test(self, node: Node, *, strict: bool) -> str:  # noqa: PLR0911 - a case for each kind of node
        """Unless `strict`, false may stand for ERROR: neither is a match."""
        match node:
            case Logic(operator="&&", operands=operands):
                return f"({' and '.join([self.test(part, strict=strict) for part in operands])})"
            case Logic(operands=operands):
                last = len(operands) - 1
                parts = [self.test(part, strict=strict or at < last) for at, part in enumerate(operands)]
                return f"({' or '.join(parts)})"
            case Unary(operator="!", operand=operand):
                return f"(not {self.test(operand, strict=True)})"
            case Conditional(condition=condition, yes=yes, no=no):
                choice = self.test(condition, strict=True)
                return f"({self.test(yes, strict=strict)} if {choice} else {self.test(no, strict=strict)})"
            case Binary(operator=operator, left=left, right=right) if operator in _ORDERED:
                return f"({self.value(left)} {operator} {self.value(right)})"
            case Binary(operator=("==" | "!=") as operator, left=left, right=right):
                if strict or operator == "!=":
                    return f"({_EQUAL[operator]}equal({self.value(left)}, {self.value(right)}))"
                return f"({self.value(left)} == {self.value(right)})"
            case Binary(operator="=?=", left=left, right=Constant(value=bool() | int() | float() as value)):
                return f"identical({self.value(left)}, {self.constant(value)})"
            case FunctionCall(key="member", arguments=(part, among)):
                return f"among({self.value(part)}, {self.value(among)})"
            case _:
                return f"true({self.value(node)})"

    def value(self, node: Node) -> str:
        match node:
            case Constant() | ListLiteral():
                constant = constant_of(node)
                plain = _OPAQUE if constant is None else _plain(constant)
                if plain is _OPAQUE:
                    raise _TooHard
                return self.constant(plain)
            case Name(key="my" | "target" | "parent"):
                raise _TooHard
            case Name(key=key):
                name = self.constant(key)
                return f"(m[{name}] if {name} in m else t[{name}])"
            case Select(base=Name(key="my"), key=key):
                return f"m[{self.constant(key)}]"
            case Select(base=Name(key="target"), key=key):
                return f"t[{self.constant(key)}]"
            case Binary(operator=("+" | "-" | "*" | "/" | "%") as operator, left=left, right=right):
                work = self.constant(partial(_compute, operator))
                return f"{work}({self.value(left)}, {self.value(right)})"
            case _:
                raise _TooHard


def _give_up(_: _Flat, __: _Flat) -> NoReturn:
    raise TypeError


def _generate(node: Node, *, strict: bool) -> Test:
    writer = _Writer()
    try:
        source = f"lambda m, t: {writer.test(node, strict=strict)}"
        return eval(source, writer.constants)  # type: ignore[no-any-return]  # noqa: S307 - of our own words alone
    except (_TooHard, RecursionError, MemoryError):
        return _give_up


@lru_cache(maxsize=4_096)
def _test_of(text: str) -> Test:
    return _generate(parse_expression(text), strict=False)


class FastCondition:
    """A condition about values by name, in small letters. One frame serves all."""

    __slots__ = ("_ad", "_closure", "_frame", "_test")
    plain = staticmethod(_plain)

    def __init__(self, node: Node) -> None:
        self._test = _generate(node, strict=True)
        self._closure, self._ad = compile_node(node), Ad({})
        self._frame = Frame(self._ad, self._ad, None, Run())

    def fast(self, values: _Flat) -> bool | None:
        """Judge values from `plain`; None if it cannot."""
        try:
            return bool(self._test(values, {}))
        except (KeyError, TypeError):
            return None

    def exact(self, values: dict[str, Value]) -> bool | Special:
        """Judge values as they are."""
        self._ad.constants = values
        self._frame.run.steps = 0
        return truth(worth(self._closure, self._frame))


class MatchSide:
    """An ad and its Requirements, prepared once for many matches."""

    __slots__ = ("ad", "flat", "test")

    def __init__(self, ad: Ad) -> None:
        self.ad = ad
        self.flat: dict[str, _Plain] = {
            key: _plain(ad.constants[key]) if key in ad.constants else _OPAQUE for key in ad.entries
        }
        node = ad.node("Requirements")
        self.test: Test = _give_up if node is None else _test_of(write_expression(node))

    def copy(self) -> MatchSide:
        """A copy, so that `set` does not change this one."""
        side = MatchSide.__new__(MatchSide)
        side.ad, side.flat, side.test = self.ad.with_constants(), dict(self.flat), self.test
        return side

    def set(self, key: str, value: Value) -> None:
        """`key`: in small letters. Only of a copy: ads are shared."""
        self.ad.constants[key] = value
        self.flat[key] = _plain(value)

    def accepts(self, other: MatchSide, run: Run | None = None) -> bool:
        """`run`: for the closures, of this match alone."""
        try:
            return bool(self.test(self.flat, other.flat))
        except (KeyError, TypeError):
            return is_true(evaluate("requirements", self.ad, other.ad, run=run))


def fast_match(left: MatchSide, right: MatchSide, run: Run | None = None) -> bool:
    """What `closures.matches` says of the two ads."""
    return left.accepts(right, run) and right.accepts(left, run)
