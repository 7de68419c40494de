"""The director's iterations, and the sites, CEs and queues that administrators closed."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import msgspec

from lodesman.answers.nodes import Closing, NodePath
from lodesman.director.record import of_queues
from lodesman.director.site_mask import SiteMask
from lodesman.store import Reader
from lodesman.store.journal import Transaction
from lodesman.store.read.task_queues import queues_of_vo

_LAST = "SELECT id, at, plan FROM director_iteration WHERE id > ? ORDER BY id DESC LIMIT 1"
_CLOSINGS = """SELECT site, ce, queue, reason, closed_by, since, until, keep_pilots FROM site_mask
WHERE ? IN ('', site)"""


def iteration_after(db: Reader, number: int) -> tuple[int, float, str] | None:
    """The director's last iteration, if its number is greater: the number, when it was, its record as JSON."""
    return db.execute(_LAST, (number,)).fetchone()


def iteration_at(db: Reader) -> float | None:
    """When the director last decided; None if it never did."""
    row = db.execute("SELECT at FROM director_iteration ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else float(row[0])


def last_iteration(db: Reader, vo: str = "", queues: Collection[str] = ()) -> tuple[float | None, Any]:
    """When the director last decided, and what, as JSON values; (None, None) if it never did.

    `vo`: without the task queues of other VOs, and of the CE queues these only.
    """
    found = iteration_after(db, 0)
    if found is None:
        return None, None
    _, at, plan = found
    if not vo:
        return at, msgspec.Raw(plan.encode())
    return at, of_queues(msgspec.json.decode(plan), queues_of_vo(db, vo), queues)


def closings(db: Reader, site: str = "") -> SiteMask:
    """The sites, CEs and queues that are closed: all, or those of one site."""
    return SiteMask(
        Closing(
            site, ce, queue, reason=reason, closed_by=by, since=since, until=until, keep_pilots=bool(keep)
        )
        for site, ce, queue, reason, by, since, until, keep in db.execute(_CLOSINGS, (site,))
    )


def closings_version(db: Reader) -> int:
    """Changes whenever something is closed or opened."""
    return int(db.only("SELECT version FROM site_mask_state")[0])


KEEP_ITERATIONS: Final = 200
# One iteration over 10,000 task queues is megabytes of text. The newest few are kept however large they are.
KEEP_BYTES: Final = 64 << 20
_KEEP_ANYWAY: Final = 3
_INSERT = "INSERT INTO director_iteration (at, bytes, plan) VALUES (?,?,?) RETURNING id"
_SIZES = "SELECT id, bytes FROM director_iteration ORDER BY id DESC"

_CLOSE = """INSERT INTO site_mask (site, ce, queue, reason, closed_by, since, until, keep_pilots) VALUES (?,?,?,?,?,?,?,?)
ON CONFLICT (site, ce, queue) DO UPDATE SET reason = excluded.reason, closed_by = excluded.closed_by,
since = excluded.since, until = excluded.until, keep_pilots = excluded.keep_pilots"""
_CHANGED = "UPDATE site_mask_state SET version = version + 1"
# Of a site, or of the CE or queue of it that is named.
_PILOTS_THERE = """SELECT id FROM pilot WHERE ended_at IS NULL AND drain = 0
AND site = ? AND ? IN ('', ce) AND ? IN ('', queue)"""


def insert_iteration(tx: Transaction, plan: str) -> int:
    """Store one iteration (JSON) and return its number; the oldest go when they are too many or too large together."""
    number: int = tx.read(_INSERT, (tx.now, len(plan.encode()), plan))[0][0]
    size = 0
    for kept, (one, plan_bytes) in enumerate(tx.read(_SIZES)):
        size += plan_bytes
        if kept >= KEEP_ITERATIONS or (size > KEEP_BYTES and kept >= _KEEP_ANYWAY):
            tx.write("DELETE FROM director_iteration WHERE id <= ?", (one,))
            break
    return number


def put_closing(tx: Transaction, closing: Closing) -> None:
    """Store a closing, instead of the one that was there."""
    tx.write(_CLOSE, msgspec.structs.astuple(closing))
    tx.write(_CHANGED)


def delete_closing(tx: Transaction, node: NodePath) -> None:
    """Open a node again."""
    tx.write("DELETE FROM site_mask WHERE site = ? AND ce = ? AND queue = ?", node)
    tx.write(_CHANGED)


def delete_old_closings(tx: Transaction) -> int:
    """Delete the closings whose time has passed; returns how many there were."""
    gone = tx.write("DELETE FROM site_mask WHERE until <= ?", (tx.now,))
    if gone:
        tx.write(_CHANGED)
    return gone


def pilots_there(tx: Transaction, node: NodePath) -> list[int]:
    """The live pilots of a node that take jobs, now or later."""
    return [number for (number,) in tx.read(_PILOTS_THERE, node)]
