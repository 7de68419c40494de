"""Finding what may be wrong: in the background process, on a read connection, a little at a time.

A pass reads every job and every counter once. The writer checks the suspects again by key (`upkeep.Reconcile`), so
that claims never wait for it, whatever is kept.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import asdict

from lodesman.answers import calls
from lodesman.answers.call import Nothing, Post
from lodesman.answers.service import Suspects
from lodesman.store import Reader
from lodesman.store.read.upkeep import last_job, last_queue, suspect_jobs, wrong_counts

log = logging.getLogger(__name__)

PASS_SECONDS = 300.0
JOBS_AT_ONCE = 20_000
QUEUES_AT_ONCE = 500
# In one command: the writer takes a fraction of a millisecond for each.
SUSPECTS_AT_ONCE = 100


@dataclass(slots=True)
class Reconciler:
    """`tick` works for at most `work_seconds` and goes on at the next one. `repaired` counts what was, by fault."""

    db: Reader
    post: Post
    pass_seconds: float = PASS_SECONDS
    work_seconds: float = 0.05
    ticker: Callable[[], float] = time.monotonic
    repaired: Counter[str] = field(default_factory=Counter)
    _work: Iterator[Suspects] | None = None
    _due: float | None = None

    def tick(self) -> None:
        """Work a little, if a pass is due: the first one is at once."""
        at = self.ticker()
        if self._work is None and (self._due is None or at >= self._due):
            self._work = find_suspects(self.db)
        if self._work is None:
            return
        # Should a step fail, the next pass finds again what this one left.
        work, self._work, self._due = self._work, None, at + self.pass_seconds
        for found in work:
            if found.jobs or found.queues:
                self._repair(found)
            if self.ticker() - at >= self.work_seconds:
                self._work = work
                return
        self.post(calls.FORGET_IDLE, Nothing())

    def _repair(self, found: Suspects) -> None:
        repaired = asdict(self.post(calls.RECONCILE, found))
        self.repaired.update(repaired)
        if any(repaired.values()):
            log.error("the reconciler repaired what was wrong", extra=repaired)


def find_suspects(db: Reader) -> Iterator[Suspects]:
    """One pass, a portion a step."""
    done = 0
    while (last := last_job(db, done, JOBS_AT_ONCE)) is not None:
        while len(found := suspect_jobs(db, done, last, SUSPECTS_AT_ONCE)) == SUSPECTS_AT_ONCE:
            yield Suspects(jobs=found)
            done = found[-1]
        yield Suspects(jobs=found)
        done = last
    done = 0
    while (last := last_queue(db, done, QUEUES_AT_ONCE)) is not None:
        wrong = [one.tq_id for one in wrong_counts(db, done + 1, last)]
        for begun in range(0, max(1, len(wrong)), SUSPECTS_AT_ONCE):
            yield Suspects(queues=wrong[begun : begun + SUSPECTS_AT_ONCE])
        done = last
