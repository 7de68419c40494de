"""`lode why JOB`: the whole chain from a job to a pilot, ending in never, not now or now. Pure.

Queues are judged by the predicates of submission and claim, pilots by those of the claim. Each step says whether it holds,
what it knows, and how old that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Final, Literal

from lodesman.answers.nodes import ClosedQueues, QueuesExcluded
from lodesman.answers.vocabulary import MainReason, PoolOutcome
from lodesman.answers.why_jobs import (
    ClosedGate,
    JobAges,
    JobDirector,
    JobExplained,
    JobPilots,
    JobShare,
    JobStep,
    QueueForJob,
)
from lodesman.director.site_mask import Closing
from lodesman.masks.bits import bits
from lodesman.matching import parts_of
from lodesman.matching.offers import CAUSES, never_sent
from lodesman.resources import QueueId
from lodesman.submission import never_text
from lodesman.why.facts import JobFacts, bit_of, not_sent_gate
from lodesman.why.verdict import NO_ACTION, WHO, verdict_of, who_opens
from lodesman.why.words import counted, excluded, recently, sentence, span

_SHOWN: Final = 5
_CriteriaStep = Literal["requirements", "site", "platform", "size", "sending"]
_STEPS: Final[tuple[tuple[_CriteriaStep, tuple[str, ...]], ...]] = (
    ("site", ("Site", "BannedSite", "GridCE")),
    ("platform", ("Platform", "Tag", "RequiredTag", "JobType")),
    ("size", ("NumberOfProcessors", "Memory", "CPUTime")),
    ("sending", CAUSES),
)


def explain_job(facts: JobFacts) -> JobExplained:
    """Why it waits, or is Held."""
    reason, share = facts.reason, _share(facts)
    at, pool_at = facts.age(facts.snapshot.at) or 0.0, facts.age(facts.evaluated_at)
    decided, load = facts.age(facts.snapshot.decided_at), _oldest_load(facts, facts.eligible)[0]
    return JobExplained(
        verdict=verdict_of(reason),
        main_reason=reason,
        summary=_summary(facts, reason),
        who=_who(facts, reason),
        chain=list(_chain(facts, share)),
        queues=facts.exclusions.summary(),
        share=share,
        pilots=facts.pilots,
        director=_director(facts),
        ages=JobAges(
            configuration=facts.age(facts.policy.loaded_at), pilots=at, groups=at, submit_pool=pool_at,
            director=decided, load=load,
        ),
    )  # fmt: skip


def explain_queue_for_job(facts: JobFacts, place: QueueId) -> QueueForJob:
    """All that one queue has against a job, and its free capacity."""
    found, decision = facts.exclusions, facts.decision
    config = found.config
    bit = bit_of(config, place)
    offer = config.by_bit.get(bit)
    decided = None if decision is None or offer is None else decision.queue(place)
    room = None if decided is None else decided.room
    gate = "" if decision is None or room is None or room > 0 else decision.gate(place).text
    if offer is None:
        words = "there is no such queue" if bit < 0 else f"VO {config.vo} may not use it"
        criteria, reasons = ["VO" if bit >= 0 else "Queue"], [words]
    else:
        criteria = [name for name, mask in found.planes if mask >> bit & 1]
        reasons = [*found.reasons(bit)]
        never = never_sent(offer, config.backends)
        reasons += [never.text] if never and never.parameter in criteria else []
        not_sent = not_sent_gate(config, offer)
        closed = facts.mask.reason(place, facts.now) or ("" if not_sent is None else not_sent.text)
        room, gate = (0, closed) if closed else (room, gate)
    return QueueForJob(
        site=place.site, ce=place.ce, queue=place.queue, eligible=not criteria, ruled_out_by=criteria,
        reasons=reasons, room=room, gate=gate,
    )  # fmt: skip


# --- the steps -------------------------------------------------------------------------------------------


def _chain(facts: JobFacts, share: JobShare) -> Iterator[JobStep]:
    yield _class(facts)
    yield _access(facts)
    yield from _requirements(facts)
    for name, criteria in _STEPS:
        yield _criteria(facts, name, criteria, ", ".join(criteria))
        if name == "site":
            yield closings_step(facts.closings, facts.eligible, may_run=facts.pilots.any_usable)
    yield _limits(facts)
    yield _turn(facts, share)
    pilots = facts.pilots
    yield JobStep("pilots", pilots.any_usable, _pilots(pilots), facts.age(facts.snapshot.at))
    yield _gates(facts)


def _class(facts: JobFacts) -> JobStep:
    key = facts.exclusions.key
    named = [
        f"{name} {value}" for name, value in (("JobClass", key.job_class), ("Variant", key.variant)) if value
    ]
    text = (
        f"{' '.join(named)}: no class is configured, so that changes nothing"
        if named
        else "it names no job class"
    )
    return JobStep("class", True, text)


def _access(facts: JobFacts) -> JobStep:
    key, found = facts.exclusions.key, facts.exclusions
    queues = len(found.config.table.queues)
    text = (
        f"{key.owner} of group {key.group}, VO {key.vo}, may use {found.total} of {queues} configured queues"
    )
    return JobStep(
        "access", found.total > 0, text, facts.age(facts.policy.loaded_at),
        queues=queues, admitting=found.total,
    )  # fmt: skip


def _requirements(facts: JobFacts) -> Iterator[JobStep]:
    pool, served = facts.exclusions.key.submit_pool, facts.served
    if not pool:
        yield JobStep("requirements", True, "it has no Requirements")
        return
    names = tuple(name for name, _ in facts.exclusions.planes if name.startswith("Requirements"))
    yield _criteria(facts, "requirements", names, "its Requirements")
    if facts.evaluated_at is None:
        text = f"the queues that serve SubmitPool {pool} are not known before the next refresh"
        yield JobStep("submit_pool", None, text, None, pool=pool, queues=None)
        return
    count = 0 if served is None else len(served)
    yield JobStep(
        "submit_pool", count > 0, f"SubmitPool {pool} is served by {counted(count, 'queue')}",
        facts.age(facts.evaluated_at), pool=pool, queues=count,
    )  # fmt: skip


def _criteria(facts: JobFacts, step: _CriteriaStep, criteria: tuple[str, ...], what: str) -> JobStep:
    found = facts.exclusions
    counts, lost = [], 0
    for name, mask in found.planes:
        if name in criteria:
            counts.append((name, mask.bit_count()))
            lost |= mask
    text = f"{found.total - lost.bit_count()} of {found.total} queues pass {what}"
    return JobStep(
        step,
        lost != found.full or not found.total,
        f"{text} ({excluded(counts)})" if counts else text,
        facts.age(facts.policy.loaded_at),
        ruled_out_by=[QueuesExcluded(criterion=name, queues=n) for name, n in counts],
    )


def closings_step(found: Sequence[tuple[Closing, int]], eligible: int, *, may_run: bool) -> JobStep:
    """How many of the eligible queues are closed, by whom, why and since when. `may_run`: a pilot that is there can."""
    closed = 0
    for _, mask in found:
        closed |= mask
    count, total = closed.bit_count(), eligible.bit_count()
    shown, more = found[:_SHOWN], max(0, len(found) - _SHOWN)
    parts = [f"{one.path} is {one.text} ({counted(mask.bit_count(), 'queue')})" for one, mask in shown]
    parts += [f"and {more} more"] if more else []
    text = f"{count} of {counted(total, 'eligible queue')} closed by administrators"
    return JobStep(
        "site_mask",
        may_run or not total or count < total,
        f"{text}: {'; '.join(parts)}" if parts else text,
        0.0,
        queues=count,
        closings=[ClosedQueues(**asdict(one), queues=mask.bit_count()) for one, mask in shown],
        more=more,
    )


def _limits(facts: JobFacts) -> JobStep:
    held = facts.held
    if held is None:
        return JobStep("limits", True, "nothing holds it, and no limits are configured", limits=[])
    who = "no queue could run it" if held.by == "impossible" else f"{held.name or 'a user'} holds it"
    text = f"Held for {span(held.seconds)}: {who}"
    return JobStep("limits", False, text, held.seconds, limits=[held])


def _turn(facts: JobFacts, share: JobShare) -> JobStep:
    position = facts.position
    ahead = f"at least {position.ahead}" if position.more_ahead else f"{position.ahead}"
    text = f"{ahead} of {position.waiting} jobs of its task queue are before it"
    if share.part is not None:
        others = share.groups_waiting - 1
        beside = f"beside {counted(others, 'other group')}" if others else "since no other group competes"
        text += f"; group {share.group} has {share.part:.0%} of the starts, {beside}"
    return JobStep("share", True, text, facts.age(facts.snapshot.at))


def _pilots(pilots: JobPilots) -> str:
    silent = f"; {pilots.silent} more could but are silent" if pilots.silent else ""
    return (
        f"{pilots.live} pilots of its VO live, of which can take it: {pilots.usable_idle} idle, "
        f"{pilots.usable_busy} busy, {pilots.usable_waiting} on their way{silent}"
    )


def _gates(facts: JobFacts) -> JobStep:
    """Where a pilot could be sent: the free capacity of the eligible queues, and what closes them."""
    at = facts.age(facts.snapshot.decided_at)
    if facts.capacity is None:
        text = f"the director has not decided anything {recently(at)}"
        return JobStep("gates", None, text, at, closed=[])
    open_here = facts.open_here.bit_count()
    text = f"{open_here} of {facts.eligible.bit_count()} eligible queues have free capacity for a pilot"
    closed = _closed(facts)
    if closed:
        text += f"; {closed[0].queues} closed because {closed[0].text}"
    seconds, source = _oldest_load(facts, facts.eligible)
    text += "" if seconds is None else f"; load reported by {source} {span(seconds)} ago"
    text += f"; no submission pool takes its pilots: {facts.refusals}" if facts.refusals else ""
    holds = bool(open_here) and not facts.refusals
    return JobStep("gates", holds, text, at, closed=closed)


def _closed(facts: JobFacts) -> list[ClosedGate]:
    """What closes the eligible queues: limits of the director, breakers among them, commonest first."""
    queues, closed = facts.exclusions.config.table.queues, []
    for gate, mask in facts.gates[:_SHOWN]:
        seconds, source = _oldest_load(facts, mask)
        closed.append(
            ClosedGate(
                gate=gate.name,
                text=gate.text,
                queues=mask.bit_count(),
                example="/".join(queues[next(bits(mask))]),
                load_seconds_ago=seconds,
                load_source=source,
            )
        )
    return closed


def _oldest_load(facts: JobFacts, queues: int) -> tuple[float | None, str | None]:
    """The age and the source of the oldest load of these queues that the director went by."""
    found = None if facts.capacity is None else facts.capacity.oldest_load(queues)
    return (None, None) if found is None else (facts.age(found[0]), found[1])


# --- the parts of the answer -----------------------------------------------------------------------------


def _who(facts: JobFacts, reason: MainReason) -> str:
    closings = [one for one, _ in facts.closings]
    if reason is MainReason.HELD and facts.held is not None and facts.held.by == "impossible":
        return f"{NO_ACTION}: the next refresh releases it"
    if reason is MainReason.CLOSED:
        return who_opens((), closings)
    if reason is MainReason.NO_ROOM:
        return who_opens((gate.name for gate, _ in facts.gates), closings)
    if reason is MainReason.NO_SUBMISSION_POOL and _names_unknown_pools(facts):
        return "you, by naming other submission pools; or the server administrator, by configuring them"
    return WHO[reason]


def _names_unknown_pools(facts: JobFacts) -> bool:
    """Whether there are no submission pools of the names that the job gives."""
    refusals = () if facts.decision is None else facts.decision.refusals(facts.task_queue)
    named = bool(facts.exclusions.key.submission_pools)
    return named and all(outcome == PoolOutcome.UNKNOWN for _, outcome in refusals)


def _summary(facts: JobFacts, reason: MainReason) -> str:
    found, pilots = facts.exclusions, facts.pilots
    queues = f"{facts.eligible.bit_count()} of {found.total} queues can run it"
    match reason:
        case MainReason.IMPOSSIBLE:
            return sentence(never_text(found))
        case MainReason.HELD:
            return _held(facts, queues)
        case MainReason.CLOSED:
            closings = "; ".join(f"{one.path} is {one.text}" for one, _ in facts.closings[:2])
            more = f", but no pilot is there and all of them are closed: {closings}"
        case MainReason.NOT_DECIDED:
            ago = recently(facts.age(facts.snapshot.decided_at))
            more = f", but no pilot is there and the director has not decided anything {ago}"
        case MainReason.DIRECTOR_OFF:
            more = ", but no pilot is there and the director sends none: its target is 0 pilots"
        case MainReason.NO_SUBMISSION_POOL:
            more = f", but no pilot is there and no submission pool takes any for it: {facts.refusals}"
        case MainReason.NO_ROOM:
            closed = "; ".join(f"{one.text} ({one.queues} queues)" for one in _closed(facts)[:2])
            more = f", but no pilot is there and none may be sent now: {closed}"
        case MainReason.PILOTS_BUSY:
            busy = (
                "a running pilot"
                if pilots.usable_busy == 1
                else f"one of {pilots.usable_busy} running pilots"
            )
            more = f", but no pilot is free and none may be sent now; {busy} may take it when its job ends"
        case MainReason.PILOT_EXPECTED:
            more = "; the director may send pilots there and is expected to"
        case _:
            more = (
                f"; {pilots.usable_idle} idle and {pilots.usable_busy} busy pilots can take it, "
                f"{pilots.usable_waiting} more are on their way"
            )
    return f"{queues}{more}."


def _held(facts: JobFacts, queues: str) -> str:
    held = facts.held
    assert held is not None  # noqa: S101
    if held.by == "impossible":
        return f"{queues} now; the next refresh releases it."
    why = f": {held.reason}" if held.reason else ""
    return f"{held.name or 'A user'} holds it{why}. Release it to let it run."


def _share(facts: JobFacts) -> JobShare:
    """The part of the starts that a group may expect beside the groups of its VO with waiting jobs; where that is known,
    only beside those whose jobs can run where this one can.
    """
    key, competing = facts.exclusions.key, facts.competing
    groups = {group for (vo, group), waiting in facts.snapshot.groups.items() if vo == key.vo and waiting}
    if competing is not None:
        groups = {group for group in groups if competing.get(group, 0) & facts.eligible}
    groups.add(key.group)
    shares = {group: facts.policy.share_of(group) for group in groups}
    return JobShare(
        group=key.group,
        share=shares[key.group],
        of=sum(max(0.0, share) for share in shares.values()),
        part=parts_of(groups, facts.policy.shares())[key.group] or None,
        groups_waiting=len(groups),
        in_its_queues=competing is not None,
    )


def _director(facts: JobFacts) -> JobDirector:
    at, decision = facts.age(facts.snapshot.decided_at), facts.decision
    if decision is None or facts.capacity is None:
        lines = [f"The director has not decided anything {recently(at)}."]
        return JobDirector(decided_seconds_ago=at, lines=lines, room=None)
    lines = list(decision.lines(facts.task_queue))
    return JobDirector(decided_seconds_ago=at, lines=lines, room=facts.capacity.pilots(facts.open_here))
