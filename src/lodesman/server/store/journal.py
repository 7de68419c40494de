"""The one door for every change: a writer thread with group commit (docs/architecture.md).

A failed batch is rolled back and replayed in halves until the faulty command stands alone. Refusing after a change,
and a wrong number of changed rows, are faults, too. If the writer ends, `died` restarts the server; without its
database it ends for good, with `fault`.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from lodesman.base.errors import LodesmanError, ServerFault, Unavailable
from lodesman.languages.jobs.watches import CommitMoves
from lodesman.server.store.database import CommitInDoubt, DatabaseGone, Writer
from lodesman.server.store.statement import ONE
from lodesman.server.store.transaction import Answer, Transaction

STATE = "SELECT epoch, batch FROM leadership"


def was_committed(db: Writer, epoch: int, batch: int, wait: Callable[[Unavailable], None]) -> bool:
    """Whether a batch is stored; asks until the database answers, with `wait` in between. Raises DatabaseGone if
    another server has begun.
    """
    while True:
        try:
            db.begin()
            now, stored = db.only(STATE)
            db.roll_back()
        except DatabaseGone:
            raise
        except Unavailable as away:
            wait(away)
            continue
        if now != epoch:
            raise DatabaseGone("Another server took over this database.", hint="Stop one of the two.")
        return bool(stored >= batch)


log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

MAX_BATCH = 512
_IDLE_SECONDS = 1.0
_FENCE = "UPDATE leadership SET batch = batch + 1 WHERE epoch = ?"
_NEXT_EPOCH = "UPDATE leadership SET epoch = epoch + 1"


class RefusedTooLate(Exception):
    """A command was refused after it changed something."""


class Command(Protocol[R_co]):
    """A change. `brief = True` promises well under a millisecond: answers may wait for it."""

    def apply(self, tx: Transaction) -> R_co:
        """On the writer's thread. Raises LodesmanError to refuse."""


# Returned by a command that will be answered later (a long poll).
PARKED: Final = object()


class Change(Generic[P, R]):
    """A command that calls one function with these values."""

    def __init__(
        self, change: Callable[Concatenate[Transaction, P], R], *values: P.args, **named: P.kwargs
    ) -> None:
        self.change, self.values, self.named = change, values, named

    def apply(self, tx: Transaction) -> R:
        """Call the function."""
        return self.change(tx, *self.values, **self.named)


class Journal:
    """The writer thread. `post` is thread-safe; answers come on the writer's thread."""

    def __init__(
        self,
        writer: Writer,
        *,
        clock: Callable[[], float] = time.time,
        deliver: Callable[[list[tuple[Answer, Any]]], None] | None = None,
        at_end: Callable[[Transaction], None] | None = None,
        died: Callable[[], None] | None = None,
        moved: Answer | None = None,
    ) -> None:
        """`deliver` gets (answer callable, result or refusal) of a batch after its commit; `at_end` the transaction
        after a batch's commands. `died` is called on the writer's thread if it ends other than by `close`. `moved`:
        delivered with CommitMoves while `follows`.
        """
        self._writer = writer
        self._clock = clock
        self._deliver = deliver or _deliver_here
        self._at_end = at_end
        self._died = died
        self._moved = moved
        # Set by any thread: whether new batches keep the state changes of jobs.
        self.follows = False
        self._queue: queue.SimpleQueue[tuple[Command[Any], Answer] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        # Of this server and its last commit; they say after a lost connection what was stored.
        self._epoch = self._batch = 0
        self._closed = False
        # Why it ended, if a restart would not help.
        self.fault: DatabaseGone | None = None
        # Why the database did not store the last change; '' once it stores one.
        self.trouble = ""
        self._held: list[tuple[Answer, Any]] = []
        self.commits = 0
        self.commands = 0
        # How many commands were rolled back because of a bug or damaged data.
        self.faults = 0

    def start(self) -> None:
        """Begin a new epoch."""
        with self._writer:
            ONE.check(_NEXT_EPOCH, self._writer.change(_NEXT_EPOCH))
        self._epoch, self._batch = self._writer.only(STATE)
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether it takes commands."""
        return not self._closed

    def post(self, command: Command[Any], answer: Answer) -> None:
        """Queue a command. Raises Unavailable once closed."""
        if self._closed:
            raise self._ending()
        self._queue.put((command, answer))

    def call(self, command: Command[R], wait_seconds: float = 60.0) -> R:
        """Post and wait; for threads, not for the event loop."""
        done: Future[Any] = Future()
        self.post(command, done.set_result)
        try:
            result = done.result(wait_seconds)
        except TimeoutError:
            raise Unavailable("The database did not answer in time.") from None
        if isinstance(result, Exception):
            raise result
        return cast("R", result)

    def close(self) -> None:
        """Apply what waits and end the thread."""
        self._closed = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        more = True
        batch: list[tuple[Command[Any], Answer]] = []
        try:
            while more:
                batch = []
                batch, more = self._collect(self._take())
                self._writer.check()
                if batch:
                    self._apply(batch)
        except DatabaseGone as gone:
            self.fault = gone
            log.critical("the writer ended; the server ends: %s", gone)
            self._end(batch)
        except BaseException:
            log.critical("the writer ended; the server ends and is started again", exc_info=True)
            self._end(batch)
        finally:
            self._closed = True

    def _take(self) -> tuple[Command[Any], Answer] | None:
        while True:
            try:
                return self._queue.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                self._writer.check()

    def _ending(self) -> Unavailable:
        if self.fault is not None:
            return Unavailable(self.fault.message, hint="Nothing is stored any more; the server ends.")
        return Unavailable("The server is shutting down.")

    def _end(self, batch: list[tuple[Command[Any], Answer]]) -> None:
        self._closed = True
        waiting = [answer for _, answer in batch]
        while not self._queue.empty():
            item = self._queue.get_nowait()
            waiting += [item[1]] if item is not None else []
        held, self._held = self._held, []
        _surely(self._deliver, [*held, *((answer, self._ending()) for answer in waiting)])
        if self._died is not None:
            _surely(self._died)

    def _collect(self, first: Any) -> tuple[list[tuple[Command[Any], Answer]], bool]:
        batch: list[tuple[Command[Any], Answer]] = []
        item = first
        while item is not None:
            batch.append(item)
            if len(batch) >= MAX_BATCH or self._queue.empty():
                return batch, True
            item = self._queue.get_nowait()
        return batch, False

    def _apply(self, batch: list[tuple[Command[Any], Answer]]) -> None:
        tx = Transaction(self._writer, self._clock(), follows=self.follows)
        try:
            self._writer.begin()
        except DatabaseGone:
            raise
        except Unavailable as locked:
            self.trouble = str(locked)
            log.warning("the writer waits in vain: %s", locked)
            self._held += [(answer, locked) for _, answer in batch]
            self._release()
            return
        try:
            out = self._attempt(tx, batch)
        except Exception as fault:
            self._writer.roll_back()
            tx.roll_back_memory()
            if isinstance(fault, DatabaseGone):
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                self._apply(batch[:middle])
                self._apply(batch[middle:])
                return
            command, answer = batch[0]
            name = command.change.__name__ if isinstance(command, Change) else type(command).__name__
            refusal = self._refusal(fault)
            if isinstance(refusal, ServerFault) or "fault" in refusal.data:
                log.exception("a command failed in the database", extra={"command": name})
                self.faults += 1
            else:
                log.warning("a change is refused: %s", refusal, extra={"command": name})
            out = [(answer, refusal)]
        self._held += out
        if self._queue.empty():
            self._release()

    def _refusal(self, fault: Exception) -> LodesmanError:
        if isinstance(fault, LodesmanError):
            return fault
        refusal = self._writer.refusal_of(fault)
        if refusal is not None:
            self.trouble = str(refusal)
            return refusal
        words = "The server failed to make this change; nothing was stored. Its log says why."
        return ServerFault(words, fault=type(fault).__name__)

    def _release(self) -> None:
        """Hand over answers of committed batches once no commands wait: waking the event loop earlier delays the
        next batch.
        """
        if self._held:
            held, self._held = self._held, []
            _surely(self._deliver, held)

    def _attempt(self, tx: Transaction, batch: list[tuple[Command[Any], Answer]]) -> list[tuple[Answer, Any]]:
        out: list[tuple[Answer, Any]] = []
        for command, answer in batch:
            if not getattr(command, "brief", False):
                self._release()
            before = tx.changed + len(tx.undo)
            try:
                result = command.apply(tx)
            except LodesmanError as refused:
                if tx.changed + len(tx.undo) != before:
                    raise RefusedTooLate(str(refused)) from refused
                result = refused
            if result is not PARKED:
                out.append((answer, result))
        if self._at_end is not None:
            self._at_end(tx)
        tx.flush()
        if self._writer.change(_FENCE, (self._epoch,)) != 1:
            raise DatabaseGone("Another server took over this database.", hint="Stop one of the two.")
        self._release()
        self._commit()
        self.trouble = ""
        for step in tx.afterwards:
            _surely(step)
        self.commits += 1
        self.commands += len(batch)
        out.extend(tx.answers)
        if tx.moves and self._moved is not None:
            out.append((self._moved, CommitMoves(self._batch, tx.moves)))
        return out

    def _commit(self) -> None:
        try:
            self._writer.commit()
        except CommitInDoubt:
            if not was_committed(self._writer, self._epoch, self._batch + 1, self._refuse_next):
                raise
        self._batch += 1

    def _refuse_next(self, away: Unavailable) -> None:
        self.trouble = str(away)
        with suppress(queue.Empty):
            item = self._queue.get(timeout=_IDLE_SECONDS)
            if item is None:
                words = "The database is away; whether the last changes are stored is not known."
                raise DatabaseGone(words, hint=away.hint)
            _surely(self._deliver, [(item[1], away)])


def _surely(step: Callable[..., object], *values: object) -> None:
    """A bug here is logged, and undoes nothing."""
    try:
        step(*values)
    except Exception:
        log.exception("a step after a commit failed")


def _deliver_here(answers: list[tuple[Answer, Any]]) -> None:
    for answer, result in answers:
        answer(result)
