"""What became of submitted pilots: asked of their batch systems; lost references are found again by stamp.

Unknown is not gone: a pilot that its batch system does not list stays as it is until its lease or its age
ends it (DESIGN rule 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import apsw

from lodesman.batch import Backend, NativeState
from lodesman.director import QueueId
from lodesman.store.pilots import PilotState

PILOTS = """SELECT id, stamp, state, native_id, created_at, joined_at, site, ce, queue FROM pilot WHERE ended_at IS NULL"""
LOST_AFTER_SECONDS = 60.0
GIVEN_UP_SECONDS = 3_600.0
SETTLE_SECONDS = 10.0

Post = Callable[[str, Any], Any]
# (queue, accepted, reason): a pilot that ended without ever joining speaks against its queue.
Told = Callable[[QueueId, bool, str], None]


class Census:
    """One `tick` asks all backends about all live pilots. `told` hears of pilots that joined, and that never did.

    `started` is when this process began: submissions that were under way before ended with the one before it.
    """

    def __init__(
        self,
        db: apsw.Connection,
        backends: Mapping[str, Backend],
        *,
        post: Post,
        told: Told,
        started: float = 0.0,
    ) -> None:
        self._db = db
        self._backends = backends
        self._post = post
        self._told = told
        self._started = started
        self._joined: set[int] = set()

    def tick(self, now: float) -> int:
        """Returns how many pilots were found to have ended."""
        rows = list(self._db.execute(PILOTS))
        self._greet(rows)
        ended = 0
        for backend in self._backends.values():
            self._find_lost(backend, rows, now)
            ended += self._ask(backend, rows)
        return ended

    def _greet(self, rows: list[Any]) -> None:
        """Pilots that have joined since the last look speak for their queues."""
        joined = {row[0]: row for row in rows if row[5] is not None}
        for pilot_id in joined.keys() - self._joined:
            self._told(QueueId(*joined[pilot_id][6:9]), True, "")
        self._joined = set(joined)

    def _find_lost(self, backend: Backend, rows: list[Any], now: float) -> None:
        """Pilots stored before a submission whose answer never came."""
        lost = {
            row[1]: row for row in rows if row[3] is None and self._is_older(row, now, LOST_AFTER_SECONDS)
        }
        if not lost:
            return
        found = backend.census(list(lost))
        outcome: dict[str, tuple[str | None, str]] = {stamp: (native, "") for stamp, native in found.items()}
        for stamp, row in lost.items():
            if stamp not in found and row[5] is None and self._is_older(row, now, GIVEN_UP_SECONDS):
                outcome[stamp] = (None, "its submission was never confirmed")
        if outcome:
            self._post("submitted", outcome)

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
            row = asked[native_id]
            state = PilotState.LOST if row[2] == "Running" else PilotState.ABORTED
            reason = status.detail or f"ended with exit code {status.exit_code}"
            if row[5] is None:
                self._told(QueueId(*row[6:9]), False, reason)
            self._post("ended", {"pilot": row[0], "state": state.value, "reason": reason})
            ended += 1
        return ended
