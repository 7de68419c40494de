"""Random expressions and ads, which both this program and HTCondor can be asked about."""

from __future__ import annotations

import random

NAMES = ("Memory", "Cpus", "Arch", "Tags", "Load", "Nothing", "Nested", "Sum", "Open")
NUMBERS = ("0", "1", "2", "3", "7", "-4", "12", "0.5", "2.0", "-1.5", "1e2")
TEXTS = ('"a"', '"A"', '"b"', '"x86_64"', '"X86_64"', '"1.10"', '"1.9"', '"12"', '"a, b,c"', '""', '"a b"')
WORDS = ("true", "false", "undefined", "error")
BINARY = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "=?=",
    "=!=",
    "&&",
    "||",
    "&",
    "|",
    "^",
    "?:",
    "is",
    "isnt",
)
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
)
OF_THREE = ("ifThenElse", "substr")


def expression(draw: random.Random, depth: int = 3) -> str:
    """A text that both can read. Numbers are small: what 64 bits do not hold is answered differently."""
    kind = draw.random()
    if depth == 0 or kind < 0.25:
        return _leaf(draw)
    one, two = expression(draw, depth - 1), expression(draw, depth - 1)
    if kind < 0.65:
        return f"({one} {draw.choice(BINARY)} {two})"
    if kind < 0.72:
        return f"({draw.choice('-!~+')}({one}))"
    if kind < 0.78:
        return f"({one} ? {two} : {expression(draw, depth - 1)})"
    if kind < 0.82:
        return f"{{{one}, {two}}}{draw.choice(('', '[0]', '[1]', f'[{_leaf(draw)}]'))}"
    if kind < 0.85:
        return f"[x = {draw.choice(NUMBERS)}; y = x + {draw.choice(NUMBERS)}].{draw.choice('xyz')}"
    return _call(draw, one, two)


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
        return f"{draw.choice(('', '', 'MY.', 'TARGET.'))}{draw.choice(NAMES)}"
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
