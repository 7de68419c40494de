"""What is said of ClassAds: values of attributes, and the clauses of Requirements, each with what it is worth."""

from __future__ import annotations

from msgspec import Struct


class AttributeValue(Struct, frozen=True):
    """An attribute and its value, as it is written in an ad."""

    name: str
    value: str


class ClauseRow(Struct, frozen=True, omit_defaults=True):
    """A part of Requirements that must be true, and the attributes in it on both sides.

    `cycle`: attributes that ask for each other, because of which it is an error; `is_dear`: it is one because it needs too
    many steps.
    """

    clause: str
    value: str
    own: list[AttributeValue]
    other: list[AttributeValue]
    cycle: list[str] = []
    is_dear: bool = False


class MatchSideRow(Struct, frozen=True):
    """One side of a match: its file, whether its Requirements are true for the other side, their clauses."""

    file: str
    holds: bool
    clauses: list[ClauseRow]


class ClassAdMatch(Struct, frozen=True):
    """Two ads beside each other."""

    matches: bool
    sides: list[MatchSideRow]
