"""Pilot rows and their states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lodesman.answers.vocabulary import PilotState
from lodesman.errors import NotFound
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction

_P = PilotState
PILOT_MOVES: dict[PilotState, frozenset[PilotState]] = {
    # A pilot may join before its native reference is stored: the batch system can be faster than we are.
    _P.PREPARED: frozenset({_P.SUBMITTED, _P.RUNNING, _P.ABORTED, _P.LOST}),
    _P.SUBMITTED: frozenset({_P.RUNNING, _P.ABORTED, _P.LOST}),
    _P.RUNNING: frozenset({_P.DONE, _P.ABORTED, _P.LOST}),
    _P.DONE: frozenset(),
    _P.ABORTED: frozenset(),
    _P.LOST: frozenset(),
}
PILOT_ENDED = frozenset({_P.DONE, _P.ABORTED, _P.LOST})

COLUMNS = """id, stamp, state, vo, owner, grp, pilot_type, submission_pool, tq_id, site, ce, queue,
requirements, request, node, native_id, created_at, submitted_at, joined_at, last_seen, ended_at, drain, reason,
jobs_done, drain_reason"""
INSERT_PILOT = """INSERT INTO pilot (id, stamp, state, vo, owner, grp, pilot_type, submission_pool, tq_id, site,
ce, queue, requirements, request, created_at) VALUES (?,?,'Prepared',?,?,?,?,?,?,?,?,?,?,?,?)"""


@dataclass(frozen=True, slots=True)
class PilotRow:
    """One row of `pilot`; `request` and `node` are JSON texts. `drain_reason`: why it leaves, '' if a person said so."""

    id: int
    stamp: str
    state: PilotState
    vo: str
    owner: str
    group: str
    pilot_type: str
    submission_pool: str
    tq_id: int | None
    site: str
    ce: str
    queue: str
    requirements: str
    request: str
    node: str
    native_id: str | None
    created_at: float
    submitted_at: float | None
    joined_at: float | None
    last_seen: float | None
    ended_at: float | None
    drain: int
    reason: str
    jobs_done: int
    drain_reason: str = ""


def row_of(values: tuple[Any, ...]) -> PilotRow:
    """A PilotRow from the columns of COLUMNS."""
    found: list[Any] = list(values)
    found[2] = PilotState(found[2])
    return PilotRow(*found)


def find_pilot(db: Reader, number: int) -> PilotRow | None:
    """One pilot by its id, on a read connection; None if there is none."""
    values = db.execute(f"SELECT {COLUMNS} FROM pilot WHERE id = ?", (number,)).fetchone()
    return None if values is None else row_of(values)


def need_pilot(tx: Transaction, *, pilot_id: int | None = None, stamp: str = "") -> PilotRow:
    """One pilot by id or stamp. Raises NotFound."""
    where, value = ("id = ?", pilot_id) if pilot_id is not None else ("stamp = ?", stamp)
    found = tx.read(f"SELECT {COLUMNS} FROM pilot WHERE {where}", (value,))
    if not found:
        raise NotFound("There is no such pilot.", pilot=value)
    return row_of(found[0])


def set_state(tx: Transaction, row: PilotRow, new: PilotState, reason: str = "") -> bool:
    """Move a pilot if the table allows it; says whether it moved."""
    if new not in PILOT_MOVES[row.state]:
        return False
    ended = tx.now if new in PILOT_ENDED else None
    tx.write(
        "UPDATE pilot SET state = ?, reason = ?, ended_at = ? WHERE id = ?",
        (new.value, reason, ended, row.id),
    )
    return True
