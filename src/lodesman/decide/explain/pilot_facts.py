"""The facts of one pilot: what is stored, what the hot process knows, and waiting work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from lodesman.decide.explain.verdict import first_that_holds
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.matcher import Chances
from lodesman.decide.matching.offers import UNLIMITED
from lodesman.decide.matching.policy import Policy
from lodesman.wire import why_pilots as answers
from lodesman.wire.hosts import HostName, HostRecord
from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import Closing
from lodesman.wire.pilots import Pilot
from lodesman.wire.vocabulary import FreeBy, MainReason, PilotVerdict
from lodesman.wire.why_pilots import Amounts


class PilotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored."""

    row: Pilot
    drain_reason: str  # why it has to leave; '': a user said so
    promised: list[tuple[int, int]]  # (cores, memory_mb) of each job that it has
    stale_pools: int = 0  # how many of the SubmitPools that it presented when it joined differed
    host: HostName | None = None  # where it says that it runs
    shut: HostRecord | None = None  # of that host, if it gets no jobs
    is_damaged: bool = False  # what it said of its node cannot be read


class PilotNow(msgspec.Struct, frozen=True, kw_only=True):
    """What only the hot process knows of a pilot."""

    at: float  # UNIX seconds, as all moments here
    joined: bool
    whole: Amounts  # all that it offers
    request: ResourceRequest  # of its next claim
    free_by: FreeBy
    asked_at: float | None
    asked_jobs: int | None
    waits_since: float | None  # set while a long poll of it waits
    silent_seconds: float | None
    is_silent: bool
    chances: Chances

    @property
    def free(self) -> Amounts:
        """What a claim would call free."""
        return amounts(self.request.cores, self.request.memory_mb, self.request.norm_cpu_seconds)


def amounts(*values: int) -> Amounts:
    """None for the unlimited."""
    return Amounts(*(None if value >= UNLIMITED else value for value in values))


class PilotCase(msgspec.Struct, frozen=True, kw_only=True):
    """A live pilot, and waiting task queues."""

    facts: PilotFacts
    now: PilotNow
    work: answers.Work
    surveyed: float  # the age of `work` in seconds
    policy: Policy
    closings: Sequence[Closing] = ()  # announced ones that leave it too little time for some of them
    held_parents: Mapping[HeldBy, Sequence[int]] = {}  # held jobs that jobs wait for which would fit


def judge_pilot(facts: PilotFacts, now: PilotNow) -> PilotVerdict:
    """The first verdict that holds."""
    silent_asker = now.asked_at is None and now.waits_since is None and not facts.promised
    in_order = (
        (facts.row.drain, PilotVerdict.DRAINING),
        (facts.row.bound_job is not None, PilotVerdict.BOUND),
        (now.whole.cores == 0, PilotVerdict.NOT_CONFIGURED),
        (facts.shut is not None, PilotVerdict.HOST_SHUT),
        (not now.joined or silent_asker, PilotVerdict.NOT_ASKED),
        (now.request.cores < 1, PilotVerdict.FULL),
        (now.chances.eligible, PilotVerdict.WOULD_GET),
        ({*now.chances.blocked} == {MainReason.WAITS_FOR_JOBS}, PilotVerdict.WAITS_FOR_JOBS),
        (now.chances.blocked, PilotVerdict.LIMITED),
        (now.chances.of_vo, PilotVerdict.NOTHING_FITS),
    )
    return first_that_holds(in_order, PilotVerdict.NOTHING_WAITS)
