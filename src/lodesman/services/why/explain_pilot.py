"""`lode why PILOT`: why a pilot got nothing, or what it would get (user needs 1 and 2).

Whether it would get a job is asked of the live index with the request of its next claim. What refuses the task queues
is counted in the picture, which is a little older: each step tells its age.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from lodesman.answers.vocabulary import PilotState, PilotVerdict
from lodesman.commands.live import IMPOSSIBLE
from lodesman.commands.policy import Policy
from lodesman.commands.sessions import SILENT_SECONDS, UNLIMITED, Free
from lodesman.matching import ANY
from lodesman.services.why.pilot_now import PilotNow
from lodesman.services.why.pilot_verdict import WHO, PilotFacts, judge_pilot
from lodesman.services.why.step import amount, counted, since, span, step
from lodesman.store.pilots import PilotRow
from lodesman.why.survey import Survey

SHOWN: Final = 5
MOST_POOLS: Final = 100
SAID: Final = {
    PilotVerdict.DRAINING: "It was told to finish what it runs and to leave.",
    PilotVerdict.SHUT_OUT: "Its queue is not configured any more, or not for its VO: no job may run there.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PilotCase:
    """A live pilot held against the world; `survey` is as of `surveyed_at`."""

    facts: PilotFacts
    now: PilotNow
    survey: Survey
    surveyed_at: float | None
    policy: Policy

    @property
    def free(self) -> Free:
        """What a claim would say it has free."""
        request = self.now.request
        return Free(request.cores, request.memory_mb, request.norm_cpu_seconds)


def explain_pilot(case: PilotCase) -> dict[str, Any]:
    """The whole answer for a live pilot as JSON values."""
    facts, now = case.facts, case.now
    verdict = judge_pilot(facts, now)
    return {
        **_identity(facts),
        "verdict": verdict.value,
        "summary": _summary(case, verdict),
        "who": _who(case, verdict),
        "chain": list(_chain(case)),
        "offer": _offer(case),
        "asked": _asked(case),
        "now": _now(case),
        "task_queues": case.survey.as_dict(),
        "ages": {
            "now": 0.0,
            "task_queues": since(case.surveyed_at, now.at),
            "heard": now.silent_seconds,
        },
    }


def explain_ended(facts: PilotFacts, at: float) -> dict[str, Any]:
    """The answer for a pilot that is gone."""
    row = facts.row
    ago = since(row.ended_at, at)
    when = "" if ago is None else f" {span(ago)} ago"
    return {
        **_identity(facts),
        "verdict": PilotVerdict.ENDED.value,
        "summary": f"It ended{when} ({row.state}{f': {row.reason}' if row.reason else ''}) "
        f"after {counted(row.jobs_done, 'job')}.",
        "who": WHO[PilotVerdict.ENDED],
        "chain": [],
    }


def _identity(facts: PilotFacts) -> dict[str, Any]:
    row = facts.row
    return {
        "id": row.id,
        "stamp": row.stamp,
        "state": row.state.value,
        "standing": facts.standing,
        "reason": row.reason,
        "drain_reason": row.drain_reason,
        "site": row.site,
        "ce": row.ce,
        "queue": row.queue,
        "native_id": row.native_id,
        "vo": row.vo,
        "owner": row.owner,
        "group": row.group,
        "pilot_type": row.pilot_type,
        "submission_pool": row.submission_pool,
        "jobs_done": row.jobs_done,
        "jobs_now": len(facts.running),
    }


# --- the steps -------------------------------------------------------------------------------------------


def _chain(case: PilotCase) -> Iterator[dict[str, Any]]:
    yield _life(case)
    yield _asks(case)
    yield step("serves", True, _serves(case.facts.row))
    yield _offers(case)
    yield _pools(case)
    yield _waiting(case)
    yield _fits(case)
    yield _limits(case)
    yield _share(case)


def _pools(case: PilotCase) -> dict[str, Any]:
    """What counts is what its queue serves now; what it presented when it joined is told beside that."""
    count = len(case.now.request.submit_pools)
    text = f"its queue serves {counted(count, 'SubmitPool')} now"
    told = msgspec.json.decode(case.facts.row.node).get("submit_pools")
    stale = told.get("stale") if isinstance(told, dict) else None
    if stale:
        text += f"; of what it presented when it joined, {stale} differed"
    return step("submit_pools", True, text, count=count, age_seconds=0.0)


def _life(case: PilotCase) -> dict[str, Any]:
    row, now = case.facts.row, case.now
    where = "/".join(filter(None, (row.site, row.ce, row.queue))) or "a queue that it did not name"
    if not now.joined:
        sent = since(row.submitted_at or row.created_at, now.at) or 0.0
        what = "it is being submitted to" if row.state is PilotState.PREPARED else "it waits in"
        leaves = f"; it will leave at once, since {row.drain_reason}" if row.drain_reason else ""
        return step("pilot", False, f"{what} {where}, since {span(sent)}{leaves}", age_seconds=sent)
    text = f"it runs in {where}, joined {span(since(row.joined_at, now.at) or 0.0)} ago"
    if row.drain:
        why = f", since {row.drain_reason}" if row.drain_reason else ""
        return step("pilot", False, f"{text}; it finishes what it runs and leaves (pilot drain{why})")
    silent = now.silent_seconds or 0.0
    if silent > SILENT_SECONDS:
        text += f"; it was not heard for {span(silent)}"
    return step("pilot", silent <= SILENT_SECONDS, text, age_seconds=now.silent_seconds)


def _asks(case: PilotCase) -> dict[str, Any]:
    now = case.now
    if now.waits_since is not None:
        waits = now.at - now.waits_since
        return step("asks", True, f"it waits for a job in a long poll, since {span(waits)}", age_seconds=0.0)
    if now.asked is None:
        what = "since it joined or the server started" if now.joined else "yet"
        return step("asks", False if not case.facts.running else None, f"it has not asked {what}")
    ago = max(0.0, now.at - now.asked.at)
    text = f"it last asked {span(ago)} ago, for {counted(now.asked.jobs, 'job')}; it does not wait now"
    return step("asks", None, text, age_seconds=ago)


def _serves(row: PilotRow) -> str:
    whose = f"jobs of every group of VO {row.vo}"
    if row.owner:
        whose = f"only jobs of {row.owner}, group {row.group}, VO {row.vo}"
    elif row.group:
        whose = f"only jobs of group {row.group}, VO {row.vo}"
    kind = f" ({row.pilot_type} pilot)" if row.pilot_type else ""
    through = f", sent through submission pool {row.submission_pool}" if row.submission_pool else ""
    return f"{whose}{kind}{through}"


def _offers(case: PilotCase) -> dict[str, Any]:
    now, request = case.now, case.now.request
    platforms = () if ANY in request.platforms else request.platforms
    platform = f"platform {', '.join(platforms)}" if platforms else "no platform"
    tags = f", tags {', '.join(request.tags)}" if request.tags else ""
    only = f", takes only jobs with tag {', '.join(request.required_tags)}" if request.required_tags else ""
    memory = "" if now.whole.memory_mb else " (its queue declares none)"
    text = f"it offers {amount(now.whole)}{memory}; {platform}{tags}{only}; free now: {amount(case.free)}"
    return step("offers", request.cores > 0, f"{text} ({now.free_by.value})")


def _waiting(case: PilotCase) -> dict[str, Any]:
    chances, vo = case.now.chances, case.now.request.vo
    text = f"{counted(chances.of_vo, 'task queue')} of VO {vo} have jobs that may be given now"
    if chances.elsewhere:
        text += f" ({chances.elsewhere} of other VOs)"
    return step("waiting", chances.of_vo > 0, text, task_queues=chances.of_vo, age_seconds=0.0)


def _fits(case: PilotCase) -> dict[str, Any]:
    eligible, survey = case.now.chances.eligible, case.survey
    text = f"{eligible} of them fit what is free"
    if survey.refused:
        text += f"; of {counted(survey.known, 'task queue')}, all VOs: {_told(survey)}"
    age = since(case.surveyed_at, case.now.at)
    return step("fits", eligible > 0, text, eligible=eligible, age_seconds=age)


def _told(survey: Survey) -> str:
    return ", ".join(f"{name} rules out {n}" for name, n in survey.refused[:SHOWN])


def _limits(case: PilotCase) -> dict[str, Any]:
    blocked = case.now.chances.blocked
    if not blocked:
        return step("limits", True, "no limit keeps a fitting task queue from it", limits=[], age_seconds=0.0)
    told = ", ".join(f"{_limit(name)} ({n})" for name, n in blocked.items())
    limits = [{"limit": name, "task_queues": n} for name, n in blocked.items()]
    holds = case.now.chances.eligible > 0
    return step(
        "limits", holds, f"task queues that would fit are limited: {told}", limits=limits, age_seconds=0.0
    )


def _limit(name: str) -> str:
    return "Held, since no configured queue can run it" if name == IMPOSSIBLE else name or "a limit is full"


def _share(case: PilotCase) -> dict[str, Any]:
    chances = case.now.chances
    groups = [
        {"group": name, "share": case.policy.share_of(name), "task_queues": n}
        for name, n in (*chances.groups, *chances.without_share)
    ]
    if chances.groups:
        names = ", ".join(name for name, _ in chances.groups[:SHOWN])
        text = f"its next job is drawn among {counted(len(chances.groups), 'group')} by share: {names}"
    elif chances.without_share:
        names = ", ".join(name for name, _ in chances.without_share[:SHOWN])
        text = f"only groups without a share have what fits, and they are served: {names}"
    else:
        text = "no group has anything for it, so shares decide nothing"
    return step("share", True, text, groups=groups, age_seconds=0.0)


# --- the parts of the answer -----------------------------------------------------------------------------


def _summary(case: PilotCase, verdict: PilotVerdict) -> str:
    now, survey = case.now, case.survey
    match verdict:
        case PilotVerdict.DRAINING | PilotVerdict.SHUT_OUT:
            closed = case.facts.row.drain_reason if verdict is PilotVerdict.DRAINING else ""
            return f"{SAID[verdict][:-1]}, since {closed}." if closed else SAID[verdict]
        case PilotVerdict.NOT_ASKED if not now.joined:
            return f"It is on its way and has not asked yet: {_life(case)['text']}."
        case PilotVerdict.NOT_ASKED:
            text = _asks(case)["text"]
            return f"{text[0].upper()}{text[1:]}."
        case PilotVerdict.FULL:
            return f"It has {counted(len(case.facts.running), 'job')} and no core free."
        case PilotVerdict.WOULD_GET:
            when = "" if now.waits_since is not None else " when it asks"
            return (
                f"What it has free fits {counted(now.chances.eligible, 'task queue')}: it gets a job{when}."
            )
        case PilotVerdict.NOTHING_WAITS:
            return f"No job of VO {now.request.vo} waits."
        case PilotVerdict.LIMITED:
            return f"All that fits is limited: {', '.join(map(_limit, now.chances.blocked))}."
        case _:
            told = f": {_told(survey)}" if survey.refused else ""
            nearest = f"; smallest change: {survey.nearest[0].text}" if survey.nearest else ""
            return f"No task queue of {now.chances.of_vo} fits what it has free{told}{nearest}."


def _who(case: PilotCase, verdict: PilotVerdict) -> str:
    if verdict is PilotVerdict.NOT_ASKED and not case.now.joined:
        return "its batch system, by starting it"
    if verdict is PilotVerdict.WOULD_GET and (case.now.silent_seconds or 0.0) > SILENT_SECONDS:
        return "who runs its node: it should have asked long ago"
    return WHO[verdict]


def _offer(case: PilotCase) -> dict[str, Any]:
    """What it offers and what is free; None: not told, so unlimited."""
    told = msgspec.to_builtins(replace(case.now.request, submit_pools=()))
    del told["submit_pools"]
    return {
        **told,
        "whole": _amounts(case.now.whole),
        "free": _amounts(case.free),
        "free_by": case.now.free_by.value,
    }


def _amounts(free: Free) -> dict[str, int | None]:
    values = {"cores": free.cores, "memory_mb": free.memory_mb, "norm_cpu_seconds": free.norm_cpu_seconds}
    return {name: None if value >= UNLIMITED else value for name, value in values.items()}


def _asked(case: PilotCase) -> dict[str, Any]:
    now = case.now
    return {
        "seconds_ago": None if now.asked is None else max(0.0, now.at - now.asked.at),
        "jobs": None if now.asked is None else now.asked.jobs,
        "waits_seconds": since(now.waits_since, now.at),
    }


def _now(case: PilotCase) -> dict[str, Any]:
    chances = case.now.chances
    return {
        "task_queues": chances.of_vo,
        "elsewhere": chances.elsewhere,
        "eligible": chances.eligible,
        "limited": dict(chances.blocked),
        "submit_pools": len(case.now.request.submit_pools),
        "first_submit_pools": list(case.now.request.submit_pools[:MOST_POOLS]),
    }
