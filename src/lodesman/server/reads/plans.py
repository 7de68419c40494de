"""Dry runs of submissions, each cohort as `lode why` would explain it, and of shares."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import msgspec
from msgspec import structs

from lodesman.base.errors import Impossible, NotFound
from lodesman.decide.explain.job import explain_job
from lodesman.decide.explain.job_facts import JobFacts
from lodesman.decide.explain.verdict import some_of, verdict_of
from lodesman.decide.matching import GroupShare, TaskQueueKey, wanted_of
from lodesman.decide.matching.policy import Policy
from lodesman.decide.rehearse.shares import ShareChange, shared_places, waiting_groups
from lodesman.decide.resources import FilePosition
from lodesman.decide.resources.draft import ConfigDraft, RawParam
from lodesman.decide.resources.load import build
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.server.loops.direct import Director
from lodesman.server.loops.left_out import NOTHING, Item
from lodesman.server.loops.refresh import evaluate
from lodesman.server.reads.explain import Explainer
from lodesman.server.store.read.why import queue_position, starts_by_vo
from lodesman.server.store.submit_pools import stored_pools
from lodesman.server.store.task_queues import queue_with_key
from lodesman.server.writer.prepare import prepare
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission
from lodesman.wire import plans as answers
from lodesman.wire.accounts import Principal
from lodesman.wire.call import ErrorBody
from lodesman.wire.jobs import Notice
from lodesman.wire.jsv import VerifyResult
from lodesman.wire.nodes import Remark
from lodesman.wire.requests import SubmitBody
from lodesman.wire.task_queues import TaskQueueFacts
from lodesman.wire.vocabulary import MainReason
from lodesman.wire.why_jobs import Holding, QueuePosition, Verdict

_MOST_STARTS: Final = 20_000
_MOST_COHORTS: Final = 100
_MOST_RUNS: Final = 20
_AFTER_ALL: Final = 1 << 53
"""The number of a job after all others."""
_ORDER: Final = {"never": 0, "not now": 1, "now": 2}
_OFTEN: Final = 256
_HOUR: Final = 3_600.0
_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState(Explainer):
    """What plans are held against."""

    tick: Callable[[], None]  # called now and then; raises when the plan takes too long
    director: Director | None = None  # the running one

    @property
    def faulty(self) -> frozenset[Item]:
        """What the running director cannot handle: its dry runs leave it out, too."""
        return NOTHING if self.director is None else self.director.faulty

    def left_out(self) -> list[str]:
        """`faulty` as an assumption; none if nothing is left out."""
        names = sorted(map(str, self.faulty))
        return [f"{some_of(names, 1, ', ')} left out, as the director does: see lode status"] if names else []

    def waiting(self) -> Iterator[tuple[TaskQueueKey, int, int]]:
        """The task queues with waiting jobs: key, number of jobs, and the queues that can run them, as a mask."""
        pools = evaluate(self.policy, list(stored_pools(self.db)))
        for number, (_, key, jobs) in enumerate(self.keeper.snapshot.waiting):
            if number % _OFTEN == 0:
                self.tick()
            yield key, jobs, self.policy.vo_config(key.vo).possible_queues(key, pools.get(key.submit_pool, 0))


# --- jobs ------------------------------------------------------------------------------------------------


def plan_job(
    body: SubmitBody, who: Principal, verified: list[VerifyResult] | None, state: LiveState
) -> answers.JobPlan:
    """What would become of a submission. `verified`: what the server's JSV left of it; None: there is no JSV. Raises what
    it would be refused with, but answers Impossible.
    """
    refusal = None
    classes = PreparedClasses(state.classes())
    ready = partial(prepare, who=who, policy=state.policy, db=None, classes=classes, verified=verified)
    try:
        prepared, notices = ready(body)
    except Impossible as wrong:
        refusal = msgspec.convert(wrong.as_dict(), ErrorBody)
        held = structs.replace(body, hold_if_impossible=True)
        prepared, notices = ready(held)
    pools = {pool.id: pool for pool in prepared.pools}
    judged: list[tuple[Verdict, PreparedCohort]] = []
    verdicts: Counter[str] = Counter()
    impossible = 0
    for cohort in _cohorts(prepared):
        state.tick()
        facts = _facts(cohort, pools, state, *_place(cohort, state))
        verdict, soon = verdict_of(facts.reason), facts.next_jobs(cohort.jobs)
        judged.append((verdict, cohort))
        verdicts["now"] += soon
        verdicts["not now" if soon else verdict] += cohort.jobs - soon
        impossible += cohort.jobs if facts.reason is MainReason.IMPOSSIBLE else 0
    judged.sort(key=lambda pair: (_ORDER[pair[0]], pair[1].runs[0]))
    cohorts = []
    for _, cohort in judged[:_MOST_COHORTS]:
        state.tick()
        cohorts.append(_planned(cohort, pools, state))
    return answers.JobPlan(
        count=prepared.count,
        group=prepared.group,
        vo=prepared.vo,
        verdicts=answers.JobVerdicts(
            never=verdicts["never"], not_now=verdicts["not now"], now=verdicts["now"]
        ),
        refusal=refusal,
        held=0 if refusal else impossible,
        cohorts=cohorts,
        more_cohorts=max(0, len(judged) - _MOST_COHORTS),
        limits=[],
        notices=[Notice(n.attribute, n.message, n.line, n.column) for n in notices],
    )


def _cohorts(prepared: PreparedSubmission) -> Iterator[PreparedCohort]:
    """One for each task queue, whatever descriptions its members are of."""
    by_key: dict[TaskQueueKey, list[PreparedCohort]] = {}
    for cohort in prepared.cohorts:
        by_key.setdefault(cohort.key, []).append(cohort)
    for cohorts in by_key.values():
        joined: list[tuple[int, int]] = []
        for start, stop in sorted(run for cohort in cohorts for run in cohort.runs):
            follows = bool(joined) and start == joined[-1][1]
            joined.append((joined.pop()[0] if follows else start, stop))
        yield structs.replace(cohorts[-1], runs=tuple(joined))


def _facts(
    cohort: PreparedCohort, pools: Mapping[str, NewPool], state: LiveState, task_queue: int | None,
    place: QueuePosition,
) -> JobFacts:  # fmt: skip
    pool, held = pools.get(cohort.key.submit_pool), None
    if cohort.held:
        held = Holding(limit="held", by="impossible", name=None, reason=cohort.held, seconds=0.0)
    return state.job_facts(
        cohort.key,
        {} if pool is None else wanted_of(pool.requirements),
        place,
        task_queue=task_queue,
        held=held,
        brought=None if pool is None else pool.queues,
    )


def _place(cohort: PreparedCohort, state: LiveState) -> tuple[int | None, QueuePosition]:
    """None: its task queue would be new."""
    number = queue_with_key(state.db, cohort.key)
    return number, queue_position(state.db, number, _AFTER_ALL)


def _planned(cohort: PreparedCohort, pools: Mapping[str, NewPool], state: LiveState) -> answers.PlannedCohort:
    number, before = _place(cohort, state)
    place = answers.PlannedPosition(
        id=number,
        waiting=before.waiting + cohort.jobs,
        ahead=before.ahead,
        more_ahead=before.more_ahead,
        new=number is None,
        waiting_before=before.waiting,
        key=TaskQueueFacts(**asdict(cohort.key)),
    )
    explained = explain_job(_facts(cohort, pools, state, number, place))
    return answers.PlannedCohort(
        **structs.asdict(explained),
        members=[(start, stop - 1) for start, stop in cohort.runs[:_MOST_RUNS]],
        more_members=max(0, len(cohort.runs) - _MOST_RUNS),
        jobs=cohort.jobs,
        task_queue=place,
    )


# --- shares ----------------------------------------------------------------------------------------------


def plan_shares(shares_then: Mapping[str, float], state: LiveState) -> answers.SharesPlan:
    """What other shares would change. Raises NotFound for a group, InvalidConfig for a share."""
    policy, snapshot = state.policy, state.keeper.snapshot
    with_jobs = {group for (_, group), jobs in snapshot.groups.items() if jobs}
    groups = sorted({*policy.config.groups, *with_jobs})
    for name in shares_then:
        if name not in groups:
            near, names = difflib.get_close_matches(name, groups, 1, 0.6), ", ".join(groups[:_SHOWN])
            hint = f"Did you mean {near[0]}?" if near else f"Groups: {names}." if names else ""
            raise NotFound(f"There is no group {name!r}.", hint=hint, group=name)
    shares, notices = _as_configured(shares_then)
    before = policy.configured_shares()
    new = {name: replace(before.get(name, GroupShare()), share=share) for name, share in shares.items()}
    change = ShareChange(before=policy.shares(), after=policy.corrected({**before, **new}))
    drawn, private = _starts_an_hour(state)
    return answers.SharesPlan(
        changed=[
            answers.ChangedShare(policy.share_of(name), share, group=name)
            for name, share in sorted(shares.items())
        ],
        groups=waiting_groups(change, snapshot, drawn),
        private_starts_an_hour=private,
        without_waiting_jobs=sorted(shares.keys() - with_jobs),
        places=shared_places(change, _masks(state), lambda vo, mask: policy.vo_config(vo).table.sites(mask)),
        notices=notices + corrected_by_usage(policy) + _outside_shares(state),
    )


def corrected_by_usage(policy: Policy) -> list[Remark]:
    """That usage corrects the shares of the answer."""
    if policy.usage is None:
        return []
    words = "The shares of groups are corrected by usage, before and after. The present factors: lode usage shares."
    return [Remark(words, source="", section="shares", line=0)]


def set_by_command(policy: Policy) -> list[Remark]:
    """The groups whose shares in the files do not count."""
    if not policy.set_by_command:
        return []
    names = sorted(policy.set_by_command)
    shown = some_of(names, _SHOWN, ", ")
    words = f"Shares set by command hold instead of those of the files: {shown}. See: lode group ls."
    return [Remark(words, source="", section="group", line=0)]


def _outside_shares(state: LiveState) -> list[Remark]:
    pools = state.director.options.pools.values() if state.director else ()
    return [
        Remark(
            f"{100 * part:g} % of the pilots of submission pool {pool.name} are private (PrivatePilotFraction): each "
            "serves one group, whatever the shares.", source="", section="director", line=0,
        )
        for pool in pools
        if (part := abs(pool.legacy_fraction - pool.private_fraction))
    ]  # fmt: skip


def _as_configured(shares: Mapping[str, float]) -> tuple[dict[str, float], list[Remark]]:
    draft = ConfigDraft()
    for name, share in shares.items():
        place = FilePosition(section=f"group {name}")
        draft.put_group(name, RawParam(name="share", value=share, source=place))
    config = build(draft)
    notices = [Remark(**notice.as_dict()) for notice in config.notices]
    return {name: group.share for name, group in config.groups.items()}, notices


def _starts_an_hour(state: LiveState) -> tuple[dict[str, float], dict[str, float]]:
    """By VO: those that groups competed for, and those by private pilots."""
    begin = state.now - _HOUR
    rows = starts_by_vo(state.db, most=_MOST_STARTS, after=begin)
    if sum(count for _, count, _, _ in rows) >= _MOST_STARTS:
        begin = min(first for *_, first in rows)
    seconds = max(1.0, state.now - begin)
    drawn = {vo: (count - private) * _HOUR / seconds for vo, count, private, _ in rows}
    return drawn, {vo: private * _HOUR / seconds for vo, _, private, _ in rows if private}


def _masks(state: LiveState) -> dict[tuple[str, str], int]:
    """By (VO, group): the queues that can run some waiting job."""
    masks: dict[tuple[str, str], int] = {}
    for key, _, queues in state.waiting():
        masks[key.vo, key.group] = masks.get((key.vo, key.group), 0) | queues
    return masks
