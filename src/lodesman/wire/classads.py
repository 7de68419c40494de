"""What is said of ClassAds: values of attributes, and the clauses of Requirements, each with what it is worth."""

from __future__ import annotations

from msgspec import Struct


class AttributeValue(Struct, frozen=True):
    """An attribute and its value, as it is written in an ad."""

    name: str
    value: str


class ClauseRow(Struct, frozen=True, omit_defaults=True):
    """A part of Requirements that must be true, and the attributes in it on both sides."""

    clause: str
    value: str
    own: list[AttributeValue]
    other: list[AttributeValue]
    cycle: list[str] = []  # Attributes that ask for each other, because of which it is an error.
    is_dear: bool = False  # It is an error because it needs too many steps.


class MatchSideRow(Struct, frozen=True):
    """One side of a match."""

    file: str  # The file of its ad.
    holds: bool  # Its Requirements are true for the other side.
    clauses: list[ClauseRow]  # Those of its Requirements.


class ClassAdMatch(Struct, frozen=True):
    """Two ads beside each other."""

    matches: bool
    sides: list[MatchSideRow]
