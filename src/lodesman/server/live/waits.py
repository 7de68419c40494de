"""Counts of jobs that clients wait for, shared by all who wait for the same (ADR 0065).

They begin with a snapshot, which says its commit; without clients the journal keeps no changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET

from lodesman.base.errors import InvalidRequest, TooOften, Unavailable
from lodesman.languages.jobs.watches import CommitMoves, JobMove, JobWatch, JobWatches
from lodesman.server.live.readers import ReaderBeside
from lodesman.server.store import Database, Reader
from lodesman.server.store.journal import Change, Command, Journal
from lodesman.server.store.read.job_ends import count_states, ended_jobs, first_failed, visible_parts
from lodesman.server.store.read.jobs import has_submission, was_given_out
from lodesman.server.store.readers import ReadsAs, shared_with
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.missing_jobs import no_longer_known, unseen_jobs
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import EndedJob, JobStates, StateChanged, StreamEnded

# Gets the events of changes, None if some were left out.
Push = Callable[[list[bytes] | None], None]

# Counts that no client asked for since are forgotten.
_IDLE_SECONDS: Final = 120.0
_MOST_PARTS: Final = 10_000
_MOST_PARTS_IN_ALL: Final = 200_000
_MOST_PARTS_OF_ONE: Final = 50_000


class WaitLimits(msgspec.Struct, frozen=True):
    """How many requests may wait at once, streams of events among them."""

    waits: int = 500
    waits_in_all: int = 2_000
    streams: int = 50
    streams_in_all: int = 200


class Ends(msgspec.Struct, frozen=True):
    """How jobs ended."""

    failed: EndedJob | None  # the one with the lowest id
    jobs: list[EndedJob]  # the first ones


@dataclass(slots=True, eq=False)
class _Followers:
    # By whether they wait for the first, whether Held ones count, and how many of these the client knows.
    waiters: dict[tuple[bool, bool, int], set[asyncio.Future[None]]] = field(default_factory=dict)
    streams: set[Push] = field(default_factory=set)
    ends: dict[int, Ends] = field(default_factory=dict)
    ends_of: int = -1
    reading: asyncio.Task[None] | None = None
    used: float = 0.0
    users: int = 0


class Waits:
    """Belongs to the event loop."""

    def __init__(self, journal: Journal, database: Database, command: Callable[[Command[Any]], Any]) -> None:
        self.limits = WaitLimits()
        self.followed = JobWatches()
        # To count a million jobs takes a while: who asks about few does not wait for that.
        self._looking, self._counting = ReaderBeside(database.reader()), ReaderBeside(database.reader())
        self._journal = journal
        self._command = command
        self._beginning = asyncio.Lock()
        # Whether all batches from now on keep their changes.
        self._follows = False
        self._of: dict[JobWatch, _Followers] = {}
        self._waits, self._streams, self._parts = Counter[str](), Counter[str](), Counter[str]()
        self._sweep: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Its connections."""
        return self._looking.db, self._counting.db

    # --- limits ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def place(self, name: str, *, stream: bool = False) -> Iterator[None]:
        """Around a request that waits. Raises TooOften, Unavailable."""
        if self.closed:
            raise ending()
        limits = self.limits
        _check_room(self._waits, name, limits.waits, limits.waits_in_all, "requests that wait for jobs")
        if stream:
            _check_room(self._streams, name, limits.streams, limits.streams_in_all, "streams of events")
        counters = (self._waits, self._streams) if stream else (self._waits,)
        for counter in counters:
            counter[name] += 1
        try:
            yield
        finally:
            for counter in counters:
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]

    # --- counts ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def using(self, watch: JobWatch, name: str) -> Iterator[None]:
        """Around a request: the watch stays as long. Raises TooOften."""
        of, parts = self._of[watch], len(watch.ranges)
        if self._parts[name] + parts > _MOST_PARTS_OF_ONE:
            raise _too_many(_MOST_PARTS_OF_ONE, "jobs and ranges that requests wait for")
        self._parts[name] += parts
        of.users += 1
        try:
            yield
        finally:
            of.users -= 1
            self._parts[name] -= parts
            if not self._parts[name]:
                del self._parts[name]
            of.used = asyncio.get_running_loop().time()

    async def watch(
        self, ranges: tuple[range, ...], may: Callable[[str, str, str], bool], reads: ReadsAs
    ) -> JobWatch:
        """Of the jobs that the caller may see. Raises NotFound if a range has none, InvalidRequest for too many."""
        parts = tuple(await self._looking.read(_parts_seen, ranges, may, reads))
        watch = self.followed.watches.get(parts) or self._new(parts)
        of = self._of[watch]
        of.users += 1
        try:
            await self._follow()
            await self.settled(watch)
        finally:
            of.users -= 1
            of.used = asyncio.get_running_loop().time()
        if watch.unknown == watch.size:
            raise no_longer_known(parts[0][0], parts[-1][-1])
        return watch

    async def ends(self, watch: JobWatch, limit: int) -> Ends:
        """How its jobs ended, read once for each version."""
        of = self._of[watch]
        if of.ends_of != watch.version:
            of.ends_of, of.ends = watch.version, {}
        if limit not in of.ends:
            version = watch.version
            failed = watch.states[JobState.FAILED] > 0
            ends = await self._counting.read(_read_ends, watch.ranges, limit, failed=failed)
            if version != watch.version:
                return ends
            of.ends[limit] = ends
        return of.ends[limit]

    def _new(self, parts: tuple[range, ...]) -> JobWatch:
        """Raises Unavailable if there are too many."""
        if len(parts) + self.followed.ranges > _MOST_PARTS_IN_ALL:
            self._forget_unused(0.0)
        if len(parts) + self.followed.ranges > _MOST_PARTS_IN_ALL:
            raise Unavailable("Too many different jobs are waited for.", hint="Try again in a moment.")
        watch = JobWatch(parts)
        self.followed.add(watch)
        self._of[watch] = _Followers()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._forget_idle)
        return watch

    async def _follow(self) -> None:
        """A batch that had begun before is in the snapshot."""
        async with self._beginning:
            if not self._follows:
                self._journal.follows = True
                await self._command(Change(_nothing))
                self._follows = True

    async def settled(self, watch: JobWatch) -> None:
        """Wait until the counts are of now. Raises as the reader."""
        while watch.doubtful or self._of[watch].reading is not None:
            self._count(watch)
            task = self._of[watch].reading
            if task is not None:
                await asyncio.shield(task)

    def _count(self, watch: JobWatch) -> None:
        of = self._of[watch]
        if of.reading is None:
            watch.read_anew()
            of.reading = asyncio.ensure_future(self._take(watch, of))
            # Who waits for the counts gets the fault; it may be that none does.
            of.reading.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _take(self, watch: JobWatch, of: _Followers) -> None:
        try:
            counts = await self._counting.read(count_states, watch.ranges)
        finally:
            of.reading = None
        watch.take_snapshot(counts)
        for push in of.streams:
            push(None)
        self._look(watch, of)

    # --- changes --------------------------------------------------------------------------------------------------------

    def moved(self, commit: CommitMoves) -> None:
        """Take a commit's changes, in the order of commits."""
        for watch, moves in self.followed.apply_moves(commit.batch, commit.moves).items():
            of = self._of[watch]
            if of.streams:
                events = None if watch.doubtful else _events(watch, moves)
                for push in of.streams:
                    push(events)
            if watch.doubtful and of.waiters:
                self._count(watch)
            else:
                self._look(watch, of)

    def _look(self, watch: JobWatch, of: _Followers) -> None:
        for key in list(of.waiters):
            first, held_too, known_held = key
            if watch.held > known_held or watch.is_over(first=first, held=held_too):
                _wake(of.waiters.pop(key))

    async def until(self, watch: JobWatch, *, first: bool, held: bool, seconds: float) -> None:
        """Until all have ended (the `first`; or are Held), one more is Held, time is over, or the server ends."""
        of, key = self._of[watch], (first, held, watch.held)
        if self.closed or watch.is_over(first=first, held=held) or seconds <= 0:
            return
        waiter = asyncio.get_running_loop().create_future()
        of.waiters.setdefault(key, set()).add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=seconds)
        finally:
            waiting = of.waiters.get(key, set())
            waiting.discard(waiter)
            if not waiting:
                of.waiters.pop(key, None)

    @contextmanager
    def streaming(self, watch: JobWatch, push: Push) -> Iterator[None]:
        """`push` gets the changes, and nothing at the end of the server."""
        self._of[watch].streams.add(push)
        try:
            yield
        finally:
            self._of[watch].streams.discard(push)

    # --- ends -----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The server ends."""
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        for of in self._of.values():
            for waiters in of.waiters.values():
                _wake(waiters)
            for push in of.streams:
                push([])

    def _forget_unused(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        for watch, of in list(self._of.items()):
            if not of.users and of.reading is None and now - of.used >= seconds:
                self._forget(watch)

    def _forget_idle(self) -> None:
        self._forget_unused(_IDLE_SECONDS)
        again = bool(self._of)
        self._sweep = (
            asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._forget_idle) if again else None
        )

    def _forget(self, watch: JobWatch) -> None:
        self.followed.drop(watch)
        del self._of[watch]
        if not self._of:
            self._journal.follows = self._follows = False


def _wake(waiters: Iterable[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _nothing(_tx: Transaction) -> None:
    """A commit."""


def event(name: str, data: JobStates | StateChanged | StreamEnded) -> bytes:
    """A server-sent event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))


def _events(watch: JobWatch, moves: Sequence[JobMove]) -> list[bytes]:
    return [
        event("change", StateChanged(part[0], part[-1], move.old, move.new, **_details(move.data or {})))
        for move in moves
        for part in watch.parts(move.first, move.last)
    ]


def _details(data: dict[str, Any]) -> dict[str, Any]:
    return {"cause": data.get("cause") or UNSET, "exit_code": data.get("exit_code", UNSET)}


def ending() -> Unavailable:
    """The refusal at the end of the server."""
    return Unavailable("The server is shutting down.", hint="Ask again when it is back.")


def _check_room(counts: Counter[str], name: str, most: int, in_all: int, what: str) -> None:
    """Raises TooOften."""
    if counts[name] >= most:
        raise _too_many(most, what)
    if counts.total() >= in_all:
        raise TooOften(f"There are {in_all:,} {what}, of all users together.", hint="Try again later.")


def _too_many(most: int, what: str) -> TooOften:
    return TooOften(
        f"You have {most:,} {what} already.", hint="End some of them, or wait for more jobs with one."
    )


def _parts_seen(
    db: Reader, ranges: Sequence[range], may: Callable[[str, str, str], bool], reads: ReadsAs
) -> list[range]:
    """Raises NotFound, InvalidRequest."""
    ranges_seen = visible_parts(db, ranges, may, shared_with(db, reads))
    parts = [part for _, seen in ranges_seen for part in seen]
    missing = [ids for ids, seen in ranges_seen if not seen]
    for ids in missing:
        first, last = ids[0], ids[-1]
        purged = was_given_out(db, last) and not has_submission(db, first, last)
        if not purged:
            raise unseen_jobs(first, last)
    if len(parts) > _MOST_PARTS:
        words = f"Jobs of others lie between these: they are more than {_MOST_PARTS:,} separate ranges"
        raise InvalidRequest(f"{words}.", hint="Wait for fewer jobs.")
    # Of those that were purged it is known that they ended.
    return sorted([*parts, *missing], key=lambda ids: ids.start)


def _read_ends(db: Reader, ranges: Sequence[range], limit: int, *, failed: bool) -> Ends:
    return Ends(first_failed(db, ranges) if failed else None, ended_jobs(db, ranges, limit + 1))
