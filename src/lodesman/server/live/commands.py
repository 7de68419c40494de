"""The journal as the event loop uses it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.languages.jobs.watches import CommitMoves
from lodesman.server.store import Writer
from lodesman.server.store.audit import append_entries
from lodesman.server.store.journal import Change, Command, Journal
from lodesman.server.store.transaction import Answer
from lodesman.wire.accounts import AuditNote

_R = TypeVar("_R")
log = logging.getLogger(__name__)


class Commands:
    """Belongs to the event loop."""

    def __init__(
        self, writer: Writer, *, clock: Callable[[], float], moved: Callable[[CommitMoves], None],
        at_end: Callable[[Any], None] | None, died: Callable[[], None] | None,
    ) -> None:  # fmt: skip
        self.journal = Journal(
            writer, clock=clock, deliver=self._deliver, at_end=at_end, died=died, moved=moved
        )
        self._together: list[tuple[Command[Any], Answer]] = []

    def start(self) -> None:
        """Called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self.journal.start()

    async def run(self, command: Command[_R], *, together: bool = False) -> _R:
        """Wait for the answer; `together`: post as `post_together`. Raises LodesmanError."""
        waiter: asyncio.Future[_R] = self._loop.create_future()

        def answer(result: Any) -> None:
            if waiter.done():
                return
            if isinstance(result, Exception):
                waiter.set_exception(result)
            else:
                waiter.set_result(result)

        (self.post_together if together else self.journal.post)(command, answer)
        return await waiter

    def post_together(self, command: Command[Any], answer: Answer) -> None:
        """Share a commit with all that this turn of the loop posts. `answer` may get Unavailable."""
        if not self._together:
            self._loop.call_soon(self.post_all)
        self._together.append((command, answer))

    def post_all(self) -> None:
        """Post what waits for the end of this turn."""
        together, self._together = self._together, []
        try:
            for command, answer in together:
                self.journal.post(command, answer)
        except Unavailable as ending:
            for _, answer in together:
                answer(ending)

    def begin_batch(self, _: object = None) -> None:
        """Let the next batch begin."""
        with suppress(Unavailable):
            self.journal.post(Change(lambda _: None), lambda _: None)

    async def note(self, notes: list[AuditNote]) -> None:
        """Add to the audit trail; a failure stops nothing."""
        if notes:
            with suppress(LodesmanError):
                await self.run(Change(append_entries, notes))

    def _deliver(self, answers: list[tuple[Answer, Any]]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_answer_all, answers)


def _answer_all(answers: list[tuple[Answer, Any]]) -> None:
    for answer, result in answers:
        try:
            answer(result)
        except Exception:  # the other answers of the batch must still arrive
            log.exception("an answer could not be given")
