"""Resource quota sets as administrators wrote them."""

from __future__ import annotations

from typing import NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.statement import ONE
from lodesman.server.store.transaction import Transaction

_ALL = "SELECT name, text, changed_at, changed_by FROM quota_set ORDER BY place, name"
_PUT = """INSERT INTO quota_set (name, place, text, changed_at, changed_by)
VALUES (?, (SELECT coalesce(max(place), 0) + 1 FROM quota_set), ?, ?, ?)
ON CONFLICT (name) DO UPDATE
SET text = excluded.text, changed_at = excluded.changed_at, changed_by = excluded.changed_by"""


class StoredQuotas(NamedTuple):
    """A quota set in its canonical text."""

    name: str
    text: str
    changed_at: float
    changed_by: str


def quota_sets(db: Reader) -> list[StoredQuotas]:
    """Sets in the order in which they were added."""
    return [StoredQuotas(*row) for row in db.execute(_ALL)]


def has_quotas(db: Reader) -> bool:
    """Whether there is any set."""
    return db.execute("SELECT 1 FROM quota_set LIMIT 1").fetchone() is not None


def put_quotas(tx: Transaction, name: str, text: str, by: str) -> None:
    """Store a set; a changed one keeps its place."""
    tx.write(_PUT, (name, text, tx.now, by), rows=ONE)


def drop_quotas(tx: Transaction, name: str) -> None:
    """Delete a set."""
    tx.write("DELETE FROM quota_set WHERE name = ?", (name,), rows=ONE)
