"""The attributes of a job class, and jobs' values for them.

A scalar is one text. A keyed list has names, each with a value or none. A positional list has texts with positions
from "0" as keys. The kinds are those of `qsub`'s switches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from lodesman.languages.gridengine.values import split_outside_brackets

JobValue = str | Mapping[str, str | None] | tuple[str, ...]
"""A scalar, a keyed list (None: the key has no value), a positional list."""
JobValues = Mapping[str, JobValue]
"""By name. An attribute that is missing, or empty, is unset."""

CanonicalKey = Callable[[str, str], str]
"""(attribute, key) -> the name to compare: with complexes, `s` and `slots` are one resource."""


class AttributeKind(StrEnum):
    """What a value of an attribute is made of."""

    SCALAR = "scalar"
    KEYED = "keyed list"
    POSITIONAL = "positional list"


_KEYED = "ac e hold_jid hold_jid_ad i l_hard l_soft M masterl masterq o q_hard q_soft S v"
# In the order in which `qconf -sjc` prints them.
_FIRST = (
    "A a ar b binding c_interval c_occasion CMDNAME CMDARG ckpt ac cwd dl e h hold_jid hold_jid_ad i j js l_hard l_soft"
    " m mbind M masterq N notify now o P p pe_name pe_range q_hard q_soft R r S shell t V v"
)
_LATER = "masterl rou tc xd par rdi umask"
FIRST_ATTRIBUTES = tuple(_FIRST.split())
KINDS: Mapping[str, AttributeKind] = MappingProxyType(
    dict.fromkeys((*FIRST_ATTRIBUTES, *_LATER.split()), AttributeKind.SCALAR)
    | dict.fromkeys(_KEYED.split(), AttributeKind.KEYED)
    | {"CMDARG": AttributeKind.POSITIONAL}
)
"""In canonical order; those of version 8.1 come first, and every class has them."""

# A job has each of these in one of two states: to unset one is to give it its default.
BOOLEAN_DEFAULTS: Mapping[str, str] = MappingProxyType(
    {"b": "n", "j": "n", "notify": "n", "now": "n", "R": "n", "r": "n", "shell": "y", "V": "n"}
)
_TRUE, _FALSE = ("y", "yes", "true", "1"), ("n", "no", "false", "0")


def truth(text: str) -> str:
    """`y` or `n`; any other text as it is."""
    low = text.lower()
    return "y" if low in _TRUE else "n" if low in _FALSE else text


def kind_of(attribute: str) -> AttributeKind:
    """An unknown attribute is a scalar."""
    return KINDS.get(attribute, AttributeKind.SCALAR)


def entries_of(attribute: str, value: JobValue | None) -> dict[str, str | None]:
    """By key; none if it is unset. A text is read as behind a switch: `a=1,b`."""
    if not value:
        return {}
    if isinstance(value, str):
        value = read_list(kind_of(attribute), value)
    return (
        dict(value)
        if isinstance(value, (dict, Mapping))
        else {str(at): text for at, text in enumerate(value)}
    )


def read_list(kind: AttributeKind, text: str) -> Mapping[str, str | None] | tuple[str, ...]:
    """Read a switch's list; commas inside brackets belong to values. Raises UnreadableValue."""
    pieces = [piece.strip() for piece in split_outside_brackets(text)]
    if kind is AttributeKind.POSITIONAL:
        return tuple(pieces)
    return {key: value for key, value in map(key_and_value, pieces) if key}


def key_and_value(text: str) -> tuple[str, str | None]:
    """`key=value`, or a key alone."""
    key, equals, value = text.partition("=")
    return key.strip(), value.strip() if equals else None
