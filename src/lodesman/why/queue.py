"""`lode why QUEUE`: why no pilots are sent to a CE queue, or that they are. Pure.

Waiting work is counted by the claim's criteria, limits are the director's own, and what it did is told by its last
iteration. Each step says how old that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Final

from lodesman.answers.nodes import ClosedNode
from lodesman.answers.vocabulary import ClampName, QueueReason
from lodesman.answers.why_queues import (
    Demanded,
    QueueAges,
    QueueDirector,
    QueueExplained,
    QueueGate,
    QueueSetting,
    QueueStep,
    SentPilot,
)
from lodesman.director.site_mask import Closing
from lodesman.matching import QueueOffer
from lodesman.matching.offers import MANUAL, never_sent
from lodesman.resources import AccessDenied, QueueId, Source, describe
from lodesman.why.facts import QueueDecision, Snapshot
from lodesman.why.survey import Survey
from lodesman.why.verdict import (
    WANTED,
    WHO,
    Demand,
    judge_offer,
    judge_work,
    least_job_refused,
    verdict_of,
    who_opens,
)
from lodesman.why.words import counted, excluded, recently, since, span

CONSIDERED: Final = 10_000
"""Of so many pilots that were sent last anywhere, those of a queue are shown."""
_SHOWN: Final = 5
_UNLIMITED: Final = -1
_WORDS: Final = {
    QueueReason.MANUAL: "; pilots there are started manually, none is sent",
    QueueReason.DIRECTOR_OFF: "; the director sends no pilots: its target is 0",
    QueueReason.ENOUGH_PILOTS: "; for all of them enough pilots wait or are idle already",
    QueueReason.NO_SUBMISSION_POOL: "; pilots were asked for, and no submission pool would take them",
    QueueReason.PILOTS_EXPECTED: ", and it has free capacity: pilots may be sent at the director's next iteration",
}
"""What follows the number of task queues that could be run there."""


@dataclass(frozen=True, kw_only=True)
class QueueFacts:
    """One queue as a VO sees it, and a snapshot. Not slotted: what follows from it is kept.

    `configured`: where, None if it is not. `denied`: why the VO may not use it; `offer`, `survey` and `gate` are None then,
    and `gate` where no director runs. `served`: how many SubmitPools it serves. `live`: our pilots there by state;
    `sent`: the last ones sent there. `closings`: what closes it now, the widest first.
    """

    place: QueueId
    vo: str
    configured: Source | None
    denied: AccessDenied | None
    offer: QueueOffer | None
    settings: list[QueueSetting]
    survey: Survey | None
    served: int
    gate: QueueGate | None
    live: Mapping[str, int]
    sent: Sequence[SentPilot]
    closings: Sequence[Closing]
    snapshot: Snapshot
    now: float

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return since(at, self.now)

    @property
    def decided_age(self) -> float | None:
        """Seconds since the director's last iteration, however long ago."""
        return self.age(self.snapshot.decided_at)

    @cached_property
    def decided(self) -> QueueDecision | None:
        """What the last iteration decided about the queue; None if that was long ago."""
        iteration = self.snapshot.decision(self.now)
        return None if iteration is None else iteration.queue(self.place)

    @cached_property
    def demand(self) -> Counter[Demand] | None:
        """What the last iteration did for the task queues that fit; None if that was long ago."""
        iteration = self.snapshot.decision(self.now)
        return None if iteration is None or self.survey is None else iteration.demands(self.survey.fitting)

    @property
    def capacity(self) -> int | None:
        """Pilots that may be sent now at most; -1 if nothing limits them, None if unknown."""
        if self.closings:
            return 0
        if self.gate is not None:
            return _UNLIMITED if self.gate.room is None else self.gate.room
        return None if self.decided is None else self.decided.room

    @property
    def manual(self) -> bool:
        """Whether pilots there are started by people."""
        return self.offer is not None and self.offer.backend == MANUAL

    @property
    def no_backend(self) -> str:
        """Why there is no batch system to send pilots to; '' if there is one, or need not be."""
        limits = () if self.gate is None or self.manual else self.gate.limits
        return next((one.text for one in limits if one.clamp is ClampName.NO_BACKEND), "")

    @cached_property
    def limits(self) -> list[tuple[ClampName, str]]:
        """What leaves no free capacity: the limits of now, or else the clamps of the last iteration."""
        if self.gate is not None:
            return [(one.clamp, one.text) for one in self.gate.limits if one.shut]
        return [] if self.decided is None else [(one.clamp, one.text) for one in self.decided.clamps]

    @cached_property
    def reason(self) -> QueueReason:
        """The judgement."""
        never = judge_offer(
            self.offer, configured=self.configured is not None, backend_missing=bool(self.no_backend)
        )
        if never is not None or self.offer is None:
            return never or QueueReason.NOT_OPEN
        decision, fitting = self.snapshot.decision(self.now), len(self.survey.fitting) if self.survey else 0
        sends = decision is None or decision.sends
        return judge_work(self.offer, fitting, self.demand, self.capacity, sends=sends)


def explain_queue(facts: QueueFacts) -> QueueExplained:
    """The answer."""
    reason, place = facts.reason, facts.place
    return QueueExplained(
        site=place.site, ce=place.ce, queue=place.queue, vo=facts.vo,
        verdict=verdict_of(reason), main_reason=reason, summary=_summary(facts, reason), who=_who(facts, reason),
        chain=list(_chain(facts)),
        settings=facts.settings,
        work=None if facts.survey is None else facts.survey.work,
        director=_director(facts),
        gate=facts.gate,
        pilots=dict(facts.live),
        lately=list(facts.sent),
        ages=QueueAges(
            work=facts.age(facts.snapshot.at) or 0.0,
            director=facts.decided_age,
            gate=None if facts.gate is None else 0.0,
        ),
    )  # fmt: skip


# --- the steps -------------------------------------------------------------------------------------------


def _chain(facts: QueueFacts) -> Iterator[QueueStep]:
    source = facts.configured
    text = "there is no such queue in the configuration"
    if source is not None:
        text = f"it is configured in {source.file}, line {source.line}" if source.file else "it is configured"
    yield QueueStep("configured", source is not None, text)
    if source is not None:
        text = f"VO {facts.vo} may use it" if facts.denied is None else describe(facts.denied)
        yield QueueStep("access", facts.denied is None, text)
    if facts.offer is not None and facts.survey is not None:
        yield _possible(facts, facts.offer)
        yield _site_mask(facts)
        yield _work(facts, facts.survey)
        text, at = f"it serves {counted(facts.served, 'SubmitPool')}", facts.age(facts.snapshot.at)
        yield QueueStep("submit_pools", True, text, at, count=facts.served)
        yield _demand(facts)
        yield from _free_capacity(facts) if facts.gate is None else _gate(facts.gate)
    states = ", ".join(f"{n} {state}" for state, n in sorted(facts.live.items())) or "none"
    yield QueueStep("pilots", True, f"our live pilots there: {states}", 0.0)
    yield _lately(facts)


def _possible(facts: QueueFacts, offer: QueueOffer) -> QueueStep:
    """Whether any job at all could run there, and any pilot be sent."""
    never = never_sent(offer)
    texts = [facts.no_backend, *map(str, least_job_refused(offer)), "" if never is None else never.text]
    reasons = list(dict.fromkeys(filter(None, texts)))
    sent = "pilots there are started manually" if facts.manual else f"backend {offer.backend}"
    text = "; ".join(reasons) or f"{sent}; a job that asks for little can run there"
    return QueueStep("possible", not reasons, text)


def _site_mask(facts: QueueFacts) -> QueueStep:
    text = "; ".join(f"{one.path} is {one.text}" for one in facts.closings)
    rows = [ClosedNode(**asdict(one)) for one in facts.closings]
    return QueueStep(
        "site_mask", not rows, text or "no administrator has closed it", 0.0,
        closings=rows,
    )  # fmt: skip


def _work(facts: QueueFacts, survey: Survey) -> QueueStep:
    work, lost = survey.work, _excluded(survey)
    text = (
        f"{work.fitting} of {counted(work.task_queues, 'task queue')} with waiting jobs could be run there "
        f"({work.fitting_jobs} of {counted(work.jobs, 'job')})"
    )
    at = facts.age(facts.snapshot.at)
    return QueueStep("work", work.fitting > 0, f"{text}; {lost}" if lost else text, at)


def _excluded(survey: Survey, of: str = "") -> str:
    return excluded(((one.criterion, one.task_queues) for one in survey.work.ruled_out_by[:_SHOWN]), of)


def _demand(facts: QueueFacts) -> QueueStep:
    found, decided, at = facts.demand, facts.decided, facts.decided_age
    if found is None:
        text = f"the director has not decided anything {recently(at)}"
        return QueueStep("director", None, text, at, demand=Demanded())
    counts = ", ".join(f"{one.value}: {n}" for one, n in found.most_common())
    text = (
        f"at its last iteration, for these task queues: {counts}"
        if counts
        else "no task queue concerns this queue"
    )
    if decided is None:
        text += "; it did not consider this queue"
    else:
        wanted = counted(decided.wanted, "pilot")
        text += f"; {wanted} of theirs could have come here, free capacity was {decided.room}"
    demand = Demanded(**{one.name.lower(): n for one, n in found.items()})
    holds = any(found[one] for one in WANTED)
    return QueueStep("director", holds, text, at, demand=demand)


def _gate(gate: QueueGate) -> Iterator[QueueStep]:
    shut = [one for one in gate.limits if one.shut] or gate.limits
    limits = "; ".join(f"{one.clamp.value}: {one.text}" for one in shut)
    room = "any number of pilots" if gate.room is None else counted(gate.room, "pilot")
    text = f"free capacity for {room} now ({limits})"
    yield QueueStep("room", gate.room != 0, text, gate.load.age_seconds)
    breaker = gate.breaker
    text = f"its breaker is {breaker.state.value}"
    text += f" for {span(breaker.retry_seconds)} more" if breaker.retry_seconds is not None else ""
    text += f", after {counted(breaker.failures, 'failure')} in a row" if breaker.failures else ""
    text += f": {breaker.reason}" if breaker.reason else ""
    yield QueueStep("breaker", breaker.state != "open", text, 0.0)
    free = sum(not one.full for one in gate.submission_pools)
    names = ", ".join(one.name for one in gate.submission_pools) or "none"
    text = f"submission pools {names}; {free} of {len(gate.submission_pools)} take pilots now"
    yield QueueStep("submission_pools", free > 0, text, 0.0)


def _free_capacity(facts: QueueFacts) -> Iterator[QueueStep]:
    """What the last iteration says, where no director runs."""
    decided = facts.decided
    if decided is None:
        text = "unknown: the director has not considered it recently"
        yield QueueStep("room", None, text)
        return
    limits = "; ".join(text for _, text in facts.limits) or "no limit took anything away"
    text = f"free capacity for {counted(decided.room, 'pilot')} at the last iteration ({limits})"
    yield QueueStep("room", decided.room > 0, text, facts.decided_age)


def _lately(facts: QueueFacts) -> QueueStep:
    if not facts.sent:
        text = f"none of the last {CONSIDERED} pilots was sent there"
        return QueueStep("lately", None, text)
    ended = [one for one in facts.sent if one.ended_seconds_ago is not None]
    unused = sum(1 for one in ended if not one.joined)
    text = f"of the last {counted(len(facts.sent), 'pilot')} sent there {len(ended)} ended"
    text += f", {unused} of them without ever joining" if unused else ""
    newest = next((one for one in ended if one.reason), None)
    text += f"; the last: {newest.reason}" if newest else ""
    holds = unused < len(ended) if ended else True
    return QueueStep("lately", holds, text, facts.sent[0].sent_seconds_ago)


# --- the parts of the answer -----------------------------------------------------------------------------


def _summary(facts: QueueFacts, reason: QueueReason) -> str:
    survey = facts.survey
    work = f"{counted(survey.work.fitting if survey else 0, 'task queue')} could be run there"
    if reason in _WORDS:
        return f"{work}{_WORDS[reason]}."
    match reason:
        case QueueReason.NOT_CONFIGURED:
            text = "There is no such queue in the configuration"
        case QueueReason.NOT_OPEN:
            text = "" if facts.denied is None else describe(facts.denied)
        case QueueReason.NO_WORK:
            text = "No job waits that could be run there" if survey is None else _no_work(survey)
        case QueueReason.NOT_DECIDED:
            text = f"{work}; the director has not decided anything about it {recently(facts.decided_age)}"
        case QueueReason.NO_ROOM:
            closings = "; ".join(one.text for one in facts.closings) if facts.gate is None else ""
            limits = closings or "; ".join(text for _, text in facts.limits)
            text = f"{work}, and none may be sent now: {limits or 'there was no free capacity'}"
        case _:
            why = "" if facts.offer is None else _possible(facts, facts.offer).text
            text = f"No pilot will ever be sent there: {why}"
    return f"{text}."


def _no_work(survey: Survey) -> str:
    lost = _excluded(survey, f" of {survey.work.task_queues}")
    nearest = f"; suggestion: {survey.work.nearest[0].text}" if survey.work.nearest else ""
    return f"No job waits that could be run there{f': {lost}' if lost else ''}{nearest}"


def _who(facts: QueueFacts, reason: QueueReason) -> str:
    if reason is not QueueReason.NO_ROOM:
        return WHO[reason]
    return who_opens((gate for gate, _ in facts.limits), facts.closings)


def _director(facts: QueueFacts) -> QueueDirector:
    """What the last iteration did for the queue, and the arithmetic of the fullest task queue that fits."""
    iteration, decided, survey = facts.snapshot.iteration, facts.decided, facts.survey
    lines: list[str] = []
    if iteration is not None and survey is not None and survey.fullest is not None:
        first, *rest = iteration.lines(survey.fullest)
        lines = [f"Task queue {survey.fullest}: {first}", *(f"  {line}" for line in rest)]
    return QueueDirector(
        decided_seconds_ago=facts.decided_age,
        considered=decided is not None,
        wanted=None if decided is None else decided.wanted,
        room=None if decided is None else decided.room,
        clamps=[] if decided is None else decided.clamps,
        placed=0 if iteration is None else iteration.placed(facts.place),
        lines=lines,
    )
