"""Bound pilots (push): each is sent for one job, and runs that alone (ADR 0060).

The transaction that stores the pilot binds the job: it is Matched, and limits count it, but no lease runs before
the pilot joins and claims it. Until then the job goes back, uncounted (`report.take_back`), if the pilot ends, is
to leave, waits too long or would not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from lodesman.base.errors import Unauthorized
from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.resources import QueueId
from lodesman.server.store.read.pilots import PilotRow
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts, jobs, pilots
from lodesman.server.store.write.attempts import ClaimedAttempt, ClaimFacts
from lodesman.server.writer.claim import earlier_answer, take_job
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.report import take_back
from lodesman.server.writer.sessions import PilotSession, presented_by
from lodesman.wire.service import NewPilot


def bind(
    tx: Transaction, live: WriterState, pilot_id: int, new: NewPilot, request: Mapping[str, Any]
) -> int | None:
    """Give a pilot about to be stored the next job of its task queue; None if none may start."""
    tq_id, index, queue = new.tq_id, live.queues.index, QueueId(new.site, new.ce, new.queue)
    place = RunPlace(*queue, "")
    if tq_id is None or not index.is_open(tq_id) or index.is_shut(tq_id, place):
        return None
    key = index.key(tq_id)
    offer = presented_by(msgspec.json.encode(request).decode(), "{}", queue, joined_at=None, now=tx.now)
    if explain(key, replace(offer, submit_pools=live.pools.of_queue(queue).pools)):
        return None
    index.take(tq_id, 1, now=tx.now)
    tx.undo.append(partial(index.add_waiting, tq_id, 1, now=tx.now))
    index.count_start(key, place)
    tx.undo.append(partial(index.undo_start, key, place))
    claimed = take_job(tx, live, ClaimFacts(pilot_id, "", new.site, None), tq_id, place)
    if claimed is None:
        return None
    tx.put(live.pilots.bound, pilot_id, (claimed.job_id, claimed.attempt))
    return claimed.job_id


def settle_bound(tx: Transaction, live: WriterState, row: PilotRow) -> None:
    """The pilot joined, perhaps elsewhere: if job or limits do not fit there, the job waits again."""
    attempt = live.pilots.bound.get(row.id)
    if attempt is None:
        return
    session, (_, _, key, place) = PilotSession(row, now=tx.now), live.pilots.held[row.id][attempt]
    whole = session.whole(tx.now, live.mask.end_of_jobs(session.queue, tx.now))
    reasons = explain(key, session.request(whole, live.pools))
    where = "/".join(filter(None, session.place))
    if reasons:
        take_back(live, tx, row.id, f"pilot {row.id} joined in {where}: {reasons[0]}")
        return
    job = jobs.need_row(tx, attempt[0])
    if place != session.place:
        live.queues.known_again(tx, job.tq_id)
        if not live.bookings.moved(tx, row.id, attempt, job.tq_id, session.place):
            take_back(live, tx, row.id, f"pilot {row.id} joined in {where}, where limits are full")
            return
    attempts.set_site(tx, job.last_attempt, row.site)


def claim_bound(
    tx: Transaction, live: WriterState, pilot_id: int, claim_token: str, refused: str = ""
) -> list[ClaimedAttempt]:
    """A pilot takes its attempt once; the same token gets the same answer. `refused`: why not. Raises Unauthorized."""
    if pilot_id not in live.pilots.running:
        raise Unauthorized("This pilot has ended.", pilot=pilot_id)
    attempt = live.pilots.bound.get(pilot_id)
    if attempt is None:
        return earlier_answer(tx, live, pilot_id, claim_token) or []
    if refused:
        take_back(live, tx, pilot_id, refused)
        return []
    row = jobs.need_row(tx, attempt[0])
    claimed = [ClaimedAttempt(*attempt, row.template_id, row.submission_id)]
    attempts.hand_out(tx, row.last_attempt, claim_token)
    tx.drop(live.pilots.bound, pilot_id)
    tx.put(live.pilots.last_claims, pilot_id, (claim_token, claimed))
    return claimed


def unbind(tx: Transaction, live: WriterState, pilot_ids: Iterable[int], why: str) -> int:
    """Pilots never took their jobs: these wait again, and the pilots leave. Returns how many."""
    unbound = [number for number in pilot_ids if take_back(live, tx, number, why)]
    if unbound:
        pilots.drain_pilots_for(tx, unbound, why)
    return len(unbound)
