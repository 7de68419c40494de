"""Users; tokens, by hash, of users, sites and the background process; shares and members of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from lodesman.server.store import Reader, readable
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement, exactly
from lodesman.server.store.transaction import Transaction
from lodesman.wire.accounts import EVERYBODY, Principal, Reach, TokenRow, UserRow
from lodesman.wire.groups import GroupChange, GroupChangeKind

_TOKENS = """SELECT t.hash, t.kind, t.account, t.pilot_id, t.scopes, t.expires_at, a.vo, a.groups, a.admin, a.vo_admin,
p.ended_at IS NOT NULL FROM token t LEFT JOIN account a ON a.name = t.account AND t.kind = 'user'
LEFT JOIN pilot p ON p.id = t.pilot_id WHERE t.kind IN ('user', 'service', 'pilot', 'site')
AND a.disabled_at IS NULL"""
_JOINING = "SELECT pilot_id, expires_at FROM token WHERE hash = ? AND kind = 'join'"
# Users whose tokens an administrator of a VO may see and revoke; parameters: (VO, user, VO).
_IN_REACH = """(? = '' OR (t.kind = 'user' AND (t.account = ?
OR t.account IN (SELECT name FROM account WHERE vo = ? AND admin = 0 AND vo_admin = 0))))"""
_SHOWN = f"""SELECT t.hash, t.kind, t.account, t.scopes, t.note, t.created_at, t.expires_at, t.parent, p.account
FROM token t LEFT JOIN token p ON p.hash = t.parent
WHERE t.kind IN ('user', 'site') AND ? IN ('', CASE t.kind WHEN 'user' THEN t.account END) AND {_IN_REACH}
ORDER BY t.created_at, t.hash"""
_USERS = """SELECT a.name, a.vo, a.groups, a.admin, a.created_at, a.disabled_at,
(SELECT count(*) FROM token t WHERE t.account = a.name AND t.kind = 'user'), a.vo_admin FROM account a
WHERE ? IN ('', a.vo) AND ? IN ('', a.name) ORDER BY a.name"""


def principals(db: Reader) -> dict[bytes, Principal]:
    """The owner of each usable token, by hash."""
    return {bytes(row[0]): _principal(*row) for row in db.execute(_TOKENS)}


def principal_of(db: Reader, digest: bytes) -> Principal | None:
    """None if the token is unknown."""
    return db.find(_principal, f"{_TOKENS} AND t.hash = ?", (digest,))


def joining_pilot(db: Reader, digest: bytes) -> Principal | None:
    """None if no pilot may join with this token."""
    row = db.execute(_JOINING, (digest,)).fetchone()
    return None if row is None else Principal(kind="join", pilot_id=row[0], expires_at=row[1])


def list_users(db: Reader, vo: str = "", *, name: str = "") -> list[UserRow]:
    """Users, those of a VO, or the one with this name."""
    return list(readable(_user, db.execute(_USERS, (vo, name)), "account"))


def groups_by_user(db: Reader) -> dict[str, tuple[str, ...]]:
    """Each account's groups, the default first."""
    rows = db.execute("SELECT name, groups FROM account")
    return dict(readable(lambda name, groups: (name, _names(groups)), rows, "account"))


def _names(text: str) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...])


def _user(*row: Any) -> UserRow:
    name, vo, groups, admin, made, disabled, tokens, vo_admin = row
    return UserRow(name, vo, list(_names(groups)), bool(admin), made, disabled, tokens, bool(vo_admin))


def list_tokens(db: Reader, account: str = "", reach: Reach = EVERYBODY) -> list[TokenRow]:
    """Tokens of users and sites, one user, or those in reach."""
    rows = db.execute(_SHOWN, (account, reach.vo, reach.user, reach.vo))
    return list(readable(_token, ((row[0].hex(), *row[1:]) for row in rows), "token"))


def _token(*row: Any) -> TokenRow:
    digest, kind, account, scopes, note, made, until, parent, by = row
    return TokenRow(
        digest, kind, account, list(_names(scopes)), note, made, until, parent.hex() if parent else None, by
    )


def count_accounts(db: Reader) -> int:
    """The number of users in all VOs."""
    return db.find(int, "SELECT count(*) FROM account") or 0


def is_admin(db: Reader, name: str) -> bool | None:
    """None if there is no such user."""
    return db.find(bool, "SELECT admin FROM account WHERE name = ?", (name,))


def user_named(db: Reader, name: str) -> UserRow | None:
    """None if there is no such user."""
    return next(iter(list_users(db, name=name)), None) if name else None


def _principal(*row: Any) -> Principal:
    digest, kind, account, pilot_id, scopes, expires, vo, groups, admin, vo_admin, has_ended = row
    return Principal(
        kind=kind,
        name=account,
        vo=vo or "",
        groups=tuple(msgspec.json.decode(groups or "[]")),
        admin=bool(admin),
        vo_admin=bool(vo_admin),
        scopes=frozenset(msgspec.json.decode(scopes)),
        pilot_id=pilot_id or 0,
        expires_at=expires,
        token=bytes(digest),
        has_ended=bool(has_ended),
    )


_PUT_USER = """INSERT INTO account (name, vo, groups, admin, vo_admin, created_at) VALUES (?,?,?,?,?,?)
ON CONFLICT (name) DO UPDATE SET vo = excluded.vo, groups = excluded.groups, admin = excluded.admin,
vo_admin = excluded.vo_admin"""
_INSERT_TOKEN = Statement(
    sql="""INSERT INTO token (hash, kind, account, scopes, note, created_at, expires_at, parent)
    VALUES (?,?,?,?,?,?,?,?)""",
    key=(0,),
)
_DELETE_TOKEN = Statement(sql="DELETE FROM token WHERE hash = ?", key=(0,))
_INSERT_SERVICE = """INSERT INTO token (hash, kind, scopes, note, created_at) VALUES (?,'service','[]',?,?)"""
_BETWEEN = f"""SELECT t.hash FROM token t WHERE t.hash BETWEEN ? AND ? AND t.kind IN ('user', 'site')
AND ? IN ('', CASE t.kind WHEN 'user' THEN t.account END) AND {_IN_REACH}"""
# A token and, recursively, those made with it, for the same user or for all.
_LINE = """WITH RECURSIVE line (hash, kind, account) AS (SELECT hash, kind, account FROM token WHERE hash = ?
UNION SELECT t.hash, t.kind, t.account FROM token t
JOIN line l ON t.parent = l.hash AND (? OR (t.kind = l.kind AND t.account = l.account)))
"""
_MADE_FOR_OTHERS = f"""{_LINE} SELECT count(*) FROM token t
JOIN line l ON t.parent = l.hash WHERE t.hash NOT IN (SELECT hash FROM line)"""
# Revoking a token must find what it made: that goes first.
_EXPIRED = """SELECT hash FROM token t WHERE kind IN ('user', 'site') AND expires_at < ?
AND ? IN ('', CASE kind WHEN 'user' THEN account END)
AND NOT EXISTS (SELECT 1 FROM token c WHERE c.parent = t.hash) LIMIT ?"""
_COUNT_TOKENS = """SELECT count(*) FROM token t WHERE account = ? AND kind = 'user'
AND (CAST(? AS REAL) IS NULL OR expires_at IS NULL OR expires_at >= ?
OR EXISTS (SELECT 1 FROM token c WHERE c.parent = t.hash))"""
_REMAINS = """SELECT (SELECT count(*) FROM submission WHERE owner = ?),
(SELECT count(*) FROM sandbox WHERE owner = ?), (SELECT count(*) FROM job_class WHERE changed_by = ?)"""
_MOST_AT_ONCE = 1_000
_HASH_DIGITS = 64


class RevokedTokens(NamedTuple):
    """Tokens that were deleted."""

    hashes: tuple[bytes, ...]
    kept: int  # tokens that they made for other users


def put_user(
    tx: Transaction, name: str, vo: str, groups: Sequence[str], *, admin: bool, vo_admin: bool = False
) -> None:
    """Store a new or changed user."""
    tx.write(_PUT_USER, (name, vo, msgspec.json.encode(groups).decode(), admin, vo_admin, tx.now), rows=ONE)


def set_groups(tx: Transaction, name: str, groups: Sequence[str]) -> None:
    """Store them, the default group first."""
    tx.write(
        "UPDATE account SET groups = ? WHERE name = ?", (msgspec.json.encode(groups).decode(), name), rows=ONE
    )


def insert_token(
    tx: Transaction, digest: bytes, account: str, scopes: Iterable[str], *, kind: str = "user", note: str,
    expires_at: float | None, parent: bytes | None,
) -> None:  # fmt: skip
    """`parent`: the hash of the token that made it."""
    text = msgspec.json.encode(sorted(scopes)).decode()
    tx.later(_INSERT_TOKEN, (digest, kind, account, text, note, tx.now, expires_at, parent))


def set_service_token(tx: Transaction, digest: bytes) -> None:
    """Give the background process this token, and no other."""
    tx.write("DELETE FROM token WHERE kind = 'service'", rows=ANY)
    tx.write(_INSERT_SERVICE, (digest, "background process", tx.now), rows=ONE)


def set_disabled(tx: Transaction, name: str, *, disabled: bool) -> bool:
    """False if there is no such user."""
    return bool(
        tx.write(
            "UPDATE account SET disabled_at = ? WHERE name = ?",
            (tx.now if disabled else None, name),
            rows=AT_MOST_ONE,
        )
    )


def delete_user(tx: Transaction, name: str) -> int:
    """Delete a user with all tokens; returns their number."""
    tx.write("DELETE FROM account WHERE name = ?", (name,), rows=ONE)
    return tx.write("DELETE FROM token WHERE kind = 'user' AND account = ?", (name,), rows=ANY)


class Remains(NamedTuple):
    """What is stored under the name of a user."""

    submissions: int
    files: int
    classes: int  # job classes that the user wrote
    vos: frozenset[str]  # of the submissions

    @property
    def is_anything(self) -> bool:
        """Whether anything is left."""
        return self.submissions + self.files + self.classes > 0


def remains_of(db: Reader, name: str) -> Remains:
    """What is left of a user, who may have been removed."""
    vos = frozenset(vo for (vo,) in db.execute("SELECT DISTINCT vo FROM submission WHERE owner = ?", (name,)))
    submissions, files, classes = db.only(_REMAINS, (name, name, name))
    return Remains(submissions, files, classes, vos)


def count_tokens(tx: Transaction, account: str, *, good_at: float | None = None) -> int:
    """`good_at`: without those that expire before then and made no others."""
    count: int = tx.read(_COUNT_TOKENS, (account, good_at, good_at))[0][0]
    return count


def tokens_with_prefix(
    tx: Transaction, prefix: str, account: str = "", reach: Reach = EVERYBODY
) -> list[bytes]:
    """Of users and sites, one user, or those in reach; `prefix`: hexadecimal."""
    try:
        first, last = (bytes.fromhex(prefix.ljust(_HASH_DIGITS, digit)) for digit in "0f")
    except ValueError:
        return []
    return [
        bytes(row[0]) for row in tx.read(_BETWEEN, (first, last, account, reach.vo, reach.user, reach.vo))
    ]


def delete_token(tx: Transaction, digest: bytes, *, with_others: bool = False) -> RevokedTokens:
    """Delete a token with all that it made for the same user, or for any (`with_others`)."""
    line = (digest, with_others)
    hashes = tuple(bytes(row[0]) for row in tx.read(f"{_LINE} SELECT hash FROM line", line))
    kept = tx.read(_MADE_FOR_OTHERS, line)[0][0]
    tx.write(
        f"{_LINE} DELETE FROM token WHERE hash IN (SELECT hash FROM line)",
        line,
        rows=exactly(len(hashes)),
    )
    return RevokedTokens(hashes, kept)


def delete_expired(tx: Transaction, before: float, account: str = "") -> tuple[bytes, ...]:
    """Delete a portion of what expired before then and made no other tokens; returns hashes."""
    hashes = tuple(bytes(row[0]) for row in tx.read(_EXPIRED, (before, account, _MOST_AT_ONCE)))
    for digest in hashes:
        tx.later(_DELETE_TOKEN, (digest,))
    return hashes


# --- groups: shares set by command, members who came and went ----------------------------------------

_NOTE = Statement(
    sql="INSERT INTO group_change (at, grp, change, share, account, by, reason, until) VALUES (?,?,?,?,?,?,?,?)",
)
_CHANGES = """SELECT at, change, share, account, by, reason, until FROM group_change
WHERE grp = ? ORDER BY id DESC LIMIT ?"""
# The last word on the share of each group.
_SHARES = """SELECT c.grp, c.at, c.change, c.share, c.account, c.by, c.reason, c.until FROM group_change c
WHERE c.id IN (SELECT max(id) FROM group_change WHERE change IN ('share-set', 'share-reset') GROUP BY grp)
AND c.change = 'share-set' ORDER BY c.grp"""


def shares_version(db: Reader) -> int:
    """Grows whenever a command changes a group."""
    return int(db.only("SELECT coalesce(max(id), 0) FROM group_change")[0])


def shares_set(db: Reader, now: float) -> dict[str, GroupChange]:
    """Shares by command that hold now, by group."""
    changes = {group: _change(row) for group, *row in db.execute(_SHARES)}
    return {group: change for group, change in changes.items() if change.until is UNSET or now < change.until}


def _change(row: Sequence[Any]) -> GroupChange:
    at, change, share, user, by, reason, until = row
    return GroupChange(at, change, share, user, by, reason, UNSET if until is None else until)


def group_changes(db: Reader, group: str, most: int) -> list[GroupChange]:
    """Changes of groups, newest first."""
    return [_change(row) for row in db.execute(_CHANGES, (group, most))]


def note_share(
    tx: Transaction, group: str, share: float | None, *, by: str, reason: str, until: float | None = None
) -> None:
    """None: back to the share of the files."""
    change: GroupChangeKind = "share-reset" if share is None else "share-set"
    tx.later(_NOTE, (tx.now, group, change, share, "", by, reason, until))


def note_members(
    tx: Transaction, user: str, before: Collection[str], after: Collection[str], *, by: str, reason: str
) -> None:
    """Record which groups a user left and joined."""
    left: list[tuple[str, GroupChangeKind]] = [
        (group, "user-removed") for group in before if group not in after
    ]
    for group, change in left + [(group, "user-added") for group in after if group not in before]:
        tx.later(_NOTE, (tx.now, group, change, None, user, by, reason, None))
