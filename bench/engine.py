"""The durable path of a claim without HTTP: journal, index, fronts and database in this process."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from bench.oracle import check_answer, eligible
from bench.stores import database

from lodesman.decide.matching import GroupShare
from lodesman.server.store.journal import Journal
from lodesman.server.store.transaction import Answer
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.writer.claim import Claim
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.order import end_batch
from lodesman.server.writer.sessions import UNLIMITED, FreeResources, PilotSession, load_sessions

WAIT_SECONDS = 600.0
ROOM = FreeResources(64, UNLIMITED, UNLIMITED)


class Engine:
    """A data directory opened as the hot process opens it."""

    def __init__(self, data: Path, *, shares: Mapping[str, GroupShare], seed: int) -> None:
        stored = database(data)
        self._writer = stored.writer()
        self.reader = stored.reader()
        self.live = WriterState(self._writer, rng=random.Random(seed), now=time.time())
        self.live.queues.matcher.lottery.set_shares(shares)
        self.sessions: list[PilotSession] = list(load_sessions(self.reader, now=0.0).values())
        self.journal = Journal(self._writer, deliver=self._deliver, at_end=partial(end_batch, self.live))
        self._serial = 0
        self.latencies: list[float] = []
        self.empty = 0
        self.journal.start()
        self._writer.start_upkeep()

    def close(self) -> None:
        """Write what is left; the threads end."""
        self.journal.close()
        self.reader.close()
        self._writer.close()

    def run(self, claims: int, *, clients: int) -> float:
        """Make `claims` claims of one job each, by clients that each wait for their answer. Returns the seconds.

        The clients claim again on the writer's thread, as soon as they are answered: with one client
        each claim has a commit of its own, with many they share commits. Fills `latencies` and `empty`.
        """
        self.latencies, self.empty = [], 0
        loop = _Loop(self, claims, clients)
        begun = time.perf_counter()
        loop.start()
        loop.finish()
        return time.perf_counter() - begun

    def claim(self, session: PilotSession, answer: Answer) -> Claim:
        """A claim of one job with a token that was never used."""
        self._serial += 1
        return Claim(
            self.live, session=session, free=ROOM, count=1, claim_token=f"bench-{self._serial}", wait=False, answer=answer
        )  # fmt: skip

    def check(self, samples: int, rng: random.Random) -> int:
        """The oracle: claim as some pilots and compare the answers with every task queue. Raises WrongAnswer."""
        for session in rng.sample(self.sessions, min(samples, len(self.sessions))):
            queues = list(self.live.queues.index.queues())
            box: list[list[ClaimedAttempt]] = []
            claim = self.claim(session, box.append)
            allowed = eligible(queues, claim.request)
            found = self.journal.call(claim)
            rows = [self._queue_of(one) for one in found]
            check_answer(allowed, rows, claim.request)
        return samples

    def _queue_of(self, claimed: ClaimedAttempt) -> int:
        found = self.reader.execute("SELECT tq_id FROM job WHERE id = ?", (claimed.job_id,)).fetchone()
        assert found is not None, claimed
        return int(found[0])

    @staticmethod
    def _deliver(answers: list[tuple[Answer, Any]]) -> None:
        for answer, result in answers:
            answer(result)


class _Loop:
    """Closed loop: each answer starts the next claim until all are made."""

    def __init__(self, engine: Engine, claims: int, clients: int) -> None:
        self.engine = engine
        self.left = claims
        self.open = clients
        self.clients = clients
        self.done = threading.Event()
        self.fault: Exception | None = None

    def start(self) -> None:
        """The first claim of every client."""
        self.left -= self.clients
        for number in range(self.clients):
            self._ask(number)

    def finish(self) -> None:
        """Wait for the last answer. Raises the error that a claim was answered with."""
        assert self.done.wait(WAIT_SECONDS), "the journal did not answer"
        if self.fault is not None:
            raise self.fault

    def _ask(self, number: int) -> None:
        engine = self.engine
        session = engine.sessions[number % len(engine.sessions)]
        begun = time.perf_counter()

        def answered(result: Any) -> None:
            engine.latencies.append(time.perf_counter() - begun)
            if isinstance(result, Exception):
                self.fault = result
                self.left = 0
            elif not result:
                engine.empty += 1
            self._next(number + self.clients)

        engine.journal.post(engine.claim(session, answered), answered)

    def _next(self, number: int) -> None:
        if self.left > 0:
            self.left -= 1
            self._ask(number)
            return
        self.open -= 1
        if not self.open:
            self.done.set()
