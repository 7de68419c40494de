"""`lode why QUEUE`: the chain of steps to pilots in a CE queue, and what is in the way. Pure.

Waiting work is counted by the claim's criteria; limits are the director's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from lodesman.base.errors import counted
from lodesman.decide.explain import actors, verdict
from lodesman.decide.explain.queue_facts import QueueFacts, unstarted
from lodesman.decide.explain.survey import ruled_out, suggestion
from lodesman.decide.explain.verdict import last_pilots, span
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import PRIVATE_ONLY
from lodesman.decide.resources import MANUAL
from lodesman.wire import why_queues as answers
from lodesman.wire.vocabulary import ClampName, QueueReason
from lodesman.wire.why_queues import QueueBreaker, QueueGate, QueueStep

CONSIDERED: Final = 10_000
"""Of so many pilots that were sent last, anywhere, those of the queue are shown."""
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
_NEVER_SENT: Final = "No pilot will ever be sent there: {possible}"
"""The summary for all reasons that _SUMMARIES lacks."""


def explain_queue(facts: QueueFacts) -> answers.QueueExplained:
    """Why pilots are sent to a queue or not."""
    reason, gate = facts.reason, facts.gate
    at = facts.age(facts.snapshot.at) or 0.0
    return answers.QueueExplained(
        **facts.place._asdict(),
        vo=facts.vo,
        verdict=verdict.verdict_of(reason),
        main_reason=reason,
        summary=_summary(facts, reason),
        who=actors.who_changes_queue(facts),
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
        announced = [closing.node for closing in facts.announced]
        closings = (closing for closing in facts.closings if closing.node not in announced)
        text = "; ".join(f"{closing.node} is {closing.text_at(facts.now)}" for closing in closings)
        ahead = "; ".join(f"{closing.node} is {closing.ahead_text(facts.now)}" for closing in facts.announced)
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
        yield from _free_capacity(facts) if facts.gate is None else _gate_steps(facts.gate)
    states = ", ".join(f"{n} {state}" for state, n in sorted(facts.live.items())) or "none"
    yield QueueStep("pilots", True, f"our live pilots there: {states}", 0.0)
    yield _lately(facts)


def _possible(facts: QueueFacts, offer: QueueOffer) -> QueueStep:
    """Whether any job could run there, and any pilot be sent."""
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
    demand, decided, at = facts.demand, facts.decided, facts.decided_age
    if demand is None:
        return QueueStep("director", None, facts.undecided(), at, demand=answers.Demanded())
    counts = ", ".join(f"{kind.value}: {n}" for kind, n in demand.most_common())
    text = f"at its last iteration, for these task queues: {counts}"
    text = text if counts else "no task queue that waits can start jobs here"
    if decided is None:
        text += "; the director did not consider this queue"
    else:
        pilots, room = counted(decided.wanted, "pilot"), counted(decided.room, "pilot")
        text += (
            f"; {pilots} could have come here at its last iteration, and there was free capacity for {room}"
        )
    holds = any(demand[kind] for kind in verdict.WANTED)
    told = answers.Demanded(**{kind.name.lower(): n for kind, n in demand.items()})
    return QueueStep("director", holds, text, at, demand=told)


def _site_gate(facts: QueueFacts) -> QueueStep:
    """The gate of its site now; where no director runs, at the last iteration."""
    limits: Sequence[answers.QueueLimit | answers.QueueClamp] = facts.decided.clamps if facts.decided else []
    limits, at = (limits, facts.decided_age) if facts.gate is None else (facts.gate.limits, 0.0)
    gate = next((limit for limit in limits if limit.clamp is ClampName.SITE_GATE), None)
    if gate is not None:
        return QueueStep("site_gates", gate.limit > 0, gate.text, at)
    if facts.gate is None and facts.decided is None:
        return QueueStep("site_gates", None, "unknown: the director has not considered it recently")
    return QueueStep("site_gates", True, "the gate of its site keeps no pilots from it", at)


def _gate_steps(gate: QueueGate) -> Iterator[QueueStep]:
    """The free capacity, the breaker and the submission pools, as they are now."""
    shut = [limit for limit in gate.limits if limit.shut] or gate.limits
    # Those of single identities are said in any case.
    shut += [limit for limit in gate.limits if limit.clamp is ClampName.CREDENTIAL and limit not in shut]
    limits = "; ".join(f"{limit.clamp.value}: {limit.text}" for limit in shut)
    room = "any number of pilots" if gate.room is None else counted(gate.room, "pilot")
    text = f"free capacity for {room} now ({limits})"
    yield QueueStep("room", gate.room != 0, text, gate.load.age_seconds)
    orders = (
        limit.text
        for limit in gate.limits
        if actors.opener_of(limit.clamp, limit.text, ()) == actors.BREAKER_ORDERED
    )
    order = next(orders, "")
    text = f"its breaker is {order}" if order else _breaker(gate.breaker)
    yield QueueStep("breaker", not order and gate.breaker.state != "open", text, 0.0)
    free = sum(not pool.full for pool in gate.submission_pools)
    names = [
        f"{pool.name} (handled by {pool.handled_by})" if pool.handled_by else pool.name
        for pool in gate.submission_pools
    ]
    text = f"submission pools {', '.join(names) or 'none'}; {free} of {len(gate.submission_pools)} may take pilots now"
    yield QueueStep("submission_pools", free > 0, text, 0.0)


def _breaker(breaker: QueueBreaker) -> str:
    text = f"its breaker is {breaker.state.value}"
    if breaker.state == "half-open":
        text += ", and one pilot tries it now" if breaker.probing else ", and one pilot may try it"
    elif breaker.retry_seconds is not None:
        text += f", and one pilot tries it in {span(breaker.retry_seconds)}"
    if not breaker.failures:
        return text
    return f"{text}; {unstarted(breaker)}"


def _free_capacity(facts: QueueFacts) -> Iterator[QueueStep]:
    """The free capacity at the last iteration, where no director runs."""
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
    ended = [pilot for pilot in facts.sent if pilot.ended_seconds_ago is not None]
    ordered = sum(pilot.ordered and not pilot.joined for pilot in ended)
    unused = sum(not pilot.joined for pilot in ended) - ordered
    text = f"of {last_pilots(len(facts.sent))} sent there {len(ended)} ended"
    text += f", {unused} of them without ever joining" if unused else ""
    text += f", {ordered} of them by order before they joined" if ordered else ""
    newest = next((pilot for pilot in ended if pilot.reason), None)
    text += f"; the last: {newest.reason}" if newest else ""
    holds = not unused or unused < len(ended) - ordered
    return QueueStep("lately", holds, text, facts.sent[0].sent_seconds_ago)


def _summary(facts: QueueFacts, reason: QueueReason) -> str:
    work, lost = None if facts.survey is None else facts.survey.work, ""
    if work is not None and work.ruled_out_by:
        lost = f": {ruled_out(work, f' of {work.task_queues}')}"
    closings = (
        "; ".join(closing.text_at(facts.now) for closing in facts.closings) if facts.gate is None else ""
    )
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
    """What the last iteration did for the queue and for the fullest task queue that fits."""
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
