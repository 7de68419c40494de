"""Answers about users and their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

# What a token may allow, and what one allows if nothing else is asked for.
SCOPES = ("jobs:read", "jobs:write", "pilots:read", "admin")
USER_SCOPES = ("jobs:read", "jobs:write", "pilots:read")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. kind: user, service (the server's own background process), pilot, or join (a pilot that has not joined).

    `token` is the hash of the token that was used.
    """

    kind: str
    name: str = ""
    vo: str = ""
    groups: tuple[str, ...] = ()
    admin: bool = False
    scopes: frozenset[str] = frozenset()
    pilot_id: int = 0
    expires_at: float | None = None
    token: bytes = b""

    def allows(self, scope: str) -> bool:
        """Whether this token may be used for that."""
        return scope in self.scopes


class Token(Struct):
    """A token, shown this once."""

    token: str


class TokenRow(Struct):
    """What is known of a token; `expires_at` None: it does not expire. `made_with`: the hash of the token that made it,
    `made_by`: whose that is; None if that is not known, or gone.
    """

    hash: str
    kind: Literal["user"]
    account: str
    scopes: list[str]
    note: str
    created_at: float
    expires_at: float | None
    made_with: str | None
    made_by: str | None


class Tokens(Struct):
    """The tokens of users."""

    tokens: list[TokenRow]


class Inputs(Struct):
    """What the input files of a user take, in bytes; `limit` None: they may take any room."""

    files: int
    bytes: int
    limit: int | None


class Me(Struct):
    """Whose token this is, and what it may do; of a pilot there is only its `kind` to tell."""

    name: str
    kind: Literal["user", "service", "pilot"]
    vo: str
    groups: list[str]
    admin: bool
    scopes: list[str]
    inputs: Inputs


class UserMade(Struct):
    """The user who was made or changed."""

    name: str


class Revoked(Struct):
    """How many tokens are no more: the one named, and what was made with it for the same user. `kept`: how many tokens
    for other users were made with these, and are good still.
    """

    revoked: int
    kept: int
