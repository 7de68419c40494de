"""Who can change what stops a job, a CE queue or a pilot: one table for each closed set of reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from lodesman.decide.director.hosts import ON_SHUT_HOST
from lodesman.decide.explain.closing import opens_host
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.last_iteration import NOT_CONSIDERED, NOT_WANTED
from lodesman.decide.explain.pilot_facts import PilotCase
from lodesman.decide.explain.queue_facts import QueueFacts
from lodesman.decide.explain.verdict import OF_LIMITS, STARTS_IN_TURN
from lodesman.decide.masks.bits import bits
from lodesman.decide.resources import LOCAL, MANUAL
from lodesman.wire.jobs import HeldBy
from lodesman.wire.nodes import Closing, utc
from lodesman.wire.quotas import NEXT_START, RUNNING_JOBS, FullBucket
from lodesman.wire.vocabulary import ClampName, MainReason, PilotVerdict, PoolOutcome, QueueReason

BREAKER_HERE, BREAKER_ORDERED = "breaker-here", "breaker-ordered"
"""An open breaker: on the server's own machine; ordered by an administrator."""
_NO_ACTION: Final = "no action needed"
_SITES: Final = "the site administrator"
_SERVER: Final = "the server administrator"
_BATCH: Final = "the administrator of the batch system"
_POOLS: Final = f"{_SERVER}: what the submission pools serve"
_NEXT_ITERATION: Final = "the server, at the director's next iteration"
_SITE_OPENS: Final = "the site, by advertising that it takes more; or time, as pilots there start or end"
_NOT_ADVERTISED: Final = (
    "a site that can run it, by advertising what it asks for; "
    "or you, by asking for something else: lode change JOBS"
)
_STARTS_PILOTS: Final = "an administrator: lode pilot file, whose files anyone can start there"
_MEND: Final = f"{_SITES} or {_BATCH}, by mending what stops the pilots"
_MEND_HERE: Final = f"{_SERVER}, on whose machine these pilots start, by mending what stops them"
_MENDED: Final = "; then: lode queue breaker SITE/CE/QUEUE auto (else one pilot tries it now and then)"
NOT_REACHED: Final = (
    f"{_SERVER}, if public_url of [server] is wrong; or the site, if its nodes cannot reach that"
)
_STARTS_OR_ENDS: Final = f"time, as pilots there start or end; or {_SITES}"

_RAISES: Final = f"{_SERVER}: lode quota change"
_LIMITED: Final = f"time, as jobs that use the limit end; or {_RAISES}"
_SET_LIMITS: Final = (
    f"{_RAISES}; or, of RunningLimit and MatchingDelay, {_SITES} (lode quota show names them)"
)
NO_END_HELPS: Final = f"who set these limits, under which no such job fits: {_SET_LIMITS}"
_ENDS_OF_PARENTS: Final = "time, as the jobs that it waits for end"

# One table for each set: members of two sets may be equal as words, and would then be one key.
OF_JOBS: Final[Mapping[MainReason, str]] = {
    MainReason.IMPOSSIBLE: f"you, by changing the job; or {_SITES}",
    MainReason.CLOSED: "an administrator: lode site open",
    MainReason.NOT_DECIDED: _NEXT_ITERATION,
    MainReason.DIRECTOR_OFF: f"{_SERVER}: pilotsPerIteration; or time, if targetRunningJobs jobs run",
    MainReason.NO_SUBMISSION_POOL: f"time, as submissions end; or {_SERVER}: the submission pools",
    MainReason.NO_ROOM: _STARTS_OR_ENDS,
    MainReason.SITE_GATE: _SITE_OPENS,
    MainReason.WAITS_FOR_JOBS: _ENDS_OF_PARENTS,
    MainReason.AT_MOST: "time, as jobs of its submission end; or you: lode change JOBS AtMost=N",
    MainReason.HELD: "you, or another user who may control the job: lode release JOBS",
    MainReason.PILOT_EXPECTED: _NO_ACTION,
    MainReason.PILOT_COMING: _NO_ACTION,
    MainReason.QUEUED: "time, as the jobs before it start and end",
    MainReason.PILOTS_BUSY: "time, as the jobs of running pilots end",
    MainReason.NO_PILOT_SOON: "time, as the batch systems start pilots",
    MainReason.PILOTS_FAIL: _MEND,
    MainReason.NODE_FAULT: _MEND,
    MainReason.UNREACHED: NOT_REACHED,
    MainReason.HOST_SHUT: "an administrator: lode host open",
    MainReason.NEXT: _NO_ACTION,
    MainReason.LIMITED: _LIMITED,
    MainReason.OVER_LIMIT: _RAISES,
}
"""JOBS stands for the job's number."""
_OF_HELD: Final[Mapping[HeldBy, str]] = {
    "impossible": f"{_NO_ACTION}: the next refresh releases it",
    "admin": "an administrator: lode release JOBS",
    "user": OF_JOBS[MainReason.HELD],
}
"""Who holds a job -> who can change it."""
OF_QUEUES: Final[Mapping[QueueReason, str]] = {
    QueueReason.NOT_CONFIGURED: _SITES,
    QueueReason.NOT_OPEN: f"{_SITES}: its VO list",
    QueueReason.NO_BACKEND: f"{_SITES}: Backend",
    QueueReason.NO_JOB_FITS: _SITES,
    QueueReason.NOT_SERVED: _POOLS,
    QueueReason.CAPPED: f"{_SITES}: MaxWaitingJobs, MaxTotalJobs, Slots",
    QueueReason.NEVER_RUN: f"{_SITES}: NumberOfProcessors, MaxRAM, WallTime, SubmitOptions; or {_BATCH}",
    QueueReason.NO_WORK: f"users, by submitting jobs that fit; or {_SITES}",
    QueueReason.MANUAL: _STARTS_PILOTS,
    QueueReason.NOT_DECIDED: OF_JOBS[MainReason.NOT_DECIDED],
    QueueReason.DIRECTOR_OFF: OF_JOBS[MainReason.DIRECTOR_OFF],
    QueueReason.NO_SUBMISSION_POOL: OF_JOBS[MainReason.NO_SUBMISSION_POOL],
    QueueReason.NO_ROOM: OF_JOBS[MainReason.NO_ROOM],
    QueueReason.LIMITED: f"time, as jobs that use the limit end; or {_SET_LIMITS}",
    QueueReason.AT_MOST: "time, as jobs of these submissions end; or their users: lode change JOBS AtMost=N",
    QueueReason.SITE_GATE: _SITE_OPENS,
    QueueReason.ENOUGH_PILOTS: f"time, as pilots take jobs; or {_SERVER}: extraPilots",
    QueueReason.PILOTS_EXPECTED: _NO_ACTION,
}
"""By reason of a CE queue."""
OF_PILOTS: Final[Mapping[PilotVerdict, str]] = {
    PilotVerdict.ENDED: "no one: it has ended",
    PilotVerdict.DRAINING: "no one; if its site was closed, an administrator: lode site open",
    PilotVerdict.NOT_CONFIGURED: _SITES,
    PilotVerdict.NOT_ASKED: "the pilot, which asks by itself",
    PilotVerdict.HOST_SHUT: "time, it is tried by one job; or an administrator: lode host open",
    PilotVerdict.FULL: "time, as its jobs end",
    PilotVerdict.BOUND: "no one: it runs this job and leaves",
    PilotVerdict.WOULD_GET: _NO_ACTION,
    PilotVerdict.NOTHING_WAITS: "users, by submitting jobs",
    PilotVerdict.WAITS_FOR_JOBS: _ENDS_OF_PARENTS,
    PilotVerdict.LIMITED: "time, as limits free capacity",
    PilotVerdict.NOTHING_FITS: f"users, by asking for less or something else; or {_SITES}",
}
"""Verdict on a pilot -> who can change it."""
_WHO_OPENS: Final[Mapping[str, str]] = {
    ClampName.CLOSED: OF_JOBS[MainReason.CLOSED],
    ClampName.NO_BACKEND: f"{_STARTS_PILOTS}; or {_SITES}: Backend",
    ClampName.LIST_MATCH: OF_QUEUES[QueueReason.NEVER_RUN],
    ClampName.REFUSED_FOR_NOW: f"time, it is asked again soon; or {_BATCH}",
    ClampName.NO_POOL: _POOLS,
    ClampName.HOST_SHUT: OF_JOBS[MainReason.HOST_SHUT],
    ClampName.CREDENTIAL: f"{_SERVER}, by renewing the credential",
    ClampName.UNKNOWN_LOAD: f"{_BATCH}, by making it report its load",
    ClampName.MAX_HELD: f"{_BATCH}, by releasing or removing the held pilots",
    ClampName.RAMP: "time, twice as many pilots may come as run there",
    ClampName.BREAKER: f"{_MEND}{_MENDED}",
    BREAKER_HERE: f"{_MEND_HERE}{_MENDED}",
    BREAKER_ORDERED: "an administrator: lode queue breaker SITE/CE/QUEUE auto",
    ClampName.TOKEN_BUCKET: f"time, a minute or two; or {_SERVER}: pilotsPerMinute",
    ClampName.SITE_GATE: _SITE_OPENS,
    NOT_CONSIDERED: _NEXT_ITERATION,
    NOT_WANTED: _NEXT_ITERATION,
}
"""By what leaves a queue no free capacity; _STARTS_OR_ENDS for all others."""
_CLOSINGS_SHOWN: Final = 3
_PASSING: Final = frozenset({PoolOutcome.FULL, PoolOutcome.DISABLED})
"""Why a submission pool takes no pilots for a while."""
# As `answers.nodes.BreakerOrder.text` begins.
_BY_ORDER: Final = "open by order of "


def who_opens(
    gates: Iterable[str],
    closings: Sequence[Closing] = (),
    settings: Iterable[str] = (),
    host_opener: str = "",
) -> str:
    """Who opens these gates and closings, and mends `settings` of the server. `host_opener`: who opens the hosts."""
    of_gates = {**_WHO_OPENS, ClampName.HOST_SHUT: host_opener} if host_opener else _WHO_OPENS
    names = list(map(_setting, settings))
    names += [
        of_gates.get(gate, _STARTS_OR_ENDS) for gate in gates if not closings or gate != ClampName.CLOSED
    ]
    names += [_who_reopens(closing) for closing in closings[:_CLOSINGS_SHOWN]]
    more = len(closings) - _CLOSINGS_SHOWN
    names += [f"likewise for {more} more"] if more > 0 else []
    return "; ".join(dict.fromkeys(names)) or _STARTS_OR_ENDS


def _who_mends(backends: Iterable[str], settings: Iterable[str], *, is_open: bool = False) -> str:
    """`is_open`: the breaker of these backends is."""
    names, is_here = list(map(_setting, settings)), set(backends) == {LOCAL}
    if not (names and is_here):
        names.append(_MEND_HERE if is_here else _MEND)
    return "; or ".join(names) + (_MENDED if is_open else "")


def _setting(name: str) -> str:
    return f"{_SERVER}: {name} (read when the server starts)"


def settings_named(words: Iterable[str], settings: Mapping[str, str]) -> list[str]:
    """The settings that pilots' last words name; `settings`: of `DirectorNow`."""
    texts = list(words)
    return [setting for sign, setting in settings.items() if any(sign in text for text in texts)]


def opener_of(gate: str, text: str, backends: Iterable[str]) -> str:
    """The name by which `who_opens` knows the gate."""
    if gate != ClampName.BREAKER:
        return gate
    if text.endswith(ON_SHUT_HOST):
        return ClampName.HOST_SHUT
    if text.startswith(_BY_ORDER):
        return BREAKER_ORDERED
    return BREAKER_HERE if set(backends) == {LOCAL} else gate


def _who_reopens(closing: Closing) -> str:
    time = "" if closing.until is None else f", or time: at {utc(closing.until)}"
    names = [name for name in closing.node if name]
    words = names if any("/" in name for name in names) else ["/".join(names)]
    command = shlex.join(["lode", "site", "open", *words])
    return f"{closing.closed_by} or another administrator: {command}{time}"


def who_makes_room(full: Iterable[FullBucket], *, never: bool) -> str:
    """Who can change that limits are full. `never`: in every queue, one of them is less than the job asks for."""
    buckets = list(full)
    hopeless = [bucket for bucket in buckets if bucket.hopeless and never]
    names = [f"you, by asking for {_allowed(bucket)}" for bucket in hopeless if _is_half(bucket)]
    names += [] if hopeless else ["time, as jobs that use the limit end"]
    names += map(_who_raises, hopeless or buckets)
    return "; or ".join(dict.fromkeys(names)) if buckets else _LIMITED


def _is_half(bucket: FullBucket) -> bool:
    return bucket.resource != RUNNING_JOBS and bucket.limit not in ("0", "")


def _allowed(bucket: FullBucket) -> str:
    is_number = bucket.limit[:1].isdigit() and bucket.need[:1].isdigit()
    return f"{'at most ' if is_number else ''}{bucket.resource}={bucket.amount(bucket.limit)}"


def _who_raises(bucket: FullBucket) -> str:
    return f"{_SITES}: {bucket.rule}" if bucket.resource in (RUNNING_JOBS, NEXT_START) else _RAISES


def who_frees_work(limits: Iterable[str], held: Mapping[HeldBy, Sequence[int]]) -> str:
    """Who can change that these limits keep all fitting jobs from a pilot; `held`: see `who_ends_parents`."""
    who = {
        MainReason.WAITS_FOR_JOBS.value: who_ends_parents(held),
        MainReason.AT_MOST.value: OF_QUEUES[QueueReason.AT_MOST],
        MainReason.IMPOSSIBLE.value: f"users, by changing their jobs; or {_SITES}",
    }
    return "; or ".join(dict.fromkeys(who.get(limit, OF_QUEUES[QueueReason.LIMITED]) for limit in limits))


def who_ends_parents(held: Mapping[HeldBy, Sequence[int]]) -> str:
    """Who can end that a job waits for others; `held`: those that are Held."""
    names = []
    for by, jobs in held.items():
        ids = " ".join(map(str, jobs))
        if by == "impossible":
            names.append(f"who can let job {jobs[0]} run: lode why {jobs[0]}")
        else:
            who = "an administrator" if by == "admin" else "you, or another user who may control the job"
            names.append(f"{who}: lode release {ids}")
    return "; and ".join(names) or _ENDS_OF_PARENTS


# --- jobs, queues, pilots ----------------------------------------------------------------------------------


def who_changes_job(facts: JobFacts) -> str:
    """Who can change that a job waits, with its number where a command needs it."""
    who = _who(facts)
    return who if facts.job is None else who.replace("JOBS", str(facts.job))


def _who(facts: JobFacts) -> str:
    reason = facts.reason
    if reason is MainReason.HELD and facts.held:
        return _OF_HELD[facts.held.by]
    if reason in OF_LIMITS:
        return who_makes_room(facts.limits.buckets, never=reason is MainReason.OVER_LIMIT)
    if facts.keeping and (reason in STARTS_IN_TURN or facts.is_kept):
        busy = MainReason.PILOTS_BUSY if facts.pilots.usable_busy else MainReason.NO_PILOT_SOON
        in_turn = OF_JOBS[busy if facts.is_kept else reason]
        return f"{who_opens((), facts.keeping)}; or {in_turn}"
    if reason is MainReason.WAITS_FOR_JOBS:
        return who_ends_parents(facts.held_parents)
    if reason is MainReason.HOST_SHUT:
        return facts.shut_hosts.who(facts.exclusions.config, facts.eligible)
    if reason in (MainReason.CLOSED, MainReason.NO_ROOM):
        return _who_opens_for(facts)
    if reason in (MainReason.PILOTS_FAIL, MainReason.NODE_FAULT):
        config, is_open = facts.exclusions.config, any(failing.is_open for _, failing in facts.failing)
        backends = {offer.backend for queue, _ in facts.failing if (offer := config.offer(queue))}
        return _who_mends(backends, _named_settings(facts), is_open=is_open)
    return _of_reason(facts)


def _of_reason(facts: JobFacts) -> str:
    reason = facts.reason
    is_pool_full = any(outcome in _PASSING for _, outcome in facts.refusals)
    if reason is MainReason.NO_SUBMISSION_POOL and facts.exclusions.key.submission_pools and not is_pool_full:
        return "you, by naming other submission pools; or the server administrator, by configuring them"
    is_unwanted = reason is MainReason.SITE_GATE and not facts.fitting
    return _NOT_ADVERTISED if is_unwanted else OF_JOBS[reason]


def _who_opens_for(facts: JobFacts) -> str:
    closings = [closing for closing, _ in facts.closings]
    gates, settings = (
        ((), ()) if facts.reason is MainReason.CLOSED else (_openers(facts), _named_settings(facts))
    )
    opens = who_opens(gates, closings, settings)
    return (
        _who_shortens(facts.shorter_minutes, opens)
        if any(closing.is_ahead(facts.now) for closing in closings)
        else opens
    )


def _openers(facts: JobFacts) -> Iterator[str]:
    offers = facts.exclusions.config.by_bit
    for gate, mask in facts.gates:
        yield opener_of(gate.name, gate.text, {offers[bit].backend for bit in bits(mask)})


def _named_settings(facts: JobFacts) -> list[str]:
    return settings_named((failing.reason for _, failing in facts.failing), facts.snapshot.director.settings)


def _who_shortens(minutes: int, opens: str) -> str:
    """`minutes`: of the longest job that a pilot takes; `opens`: who opens."""
    command = f"lode change JOBS CPUTime={minutes * 60}"
    asks = f"you, by asking for at most {minutes} min of CPUTime: {command}; or " if minutes else ""
    return f"{asks}{opens}; or the site administrator, by a WallTime with which new pilots end before"


def who_changes_queue(facts: QueueFacts) -> str:
    """Who can change that pilots are not sent to a queue."""
    reason, backends = facts.reason, [] if facts.offer is None else [facts.offer.backend]
    settings = settings_named([facts.unstarted], facts.snapshot.director.settings)
    if facts.fails:
        return facts.shut_host[1] or (NOT_REACHED if facts.unreached else _who_mends(backends, settings))
    if reason is QueueReason.NO_ROOM:
        gates = [opener_of(name, text, backends) for name, text in facts.limits]
        return who_opens(gates, facts.closings, settings, facts.shut_host[1])
    if reason is QueueReason.LIMITED and dict(facts.kept)[reason] <= facts.never_start:
        return NO_END_HELPS
    return OF_QUEUES[reason]


def who_changes_pilot(case: PilotCase, verdict: PilotVerdict) -> str:
    """Who can change that a pilot gets nothing."""
    facts, now = case.facts, case.now
    if verdict is PilotVerdict.NOT_ASKED and not now.joined:
        if facts.row.backend == MANUAL:
            return "whoever has its file, by starting it: python3 -I FILE"
        return NOT_REACHED if facts.row.host else "its batch system, by starting it"
    if verdict is PilotVerdict.HOST_SHUT and facts.shut is not None and facts.host is not None:
        return opens_host(facts.host, facts.shut)
    if verdict is PilotVerdict.WOULD_GET and now.is_silent:
        return "the administrator of its node: it should have asked long ago"
    if verdict in (PilotVerdict.WAITS_FOR_JOBS, PilotVerdict.LIMITED):
        return who_frees_work(now.chances.blocked, case.held_parents)
    if verdict is PilotVerdict.NOTHING_FITS and case.closings:
        return f"{who_opens((), case.closings)}; or users, by asking for less CPUTime"
    return OF_PILOTS[verdict]
