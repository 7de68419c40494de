"""Users and tokens. A token is 256 random bits, shown once and stored as its SHA-256 (DESIGN, security)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import msgspec

from lodesman.answers.accounts import SCOPES, USER_SCOPES
from lodesman.commands.pilots import hash_token
from lodesman.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction

# The kind of a pilot that has not joined yet, known by its join token.
JOINING = "join"
INSERT_TOKEN = """INSERT INTO token (hash, kind, account, scopes, note, created_at, expires_at)
VALUES (?,?,?,?,?,?,?)"""
INSERT_MADE = """INSERT INTO token (hash, kind, account, scopes, note, created_at, expires_at, parent)
VALUES (?,'user',?,?,?,?,?,?)"""
# A token, those that it made for the same user, those that these made...
LINE = """WITH RECURSIVE line (hash, account) AS (SELECT hash, account FROM token WHERE hash = ?
UNION SELECT t.hash, t.account FROM token t JOIN line l ON t.parent = l.hash AND t.account = l.account)
"""
FIND_LINE = f"{LINE} SELECT hash FROM line"  # noqa: S608
FORGET_LINE = f"{LINE} DELETE FROM token WHERE hash IN (SELECT hash FROM line)"  # noqa: S608
MADE_FOR_OTHERS = f"""{LINE} SELECT count(*) FROM token t
JOIN line l ON t.parent = l.hash AND t.account != l.account"""  # noqa: S608
TOKENS = """SELECT t.hash, t.kind, t.account, t.pilot_id, t.scopes, t.expires_at, a.vo, a.groups, a.admin
FROM token t LEFT JOIN account a ON a.name = t.account WHERE t.kind IN ('user', 'service', 'pilot')"""


JOINING_PILOT = f"SELECT pilot_id, expires_at FROM token WHERE hash = ? AND kind = '{JOINING}'"  # noqa: S608


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is asking. kind: user, service (our own background process), pilot, or join (a pilot before it has joined)."""

    kind: str
    name: str = ""
    vo: str = ""
    groups: tuple[str, ...] = ()
    admin: bool = False
    scopes: frozenset[str] = frozenset()
    pilot_id: int = 0
    expires_at: float | None = None
    # The hash of the token that was used.
    token: bytes = b""

    def allows(self, scope: str) -> bool:
        """Whether this token may be used for that."""
        return scope in self.scopes


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
        tx.write(
            """INSERT INTO account (name, vo, groups, admin, created_at) VALUES (?,?,?,?,?)
            ON CONFLICT (name) DO UPDATE SET vo = excluded.vo, groups = excluded.groups, admin = excluded.admin""",
            (self.name, self.vo, msgspec.json.encode(self.groups).decode(), self.admin, tx.now),
        )
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
        found = tx.read("SELECT admin FROM account WHERE name = ?", (self.account,))
        if not found:
            raise NotFound(f"There is no user {self.account}.", hint="Make it with: lode user add")
        if "admin" in self.scopes and not found[0][0]:
            raise Conflict(f"User {self.account} is no administrator.")
        if self.parent is not None and not tx.read("SELECT 1 FROM token WHERE hash = ?", (self.parent,)):
            raise Unauthorized("This token was revoked.")
        token = secrets.token_urlsafe(32)
        expires = None if self.seconds is None else tx.now + self.seconds
        scopes = msgspec.json.encode(sorted(self.scopes)).decode()
        tx.later(
            INSERT_MADE,
            (hash_token(token), self.account, scopes, self.note, tx.now, expires, self.parent),
        )
        return token


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """The hashes of the tokens that are no more, and how many that these made for other users are `kept`."""

    hashes: tuple[bytes, ...]
    kept: int


@dataclass(slots=True)
class RevokeToken:
    """Forget a token, named by the first characters of its hash as `lode token ls` shows them, and all that it made for
    the same user. What an administrator gave to others with it is theirs, and stays.
    """

    prefix: str

    def apply(self, tx: Transaction) -> Revoked:
        """Raises NotFound, or Conflict if several begin like that."""
        found = tx.read("SELECT hash FROM token WHERE hex(hash) LIKE ? || '%'", (self.prefix.upper(),))
        if not self.prefix.isalnum() or not found:
            raise NotFound(f"There is no token {self.prefix}.")
        if len(found) > 1:
            raise Conflict(f"{len(found)} tokens begin with {self.prefix}.", hint="Give more characters.")
        hashes = tuple(bytes(row[0]) for row in tx.read(FIND_LINE, found[0]))
        kept = tx.read(MADE_FOR_OTHERS, found[0])
        tx.write(FORGET_LINE, found[0])
        return Revoked(hashes=hashes, kept=kept[0][0])


def load_principals(db: Reader) -> dict[bytes, Principal]:
    """Every token that can be used, by its hash."""
    return {bytes(row[0]): principal_of(row) for row in db.execute(TOKENS)}


def find_principal(db: Reader, digest: bytes) -> Principal | None:
    """The owner of one token, None if it is unknown."""
    row = db.execute(f"{TOKENS} AND t.hash = ?", (digest,)).fetchone()
    return None if row is None else principal_of(row)


def find_joining(db: Reader, digest: bytes) -> Principal | None:
    """The pilot that may join with this token, None if there is none. It may ask hardly anything yet."""
    row = db.execute(JOINING_PILOT, (digest,)).fetchone()
    return None if row is None else Principal(kind=JOINING, pilot_id=row[0], expires_at=row[1])


def principal_of(row: tuple[object, ...]) -> Principal:
    """A Principal from the columns of TOKENS."""
    digest, kind, account, pilot_id, scopes, expires, vo, groups, admin = row
    return Principal(
        kind=str(kind),
        name=str(account),
        vo=str(vo or ""),
        groups=tuple(msgspec.json.decode(str(groups or "[]"))),
        admin=bool(admin),
        scopes=frozenset(msgspec.json.decode(str(scopes))),
        pilot_id=pilot_id if isinstance(pilot_id, int) else 0,
        expires_at=expires if isinstance(expires, float) else None,
        token=digest if isinstance(digest, bytes) else b"",
    )
