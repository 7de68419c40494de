"""The one shape of all refusals."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

# Those of `lodesman.errors`: they never change between releases, and new ones may come.
Code = Literal[
    "backend", "conflict", "forbidden", "impossible", "invalid-config", "invalid-job", "invalid-request",
    "not-found", "syntax", "too-large", "unauthorized", "unavailable",
]  # fmt: skip


class Refusal(Struct):
    """Why something is refused: in one word, in one sentence, what to do about it, and what a program needs to know
    (attribute, position, identifiers; by code).
    """

    code: Code
    message: str
    hint: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET


class Error(Struct):
    """A refusal."""

    error: Refusal
