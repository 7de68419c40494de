"""ClassAd texts as trees, by a Pratt parser, strict: what follows an expression, a name that comes twice, a number that
64 bits do not hold are faults, with line and column.

    new form:   [ Name = expression; ... ]          old form:   Name = expression, one for each line; # begins a remark
"""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import pairwise
from typing import Final, cast

from lodesman.base.errors import SyntaxFault, fault_at
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
    two_readings,
)
from lodesman.languages.classad.tokens import AdToken, number_of, shown, token_at, unescape
from lodesman.languages.classad.values import ERROR, UNDEFINED, UnaryName, Value, lower

_BLANK_LINES: Final = re.compile(r"\n(?:[ \t\r]*\n)+")
MOST_CHARACTERS: Final = 1 << 16
_MOST_DEPTH: Final = 64
_MOST_NODES: Final = 1_000
MOST_ITEMS: Final = 10_000

# How strongly an operator binds what is on its left.
_BINARY: Final = {
    "?": 1, "?:": 1, "||": 2, "&&": 3, "|": 4, "^": 5, "&": 6,
    "==": 7, "!=": 7, "=?=": 7, "=!=": 7, "is": 7, "isnt": 7,
    "<": 8, "<=": 8, ">": 8, ">=": 8, "<<": 9, ">>": 9, ">>>": 9,
    "+": 10, "-": 10, "*": 11, "/": 11, "%": 11, ".": 13, "[": 13,
}  # fmt: skip
_OPERATORS: Final = ("mark", "name")
_PREFIX: Final = 12
_WORDS: Final[dict[str, Value]] = {"true": True, "false": False, "undefined": UNDEFINED, "error": ERROR}
_SYNONYMS: Final = {"self": "my", "other": "target"}
_SIDE_OF: Final = {
    ("my", "my"): "MY", ("my", "target"): "TARGET", ("target", "my"): "TARGET", ("target", "target"): "MY",
}  # fmt: skip
_SPELLED: Final = {"is": "=?=", "isnt": "=!="}


def parse_expression(text: str, *, stored: bool = False) -> Node:
    """Raises SyntaxFault, also for what follows the expression.

    `stored`: it may be of a release in which ?: was the weakest operator.
    """
    _check_length(text)
    parser = _Parser(text)
    parser.is_stored = stored
    node = parser.expression(0)
    parser.expect_end("an expression")
    return node


def parse_ad(text: str) -> Ad:
    """The new form begins with `[`. Raises SyntaxFault."""
    _check_length(text)
    if not _is_new(text, 0):
        return Ad(_old_form(text, 0, len(text)))
    parser = _Parser(text)
    ad = parser.ad()
    parser.expect_end("an ad")
    return ad


def parse_ads(text: str) -> list[Ad]:
    """The ads of a file: in the new form one after the other, in the old one with blank lines between.

    Raises SyntaxFault.
    """
    _check_length(text)
    if _is_new(text, 0):
        parser, ads = _Parser(text), []
        while parser.token.kind != "end":
            ads.append(parser.ad())
        return ads
    starts = [0, *[blank.end() for blank in _BLANK_LINES.finditer(text)], len(text)]
    parts = [_old_form(text, start, stop) for start, stop in pairwise(starts)]
    return [Ad(entries) for entries in parts if entries]


def _is_new(text: str, offset: int) -> bool:
    first = token_at(text, offset, len(text), old=True)
    return first.text == "[" and first.kind == "mark"


def entries_of(record: AdLiteral) -> dict[str, AdAttribute]:
    """By names in small letters."""
    return {lower(name): AdAttribute(name, value) for name, value in record.pairs}


def _check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS or len(text.encode("utf-8", "surrogatepass")) > MOST_CHARACTERS:
        raise fault_at(text, 0, f"the text has more than {MOST_CHARACTERS >> 10} KiB")


def _old_form(text: str, start: int, stop: int) -> dict[str, AdAttribute]:
    """A backslash is plain, but before a quote that does not end the line."""
    entries: dict[str, AdAttribute] = {}
    for line in text[start:stop].split("\n"):
        end = start + len(line)
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "//")):
            parser = _Parser(text, start, end, old=True)
            name = parser.attribute_name(entries)
            entries[lower(name)] = AdAttribute(name, parser.expression(0))
            while parser.at(";"):
                parser.advance()
            parser.expect_end("an attribute")
        start = end + 1
    return entries


class _Parser:
    """`token` is the next one."""

    def __init__(self, text: str, start: int = 0, stop: int | None = None, *, old: bool = False) -> None:
        self.text = text
        self.stop = len(text) if stop is None else stop
        self.old = old
        self.token = token_at(text, start, self.stop, old=old)
        self.nodes = 0
        self.nested = 0
        self.is_stored = False
        self.closed: Node | None = None
        """The content of the parentheses that were read last."""

    # --- tokens ----------------------------------------------------------------------------------------------

    def advance(self) -> AdToken:
        token = self.token
        self.token = token_at(self.text, token.stop, self.stop, old=self.old)
        return token

    def at(self, mark: str) -> bool:
        return self.token.kind == "mark" and self.token.text == mark

    def expect(self, mark: str, after: str) -> AdToken:
        if not self.at(mark):
            raise self.unexpected(f"where {mark} is needed after {after}")
        return self.advance()

    def expect_end(self, needed: str) -> None:
        if self.token.kind != "end":
            raise self.unexpected(f"after the end of {needed}")

    def unexpected(self, where: str) -> SyntaxFault:
        token = self.token
        if token.kind == "end":
            return fault_at(self.text, token.start, f"the text ends {where}")
        hint = "== compares two values." if token.text == "=" and token.kind == "mark" else ""
        piece = shown(self.text[token.start : token.stop])
        return fault_at(self.text, token.start, f"{piece} stands {where}", hint=hint)

    def ad(self) -> Ad:
        start = self.token.start
        self.nested += 1
        node = self.prefix()
        self.nested -= 1
        if not isinstance(node, AdLiteral):
            hint = "[ Name = value; ... ]"
            raise fault_at(self.text, start, "an expression, where an ad is needed", hint=hint)
        return Ad(entries_of(node))

    # --- trees -----------------------------------------------------------------------------------------------

    def count(self, start: int, *parts: Node) -> int:
        """The depth of a new node. Raises SyntaxFault if there are too many, or it is too deep."""
        self.count_leaf(start)
        deepest = 0
        for part in parts:
            if part.depth > deepest:  # noqa: PLR1730 - `max` of each takes twice as long
                deepest = part.depth
        if deepest >= _MOST_DEPTH:
            raise self.too_deep(start)
        return deepest + 1

    def count_leaf(self, start: int) -> None:
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise fault_at(self.text, start, f"an expression of more than {_MOST_NODES:,} parts")

    def too_deep(self, start: int) -> SyntaxFault:
        return fault_at(self.text, start, f"an expression nested more than {_MOST_DEPTH} deep")

    def expression(self, strength: int) -> Node:
        self.nested += 1
        if self.nested > _MOST_DEPTH:
            raise self.too_deep(self.token.start)
        left = self.prefix()
        while True:
            token = self.token
            operator = token.text if token.kind == "mark" else lower(token.text)
            binds = _BINARY.get(operator, 0) if token.kind in _OPERATORS else 0
            if binds <= strength:
                break
            self.advance()
            left = self.infix(left, operator, binds)
        self.nested -= 1
        return left

    def infix(self, left: Node, operator: str, binds: int) -> Node:
        start = left.start
        if operator == ".":
            return self.select(left)
        if operator == "[":
            index = self.expression(0)
            stop = self.expect("]", "the index").stop
            return Subscript(
                base=left, index=index, start=start, stop=stop, depth=self.count(start, left, index)
            )
        if operator == "?":
            yes = self.expression(0)
            self.expect(":", "the first choice")
            no = self.expression(binds - 1)
            depth = self.count(start, left, yes, no)
            return Conditional(condition=left, yes=yes, no=no, start=start, stop=no.stop, depth=depth)
        if operator == "?:":
            return self.default(left)
        right = self.expression(binds)
        if operator in {"&&", "||"}:
            return self.logic(left, operator, right)
        depth = self.count(start, left, right)
        name = _SPELLED.get(operator, operator)
        return Binary(operator=name, left=left, right=right, start=start, stop=right.stop, depth=depth)

    def default(self, left: Node) -> Node:
        """Read `left ?: right`. Raises SyntaxFault if one is an operation without parentheses, but for another ?:."""
        at = self.text.rfind("?:", left.stop, self.token.start)
        readings = None if left is self.closed else two_readings(left, "left")
        right = self.expression(_BINARY["?:"] - 1)
        readings = readings or (None if right is self.closed else two_readings(right, "right"))
        if readings and not self.is_stored:
            hint = "HTCondor 25.14 reads {} as {}, 23.9 as {}: write the parentheses.".format(*readings)
            raise fault_at(self.text, at, "?: beside another operator without parentheses", hint=hint)
        depth = self.count(left.start, left, right)
        return Binary(operator="?:", left=left, right=right, start=left.start, stop=right.stop, depth=depth)

    def logic(self, left: Node, operator: str, right: Node) -> Node:
        """Read a chain of one operator as one node; `left` may be its beginning."""
        chained = isinstance(left, Logic) and left.operator == operator
        operands = (*cast("Logic", left).operands, right) if chained else (left, right)
        depth = self.count(left.start, *operands)
        return Logic(operator=operator, operands=operands, start=left.start, stop=right.stop, depth=depth)

    def select(self, base: Node) -> Node:
        token = self.token
        if token.kind not in {"name", "quoted"}:
            raise self.unexpected("where the name of an attribute is needed")
        self.advance()
        name = self.name_of(token)
        key = lower(name)
        side = _SIDE_OF.get((base.key, key)) if isinstance(base, Name) else None
        if side:
            return Name(name=side, key=lower(side), start=base.start, stop=token.stop)
        depth = self.count(base.start, base)
        return Select(base=base, name=name, key=key, start=base.start, stop=token.stop, depth=depth)

    def name_of(self, token: AdToken) -> str:
        name = unescape(self.text, token, old=self.old) if token.kind == "quoted" else token.text
        if not name:
            raise fault_at(self.text, token.start, "a name without letters")
        return name

    def prefix(self) -> Node:
        token = self.token
        kind = token.kind
        if kind in {"number", "text"}:
            return self.constant()
        if kind in {"name", "quoted"}:
            return self.word()
        match token.text if kind == "mark" else "":
            case "-" | "+" | "!" | "~" as operator:
                return self.unary(operator)
            case "(":
                self.advance()
                self.closed = self.expression(0)
                self.expect(")", "the expression in parentheses")
                return self.closed
            case "{":
                self.advance()
                items, stop = self.until("}", "the list")
                depth = self.count(token.start, *items)
                return ListLiteral(items=items, start=token.start, stop=stop, depth=depth)
            case "[":
                self.advance()
                return self.record(token.start)
            case _:
                raise self.unexpected("where a value is needed")

    def constant(self, minus: AdToken | None = None) -> Constant:
        token = self.advance()
        start = (minus or token).start
        if token.kind == "number":
            value: Value = number_of(self.text, token, negative=minus is not None)
        else:
            value = unescape(self.text, token, old=self.old)
        self.count_leaf(start)
        return Constant(value=value, start=start, stop=token.stop)

    def unary(self, operator: UnaryName) -> Node:
        token = self.advance()
        if operator == "-" and self.token.kind == "number":
            return self.constant(token)
        operand = self.expression(_PREFIX)
        depth = self.count(token.start, operand)
        return Unary(operator=operator, operand=operand, start=token.start, stop=operand.stop, depth=depth)

    def word(self) -> Node:
        token = self.advance()
        name = self.name_of(token)
        key = lower(name)
        start = token.start
        if self.at("(") and token.kind == "name":
            self.advance()
            arguments, stop = self.until(")", "the arguments")
            depth = self.count(start, *arguments)
            return FunctionCall(name=name, key=key, arguments=arguments, start=start, stop=stop, depth=depth)
        self.count_leaf(start)
        if key in _WORDS and token.kind == "name":
            return Constant(value=_WORDS[key], start=start, stop=token.stop)
        if key in _SYNONYMS and self.at("."):
            key = _SYNONYMS[key]
        return Name(name=name, key=key, start=start, stop=token.stop)

    def until(self, mark: str, needed: str) -> tuple[tuple[Node, ...], int]:
        """Read expressions between commas up to a mark, and its end. Constants count as items alone."""
        items: list[Node] = []
        while not self.at(mark):
            if items:
                self.expect(",", needed)
            items.append(self.expression(0))
            self.nodes -= isinstance(items[-1], Constant)
            if len(items) > MOST_ITEMS:
                raise fault_at(self.text, items[-1].start, f"more than {MOST_ITEMS:,} items in a list")
        return tuple(items), self.advance().stop

    def record(self, start: int) -> Node:
        pairs: dict[str, tuple[str, Node]] = {}
        while not self.at("]"):
            if self.at(";"):
                self.advance()
                continue
            before = self.nodes
            name = self.attribute_name(pairs)
            pairs[lower(name)] = name, self.expression(0)
            if self.nested == 1:
                self.nodes = before  # each attribute of the ad itself is an expression of its own
            if not self.at("]"):
                self.expect(";", f"the attribute {shown(name)}")
        stop = self.advance().stop
        values = [value for _, value in pairs.values()]
        return AdLiteral(
            pairs=tuple(pairs.values()), start=start, stop=stop, depth=self.count(start, *values)
        )

    def attribute_name(self, names: Container[str]) -> str:
        """Read a name and `=`. Raises SyntaxFault if `names` has it, in small letters."""
        token = self.token
        if token.kind not in {"name", "quoted"}:
            raise self.unexpected("where the name of an attribute is needed")
        self.advance()
        name = self.name_of(token)
        if lower(name) in names:
            raise fault_at(self.text, token.start, f"the attribute {shown(name)} comes twice")
        self.expect("=", f"the name {shown(name)}")
        return name
