"""What became of submitted pilots: asked of their batch systems; lost references are found again by stamp.

Unknown is not gone: a pilot that its batch system does not list stays as it is until its lease or its age
ends it (DESIGN rule 5). One that lost its lease is cancelled until it is gone (`lost_pilots`). And each batch system is
asked about its own pilots only: another one's silence about them, or its word about a pilot of its own with the same
number, says nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.service import Outcomes, PilotEnd
from lodesman.answers.vocabulary import PilotState
from lodesman.background.lost_pilots import LostPilots
from lodesman.batch import Backend, NativeState
from lodesman.errors import LodesmanError
from lodesman.matching.policy import Policy
from lodesman.resources import QueueId
from lodesman.store.engine import Reader

log = logging.getLogger(__name__)

PILOTS = """SELECT id, stamp, state, native_id, created_at, joined_at, site, ce, queue, vo FROM pilot
WHERE ended_at IS NULL"""
STANDING = "SELECT state, joined_at FROM pilot WHERE id = ? AND ended_at IS NULL"
LOST_AFTER_SECONDS = 60.0
GIVEN_UP_SECONDS = 3_600.0
SETTLE_SECONDS = 10.0

# (queue, accepted, reason): a pilot that ended without ever joining speaks against its queue.
Told = Callable[[QueueId, bool, str], None]
Rows = list[Any]


class Census:
    """One `tick` asks all backends about all live pilots. `told` hears of pilots that joined, and that never did.

    `policy` tells which backend a queue has, and may be swapped. `started` is when this process began: submissions that
    were under way before ended with the one before it.
    """

    def __init__(
        self,
        db: Reader,
        backends: Mapping[str, Backend],
        *,
        policy: Policy,
        post: Post,
        told: Told,
        started: float = 0.0,
    ) -> None:
        self.policy = policy
        self._db = db
        self._backends = backends
        self._post = post
        self._told = told
        self._started = started
        self._lost_pilots = LostPilots(db, backends)
        self._joined: set[int] = set()
        self._homes: dict[str, dict[QueueId, str]] = {}
        self._homes_of: Policy | None = None

    def tick(self, now: float) -> int:
        """Returns how many pilots were found to have ended."""
        rows = list(self._db.execute(PILOTS))
        self._greet(rows)
        by_home: dict[str, Rows] = defaultdict(list)
        for row in rows:
            by_home[self._home(row)].append(row)
        strays = by_home.pop("", [])
        ended = sum(self._ask_one(name, found, now) for name, found in by_home.items())
        ended += self._ask_all(strays, now) if strays else 0
        self._lost_pilots.tick(now)
        return ended

    def _home(self, row: Any) -> str:
        """The backend of a pilot's queue; '' if the queue is configured no more, or names a backend that is not here."""
        if self._homes_of is not self.policy:
            self._homes, self._homes_of = {}, self.policy
        vo = row[9]
        homes = self._homes.get(vo)
        if homes is None:
            offers = self.policy.vo_config(vo).offers
            homes = self._homes[vo] = {offer.queue: offer.backend for offer in offers}
        name = homes.get(QueueId(*row[6:9]), "")
        return name if name in self._backends else ""

    def _ask_one(self, name: str, rows: Rows, now: float) -> int:
        """One backend about its pilots; one that cannot be asked now does not keep the others from being asked."""
        backend = self._backends[name]
        try:
            lost = self._lost(rows, now)
            if lost:
                self._find(lost, backend.census(list(lost)), now)
            return self._ask(backend, rows)
        except LodesmanError as fault:
            log.warning("a batch system could not be asked: %s", fault, extra={"backend": name})
            return 0

    def _ask_all(self, rows: Rows, now: float) -> int:
        """Pilots of which nobody knows the backend: each is asked by stamp, which no two pilots share."""
        ended = 0
        stamps = {row[1]: row for row in rows}
        found: dict[str, str] = {}
        heard = True
        for name, backend in self._backends.items():
            try:
                known = backend.census(list(stamps))
                found |= known
                ended += self._ask(backend, [row for row in rows if row[3] and known.get(row[1]) == row[3]])
            except LodesmanError as fault:
                log.warning("a batch system could not be asked: %s", fault, extra={"backend": name})
                heard = False
        lost = self._lost(rows, now)
        if heard or found:
            self._find({s: row for s, row in lost.items() if heard or s in found}, found, now)
        return ended

    def _greet(self, rows: Rows) -> None:
        """Pilots that have joined since the last look speak for their queues."""
        joined = {row[0]: row for row in rows if row[5] is not None}
        for pilot_id in joined.keys() - self._joined:
            self._told(QueueId(*joined[pilot_id][6:9]), True, "")
        self._joined = set(joined)

    def _lost(self, rows: Rows, now: float) -> dict[str, Any]:
        """Pilots stored before a submission whose answer never came, by stamp."""
        return {
            row[1]: row for row in rows if row[3] is None and self._is_older(row, now, LOST_AFTER_SECONDS)
        }

    def _find(self, lost: Mapping[str, Any], known: Mapping[str, str], now: float) -> None:
        """Store the references of lost pilots that are known; of the others, give up those that are long lost."""
        outcome: Outcomes = {s: (known[s], "") for s in lost if s in known}
        for stamp, row in lost.items():
            if stamp not in known and row[5] is None and self._is_older(row, now, GIVEN_UP_SECONDS):
                outcome[stamp] = (None, "its submission was never confirmed")
        if outcome:
            self._post(calls.PILOTS_SUBMITTED, outcome)

    def _is_older(self, row: Any, now: float, seconds: float) -> bool:
        """Whether that is long ago, or was the work of a process that is gone."""
        orphaned = row[4] < self._started and now - self._started > SETTLE_SECONDS
        return orphaned or now - row[4] > seconds

    def _ask(self, backend: Backend, rows: list[Any]) -> int:
        asked = {row[3]: row for row in rows if row[3] is not None}
        if not asked:
            return 0
        ended = 0
        for native_id, status in backend.status(list(asked)).items():
            if status.state is not NativeState.ENDED:
                continue
            reason = status.detail or f"ended with exit code {status.exit_code}"
            ended += self._end(asked[native_id], reason)
        return ended

    def _end(self, row: Any, reason: str) -> bool:
        """A pilot has ended; it may have joined, or left, while its batch system was asked."""
        standing = self._db.execute(STANDING, (row[0],)).fetchone()
        if standing is None:
            return False
        state, joined_at = standing
        if joined_at is None:
            self._told(QueueId(*row[6:9]), False, reason)
        as_what = PilotState.LOST if state == "Running" else PilotState.ABORTED
        self._post(calls.PILOT_ENDED, PilotEnd(row[0], as_what, reason))
        return True
