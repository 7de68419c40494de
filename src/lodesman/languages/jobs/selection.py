"""How filters select jobs: by patterns of bounded cost, and by attributes in stored texts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.attributes import ATTRIBUTES, PARAMETERS, Attribute, by_name
from lodesman.languages.jobs.record import shown
from lodesman.languages.jobs.values import Mistake

# Steps, each ten nanoseconds at most: of a text, of a search, of a piece that is compared.
_TEXT: Final = 200
_SEARCH: Final = 50
_PIECE: Final = 50
# Letters of a piece which the search may compare in one step; longer ones than the second are searched in another way.
_AT_ONCE: Final = 8
_LONGEST: Final = 100
# Letters of a JSON text that are read in one step.
_READ_AT_ONCE: Final = 2
_NONE: Final = -1
_PIECES: Final = re.compile(r"[^?]+")
# Letters that JSON never writes in another way.
_AS_IT_IS: Final = re.compile(r"[ !#-\[\]-~]+")
_NO_PLACE: Final = -1


def is_exact(text: str) -> bool:
    """Whether it is a plain text."""
    return "*" not in text and "?" not in text


class SelectionTooDear(InvalidRequest):
    """A filter takes more steps than one request may make."""


@dataclass(slots=True)
class StepBudget:
    """One request's steps."""

    most: int
    spent: int = 0

    def pay_for_text(self, letters: int, parameter: str) -> None:
        """For reading a text, or decoding its items. Raises SelectionTooDear."""
        self.spent += _TEXT // 2 + letters // _READ_AT_ONCE
        if self.spent > self.most:
            raise SelectionTooDear(
                f"{parameter}: to read what these jobs say takes more than {self.most:,} steps.",
                hint="Ask about fewer jobs, by their ids or a submission.",
                parameter=parameter,
            )

    def end(self) -> None:
        """Let the next step be one too many: the client has gone."""
        self.most = _NONE


class _PatternPart(Struct, frozen=True):
    width: int
    pieces: tuple[tuple[int, str], ...]  # Between question marks, the longest first, each with its place.
    price: int  # Steps for each letter that is searched.
    each: int  # Steps for each place where the longest piece stands.

    def stands_at(self, text: str, at: int) -> bool:
        return all(text.startswith(piece, at + place) for place, piece in self.pieces)


class Pattern:
    """`*` stands for any text and `?` for any letter. `parameter`: of the request, for refusals.

    Text between two stars is searched from left to right; its first place is as good as any, so each text is read
    once.
    """

    __slots__ = (
        "_first",
        "_has_ends",
        "_inner",
        "_last",
        "_longest",
        "_steps",
        "is_exact",
        "parameter",
        "text",
    )

    def __init__(self, text: str, parameter: str) -> None:
        self.text, self.parameter = text, parameter
        self.is_exact = is_exact(text)
        self._first, *inner = (_part(part) for part in re.split(r"\*+", text))
        self._last = inner.pop() if inner else None
        self._inner = tuple(inner)
        pieces = _PIECES.findall(text.replace("*", "?"))
        longest = max(filter(_AS_IT_IS.fullmatch, pieces), key=len, default="")
        self._longest = _part(longest) if longest else None
        at_ends = sum(len(end.pieces) for end in (self._first, self._last) if end)
        self._has_ends, self._steps = at_ends > 0, _TEXT + _PIECE * at_ends

    def is_met(self, text: str, budget: StepBudget) -> bool:
        """Raises SelectionTooDear."""
        budget.spent += self._steps
        if budget.spent > budget.most:
            raise self._too_dear(budget)
        first, last = self._first, self._last
        if last is None:
            return len(text) == first.width and first.stands_at(text, 0)
        at, end = first.width, len(text) - last.width
        if at > end or (self._has_ends and not (first.stands_at(text, 0) and last.stands_at(text, end))):
            return False
        for part in self._inner:
            at = self._end_of(part, text, at, end, budget)
            if at == _NO_PLACE:
                return False
        return True

    def may_be_in(self, encoded: str, budget: StepBudget) -> bool:
        """Whether a text in this JSON may match; rules most out at once. Raises SelectionTooDear."""
        part = self._longest
        return part is None or self._end_of(part, encoded, 0, len(encoded), budget) != _NO_PLACE

    def is_met_by_any(self, texts: Iterable[str], budget: StepBudget) -> bool:
        """Whether a text matches, once `may_be_in` has paid for the search. Raises SelectionTooDear."""
        piece = self._longest.pieces[0][1] if self._longest else ""
        return any(self.is_met(text, budget) for text in texts if piece in text)

    def _end_of(self, part: _PatternPart, text: str, at: int, end: int, budget: StepBudget) -> int:
        """The end of the first place in [at, end) where a part stands."""
        if not part.pieces:
            return at + part.width if at + part.width <= end else _NO_PLACE
        place, longest = part.pieces[0]
        low, high = at + place, end - part.width + place + len(longest)
        while low < high:
            index = text.find(longest, low, high)
            budget.spent += part.each + part.price * ((high if index == _NO_PLACE else index) - low)
            if budget.spent > budget.most:
                raise self._too_dear(budget)
            if index == _NO_PLACE:
                break
            if len(part.pieces) == 1 or part.stands_at(text, index - place):
                return index - place + part.width
            low = index + 1
        return _NO_PLACE

    def _too_dear(self, budget: StepBudget) -> SelectionTooDear:
        return SelectionTooDear(
            f"{self.parameter}: {shown(self.text)!r} is too dear: to compare these jobs with all patterns of the request "
            f"takes more than {budget.most:,} steps.",
            hint="Ask about fewer jobs, by their ids or a submission, or give shorter patterns with fewer question marks.",
            parameter=self.parameter,
        )


def _part(text: str) -> _PatternPart:
    pieces = [(match.start(), match[0]) for match in _PIECES.finditer(text)]
    pieces.sort(key=lambda match: -len(match[1]))
    longest = min(len(pieces[0][1]), _LONGEST) if pieces else 0
    return _PatternPart(
        len(text), tuple(pieces), 2 + longest // _AT_ONCE, _SEARCH + _PIECE * (len(pieces) - 1)
    )


# --- attributes ----------------------------------------------------------------------------

_ELSEWHERE: Final = MappingProxyType({
    "owner": "there is a filter for it: owner",
    "group": "there is a filter for it: group",
    "vo": "each user sees the jobs of one VO",
    "input_sandbox": "its files are kept by what is in them",
    **dict.fromkeys(("requirements", "stations"), "it is kept as one expression"),
    "consumables": "its amounts are kept in another form",
    **dict.fromkeys(("retry_on", "retry_memory_factor"), "it is kept as a rule of the attempts"),
    **dict.fromkeys(("after", "after_ok", "on_parent_failure"), "it is kept with the jobs that it names"),
})  # fmt: skip
_OWN: Final = "Names of your own: JobGroup and JobName."
_LIST: Final = "All are in docs/how-to/users.md, Attributes."
# Of names that may have been meant: letters of a beginning, and how much is alike.
_BEGINNING: Final = 3
_NEARNESS: Final = 0.7
_MOST_NEAR: Final = 3


class AttributeCondition(Struct, frozen=True):
    """A filter's question about an attribute."""

    attribute: Attribute
    value: Any  # Of the type that a `JobSpec` has. Of a list: items that it has, among others.


def read_condition(text: str) -> AttributeCondition:
    """What a filter `NAME=VALUE` asks; the value is read as in a description.

    Raises InvalidRequest for a name that jobs are not found by, and for a value that no job can have.
    """
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise _refusal(f"{shown(text)!r} is not NAME=VALUE", "As in CPUTime=1h or Tag=GPU.")
    attribute = by_name(name.strip())
    if attribute is None:
        raise _refusal(f"jobs are not found by {shown(name.strip())}", _hint(name.strip()))
    if why := _ELSEWHERE.get(attribute.field):
        raise _refusal(f"jobs are not found by {attribute.name}: {why}", "")
    try:
        return AttributeCondition(attribute, attribute.read(value))
    except Mistake as mistake:
        raise _refusal(f"{attribute.name} {mistake}", f"Give {attribute.right}.") from None


def _hint(name: str) -> str:
    if name.casefold() in map(str.casefold, PARAMETERS):
        return "It makes the members of an array; each is a job."
    folded = name.casefold()
    names = {
        word.casefold(): attribute.name
        for attribute in ATTRIBUTES
        for word in (*attribute.aliases, attribute.name)
    }
    begun = [word for word in names if len(folded) >= _BEGINNING and word.startswith(folded)]
    near = [*get_close_matches(folded, names, _MOST_NEAR, _NEARNESS), *begun]
    suggestions = list(dict.fromkeys(names[word] for word in near))[:_MOST_NEAR]
    return f"{', '.join(suggestions)}? {_LIST}" if suggestions else f"{_OWN} {_LIST}"


def _refusal(words: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"where: {words}.", hint=hint, parameter="where")


# --- stored texts --------------------------------------------------------------------------

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
_NULL: Final = msgspec.Raw(b"null")

DAMAGED: Final = (msgspec.DecodeError, UnicodeError)
"""Raised by all methods for a text that is no record in JSON."""


class StoredText:
    """A stored description or task queue key, decoded on demand.

    A path has at most one record above the member.
    """

    __slots__ = ("_items", "_records", "_top")

    def __init__(self, text: str) -> None:
        self._top: Mapping[str, msgspec.Raw] = _MEMBERS.decode(text) or {}
        self._records: dict[str, Mapping[str, msgspec.Raw]] = {}
        self._items: dict[Sequence[str], Collection[str]] = {}

    def encoded(self, path: Sequence[str]) -> str:
        """As written; `null` if missing."""
        return bytes(self._find(path)).decode()

    def value(self, path: Sequence[str]) -> Any:
        """A member; None without it."""
        return msgspec.json.decode(self._find(path))

    def items(self, path: Sequence[str]) -> Collection[str]:
        """The items of a list, each once, in order."""
        if path not in self._items:
            member = self.value(path)
            members = member if isinstance(member, list) else () if member is None else (member,)
            self._items[path] = dict.fromkeys(map(str, members)).keys()
        return self._items[path]

    def _find(self, path: Sequence[str]) -> msgspec.Raw:
        *above, name = path
        record = self._record(above[0]) if above else self._top
        return record.get(name, _NULL)

    def _record(self, name: str) -> Mapping[str, msgspec.Raw]:
        if name not in self._records:
            self._records[name] = _MEMBERS.decode(self._top.get(name, _NULL)) or {}
        return self._records[name]
