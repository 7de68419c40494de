"""The audit trail: who did what, when and from where."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Generic, TypeVar

from msgspec import Struct

from lodesman.server.store import Reader
from lodesman.server.store.journal import Command
from lodesman.server.store.statement import ANY, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.accounts import AuditAction, AuditEntry, AuditNote

log = logging.getLogger(__name__)
R = TypeVar("R")

_INSERT = Statement(
    sql="INSERT INTO audit (at, action, subject, by, origin, count, detail) VALUES (?,?,?,?,?,?,?)",
)
_LIST = """SELECT id, at, action, subject, by, origin, count, detail FROM audit
WHERE id < ? AND at >= ? AND ? IN ('', action) AND ? IN ('', by) ORDER BY id DESC LIMIT ?"""
_OLD = "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ? LIMIT 10000)"
_MOST_SUBJECT = 1_000


def append_entry(tx: Transaction, entry: AuditNote) -> None:
    """Append an entry; it is logged once committed."""
    row = (
        entry.action,
        entry.subject[:_MOST_SUBJECT],
        entry.by,
        entry.origin,
        entry.count,
        entry.detail[:_MOST_SUBJECT],
    )
    tx.later(_INSERT, (tx.now, *row))
    fields = dict(zip(("action", "subject", "by", "origin", "count", "detail"), row, strict=True))
    tx.afterwards.append(partial(log.info, "audit", extra=fields))


def append_entries(tx: Transaction, notes: Iterable[AuditNote]) -> None:
    """Append all of them."""
    for entry in notes:
        append_entry(tx, entry)


class AuditedCommand(Struct, Generic[R], frozen=True):
    """A command with its audit entry, in one transaction."""

    command: Command[R]
    entry: AuditNote

    def apply(self, tx: Transaction) -> R:
        """Apply the command; note it unless it is refused."""
        answer = self.command.apply(tx)
        append_entry(tx, self.entry)
        return answer


def audit_entries(
    db: Reader, *, before: int, since: float, action: AuditAction | str, by: str, limit: int
) -> list[AuditEntry]:
    """Newest first, below a number, since a time (UNIX seconds); '': any action, any user."""
    return [AuditEntry(*row) for row in db.execute(_LIST, (before, since, action, by, limit))]


def delete_old(tx: Transaction, before: float) -> None:
    """Delete a portion of the entries before that time."""
    tx.write(_OLD, (before,), rows=ANY)
