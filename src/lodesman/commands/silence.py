"""Pilots that say nothing: what runs there is Stalled until they speak again, or their leases end (DESIGN 3.2).

Only pilots whose silence was noted (`Live.silent`) are looked at when they speak: all others cost nothing. The same word
tells which attempts are being handed in: these are Completing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from lodesman.answers.vocabulary import JobState
from lodesman.commands.live import Attempt, Live
from lodesman.store.journal import Transaction
from lodesman.store.write import attempts, jobs

ON_A_NODE = frozenset({JobState.RUNNING, JobState.COMPLETING})


@dataclass(slots=True)
class NoteSilence:
    """These pilots have said nothing for long. `since`: when each spoke last, in UNIX seconds."""

    live: Live
    since: Mapping[int, float]

    def apply(self, tx: Transaction) -> int:
        """Returns how many jobs are Stalled now that were not."""
        there = {pilot: at for pilot, at in self.since.items() if pilot in self.live.pilots.running}
        return sum(self._stall(tx, pilot, at) for pilot, at in there.items())

    def _stall(self, tx: Transaction, pilot_id: int, since: float) -> int:
        tx.add(self.live.pilots.silent, pilot_id)
        found = [row for row in _rows(tx, pilot_id) if row.state in ON_A_NODE]
        reason = f"its pilot has said nothing since {_moment(since)}"
        for row in found:
            told = {"attempt": row.attempt, "silent_since": since}
            jobs.move(tx, self.live.ids, row, JobState.STALLED, reason=reason, **told)
        return len(found)


@dataclass(slots=True)
class Heard:
    """A pilot tells what it has: attempt -> whether the payload has ended and its output is being handed in."""

    live: Live
    pilot_id: int
    attempts: Mapping[Attempt, bool]

    def apply(self, tx: Transaction) -> int:
        """Stalled jobs go on, and what is handed in is Completing; returns how many jobs moved."""
        moved = left = 0
        for row in list(_rows(tx, self.pilot_id)):
            hands_in = self.attempts.get((row.id, row.attempt))
            if row.state is JobState.STALLED and hands_in is None:
                left += 1
            elif row.state is JobState.STALLED or (row.state is JobState.RUNNING and hands_in):
                new = JobState.COMPLETING if hands_in else JobState.RUNNING
                jobs.move(tx, self.live.ids, row, new, attempt=row.attempt)
                moved += 1
        # What it did not speak of may come in its next word.
        if not left:
            tx.discard(self.live.pilots.silent, self.pilot_id)
        return moved


def _rows(tx: Transaction, pilot_id: int) -> Iterator[jobs.JobRow]:
    """The jobs of a pilot's live attempts."""
    return (jobs.need_row(tx, job_id) for job_id, _ in attempts.live_attempts_of(tx, pilot_id))


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
