"""A batch system that keeps the truth apart from what it says: lists lie, answers are lost, ids are given out again."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import (
    BatchLoad,
    CancelOutcome,
    Check,
    NativeState,
    NativeStatus,
    PilotSpec,
    Sizes,
    SubmitRefusal,
    SubmitResult,
    join_token_of,
    split_stamp,
)
from lodesman.server.loops.cancelling import UNKNOWN_TIMES


class Lists(StrEnum):
    """What is wrong with the lists of jobs."""

    TRUE = "nothing"
    TIME_OUT = "none comes in time"
    EMPTY = "they are empty"
    HALF = "half of the jobs are missing"
    GARBLED = "half of the lines cannot be read"
    DOUBLED = "half of the numbers stand there twice, for different jobs"


class Takes(StrEnum):
    """What becomes of a submission."""

    ALL = "it is taken"
    NONE = "it is refused"
    SOME = "half of it is taken and half refused"
    ALL_UNSAID = "it is taken, and the answer is lost"
    NONE_UNSAID = "it is not taken, and the answer is lost"
    ALL_HALF_SAID = "it is taken, and the answer names half of it"
    ALL_THEN_KILLED = "it is taken, and the process that asked is killed"
    KILLED = "the process that would have asked is killed"


class Cancels(StrEnum):
    """What becomes of an order to cancel."""

    ALL = "it is carried out"
    UNSAID = "it is carried out, and the answer is lost"
    NOT = "it does not arrive"


KILLS: Final = frozenset({Takes.ALL_THEN_KILLED, Takes.KILLED})
_UNSAID: Final = frozenset({Takes.ALL_UNSAID, Takes.NONE_UNSAID}) | KILLS
_TRUE: Final = frozenset({Lists.TRUE, Lists.TIME_OUT})
LIVE: Final = frozenset({NativeState.WAITING, NativeState.HELD, NativeState.RUNNING})


@dataclass(eq=False, kw_only=True)
class Job:
    """A job of the batch system, as it really is. `token`: with which its pilot joins."""

    native_id: str
    stamp: str
    queue: QueueId
    token: str
    state: NativeState = NativeState.WAITING

    @property
    def is_live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True, kw_only=True)
class _Line:
    """A line of a list, as it is read; `stamp` is no stamp if the line cannot be read."""

    native_id: str
    stamp: str
    queue: QueueId
    state: NativeState


@dataclass(eq=False, kw_only=True)
class FaultyBackend:
    """Keeps the contract of a backend over what its batch system says. Who asks it (`begin`) gets no more lists that leave
    something out than are believed: the next one says the truth.
    """

    clock: Callable[[], float]
    rng: random.Random
    killed: Callable[[], None]
    sizes: Sizes = field(default_factory=lambda: Sizes(copies=3))
    lists: Lists = Lists.TRUE
    takes: Takes = Takes.ALL
    cancels: Cancels = Cancels.ALL
    jobs: list[Job] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    """Stamp -> native id of all jobs that ever were."""
    next_number: int = 1
    _says: Lists = Lists.TRUE
    _lies: Counter[str] = field(default_factory=Counter)

    def begin(self, asker: str) -> None:
        """Another poll, or iteration."""
        lies = self.lists not in _TRUE and self._lies[asker] < UNKNOWN_TIMES - 1
        self._says = self.lists if lies or self.lists is Lists.TIME_OUT else Lists.TRUE
        if self._says is not Lists.TIME_OUT:
            self._lies[asker] = self._lies[asker] + 1 if lies else 0

    def forget_ended(self, *, first_number: int | None = None) -> None:
        """Ended jobs are listed no more; numbers may begin anew."""
        self.jobs = [job for job in self.jobs if job.is_live]
        self.next_number = first_number or self.next_number

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, spec: PilotSpec) -> SubmitResult:
        assert not self.ids.keys() & spec.stamps().values(), "no submission runs twice"
        stamps = list(spec.stamps().values())
        half = stamps[::2]
        taken = {Takes.ALL: stamps, Takes.ALL_UNSAID: stamps, Takes.ALL_HALF_SAID: stamps,
                 Takes.ALL_THEN_KILLED: stamps, Takes.SOME: half}.get(self.takes, [])  # fmt: skip
        secret = json.loads(spec.pilot_file)["secret"]
        for number, stamp in spec.stamps().items():
            if stamp in taken:
                token = join_token_of(secret, number)
                job = Job(native_id=self._new_id(), stamp=stamp, queue=spec.queue, token=token)
                self.jobs.append(job)
                self.ids[stamp] = job.native_id
        if self.takes in KILLS:
            self.killed()
        if self.takes in _UNSAID:
            raise BackendFault("The answer did not come.", transient=True)
        said = half if self.takes is Takes.ALL_HALF_SAID else taken
        no = SubmitRefusal(reason="no", transient=True)
        return SubmitResult(
            accepted={stamp: self.ids[stamp] for stamp in said},
            refused={stamp: no for stamp in stamps if stamp not in taken},
        )

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        lines, now = self._by_number(), self.clock()
        return {
            stamp: NativeStatus(
                state=line.state if (line := lines.get(native_id)) and line.stamp == stamp else NativeState.UNKNOWN,
                observed_at=now,
            )
            for stamp, native_id in pilots.items()
        }  # fmt: skip

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        before = {stamp: one.state for stamp, one in self.status(pilots).items()}
        if self.cancels is Cancels.NOT:
            return dict.fromkeys(pilots, CancelOutcome.FAILED)
        outcomes = {
            NativeState.UNKNOWN: CancelOutcome.UNKNOWN,
            NativeState.ENDED: CancelOutcome.ENDED,
            NativeState.RUNNING: CancelOutcome.ORDERED,
        }
        for job in self.jobs:
            if pilots.get(job.stamp) == job.native_id and before[job.stamp] in LIVE:
                job.state = NativeState.ENDED
        if self.cancels is Cancels.UNSAID:
            raise BackendFault("The answer did not come.", transient=True)
        return {stamp: outcomes.get(before[stamp], CancelOutcome.REMOVED) for stamp in pilots}

    def census(self) -> dict[str, str]:
        return {line.stamp: number for number, line in self._by_number().items() if split_stamp(line.stamp)}

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, BatchLoad]:
        counts = Counter((line.queue, line.state) for line in self._by_number().values())
        return {
            queue: BatchLoad(
                observed_at=self.clock(),
                waiting=counts[queue, NativeState.WAITING],
                running=counts[queue, NativeState.RUNNING],
                held=counts[queue, NativeState.HELD],
                others_waiting=0,
                others_running=0,
            )
            for queue in queues
        }

    def check(self, spec: PilotSpec) -> Check:
        return Check(possible=None)

    def output(self, stamp: str, native_id: str) -> bytes | None:
        return None

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Nothing is kept."""

    # --- inside -----------------------------------------------------------------------------------

    def _new_id(self) -> str:
        """The next number that no job has which is listed."""
        used = {job.native_id for job in self.jobs}
        while str(self.next_number) in used:
            self.next_number += 1
        return str(self.next_number)

    def _by_number(self) -> dict[str, _Line]:
        """What is listed; a number that stands there for different jobs is no one's."""
        found: dict[str, _Line | None] = {}
        for line in self._listed():
            found[line.native_id] = None if found.get(line.native_id, line) != line else line
        return {number: line for number, line in found.items() if line is not None}

    def _listed(self) -> list[_Line]:
        if self._says is Lists.TIME_OUT:
            raise BackendFault("It did not answer in time.", transient=True)
        lines = [
            _Line(native_id=job.native_id, stamp=job.stamp, queue=job.queue, state=job.state)
            for job in self.jobs
        ]
        some = self.rng.sample(lines, len(lines) // 2)
        if self._says is Lists.EMPTY:
            return []
        if self._says is Lists.HALF:
            return some
        if self._says is Lists.GARBLED:
            broken = [replace(line, stamp=f"{line.stamp[:5]}\ufffd") for line in some]
            return [line for line in lines if line not in some] + broken
        if self._says is Lists.DOUBLED:
            return lines + [replace(line, stamp="of-another-1", state=NativeState.ENDED) for line in some]
        return lines
