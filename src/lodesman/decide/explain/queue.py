"""`lode why QUEUE`: why no pilots are sent to a CE queue, or that they are. Pure.

Waiting work is counted by the claim's criteria, limits are the director's own, and its last iteration says what it did.
Each step says how old that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lodesman.base.errors import counted
from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.decide.explain import actors, verdict
from lodesman.decide.explain.facts import SnapshotFacts, Unreached
from lodesman.decide.explain.gates import gate_steps, unstarted
from lodesman.decide.explain.last_iteration import FILLED, QueueDecision
from lodesman.decide.explain.survey import Survey, ruled_out, suggestion
from lodesman.decide.explain.verdict import last_pilots
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import PRIVATE_ONLY, WithoutPilots
from lodesman.decide.resources import MANUAL, FilePosition, Mismatch, QueueId
from lodesman.wire import why_queues as answers
from lodesman.wire.nodes import Closing, QueueSetting
from lodesman.wire.vocabulary import ClampName, PilotState, QueueReason
from lodesman.wire.why_queues import QueueGate, QueueStep

CONSIDERED: Final = 10_000
"""Number of the pilots sent last anywhere; of these, those of a queue are shown."""
_UNLIMITED: Final = -1
_SENT: Final = (QueueReason.NO_ROOM, QueueReason.ENOUGH_PILOTS, QueueReason.PILOTS_EXPECTED)
"""Of queues to which pilots are sent, if there are not enough of them already."""
_ORDERED: Final = (ClampName.CLOSED, ClampName.BREAKER, ClampName.HOST_SHUT)
"""They are named also while no job waits: who asks then wants to know whether the queue is open."""
_SUMMARIES: Final = {
    QueueReason.NOT_CONFIGURED: "There is no such queue in the configuration",
    QueueReason.NOT_OPEN: "{denied}",
    QueueReason.NO_WORK: "No job waits that could be run there{lost}",
    QueueReason.MANUAL: "{work}; pilots there are started manually, by files of lode pilot file",
    **dict.fromkeys((QueueReason.LIMITED, QueueReason.AT_MOST, QueueReason.SITE_GATE), "{work}, but {kept}"),
    QueueReason.NOT_DECIDED: "{work}; {undecided}",
    QueueReason.DIRECTOR_OFF: "{work}; the director sends no pilots: its target is 0",
    QueueReason.ENOUGH_PILOTS: "{work}; for all of them enough pilots wait or are idle already",
    QueueReason.NO_SUBMISSION_POOL: "{work}; pilots were asked for, and no submission pool would take them",
    QueueReason.NO_ROOM: "{work}, and none may be sent now: {limits}",
    QueueReason.PILOTS_EXPECTED: (
        "{work}, and it has free capacity: pilots may be sent at the director's next iteration"
    ),
}
_KEPT: Final = {
    QueueReason.LIMITED: "limits keep",
    QueueReason.AT_MOST: "AtMost of their submissions keeps",
    QueueReason.SITE_GATE: "what the site advertises keeps",
}
_NEVER_SENT: Final = "No pilot will ever be sent there: {possible}"
"""The summary for all other reasons."""


@dataclass(frozen=True, kw_only=True)
class QueueFacts(SnapshotFacts):
    """One queue as a VO sees it.

    `configured`: where, None if it is not. `denied`: why the VO may not use it; `offer`, `survey` and `gate` are None then,
    and `gate` where no director runs. `never`: why no pilot is ever sent there. `served`: how many SubmitPools it serves.
    `live`: our pilots there by state; `sent`: the last ones sent there. `closings`: what lets no pilot be sent there, the
    widest first; `announced`: what is going to close it.
    `limited`: the task queues that limits keep from starting there, `never_start` those where they do whatever ends;
    `full`: those whose submissions let no more jobs start. `shut_host`: why its only host gets no jobs and who can
    open it, '' if it gets some.
    """

    place: QueueId
    vo: str
    configured: FilePosition | None
    denied: Mismatch | None
    offer: QueueOffer | None
    never: WithoutPilots | None
    settings: list[QueueSetting]
    survey: Survey | None
    served: int
    gate: QueueGate | None
    live: Mapping[str, int]
    sent: Sequence[answers.SentPilot]
    closings: Sequence[Closing]
    limited: frozenset[int] = frozenset()
    never_start: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    unreached: Unreached | None = None
    shut_host: tuple[str, str] = ("", "")
    announced: Sequence[Closing] = ()

    @cached_property
    def decided(self) -> QueueDecision | None:
        """What the last iteration decided about the queue; None if that was long ago."""
        return None if self.decision is None else self.decision.queue(self.place)

    @cached_property
    def demand(self) -> Counter[verdict.Demand] | None:
        """What the last iteration did for the task queues that fit; None if that was long ago."""
        if self.decision is None or self.survey is None:
            return None
        return self.decision.demands(self.startable, self.snapshot.director.full)

    @cached_property
    def kept(self) -> list[tuple[QueueReason, frozenset[int]]]:
        """The task queues that could be run there and may not start there now, by what keeps them from it."""
        fitting = frozenset(() if self.survey is None else self.survey.fitting)
        bit = None if self.offer is None else self.offer.bit
        # What a site advertises stops no pilot that people start there.
        is_sent = self.offer is not None and self.offer.backend != MANUAL
        unmatched = self.decision.unmatched if self.decision is not None and is_sent else {}
        away = frozenset(tq_id for tq_id, one in unmatched.items() if one.queues >> (bit or 0) & 1)
        found = []
        by = {QueueReason.LIMITED: self.limited, QueueReason.AT_MOST: self.full, QueueReason.SITE_GATE: away}
        for reason, some in by.items():
            if there := fitting & some:
                found.append((reason, there))
                fitting -= there
        return found

    @cached_property
    def startable(self) -> list[int]:
        """The task queues that could be run there and may start."""
        kept = {tq_id for _, some in self.kept for tq_id in some}
        return [] if self.survey is None else [one for one in self.survey.fitting if one not in kept]

    @property
    def kept_text(self) -> str:
        """What keeps how many task queues from starting there, in words; '' for nothing."""
        words = []
        for reason, some in self.kept:
            which = "it" if self.fitting == 1 else f"{len(some)} of them"
            text = f"{_KEPT[reason]} {which} from starting there now"
            if reason is QueueReason.SITE_GATE and self.decision is not None:
                told = self.decision.unmatched[min(some)].words
                text += f": {'; '.join(told)}" if told else ""
            words.append(text)
        return "; ".join(words)

    @cached_property
    def server_fault(self) -> str:
        """What the server failed to do for it by a fault of its own; '' if nothing."""
        path = "/".join(self.place)
        return self.left_out(f"CE queue {path}", f"site {self.place.site}", f"breaker {path}")

    @property
    def no_backend(self) -> str:
        """Why there is no batch system to send pilots to; '' if there is one, or need not be."""
        manual = self.offer is not None and self.offer.backend == MANUAL
        limits = () if self.gate is None or manual else self.gate.limits
        return next((one.text for one in limits if one.clamp is ClampName.NO_BACKEND), "")

    @cached_property
    def limits(self) -> Sequence[tuple[str, str]]:
        """What leaves no free capacity: the limits of now, or else the clamps of the last iteration."""
        if self.gate is not None:
            return [(one.clamp, one.text) for one in self.gate.limits if one.shut]
        if self.decided is not None and self.decided.room > 0 >= self.decided.left:
            return [FILLED]
        return [] if self.decided is None else [(one.clamp, one.text) for one in self.decided.clamps]

    @property
    def unstarted(self) -> str:
        """That its last pilots did not start, and why, or do not reach the server; '' if it is not so."""
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
        """Whether its pilots do not start, though it lets in more: its breaker has not opened yet."""
        shut = {name for name, _ in self.limits} & set(_ORDERED)
        return bool(self.unstarted) and self.reason in (*_SENT, QueueReason.MANUAL) and not shut

    @property
    def never_run(self) -> str:
        """Why its batch system never runs pilots like those that are sent there; '' if that is not known."""
        return next((text for name, text in self.limits if name == ClampName.LIST_MATCH), "")

    @property
    def fitting(self) -> int:
        """The task queues that could be run there."""
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
        kept = max(self.kept, key=lambda one: len(one[1]))[0] if self.kept and not self.startable else None
        found = verdict.judge_work(self.offer, self.fitting, self.demand, capacity, sends=sends, kept=kept)
        shut = bool(self.closings) or any(name in _ORDERED for name, _ in self.limits)
        return QueueReason.NO_ROOM if shut and found in (QueueReason.NO_WORK, kept) else found


def explain_queue(facts: QueueFacts) -> answers.QueueExplained:
    """The answer."""
    reason, gate, who = facts.reason, facts.gate, actors.OF_QUEUES[facts.reason]
    backends = [] if facts.offer is None else [facts.offer.backend]
    named = actors.settings_named([facts.unstarted], facts.snapshot.director.settings)
    if reason is QueueReason.NO_ROOM and not facts.fails:
        names = [actors.opener_of(name, text, backends) for name, text in facts.limits]
        who = actors.who_opens(names, facts.closings, named, facts.shut_host[1])
    elif reason is QueueReason.LIMITED and dict(facts.kept)[reason] <= facts.never_start:
        who = actors.NO_END_HELPS
    elif facts.fails:
        mends = actors.NOT_REACHED if facts.unreached else actors.who_mends(backends, named)
        who = facts.shut_host[1] or mends
    at = facts.age(facts.snapshot.at) or 0.0
    return answers.QueueExplained(
        **facts.place._asdict(),
        vo=facts.vo,
        verdict=verdict.verdict_of(reason),
        main_reason=reason,
        summary=_summary(facts, reason),
        who=who,
        chain=list(_chain(facts)),
        settings=facts.settings,
        work=None if facts.survey is None else facts.survey.work,
        director=_director(facts),
        gate=gate,
        pilots=dict(facts.live),
        lately=list(facts.sent),
        ages=answers.QueueAges(work=at, director=facts.decided_age, gate=None if gate is None else 0.0),
    )


def _chain(facts: QueueFacts) -> Iterator[QueueStep]:
    source = facts.configured
    text = "there is no such queue in the configuration"
    if source is not None:
        text = f"it is configured in {source.file}, line {source.line}" if source.file else "it is configured"
    yield QueueStep("configured", source is not None, text)
    yield from (QueueStep("server", False, text) for text in (facts.server_fault,) if text)
    if source is not None:
        text = f"VO {facts.vo} may use it" if facts.denied is None else facts.denied.text
        yield QueueStep("access", facts.denied is None, text)
    if facts.offer is not None and facts.survey is not None:
        yield _possible(facts, facts.offer)
        announced = [one.node for one in facts.announced]
        closings = (one for one in facts.closings if one.node not in announced)
        text = "; ".join(f"{one.node} is {one.text_at(facts.now)}" for one in closings)
        ahead = "; ".join(f"{one.node} is {one.ahead_text(facts.now)}" for one in facts.announced)
        text = "; ".join(filter(None, (text, ahead))) or "no administrator has closed it"
        rows, work, at = list(facts.closings), facts.survey.work, facts.age(facts.snapshot.at)
        yield QueueStep("site_mask", not rows, text, 0.0, closings=rows)
        text = (
            f"{work.fitting} of {counted(work.task_queues, 'task queue')} with waiting jobs could be run there "
            f"({work.fitting_jobs} of {counted(work.jobs, 'job')})"
        )
        text += f"; {facts.kept_text}" if facts.kept else ""
        lost = ruled_out(work)
        yield QueueStep("work", work.fitting > 0, f"{text}; {lost}" if lost else text, at)
        text = f"it serves {counted(facts.served, 'SubmitPool')}"
        yield QueueStep("submit_pools", True, text, at, count=facts.served)
        yield _demand(facts)
        yield _site_gate(facts)
        yield from _free_capacity(facts) if facts.gate is None else gate_steps(facts.gate)
    states = ", ".join(f"{n} {state}" for state, n in sorted(facts.live.items())) or "none"
    yield QueueStep("pilots", True, f"our live pilots there: {states}", 0.0)
    yield _lately(facts)


def _possible(facts: QueueFacts, offer: QueueOffer) -> QueueStep:
    """Whether any job at all could run there, and any pilot be sent."""
    never = facts.never
    texts = [
        facts.no_backend,
        *map(str, verdict.least_job_refused(offer)),
        "" if never is None else never.text,
        facts.never_run,
    ]
    reasons = list(dict.fromkeys(filter(None, texts)))
    sent = "pilots there are started manually" if offer.backend == MANUAL else f"backend {offer.backend}"
    sent += "" if offer.settings.generic_pilots else f"; {PRIVATE_ONLY.text}"
    text = "; ".join(reasons) or f"{sent}; a job that asks for little can run there"
    return QueueStep("possible", not reasons, text)


def _demand(facts: QueueFacts) -> QueueStep:
    found, decided, at = facts.demand, facts.decided, facts.decided_age
    if found is None:
        return QueueStep("director", None, facts.undecided(), at, demand=answers.Demanded())
    counts = ", ".join(f"{one.value}: {n}" for one, n in found.most_common())
    text = f"at its last iteration, for these task queues: {counts}"
    text = text if counts else "no task queue that waits can start jobs here"
    if decided is None:
        text += "; the director did not consider this queue"
    else:
        wanted, room = counted(decided.wanted, "pilot"), counted(decided.room, "pilot")
        text += (
            f"; {wanted} could have come here at its last iteration, and there was free capacity for {room}"
        )
    demand = answers.Demanded(**{one.name.lower(): n for one, n in found.items()})
    return QueueStep("director", any(found[one] for one in verdict.WANTED), text, at, demand=demand)


def _site_gate(facts: QueueFacts) -> QueueStep:
    """What the gate of its site says now or, where no director runs, said at the last iteration."""
    limits: Sequence[answers.QueueLimit | answers.QueueClamp] = facts.decided.clamps if facts.decided else []
    limits, at = (limits, facts.decided_age) if facts.gate is None else (facts.gate.limits, 0.0)
    found = next((one for one in limits if one.clamp is ClampName.SITE_GATE), None)
    if found is not None:
        return QueueStep("site_gates", found.limit > 0, found.text, at)
    if facts.gate is None and facts.decided is None:
        return QueueStep("site_gates", None, "unknown: the director has not considered it recently")
    return QueueStep("site_gates", True, "the gate of its site keeps no pilots from it", at)


def _free_capacity(facts: QueueFacts) -> Iterator[QueueStep]:
    """What the last iteration says, where no director runs."""
    decided = facts.decided
    if decided is None:
        yield QueueStep("room", None, "unknown: the director has not considered it recently")
        return
    limits = "; ".join(text for _, text in facts.limits) or "no limit took anything away"
    text = f"free capacity for {counted(decided.left, 'pilot')} after the last iteration ({limits})"
    yield QueueStep("room", decided.left > 0, text, facts.decided_age)


def _lately(facts: QueueFacts) -> QueueStep:
    if not facts.sent:
        return QueueStep("lately", None, f"none of {last_pilots(CONSIDERED)} was sent there")
    ended = [one for one in facts.sent if one.ended_seconds_ago is not None]
    ordered = sum(one.ordered and not one.joined for one in ended)
    unused = sum(not one.joined for one in ended) - ordered
    text = f"of {last_pilots(len(facts.sent))} sent there {len(ended)} ended"
    text += f", {unused} of them without ever joining" if unused else ""
    text += f", {ordered} of them by order before they joined" if ordered else ""
    newest = next((one for one in ended if one.reason), None)
    text += f"; the last: {newest.reason}" if newest else ""
    holds = not unused or unused < len(ended) - ordered
    return QueueStep("lately", holds, text, facts.sent[0].sent_seconds_ago)


def _summary(facts: QueueFacts, reason: QueueReason) -> str:
    work, lost = None if facts.survey is None else facts.survey.work, ""
    if work is not None and work.ruled_out_by:
        lost = f": {ruled_out(work, f' of {work.task_queues}')}"
    closings = "; ".join(one.text_at(facts.now) for one in facts.closings) if facts.gate is None else ""
    limits = closings or "; ".join(text for _, text in facts.limits)
    text = _SUMMARIES.get(reason, _NEVER_SENT).format(
        work=f"{counted(facts.fitting, 'task queue')} could be run there",
        denied="" if facts.denied is None else facts.denied.text,
        lost=lost if work is None else f"{lost}{suggestion(work)}",
        undecided=facts.undecided(" about it"),
        kept=facts.kept_text,
        limits=limits or "there was no free capacity",
        possible="" if facts.offer is None else _possible(facts, facts.offer).text,
    )
    return f"{text}; but {facts.unstarted}." if facts.fails else f"{text}."


def _director(facts: QueueFacts) -> answers.QueueDirector:
    """What the last iteration did for the queue, and the arithmetic of the fullest task queue that fits."""
    iteration, decided, survey = facts.snapshot.iteration, facts.decided, facts.survey
    lines: list[str] = []
    if iteration is not None and survey is not None and survey.fullest is not None:
        first, *rest = iteration.lines(survey.fullest)
        lines = [f"Task queue {survey.fullest}: {first}", *(f"  {line}" for line in rest)]
    return answers.QueueDirector(
        decided_seconds_ago=facts.decided_age,
        iterated_seconds_ago=facts.iterated_age,
        considered=decided is not None,
        wanted=None if decided is None else decided.wanted,
        room=None if decided is None else decided.room,
        clamps=[] if decided is None else decided.clamps,
        placed=0 if iteration is None else iteration.placed(facts.place),
        lines=lines,
    )
