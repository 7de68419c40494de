"""The rows of the site mask: what is closed, and the number that changes whenever that does."""

from __future__ import annotations

from typing import Any, Final

from lodesman.store.journal import Transaction

COLUMNS: Final = "site, ce, queue, reason, closed_by, since, until, keep_pilots"
VERSION: Final = "SELECT version FROM site_mask_state"
ALL: Final = f"SELECT {COLUMNS} FROM site_mask"
OF_SITE: Final = f"SELECT {COLUMNS} FROM site_mask WHERE site = ?"
CHANGED: Final = "UPDATE site_mask_state SET version = version + 1"
CLOSE: Final = "INSERT OR REPLACE INTO site_mask VALUES (?,?,?,?,?,?,?,?)"
OPEN: Final = "DELETE FROM site_mask WHERE (site, ce, queue) = (?, ?, ?)"
OPEN_OLD: Final = "DELETE FROM site_mask WHERE until <= ?"
# Of a site, or of the CE or queue of it that is named.
THERE: Final = "ended_at IS NULL AND drain = 0 AND site = ?1 AND ?2 IN ('', ce) AND ?3 IN ('', queue)"
PILOTS_THERE: Final = f"SELECT id FROM pilot WHERE {THERE}"
DRAIN: Final = f"UPDATE pilot SET drain = 1, drain_reason = ?4 WHERE {THERE}"

Node = tuple[str, str, str]


def close(tx: Transaction, row: tuple[Any, ...]) -> None:
    """Store a closing, instead of the one that was there; values in the order of COLUMNS."""
    tx.write(CLOSE, row)
    tx.write(CHANGED)


def reopen(tx: Transaction, node: Node) -> None:
    """Nobody closes this node any more."""
    tx.write(OPEN, node)
    tx.write(CHANGED)


def reopen_old(tx: Transaction) -> int:
    """Forget the closings whose time has passed; returns how many."""
    gone = tx.write(OPEN_OLD, (tx.now,))
    if gone:
        tx.write(CHANGED)
    return gone


def pilots_there(tx: Transaction, node: Node) -> list[int]:
    """The live pilots of a node that take jobs, now or later."""
    return [number for (number,) in tx.read(PILOTS_THERE, node)]


def drain_there(tx: Transaction, node: Node, reason: str) -> None:
    """They take no more jobs."""
    tx.write(DRAIN, (*node, reason))
