"""`lode server --check-data`: whether a data folder is whole, before a server starts on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from lodesman.base.errors import counted
from lodesman.server.config import ServerConfig
from lodesman.server.loops.upkeep import find_suspects
from lodesman.server.store import Reader, sandboxes
from lodesman.server.store.accounting import wrong_usage
from lodesman.server.store.incarnation import refuse_new
from lodesman.server.store.shelf import Shelf
from lodesman.wire.nodes import utc
from lodesman.wire.usage import DAY_SECONDS

_NAMED = 10


def check_data(config: ServerConfig) -> list[str]:
    """The faults of pages, counters and files of the data folder, in words.

    Brings the database to the schema of this program, as a start does. Raises Unavailable if there is no usable database,
    Conflict while a server runs on it.
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
    for found in find_suspects(db):
        jobs += found.jobs
        queues += found.queues
        attempts += found.attempts
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
        days = sorted({utc(one.day * DAY_SECONDS)[:10] for one in wrong})
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


def _some(found: Iterable[object]) -> str:
    shown = [str(one) for one in found]
    return ", ".join(shown[:_NAMED]) + (", ..." if len(shown) > _NAMED else "")
