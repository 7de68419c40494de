"""The server's verifier (JSV): submissions go through the six steps on threads, one for each of its processes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from weakref import WeakValueDictionary

from lodesman.base.errors import InvalidConfig, InvalidJob, TooOften, Unavailable
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.jobclass import Classes
from lodesman.server.jsv import JsvOutcome, JsvPool, Parameters, server_script
from lodesman.server.jsv.chain import asker
from lodesman.server.writer.resolving import Resolver
from lodesman.wire.jsv import JsvSection, VerifyBody, VerifyResult

log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1_000
_MOST_OF_ONE: Final = 100
# Beside one for each process of the script: a user fills as many as that, and others need some, too.
_SPARE_THREADS: Final = 16


class JsvRoom:
    """The script of one configuration. Raises InvalidConfig."""

    def __init__(self, section: JsvSection) -> None:
        script = server_script(section)
        if script is None:
            raise InvalidConfig("There is no JSV.")
        self.section = section
        self._url, settings = script
        self._pool = JsvPool(self._url, settings, workers=section.workers)
        self.threads = ThreadPoolExecutor(section.workers + _SPARE_THREADS, thread_name_prefix="jsv")

    def verified(self, body: VerifyBody, classes: PreparedClasses) -> list[VerifyResult]:
        """What becomes of each description. Raises what refuses any of them: then all are refused."""
        group = body.submission.group or next(iter(body.groups), "")
        resolver = Resolver(
            classes,
            body.user,
            body.groups,
            jsv=self._url.path,
            ask=asker(self._ask, user=body.user, group=group),
        )
        return resolver.resolve_all(body.submission)

    def _ask(self, parameters: Parameters) -> JsvOutcome:
        try:
            outcome = self._pool.verify(parameters)
        except InvalidJob as wrong:
            wrong.message = f'JSV "{self._url.path}": {wrong.message}'
            raise
        extra = {"user": parameters.user, "jsv": self._url.path}
        for line in outcome.log:
            log.log(_LEVELS[line.level], "JSV: %s", line.text, extra=extra)
        for note in outcome.notes:
            log.warning("%s", note, extra=extra)
        return outcome

    def close(self) -> None:
        """Finish what was begun, then let the processes leave."""
        self.threads.shutdown()
        self._pool.close()


_LEVELS: Final = {"INFO": logging.INFO, "WARNING": logging.WARNING, "ERROR": logging.ERROR}


class Verifier:
    """The room of the configured script, and the job classes as of the last submission, which `load` reads. Belongs to the
    event loop.
    """

    def __init__(self, load: Callable[[], Awaitable[Classes]]) -> None:
        self._load = load
        self._loading = asyncio.Lock()
        self._known: tuple[tuple[int, int], PreparedClasses] | None = None
        self._configurations = 0
        self._room: JsvRoom | None = None
        self._changing = threading.Lock()  # of the room
        self._waiting = Counter[str]()
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Semaphore] = WeakValueDictionary()

    async def verified(self, body: VerifyBody) -> list[VerifyResult]:
        """What becomes of each description. No user has more at once than the script has processes. Raises what refuses it;
        TooOften and Unavailable when too many wait.
        """
        self._check_room(body.user)
        self._waiting[body.user] += 1
        try:
            workers = body.jsv.workers
            async with self._turns.setdefault((body.user, workers), asyncio.Semaphore(workers)):
                classes = await self._classes(body.classes)
                with self._changing:
                    room = self._room_of(body.jsv)
                    begun = room.threads.submit(room.verified, body, classes)
                return await asyncio.wrap_future(begun)
        finally:
            self._waiting -= Counter([body.user])

    def _check_room(self, user: str) -> None:
        if self._waiting[user] >= _MOST_OF_ONE:
            words = f"You have {_MOST_OF_ONE} submissions, dry runs and plans that wait for the JSV of the server."
            raise TooOften(
                words, hint="Try again when some of them are answered, or submit many jobs at once."
            )
        if self._waiting.total() >= _MOST_WAITING:
            words = f"{_MOST_WAITING:,} submissions wait for the JSV of the server."
            raise Unavailable(words, hint="Try again in a moment.")

    async def _classes(self, version: int | None) -> PreparedClasses:
        if version is None:
            return PreparedClasses(await self._load())
        async with self._loading:
            version_now = version, self._configurations
            if self._known is None or self._known[0] != version_now:
                self._known = version_now, PreparedClasses(await self._load())
            return self._known[1]

    def configured(self, section: JsvSection) -> None:
        """Take in another configuration. Any thread may call this."""
        with self._changing:
            self._configurations += 1
            if not section.is_set:
                self._use(None)

    def _use(self, room: JsvRoom | None) -> None:
        old, self._room = self._room, room
        if old is not None:
            threading.Thread(target=old.close, name="jsv ends").start()

    def _room_of(self, section: JsvSection) -> JsvRoom:
        """Raises InvalidJob while the script cannot be run."""
        if self._room is None or self._room.section != section:
            try:
                new = JsvRoom(section)
            except InvalidConfig as fault:
                raise InvalidJob(f"Unable to run job: {fault.message}", hint=fault.hint) from None
            self._use(new)
            return new
        return self._room

    def close(self) -> None:
        """Let the processes leave."""
        if self._room is not None:
            self._room.close()
