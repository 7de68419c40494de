"""`lode why PILOT`: the steps from a pilot to a job.

The live index says whether its next claim gets a job; a survey, a little older, counts what excludes task queues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from lodesman.decide.director.hosts import NODE_FAULT
from lodesman.decide.explain.actors import (
    OF_PILOTS,
    who_changes_pilot,
)
from lodesman.decide.explain.closing import shut_text
from lodesman.decide.explain.pilot_facts import PilotCase, PilotFacts, judge_pilot
from lodesman.decide.explain.survey import ruled_out, suggestion
from lodesman.decide.explain.verdict import chain_of, counted, sentence, since, span
from lodesman.decide.matching import ANY
from lodesman.decide.resources import MANUAL
from lodesman.decide.resources.settings import without_processor_tags
from lodesman.wire import why_pilots as answers
from lodesman.wire.pilots import StoredPilot
from lodesman.wire.vocabulary import MainReason, PilotState, PilotVerdict
from lodesman.wire.why_pilots import Amounts, PilotStep, PilotWhy

_SHOWN: Final = 5
_MOST_POOLS: Final = 100
_SUMMARIES: Final = {
    PilotVerdict.DRAINING: "It finishes its jobs and leaves{drain}",
    PilotVerdict.BOUND: "It runs job {job} and no other{waits}",
    PilotVerdict.NOT_CONFIGURED: "Its queue is not configured any more, or not for its VO: no job may run there",
    PilotVerdict.HOST_SHUT: "{shut}",
    PilotVerdict.FULL: "It has {jobs} and no core free",
    PilotVerdict.WOULD_GET: "What it has free fits {fits}: it gets a job{when}",
    PilotVerdict.NOTHING_WAITS: "No job of VO {vo} waits",
    PilotVerdict.WAITS_FOR_JOBS: "All that fits waits for other jobs",
    PilotVerdict.LIMITED: "All that fits is limited: {limits}",
    PilotVerdict.NOTHING_FITS: "No task queue of {of_vo} fits what it has free{lost}{suggestion}{closings}",
}


def explain_pilot(case: PilotCase) -> PilotWhy:
    """Why a live pilot gets nothing, or what it gets."""
    facts, now, chances = case.facts, case.now, case.now.chances
    verdict, pools = judge_pilot(facts, now), now.request.submit_pools
    offered = msgspec.to_builtins(replace(now.request, submit_pools=()))
    del offered["submit_pools"], offered["pools_version"]
    return msgspec.structs.replace(
        _answer(facts, verdict, _summary(case, verdict)),
        who=who_changes_pilot(case, verdict),
        chain=_chain(case),
        offer=answers.PilotOffer(**offered, whole=now.whole, free=now.free, free_by=now.free_by),
        asked=answers.PilotAsked(since(now.asked_at, now.at), now.asked_jobs, since(now.waits_since, now.at)),
        now=answers.PilotChances(
            task_queues=chances.of_vo,
            elsewhere=chances.elsewhere,
            eligible=chances.eligible,
            limited=dict(chances.blocked),
            submit_pools=len(pools),
            first_submit_pools=list(pools[:_MOST_POOLS]),
        ),
        task_queues=case.work,
        ages=answers.PilotAges(now=0.0, task_queues=case.surveyed, heard=now.silent_seconds),
    )


def explain_ended(facts: PilotFacts, at: float) -> PilotWhy:
    """How a pilot ended."""
    row = facts.row
    ago = since(row.ended_at, at)
    when = "" if ago is None else f" {span(ago)} ago"
    how = f"{row.state}: {row.reason}" if row.reason else row.state
    summary = f"It ended{when} ({how}) after {counted(row.jobs_done, 'job')}."
    answer = _answer(facts, PilotVerdict.ENDED, summary)
    who = "the site administrator, by mending the node" if row.reason.startswith(NODE_FAULT) else answer.who
    return msgspec.structs.replace(answer, who=who)


def _answer(facts: PilotFacts, verdict: PilotVerdict, summary: str) -> PilotWhy:
    row, jobs = facts.row, len(facts.promised)
    waiting = row.state in (PilotState.PREPARED, PilotState.SUBMITTED)
    summary += " What is stored of its node is damaged." if facts.is_damaged else ""
    standing = "draining" if row.drain else "on its way" if waiting else "busy" if jobs else "idle"
    return PilotWhy(
        **{name: getattr(row, name) for name in StoredPilot.__struct_fields__},
        drain_reason=facts.drain_reason,
        standing="ended" if verdict is PilotVerdict.ENDED else standing,  # type: ignore[arg-type]
        jobs_now=jobs,
        verdict=verdict,
        summary=summary,
        who=OF_PILOTS[verdict],
        chain=[],
    )


def _chain(case: PilotCase) -> list[PilotStep]:
    steps = (_life, _host, _asks, _serves, _offers, _submit_pools, _waiting, _fits, _limits, _share)
    return chain_of(case, steps)


def _life(case: PilotCase) -> PilotStep:
    facts, row, now = case.facts, case.facts.row, case.now
    where = "/".join(filter(None, (row.site, row.ce, row.queue))) or "a queue that it did not name"
    why = f", since {facts.drain_reason}" if facts.drain_reason else ""
    if row.joined_at is None or not now.joined:
        sent = max(0.0, now.at - (row.submitted_at or row.created_at))
        doing = "it is being submitted to" if row.state is PilotState.PREPARED else "it waits in"
        doing = "its file waits to be started for" if row.backend == MANUAL else doing
        when = f"since {span(sent)}"
        if row.host and row.backend != MANUAL:
            doing = f"it runs on {row.host}, from where it has not reached this server; it was sent to"
            when = f"{span(sent)} ago"
        leaves = f"; it will leave at once{why}" if why else ""
        return PilotStep("pilot", False, f"{doing} {where}, {when}{leaves}", sent)
    text = f"it runs in {where}, joined {span(max(0.0, now.at - row.joined_at))} ago"
    if row.drain:
        text += f"; it finishes what it runs and leaves (pilot drain{why})"
        return PilotStep("pilot", False, text)
    text += f"; its last heartbeat was {span(now.silent_seconds or 0.0)} ago" if now.is_silent else ""
    return PilotStep("pilot", not now.is_silent, text, now.silent_seconds)


def _host(case: PilotCase) -> PilotStep | None:
    host, record = case.facts.host, case.facts.shut
    if record is not None:
        text = f"it runs on {host}: {shut_text(record, case.now.at)}"
        return PilotStep("host", False, text, 0.0, record=record)
    if host is not None and host.host:
        return PilotStep("host", True, f"it runs on {host}, which gets jobs", 0.0)
    return None


def _asks(case: PilotCase) -> PilotStep:
    now = case.now
    if now.waits_since is not None:
        text = f"it waits for a job in a long poll, since {span(now.at - now.waits_since)}"
        return PilotStep("asks", True, text, 0.0)
    ago = since(now.asked_at, now.at)
    if ago is None:
        when = "since it joined or the server started" if now.joined else "yet"
        return PilotStep("asks", None if case.facts.promised else False, f"it has not asked {when}")
    text = f"it last asked {span(ago)} ago, for {counted(now.asked_jobs or 0, 'job')}; it does not wait now"
    return PilotStep("asks", None, text, ago)


def _serves(case: PilotCase) -> PilotStep:
    row = case.facts.row
    whose = f"jobs of every group of VO {row.vo}"
    if row.owner:
        whose = f"only jobs of {row.owner}, group {row.group}, VO {row.vo}"
    elif row.group:
        whose = f"only jobs of group {row.group}, VO {row.vo}"
    if row.bound_job is not None:
        whose = f"only job {row.bound_job}, which it is bound to"
    kind = f" ({row.pilot_type} pilot)" if row.pilot_type else ""
    through = f", sent through submission pool {row.submission_pool}" if row.submission_pool else ""
    return PilotStep("serves", True, f"{whose}{kind}{through}")


def _offers(case: PilotCase) -> PilotStep:
    now, request = case.now, case.now.request
    named = bool(request.platforms) and ANY not in request.platforms
    platform = f"platform {', '.join(request.platforms)}" if named else "no platform"
    named_tags = without_processor_tags(request.tags)
    tags = f", tags {', '.join(named_tags)}" if named_tags else ""
    only = f", takes only jobs with tag {', '.join(request.required_tags)}" if request.required_tags else ""
    if request.job_classes is not None:
        only += f", jc_list {', '.join(request.job_classes) or 'lets no job in'}"
    memory = "" if now.whole.memory_mb != 0 else " (its queue declares none)"
    text = f"it offers {_amount(now.whole)}{memory}; {platform}{tags}{only}; free now: {_amount(now.free)}"
    return PilotStep("offers", request.cores > 0, f"{text} ({now.free_by.value})")


def _submit_pools(case: PilotCase) -> PilotStep:
    count, stale = len(case.now.request.submit_pools), case.facts.stale_pools
    # What counts is what its queue serves now; what it presented when it joined is said beside that.
    text = f"its queue serves {counted(count, 'SubmitPool')} now"
    text += f"; of what it presented when it joined, {stale} differed" if stale else ""
    return PilotStep("submit_pools", True, text, 0.0, count=count)


def _waiting(case: PilotCase) -> PilotStep:
    vo, chances = case.now.request.vo, case.now.chances
    text = f"{counted(chances.of_vo, 'task queue')} of VO {vo} have jobs that may be given now"
    text += f" ({chances.elsewhere} of other VOs)" if chances.elsewhere else ""
    return PilotStep("waiting", chances.of_vo > 0, text, 0.0, task_queues=chances.of_vo)


def _fits(case: PilotCase) -> PilotStep:
    work, eligible = case.work, case.now.chances.eligible
    text = f"{eligible} of them fit what is free"
    if work.ruled_out_by:
        text += f"; of {counted(work.task_queues, 'task queue')}, all VOs: {ruled_out(work)}"
    return PilotStep("fits", eligible > 0, text, case.surveyed, eligible=eligible)


def _limits(case: PilotCase) -> PilotStep:
    chances = case.now.chances
    limits = [answers.FullLimit(limit=name, task_queues=n) for name, n in chances.blocked.items()]
    names = ", ".join(f"{_limit(limit.limit)} ({limit.task_queues})" for limit in limits)
    text = f"task queues that would fit are limited: {names}"
    text = text if limits else "no limit keeps a fitting task queue from it"
    return PilotStep("limits", not limits or chances.eligible > 0, text, 0.0, limits=limits)


def _limit(name: str) -> str:
    if name == MainReason.IMPOSSIBLE:
        return "Held, since no configured queue can run it"
    if name == MainReason.WAITS_FOR_JOBS:
        return "waiting for other jobs"
    if name == MainReason.AT_MOST:
        return "waiting until one of their submission ends (AtMost)"
    return name or "a limit is full"


def _share(case: PilotCase) -> PilotStep:
    chances = case.now.chances
    groups = [
        answers.GroupDrawn(group=name, share=case.policy.drawn_share(name), task_queues=n)
        for name, n in (*chances.groups, *chances.without_share)
    ]
    names = ", ".join(group.group for group in groups[: min(_SHOWN, len(chances.groups) or _SHOWN)])
    if chances.groups:
        text = f"its next job is drawn among {counted(len(chances.groups), 'group')} by share: {names}"
    elif chances.without_share:
        text = f"only groups without a share have what fits, and they are served: {names}"
    else:
        text = "no group has anything for it, so shares decide nothing"
    return PilotStep("share", True, text, 0.0, groups=groups)


def _summary(case: PilotCase, verdict: PilotVerdict) -> str:
    facts, now, work = case.facts, case.now, case.work
    if verdict is PilotVerdict.NOT_ASKED and not now.joined:
        return f"It is on its way and has not asked yet: {_life(case).text}."
    text = _SUMMARIES.get(verdict, "{asks}").format(
        drain=f", since {facts.drain_reason}" if facts.drain_reason else "",
        jobs=counted(len(facts.promised), "job"),
        job=facts.row.bound_job,
        waits="" if now.joined else f"; {_life(case).text}",
        fits=counted(now.chances.eligible, "task queue"),
        when="" if now.waits_since is not None else " when it asks",
        vo=now.request.vo,
        shut="" if facts.shut is None else f"Its host, {facts.host}: {shut_text(facts.shut, now.at)}",
        limits=", ".join(map(_limit, now.chances.blocked)),
        of_vo=now.chances.of_vo,
        lost=f": {ruled_out(work)}" if work.ruled_out_by else "",
        suggestion="" if case.closings else suggestion(work),
        closings="".join(f"; {closing.node} is {closing.ahead_text(now.at)}" for closing in case.closings),
        asks=_asks(case).text,
    )
    return sentence(text)


def _amount(free: Amounts) -> str:
    cores = counted(free.cores, "core") if free.cores is not None else "any cores"
    memory = "memory not declared" if free.memory_mb is None else f"{free.memory_mb} MB"
    cpu = "any CPU time" if free.norm_cpu_seconds is None else f"{free.norm_cpu_seconds} s of CPU time"
    return f"{cores}, {memory}, {cpu}"
