"""Who may use this server: users, and the tokens that are known by their hashes."""

from __future__ import annotations

from typing import Any

import msgspec

from lodesman.answers.accounts import Principal, TokenRow
from lodesman.store import Reader

_TOKENS = """SELECT t.hash, t.kind, t.account, t.pilot_id, t.scopes, t.expires_at, a.vo, a.groups, a.admin
FROM token t LEFT JOIN account a ON a.name = t.account WHERE t.kind IN ('user', 'service', 'pilot')"""
_JOINING = "SELECT pilot_id, expires_at FROM token WHERE hash = ? AND kind = 'join'"
_SHOWN = """SELECT t.hash, t.kind, t.account, t.scopes, t.note, t.created_at, t.expires_at, t.parent, p.account
FROM token t LEFT JOIN token p ON p.hash = t.parent WHERE t.kind = 'user'"""


def principals(db: Reader) -> dict[bytes, Principal]:
    """Every token that can be used, by its hash."""
    return {bytes(row[0]): _principal(row) for row in db.execute(_TOKENS)}


def principal_of(db: Reader, digest: bytes) -> Principal | None:
    """The owner of one token, None if it is unknown."""
    row = db.execute(f"{_TOKENS} AND t.hash = ?", (digest,)).fetchone()
    return None if row is None else _principal(row)


def joining_pilot(db: Reader, digest: bytes) -> Principal | None:
    """The pilot that may join with this token, None if there is none. It may ask hardly anything yet."""
    row = db.execute(_JOINING, (digest,)).fetchone()
    return None if row is None else Principal(kind="join", pilot_id=row[0], expires_at=row[1])


def list_tokens(db: Reader) -> list[TokenRow]:
    """The tokens of users; never the tokens themselves."""
    return [_token(list(row)) for row in db.execute(_SHOWN)]


def _token(values: list[Any]) -> TokenRow:
    values[0], values[7] = values[0].hex(), values[7].hex() if values[7] else None
    values[3] = msgspec.json.decode(values[3])
    return TokenRow(*values)


def is_user(db: Reader, name: str) -> bool:
    """Whether there is a user of this name."""
    return bool(db.execute("SELECT 1 FROM account WHERE name = ?", (name,)).fetchone())


def _principal(row: tuple[Any, ...]) -> Principal:
    digest, kind, account, pilot_id, scopes, expires, vo, groups, admin = row
    return Principal(
        kind=kind,
        name=account,
        vo=vo or "",
        groups=tuple(msgspec.json.decode(groups or "[]")),
        admin=bool(admin),
        scopes=frozenset(msgspec.json.decode(scopes)),
        pilot_id=pilot_id or 0,
        expires_at=expires,
        token=bytes(digest),
    )
