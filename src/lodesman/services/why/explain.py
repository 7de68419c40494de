"""`lode why JOB`: the whole chain from the job to a pilot, ending in never, not now or now (DESIGN 1, step 16).

Each step says whether it holds, what it knows, and how old that is. Queues are judged by the predicates of submission
and claim, pilots by the claim's; nothing is judged here a second way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import apsw
import msgspec

from lodesman.jobs import JobState
from lodesman.matching import TaskQueueKey, key_from_json
from lodesman.resources import bits
from lodesman.services.policy import Policy
from lodesman.services.why.picture import Picture
from lodesman.services.why.pilot_book import Place, Usable
from lodesman.services.why.position import position
from lodesman.services.why.verdict import VERDICTS, WHO, Facts, MainReason, judge
from lodesman.store.engine import only_row
from lodesman.submission import Obstacles, find_obstacles, never_text

SHOWN: Final = 5
STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "site": ("Site", "BannedSite", "GridCE"),
    "platform": ("Platform", "Tag", "RequiredTag", "JobType"),
    "size": ("NumberOfProcessors", "Memory", "CPUTime"),
}
SERVED = "SELECT site, ce, queue FROM submit_pool_queue WHERE pool_id = ?"
POOL = "SELECT requirements, refreshed_at FROM submit_pool WHERE id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """One job held against the world. `served`: the queues that serve its SubmitPool as stored, None without one."""

    job: Mapping[str, Any]
    key: TaskQueueKey
    policy: Policy
    picture: Picture
    found: Obstacles
    served: frozenset[Place] | None
    refreshed_at: float | None
    usable: Usable
    now: float

    @property
    def open(self) -> int | None:
        """The queues where the director's last iteration had room, None if it has not decided."""
        iteration = self.picture.iteration
        return None if iteration is None else iteration.open_queues(self.found.world)

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return None if at is None else max(0.0, self.now - at)


Asked = tuple[TaskQueueKey, dict[str, Any], float | None, frozenset[Place] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Newcomer:
    """A job that is not stored: what would be, and where it would stand (as `position` tells).

    `requirements` and `served` are those of the SubmitPool that it would bring, if it has one.
    """

    key: TaskQueueKey
    state: str
    reason: str
    task_queue: int | None
    where: Mapping[str, Any]
    requirements: Mapping[str, Any]
    served: frozenset[Place] | None


def explain_job(
    db: apsw.Connection, policy: Policy, job: Mapping[str, Any], *, picture: Picture, now: float
) -> dict[str, Any]:
    """The whole answer as JSON values."""
    answer: dict[str, Any] = {"id": job["id"], "state": job["state"], "reason": job["reason"]}
    if job["state"] not in (JobState.WAITING, JobState.HELD):
        return {**answer, "verdict": None, "summary": _ended(job)}
    case = _case(db, policy, job, picture=picture, now=now)
    return {**answer, **_told(case, position(db, job))}


def judge_newcomer(
    db: apsw.Connection, policy: Policy, new: Newcomer, *, picture: Picture, now: float
) -> MainReason:
    """The main reason that `explain_job` would give right after the job was stored."""
    return _reason(_newcomer(db, policy, new, picture=picture, now=now))


def explain_newcomer(
    db: apsw.Connection, policy: Policy, new: Newcomer, *, picture: Picture, now: float
) -> dict[str, Any]:
    """What `explain_job` would tell right after the job was stored."""
    return _told(_newcomer(db, policy, new, picture=picture, now=now), new.where)


def _newcomer(db: apsw.Connection, policy: Policy, new: Newcomer, *, picture: Picture, now: float) -> _Case:
    requirements, refreshed_at, served = _pool(db, new.key.submit_pool)
    if (
        new.served is not None and not served
    ):  # it brings its SubmitPool, which is new or was not evaluated yet
        requirements, refreshed_at, served = dict(new.requirements), refreshed_at or now, new.served
    job = {"state": new.state, "reason": new.reason, "task_queue": new.task_queue}
    asked = (new.key, requirements, refreshed_at, served)
    return _held_against(policy, job, asked, picture=picture, now=now)


def _told(case: _Case, where: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_verdict(case),
        "chain": list(_chain(case, where)),
        "queues": case.found.as_dict(),
        "task_queue": {"id": case.job["task_queue"], **where},
        "share": _share(case),
        "pilots": _pilots(case),
        "director": _director(case),
        "ages": _ages(case),
    }


def _case(
    db: apsw.Connection, policy: Policy, job: Mapping[str, Any], *, picture: Picture, now: float
) -> _Case:
    key = key_from_json(only_row(db, "SELECT key FROM task_queue WHERE id = ?", (job["task_queue"],))[0])
    return _held_against(policy, job, (key, *_pool(db, key.submit_pool)), picture=picture, now=now)


def _held_against(
    policy: Policy, job: Mapping[str, Any], asked: Asked, *, picture: Picture, now: float
) -> _Case:
    key, requirements, refreshed_at, served = asked
    return _Case(
        job=job,
        key=key,
        policy=policy,
        picture=picture,
        found=find_obstacles(key, requirements, policy.world(key.vo)),
        served=served,
        refreshed_at=refreshed_at,
        usable=picture.pilots.usable(key, served),
        now=now,
    )


def _pool(db: apsw.Connection, pool: str) -> tuple[dict[str, Any], float | None, frozenset[Place] | None]:
    """The Requirements behind a SubmitPool, when it was last looked at, and the queues that serve it."""
    if not pool:
        return {}, None, None
    row = db.execute(POOL, (pool,)).fetchone()
    if row is None:
        return {}, None, frozenset()
    wanted = {name: values for name, (_, values) in msgspec.json.decode(row[0]).items()}
    return wanted, row[1], frozenset(db.execute(SERVED, (pool,)))


# --- the steps -------------------------------------------------------------------------------------------


def _chain(case: _Case, where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield _access(case)
    yield from _requirements(case)
    for step, names in STEPS.items():
        yield _criteria(case, step, names)
    yield _step("limits", True, "no limit binds it: none is configured", limits=[])
    yield _turn(case, where)
    yield _step("pilots", case.usable.any, _pilots_text(case.usable), age_seconds=case.age(case.picture.at))
    yield _gates(case)


def _step(name: str, holds: bool | None, text: str, **facts: Any) -> dict[str, Any]:
    """`holds`: true if nothing in this step is in the way, None if nobody knows."""
    return {"step": name, "holds": holds, "text": text, **facts}


def _access(case: _Case) -> dict[str, Any]:
    table = case.found.world.table
    total = len(table.queues)
    text = (
        f"{case.key.owner} of group {case.key.group}, VO {case.key.vo}, "
        f"may use {case.found.total} of {total} configured queues"
    )
    return _step("access", case.found.total > 0, text, queues=total, admitting=case.found.total)


def _requirements(case: _Case) -> Iterator[dict[str, Any]]:
    if not case.key.submit_pool:
        yield _step("requirements", True, "it has no Requirements")
        return
    yield _criteria(case, "requirements", tuple(name for name, _ in _required(case)), "its Requirements")
    served = case.served or frozenset()
    text = f"SubmitPool {case.key.submit_pool} is served by {len(served)} queues"
    yield _step(
        "submit_pool", bool(served), text, pool=case.key.submit_pool, queues=len(served),
        age_seconds=case.age(case.refreshed_at),
    )  # fmt: skip


def _required(case: _Case) -> list[tuple[str, int]]:
    return [plane for plane in case.found.planes if plane[0].startswith("Requirements")]


def _criteria(case: _Case, step: str, names: tuple[str, ...], what: str = "") -> dict[str, Any]:
    planes = [plane for plane in case.found.planes if plane[0] in names]
    lost = 0
    for _, mask in planes:
        lost |= mask
    total = case.found.total
    each = [{"criterion": name, "queues": mask.bit_count()} for name, mask in planes]
    told = ", ".join(f"{one['criterion']} rules out {one['queues']}" for one in each)
    text = f"{total - lost.bit_count()} of {total} queues pass {what or ', '.join(names)}"
    holds = lost != case.found.full or not total
    return _step(step, holds, f"{text} ({told})" if told else text, ruled_out_by=each)


def _turn(case: _Case, where: Mapping[str, Any]) -> dict[str, Any]:
    share = _share(case)
    ahead = f"at least {where['ahead']}" if where["more_ahead"] else f"{where['ahead']}"
    text = f"{ahead} of {where['waiting']} jobs of its task queue are before it"
    if share["part"] is not None:
        text += f"; group {case.key.group} has {share['part']:.0%} of the starts while these groups wait"
    return _step("share", True, text, age_seconds=case.age(case.picture.at))


def _gates(case: _Case) -> dict[str, Any]:
    """Where a pilot could be sent: the rooms of the eligible queues, and what closes them."""
    iteration = case.picture.iteration
    if iteration is None:
        return _step("gates", None, "the director has not decided anything yet", closed=[])
    eligible, room = case.found.eligible, case.open or 0
    open_here = (eligible & room).bit_count()
    text = f"{open_here} of {eligible.bit_count()} eligible queues have room for a pilot"
    closed = _closed(case, eligible & ~room)
    if closed:
        text += f"; {closed[0]['queues']} closed because {closed[0]['text']}"
    return _step("gates", bool(open_here), text, closed=closed, age_seconds=case.age(iteration.at))


def _closed(case: _Case, mask: int) -> list[dict[str, Any]]:
    """What closes the queues of a mask: clamps of the director, breakers among them, commonest first."""
    iteration = case.picture.iteration
    assert iteration is not None  # noqa: S101
    found: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    for ordinal in bits(mask):
        queue = case.found.world.by_ordinal[ordinal].queue
        why = iteration.gate(queue)
        found[why] += 1
        example.setdefault(why, f"{queue.site}/{queue.ce}/{queue.queue}")
    return [
        {"gate": gate, "text": text, "queues": n, "example": example[gate, text]}
        for (gate, text), n in found.most_common(SHOWN)
    ]


# --- the parts of the answer -----------------------------------------------------------------------------


def _reason(case: _Case) -> MainReason:
    reason = judge(Facts(eligible=case.found.eligible, open=case.open, usable=case.usable))
    is_held = case.job["state"] == JobState.HELD and reason is not MainReason.IMPOSSIBLE
    return MainReason.HELD if is_held else reason


def _verdict(case: _Case) -> dict[str, Any]:
    reason = _reason(case)
    return {
        "verdict": VERDICTS[reason],
        "main_reason": reason.value,
        "summary": _summary(case, reason),
        "who": WHO[reason],
    }


def _summary(case: _Case, reason: MainReason) -> str:
    found, usable = case.found, case.usable
    queues = f"{found.eligible.bit_count()} of {found.total} queues can run it"
    match reason:
        case MainReason.IMPOSSIBLE:
            text = never_text(found)
            return f"{text[0].upper()}{text[1:]}."
        case MainReason.HELD:
            if case.job.get("held_by") == "impossible":
                return f"{queues} now; the next pass over the configuration releases it."
            return f"It is held: {case.job['reason']}. Release it to let it run."
        case MainReason.NOT_DECIDED:
            return f"{queues}, but no pilot is there and the director has not decided anything yet."
        case MainReason.NO_ROOM:
            closed = "; ".join(
                f"{one['text']} ({one['queues']} queues)" for one in _gates(case)["closed"][:2]
            )
            return f"{queues}, but no pilot is there and none may be sent now: {closed}."
        case MainReason.PILOT_EXPECTED:
            return f"{queues}; the director may send pilots there and is expected to."
        case _:
            return (
                f"{queues}; {usable.idle + usable.busy} running pilots can take it as they get free, "
                f"{usable.coming} more are on their way."
            )


def _share(case: _Case) -> dict[str, Any]:
    """The part of the starts that a group may expect while these groups of its VO have waiting jobs."""
    shares = {
        group: case.policy.share_of(group)
        for (vo, group), waiting in case.picture.groups.items()
        if vo == case.key.vo and waiting
    }
    mine = shares.setdefault(case.key.group, case.policy.share_of(case.key.group))
    total = sum(share for share in shares.values() if share > 0)
    return {
        "group": case.key.group,
        "share": mine,
        "of": total,
        "part": mine / total if total > 0 and mine > 0 else None,
        "groups_waiting": len(shares),
    }


def _pilots(case: _Case) -> dict[str, Any]:
    usable = case.usable
    return {
        "live": usable.live,
        "usable_idle": usable.idle,
        "usable_busy": usable.busy,
        "usable_waiting": usable.coming,
        "draining": usable.draining,
        "seen_seconds_ago": case.age(usable.heard_at),
    }


def _pilots_text(usable: Usable) -> str:
    return (
        f"{usable.live} pilots of its VO live, of which can take it: {usable.idle} idle, {usable.busy} busy, "
        f"{usable.coming} on their way"
    )


def _director(case: _Case) -> dict[str, Any]:
    iteration = case.picture.iteration
    if iteration is None:
        lines: tuple[str, ...] = ("The director has not decided anything yet.",)
        return {"decided_seconds_ago": None, "lines": list(lines), "room": None}
    lines = iteration.lines(case.job["task_queue"])
    rooms = (iteration.room(case.found.world.by_ordinal[n].queue) for n in bits(case.found.eligible))
    room = sum(one["room"] for one in rooms if one is not None)
    return {"decided_seconds_ago": case.age(iteration.at), "lines": list(lines), "room": room}


def _ages(case: _Case) -> dict[str, Any]:
    """Seconds since each fact was true; None: not known, or not needed."""
    iteration = case.picture.iteration
    return {
        "pilots": case.age(case.picture.at),
        "groups": case.age(case.picture.at),
        "submit_pool": case.age(case.refreshed_at),
        "director": case.age(iteration.at if iteration else None),
    }


def _ended(job: Mapping[str, Any]) -> str:
    reason = f": {job['reason']}" if job["reason"] else ""
    return f"It is {job['state']}{reason}; it does not wait."
