"""Closing and opening sites, CEs and queues without touching the configuration (ADR 0025).

The command that closes drains existing pilots, so that no claim has to ask.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from lodesman.base.errors import Conflict, InvalidRequest
from lodesman.decide.director.site_mask import SiteMask, around
from lodesman.decide.resources import NodePath, QueueId
from lodesman.server.store import Reader, director
from lodesman.server.store.director import closings, closings_version
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write.pilots import drain_pilots_for, set_drain_reasons
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.report import take_back
from lodesman.wire.nodes import CLOSED_BY, BreakerOrder, Closing
from lodesman.wire.service import StoredBreaker

log = logging.getLogger(__name__)

_MOST_REASON: Final = 1_000
# How long ago a person may still mean now.
_MOST_LATE_SECONDS: Final = 60.0
_MOST_SHOWN: Final = 5


class KnownMask:
    """The closings, read again only after a change. For any thread, with its own connection."""

    def __init__(self) -> None:
        self._known: tuple[int, SiteMask] = -1, SiteMask()

    def look(self, db: Reader) -> SiteMask:
        """The same object until something is closed or opened."""
        version = closings_version(db)
        if version != self._known[0]:
            # Should it change in between, the next look reads it again.
            self._known = version, closings(db)
        return self._known[1]


def why_drained(tx: Transaction, place: NodePath) -> str:
    """Why pilots of a queue leave now, or ''."""
    closing = closings(tx.reader(), place[0]).drains(place, tx.now)
    return "" if closing is None else leaving_reason(closing)


def leaving_reason(closing: Closing) -> str:
    """Why a pilot leaves whose queue was closed."""
    return f"{closing.node} is {closing.text}"


def check_closing(closing: Closing, now: float) -> Closing:
    """Strips the reason. Raises InvalidRequest without one, or for senseless times."""
    reason = check_reason(closing.reason)
    if closing.is_over(now):
        raise InvalidRequest("The time until which it shall be closed has passed.", parameter="until")
    if closing.begins is UNSET:
        return replace(closing, reason=reason)
    if closing.begins < now - _MOST_LATE_SECONDS:
        words = "The time from which it shall be closed has passed."
        raise InvalidRequest(words, hint="To close it now leave out --from.", parameter="begins")
    if closing.is_over(closing.begins):
        raise InvalidRequest(
            "It would end before it begins.", hint="Give a later --until.", parameter="until"
        )
    if closing.keep_pilots:
        words = "A closing that is announced lets pilots end before it begins, so it cannot keep them."
        raise InvalidRequest(words, hint="Leave out --keep-pilots, or --from.", parameter="keep_pilots")
    return replace(closing, reason=reason)


class ClosingOutcome(Struct, frozen=True, kw_only=True):
    """What closing did."""

    closing: Closing
    drained: tuple[int, ...]  # pilots that leave since
    renewed: bool  # it was closed before, and keeps its `since`
    replaced: Closing | None = None  # an announced closing that this one replaced


def close_site(
    tx: Transaction, live: WriterState, closing: Closing, *, dry_run: bool = False
) -> ClosingOutcome:
    """Close a node and drain its pilots, unless they may stay. An announced closing drains them just before it
    begins. What is closed keeps its `since`.

    Raises InvalidRequest; Conflict if what is closed would be announced, since that would open it until then.
    """
    closing = check_closing(closing, tx.now)
    before = _known(tx, closing.node)
    if before is not None and closing.is_ahead(tx.now) and not before.is_ahead(tx.now):
        hint = f"Open it first: lode site open {closing.node}; or name its CEs or queues."
        raise Conflict(f"{closing.node} is {before.text_at(tx.now)}.", hint=hint)
    replaced = None
    if before is not None and before.is_ahead(tx.now) and not closing.is_ahead(tx.now):
        before, replaced = None, before
    closing = replace(closing, since=_since(tx, before))
    pilots = director.pilots_there(tx, closing.node)
    drained = tuple(pilots) if closing.empties(tx.now) else ()
    if not dry_run:
        director.put_closing(tx, closing)
        _know_mask(tx, live)
        _drain(tx, live, drained, leaving_reason(closing))
        if closing.is_ahead(tx.now):
            for pilot_id in pilots:
                live.parked.end_of_pilot(tx, pilot_id)
        details = {**asdict(closing), "drained": len(drained)}
        tx.afterwards.append(partial(log.info, "a site was closed", extra=details))
    return ClosingOutcome(closing=closing, drained=drained, renewed=before is not None, replaced=replaced)


def _since(tx: Transaction, before: Closing | None) -> float:
    if before is None:
        return tx.now
    return before.since if before.is_ahead(tx.now) else before.start


def _drain(tx: Transaction, live: WriterState, pilots: Sequence[int], why: str) -> None:
    drain_pilots_for(tx, pilots, why)
    for pilot_id in pilots:
        live.parked.end_of_pilot(tx, pilot_id)
        take_back(live, tx, pilot_id, why)


def _know_mask(tx: Transaction, live: WriterState) -> None:
    tx.undo.append(partial(setattr, live, "mask", live.mask))
    live.mask = closings(tx.reader())


class OpeningOutcome(Struct, frozen=True, kw_only=True):
    """What opening did."""

    closing: Closing  # that ended
    others: tuple[Closing, ...]  # that still concern the same queues
    staying: tuple[int, ...]  # pilots


def open_site(tx: Transaction, live: WriterState, node: NodePath, opened_by: str) -> OpeningOutcome:
    """Open exactly what was closed or announced; pilots still leaving stay (ADR 0063). Raises Conflict if it is
    neither.
    """
    known_closings = closings(tx.reader(), node[0]).known(tx.now)
    others = tuple(other for other in known_closings if other.concerns(node) and other.node != node)
    before = _known(tx, node)
    if before is None:
        raise not_closed(str(node), others)
    director.delete_closing(tx, node)
    _know_mask(tx, live)
    staying = _let_stay(tx, node)
    details = {**asdict(before), "opened_by": opened_by, "staying": len(staying)}
    tx.afterwards.append(partial(log.info, "a site was opened", extra=details))
    return OpeningOutcome(closing=before, others=others, staying=staying)


class TendingOutcome(Struct, frozen=True):
    """What the passage of time did to closings."""

    staying: tuple[int, ...]  # pilots, since a closing is over
    leaving: tuple[int, ...]  # pilots, since an announced closing begins


def tend_closings(tx: Transaction, live: WriterState) -> TendingOutcome:
    """Forget closings that are over; drain where an announced one begins within a minute."""
    all_closings = closings(tx.reader()).closings
    gone = [closing.node for closing in all_closings if closing.is_over(tx.now)]
    for node in gone:
        director.delete_closing(tx, node)
    if gone:
        _know_mask(tx, live)
    staying = tuple(pilot for node in gone for pilot in _let_stay(tx, node))
    leave: list[int] = []
    for closing in all_closings:
        if closing.begins is not UNSET and closing.empties(tx.now):
            pilots = director.pilots_there(tx, closing.node)
            _drain(tx, live, pilots, leaving_reason(closing))
            leave += pilots
    return TendingOutcome(staying, tuple(leave))


def _let_stay(tx: Transaction, node: NodePath) -> tuple[int, ...]:
    """Unless another closing holds; returns the pilots."""
    reasons = {
        number: why_drained(tx, place)
        for number, place, why in director.leaving_there(tx, node)
        if any(why.startswith(f"{path} is {CLOSED_BY} ") for path in around(place))
    }
    set_drain_reasons(tx, reasons)
    return tuple(number for number, why in reasons.items() if not why)


def not_closed(path: str, others: tuple[Closing, ...]) -> Conflict:
    """The refusal, with what is closed there, or anywhere."""
    shown = ", ".join(str(closing.node) for closing in others[:_MOST_SHOWN])
    more = f" and {len(others) - _MOST_SHOWN} more" if len(others) > _MOST_SHOWN else ""
    hint = f"Closed there: {shown}{more}." if others else "Nothing is closed there; see: lode site ls."
    return Conflict(
        f"{path[:200]} is not closed.", hint=hint, closed=[list(closing.node) for closing in others]
    )


def order_breaker(tx: Transaction, place: QueueId, order: BreakerOrder | None) -> BreakerOrder | None:
    """None takes the order back: the breaker begins anew, closed. Returns the earlier order."""
    before = director.breaker_orders(tx.reader()).get(place)
    if order is None:
        director.delete_breaker_order(tx, place)
        director.put_breakers(tx, [StoredBreaker(*place, "")])
    else:
        director.put_breaker_order(tx, order)
    return before


def check_reason(reason: str) -> str:
    """Strips it. Raises InvalidRequest if it is empty or too long."""
    reason = reason.strip()
    if not reason:
        raise InvalidRequest("Say why (--reason TEXT): everybody will see it.", parameter="reason")
    if len(reason) > _MOST_REASON:
        raise InvalidRequest(f"The reason is longer than {_MOST_REASON} characters.", parameter="reason")
    return reason


def _known(tx: Transaction, node: NodePath) -> Closing | None:
    mask = closings(tx.reader(), node[0])
    return next((closing for closing in mask.known(tx.now) if closing.node == node), None)
