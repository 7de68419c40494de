"""Pilot rows, their states, and the tokens of pilots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from lodesman.base.errors import NotFound
from lodesman.server.store.read.pilots import PilotRow, pilot_by_id, pilot_by_stamp
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.nodes import QueueId
from lodesman.wire.service import NewPilot, PilotSeen
from lodesman.wire.vocabulary import PilotState

_P = PilotState
_PILOT_MOVES: dict[PilotState, frozenset[PilotState]] = {
    # A pilot may join before its native id is stored.
    _P.PREPARED: frozenset({_P.SUBMITTED, _P.RUNNING, _P.ABORTED, _P.LOST}),
    _P.SUBMITTED: frozenset({_P.RUNNING, _P.ABORTED, _P.LOST}),
    _P.RUNNING: frozenset({_P.DONE, _P.ABORTED, _P.LOST}),
    _P.DONE: frozenset(),
    _P.ABORTED: frozenset(),
    _P.LOST: frozenset(),
}
PILOT_ENDED = frozenset({_P.DONE, _P.ABORTED, _P.LOST})

_INSERT_PILOT = Statement(
    sql="""INSERT INTO pilot (id, stamp, state, vo, owner, grp, pilot_type, submission_pool, tq_id, site,
    ce, queue, requirements, request, created_at, backend, bound_job, sent_to)
    VALUES (?,?,'Prepared',?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)""",
    key=(0,),
)
# The pilot may have been purged.
_SET_NATIVE = Statement(
    sql="UPDATE pilot SET host = ?, held_since = ?, native_seen = ? WHERE id = ?",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_SET_ID = "UPDATE pilot SET native_id = ?, submitted_at = COALESCE(joined_at, ?) WHERE id = ?"
_SET_STATE = "UPDATE pilot SET state = ?, reason = ?, ended_at = ? WHERE state = ? AND id = ?"
_SET_JOINED = "UPDATE pilot SET joined_at = ?, last_seen = ?, node = ?, node_host = ? WHERE id = ?"
_SET_PLACE = "UPDATE pilot SET site = ?, ce = ?, queue = ?, request = ? WHERE id = ?"
_SET_REQUEST = Statement(sql="UPDATE pilot SET request = ? WHERE id = ?", key=(-1,))
_SET_SEEN = Statement(sql="UPDATE pilot SET last_seen = ? WHERE id = ?", key=(-1,), rows=AT_MOST_ONE)
_COUNT_JOB = Statement(sql="UPDATE pilot SET jobs_done = jobs_done + 1 WHERE id = ?", key=(-1,))
_DRAIN = "UPDATE pilot SET drain = 1, drain_reason = ? WHERE id = ? AND ended_at IS NULL"
_SET_DRAIN = Statement(sql="UPDATE pilot SET drain = ?, drain_reason = ? WHERE id = ?", key=(-1,))
_DRAIN_FOR = Statement(
    sql="UPDATE pilot SET drain = 1, drain_reason = ? WHERE id = ? AND drain = 0",
    key=(-1,),
    rows=AT_MOST_ONE,
)
_OFFERS = """SELECT id, vo, site, ce, queue, request, CASE WHEN joined_at IS NOT NULL THEN node_host END
FROM pilot WHERE ended_at IS NULL"""

_INSERT_JOIN_TOKEN = Statement(
    sql="""INSERT INTO token (hash, kind, account, pilot_id, created_at, expires_at)
    VALUES (?,'join','',?,?,?)""",
    key=(0,),
)
_INSERT_PILOT_TOKEN = Statement(
    sql="INSERT INTO token (hash, kind, account, pilot_id, created_at) VALUES (?,'pilot','',?,?)",
    key=(0,),
)
_JOIN_TOKEN = """SELECT pilot_id, expires_at, kind = 'joined', nonce FROM token
WHERE hash = ? AND kind IN ('join', 'joined')"""
_DELETE_OTHER_TOKENS = "DELETE FROM token WHERE pilot_id = ? AND kind != ?"
_LIMIT_PILOT_TOKEN = "UPDATE token SET expires_at = ? WHERE pilot_id = ? AND kind = 'pilot'"


def need_pilot(tx: Transaction, *, pilot_id: int | None = None, stamp: str = "") -> PilotRow:
    """Read a pilot by id or stamp. Raises NotFound."""
    db = tx.reader()
    row = pilot_by_stamp(db, stamp) if pilot_id is None else pilot_by_id(db, pilot_id)
    if row is None:
        raise NotFound("There is no such pilot.", pilot=stamp or pilot_id)
    return row


def insert_pilot(
    tx: Transaction, number: int, new: NewPilot, request: Mapping[str, Any], *, bound_job: int | None = None
) -> None:
    """Store a pilot with its join token. `request`: what it presents in truth; `bound_job`: the only job it runs."""
    sent_to = msgspec.json.encode((new.site, new.ce, new.queue)).decode() if new.forwards else ""
    tx.later(
        _INSERT_PILOT,
        (number, new.stamp, new.vo, new.owner, new.group, new.pilot_type, new.submission_pool, new.tq_id, new.site,
         new.ce, new.queue, new.requirements, msgspec.json.encode(request).decode(), tx.now, new.backend, bound_job,
         sent_to),
    )  # fmt: skip
    tx.later(_INSERT_JOIN_TOKEN, (new.join_hash, number, tx.now, tx.now + new.join_seconds))


def set_state(tx: Transaction, row: PilotRow, new: PilotState, reason: str = "") -> bool:
    """False if the table of moves forbids it."""
    if new not in _PILOT_MOVES[row.state]:
        return False
    ended = tx.now if new in PILOT_ENDED else None
    tx.write(_SET_STATE, (new.value, reason, ended, row.state.value, row.id), rows=ONE)
    return True


def set_native_id(tx: Transaction, pilot_id: int, native_id: str) -> None:
    """Its batch system accepted the pilot."""
    tx.write(_SET_ID, (native_id, tx.now, pilot_id), rows=ONE)


def set_seen_there(tx: Transaction, seen: Mapping[int, PilotSeen]) -> None:
    """What batch systems said of pilots."""
    tx.later_many(_SET_NATIVE, [(*facts, pilot_id) for pilot_id, facts in seen.items()])


def set_place(tx: Transaction, row: PilotRow) -> None:
    """Store where a pilot runs, and what it presents there."""
    tx.write(_SET_PLACE, (row.site, row.ce, row.queue, row.request, row.id), rows=ONE)


def live_offers(
    tx: Transaction, differ_by_host: Callable[[str, QueueId], bool]
) -> dict[tuple[str, QueueId, str | None, str], list[int]]:
    """Offers by VO, queue, host (of joined pilots, where queues differ by host) and request (JSON)."""
    by_offer: dict[tuple[str, QueueId, str | None, str], list[int]] = {}
    for number, vo, site, ce, queue, request, host in tx.read(_OFFERS):
        place = QueueId(site, ce, queue)
        kind = (vo, place, host if differ_by_host(vo, place) else None, request)
        by_offer.setdefault(kind, []).append(number)
    return by_offer


def set_requests(tx: Transaction, pilots: Iterable[int], request: str) -> None:
    """What these pilots present from now on."""
    tx.later_many(_SET_REQUEST, [(request, pilot_id) for pilot_id in pilots])


def set_last_seen(tx: Transaction, seen: Mapping[int, float]) -> None:
    """Store UNIX seconds by pilot."""
    tx.later_many(_SET_SEEN, [(at, pilot_id) for pilot_id, at in seen.items()])


def count_job(tx: Transaction, pilot_id: int) -> None:
    """Count a job that ended by itself."""
    tx.later(_COUNT_JOB, (pilot_id,))


def drain_pilot(tx: Transaction, pilot_id: int, reason: str = "") -> bool:
    """False if it is gone. Without a reason, an administrator said so."""
    return bool(tx.write(_DRAIN, (reason, pilot_id), rows=AT_MOST_ONE))


def set_drain_reasons(tx: Transaction, reasons: Mapping[int, str]) -> None:
    """An empty reason lets a pilot stay."""
    tx.later_many(_SET_DRAIN, [(int(bool(why)), why, number) for number, why in reasons.items()])


def drain_pilots_for(tx: Transaction, pilots: Sequence[int], reason: str) -> None:
    """Pilots that drain already keep their reason."""
    tx.later_many(_DRAIN_FOR, [(reason, pilot_id) for pilot_id in pilots])


def join_token(tx: Transaction, digest: bytes) -> tuple[int, float, bool, str] | None:
    """(pilot, expiry, whether it was used, nonce of that use)."""
    return tx.reader().execute(_JOIN_TOKEN, (digest,)).fetchone()


def set_joined(tx: Transaction, pilot_id: int, *, node: str, host: str) -> None:
    """Note that it joined. `node`: its report."""
    tx.write(_SET_JOINED, (tx.now, tx.now, node, host, pilot_id), rows=ONE)


def exchange_token(tx: Transaction, pilot_id: int, *, digest: bytes, nonce: str, token: bytes) -> None:
    """Replace the join token `digest` by the token with hash `token`."""
    tx.write("UPDATE token SET kind = 'joined', nonce = ? WHERE hash = ?", (nonce, digest), rows=ONE)
    tx.write("DELETE FROM token WHERE pilot_id = ? AND kind = 'pilot'", (pilot_id,), rows=ANY)
    tx.later(_INSERT_PILOT_TOKEN, (token, pilot_id, tx.now))


def end_tokens(tx: Transaction, pilot_id: int, *, keep_working: bool, expires_at: float | None) -> None:
    """`keep_working`: but for the working token, good until `expires_at` (UNIX seconds; None: as before)."""
    tx.write(_DELETE_OTHER_TOKENS, (pilot_id, "pilot" if keep_working else ""), rows=ANY)
    if expires_at is not None:
        tx.write(_LIMIT_PILOT_TOKEN, (expires_at, pilot_id), rows=ANY)
