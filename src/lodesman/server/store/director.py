"""Iterations of the director, breakers of CE queues, and closings of sites, CEs and queues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import UNSET

from lodesman.base.errors import NotFound
from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.record import of_queues
from lodesman.decide.director.site_mask import SiteMask
from lodesman.server.store import UNREADABLE, Reader
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.task_queues import queues_of_vo
from lodesman.server.store.transaction import Transaction
from lodesman.wire.nodes import BreakerOrder, Closing, NodePath, QueueId
from lodesman.wire.service import StoredBreaker

_LAST = "SELECT id, at, plan FROM director_iteration WHERE id > ? ORDER BY id DESC LIMIT 1"
_DAMAGED_ORDER: Final = "what was ordered cannot be read: order it again, or say auto (lode queue breaker)"
_DAMAGED_CLOSING: Final = "what was ordered cannot be read: close it again, or open it (lode site)"
_CLOSINGS = """SELECT site, ce, queue, reason, closed_by, since, until, keep_pilots, begins FROM site_mask
WHERE ? IN ('', site)"""


def iteration_after(db: Reader, number: int) -> tuple[int, float, str] | None:
    """Number, time, record (JSON) of the last iteration, if its number is greater."""
    return db.execute(_LAST, (number,)).fetchone()


def iteration_at(db: Reader) -> float | None:
    """When the director last decided, if ever."""
    row = db.execute("SELECT at FROM director_iteration ORDER BY id DESC LIMIT 1").fetchone()
    return None if row is None else float(row[0])


def iteration(db: Reader, number: int) -> tuple[float, dict[str, Any]]:
    """Time and record (JSON values). Raises NotFound."""
    row = db.execute("SELECT at, plan FROM director_iteration WHERE id = ?", (number,)).fetchone()
    if row is None:
        first, last = db.only("SELECT min(id), max(id) FROM director_iteration")
        hint = "None is stored yet." if first is None else f"Those from {first} to {last} are stored."
        raise NotFound(f"There is no iteration {number}.", hint=hint)
    at, plan = row
    return at, msgspec.json.decode(plan)


def last_iteration(
    db: Reader, vo: str = "", queues: Collection[str] = ()
) -> tuple[int | None, float | None, Any]:
    """Number, time, record (JSON values); all None if there is none, or it is damaged. `vo`: without task queues of
    other VOs, and of CE queues only these.
    """
    row = iteration_after(db, 0)
    if row is None:
        return None, None, None
    number, at, plan = row
    with suppress(*UNREADABLE):
        if not vo:
            return number, at, msgspec.json.decode(plan.encode(), type=msgspec.Raw)
        return number, at, of_queues(msgspec.json.decode(plan), queues_of_vo(db, vo), queues)
    return None, None, None  # it is damaged, which `/health` says


def closings(db: Reader, site: str = "") -> SiteMask:
    """Everywhere, or at one site."""
    return SiteMask(_closing(*row) for row in db.execute(_CLOSINGS, (site,)))


def _closing(*row: Any) -> Closing:
    """A damaged closing sends no pilots, and keeps those there."""
    fields = dict(zip(Closing.__struct_fields__, row, strict=True))
    fields["keep_pilots"] = bool(fields["keep_pilots"])
    if fields["begins"] is None:
        del fields["begins"]
    try:
        return msgspec.convert(fields, Closing)
    except msgspec.ValidationError:
        site, ce, queue, *_ = row
        return Closing(
            site,
            ce,
            queue,
            reason=_DAMAGED_CLOSING,
            closed_by="an administrator",
            since=0.0,
            until=None,
            keep_pilots=True,
        )


def breakers(db: Reader, damaged: dict[QueueId, Exception] | None = None) -> dict[QueueId, Breaker]:
    """Those open or with failures; unreadable ones go into `damaged`."""
    by_queue = {}
    for *place, record in db.execute("SELECT site, ce, queue, record FROM breaker"):
        try:
            by_queue[QueueId(*place)] = msgspec.json.decode(record, type=Breaker)
        except UNREADABLE as fault:
            if damaged is not None:
                damaged[QueueId(*place)] = fault
    return by_queue


def breaker_orders(db: Reader) -> dict[QueueId, BreakerOrder]:
    """A damaged order sends no pilots."""
    rows = db.execute("SELECT site, ce, queue, state, reason, ordered_by, at FROM breaker_order")
    return {QueueId(*row[:3]): _order(row) for row in rows}


def _order(row: Sequence[Any]) -> BreakerOrder:
    try:
        fields = zip(BreakerOrder.__struct_fields__, row, strict=True)
        return msgspec.convert(dict(fields), BreakerOrder)
    except msgspec.ValidationError:
        site, ce, queue, *_ = row
        return BreakerOrder(site, ce, queue, "open", _DAMAGED_ORDER, "an administrator", 0.0)


def closings_version(db: Reader) -> int:
    """Changes whenever something is closed or opened."""
    return int(db.only("SELECT version FROM site_mask_state")[0])


KEEP_ITERATIONS: Final = 200
# One iteration over 10,000 task queues is megabytes of text. The newest few are kept however large they are.
KEEP_BYTES: Final = 64 << 20
_KEEP_ANYWAY: Final = 3
_INSERT = "INSERT INTO director_iteration (at, bytes, plan) VALUES (?,?,?) RETURNING id"
_SIZES = "SELECT id, bytes FROM director_iteration ORDER BY id DESC"

_CLOSE = """INSERT INTO site_mask (site, ce, queue, reason, closed_by, since, until, keep_pilots, begins)
VALUES (?,?,?,?,?,?,?,?,?)
ON CONFLICT (site, ce, queue) DO UPDATE SET reason = excluded.reason, closed_by = excluded.closed_by,
since = excluded.since, until = excluded.until, keep_pilots = excluded.keep_pilots, begins = excluded.begins"""
_PUT_ORDER = """INSERT INTO breaker_order (site, ce, queue, state, reason, ordered_by, at)
VALUES (?,?,?,?,?,?,?)"""
_PUT_BREAKER = Statement(
    sql="""INSERT INTO breaker (site, ce, queue, record) VALUES (?,?,?,?)
    ON CONFLICT (site, ce, queue) DO UPDATE SET record = excluded.record""",
    key=(0, 1, 2),
)
_DROP_BREAKER = Statement(
    sql="DELETE FROM breaker WHERE site = ? AND ce = ? AND queue = ?",
    key=(0, 1, 2),
    rows=AT_MOST_ONE,
)
_CHANGED = "UPDATE site_mask_state SET version = version + 1"
# Parameters: a site, and a CE and queue of it, or ''.
_PILOTS_THERE = """SELECT id FROM pilot WHERE ended_at IS NULL AND drain = 0
AND site = ? AND ? IN ('', ce) AND ? IN ('', queue)"""

# A bound pilot that drains has lost its job: it leaves in any case.
_LEAVING_THERE = """SELECT id, site, ce, queue, drain_reason FROM pilot WHERE ended_at IS NULL AND drain = 1
AND drain_reason <> '' AND bound_job IS NULL AND site = ? AND ? IN ('', ce) AND ? IN ('', queue)"""


def insert_iteration(tx: Transaction, plan: str) -> int:
    """Store JSON; returns its number. Deletes the oldest beyond the limits."""
    number: int = tx.read(_INSERT, (tx.now, len(plan.encode()), plan), changes=True)[0][0]
    size = 0
    for kept, (stored_id, plan_bytes) in enumerate(tx.read(_SIZES)):
        size += plan_bytes
        if kept >= KEEP_ITERATIONS or (size > KEEP_BYTES and kept >= _KEEP_ANYWAY):
            tx.write("DELETE FROM director_iteration WHERE id <= ?", (stored_id,), rows=ANY)
            break
    return number


def put_breakers(tx: Transaction, changed: Sequence[StoredBreaker]) -> None:
    """An empty record deletes a breaker."""
    gone = [breaker[:3] for breaker in changed if not breaker.record]
    tx.later_many(_DROP_BREAKER, gone)
    tx.later_many(_PUT_BREAKER, [tuple(breaker) for breaker in changed if breaker.record])


def put_breaker_order(tx: Transaction, order: BreakerOrder) -> None:
    """Replace the order of a queue."""
    delete_breaker_order(tx, QueueId(order.site, order.ce, order.queue))
    tx.write(_PUT_ORDER, msgspec.structs.astuple(order), rows=ONE)


def delete_breaker_order(tx: Transaction, place: NodePath) -> None:
    """Let the breaker move by itself."""
    tx.write("DELETE FROM breaker_order WHERE site = ? AND ce = ? AND queue = ?", place, rows=AT_MOST_ONE)


def put_closing(tx: Transaction, closing: Closing) -> None:
    """Replace the closing of a node."""
    *row, begins = msgspec.structs.astuple(closing)
    tx.write(_CLOSE, (*row, None if begins is UNSET else begins), rows=ONE)
    tx.write(_CHANGED, rows=ONE)


def delete_closing(tx: Transaction, node: NodePath) -> None:
    """Open a node again."""
    tx.write("DELETE FROM site_mask WHERE site = ? AND ce = ? AND queue = ?", node, rows=AT_MOST_ONE)
    tx.write(_CHANGED, rows=ONE)


def leaving_there(tx: Transaction, node: NodePath) -> list[tuple[int, QueueId, str]]:
    """Live pilots of a node that leave for a reason: id, queue, reason."""
    return [(number, QueueId(*place), why) for number, *place, why in tx.read(_LEAVING_THERE, node)]


def pilots_there(tx: Transaction, node: NodePath) -> list[int]:
    """Live pilots of a node that take jobs, now or later."""
    return [number for (number,) in tx.read(_PILOTS_THERE, node)]
