"""Purges jobs that ended long ago, input files that no job needs, and files that no row knows. What a kill leaves
undone is found again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from lodesman.server.loops import Passes, portions
from lodesman.server.loops.left_out import Item, LeftOutItems, StepPass, task_queue
from lodesman.server.store import Reader, sandboxes
from lodesman.server.store.read import upkeep as old
from lodesman.server.store.read.jobs import known_jobs, was_given_out
from lodesman.server.store.read.upkeep import (
    SubmissionSpan,
)
from lodesman.server.store.shelf import Shelf
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.service import PurgeOrder, UnusedInputs

log = logging.getLogger(__name__)

DAY: Final = 86_400.0
_MOST_PASS_SECONDS: Final = 3_600.0
_MOST_WAIT_SECONDS: Final = 600.0  # for the first pass: a wrong clock may be set until then
_GRACE_SECONDS: Final = DAY  # for a client between asking for a file and submitting the job that names it
_PURGED_AT_ONCE = 100
_BYTES_AT_ONCE = 1 << 20
_KEYS_AT_ONCE = 200
_FILES_AT_ONCE = 500
_SUBMISSIONS_AT_ONCE = 1_000
_SHA = re.compile(r"\b[0-9a-f]{64}\b")
_INPUT = re.compile(r"[0-9a-f]{64}")
_OUTPUT = re.compile(r"([0-9]{1,18})\.[0-9]{1,9}\.tar\.gz")


@dataclass(slots=True)
class Retention(Passes):
    """Purges jobs some days after their end, with all that only they needed."""

    db: Reader
    post: Post
    shelf: Shelf
    keep_days: float  # 0: for ever
    work_seconds: float = field(default=0.1, kw_only=True)
    done: Counter[str] = field(default_factory=Counter)  # of the last pass
    left_out: LeftOutItems = field(default_factory=LeftOutItems, kw_only=True)
    _swept: float | None = None

    def tick(self, now: float) -> None:
        """Work a little if a pass is due. `now` in UNIX seconds."""
        days = self.keep_days
        seconds = min(_MOST_PASS_SECONDS, days * DAY / 24) if days else _MOST_PASS_SECONDS
        self.work(partial(self.run, now), seconds, first=min(seconds, _MOST_WAIT_SECONDS))

    def run(self, now: float) -> Iterator[None]:
        """One pass, in steps of one command each."""
        self.done = Counter()
        with self.left_out.step("retention") as left:
            if self.keep_days:
                yield from self._purge_old(now - self.keep_days * DAY, left)
            with left.item("input files"):
                yield from self._inputs(now - _GRACE_SECONDS)
        at = self.ticker()
        if self._swept is None or at - self._swept >= DAY:
            self._swept = at
            for gone in _sweep_shelf(self.db, self.shelf, now - _GRACE_SECONDS):
                self.done["lost_files"] += gone
                yield
        self.done = +self.done  # without what is 0
        if self.done:
            log.info("what was old is purged", extra=dict(self.done))

    def _purge_old(self, before: float, left: StepPass) -> Iterator[None]:
        for span in old.old_submissions(self.db, before, _SUBMISSIONS_AT_ONCE):
            name = Item("submissions", f"{span.first} to {span.last}")
            yield from self._jobs(span, before, left)
            for purge in (self._members, self._templates, self._submissions):
                with left.item(name):
                    yield from purge(span, before)
        for pilots in old.old_pilots(self.db, before, _KEYS_AT_ONCE):
            post = lambda some: self.post(inner_calls.PURGE, PurgeOrder(before=before, pilots=some))  # noqa: E731
            left.in_parts(pilots, post, partial(Item, "pilot"))
            self.done["pilots"] += len(pilots)
            yield
        for part in portions(old.old_queues(self.db, before), _KEYS_AT_ONCE):
            forget = lambda some: self.post(inner_calls.PURGE, PurgeOrder(before=before, queues=some)).queues  # noqa: E731
            self.done["task_queues"] += sum(left.in_parts(part, forget, lambda row: task_queue(row[0])))
            yield
        with left.item("the audit trail"):
            self.post(inner_calls.PURGE, PurgeOrder(before=before))
        yield

    def _jobs(self, span: SubmissionSpan, before: float, left: StepPass) -> Iterator[None]:
        for jobs in old.old_jobs(self.db, span, before, _KEYS_AT_ONCE):
            for ids in _weighed_portions(jobs, most=_PURGED_AT_ONCE, weight=_BYTES_AT_ONCE):
                left.in_parts(ids, partial(self._purge_jobs, before), partial(Item, "job"))
                yield

    def _purge_jobs(self, before: float, ids: list[int]) -> None:
        gone = self.post(inner_calls.PURGE, PurgeOrder(before=before, jobs=ids)).jobs
        self.done["jobs"] += len(gone)
        for job_id, attempts in gone:
            try:
                self.shelf.remove_outputs(job_id, attempts)
            except OSError as fault:  # the daily sweep removes what no job needs
                log.warning("the output of a job cannot be removed: %s", fault, extra={"job": job_id})

    def _members(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        """Members killed or deleted before any pilot took them."""
        while members := old.old_holes(self.db, span, before, _KEYS_AT_ONCE):
            self.post(inner_calls.PURGE, PurgeOrder(before=before, holes=members))
            self.done["runs"] += len(members)
            yield

    def _templates(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        for submission, templates in old.left_templates(self.db, span):
            for part in portions(templates, _KEYS_AT_ONCE):
                self.post(inner_calls.PURGE, PurgeOrder(before=before, templates=part))
                yield
            named = {
                sha
                for body in sandboxes.bodies_of_submission(self.db, submission)
                for sha in _SHA.findall(body)
            }
            unused = [sha for sha in sandboxes.inputs_of_submission(self.db, submission) if sha not in named]
            for some in portions(unused, _KEYS_AT_ONCE):
                self.post(inner_calls.TIDY, UnusedInputs(some=[(submission, some)]))
                yield

    def _submissions(self, span: SubmissionSpan, before: float) -> Iterator[None]:
        for part in portions(old.finished_submissions(self.db, span, before), _KEYS_AT_ONCE):
            while self.post(inner_calls.PURGE, PurgeOrder(before=before, submissions=part)).more:
                yield
            self.done["submissions"] += len(part)
            yield

    def _inputs(self, before: float) -> Iterator[None]:
        """Input files that no job needs, even if jobs are kept for ever. `before`: a time of grace ago."""
        while done := old.submissions_without_need(self.db, _KEYS_AT_ONCE):
            self.post(inner_calls.TIDY, UnusedInputs(done=done))
            yield
        for files in sandboxes.input_files(self.db, _FILES_AT_ONCE):
            unused = _sorted_out(files, before)
            if not (unused.mark or unused.unmark or unused.remove):
                continue
            gone = self.post(inner_calls.TIDY, unused).gone
            for owner, sha256 in gone:
                self.shelf.remove_older(self.shelf.input_path(owner, sha256), before)
            self.done["inputs"] += len(gone)
            yield


def _weighed_portions(items: Iterable[tuple[int, int]], *, most: int, weight: int) -> Iterator[list[int]]:
    """Of (key, weight), at most `most` keys at once, of about `weight` in all."""
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


def _sorted_out(files: Sequence[sandboxes.InputFacts], before: float) -> UnusedInputs:
    unused = UnusedInputs(before=before)
    for file in files:
        if file.is_named:
            wrong = unused.unmark if file.unused_since is not None else None
        elif file.unused_since is None:
            wrong = unused.mark if file.created_at < before else None
        else:
            wrong = unused.remove if file.unused_since < before else None
        if wrong is not None:
            wrong.append((file.owner, file.sha256))
    return unused


# --- files without rows: left by a process that was killed between a commit and the removal of files --------


def _sweep_shelf(db: Reader, shelf: Shelf, before: float) -> Iterator[int]:
    """Remove files that no row knows; yields how many after each portion. Input files and parts of uploads may be
    on their way: only older ones go. A job that is gone never comes back for its output.
    """
    owners = {shelf.input_path(owner, "x").parent.name: owner for owner in sandboxes.owners_of_inputs(db)}
    for folder in _folders(shelf.root / "out"):
        for names in portions(os.listdir(folder), _FILES_AT_ONCE):
            jobs = {name: int(match[1]) for name in names if (match := _OUTPUT.fullmatch(name))}
            kept = known_jobs(db, set(jobs.values()))
            unknown = [name for name, job in jobs.items() if job not in kept]
            for name in unknown:
                (folder / name).unlink(missing_ok=True)
            yield len(unknown) + _remove_parts(shelf, folder, names, before)
        _remove_if_over(db, folder)
    for folder in _folders(shelf.root / "in"):
        for names in portions(os.listdir(folder), _FILES_AT_ONCE):
            files = [name for name in names if _INPUT.fullmatch(name)]
            known_files = sandboxes.known_inputs(db, owners.get(folder.name, ""), files)
            lost = [folder / name for name in files if name not in known_files]
            gone = sum(shelf.remove_older(path, before) for path in lost)
            yield gone + _remove_parts(shelf, folder, names, before)


def _remove_if_over(db: Reader, folder: Path) -> None:
    if not folder.name.isdecimal() or len(folder.name) > 15:
        return
    first, last = int(folder.name) * 1_000, int(folder.name) * 1_000 + 999
    if was_given_out(db, last) and not known_jobs(db, range(first, last + 1)):
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _remove_parts(shelf: Shelf, folder: Path, names: list[str], before: float) -> int:
    """What uploads left that broke off with their process."""
    return sum(shelf.remove_older(folder / name, before) for name in names if name.startswith("."))


def _folders(root: Path) -> list[Path]:
    return [path for path in root.glob("*") if path.is_dir() and not path.is_symlink()]
