"""`lode why JOB`: the steps from a job to a pilot, by the predicates of submission and claim."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

from msgspec.structs import replace

from lodesman.decide.explain import verdict
from lodesman.decide.explain.actors import who_changes_job
from lodesman.decide.explain.closing import closings_named, closings_step, closings_text, kept_slots_text
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.verdict import ago, chain_of, counted, excluded, lasting, sentence, some_of
from lodesman.decide.masks.bits import bits, passing
from lodesman.decide.matching.offers import CAUSES, PRIVATE_ONLY
from lodesman.decide.submission import never_text
from lodesman.wire import why_jobs as answers
from lodesman.wire.nodes import QueuesExcluded
from lodesman.wire.quotas import FullBucket
from lodesman.wire.vocabulary import ClampName, MainReason
from lodesman.wire.why_jobs import JobStep

_SHOWN: Final = 5
_CriteriaStep = Literal["requirements", "site", "platform", "size", "sending"]
_SUMMARIES: Final[Mapping[MainReason, str]] = {
    MainReason.CLOSED: ", but {closings}",
    MainReason.NOT_DECIDED: ", but no pilot is there and {undecided}",
    MainReason.DIRECTOR_OFF: ", but no pilot is there and the director sends none: its target is 0 pilots",
    MainReason.NO_SUBMISSION_POOL: ", but no pilot is there and no submission pool takes any for it: {refusals}",
    MainReason.NO_ROOM: ", but no pilot is there and none may be sent now: {gates}",
    MainReason.SITE_GATE: ", but no pilot is there and the sites take none now: {sites}",
    MainReason.QUEUED: ", but about {before} before it{start}",
    MainReason.PILOTS_BUSY: ", but no pilot is free; {busy} may take it when its job ends{start}",
    MainReason.NO_PILOT_SOON: ", but no pilot is expected there within a minute; {coming} on their way{start}",
    MainReason.PILOTS_FAIL: ", but pilots do not start there: {failing}",
    MainReason.NODE_FAULT: ", but pilots leave there, since their nodes are of no use: {failing}",
    MainReason.UNREACHED: ", but its pilots do not reach this server: {unreached}",
    MainReason.HOST_SHUT: ", but hosts of its pilots get no jobs: {shut}",
    MainReason.PILOT_EXPECTED: "; the director may send pilots there and is expected to",
}
"""Follows the number of queues that can run it; _PILOTS_COME for other reasons."""
_PILOTS_COME: Final = (
    "; {pilots.usable_idle} idle and {pilots.usable_busy} busy pilots can take it, "
    "{pilots.usable_waiting} more are on their way"
)


def explain_job(facts: JobFacts) -> answers.JobExplained:
    """Why a job waits or is Held."""
    reason, load = facts.reason, _oldest_load(facts, facts.eligible)
    at = facts.age(facts.snapshot.at) or 0.0
    return answers.JobExplained(
        verdict=verdict.verdict_of(reason),
        main_reason=reason,
        summary=verdict.with_fault(_summary(facts, reason), facts.server_fault),
        who=who_changes_job(facts),
        chain=_chain(facts),
        queues=facts.exclusions.summary(),
        share=facts.share,
        turn=_job_turn(facts),
        pilots=facts.pilots,
        director=_director(facts),
        ages=answers.JobAges(
            configuration=facts.age(facts.policy.loaded_at), pilots=at, groups=at,
            submit_pool=facts.age(facts.evaluated_at), director=facts.decided_age, load=load[0],
        ),
    )  # fmt: skip


def _chain(facts: JobFacts) -> list[JobStep]:
    steps = (
        _job_class, _server, _access, _requirements, _submit_pool, _site, _site_mask, _platform, _size, _sending,
        _limits, _turn, _pilots, _site_gates, _gates,
    )  # fmt: skip
    return chain_of(facts, steps)


def _job_class(facts: JobFacts) -> JobStep:
    key = facts.exclusions.key
    made_of = f"it was made of job class {key.job_class}.{key.variant or 'default'}"
    return JobStep("class", True, made_of if key.job_class else "it has no job class")


def _server(facts: JobFacts) -> JobStep | None:
    return JobStep("server", False, facts.server_fault) if facts.server_fault else None


def _access(facts: JobFacts) -> JobStep:
    exclusions, age = facts.exclusions, facts.age(facts.policy.loaded_at)
    key, total, queues = exclusions.key, exclusions.total, len(exclusions.config.table.queues)
    text = f"{key.owner} of group {key.group}, VO {key.vo}, may use {total} of {counted(queues, 'configured queue')}"
    return JobStep("access", total > 0, text, age, queues=queues, admitting=total)


def _requirements(facts: JobFacts) -> JobStep:
    if not facts.exclusions.key.submit_pool:
        return JobStep("requirements", True, "it has no Requirements")
    names = tuple(name for name, _ in facts.exclusions.planes if name.startswith("Requirements"))
    step = _criteria(facts, "requirements", names, "its Requirements")
    return replace(step, text=step.text + _left_to_broker(facts))


def _submit_pool(facts: JobFacts) -> JobStep | None:
    pool, count = facts.exclusions.key.submit_pool, facts.served
    if not pool:
        return None
    if facts.evaluated_at is None:
        text = (
            f"the queues that serve SubmitPool {pool} are not known before the next refresh{_excluded(facts)}"
        )
        return JobStep("submit_pool", None, text, None, pool=pool, queues=None)
    text = f"SubmitPool {pool} is served by {counted(count, 'queue')}{_excluded(facts)}"
    return JobStep("submit_pool", count > 0, text, facts.age(facts.evaluated_at), pool=pool, queues=count)


def _site_mask(facts: JobFacts) -> JobStep:
    return closings_step(
        facts.closings,
        facts.eligible,
        may_run=facts.pilots.any_usable and not facts.is_kept,
        now=facts.now,
        minutes=facts.shorter_minutes,
    )


def _pilots(facts: JobFacts) -> JobStep:
    pilots = facts.pilots
    others = (
        (pilots.silent, "could but are silent"),
        (pilots.shut, "could but their hosts are shut"),
        (pilots.limited, "could but a limit keeps it from starting there"),
        (pilots.unreached, "run and have not reached this server"),
    )
    text = (
        f"{counted(pilots.live, 'live pilot')} of its VO, of which can take it: {pilots.usable_idle} idle, "
        f"{pilots.usable_busy} busy, {pilots.usable_waiting} on their way"
        f"{''.join(f'; {count} of them {words}' for count, words in others if count)}; "
        f"what is free of them takes {counted(pilots.free_starts, 'such job')}, "
        f"those expected within a minute {pilots.soon_starts}"
    )
    return JobStep("pilots", pilots.any_usable, text, facts.age(facts.snapshot.at))


def _excluded(facts: JobFacts) -> str:
    unfit = facts.eligible & ~facts.fitting
    if not unfit:
        return ""
    return f"; what their sites advertise excludes {counted(unfit.bit_count(), 'queue')}: {_misfits(facts)}"


def _misfits(facts: JobFacts) -> str:
    return some_of([text for text, mask in facts.misfits if mask & facts.eligible], _SHOWN)


def _left_to_broker(facts: JobFacts) -> str:
    """Clauses of Requirements that sites' ads decide, for queues that pass all else."""
    exclusions = facts.exclusions
    clauses = [
        clause
        for clause in exclusions.config.table.placement(exclusions.criteria)
        if clause.queues & exclusions.eligible
    ]
    texts = list(dict.fromkeys(clause.text for clause in clauses))
    return f"; the ad of the queue's site decides: {some_of(texts, _SHOWN, ', ')}" if texts else ""


def _criteria(facts: JobFacts, step: _CriteriaStep, criteria: tuple[str, ...], label: str = "") -> JobStep:
    exclusions = facts.exclusions
    lost = [(name, mask) for name, mask in exclusions.planes if name in criteria]
    left = passing(lost, exclusions.full)
    counts = [(name, mask.bit_count()) for name, mask in lost]
    text = f"{left.bit_count()} of {counted(exclusions.total, 'queue')} pass {label or ', '.join(criteria)}"
    return JobStep(
        step,
        bool(left) or not exclusions.total,
        f"{text} ({excluded(counts)})" if counts else text,
        facts.age(facts.policy.loaded_at),
        ruled_out_by=[QueuesExcluded(criterion=name, queues=n) for name, n in counts],
    )


_site = partial(_criteria, step="site", criteria=("Site", "BannedSite", "GridCE"))
_platform = partial(
    _criteria, step="platform", criteria=("JobClass", "Platform", "Tag", "RequiredTag", "JobType")
)
_size = partial(_criteria, step="size", criteria=("NumberOfProcessors", "Memory", "CPUTime"))
_sending = partial(_criteria, step="sending", criteria=(*CAUSES, PRIVATE_ONLY.parameter))


def _limits(facts: JobFacts) -> JobStep:
    held, full = facts.held, facts.limits.buckets
    if held is not None:
        who = f"{held.name} holds it" if held.name else held.reason or "a user holds it"
        text = f"Held{lasting(held.seconds)}: {'no queue could run it' if held.by == 'impossible' else who}"
        return JobStep("limits", False, text, held.seconds, limits=[held])
    words = [_full(bucket, facts) for bucket in full]
    if facts.is_behind:
        text = "; ".join([f"it waits {facts.behind}", *words])
        return JobStep("limits", False, text, limits=[], full=full)
    text = "; ".join(words) or "nothing holds it, and no limit is in its way"
    if full and not facts.limits.everywhere:
        text += " (elsewhere, or on hosts that are not known yet, it is free)"
    return JobStep("limits", not facts.limits.everywhere, text, limits=[], full=full)


def _full(bucket: FullBucket, facts: JobFacts) -> str:
    """The duration is a lower bound: others may have filled the limit before."""
    seconds = None if bucket.since is None else facts.age(bucket.since)
    words = lasting(seconds or 0.0, "at least ")
    return f"{bucket.text}; full{words}" if words else bucket.text


def _turn(facts: JobFacts) -> JobStep:
    turn, share = facts.turn, facts.share
    ahead = counted(turn.ahead, "job") if turn.ahead else "no job"
    ahead = f"at least {ahead}" if facts.more_ahead else ahead
    text = f"{ahead} of its task queue {'is' if turn.ahead < 2 else 'are'} before it"
    text += f", of {facts.waiting:,} that wait" if facts.waiting > max(1, turn.ahead) else ""
    if share.part is not None:
        others = share.groups_waiting - 1
        beside = f"beside {counted(others, 'other group')}" if others else "since no other group competes"
        corrected = "" if facts.policy.usage is None else " (its share corrected by usage)"
        text += f"; group {share.group}{corrected} has {share.part:.0%} of the starts, {beside}"
    text += "" if turn.part == 1.0 else f", its task queue {turn.part:.2g} of them"
    return JobStep("share", facts.reason is not MainReason.QUEUED, text, facts.age(facts.snapshot.at))


def _gates(facts: JobFacts) -> JobStep:
    at = facts.decided_age
    if facts.capacity is None:
        return JobStep("gates", None, facts.undecided(), at, closed=[])
    open_here, eligible, closed = facts.open_here.bit_count(), facts.eligible.bit_count(), _closed(facts)
    text = f"free capacity for a pilot in {open_here} of {counted(eligible, 'eligible queue')}"
    text += f"; no capacity in {counted(closed[0].queues, 'queue')}: {closed[0].text}" if closed else ""
    seconds, source = _oldest_load(facts, facts.eligible)
    text += "" if seconds is None else f"; load reported by {source} {ago(seconds)}"
    text += f"; no submission pool takes its pilots: {facts.refusals_text}" if facts.refusals else ""
    if facts.failing and facts.reason not in (MainReason.PILOTS_FAIL, MainReason.NODE_FAULT):
        text += f"; {facts.failing_text}"
    return JobStep("gates", bool(open_here) and not facts.refusals, text, at, closed=closed)


def _site_gates(facts: JobFacts) -> JobStep:
    if facts.capacity is None:
        return JobStep("site_gates", None, facts.undecided(), facts.decided_age)
    shut, words = facts.gated & facts.eligible, _sites(facts)
    queues = counted(facts.eligible.bit_count(), "eligible queue")
    text = f"{shut.bit_count()} of {queues} shut by the gates of their sites"
    return JobStep(
        "site_gates",
        not facts.eligible or bool(facts.eligible & ~shut),
        f"{text}: {words}" if words else text,
        facts.decided_age,
        queues=shut.bit_count(),
    )


def _sites(facts: JobFacts) -> str:
    gates = [(gate, mask) for gate, mask in facts.gates if gate.name == ClampName.SITE_GATE]
    words = [f"{gate.text} ({counted(mask.bit_count(), 'queue')})" for gate, mask in gates[:_SHOWN]]
    misfits = _misfits(facts)
    return "; ".join([*words, *([misfits] if misfits else facts.unmatched)])


def _closed(facts: JobFacts) -> list[answers.ClosedGate]:
    queues, closed = facts.exclusions.config.table.queues, []
    for gate, mask in facts.gates[:_SHOWN]:
        example = "/".join(queues[next(bits(mask))])
        closed.append(answers.ClosedGate(*gate, mask.bit_count(), example, *_oldest_load(facts, mask)))
    return closed


def _oldest_load(facts: JobFacts, queues: int) -> tuple[float | None, str | None]:
    """Age and source."""
    load = None if facts.capacity is None else facts.capacity.oldest_load(queues)
    return (None, None) if load is None else (facts.age(load[0]), load[1])


def _summary(facts: JobFacts, reason: MainReason) -> str:
    queues = f"{facts.eligible.bit_count()} of {counted(facts.exclusions.total, 'queue')} can run it"
    held, busy = facts.held, facts.pilots.usable_busy
    if reason is MainReason.IMPOSSIBLE:
        return sentence(never_text(facts.exclusions))
    if held is not None:
        if held.by == "impossible":
            return f"{queues} now; the next refresh releases it."
        why = f": {held.reason.rstrip('.')}" if held.reason else ""
        if held.by == "admin":
            return f"{held.name or 'An administrator'} holds it{why}. Only an administrator releases it."
        who = "It is held" if held.reason and not held.name else f"{held.name or 'A user'} holds it"
        return f"{who}{why}. Release it to let it run."
    if facts.waits_for:
        return f"{queues}, and it {facts.waits_for}{facts.start_text and f'; {facts.start_text}'}."
    text = _SUMMARIES.get(reason, _PILOTS_COME).format(
        pilots=facts.pilots,
        closings=_closings(facts),
        gates="; ".join(f"{gate.text} ({counted(gate.queues, 'queue')})" for gate in _closed(facts)[:2]),
        refusals=facts.refusals_text,
        failing=facts.failing_text,
        unreached=facts.unreached_text,
        shut=facts.shut_hosts.text(facts.exclusions.config, facts.eligible, facts.now),
        sites=_sites(facts),
        undecided=facts.undecided(),
        before="1 job is" if facts.turn.before == 1 else f"{facts.turn.before:,} jobs are",
        coming=f"{facts.pilots.usable_waiting or 'none'} {'is' if facts.pilots.usable_waiting < 2 else 'are'}",
        start=_start_text(facts),
        busy="a running pilot" if busy == 1 else f"one of {busy} running pilots",
    )
    return f"{queues}{text}."


def _closings(facts: JobFacts) -> str:
    if facts.is_kept:
        return kept_slots_text(facts.keeping, facts.pilots, facts.now)
    return closings_text((closing for closing, _ in facts.closings), facts.shorter_minutes, facts.now)


def _job_turn(facts: JobFacts) -> answers.JobTurn:
    pilots = facts.pilots
    soon = max(0, facts.turn.allotted(pilots.free_starts + pilots.soon_starts + facts.sendable))
    return answers.JobTurn(facts.turn.before, soon, *facts.slots_here, facts.start)


def _start_text(facts: JobFacts) -> str:
    slots, free = facts.slots_here
    text = (
        f"; of {counted(slots, 'slot')} of these queues {free or 'none'} {'is' if free < 2 else 'are'} free"
    )
    if facts.keeping:
        text += f", and no pilot is sent there: {closings_named(facts.keeping, facts.now)}"
    when = facts.start_text or f"when it starts is not known: {facts.no_estimate}"
    return f"{text if slots else ''}; {when}"


def _director(facts: JobFacts) -> answers.JobDirector:
    at, decision = facts.decided_age, facts.decision
    if decision is None or facts.capacity is None:
        return answers.JobDirector(at, facts.iterated_age, [sentence(facts.undecided())], None)
    lines = list(decision.lines(facts.task_queue))
    return answers.JobDirector(at, facts.iterated_age, lines, facts.capacity.pilots(facts.open_here))
