"""What is wrong in the data of a server: the reconciler repairs it, `lode server --check-data` names it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import asdict

from lodesman.base.errors import counted
from lodesman.server.config import ServerConfig
from lodesman.server.loops import Passes, portions
from lodesman.server.loops.left_out import Item, LeftOutItems, StepPass, task_queue
from lodesman.server.store import Reader, sandboxes
from lodesman.server.store.accounting import wrong_usage
from lodesman.server.store.incarnation import refuse_new
from lodesman.server.store.read.upkeep import last_of_portion, stray_attempts, suspect_jobs, wrong_counts
from lodesman.server.store.shelf import Shelf
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing, Post
from lodesman.wire.nodes import utc
from lodesman.wire.service import Suspects
from lodesman.wire.usage import DAY_SECONDS

log = logging.getLogger(__name__)

_RECONCILE_SECONDS: Final = 300.0
_FIRST_SIZES_SECONDS: Final = 3_600.0
_JOBS_AT_ONCE = 20_000
_QUEUES_AT_ONCE = 500
_OUTPUTS_AT_ONCE = 2_000
_SUSPECTS_AT_ONCE = 100  # in one command: the writer takes a fraction of a millisecond for each
_NAMED = 10


@dataclass(slots=True)
class Reconciler(Passes):
    """Reads all jobs and counters; the writer checks suspects again by key."""

    db: Reader
    post: Post
    repaired: Counter[str] = field(default_factory=Counter)  # faults, by kind
    left_out: LeftOutItems = field(default_factory=LeftOutItems, kw_only=True)

    def tick(self) -> None:
        """Work a little if a pass is due; the first one is at once."""
        self.work(self._run, _RECONCILE_SECONDS)

    def _run(self) -> Iterator[None]:
        with self.left_out.step("the reconciler") as left:
            for suspects in find_suspects(self.db):
                self._mend_all(suspects, left)
                yield
            with left.item("limits"):
                self._note(asdict(self.post(inner_calls.CHECK_LIMITS, Nothing())))
            yield
            with left.item("idle pilots"):
                self.post(inner_calls.FORGET_IDLE, Nothing())

    def _mend_all(self, suspects: Suspects, left: StepPass) -> None:
        left.in_parts(suspects.jobs, lambda some: self._mend(Suspects(jobs=some)), partial(Item, "job"))
        left.in_parts(suspects.queues, lambda some: self._mend(Suspects(queues=some)), task_queue)
        left.in_parts(
            suspects.attempts, lambda some: self._mend(Suspects(attempts=some)), partial(Item, "attempt")
        )
        outputs = lambda some: self._mend(Suspects(outputs=some))  # noqa: E731
        left.in_parts(suspects.outputs, outputs, lambda row: Item("attempt", row[0]))
        left.in_parts(
            suspects.usage, lambda some: self._mend(Suspects(usage=some)), lambda row: Item("user", row[0])
        )

    def _mend(self, suspects: Suspects) -> None:
        if suspects != Suspects():
            self._note(asdict(self.post(inner_calls.RECONCILE, suspects)))

    def _note(self, repaired: dict[str, int]) -> None:
        self.repaired.update(repaired)
        if any(repaired.values()):
            log.error("the reconciler repaired what was wrong", extra=repaired)


@dataclass(slots=True)
class SizeProof(Reconciler):
    """Proves once a day what files take, first an hour after the start."""

    shelf: Shelf = field(kw_only=True)

    def tick(self) -> None:
        """Work a little if a pass is due."""
        self.work(self._run, DAY_SECONDS, first=_FIRST_SIZES_SECONDS)

    def _run(self) -> Iterator[None]:
        with self.left_out.step("the sizes of outputs") as left:
            for suspects in find_wrong_sizes(self.db, self.shelf):
                self._mend_all(suspects, left)
                yield


def size_proof(beside: Reconciler, db: Reader, shelf: Shelf) -> SizeProof:
    """One that counts its repairs with another reconciler. `db`: a connection of its own."""
    return SizeProof(db, beside.post, beside.repaired, shelf=shelf, left_out=beside.left_out)


def find_suspects(db: Reader) -> Iterator[Suspects]:
    """One pass, a portion a step."""
    yield Suspects(attempts=stray_attempts(db, _SUSPECTS_AT_ONCE))
    done = 0
    while (last := last_of_portion(db, "job", done, _JOBS_AT_ONCE)) is not None:
        while len(jobs := suspect_jobs(db, done, last, _SUSPECTS_AT_ONCE)) == _SUSPECTS_AT_ONCE:
            yield Suspects(jobs=jobs)
            done = jobs[-1]
        yield Suspects(jobs=jobs)
        done = last
    done = 0
    while (last := last_of_portion(db, "task_queue_count", done, _QUEUES_AT_ONCE)) is not None:
        wrong = [tq_id for tq_id, _, _ in wrong_counts(db, done + 1, last)]
        for part in portions(wrong, _SUSPECTS_AT_ONCE):
            yield Suspects(queues=part)
        yield Suspects()
        done = last


def find_wrong_sizes(db: Reader, shelf: Shelf) -> Iterator[Suspects]:
    """Outputs whose files have another size, and owners whose sums are wrong and did not change. A missing file may
    be back soon, unless it is larger than any can be.
    """
    before, counted, done = sandboxes.usage_by_owner(db), Counter[str](), 0
    while (last := last_of_portion(db, "attempt", done, _OUTPUTS_AT_ONCE)) is not None:
        wrong = []
        for output in sandboxes.outputs_of_portion(db, done, last):
            counted[output.owner] += sandboxes.counted_size(output.size)
            if (
                output.is_file
                and (size := shelf.output_size(output.job_id, output.number, output.size)) != output.size
            ):
                wrong.append((output.attempt_id, output.size, size))
        for part in portions(wrong, _SUSPECTS_AT_ONCE):
            yield Suspects(outputs=part)
        yield Suspects()
        done = last
    inputs = sandboxes.input_sums(db)
    now = {owner: (*inputs.get(owner, (0, 0)), counted[owner]) for owner in before}
    same = {owner for owner, usage in sandboxes.usage_by_owner(db).items() if before.get(owner) == usage}
    for some in portions([owner for owner in same if before[owner] != now[owner]], _SUSPECTS_AT_ONCE):
        yield Suspects(usage=[(owner, before[owner], now[owner]) for owner in some])


# --- lode server --check-data --------------------------------------------------------------------------------


def check_data(config: ServerConfig) -> list[str]:
    """The faults of the data folder in words; migrates the database as a start does.

    Raises Unavailable without a usable database, Conflict while a server runs on it.
    """
    with config.database.usable():
        refuse_new(config.database)
        config.database.reader().close()  # without making one
        db = config.database.writer()
        try:
            # A query on broken pages may say anything.
            return db.broken_parts() or [
                *_counters(db),
                *_usage(db),
                *_files(db, Shelf(config.data / "sandboxes", limit_bytes=0)),
            ]
        finally:
            db.close()


def _counters(db: Reader) -> Iterator[str]:
    jobs, queues, attempts = [], [], []
    for suspects in find_suspects(db):
        jobs += suspects.jobs
        queues += suspects.queues
        attempts += suspects.attempts
    repair = "; the server repairs this by itself when it runs"
    if jobs:
        lacking = f"{counted(len(jobs), 'job')} {'lacks' if len(jobs) == 1 else 'lack'}"
        yield f"{lacking} a task queue or a live attempt ({_some(jobs)}){repair}."
    if attempts:
        words = "that the job does not name, or whose pilot has ended"
        yield f"{counted(len(attempts), 'live attempt')} {words} ({_some(attempts)}){repair}."
    if queues:
        yield f"The counters of {counted(len(queues), 'task queue')} are wrong ({_some(queues)}){repair}."


def _usage(db: Reader) -> Iterator[str]:
    if wrong := wrong_usage(db):
        days = sorted({utc(day.day * DAY_SECONDS)[:10] for day in wrong})
        yield f"The usage of some days is not what their attempts used ({_some(days)})."


def _files(db: Reader, shelf: Shelf) -> Iterator[str]:
    outputs = ((shelf.output_path(job, number), size) for job, number, size in sandboxes.stored_outputs(db))
    inputs = ((shelf.input_path(owner, sha256), size) for owner, sha256, size in sandboxes.stored_inputs(db))
    for kind, files in (("output", outputs), ("input file", inputs)):
        wrong = [path for path, size in files if not _is_whole(path, size)]
        if wrong:
            yield f"Missing or of another size: {counted(len(wrong), kind)} ({_some(wrong)})."


def _is_whole(path: Path, size: int | None) -> bool:
    try:
        return size in (None, path.stat().st_size)
    except FileNotFoundError:
        return False


def _some(items: Iterable[object]) -> str:
    shown = [str(item) for item in items]
    return ", ".join(shown[:_NAMED]) + (", ..." if len(shown) > _NAMED else "")
