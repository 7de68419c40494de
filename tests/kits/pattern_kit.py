"""Random regular expressions, texts for them, and calls that search one in the other."""

from __future__ import annotations

import json
import random

ATOMS = (
    *"abA1 .-_{]}", "\n", "^", "$", "[ab]", "[^a]", "[a-c]", "[a-c1-]", "[]a]", "[^]a]", r"[\d_]", r"[\x41-\x43]",
    "[[:alpha:]]", "[[:digit:]_]", "[^[:upper:]]", "[[:^lower:]]", "[[:punct:][:space:]]", "[[:word:]]", "[:a]",
    r"\d", r"\W", r"\w", r"\s", r"\S", r"\D", r"\h", r"\v", r"\N", r"\R", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\G",
    r"\.", r"\-", r"\x61", r"\x{41}", r"\101", r"\o{61}", r"\t", r"\n", r"\Qa.b\E", r"\Q-\E", "(?i)", "(?-i)", "(?s)",
    "(?m)", "(?x)", "(?# a )", "[[:<:]]", "[[:>:]]", "a{1", "b{", "{a}", r"\K",
)  # fmt: skip
NEVER_REPEATED = ("[[:<:]]", "[[:>:]]")
"""A repetition there repeats half of it in PCRE2; here it is refused."""
GROUPS = (
    "(", "(", "(?:", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?s-i:", "(?<n>", "(?P<n>", "(?'n'", "(?n:",
    "(?^:", "(?U:",
)  # fmt: skip
REPEATS = (
    "", "", "", "", "*", "+", "?", "{2}", "{1,2}", "{1,}", "{0,3}", "*?", "+?", "??", "*+", "++", "?+", "{1,2}+", "{2}?",
)  # fmt: skip
ODD = (
    r"\1", r"\k<n>", r"\p{L}", r"\X", "(?|a)", "(?(1)a)", "(?R)", "(*F)", "a{,2}", "a{ 1}", "[[.a.]]", "[[:no:]]",
    "[:a:]", "**", r"\y", r"\8", "[", "(", ")", "[b-a]", r"[\d-z]", "a{3,2}", "(?", "(?q)", "\\",
)  # fmt: skip


def pattern(draw: random.Random, depth: int = 2, *, odd: float = 0.0) -> str:
    """A pattern of PCRE2; `odd`: how often there is something in it that one of both refuses."""
    pieces = []
    for _ in range(draw.randint(0, 4)):
        if draw.random() < odd:
            pieces.append(draw.choice(ODD))
            continue
        nested = depth and draw.random() < 0.35
        atom = f"{draw.choice(GROUPS)}{pattern(draw, depth - 1, odd=odd)})" if nested else draw.choice(ATOMS)
        pieces.append(atom + ("" if atom in NEVER_REPEATED else draw.choice(REPEATS)))
    return "|".join(["".join(pieces), *([draw.choice(ATOMS)] if draw.random() < 0.25 else [])])


def call(draw: random.Random, *, odd: float = 0.0) -> str:
    """A call of a function that takes a pattern."""
    text = "".join(draw.choices("aabbA1 .-_\n{]", k=draw.randint(0, 8)))
    sought, options = pattern(draw, odd=odd), draw.choice(("", "", "i", "s", "m", "is", "x"))
    kind = draw.random()
    if kind < 0.5:
        return f"regexp({quoted(sought)}, {quoted(text)}, {quoted(options)})"
    template = draw.choice(("x", "<\\0>", "\\1", "[\\1\\2]", "\\\\", ""))
    name = draw.choice(("regexps", "replace", "replaceAll"))
    return f"{name}({quoted(sought)}, {quoted(text)}, {quoted(template)}, {quoted(options + draw.choice(('', 'g')))})"


def quoted(text: str) -> str:
    """As an ad writes it."""
    return json.dumps(text, ensure_ascii=False)
