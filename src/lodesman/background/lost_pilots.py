"""Pilots that were lost are cancelled until their batch systems say that they are gone.

A pilot that hangs says nothing, loses its lease, and its jobs run again elsewhere; but it keeps its slot, and may keep its
payload running. One that is alive behind a broken network hands in what it can when its batch system ends it. Whom to
cancel is found by stamp, which no two pilots share: native ids repeat.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lodesman.batch import Backend, CancelOutcome
from lodesman.errors import LodesmanError
from lodesman.store.engine import Reader

log = logging.getLogger(__name__)

LOST = "SELECT id, stamp FROM pilot WHERE state = 'Lost' AND ended_at > ? ORDER BY ended_at"
LOOK_SECONDS = 5.0
# A batch system that ends none of them in so long will not: people have to.
GIVEN_UP_SECONDS = 7 * 86_400.0
# Longer than the grace of the local backend: a second order kills at once.
AGAIN_SECONDS = 60.0
LONGEST_SECONDS = 3_600.0
MOST_AT_ONCE = 200
# Unknown is not gone; a batch system that knows nothing of a pilot so many times in a row has forgotten it.
UNKNOWN_TIMES = 3
GONE = frozenset({CancelOutcome.REMOVED, CancelOutcome.ENDED})


@dataclass(slots=True)
class _Case:
    """One pilot: when to ask next (UNIX seconds), how often it was ordered to end, and was unknown in a row."""

    due: float
    orders: int = 0
    unknown: int = 0
    gone: bool = False


class LostPilots:
    """Has a read connection; all that it keeps in memory may be lost: after a start every pilot is asked about again."""

    def __init__(self, db: Reader, backends: Mapping[str, Backend]) -> None:
        self._db = db
        self._backends = backends
        self._cases: dict[int, _Case] = {}
        self._looked_at: float | None = None

    def tick(self, now: float) -> int:
        """Order the end of those that are due; returns how many are not known to be gone."""
        if self._looked_at is not None and 0.0 <= now - self._looked_at < LOOK_SECONDS:
            return 0
        self._looked_at = now
        stamps = dict(self._db.execute(LOST, (now - GIVEN_UP_SECONDS,)))
        known = self._cases
        self._cases = {number: known.get(number) or _Case(due=now) for number in stamps}
        open_cases = {number: case for number, case in self._cases.items() if not case.gone}
        due = [number for number, case in open_cases.items() if case.due <= now][:MOST_AT_ONCE]
        if due:
            self._settle({stamps[number]: open_cases[number] for number in due}, now)
        return sum(not case.gone for case in open_cases.values())

    def _settle(self, due: Mapping[str, _Case], now: float) -> None:
        outcomes = cancel_by_stamp(self._backends, list(due))
        for stamp, case in due.items():
            _note(case, outcomes[stamp], now)
            if case.gone and case.orders:
                log.info("a lost pilot is gone", extra={"stamp": stamp})


def cancel_by_stamp(backends: Mapping[str, Backend], stamps: Sequence[str]) -> dict[str, CancelOutcome]:
    """Cancel pilots wherever they are, in one call for each batch system.

    UNKNOWN: none of them knows it; as long as one does not answer that cannot be told, so it is FAILED.
    """
    outcomes: dict[str, CancelOutcome] = {}
    silence = CancelOutcome.UNKNOWN
    for name, backend in backends.items():
        try:
            outcomes |= _cancel(backend, stamps)
        except LodesmanError as fault:
            log.warning("pilots could not be cancelled: %s", fault, extra={"backend": name})
            silence = CancelOutcome.FAILED
    return {stamp: outcomes.get(stamp, silence) for stamp in stamps}


def _cancel(backend: Backend, stamps: Sequence[str]) -> dict[str, CancelOutcome]:
    """What became of the pilots that the backend knows. Raises BackendFault."""
    native = backend.census(stamps)
    told: Mapping[str, Any] = backend.cancel(list(native.values())) if native else {}
    return {stamp: told.get(native_id, CancelOutcome.FAILED) for stamp, native_id in native.items()}


def _note(case: _Case, outcome: CancelOutcome, now: float) -> None:
    """Remember an answer."""
    if outcome in GONE:
        case.gone = True
        return
    if outcome is CancelOutcome.UNKNOWN:
        case.unknown += 1
        case.gone = case.unknown >= UNKNOWN_TIMES
    else:
        case.unknown = 0
        case.orders += outcome is CancelOutcome.ORDERED
    case.due = now + min(LONGEST_SECONDS, AGAIN_SECONDS * 2.0 ** min(10, max(0, case.orders - 1)))
