"""Closing and opening sites, CEs and queues without touching the configuration (ADR 0025).

What is closed stands in the database: the director, `why` and the lists read it there, and so does a pilot that is stored
or joins. Pilots that are there are drained by the command that closes, so that no claim has to ask.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace

from lodesman.answers.nodes import CLOSED_BY, BreakerOrder, Closing
from lodesman.answers.service import StoredBreaker
from lodesman.commands.live import Live
from lodesman.commands.report import take_back
from lodesman.director.site_mask import SiteMask, around
from lodesman.errors import Conflict, InvalidRequest
from lodesman.resources import NodePath, QueueId
from lodesman.store import Reader, director
from lodesman.store.director import closings, closings_version
from lodesman.store.transaction import Transaction
from lodesman.store.write.pilots import drain_pilots_for, set_drain_reasons

log = logging.getLogger(__name__)

_MOST_REASON: Final = 1_000
_MOST_SHOWN: Final = 5


class KnownMask:
    """The mask as it is now, read anew only if it has changed. Any thread may read it, with a connection of its own."""

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
    """Why pilots of a queue have to leave now; '' if they may stay."""
    found = closings(tx.reader(), place[0]).drains(place, tx.now)
    return "" if found is None else leaving(found)


def leaving(closing: Closing) -> str:
    """The reason given to a pilot that leaves because its queue was closed."""
    return f"{closing.node} is {closing.text}"


def check_closing(closing: Closing, now: float) -> Closing:
    """The closing, its reason without blanks around it. Raises InvalidRequest: no reason, or a time that has passed."""
    reason = check_reason(closing.reason)
    if not closing.holds(now):
        raise InvalidRequest("The time until which it shall be closed has passed.", parameter="until")
    return replace(closing, reason=reason)


class Closed(Struct, frozen=True, kw_only=True):
    """What closing did: `drained` pilots leave since; `renewed`: it was closed before, and `since` is from then."""

    closing: Closing
    drained: tuple[int, ...]
    renewed: bool


def close_site(tx: Transaction, live: Live, closing: Closing, *, dry_run: bool = False) -> Closed:
    """Close a site, CE or queue, and drain the pilots that are there, unless they may stay. Raises InvalidRequest.

    Of one that is closed already the time stays, all else is as this one says. `dry_run`: change nothing.
    """
    closing = check_closing(closing, tx.now)
    before = _holding(tx, closing.node)
    closing = replace(closing, since=tx.now if before is None else before.since)
    drained = () if closing.keep_pilots else tuple(director.pilots_there(tx, closing.node))
    if not dry_run:
        director.put_closing(tx, closing)
        drain_pilots_for(tx, drained, leaving(closing))
        for pilot_id in drained:
            live.parked.end_of_pilot(tx, pilot_id)
            take_back(live, tx, pilot_id, leaving(closing))
        details = {**asdict(closing), "drained": len(drained)}
        tx.afterwards.append(partial(log.info, "a site was closed", extra=details))
    return Closed(closing=closing, drained=drained, renewed=before is not None)


class Opened(Struct, frozen=True, kw_only=True):
    """What opening did: the closing that ended, those that still concern the same queues, and the pilots that stay."""

    closing: Closing
    others: tuple[Closing, ...]
    staying: tuple[int, ...]


def open_site(tx: Transaction, node: NodePath, opened_by: str) -> Opened:
    """Open exactly what was closed; pilots that were to leave for it, and are still there, stay (ADR 0063).

    Raises Conflict if it is not closed.
    """
    active = closings(tx.reader(), node[0]).active(tx.now)
    others = tuple(one for one in active if one.concerns(node) and one.node != node)
    before = _holding(tx, node)
    if before is None:
        raise not_closed(str(node), others)
    director.delete_closing(tx, node)
    staying = _let_stay(tx, node)
    details = {**asdict(before), "opened_by": opened_by, "staying": len(staying)}
    tx.afterwards.append(partial(log.info, "a site was opened", extra=details))
    return Opened(closing=before, others=others, staying=staying)


def end_old_closings(tx: Transaction) -> list[int]:
    """Forget the closings whose time has passed; returns the pilots that stay now."""
    gone = [one.node for one in closings(tx.reader()).closings if not one.holds(tx.now)]
    for node in gone:
        director.delete_closing(tx, node)
    return [pilot for node in gone for pilot in _let_stay(tx, node)]


def _let_stay(tx: Transaction, node: NodePath) -> tuple[int, ...]:
    """Pilots of a node that leave because of a closing stay, unless another one holds; those that stay."""
    found = {
        number: why_drained(tx, place)
        for number, place, why in director.leaving_there(tx, node)
        if any(why.startswith(f"{one} is {CLOSED_BY} ") for one in around(place))
    }
    set_drain_reasons(tx, found)
    return tuple(number for number, why in found.items() if not why)


def not_closed(path: str, others: tuple[Closing, ...]) -> Conflict:
    """The refusal to open what is not closed: it names what is closed there, or anywhere."""
    shown = ", ".join(str(one.node) for one in others[:_MOST_SHOWN])
    more = f" and {len(others) - _MOST_SHOWN} more" if len(others) > _MOST_SHOWN else ""
    hint = f"Closed there: {shown}{more}." if others else "Nothing is closed there; see: lode site ls."
    return Conflict(f"{path[:200]} is not closed.", hint=hint, closed=[list(one.node) for one in others])


def order_breaker(tx: Transaction, place: QueueId, order: BreakerOrder | None) -> BreakerOrder | None:
    """Give an order for the breaker of a queue, or take it back (None): then it begins anew, closed. Answers the order
    before.
    """
    before = director.breaker_orders(tx.reader()).get(place)
    if order is None:
        director.delete_breaker_order(tx, place)
        director.put_breakers(tx, [StoredBreaker(*place, "")])
    else:
        director.put_breaker_order(tx, order)
    return before


def check_reason(reason: str) -> str:
    """Without blanks around it. Raises InvalidRequest: none is given, or it is too long."""
    reason = reason.strip()
    if not reason:
        raise InvalidRequest("Say why (--reason TEXT): everybody will see it.", parameter="reason")
    if len(reason) > _MOST_REASON:
        raise InvalidRequest(f"The reason is longer than {_MOST_REASON} characters.", parameter="reason")
    return reason


def _holding(tx: Transaction, node: NodePath) -> Closing | None:
    """The closing of exactly this node, if it holds."""
    found = closings(tx.reader(), node[0])
    return next((one for one in found.active(tx.now) if one.node == node), None)
