"""What was done to groups by command: shares that hold instead of the files', and members who came and went."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import UNSET

from lodesman.server.store import Reader
from lodesman.server.store.statement import Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.groups import GroupChange, GroupChangeKind

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
    """Another one whenever something was done to a group."""
    return int(db.only("SELECT coalesce(max(id), 0) FROM group_change")[0])


def shares_set(db: Reader, now: float) -> dict[str, GroupChange]:
    """The shares that hold instead of the files', by group; one with a time holds until then."""
    found = {group: _change(row) for group, *row in db.execute(_SHARES)}
    return {group: one for group, one in found.items() if one.until is UNSET or now < one.until}


def _change(row: Sequence[Any]) -> GroupChange:
    at, change, share, user, by, reason, until = row
    return GroupChange(at, change, share, user, by, reason, UNSET if until is None else until)


def group_changes(db: Reader, group: str, most: int) -> list[GroupChange]:
    """What was done to a group, the newest first."""
    return [_change(row) for row in db.execute(_CHANGES, (group, most))]


def note_share(
    tx: Transaction, group: str, share: float | None, *, by: str, reason: str, until: float | None = None
) -> None:
    """The share of a group is this from now on, `until` a time; None: that of the files."""
    change: GroupChangeKind = "share-reset" if share is None else "share-set"
    tx.later(_NOTE, (tx.now, group, change, share, "", by, reason, until))


def note_members(
    tx: Transaction, user: str, before: Collection[str], after: Collection[str], *, by: str, reason: str
) -> None:
    """A user was in some groups and is in others."""
    left: list[tuple[str, GroupChangeKind]] = [
        (group, "user-removed") for group in before if group not in after
    ]
    for group, change in left + [(group, "user-added") for group in after if group not in before]:
        tx.later(_NOTE, (tx.now, group, change, None, user, by, reason, None))
