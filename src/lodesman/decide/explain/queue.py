"""`lode why QUEUE`: the steps to pilots in a CE queue.

The claim's criteria count waiting work; limits are the director's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lodesman.base.errors import counted
from lodesman.decide.explain import actors, verdict
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.last_iteration import not_sent_gate
from lodesman.decide.explain.queue_facts import QueueFacts, unstarted
from lodesman.decide.explain.survey import ruled_out, suggestion
from lodesman.decide.explain.verdict import chain_of, last_pilots, span
from lodesman.decide.matching.offers import PRIVATE_ONLY, never_sent
from lodesman.decide.resources import MANUAL, QueueId
from lodesman.wire import why_queues as answers
from lodesman.wire.vocabulary import ClampName, QueueReason
from lodesman.wire.why_jobs import QueueForJob
from lodesman.wire.why_queues import QueueBreaker, QueueStep

CONSIDERED: Final = 10_000
"""Pilots of the queue are shown if they are among this many sent last, anywhere."""
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
        chain=_chain(facts),
        settings=facts.settings,
        work=None if facts.survey is None else facts.survey.work,
        director=_director(facts),
        gate=gate,
        pilots=dict(facts.live),
        lately=list(facts.sent),
        ages=answers.QueueAges(work=at, director=facts.decided_age, gate=None if gate is None else 0.0),
    )


def explain_queue_for_job(facts: JobFacts, place: QueueId) -> QueueForJob:
    """What a queue has against a job, and its free capacity."""
    config, room, gate = facts.exclusions.config, None, ""
    offer = config.offer(place)
    if offer is None:
        is_configured = config.table.bit(place) is not None
        criteria = ["VO" if is_configured else "Queue"]
        reasons = [f"VO {config.vo} may not use it" if is_configured else "there is no such queue"]
    else:
        criteria = [name for name, mask in facts.exclusions.planes if mask >> offer.bit & 1]
        nevers = (never_sent(offer, config.backends, config.pools), PRIVATE_ONLY)
        reasons = list(facts.exclusions.reasons(offer.bit))
        reasons += [never.text for never in nevers if never and never.parameter in criteria]
        reasons += facts.exclusions.not_carried(offer.bit)
        not_sent = not_sent_gate(config, offer)
        gate = facts.mask.reason(place, facts.now, offer.life_seconds) or (
            "" if not_sent is None else not_sent.text
        )
        gate = gate or next((words for words, mask in facts.misfits if mask >> offer.bit & 1), "")
        gate = gate or _full_limits(facts, offer.bit)
        decided = None if facts.decision is None else facts.decision.queue(place)
        if gate:
            room = 0
        elif facts.decision is not None and decided is not None:
            room = decided.left
            gate = "" if room > 0 else facts.decision.gate(place).text
    return QueueForJob(*place, not criteria, criteria, reasons, room, gate)


def _full_limits(facts: JobFacts, bit: int) -> str:
    """What keeps the job from starting there as long as nothing ends; '' if no limit does."""
    if not facts.limited >> bit & 1:
        return ""
    return "; ".join(bucket.text for bucket in facts.limits.buckets) or "limits are full for it there"


def _chain(facts: QueueFacts) -> list[QueueStep]:
    of_offer = (
        _possible, _site_mask, _work, _submit_pools, _demand, _site_gate, _room, _breaker, _submission_pools,
    )  # fmt: skip
    steps = (_configured, _server, _access, *(of_offer if facts.offer else ()), _pilots, _lately)
    return chain_of(facts, steps)


def _configured(facts: QueueFacts) -> QueueStep:
    source = facts.configured
    if source is None:
        return QueueStep("configured", False, "there is no such queue in the configuration")
    where = f" in {source.file}, line {source.line}" if source.file else ""
    return QueueStep("configured", True, f"it is configured{where}")


def _server(facts: QueueFacts) -> QueueStep | None:
    return QueueStep("server", False, facts.server_fault) if facts.server_fault else None


def _access(facts: QueueFacts) -> QueueStep | None:
    if facts.configured is None:
        return None
    text = f"VO {facts.vo} may use it" if facts.denied is None else facts.denied.text
    return QueueStep("access", facts.denied is None, text)


def _possible(facts: QueueFacts) -> QueueStep | None:
    offer, never = facts.offer, facts.never
    if offer is None:
        return None
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


def _site_mask(facts: QueueFacts) -> QueueStep:
    announced = [closing.node for closing in facts.announced]
    texts = [
        f"{closing.node} is {closing.text_at(facts.now)}"
        for closing in facts.closings
        if closing.node not in announced
    ]
    texts += [f"{closing.node} is {closing.ahead_text(facts.now)}" for closing in facts.announced]
    text = "; ".join(texts) or "no administrator has closed it"
    return QueueStep("site_mask", not facts.closings, text, 0.0, closings=list(facts.closings))


def _work(facts: QueueFacts) -> QueueStep | None:
    if facts.survey is None:
        return None
    work = facts.survey.work
    text = (
        f"{work.fitting} of {counted(work.task_queues, 'task queue')} with waiting jobs could be run there "
        f"({work.fitting_jobs} of {counted(work.jobs, 'job')})"
    )
    text = "; ".join(filter(None, (text, facts.kept_text, ruled_out(work))))
    return QueueStep("work", work.fitting > 0, text, facts.age(facts.snapshot.at))


def _submit_pools(facts: QueueFacts) -> QueueStep:
    text = f"it serves {counted(facts.served, 'SubmitPool')}"
    return QueueStep("submit_pools", True, text, facts.age(facts.snapshot.at), count=facts.served)


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
        pilots, room = counted(decided.pilots, "pilot"), counted(decided.room, "pilot")
        text += (
            f"; {pilots} could have come here at its last iteration, and there was free capacity for {room}"
        )
    holds = any(demand[kind] for kind in verdict.WANTED)
    told = answers.Demanded(**{kind.name.lower(): n for kind, n in demand.items()})
    return QueueStep("director", holds, text, at, demand=told)


def _site_gate(facts: QueueFacts) -> QueueStep:
    """Where no director runs: at the last iteration."""
    limits: Sequence[answers.QueueLimit | answers.QueueClamp] = facts.decided.clamps if facts.decided else []
    limits, at = (limits, facts.decided_age) if facts.gate is None else (facts.gate.limits, 0.0)
    gate = next((limit for limit in limits if limit.clamp is ClampName.SITE_GATE), None)
    if gate is not None:
        return QueueStep("site_gates", gate.limit > 0, gate.text, at)
    if facts.gate is None and facts.decided is None:
        return QueueStep("site_gates", None, "unknown: the director has not considered it recently")
    return QueueStep("site_gates", True, "the gate of its site keeps no pilots from it", at)


def _room(facts: QueueFacts) -> QueueStep:
    """Where no director runs: at the last iteration."""
    gate = facts.gate
    if gate is None:
        return _room_then(facts)
    shut = [limit for limit in gate.limits if limit.shut] or gate.limits
    # Those of single identities are said in any case.
    shut += [limit for limit in gate.limits if limit.clamp is ClampName.CREDENTIAL and limit not in shut]
    limits = "; ".join(f"{limit.clamp.value}: {limit.text}" for limit in shut)
    room = "any number of pilots" if gate.room is None else counted(gate.room, "pilot")
    return QueueStep(
        "room", gate.room != 0, f"free capacity for {room} now ({limits})", gate.load.age_seconds
    )


def _room_then(facts: QueueFacts) -> QueueStep:
    decided = facts.decided
    if decided is None:
        return QueueStep("room", None, "unknown: the director has not considered it recently")
    limits = "; ".join(text for _, text in facts.limits) or "no limit took anything away"
    text = f"free capacity for {counted(decided.left, 'pilot')} after the last iteration ({limits})"
    return QueueStep("room", decided.left > 0, text, facts.decided_age)


def _breaker(facts: QueueFacts) -> QueueStep | None:
    gate = facts.gate
    if gate is None:
        return None
    orders = (
        limit.text
        for limit in gate.limits
        if actors.opener_of(limit.clamp, limit.text, ()) == actors.BREAKER_ORDERED
    )
    order = next(orders, "")
    text = f"its breaker is {order}" if order else _breaker_text(gate.breaker)
    return QueueStep("breaker", not order and gate.breaker.state != "open", text, 0.0)


def _breaker_text(breaker: QueueBreaker) -> str:
    text = f"its breaker is {breaker.state.value}"
    if breaker.state == "half-open":
        text += ", and one pilot tries it now" if breaker.probing else ", and one pilot may try it"
    elif breaker.retry_seconds is not None:
        text += f", and one pilot tries it in {span(breaker.retry_seconds)}"
    return f"{text}; {unstarted(breaker)}" if breaker.failures else text


def _submission_pools(facts: QueueFacts) -> QueueStep | None:
    if facts.gate is None:
        return None
    pools = facts.gate.submission_pools
    free = sum(not pool.full for pool in pools)
    names = [
        f"{pool.name} (handled by {pool.handled_by})" if pool.handled_by else pool.name for pool in pools
    ]
    text = f"submission pools {', '.join(names) or 'none'}; {free} of {len(pools)} may take pilots now"
    return QueueStep("submission_pools", free > 0, text, 0.0)


def _pilots(facts: QueueFacts) -> QueueStep:
    states = ", ".join(f"{n} {state}" for state, n in sorted(facts.live.items())) or "none"
    return QueueStep("pilots", True, f"our live pilots there: {states}", 0.0)


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
    possible = _possible(facts)
    text = _SUMMARIES.get(reason, _NEVER_SENT).format(
        work=f"{counted(facts.fitting, 'task queue')} could be run there",
        denied="" if facts.denied is None else facts.denied.text,
        lost=lost if work is None else f"{lost}{suggestion(work)}",
        undecided=facts.undecided(" about it"),
        kept=facts.kept_text,
        limits=limits or "there was no free capacity",
        possible="" if possible is None else possible.text,
    )
    return f"{text}; but {facts.unstarted}." if facts.fails else f"{text}."


def _director(facts: QueueFacts) -> answers.QueueDirector:
    iteration, decided, survey = facts.snapshot.iteration, facts.decided, facts.survey
    lines: list[str] = []
    if iteration is not None and survey is not None and survey.fullest is not None:
        first, *rest = iteration.lines(survey.fullest)
        lines = [f"Task queue {survey.fullest}: {first}", *(f"  {line}" for line in rest)]
    return answers.QueueDirector(
        decided_seconds_ago=facts.decided_age,
        iterated_seconds_ago=facts.iterated_age,
        considered=decided is not None,
        wanted=None if decided is None else decided.pilots,
        room=None if decided is None else decided.room,
        clamps=[] if decided is None else decided.clamps,
        placed=0 if iteration is None else iteration.placed(facts.place),
        lines=lines,
    )
