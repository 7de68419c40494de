"""The reconciler's eyes: in the background process, on a read connection, a little at a time.

A pass looks at every job and every counter once. What it doubts the writer looks at again by key (`upkeep.Reconcile`),
so that claims never wait for it, whatever is kept.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from lodesman.answers import calls
from lodesman.answers.call import Nothing, Post
from lodesman.answers.service import Doubts
from lodesman.store import doubts
from lodesman.store.engine import Reader

log = logging.getLogger(__name__)

PASS_SECONDS = 300.0
JOBS_AT_ONCE = 20_000
QUEUES_AT_ONCE = 500
# In one command: the writer takes a fraction of a millisecond for each.
DOUBTS_AT_ONCE = 100


@dataclass(slots=True)
class Reconciler:
    """`tick` works for at most `work_seconds` and goes on at the next one. `mended` counts what was, by fault."""

    db: Reader
    post: Post
    pass_seconds: float = PASS_SECONDS
    work_seconds: float = 0.05
    ticker: Callable[[], float] = time.monotonic
    mended: Counter[str] = field(default_factory=Counter)
    _work: Iterator[Doubts] | None = None
    _due: float | None = None

    def tick(self) -> None:
        """Work a little, if a pass is due: the first one is at once."""
        at = self.ticker()
        if self._work is None and (self._due is None or at >= self._due):
            self._work = look(self.db)
        if self._work is None:
            return
        # Should a step fail, the next pass finds again what this one left.
        work, self._work, self._due = self._work, None, at + self.pass_seconds
        for found in work:
            if found.jobs or found.queues:
                self._mend(found)
            if self.ticker() - at >= self.work_seconds:
                self._work = work
                return
        self.post(calls.FORGET_IDLE, Nothing())

    def _mend(self, found: Doubts) -> None:
        mended = msgspec.structs.asdict(self.post(calls.RECONCILE, found))
        self.mended.update(mended)
        if any(mended.values()):
            log.error("the reconciler mended what was wrong", extra=mended)


def look(db: Reader) -> Iterator[Doubts]:
    """One pass, a portion a step."""
    done = 0
    while (last := doubts.last_job(db, done, JOBS_AT_ONCE)) is not None:
        while len(found := doubts.doubtful_jobs(db, (done, last), DOUBTS_AT_ONCE)) == DOUBTS_AT_ONCE:
            yield Doubts(jobs=found)
            done = found[-1]
        yield Doubts(jobs=found)
        done = last
    done = 0
    while (last := doubts.last_queue(db, done, QUEUES_AT_ONCE)) is not None:
        wrong = doubts.doubtful_queues(db, (done, last))
        for begun in range(0, max(1, len(wrong)), DOUBTS_AT_ONCE):
            yield Doubts(queues=wrong[begun : begun + DOUBTS_AT_ONCE])
        done = last


def all_doubts(db: Reader) -> Doubts:
    """Everything that one pass doubts, together."""
    found = list(look(db))
    return Doubts(
        jobs=[n for one in found for n in one.jobs], queues=[n for one in found for n in one.queues]
    )
