"""Expressions and ads as text that reads as the same, with the fewest parentheses; values as functions print them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from lodesman.languages.classad.ads import Ad, AdAttribute
from lodesman.languages.classad.nodes import (
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
)
from lodesman.languages.classad.values import AbsTime, RelTime, Special, Value

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED: Final = frozenset({"true", "false", "undefined", "error", "is", "isnt"})
_CODES: Final = {code: f"\\{code:03o}" for code in (*range(1, 0x20), 0x7F)}
_ESCAPES: Final = _CODES | {
    ord("\n"): "\\n",
    ord("\t"): "\\t",
    ord("\r"): "\\r",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\\"): "\\\\",
}
_IN_TEXT: Final = _ESCAPES | {ord('"'): '\\"'}
_IN_NAME: Final = _ESCAPES | {ord("'"): "\\'"}
# As the parser has them; what stands alone binds most.
_STRENGTH: Final = {
    "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "=?=": 7, "=!=": 7,
    "<": 8, "<=": 8, ">": 8, ">=": 8, "<<": 9, ">>": 9, ">>>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "%": 11,
}  # fmt: skip
_PREFIX, _ALONE = 12, 14


def write_expression(node: Node) -> str:
    """Canonical: equal trees have equal texts."""
    return _write(node)[0]


def write_ad(ad: Ad) -> str:
    """In the new form, one attribute a line."""
    lines = "".join(f"  {write_name(entry.name)} = {write_expression(entry.node)};\n" for entry in ad)
    return f"[\n{lines}]\n"


def write_name(name: str) -> str:
    """In single quotes unless it is plain."""
    plain = _PLAIN.fullmatch(name) and name.lower() not in _RESERVED
    return name if plain else f"'{name.translate(_IN_NAME)}'"


def _within(node: Node, least: int) -> str:
    text, strength = _write(node)
    return text if strength >= least else f"({text})"


def _write(node: Node) -> tuple[str, int]:  # noqa: C901, PLR0911, PLR0912 - a case for each kind of node
    """The text, and how strongly its outermost operator binds."""
    match node:
        case Constant(value=value):
            text = write_value(value)
            return text, _PREFIX if text[:1] == "-" else _ALONE
        case Name(name=name):
            return write_name(name), _ALONE
        case Select(base=base, name=name):
            inner = _within(base, _ALONE)
            # 1.a is no number and nothing else.
            number = isinstance(base, Constant) and inner[-1:].isdigit()
            return f"{f'({inner})' if number else inner}.{write_name(name)}", _ALONE
        case Subscript(base=base, index=index):
            return f"{_within(base, _ALONE)}[{write_expression(index)}]", _ALONE
        case Unary(operator=operator, operand=operand):
            inner = _within(operand, _PREFIX)
            # -1 is a number, and so would be - before 1.
            number = operator == "-" and isinstance(operand, Constant)
            return f"{operator}({inner})" if number else f"{operator}{inner}", _PREFIX
        case Logic(operator=operator, operands=operands):
            binds = _STRENGTH[operator]
            return f" {operator} ".join(_within(part, binds + 1) for part in operands), binds
        case Binary(operator="?:", left=left, right=right):
            chained = isinstance(right, Binary) and right.operator == "?:"
            second = write_expression(right) if chained else _within(right, _ALONE)
            return f"{_within(left, _ALONE)} ?: {second}", 1
        case Binary(operator=operator, left=left, right=right):
            binds = _STRENGTH[operator]
            return f"{_within(left, binds)} {operator} {_within(right, binds + 1)}", binds
        case Conditional(condition=condition, yes=yes, no=no):
            return f"{_within(condition, 2)} ? {write_expression(yes)} : {_within(no, 1)}", 1
        case FunctionCall(name=name, arguments=arguments):
            return f"{name}({', '.join(map(write_expression, arguments))})", _ALONE
        case ListLiteral(items=items):
            return f"{{{', '.join(map(write_expression, items))}}}", _ALONE
        case AdLiteral(pairs=pairs):
            inner = "; ".join(f"{write_name(name)} = {write_expression(value)}" for name, value in pairs)
            return f"[{inner}]", _ALONE


def write_time(value: AbsTime | RelTime) -> str:
    """2020-01-02T03:04:05+01:00, where it is; the needed part of days+hours:minutes:seconds."""
    if isinstance(value, RelTime):
        minutes, seconds = divmod(int(abs(value.seconds)), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        text = f"{days}+{hours:02}:{minutes:02}:{seconds:02}"
        shortest = 0 if days else 2 if hours else 5 if minutes else 8
        return ("-" if value.seconds < 0 else "") + (text[shortest:] if shortest else text)
    try:
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=value.seconds + value.ahead)
    except OverflowError:
        return str(value.seconds)
    hours, minutes = divmod(abs(value.ahead) // 60, 60)
    return f"{date:%Y-%m-%dT%H:%M:%S}{'+' if value.ahead > 0 else '-'}{hours:02}:{minutes:02}"


def write_value(value: Value) -> str:
    """A value as it is written in an ad."""
    if isinstance(value, (AbsTime, RelTime)):
        exact = isinstance(value, RelTime) and value.seconds != int(value.seconds)
        name = "relTime" if isinstance(value, RelTime) else "absTime"
        return f"{name}({value.seconds if exact else f'{chr(34)}{write_time(value)}{chr(34)}'})"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value.translate(_IN_TEXT)}"'
    if isinstance(value, Special):
        return value.value
    if isinstance(value, tuple):
        return f"{{{', '.join(map(write_value, value))}}}"
    if isinstance(value, Ad):
        inner = "; ".join(_entry(entry) for entry in value)
        return f"[{inner}]"
    return repr(value)


def _entry(entry: AdAttribute) -> str:
    return f"{write_name(entry.name)} = {write_expression(entry.node)}"
