"""The life of a pilot in the database: prepared, submitted, joined, ended; and its host."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from lodesman.base.errors import Conflict, Unauthorized, counted
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import QueueId
from lodesman.server.store.hosts import forget_failures, put_records
from lodesman.server.store.read.pilots import PilotRow, pilot_by_stamp
from lodesman.server.store.read.why import pilots_of_queue
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import pilots
from lodesman.server.store.write.pilots import PILOT_ENDED
from lodesman.server.writer.bound import bind, settle_bound, unbind
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.report import LOST
from lodesman.server.writer.sessions import configured_part, rewrite_request
from lodesman.server.writer.site_mask import why_drained
from lodesman.server.writer.strays import end_all_attempts
from lodesman.wire.hosts import HostState, reported_host
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState, Waking

log = logging.getLogger(__name__)

# How long a lost pilot may still hand in what it had, seconds.
LATE_SECONDS = 7 * 86_400.0


def hash_token(token: str) -> bytes:
    """What is stored instead of a token."""
    return hashlib.sha256(token.encode()).digest()


def prepare_pilots(tx: Transaction, live: WriterState, new: Sequence[NewPilot]) -> list[int]:
    """Store pilots before they are submitted; returns ids. Bound ones up to the first that gets no job. Raises
    Conflict if a queue has more live pilots than one of them allows.
    """
    numbers = []
    places = {QueueId(new_pilot.site, new_pilot.ce, new_pilot.queue) for new_pilot in new}
    _check_room(tx, new)
    leaving = {place: why_drained(tx, place) for place in places}
    for pilot in new:
        number, job = live.ids.pilot(), None
        place = QueueId(pilot.site, pilot.ce, pilot.queue)
        # The present configuration, which the director may not know yet.
        offer = None if live.pilots.offers is None else live.pilots.offers(pilot.vo, place, None)
        request = pilot.request if offer is None else {**pilot.request, **configured_part(offer)}
        if pilot.bound:
            job = None if leaving[place] else bind(tx, live, number, pilot, request)
            if job is None:
                break
        numbers.append(number)
        if pilot.forwards:
            request = {**request, "described": True}
        pilots.insert_pilot(tx, number, pilot, request, bound_job=job)
        if leaving[place]:
            pilots.drain_pilots_for(tx, [number], leaving[place])
    return numbers


def _check_room(tx: Transaction, new: Sequence[NewPilot]) -> None:
    """Checked again: others may have been made meanwhile."""
    most = {
        QueueId(pilot.site, pilot.ce, pilot.queue): pilot.most_there
        for pilot in new
        if pilot.most_there is not None
    }
    for queue, limit in most.items():
        count = len(pilots_of_queue(tx.reader(), queue))
        if count + sum(queue == (pilot.site, pilot.ce, pilot.queue) for pilot in new) > limit:
            words = f"{count} {'is' if count == 1 else 'are'} there or may still be started"
            words = f"{queue} takes {counted(limit, 'pilot')}, and {words}."
            hint = "Others were made at the same time; see: lode pilot ls"
            raise Conflict(words, hint=hint, room=max(0, limit - count))


def pilots_submitted(
    tx: Transaction, live: WriterState, outcome: Mapping[str, tuple[str | None, str]]
) -> None:
    """Stamp -> native id, or None with the reason of a refusal.

    A refusal aborts only a pilot not heard of otherwise: a slow submission counts as refused, and its pilot may
    exist.
    """
    for stamp, (native_id, reason) in outcome.items():
        row = pilot_by_stamp(tx.reader(), stamp)
        if row is None:
            log.warning("a pilot was submitted that is not known", extra={"stamp": stamp})
        elif native_id is not None:
            pilots.set_native_id(tx, row.id, native_id)
            pilots.set_state(tx, row, PilotState.SUBMITTED)
        elif row.state is PilotState.PREPARED:
            end_pilot(tx, live, row.id, PilotState.ABORTED, reason)
        else:
            details = {"stamp": row.stamp, "state": row.state.value}
            log.warning("a pilot was refused that is known already", extra=details)


class _FoundQueue(NamedTuple):
    place: QueueId
    request: str  # JSON


class JoinedPilot(NamedTuple):
    """A pilot that joined, with its new token."""

    row: PilotRow
    token: str


def unknown_join_token() -> Unauthorized:
    """The refusal of a token that no pilot has."""
    return Unauthorized("This join token is unknown.", hint="It was used up, or the pilot is an old one.")


def join_pilot(
    tx: Transaction, live: WriterState, token: str, nonce: str, node: Mapping[str, Any], *,
    found_queue: _FoundQueue | None = None,
) -> JoinedPilot:  # fmt: skip
    """Exchange a one-time join token for a token bound to the lease; again with the same nonce: the answer was
    lost.

    `found_queue`: for a pilot sent to no queue, or forwarded. Raises Unauthorized for an unknown, used or expired
    token, Conflict if the pilot ended.
    """
    digest = hash_token(token)
    stored = pilots.join_token(tx, digest)
    if stored is None:
        raise unknown_join_token()
    pilot_id, expires_at, is_used, used_nonce = stored
    if is_used and (not nonce or used_nonce != nonce):
        raise Unauthorized("This join token was used before by another process.")
    if expires_at < tx.now:
        raise Unauthorized("This join token has expired.")
    row = pilots.need_pilot(tx, pilot_id=pilot_id)
    if row.state is not PilotState.RUNNING and not pilots.set_state(tx, row, PilotState.RUNNING):
        raise Conflict(f"Pilot {row.stamp} is {row.state} already.", pilot=row.id)
    # The token names the incarnation: a restored database knows that it did not make it.
    bound_token = f"{live.ids.incarnation}.{secrets.token_urlsafe(32)}"
    report = msgspec.json.encode(node).decode()
    pilots.set_joined(tx, row.id, node=report, host=reported_host(node.get("host")))
    # A claim with its earlier token wins nothing more.
    live.parked.end_of_pilot(tx, row.id)
    pilots.exchange_token(tx, row.id, digest=digest, nonce=nonce, token=hash_token(bound_token))
    tx.add(live.pilots.running, row.id)
    row = replace(row, joined_at=tx.now, node=report)
    live.hosts.joined(tx, report, live.queues.index.reread_host)
    if found_queue is not None:
        row = replace(row, **found_queue.place._asdict(), request=found_queue.request)
        pilots.set_place(tx, row)
    # Its host is known from now on: a queue may offer something else there.
    offer = live.pilots.offers and live.pilots.offers(row.vo, row.queue_id, reported_host(node.get("host")))
    request = None if offer is None else rewrite_request(row.request, offer)
    if request is not None:
        row = replace(row, request=request)
        pilots.set_requests(tx, [row.id], request)
    # A pilot that joins where pilots have to leave, leaves.
    reason = why_drained(tx, row.queue_id)
    if reason:
        pilots.drain_pilots_for(tx, [row.id], reason)
        unbind(tx, live, [row.id], reason)
        row = replace(row, drain=1, drain_reason=reason)
    settle_bound(tx, live, row)
    return JoinedPilot(row, bound_token)


def end_pilot(
    tx: Transaction, live: WriterState, pilot_id: int, state: PilotState, reason: str, *, cause: str = LOST
) -> int:
    """A pilot left, its batch system says so, or its lease ended: its live attempts go back. Returns how many.

    A lost one may be alive behind a broken network: for a while its token is good for results. One that had ended
    stays as it ended, but leftovers are searched for.
    """
    row = pilots.need_pilot(tx, pilot_id=pilot_id)
    before = row.state in PILOT_ENDED
    if not before and not pilots.set_state(tx, row, state, reason):
        return 0
    tx.answers.append((live.announce, Waking.PILOT_ENDED))
    live.parked.end_of_pilot(tx, pilot_id)
    ended = end_all_attempts(live, tx, pilot_id, cause, why=reason)
    lost = (row.state if before else state) is PilotState.LOST
    expires = tx.now + LATE_SECONDS if ended else None
    pilots.end_tokens(tx, pilot_id, keep_working=lost and bool(before or ended), expires_at=expires)
    return ended


def drain_pilots(tx: Transaction, live: WriterState, pilot_ids: Iterable[int], reason: str = "") -> int:
    """Let pilots finish what they run; waiting claims are answered. Without a reason an administrator said so, and
    nothing takes it back. Returns how many were there.
    """
    changed = 0
    for pilot_id in pilot_ids:
        changed += pilots.drain_pilot(tx, pilot_id, reason)
        live.parked.end_of_pilot(tx, pilot_id)
        unbind(tx, live, [pilot_id], "it was drained")
    return changed


def believed_queue(row: PilotRow, told: QueueId, policy: Policy) -> _FoundQueue | None:
    """None if the named queue is not believed, or the pilot's queue does not forward."""
    if not row.sent_to and (all(row.queue_id) or not row.queue_id.covers(told)):
        return None
    offer = policy.vo_config(row.vo).offer(told)
    if offer is None:  # its access list does not admit the VO
        return None
    return _FoundQueue(told, msgspec.json.encode(asdict(offer.request)).decode())


def presented_pools(number: int, pools: Sequence[str] | None, served: Sequence[str]) -> dict[str, int]:
    """What is kept of the SubmitPools that a pilot presents."""
    if pools is None:
        return {"pass": number, "serves": len(served)}
    stale = len(set(pools).symmetric_difference(served))
    return {"pass": number, "presented": len(pools), "serves": len(served), "stale": stale}


def set_hosts(
    tx: Transaction, live: WriterState, changed: Collection[HostState], pilot_ids: Iterable[int], *, forget: int = 0
) -> None:  # fmt: skip
    """Store records of hosts (ADR 0044). `pilot_ids`: on newly shut hosts; their claims are answered."""
    put_records(tx, changed)
    for pilot_id in pilot_ids:
        live.parked.end_of_pilot(tx, pilot_id)
    if forget:
        forget_failures(tx, forget)
