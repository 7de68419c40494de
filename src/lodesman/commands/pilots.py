"""The life of a pilot in the database: prepared, submitted, joined, gone."""

from __future__ import annotations

import hashlib
import logging
import secrets
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from lodesman.answers.service import NewPilot
from lodesman.answers.vocabulary import PilotState
from lodesman.commands.live import Live
from lodesman.commands.report import end_all_attempts
from lodesman.commands.sessions import part_of
from lodesman.commands.site_mask import DRAIN_ONE, why_drained
from lodesman.errors import Conflict, Unauthorized
from lodesman.resources import QueueId
from lodesman.store import pilots
from lodesman.store.engine import Reader
from lodesman.store.journal import Transaction
from lodesman.store.pilots import PILOT_ENDED

log = logging.getLogger(__name__)

# How long a pilot that was lost may still hand in what it had: seconds.
LATE_SECONDS = 7 * 86_400.0
FORGET_TOKENS = "DELETE FROM token WHERE pilot_id = ? AND kind != ?"
LAST_WORDS = "UPDATE token SET expires_at = ? WHERE pilot_id = ? AND kind = 'pilot'"
INSERT_TOKEN = """INSERT INTO token (hash, kind, account, pilot_id, created_at, expires_at, nonce)
VALUES (?,?,?,?,?,?,?)"""
FIND_JOIN = (
    "SELECT pilot_id, expires_at, nonce, kind FROM token WHERE hash = ? AND kind IN ('join', 'joined')"
)


JOINING = f"""SELECT {pilots.COLUMNS} FROM pilot WHERE id =
(SELECT pilot_id FROM token WHERE hash = ? AND kind IN ('join', 'joined'))"""  # noqa: S608
SET_PLACE = "UPDATE pilot SET site = ?, ce = ?, queue = ?, request = ? WHERE id = ?"


def joining_pilot(db: Reader, join_token: str) -> pilots.PilotRow | None:
    """The pilot of a join token, None if the token is unknown."""
    found = db.execute(JOINING, (hash_token(join_token),)).fetchone()
    return None if found is None else pilots.row_of(found)


def hash_token(token: str) -> bytes:
    """What is stored and looked up instead of a token."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(slots=True)
class PreparePilots:
    """Store pilots and their join tokens before they are submitted; answers their ids."""

    live: Live
    new: list[NewPilot]

    def apply(self, tx: Transaction) -> list[int]:
        """Insert all."""
        numbers = []
        leaving: dict[QueueId, str] = {}
        for place in {QueueId(one.site, one.ce, one.queue) for one in self.new}:
            leaving[place] = why_drained(tx, place)
        for pilot in self.new:
            number = self.live.ids.pilot()
            numbers.append(number)
            place = QueueId(pilot.site, pilot.ce, pilot.queue)
            # As its queue is now: whoever sent it may not know yet.
            known = None if self.live.offers is None else self.live.offers(pilot.vo, place)
            request = pilot.request if known is None else {**pilot.request, **part_of(known)}
            tx.later(
                pilots.INSERT_PILOT,
                (number, pilot.stamp, pilot.vo, pilot.owner, pilot.group, pilot.pilot_type, pilot.submission_pool,
                 pilot.tq_id, *place, pilot.requirements, msgspec.json.encode(request).decode(), tx.now),
            )  # fmt: skip
            tx.later(
                INSERT_TOKEN, (pilot.join_hash, "join", "", number, tx.now, tx.now + pilot.join_seconds, "")
            )
            if leaving[place]:
                tx.later(DRAIN_ONE, (leaving[place], number))
        return numbers


@dataclass(slots=True)
class PilotSubmitted:
    """The batch system's answers: stamp -> native id, or None with the reason of a refusal.

    A refusal ends only a pilot of which nothing else was heard: a submission that took too long is taken for refused,
    and its pilot may be there all the same.
    """

    live: Live
    outcome: dict[str, tuple[str | None, str]]

    def apply(self, tx: Transaction) -> int:
        """Store references; pilots that were refused are Aborted. Returns how many were accepted."""
        accepted = 0
        for stamp, (native_id, reason) in self.outcome.items():
            row = pilots.need_pilot(tx, stamp=stamp)
            if native_id is None:
                self._refused(tx, row, reason)
                continue
            accepted += 1
            tx.write(
                "UPDATE pilot SET native_id = ?, submitted_at = ? WHERE id = ?", (native_id, tx.now, row.id)
            )
            pilots.set_state(tx, row, PilotState.SUBMITTED)
        return accepted

    def _refused(self, tx: Transaction, row: pilots.PilotRow, reason: str) -> None:
        if row.state is PilotState.PREPARED:
            EndPilot(self.live, row.id, PilotState.ABORTED, reason).apply(tx)
            return
        log.warning(
            "a pilot was refused that is known already", extra={"stamp": row.stamp, "state": row.state.value}
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """The queue (site, CE, queue) of a pilot that found it out itself, and what is configured of it, as JSON."""

    place: QueueId
    request: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a pilot that joined: its row and its new token."""

    row: pilots.PilotRow
    token: str
    node: dict[str, Any]


@dataclass(slots=True)
class Join:
    """A pilot exchanges its one-time join token for a token bound to its lease.

    The same join token with the same nonce may be used again: the answer was lost. `settled`: the queue that it
    found itself in, for a pilot that was sent to none.
    """

    live: Live
    join_token: str
    nonce: str
    node: dict[str, Any]
    settled: Settled | None = None

    def apply(self, tx: Transaction) -> Joined:
        """Raises Unauthorized for an unknown, used or expired join token; Conflict if the pilot ended."""
        digest = hash_token(self.join_token)
        found = tx.read(FIND_JOIN, (digest,))
        if not found:
            raise Unauthorized(
                "This join token is unknown.", hint="It was used up, or the pilot is an old one."
            )
        pilot_id, expires, nonce, kind = found[0]
        if kind == "joined" and (not self.nonce or nonce != self.nonce):
            raise Unauthorized("This join token was used before by another process.")
        if expires < tx.now:
            raise Unauthorized("This join token has expired.")
        row = pilots.need_pilot(tx, pilot_id=pilot_id)
        if row.state is not PilotState.RUNNING and not pilots.set_state(tx, row, PilotState.RUNNING):
            raise Conflict(f"Pilot {row.stamp} is {row.state} already.", pilot=pilot_id)
        token = secrets.token_urlsafe(32)
        tx.write("UPDATE token SET kind = 'joined', nonce = ? WHERE hash = ?", (self.nonce, digest))
        tx.write("DELETE FROM token WHERE pilot_id = ? AND kind = 'pilot'", (pilot_id,))
        tx.later(INSERT_TOKEN, (hash_token(token), "pilot", "", pilot_id, tx.now, None, ""))
        tx.write(
            "UPDATE pilot SET joined_at = ?, last_seen = ?, node = ? WHERE id = ?",
            (tx.now, tx.now, msgspec.json.encode(self.node).decode(), pilot_id),
        )
        self.live.joined_pilot(tx, pilot_id)
        placed = self._placed(tx, replace(row, joined_at=tx.now))
        return Joined(_drained_if_closed(tx, placed), token, self.node)

    def _placed(self, tx: Transaction, row: pilots.PilotRow) -> pilots.PilotRow:
        if self.settled is None or (row.site and row.ce and row.queue):
            return row
        site, ce, queue = self.settled.place
        tx.write(SET_PLACE, (site, ce, queue, self.settled.request, row.id))
        return replace(row, site=site, ce=ce, queue=queue, request=self.settled.request)


def _drained_if_closed(tx: Transaction, row: pilots.PilotRow) -> pilots.PilotRow:
    """A pilot that joins where pilots have to leave, leaves."""
    reason = why_drained(tx, QueueId(row.site, row.ce, row.queue))
    if not reason:
        return row
    tx.write(DRAIN_ONE, (reason, row.id))
    return replace(row, drain=1, drain_reason=reason)


@dataclass(slots=True)
class EndPilot:
    """A pilot is gone: it left, its batch system says so, or its lease ended. Its live attempts go back.

    One that was lost with attempts may be alive behind a broken network: its token stays good for a while, for the
    results of these attempts (`report.TakeReports`, `sandboxes.check_attempt`) and nothing else. One that had ended
    before stays as it ended; what it should have left behind then is looked for once more.
    """

    live: Live
    pilot_id: int
    state: PilotState
    reason: str
    cause: str = "pilot-lost"

    def apply(self, tx: Transaction) -> int:
        """Returns how many attempts were ended."""
        row = pilots.need_pilot(tx, pilot_id=self.pilot_id)
        before = row.state in PILOT_ENDED
        if not before and not pilots.set_state(tx, row, self.state, self.reason):
            return 0
        self.live.unpark_pilot(tx, self.pilot_id)
        ended = end_all_attempts(self.live, tx, self.pilot_id, self.cause)
        lost = (row.state if before else self.state) is PilotState.LOST
        tx.write(FORGET_TOKENS, (self.pilot_id, "pilot" if lost and (before or ended) else ""))
        if ended:
            tx.write(LAST_WORDS, (tx.now + LATE_SECONDS, self.pilot_id))
        return ended


@dataclass(slots=True)
class DrainPilots:
    """Ask pilots to finish what they run and leave; those that wait for jobs are answered now."""

    live: Live
    pilot_ids: list[int]

    def apply(self, tx: Transaction) -> int:
        """Returns how many were still there."""
        changed = 0
        for pilot_id in self.pilot_ids:
            changed += tx.write("UPDATE pilot SET drain = 1 WHERE id = ? AND ended_at IS NULL", (pilot_id,))
            self.live.unpark_pilot(tx, pilot_id)
        return changed


@dataclass(slots=True)
class SeenPilots:
    """Write down, now and then, when pilots were last heard of (leases themselves live in memory)."""

    seen: dict[int, float]

    def apply(self, tx: Transaction) -> None:
        """Store the times."""
        tx.later_many(
            "UPDATE pilot SET last_seen = ? WHERE id = ?", [(at, pilot) for pilot, at in self.seen.items()]
        )
