"""Users and tokens. A token is 256 random bits, shown once and stored as its SHA-256 (DESIGN, security)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from lodesman.answers.accounts import SCOPES, USER_SCOPES
from lodesman.commands.pilots import hash_token
from lodesman.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from lodesman.store.journal import Transaction
from lodesman.store.write import accounts
from lodesman.store.write.accounts import NewToken, RevokedTokens

# The kind of a pilot that has not joined yet, known by its join token.
JOINING = "join"


@dataclass(slots=True)
class AddAccount:
    """Make or change a user: its VO, its groups and whether it administers this server."""

    name: str
    vo: str
    groups: tuple[str, ...]
    admin: bool = False

    def apply(self, tx: Transaction) -> str:
        """Raises InvalidRequest for a user without a group."""
        if not self.groups:
            raise InvalidRequest(f"User {self.name} needs at least one group.")
        accounts.put_user(tx, self.name, self.vo, self.groups, admin=self.admin)
        return self.name


@dataclass(slots=True)
class IssueToken:
    """Make a token for a user; answers its text, which is stored nowhere. `parent`: the hash of the one that is used."""

    account: str
    scopes: tuple[str, ...] = USER_SCOPES
    seconds: float | None = 30 * 86_400.0
    note: str = ""
    parent: bytes | None = None

    def apply(self, tx: Transaction) -> str:
        """Raises NotFound for an unknown user, InvalidRequest for an unknown scope, Conflict for admin rights,
        Unauthorized if the parent was revoked meanwhile.
        """
        unknown = set(self.scopes) - set(SCOPES)
        if unknown:
            raise InvalidRequest(f"There is no scope {min(unknown)!r}.", hint=f"Scopes: {', '.join(SCOPES)}.")
        is_admin = accounts.is_admin(tx, self.account)
        if is_admin is None:
            raise NotFound(f"There is no user {self.account}.", hint="Make it with: lode user add")
        if "admin" in self.scopes and not is_admin:
            raise Conflict(f"User {self.account} is not an administrator.")
        if self.parent is not None and not accounts.is_token(tx, self.parent):
            raise Unauthorized("This token was revoked.")
        token = secrets.token_urlsafe(32)
        expires = None if self.seconds is None else tx.now + self.seconds
        accounts.insert_token(
            tx,
            NewToken(hash_token(token), self.account, self.scopes, self.note, expires, self.parent),
        )
        return token


@dataclass(slots=True)
class RevokeToken:
    """Forget a token, named by the first characters of its hash as `lode token ls` shows them, and all that it made for
    the same user. What an administrator gave to others with it is theirs, and stays.
    """

    prefix: str

    def apply(self, tx: Transaction) -> RevokedTokens:
        """Raises NotFound, or Conflict if several begin like that."""
        found = accounts.tokens_with_prefix(tx, self.prefix) if self.prefix.isalnum() else []
        if not found:
            raise NotFound(f"There is no token {self.prefix}.")
        if len(found) > 1:
            raise Conflict(f"{len(found)} tokens begin with {self.prefix}.", hint="Give more characters.")
        return accounts.delete_token(tx, found[0])
