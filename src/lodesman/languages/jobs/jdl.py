"""JDL, the language in which jobs of DIRAC and the EGEE grids are described (reference: RFC #7 example).

    text   = [ "[" ] { name "=" value ";" } [ "]" ]       the last ";" may be missing
    value  = string | number | true | false | "{" [ value { "," value } [","] ] "}" | "[" { name "=" value ";" } "]"

Names do not depend on case: one given twice is refused, except inside `Environment`. Expressions are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lodesman.base.errors import SyntaxFault, fault_at, line_column
from lodesman.languages.jobs import jdl_tokens as tokens
from lodesman.languages.jobs.record import (
    DEFAULT_LIMITS,
    EXACT_CASE,
    NAME_LENGTH,
    PATH_LENGTH,
    ParsedRecord,
    Positions,
    Record,
    TextLimits,
    name_problem,
    shown,
    text_of,
)

_Match = re.Match[str]


def read_jdl(text: str, limits: TextLimits) -> ParsedRecord:
    """Read one description. Raises SyntaxFault."""
    reader = _JdlReader(text, limits)
    record, offsets = reader.whole(), reader.offsets
    return ParsedRecord(record=record, positions=Positions(text, lambda _: offsets), form="jdl")


def read_jdl_value(text: str, limits: TextLimits = DEFAULT_LIMITS) -> tuple[Any, int]:
    """A text that is one value; also how many values it has in all. Raises SyntaxFault."""
    reader = _JdlReader(text, limits)
    value = reader.value(reader.take(), "", 0)
    after = reader.take()
    if after.lastgroup != "end":
        raise reader.unexpected(after, "the end of the value")
    return value, limits.nodes - reader.left


class _JdlReader:
    """Recursive, over one stream of tokens; the depth of nesting is limited."""

    __slots__ = ("left", "limits", "offsets", "take", "text")

    def __init__(self, text: str, limits: TextLimits) -> None:
        self.text = text
        self.limits = limits
        self.left = limits.nodes
        self.offsets: dict[str, int] = {}
        self.take: Callable[[], _Match] = tokens.TOKEN.finditer(text).__next__

    def whole(self) -> Record:
        first = self.take()
        if first["punct"] != "[":
            return self.entries(first, "", 0)
        record = self.entries(self.take(), "", 0, opened=first)
        after = self.take()
        if after.lastgroup != "end":
            raise self.fault(after, "the text goes on after the closing ']'", "One description, one record.")
        return record

    def entries(self, token: _Match, prefix: str, depth: int, *, opened: _Match | None = None) -> Record:
        """From `token` up to the closing bracket (or the end of the text)."""
        record: Record = {}
        seen: dict[str, int] = {}
        exact = prefix[:-1].rpartition("/")[2].lower() in EXACT_CASE
        take, value_of = self.take, self.value
        while True:
            kind = token.lastgroup
            if kind == "assign" or kind == "odd":  # noqa: PLR1714 - twice as fast as `in` here
                name = token["assign"]
                if name is None or len(name) > NAME_LENGTH:
                    name = self.odd_name(token, name)
                key = name if exact else name.lower()
                if key in seen:
                    line, column = line_column(self.text, seen[key])
                    message = f"{shown(name)} is given twice, first at line {line}, column {column}"
                    raise self.fault(token, message, "Keep one of them; names do not depend on case.")
                seen[key] = self.offsets[prefix + name] = token.start(kind)
                record[name] = value_of(take(), prefix + name, depth)
                token = take()
                if token["punct"] == ";":
                    token = take()
                    continue
                self.check_closing(token, name, opened)
                return record
            if token["punct"] != ";":
                self.check_closing(token, "", opened)
                return record
            token = take()

    def value(self, token: _Match, path: str, depth: int) -> Any:
        self.left -= 1
        if self.left < 0:
            message = f"more than {self.limits.nodes} values in all"
            raise self.fault(token, message, "Split the description.")
        kind = token.lastgroup
        if kind == "text":
            return token["text"]
        if kind == "number":
            return tokens.number(self.text, token.start("number"), token["number"])
        if kind == "punct":
            return self.nested(token, path, depth + 1)
        if kind == "quoted":
            return tokens.unescape(self.text, token.start("quoted"), token.end("quoted"))
        return self.truth(token)

    def nested(self, token: _Match, path: str, depth: int) -> Any:
        mark = token["punct"]
        if mark not in "[{":
            raise self.unexpected(token, "a value")
        if depth >= self.limits.depth:
            message = f"nested deeper than {self.limits.depth} levels"
            raise self.fault(token, message, "Flatten the description.")
        if mark == "{":
            return self.items(token, path, depth)
        return self.entries(self.take(), path[:PATH_LENGTH] + "/", depth, opened=token)

    def items(self, opened: _Match, path: str, depth: int) -> list[Any]:
        values: list[Any] = []
        take = self.take
        while True:
            token = take()
            if token["punct"] == "}":
                return values
            values.append(self.value(token, f"{path[:PATH_LENGTH]}[{len(values)}]", depth))
            token = take()
            mark = token["punct"]
            if mark == "}":
                return values
            if mark != ",":
                if token.lastgroup == "end":
                    raise self.unclosed(opened)
                raise self.unexpected(token, "',' or '}' in the list")

    def truth(self, token: _Match) -> bool:
        word = token["word"]
        if not word:
            raise self.unexpected(token, "a value")
        if word.lower() in ("true", "false"):
            return bool(word.lower() == "true")
        raise tokens.unquoted_fault(self.text, token.start("word"))

    def odd_name(self, token: _Match, name: str | None) -> str:
        if name is None:
            name = tokens.unescape(self.text, token.start("odd"), token.end("odd"))
        message = name_problem(name)
        if message:
            raise self.fault(token, message, "Names are 1 to 255 printable characters.")
        return name

    def check_closing(self, token: _Match, after: str, opened: _Match | None) -> None:
        """Anything but the end of a list of attributes is a fault."""
        if opened is None:
            if token.lastgroup == "end":
                return
        elif token["punct"] == "]":
            return
        elif token.lastgroup == "end":
            raise self.unclosed(opened)
        # A word was meant as a name: the fault stands after it.
        if not after and token.lastgroup == "word":
            raise tokens.fault_after_name(self.text, token.start("word"), token.end("word"))
        if not after and token.lastgroup == "text":
            fault = tokens.fault_of_quoted_name(self.text, token.start("text"), token.end("text"))
            if fault:
                raise fault
        needed = f"';' after the value of {shown(after)}" if after else 'an attribute, as in Name = "value";'
        raise self.unexpected(token, needed)

    def unclosed(self, opened: _Match) -> SyntaxFault:
        mark = opened["punct"]
        return self.fault(opened, f"'{mark}' is never closed", f"Add '{']' if mark == '[' else '}'}'.")

    def unexpected(self, token: _Match, needed: str) -> SyntaxFault:
        kind = token.lastgroup
        if kind == "junk":
            return tokens.fault_of_junk(self.text, token.start("junk"))
        if kind == "end":
            return self.fault(token, f"the text ends where {needed} is needed")
        group = kind or "punct"
        token_text = shown(token[group]) or '""'
        return self.fault(token, f"{token_text} stands where {needed} is needed")

    def fault(self, token: _Match, message: str, hint: str = "") -> SyntaxFault:
        return fault_at(self.text, token.start(token.lastgroup or 0), message, hint=hint)


def write_jdl(record: Record) -> str:
    """A text that reads as exactly this record."""
    return f"[\n{_lines(record, '  ')}]\n"


def write_jdl_value(value: Any, indent: str | None = None) -> str:
    """On one line, or with the entries of records on lines behind `indent`."""
    if isinstance(value, list):
        return "{" + ", ".join(write_jdl_value(item, indent) for item in value) + "}"
    if not isinstance(value, dict):
        return written_scalar(value)
    if not value:
        return "[]"
    if indent is None:
        entries = (f"{tokens.written_name(name)} = {write_jdl_value(item)};" for name, item in value.items())
        return f"[ {' '.join(entries)} ]"
    return f"[\n{_lines(value, indent + '  ')}{indent}]"


def _lines(record: Record, indent: str) -> str:
    return "".join(
        f"{indent}{tokens.written_name(name)} = {write_jdl_value(value, indent)};\n"
        for name, value in record.items()
    )


def written_scalar(value: Any) -> str:
    """A string, number or truth value."""
    return tokens.quote(value) if isinstance(value, str) else text_of(value)
