"""Placeholders of parametric descriptions: `%s`, `%n`, `%j`, `%(X)s`, and `%%` for one percent sign.

`%s` is the member's value of `Parameters`, `%n` its number from 0, padded with zeros to the width of the
count, `%j` the job id, `%(X)s` its value of `Parameters.X`. Anything else after a percent sign stays as it
is. Filling is one pass: what a value brings in is never filled again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lodesman.errors import InvalidRequest
from lodesman.jobs.parsed import shown
from lodesman.jobs.sequences import value_at
from lodesman.jobs.spec import NamedSequence, ParametricMembers
from lodesman.jobs.values import Mistake

PLACEHOLDER = re.compile(r"%(?:([%snj])|\(([A-Za-z0-9_.-]{1,255})\)s)")

# A token names what is filled in: "s", "n", "j", or ":X" for the sequence X. With "=" before it the value
# keeps its type.
Member = Mapping[str, Any]
Filler = Callable[[Member], Any]
# A member's number and job id -> what fills the token.
Source = Callable[[int, int], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A value with placeholders, ready to be filled, and the tokens it needs."""

    fill: Filler
    tokens: frozenset[str]


def no_member(index: int, count: int) -> InvalidRequest:
    """The error for a member that the description does not have."""
    return InvalidRequest(f"There is no member {index}; they are 0 to {count - 1}.", count=count)


def text_of(value: Any) -> str:
    """A parameter's value as it stands in a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def tokens_in(value: Any) -> set[str]:
    """The tokens in a text, a list or a record of such, whether they are known or not."""
    found: set[str] = set()
    for text in _texts(value):
        for match in PLACEHOLDER.finditer(text):
            found.add(f":{match[2]}" if match[2] else match[1])
    return found - {"%"}


def _texts(value: Any, depth: int = 3) -> Iterable[str]:
    if isinstance(value, str):
        if "%" in value:
            yield value
    elif depth and isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item, depth - 1)


class Scope:
    """The sequences that placeholders of one description can name."""

    __slots__ = ("members", "width")

    def __init__(self, members: ParametricMembers) -> None:
        self.members = members
        self.width = len(str(members.count))

    def sequence(self, token: str) -> NamedSequence | ParametricMembers | None:
        """The sequence behind a token; None for `%n` and `%j`."""
        token = token.removeprefix("=")
        if token == "s":
            return self.members
        return self.members.named[token[1:]] if token[0] == ":" else None

    def member(self, index: int, job_id: int, tokens: Iterable[str]) -> Member:
        """What fills the tokens for one member. Raises InvalidRequest if there is no such member."""
        if not 0 <= index < self.members.count:
            raise no_member(index, self.members.count)
        return {token: source(index, job_id) for token, source in self.sources(tokens)}

    def sources(self, tokens: Iterable[str]) -> list[tuple[str, Source]]:
        """Where each token comes from, ready to be asked for any member that exists."""
        return [(token, self._source(token)) for token in tokens]

    def _source(self, token: str) -> Source:
        sequence = self.sequence(token)
        if sequence is None:
            width = self.width
            if token == "j":
                return lambda _index, job_id: str(job_id)
            return lambda index, _job_id: str(index).zfill(width)
        if token[0] == "=":
            return lambda index, _job_id: value_at(sequence, index)
        values = sequence.values
        if values is not None:
            return lambda index, _job_id: text_of(values[index])
        return lambda index, _job_id: text_of(value_at(sequence, index))

    def compile(self, value: Any, *, keep_type: bool = False, depth: int = 3) -> Compiled | None:
        """A value made ready to be filled; None if nothing in it is to be filled.

        With `keep_type` a text that is one placeholder and nothing else takes the parameter's own type.
        Raises Mistake for a sequence that is not there.
        """
        if isinstance(value, str):
            return self._compile_text(value, keep_type=keep_type) if "%" in value else None
        if not depth or not isinstance(value, (list, tuple, dict)):
            return None
        items = value.values() if isinstance(value, dict) else value
        parts = [self.compile(item, keep_type=keep_type, depth=depth - 1) for item in items]
        used = [part for part in parts if part]
        if not used:
            return None
        fills = [part.fill if part else _constant(item) for part, item in zip(parts, items, strict=True)]
        tokens = frozenset[str]().union(*(part.tokens for part in used))
        return Compiled(fill=_container(value, fills), tokens=tokens)

    def _compile_text(self, text: str, *, keep_type: bool) -> Compiled | None:
        tokens: set[str] = set()
        pieces: list[str] = []
        end = 0
        for match in PLACEHOLDER.finditer(text):
            if match[1] == "s" and not self.members.unnamed:
                continue
            pieces.append(text[end : match.start()].replace("%", "%%"))
            end = match.end()
            if match[1] == "%":
                pieces.append("%%")
                continue
            token = match[1] or self._named(match[2])
            tokens.add(token)
            pieces.append(f"%({token})s")
        if not pieces:
            return None
        form = "".join(pieces) + text[end:].replace("%", "%%")
        if keep_type and tokens and form == f"%({token})s" and token not in "nj":
            return Compiled(fill=_typed(f"={token}"), tokens=frozenset({f"={token}"}))
        return Compiled(fill=_formatted(form), tokens=frozenset(tokens))

    def _named(self, name: str) -> str:
        if name not in self.members.named:
            known = ", ".join(f"%({shown(known)})s" for known in list(self.members.named)[:8])
            raise Mistake(f"has %({shown(name)})s, which no sequence stands for (known: {known or 'none'})")
        return f":{name}"


def _constant(value: Any) -> Filler:
    return lambda _member: value


def _typed(token: str) -> Filler:
    return lambda member: member[token]


def _formatted(form: str) -> Filler:
    return lambda member: form % member


def _container(value: Any, fills: list[Filler]) -> Filler:
    if isinstance(value, dict):
        names = list(value)
        return lambda member: {name: fill(member) for name, fill in zip(names, fills, strict=True)}
    kind = type(value)
    return lambda member: kind(fill(member) for fill in fills)
