"""Random expressions and ads, which both this program and HTCondor can be asked about."""

from __future__ import annotations

import random

NAMES = ("Memory", "Cpus", "Arch", "Tags", "Load", "Nothing", "Nested", "Sum", "Open")
NUMBERS = ("0", "1", "2", "3", "7", "-4", "12", "0.5", "2.0", "-1.5", "1e2")
TEXTS = ('"a"', '"A"', '"b"', '"x86_64"', '"X86_64"', '"1.10"', '"1.9"', '"12"', '"a, b,c"', '""', '"a b"')
SIDES = ("",) * 6 + (
    "MY.",
    "MY.",
    "TARGET.",
    "TARGET.",
    "self.",
    "other.",
    "MY.MY.",
    "TARGET.MY.",
    "MY.TARGET.",
)
WORDS = ("true", "false", "undefined", "error")
BINARY = {
    "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6, "==": 7, "!=": 7, "=?=": 7, "=!=": 7, "is": 7, "isnt": 7,
    "<": 8, "<=": 8, ">": 8, ">=": 8, "<<": 9, ">>": 9, ">>>": 9, "+": 10, "-": 10, "*": 11, "/": 11, "%": 11, "?:": 1,
}  # fmt: skip
"""How strongly they bind; ?: needs parentheses beside all others."""
UNARY, ALONE = 12, 14
OF_ONE = (
    "isUndefined",
    "isError",
    "isString",
    "isInteger",
    "isReal",
    "isBoolean",
    "isList",
    "isClassAd",
    "int",
    "real",
    "bool",
    "floor",
    "ceiling",
    "round",
    "size",
    "string",
    "toUpper",
    "toLower",
    "stringListSize",
    "splitUserName",
    "splitSlotName",
    "interval",
    "argsToList",
    "listToArgs",
    "mergeEnvironment",
    "envV1ToV2",
    "isRelTime",
    "sum",
    "min",
    "max",
)
OF_TWO = (
    "strcat",
    "strcmp",
    "stricmp",
    "member",
    "identicalMember",
    "versionGE",
    "versionLT",
    "versionEQ",
    "stringListMember",
    "stringListIMember",
    "stringListsIntersect",
    "stringListSubsetMatch",
    "join",
    "substr",
    "quantize",
    "regexp",
    "regexpMember",
    "stringList_regexpMember",
    "argsToList",
    "mergeEnvironment",
    "split",
)
OF_THREE = ("ifThenElse", "substr", "replace", "regexps", "userMap", "version_in_range")


def expression(draw: random.Random, depth: int = 3) -> str:
    """A text that both can read. Numbers are small: what 64 bits do not hold is answered differently. There are few
    parentheses that need not be.
    """
    return _bound(draw, depth)[0]


def _within(draw: random.Random, depth: int, least: int) -> str:
    text, binds = _bound(draw, depth)
    return text if binds >= least and draw.random() < 0.95 else f"({text})"


def _bound(draw: random.Random, depth: int) -> tuple[str, int]:
    """With how strongly its outermost operator binds."""
    kind = draw.random()
    if depth == 0 or kind < 0.25:
        return _leaf(draw), ALONE
    below = depth - 1
    if kind < 0.65:
        return _binary(draw, below)
    if kind < 0.72:
        operand = _within(draw, below, UNARY)
        return f"{draw.choice('-!~+')}{f'({operand})' if operand[0] in '-+.0123456789' else operand}", UNARY
    if kind < 0.78:
        condition, yes, no = _within(draw, below, 2), expression(draw, below), _within(draw, below, 1)
        return f"{condition} ? {yes} : {no}", 1
    one, two = expression(draw, below), expression(draw, below)
    if kind < 0.82:
        return f"{{{one}, {two}}}{draw.choice(('', '[0]', '[1]', f'[{_leaf(draw)}]'))}", ALONE
    if kind < 0.85:
        return (
            f"[x = {draw.choice(NUMBERS)}; y = x + {draw.choice(NUMBERS)}].{draw.choice('xyz')}",
            ALONE,
        )
    return _call(draw, one, two), ALONE


def _binary(draw: random.Random, below: int) -> tuple[str, int]:
    operator = draw.choice([*BINARY])
    binds = BINARY[operator]
    if operator in {"<<", ">>", ">>>"}:
        right = str(draw.randint(1, 63))
    else:
        right = _within(draw, below, ALONE if operator == "?:" else binds + 1)
    return f"{_within(draw, below, ALONE if operator == '?:' else binds)} {operator} {right}", binds


def _call(draw: random.Random, one: str, two: str) -> str:
    kind = draw.random()
    if kind < 0.45:
        return f"{draw.choice(OF_ONE)}({one})"
    if kind < 0.9:
        return f"{draw.choice(OF_TWO)}({one}, {two})"
    return f"{draw.choice(OF_THREE)}({one}, {two}, {_leaf(draw)})"


def _leaf(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.35:
        return f"{draw.choice(SIDES)}{draw.choice(NAMES)}"
    if kind < 0.6:
        return draw.choice(NUMBERS)
    if kind < 0.85:
        return draw.choice(TEXTS)
    return draw.choice(WORDS) if kind < 0.97 else '{"a", "B", 1}'


def ad_text(draw: random.Random) -> str:
    """An ad in the new form, with most of the names that expressions ask for, and Requirements."""
    values = {
        "Memory": draw.choice(NUMBERS),
        "Cpus": draw.choice(("1", "4", "true")),
        "Arch": draw.choice(TEXTS),
        "Tags": draw.choice(('{"a", "b"}', '{"A"}', "{}", '{1, "a"}')),
        "Load": draw.choice(("0.5", "undefined", '"high"', "error")),
        "Nested": draw.choice(("[Memory = 5; Deep = Cpus]", "[]", "7")),
        "Sum": draw.choice(("Memory + 1", "MY.Memory * 2", "TARGET.Memory", "Memory > TARGET.Cpus")),
        "Open": draw.choice(("true", "false", "Memory < 10")),
        "Requirements": requirements(draw),
    }
    kept = {name: value for name, value in values.items() if name == "Requirements" or draw.random() < 0.85}
    return f"[{'; '.join(f'{name} = {value}' for name, value in kept.items())}]"


def requirements(draw: random.Random) -> str:
    """Clauses as people write them, and sometimes anything."""
    if draw.random() < 0.2:
        return expression(draw)
    simple = (
        "TARGET.Memory >= MY.Memory",
        "TARGET.Memory < 8",
        "Cpus >= 1",
        'TARGET.Arch == "x86_64"',
        'Arch != "b"',
        "TARGET.Open",
        "!Open",
        "(TARGET.Load < 0.9 || TARGET.Cpus == 4)",
        'member("a", TARGET.Tags)',
        'member(TARGET.Arch, {"a", "X86_64"})',
        "Memory * 2 > TARGET.Memory",
        "TARGET.Sum > 1",
        "TARGET.Nothing =?= undefined",
        "TARGET.Cpus =?= 4",
        "true",
        "(Cpus > 2 ? TARGET.Memory > 1 : TARGET.Open)",
        "Load <= 1 || Memory > 1",
        'TARGET.Arch < "b"',
        "TARGET.Tags == Tags",
    )
    return " && ".join(draw.sample(simple, draw.randint(1, 4)))
