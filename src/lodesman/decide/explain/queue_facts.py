"""The facts of one CE queue: what waits for it, its limits, and what the director did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.decide.explain import verdict
from lodesman.decide.explain.facts import SnapshotFacts, UnreachedPilots
from lodesman.decide.explain.last_iteration import FILLED, QueueDecision
from lodesman.decide.explain.survey import Survey
from lodesman.decide.explain.verdict import last_pilots
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import NoPilotsReason
from lodesman.decide.resources import MANUAL, FilePosition, Mismatch, QueueId
from lodesman.wire import why_queues as answers
from lodesman.wire.nodes import Closing, QueueSetting
from lodesman.wire.vocabulary import ClampName, PilotState, QueueReason
from lodesman.wire.why_queues import QueueBreaker, QueueGate

_UNLIMITED: Final = -1
_SENT: Final = (QueueReason.NO_ROOM, QueueReason.ENOUGH_PILOTS, QueueReason.PILOTS_EXPECTED)
"""Pilots are sent to these queues unless enough are there."""
_ORDERED: Final = (ClampName.CLOSED, ClampName.BREAKER, ClampName.HOST_SHUT)
"""Named even if no job waits: the user asks whether the queue is open."""
_KEPT: Final = {
    QueueReason.LIMITED: "limits keep",
    QueueReason.AT_MOST: "AtMost of their submissions keeps",
    QueueReason.SITE_GATE: "what the site advertises keeps",
}


@dataclass(frozen=True, kw_only=True)
class QueueFacts(SnapshotFacts):
    """A CE queue as a VO sees it."""

    place: QueueId
    vo: str
    configured: FilePosition | None  # where; None: nowhere
    denied: Mismatch | None  # why the VO may not use it; offer, survey and gate are then None
    offer: QueueOffer | None
    never: NoPilotsReason | None  # why no pilot is ever sent there
    settings: list[QueueSetting]
    survey: Survey | None
    served: int  # how many SubmitPools it serves
    gate: QueueGate | None  # None also where no director runs
    live: Mapping[str, int]  # our pilots there, by state
    sent: Sequence[answers.SentPilot]  # the last pilots sent there
    closings: Sequence[Closing]  # those that let no pilot be sent there, the widest first
    limited: frozenset[int] = frozenset()  # task queues that limits keep from starting there
    never_start: frozenset[int] = frozenset()  # those of them that no end of a job helps
    full: frozenset[int] = frozenset()  # task queues whose submissions let no more jobs start (AtMost)
    unreached: UnreachedPilots | None = None
    shut_host: tuple[str, str] = ("", "")  # why its only host gets no jobs, and who can open it
    announced: Sequence[Closing] = ()  # closings that are to come

    @cached_property
    def decided(self) -> QueueDecision | None:
        """The last decision about the queue; None if it is not recent."""
        return None if self.decision is None else self.decision.queue(self.place)

    @cached_property
    def demand(self) -> Counter[verdict.Demand] | None:
        """What the last iteration did for fitting task queues; None if it is not recent."""
        if self.decision is None or self.survey is None:
            return None
        return self.decision.demands(self.startable, self.snapshot.director.full)

    @cached_property
    def kept(self) -> list[tuple[QueueReason, frozenset[int]]]:
        """Fitting task queues that may not start there now, by reason."""
        fitting = frozenset(() if self.survey is None else self.survey.fitting)
        bit = None if self.offer is None else self.offer.bit
        # What a site advertises stops no pilot that people start there.
        is_sent = self.offer is not None and self.offer.backend != MANUAL
        unmatched = self.decision.unmatched if self.decision is not None and is_sent else {}
        away = frozenset(
            tq_id for tq_id, objections in unmatched.items() if objections.queues >> (bit or 0) & 1
        )
        kept = []
        by = {QueueReason.LIMITED: self.limited, QueueReason.AT_MOST: self.full, QueueReason.SITE_GATE: away}
        for reason, task_queues in by.items():
            if stopped := fitting & task_queues:
                kept.append((reason, stopped))
                fitting -= stopped
        return kept

    @cached_property
    def startable(self) -> list[int]:
        """Fitting task queues that may start there."""
        kept = {tq_id for _, task_queues in self.kept for tq_id in task_queues}
        return [] if self.survey is None else [tq_id for tq_id in self.survey.fitting if tq_id not in kept]

    @property
    def kept_text(self) -> str:
        """`kept` in words; '' for nothing."""
        words = []
        for reason, task_queues in self.kept:
            which = "it" if self.fitting == 1 else f"{len(task_queues)} of them"
            text = f"{_KEPT[reason]} {which} from starting there now"
            if reason is QueueReason.SITE_GATE and self.decision is not None:
                objections = self.decision.unmatched[min(task_queues)].words
                text += f": {'; '.join(objections)}" if objections else ""
            words.append(text)
        return "; ".join(words)

    @cached_property
    def server_fault(self) -> str:
        """What the server failed to do for the queue; '' if nothing."""
        path = "/".join(self.place)
        return self.left_out(f"CE queue {path}", f"site {self.place.site}", f"breaker {path}")

    @property
    def no_backend(self) -> str:
        """Why no batch system takes pilots; '' if there is one, or need not be."""
        manual = self.offer is not None and self.offer.backend == MANUAL
        limits = () if self.gate is None or manual else self.gate.limits
        return next((limit.text for limit in limits if limit.clamp is ClampName.NO_BACKEND), "")

    @cached_property
    def limits(self) -> Sequence[tuple[str, str]]:
        """Limits of now or, if unknown, clamps of the last iteration."""
        if self.gate is not None:
            return [(limit.clamp, limit.text) for limit in self.gate.limits if limit.shut]
        if self.decided is not None and self.decided.room > 0 >= self.decided.left:
            return [FILLED]
        return [] if self.decided is None else [(clamp.clamp, clamp.text) for clamp in self.decided.clamps]

    @property
    def unstarted(self) -> str:
        """Why its last pilots did not start or do not reach the server; '' if they do."""
        if self.shut_host[0]:
            return self.shut_host[0]
        if self.unreached is not None:
            return self.unreached.text(self.now)
        newest = None if self.live.get(PilotState.RUNNING) else next(iter(self.sent), None)
        if (
            newest is not None
            and newest.ended_seconds_ago is not None
            and newest.reason.startswith(NODE_FAULT)
        ):
            where = f" on {newest.host}" if newest.host else ""
            return f"the last pilot there left{where}: {newest.reason}"
        return unstarted(self.gate.breaker) if self.gate is not None and self.gate.breaker.failures else ""

    @property
    def fails(self) -> bool:
        """Whether its pilots do not start, and its breaker still lets in more."""
        shut = {name for name, _ in self.limits} & set(_ORDERED)
        return bool(self.unstarted) and self.reason in (*_SENT, QueueReason.MANUAL) and not shut

    @property
    def never_run(self) -> str:
        """Why its batch system never runs pilots; '' if unknown."""
        return next((text for name, text in self.limits if name == ClampName.LIST_MATCH), "")

    @property
    def fitting(self) -> int:
        """Task queues that could run there."""
        return 0 if self.survey is None else len(self.survey.fitting)

    @cached_property
    def reason(self) -> QueueReason:
        """The judgement."""
        never = verdict.judge_offer(
            self.offer,
            self.never,
            configured=self.configured is not None,
            backend_missing=bool(self.no_backend),
            never_run=bool(self.never_run),
        )
        if never is not None or self.offer is None:
            return never or QueueReason.NOT_OPEN
        capacity = None if self.decided is None else self.decided.left
        if self.closings:
            capacity = 0
        elif self.gate is not None:
            capacity = _UNLIMITED if self.gate.room is None else self.gate.room
        sends = self.decision is None or self.decision.sends
        kept = max(self.kept, key=lambda pair: len(pair[1]))[0] if self.kept and not self.startable else None
        reason = verdict.judge_work(self.offer, self.fitting, self.demand, capacity, sends=sends, kept=kept)
        shut = bool(self.closings) or any(name in _ORDERED for name, _ in self.limits)
        return QueueReason.NO_ROOM if shut and reason in (QueueReason.NO_WORK, kept) else reason


def unstarted(breaker: QueueBreaker) -> str:
    """How many of the last pilots did not start, and why."""
    why = f": {breaker.reason}" if breaker.reason else ""
    return f"{last_pilots(breaker.failures)} did not start{why}"
