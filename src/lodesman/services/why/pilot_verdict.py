"""What is stored of a pilot, and the verdict on why it gets nothing: the part of `lode why PILOT` that decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lodesman.answers.vocabulary import PilotState, PilotVerdict
from lodesman.errors import NotFound
from lodesman.matching import TaskQueueKey, key_from_json
from lodesman.services.why.pilot_now import PilotNow
from lodesman.store import pilots
from lodesman.store.engine import Reader
from lodesman.store.pilots import PILOT_ENDED, PilotRow

BY_ID = f"SELECT {pilots.COLUMNS} FROM pilot WHERE id = ?"  # noqa: S608
BY_STAMP = f"SELECT {pilots.COLUMNS} FROM pilot WHERE stamp = ?"  # noqa: S608
RUNNING = """SELECT q.key FROM attempt a JOIN task_queue q ON q.id = a.tq_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL ORDER BY a.id"""
LONGEST_ID: Final = 18


WHO: Final = {
    PilotVerdict.ENDED: "nobody: it has ended",
    PilotVerdict.DRAINING: "nobody: a pilot drain is not taken back",
    PilotVerdict.SHUT_OUT: "who configures the site",
    PilotVerdict.NOT_ASKED: "the pilot, which asks by itself",
    PilotVerdict.FULL: "time, as its jobs end",
    PilotVerdict.WOULD_GET: "nobody need do anything",
    PilotVerdict.NOTHING_WAITS: "users, by submitting jobs",
    PilotVerdict.LIMITED: "time, as limits get room",
    PilotVerdict.NOTHING_FITS: "users, by asking for less or something else; or who configures the site",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotFacts:
    """What is stored of a pilot: its row, and the keys of the jobs that it has."""

    row: PilotRow
    running: tuple[TaskQueueKey, ...]

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self.row.state in PILOT_ENDED

    @property
    def standing(self) -> str:
        """Where it is in its life, in words."""
        if self.ended:
            return "ended"
        if self.row.drain:
            return "draining"
        if self.row.state is not PilotState.RUNNING:
            return "on its way"
        return "busy" if self.running else "idle"

    @property
    def used(self) -> list[tuple[int, int]]:
        """(cores, memory_mb) that each of its jobs was promised."""
        return [(key.cores, key.memory_mb) for key in self.running]


def read_pilot(db: Reader, name: str) -> PilotFacts:
    """A pilot by its number or its stamp. Raises NotFound."""
    is_id = name.isascii() and name.isdigit() and len(name) <= LONGEST_ID
    values = db.execute(BY_ID, (int(name),)).fetchone() if is_id else None
    values = values or db.execute(BY_STAMP, (name,)).fetchone()
    if values is None:
        raise NotFound(f"There is no pilot {name[:100]}.", hint="See: lode pilot ls --all.", pilot=name[:100])
    row = pilots.row_of(values)
    return PilotFacts(row=row, running=tuple(key_from_json(key) for (key,) in db.execute(RUNNING, (row.id,))))


def judge_pilot(facts: PilotFacts, now: PilotNow | None) -> PilotVerdict:
    """The verdict. `now` is None for a pilot that has ended."""
    if facts.ended or now is None:
        return PilotVerdict.ENDED
    if facts.row.drain:
        return PilotVerdict.DRAINING
    if now.whole.cores < 1:
        return PilotVerdict.SHUT_OUT
    if not now.joined or (now.asked is None and now.waits_since is None and not facts.running):
        return PilotVerdict.NOT_ASKED
    if now.request.cores < 1:
        return PilotVerdict.FULL
    if now.chances.eligible:
        return PilotVerdict.WOULD_GET
    if now.chances.blocked:
        return PilotVerdict.LIMITED
    return PilotVerdict.NOTHING_FITS if now.chances.of_vo else PilotVerdict.NOTHING_WAITS
