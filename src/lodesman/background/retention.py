"""Retention: jobs that ended long ago are forgotten, step by step, with all that only they needed.

Runs in the background process. It finds what is old on a read connection, and lets the writer delete it in portions
that take milliseconds each; files go after the commit. It may be killed at any moment: what it had not done it finds
again, files without rows too.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.service import Forgotten, Old, Untidy
from lodesman.background.shelf_sweep import sweep_shelf
from lodesman.commands.forget import portions
from lodesman.commands.sandboxes import Shelf
from lodesman.commands.tidy import look_for_untidy
from lodesman.store import inputs, old
from lodesman.store.engine import Reader

log = logging.getLogger(__name__)

DAY = 86_400.0
MOST_PASS_SECONDS = 3_600.0
# The first pass does not come at once: a clock that is wrong after a start has some time to be set.
MOST_WAIT_SECONDS = 600.0
SWEEP_SECONDS = DAY
# A client may need so long between asking for a file and submitting the job that names it.
GRACE_SECONDS = DAY

SUBMISSIONS_AT_ONCE = 1_000
JOBS_AT_ONCE = 100
BYTES_AT_ONCE = 1 << 20
KEYS_AT_ONCE = 200
SHA = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(slots=True)
class Retention:
    """`tick` works for at most `work_seconds` and goes on at the next one. `keep_days` 0: for ever.

    A pass goes through everything once; passes come every hour, more often if jobs are kept for less than a day.
    """

    db: Reader
    post: Post
    shelf: Shelf
    keep_days: float
    grace_seconds: float = GRACE_SECONDS
    work_seconds: float = 0.1
    ticker: Callable[[], float] = time.monotonic
    done: Counter[str] = field(default_factory=Counter)
    _work: Iterator[None] | None = None
    _due: float | None = None
    _swept: float | None = None

    def tick(self, now: float) -> None:
        """Work a little, if a pass is due. `now` in UNIX seconds; the time between passes is by the ticker."""
        at = self.ticker()
        if self._due is None:
            self._due = at + min(self._interval(), MOST_WAIT_SECONDS)
        if self._work is None and at >= self._due:
            self._work, self.done = self.run(now), Counter()
        if self._work is None:
            return
        # Should a step fail, the next pass finds again what this one left.
        work, self._work, self._due = self._work, None, at + self._interval()
        for _ in work:
            if self.ticker() - at >= self.work_seconds:
                self._work = work
                return
        if self.done:
            log.info("what was old is forgotten", extra=dict(self.done))

    def _interval(self) -> float:
        return min(MOST_PASS_SECONDS, self.keep_days * DAY / 24) if self.keep_days else MOST_PASS_SECONDS

    def run(self, now: float) -> Iterator[None]:
        """One pass, in steps of one command each."""
        if self.keep_days:
            before = now - self.keep_days * DAY
            for span in old.old_submissions(self.db, before, SUBMISSIONS_AT_ONCE):
                yield from self._jobs(span, before)
                yield from self._members(span, before)
                yield from self._templates(span, before)
                yield from self._submissions(span, before)
            for pilots in old.old_pilots(self.db, before, KEYS_AT_ONCE):
                self._forget(Old(before=before, pilots=pilots))
                self._count("pilots", len(pilots))
                yield
            yield from self._queues(before)
        yield from self._inputs(now)
        at = self.ticker()
        if self._swept is None or at - self._swept >= SWEEP_SECONDS:
            self._swept = at
            yield from self._sweep(now)

    def _forget(self, what: Old) -> Forgotten:
        return self.post(calls.FORGET, what)

    def _jobs(self, span: old.Span, before: float) -> Iterator[None]:
        for found in old.old_jobs(self.db, span.jobs, before, KEYS_AT_ONCE):
            for ids in portions(found, most=JOBS_AT_ONCE, weight=BYTES_AT_ONCE):
                gone = self._forget(Old(before=before, jobs=ids)).jobs
                for job_id, attempts in gone:
                    self.shelf.remove_outputs(job_id, attempts)
                self._count("jobs", len(gone))
                yield

    def _members(self, span: old.Span, before: float) -> Iterator[None]:
        """Members that were killed or deleted before anybody took them."""
        while found := old.old_holes(self.db, span, before, KEYS_AT_ONCE):
            self._forget(Old(before=before, holes=found))
            self._count("runs", len(found))
            yield

    def _templates(self, span: old.Span, before: float) -> Iterator[None]:
        for submission, found in old.left_templates(self.db, span):
            for begun in range(0, len(found), KEYS_AT_ONCE):
                self._forget(Old(before=before, templates=found[begun : begun + KEYS_AT_ONCE]))
                yield
            named = {
                sha for (body,) in self.db.execute(inputs.BODIES, (submission,)) for sha in SHA.findall(body)
            }
            unused = [sha for (sha,) in self.db.execute(inputs.NAMED_BY, (submission,)) if sha not in named]
            for begun in range(0, len(unused), KEYS_AT_ONCE):
                self._tidy(Untidy(some=[(submission, unused[begun : begun + KEYS_AT_ONCE])]))
                yield

    def _submissions(self, span: old.Span, before: float) -> Iterator[None]:
        found = old.finished_submissions(self.db, span, before)
        for begun in range(0, len(found), KEYS_AT_ONCE):
            what = Old(before=before, submissions=found[begun : begun + KEYS_AT_ONCE])
            while self._forget(what).more:
                yield
            self._count("submissions", len(what.submissions))
            yield

    def _queues(self, before: float) -> Iterator[None]:
        found = old.old_queues(self.db, before)
        for begun in range(0, len(found), KEYS_AT_ONCE):
            answer = self._forget(Old(before=before, queues=found[begun : begun + KEYS_AT_ONCE]))
            self._count("task_queues", answer.queues)
            yield

    def _inputs(self, now: float) -> Iterator[None]:
        """Input files that no job needs: also if jobs are kept for ever."""
        before = now - self.grace_seconds
        while done := [row[0] for row in self.db.execute(old.WITHOUT_NEED, (KEYS_AT_ONCE,))]:
            self._tidy(Untidy(done=done))
            yield
        for found in look_for_untidy(self.db, before):
            gone = self._tidy(found)
            for owner, sha256 in gone:
                self.shelf.remove_older(self.shelf.input_path(owner, sha256), before)
            self._count("inputs", len(gone))
            yield

    def _tidy(self, found: Untidy) -> list[tuple[str, str]]:
        return self.post(calls.TIDY, found).gone

    def _sweep(self, now: float) -> Iterator[None]:
        for gone in sweep_shelf(self.db, self.shelf, now - self.grace_seconds):
            self._count("lost_files", gone)
            yield

    def _count(self, what: str, number: int) -> None:
        if number:
            self.done[what] += number
