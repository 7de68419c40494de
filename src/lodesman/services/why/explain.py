"""`lode why JOB`: the whole chain from the job to a pilot, ending in never, not now or now (DESIGN 1, step 16).

Each step says whether it holds, what it knows, and how old that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lodesman.answers.vocabulary import ClampName, JobState, MainReason, PoolOutcome
from lodesman.commands.policy import Policy
from lodesman.matching import parts_of
from lodesman.resources import QueueId, bits
from lodesman.services.why.closed_queues import mask_step, who_opens_them
from lodesman.services.why.holder import name_of_holder
from lodesman.services.why.job_case import JobCase, Newcomer, case_of_job, case_of_newcomer
from lodesman.services.why.one_queue import tell_queue
from lodesman.services.why.picture import Picture
from lodesman.services.why.pilot_book import Usable
from lodesman.services.why.position import position
from lodesman.services.why.queue_verdict import who_opens
from lodesman.services.why.step import counted, not_lately, span, step
from lodesman.services.why.verdict import VERDICTS, WHO
from lodesman.store.engine import Reader
from lodesman.submission import CAUSES, never_text

SHOWN: Final = 5
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "site": ("Site", "BannedSite", "GridCE"),
    "platform": ("Platform", "Tag", "RequiredTag", "JobType"),
    "size": ("NumberOfProcessors", "Memory", "CPUTime"),
    "sending": CAUSES,
}
IMPOSSIBLE: Final = "impossible"


def explain_job(
    db: Reader, policy: Policy, job: Mapping[str, Any], *, picture: Picture, now: float,
    queue: QueueId | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The whole answer as JSON values; with all that `queue` has against the job, if one is named."""
    answer: dict[str, Any] = {"id": job["id"], "state": job["state"], "reason": job["reason"]}
    if job["state"] not in (JobState.WAITING, JobState.HELD):
        return {**answer, "verdict": None, "summary": _ended(job)}
    job = {**job, "holder": name_of_holder(db, job)}
    case = case_of_job(db, policy, job, picture=picture, now=now)
    told = {**answer, **_told(case, position(db, job))}
    return told if queue is None else {**told, "queue": tell_queue(case, queue)}


def judge_newcomer(db: Reader, policy: Policy, new: Newcomer, *, picture: Picture, now: float) -> MainReason:
    """The main reason that `explain_job` would give right after the job was stored."""
    return case_of_newcomer(db, policy, new, picture=picture, now=now).reason


def explain_newcomer(
    db: Reader, policy: Policy, new: Newcomer, *, picture: Picture, now: float
) -> dict[str, Any]:
    """What `explain_job` would tell right after the job was stored."""
    return _told(case_of_newcomer(db, policy, new, picture=picture, now=now), new.where)


def _told(case: JobCase, where: Mapping[str, Any]) -> dict[str, Any]:
    reason, queues, share = case.reason, case.found.summary(), _share(case)
    return {
        "verdict": VERDICTS[reason],
        "main_reason": reason.value,
        "summary": _summary(case, reason),
        "who": _who(case, reason),
        "chain": list(_chain(case, where, share)),
        "queues": queues,
        "task_queue": {"id": case.job["task_queue"], **where},
        "share": share,
        "pilots": _pilots(case),
        "director": _director(case),
        "ages": _ages(case),
    }


# --- the steps -------------------------------------------------------------------------------------------


def _chain(case: JobCase, where: Mapping[str, Any], share: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _class(case)
    yield _access(case)
    yield from _requirements(case)
    for name, criteria in STEPS.items():
        yield _criteria(case, name, criteria)
        if name == "site":
            yield mask_step(case.closings, case.found.eligible, may_run=case.usable.any)
    yield _limits(case)
    yield _turn(case, where, share)
    yield step("pilots", case.usable.any, _pilots_text(case.usable), age_seconds=case.age(case.picture.at))
    yield _gates(case)


def _class(case: JobCase) -> dict[str, Any]:
    key = case.key
    if not key.job_class and not key.variant:
        return step("class", True, "it names no job class")
    named = " ".join(
        f"{name} {value}" for name, value in (("JobClass", key.job_class), ("Variant", key.variant)) if value
    )
    return step("class", True, f"{named}: no class is configured, so that changes nothing")


def _access(case: JobCase) -> dict[str, Any]:
    table = case.found.world.table
    total = len(table.queues)
    text = (
        f"{case.key.owner} of group {case.key.group}, VO {case.key.vo}, "
        f"may use {case.found.total} of {total} configured queues"
    )
    holds = case.found.total > 0
    return step(
        "access", holds, text, queues=total, admitting=case.found.total, age_seconds=_configured(case)
    )


def _requirements(case: JobCase) -> Iterator[dict[str, Any]]:
    if not case.key.submit_pool:
        yield step("requirements", True, "it has no Requirements")
        return
    required = tuple(name for name, _ in case.found.planes if name.startswith("Requirements"))
    yield _criteria(case, "requirements", required, "its Requirements")
    served = case.served or frozenset()
    if case.refreshed_at is None:
        text = f"which queues serve SubmitPool {case.key.submit_pool} is not known before the next pass"
        yield step("submit_pool", None, text, pool=case.key.submit_pool, queues=None, age_seconds=None)
        return
    text = f"SubmitPool {case.key.submit_pool} is served by {counted(len(served), 'queue')}"
    yield step(
        "submit_pool", bool(served), text, pool=case.key.submit_pool, queues=len(served),
        age_seconds=case.age(case.refreshed_at),
    )  # fmt: skip


def _criteria(case: JobCase, name: str, criteria: tuple[str, ...], what: str = "") -> dict[str, Any]:
    planes = [plane for plane in case.found.planes if plane[0] in criteria]
    lost = 0
    for _, mask in planes:
        lost |= mask
    total = case.found.total
    each = [{"criterion": criterion, "queues": mask.bit_count()} for criterion, mask in planes]
    told = ", ".join(f"{one['criterion']} rules out {one['queues']}" for one in each)
    text = f"{total - lost.bit_count()} of {total} queues pass {what or ', '.join(criteria)}"
    holds = lost != case.found.full or not total
    text = f"{text} ({told})" if told else text
    return step(name, holds, text, ruled_out_by=each, age_seconds=_configured(case))


def _limits(case: JobCase) -> dict[str, Any]:
    """What blocks it: job classes and quotas set no limits yet, so whoever holds it."""
    if not case.is_held:
        return step("limits", True, "nothing holds it, and no limits are configured", limits=[])
    job = case.job
    by, seconds = job.get("held_by") or IMPOSSIBLE, case.age(job.get("since"))
    name = job.get("holder")
    who = "no queue could run it" if by == IMPOSSIBLE else f"{name or 'a user'} holds it"
    for_long = "" if seconds is None else f" for {span(seconds)}"
    held = {"limit": "held", "by": by, "name": name, "reason": job["reason"], "seconds": seconds}
    return step("limits", False, f"Held{for_long}: {who}", limits=[held], age_seconds=seconds)


def _turn(case: JobCase, where: Mapping[str, Any], share: Mapping[str, Any]) -> dict[str, Any]:
    ahead = f"at least {where['ahead']}" if where["more_ahead"] else f"{where['ahead']}"
    text = f"{ahead} of {where['waiting']} jobs of its task queue are before it"
    if share["part"] is not None:
        others = share["groups_waiting"] - 1
        beside = f"beside {counted(others, 'other group')}" if others else "since no other group competes"
        text += f"; group {case.key.group} has {share['part']:.0%} of the starts, {beside}"
    return step("share", True, text, age_seconds=case.age(case.picture.at))


def _gates(case: JobCase) -> dict[str, Any]:
    """Where a pilot could be sent: the rooms of the eligible queues, and what closes them."""
    rooms, at = case.rooms, case.age(case.decided_at)
    if rooms is None:
        return step(
            "gates", None, f"the director has not decided anything {_lately(case)}", closed=[], age_seconds=at
        )
    eligible = case.found.eligible
    open_here = case.open_here.bit_count()
    text = f"{open_here} of {eligible.bit_count()} eligible queues have room for a pilot"
    closed = _closed(case)
    if closed:
        text += f"; {closed[0]['queues']} closed because {closed[0]['text']}"
    text += _load_text(case)
    refused = _refusals(case)
    text += f"; no submission pool takes its pilots: {refused}" if refused else ""
    return step("gates", bool(open_here) and not refused, text, closed=closed, age_seconds=at)


def _closed(case: JobCase) -> list[dict[str, Any]]:
    """What closes the eligible queues: clamps of the director, breakers among them, commonest first."""
    found, world = case.shut, case.found.world
    return [
        {
            "gate": gate,
            "text": text,
            "queues": mask.bit_count(),
            "example": "/".join(world.by_ordinal[next(bits(mask))].queue),
            **_load(case, mask),
        }
        for (gate, text), mask in found[:SHOWN]
    ]


def _load(case: JobCase, mask: int) -> dict[str, Any]:
    """How old the load is that the director went by: the oldest of these queues; None if it is not known of any."""
    at, told_by = (case.rooms and case.rooms.ages.oldest(mask)) or (None, None)
    return {"load_seconds_ago": case.age(at), "load_told_by": told_by}


def _load_text(case: JobCase) -> str:
    load = _load(case, case.found.eligible)
    seconds, who = load["load_seconds_ago"], load["load_told_by"]
    return "" if seconds is None else f"; load told by {who} {span(seconds)} ago"


# --- the parts of the answer -----------------------------------------------------------------------------


def _who(case: JobCase, reason: MainReason) -> str:
    if reason is MainReason.HELD and case.job.get("held_by") == IMPOSSIBLE:
        return "nobody need do anything: the next pass over the configuration releases it"
    if reason is MainReason.CLOSED:
        return who_opens_them(one for one, _ in case.closings)
    if reason is MainReason.NO_ROOM and case.rooms is not None:
        gates = dict.fromkeys(gate for (gate, _), _ in case.shut if gate != ClampName.CLOSED)
        closers = who_opens_them(one for one, _ in case.closings)
        return "; ".join(filter(None, (who_opens(gates), closers)))
    if reason is MainReason.NO_SUBMISSION_POOL and _is_unknown(case):
        return "you, by naming other submission pools; or who configures them"
    return WHO[reason]


def _is_unknown(case: JobCase) -> bool:
    """Whether there are no submission pools of the names that the job gives."""
    decision = case.decision
    said = () if decision is None else decision.refusals(case.job["task_queue"])
    return bool(case.key.submission_pools) and all(one == PoolOutcome.UNKNOWN for _, one in said)


def _refusals(case: JobCase) -> str:
    decision = case.decision
    said = () if decision is None else decision.refusals(case.job["task_queue"])
    return ", ".join(f"{pool} is {one}" for pool, one in said)


def _summary(case: JobCase, reason: MainReason) -> str:
    found, usable = case.found, case.usable
    queues = f"{found.eligible.bit_count()} of {found.total} queues can run it"
    match reason:
        case MainReason.IMPOSSIBLE:
            text = never_text(found)
            return f"{text[0].upper()}{text[1:]}."
        case MainReason.HELD:
            return _held(case, queues)
        case MainReason.CLOSED:
            more = f", but no pilot is there and all of them are closed: {_closers(case)}"
        case MainReason.NOT_DECIDED:
            more = f", but no pilot is there and the director has not decided anything {_lately(case)}"
        case MainReason.DIRECTOR_OFF:
            more = ", but no pilot is there and the director sends none: its target is 0 pilots"
        case MainReason.NO_SUBMISSION_POOL:
            more = f", but no pilot is there and no submission pool takes any for it: {_refusals(case)}"
        case MainReason.NO_ROOM:
            closed = "; ".join(f"{one['text']} ({one['queues']} queues)" for one in _closed(case)[:2])
            more = f", but no pilot is there and none may be sent now: {closed}"
        case MainReason.PILOTS_BUSY:
            busy = "a running pilot" if usable.busy == 1 else f"one of {usable.busy} running pilots"
            more = f", but no pilot is free and none may be sent now; {busy} may take it when its job ends"
        case MainReason.PILOT_EXPECTED:
            more = "; the director may send pilots there and is expected to"
        case _:
            more = (
                f"; {usable.idle} idle and {usable.busy} busy pilots can take it, "
                f"{usable.coming} more are on their way"
            )
    return f"{queues}{more}."


def _closers(case: JobCase) -> str:
    return "; ".join(f"{one.path} is {one.text}" for one, _ in case.closings[:2])


def _held(case: JobCase, queues: str) -> str:
    if case.job.get("held_by") == IMPOSSIBLE:
        return f"{queues} now; the next pass over the configuration releases it."
    why = f": {case.job['reason']}" if case.job["reason"] else ""
    return f"{case.job.get('holder') or 'A user'} holds it{why}. Release it to let it run."


def _share(case: JobCase) -> dict[str, Any]:
    """The part of the starts that a group may expect beside the groups of its VO that compete with it: those with
    waiting jobs, and if they were looked at, of these only those whose jobs can run where this one can.
    """
    mine, policy = case.key.group, case.policy
    vo = case.key.vo
    groups = {group for (one, group), waiting in case.picture.groups.items() if one == vo and waiting}
    world, masks = case.picture.competing.get(vo, (None, {}))
    looked = world is case.found.world
    if looked:
        eligible = case.found.eligible
        groups = {group for group in groups if masks.get(group, 0) & eligible}
    groups.add(mine)
    return {
        "group": mine,
        "share": policy.share_of(mine),
        "of": sum(max(0.0, policy.share_of(group)) for group in groups),
        "part": parts_of(groups, policy.shares())[mine] or None,
        "groups_waiting": len(groups),
        "in_its_queues": looked,
    }


def _pilots(case: JobCase) -> dict[str, Any]:
    usable = case.usable
    return {
        "live": usable.live,
        "usable_idle": usable.idle,
        "usable_busy": usable.busy,
        "usable_waiting": usable.coming,
        "draining": usable.draining,
        "silent": usable.silent,
        "seen_seconds_ago": case.age(usable.heard_at),
    }


def _pilots_text(usable: Usable) -> str:
    silent = f"; {usable.silent} more could but are silent" if usable.silent else ""
    return (
        f"{usable.live} pilots of its VO live, of which can take it: {usable.idle} idle, {usable.busy} busy, "
        f"{usable.coming} on their way{silent}"
    )


def _director(case: JobCase) -> dict[str, Any]:
    decision, rooms = case.decision, case.rooms
    at = case.age(case.decided_at)
    if decision is None or rooms is None:
        lines: tuple[str, ...] = (f"The director has not decided anything {_lately(case)}.",)
        return {"decided_seconds_ago": at, "lines": list(lines), "room": None}
    lines = decision.lines(case.job["task_queue"])
    return {"decided_seconds_ago": at, "lines": list(lines), "room": rooms.total(case.open_here)}


def _ages(case: JobCase) -> dict[str, Any]:
    """Seconds since each fact was true; None: not known, or not needed."""
    return {
        "configuration": _configured(case),
        "pilots": case.age(case.picture.at),
        "groups": case.age(case.picture.at),
        "submit_pool": case.age(case.refreshed_at),
        "director": case.age(case.decided_at),
        "load": _load(case, case.found.eligible)["load_seconds_ago"],
    }


def _configured(case: JobCase) -> float | None:
    """The age of what is told from the configuration."""
    return case.age(case.policy.loaded_at)


def _lately(case: JobCase) -> str:
    return not_lately(case.age(case.decided_at))


def _ended(job: Mapping[str, Any]) -> str:
    reason = f": {job['reason']}" if job["reason"] else ""
    return f"It is {job['state']}{reason}; it does not wait."
