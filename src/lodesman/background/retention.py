"""Retention: jobs that ended long ago are purged, step by step, with all that only they needed.

Runs in the background process. It finds what is old on a read connection, and lets the writer delete it in portions
that take milliseconds each; files go after the commit. It may be killed at any moment: what it had not done it finds
again, files without rows too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.service import Old, Purged, UnusedInputs
from lodesman.store import Reader
from lodesman.store.read import upkeep as old
from lodesman.store.read.jobs import is_any_job, known_jobs, was_given_out
from lodesman.store.read.upkeep import SubmissionSpan
from lodesman.store.sandboxes import (
    InputFacts,
    bodies_of_submission,
    input_files,
    inputs_of_submission,
    known_inputs,
    owners_of_inputs,
)
from lodesman.store.shelf import Shelf

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
FILES_AT_ONCE = 500
SHA = re.compile(r"\b[0-9a-f]{64}\b")
INPUT = re.compile(r"[0-9a-f]{64}")
OUTPUT = re.compile(r"([0-9]{1,18})\.[0-9]{1,9}\.tar\.gz")


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
            log.info("what was old is purged", extra=dict(self.done))

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
                self._purge(Old(before=before, pilots=pilots))
                self._count("pilots", len(pilots))
                yield
            yield from self._queues(before)
        yield from self._inputs(now)
        at = self.ticker()
        if self._swept is None or at - self._swept >= SWEEP_SECONDS:
            self._swept = at
            yield from self._sweep(now)

    def _purge(self, what: Old) -> Purged:
        return self.post(calls.PURGE, what)

    def _jobs(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        for found in old.old_jobs(self.db, span, before, KEYS_AT_ONCE):
            for ids in portions(found, most=JOBS_AT_ONCE, weight=BYTES_AT_ONCE):
                gone = self._purge(Old(before=before, jobs=ids)).jobs
                for job_id, attempts in gone:
                    self.shelf.remove_outputs(job_id, attempts)
                self._count("jobs", len(gone))
                yield

    def _members(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        """Members that were killed or deleted before anybody took them."""
        while found := old.old_holes(self.db, span, before, KEYS_AT_ONCE):
            self._purge(Old(before=before, holes=found))
            self._count("runs", len(found))
            yield

    def _templates(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        for submission, found in old.left_templates(self.db, span):
            for begun in range(0, len(found), KEYS_AT_ONCE):
                self._purge(Old(before=before, templates=found[begun : begun + KEYS_AT_ONCE]))
                yield
            named = {sha for body in bodies_of_submission(self.db, submission) for sha in SHA.findall(body)}
            unused = [sha for sha in inputs_of_submission(self.db, submission) if sha not in named]
            for begun in range(0, len(unused), KEYS_AT_ONCE):
                self._tidy(UnusedInputs(some=[(submission, unused[begun : begun + KEYS_AT_ONCE])]))
                yield

    def _submissions(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        found = old.finished_submissions(self.db, span, before)
        for begun in range(0, len(found), KEYS_AT_ONCE):
            what = Old(before=before, submissions=found[begun : begun + KEYS_AT_ONCE])
            while self._purge(what).more:
                yield
            self._count("submissions", len(what.submissions))
            yield

    def _queues(self, before: float) -> Iterator[None]:
        found = old.old_queues(self.db, before)
        for begun in range(0, len(found), KEYS_AT_ONCE):
            answer = self._purge(Old(before=before, queues=found[begun : begun + KEYS_AT_ONCE]))
            self._count("task_queues", answer.queues)
            yield

    def _inputs(self, now: float) -> Iterator[None]:
        """Input files that no job needs: also if jobs are kept for ever."""
        before = now - self.grace_seconds
        while done := old.submissions_without_need(self.db, KEYS_AT_ONCE):
            self._tidy(UnusedInputs(done=done))
            yield
        for files in input_files(self.db, FILES_AT_ONCE):
            found = sorted_out(files, before)
            if not (found.mark or found.unmark or found.remove):
                continue
            gone = self._tidy(found)
            for owner, sha256 in gone:
                self.shelf.remove_older(self.shelf.input_path(owner, sha256), before)
            self._count("inputs", len(gone))
            yield

    def _tidy(self, found: UnusedInputs) -> list[tuple[str, str]]:
        return self.post(calls.TIDY, found).gone

    def _sweep(self, now: float) -> Iterator[None]:
        for gone in sweep_shelf(self.db, self.shelf, now - self.grace_seconds):
            self._count("lost_files", gone)
            yield

    def _count(self, what: str, number: int) -> None:
        if number:
            self.done[what] += number


def portions(items: Iterable[tuple[int, int]], *, most: int, weight: int) -> Iterator[list[int]]:
    """Keys of (key, weight) in portions of at most `most`, and of about that weight in all."""
    portion: list[int] = []
    sum_ = 0
    for key, own in items:
        if portion and (len(portion) >= most or sum_ + own > weight):
            yield portion
            portion, sum_ = [], 0
        portion.append(key)
        sum_ += own
    if portion:
        yield portion


def sorted_out(files: Sequence[InputFacts], before: float) -> UnusedInputs:
    """What is to be done about some input files. `before`: a time of grace ago (UNIX seconds)."""
    found = UnusedInputs(before=before)
    for file in files:
        if file.is_named:
            wrong = found.unmark if file.unused_since is not None else None
        elif file.unused_since is None:
            wrong = found.mark if file.created_at < before else None
        else:
            wrong = found.remove if file.unused_since < before else None
        if wrong is not None:
            wrong.append((file.owner, file.sha256))
    return found


# --- files without rows: left by a process that was killed between a commit and the removal of files --------


def sweep_shelf(db: Reader, shelf: Shelf, before: float) -> Iterator[int]:
    """Remove files that no row knows; yields how many after each portion.

    Input files and parts of uploads only if they are older than that time: they may be on their way. The output of a
    job was stored while the job was known, and a job that is not known any more never is again.
    """
    owners = {shelf.input_path(owner, "x").parent.name: owner for owner in owners_of_inputs(db)}
    for folder in _folders(shelf.root / "out"):
        for names in _portions(folder):
            known = known_jobs(db, {int(found[1]) for name in names if (found := OUTPUT.fullmatch(name))})
            unknown = [n for n in names if (found := OUTPUT.fullmatch(n)) and int(found[1]) not in known]
            for name in unknown:
                (folder / name).unlink(missing_ok=True)
            yield len(unknown) + _remove_parts(shelf, folder, names, before)
        _remove_if_over(db, folder)
    for folder in _folders(shelf.root / "in"):
        for names in _portions(folder):
            files = [name for name in names if INPUT.fullmatch(name)]
            known_files = known_inputs(db, owners.get(folder.name, ""), files)
            lost = [folder / name for name in files if name not in known_files]
            gone = sum(shelf.remove_older(path, before) for path in lost)
            yield gone + _remove_parts(shelf, folder, names, before)


def _remove_if_over(db: Reader, folder: Path) -> None:
    """Remove an empty folder of outputs if none can come any more: all its ids were given out, and no job is left."""
    if not folder.name.isdecimal() or len(folder.name) > 15:
        return
    first, last = int(folder.name) * 1_000, int(folder.name) * 1_000 + 999
    if was_given_out(db, last) and not is_any_job(db, first, last):
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _remove_parts(shelf: Shelf, folder: Path, names: list[str], before: float) -> int:
    """What is left of uploads that broke off with the process that took them."""
    return sum(shelf.remove_older(folder / name, before) for name in names if name.startswith("."))


def _folders(root: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _portions(folder: Path) -> Iterator[list[str]]:
    names = os.listdir(folder)
    for begun in range(0, len(names), FILES_AT_ONCE):
        yield names[begun : begun + FILES_AT_ONCE]
