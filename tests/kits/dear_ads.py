"""Site ads that are as dear as the limits of their texts allow, by what is dear in them. Each is dear only once a pilot was
placed: until then nothing in it costs anything, so that an ad's first evaluation shows nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

HEAD = 'Name = "North"\nUpdateSequenceNumber = 1\nMaxJobs = 9\nCurrentJobs = 0\nCurMatches = 0\n'
_HIDDEN = "CurMatches < 9 && (CurMatches == 0 || {})"


def _ad(requirements: str, *attributes: str, hidden: bool) -> str:
    text = _HIDDEN.format(requirements) if hidden else requirements
    return HEAD + "\n".join([*attributes, f"Requirements = {text}"])


def _texts(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Long texts, of letters, digits, words and letters beyond ASCII."""
    size = draw.choice([200, 3_000, 25_000])
    yield "letters", "".join(draw.choices("ab", k=size))
    yield "digits", "1" * size
    yield "words", "a," * (size // 2)
    yield "beyond ASCII", "\u00c4\u00e4" * (size // 4)


_ON_TEXTS = (
    "T == U", "T < U", 'T == "x"', "T =?= U", "strcmp(T, U) > 0", "stricmp(T, U) > 0", "versionGT(T, U)",
    "size(strcat(T, U)) == 1", "size(split(T)) == 1", 'stringListMember("x", T)', 'stringListIMember("x", T)',
    "stringListSubsetMatch(T, U)", 'stringListsIntersect(T, "x")', "stringListSum(T) == 1",
    'stringListSum(strcat(T, "x")) == 1', "toUpper(T) == U", "toLower(T) == U", "int(T) == 1", "real(T) == 1",
    "size(substr(T, 1)) == 1", "size(join(T, {U, U})) == 1", "version_in_range(T, U, T)", 'regexp("a.{0,60}z", T)',
    'regexp("(a|b|ab)*c", T, "i")', 'regexp(T, "a")', 'regexp(strcat(T, "{{2}"), U)', "isError(string({T, {U, T}}))",
    "member(T, {U, U, U, U, U, U})", 'anyCompare("<", {U, U, U}, T)', "isError(T.x)", "size(string(MY)) == 1",
    "[a = T; b = a].b == U",
)  # fmt: skip
_ON_LISTS = (
    "member(7, L)", 'anyCompare("==", L, "x")', 'allCompare("<", L, 5)', "identicalMember(7, L)", "sum(L) < 0",
    "max(L) < 0", "size(L.x) == 1", "size(string(L)) == 1", 'size(join(",", L)) == 1', "size({L, L, L}) == 1",
    "isError({L, L}.x)", "L[3] == 2",
)  # fmt: skip

IN_PATTERNS = (
    "a", "()", "(a)", "(?:)", "|", "a|", "a*", "a*?", "a++", "a{3}", "(a|b){0}", "a{255}", "(){255}", "(a?){9}", "(?i)",
    "(?^)", "[a]", "[a-z]", "[^[:alpha:]x-z]", r"\\x41", r"\\R", r"\\K", r"\\b", "^", "$", ".", "(?#x)", "(?=a)", "(?!a)",
    "(?>a)", "(?<=a|bb|ccc)", r"\\Q!!!\\E", "[a-b", "\u00e9*", r"\\.", "((((a))))", "(?=(?=a)b)", "(a*)*", "a ", "#",
    "(?i:a)", "(?x: a)", "(?<=a|b)",
)  # fmt: skip
_PATTERNS = (
    'regexp(strcat(P, "{n}"), "ab")', 'isError(regexp(strcat(P, "{n}("), "ab", "{options}"))', 'regexp("{n}{pattern}", T)',
    'regexps(strcat("a|", P, "{n}"), T, "z") == "y"', 'replaceAll(strcat("b|", P, "{n}"), T, "x\\\\0", "{options}") == "y"',
    'stringList_regexpMember(strcat(P, "{n}"), T)', "regexp(strcat(P, T), TARGET.Owner)",
)  # fmt: skip


def dear_ads(seed: int, *, hidden: bool = True) -> Iterator[tuple[str, str]]:
    """Names and texts of ads of one seed."""
    draw = random.Random(seed)
    many = draw.choice([1, 30, 60])
    for kind, text in _texts(draw):
        for one in _ON_TEXTS:
            found = " || ".join([one] * many)
            yield (
                f"{one} of {kind}",
                _ad(f"({found})", f'T = "{text}"', f'U = "{text[:-2]}{text[:1]}"', hidden=hidden),
            )
    for one in _ON_LISTS:
        items = ",".join(["1"] * draw.choice([10, 1_500]))
        found = " || ".join([one] * many)
        yield one, _ad(f"({found})", f"L = {{{items}}}", hidden=hidden)
    yield from _chains(draw, hidden=hidden)
    yield from _patterns(draw, hidden=hidden)


def _chains(draw: random.Random, *, hidden: bool) -> Iterator[tuple[str, str]]:
    """Attributes that ask for others, each more than once."""
    wide, long = draw.choice([(2, 200), (20, 60), (45, 30)])
    for name, first, step, last in (
        ("sums", "time()", " + ".join(["a{0}"] * wide), "a{0} > 1"),
        ("texts", '"abcdefgh"', "strcat(a{0}, a{0})", "size(a{0}) > 1"),
        ("lists", "{{1, time()}}", "{{" + ", ".join(["a{0}"] * wide) + "}}", "size(string(a{0})) > 1"),
        ("selections", "{{1, time()}}", "{{" + ", ".join(["a{0}"] * wide) + "}}", "size(a{0}.x) > 1"),
        ("nested ads", "time()", "[b = a{0}; c = b; d = [e = c]].d.e", "a{0} > 1"),
        ("choices", "time()", "isError(a{0}) ? 1 : a{0}", "a{0} > 1"),
        ("links", "time()", "a{0}", " && ".join(["a{0} > 1"] * 60)),
    ):
        lines = [f"a0 = {first.replace('{{', '{').replace('}}', '}')}"]
        lines += [f"a{n} = {step.format(n - 1)}" for n in range(1, long)]
        yield name, _ad(f"({last.format(long - 1)})", *lines, hidden=hidden)


def _patterns(draw: random.Random, *, hidden: bool) -> Iterator[tuple[str, str]]:
    """Patterns that are worked out, each another one, and patterns that are written."""
    for search in _PATTERNS:
        for part in draw.sample(IN_PATTERNS, 12):
            pattern = part * draw.choice([5, 40, 300, 2_000])
            options = draw.choice(["", "i", "x"])
            calls = [
                search.format(n=n, pattern=pattern[: 40_000 // 60], options=options)
                for n in range(draw.choice([8, 60]))
            ]
            yield (
                f"{search} of {part}",
                _ad(f"({' || '.join(calls)})", f'P = "{pattern}"', 'T = "ab, aab, b ba"', hidden=hidden),
            )
