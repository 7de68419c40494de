"""From the body of a submission to what the writer stores: parse, check, optimize, once per cohort.

Nothing is stored before all of it is good; a batch with one bad job names that job and stores nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec

from lodesman.answers.accounts import Principal
from lodesman.answers.jobs import Notice
from lodesman.answers.requests import SubmitBody
from lodesman.answers.vocabulary import Form
from lodesman.commands.submit import NewPool, PreparedCohort, PreparedSubmission
from lodesman.commands.templates import payload
from lodesman.errors import Forbidden, Impossible, InvalidJob, InvalidRequest, LodesmanError
from lodesman.jobs import (
    ARRAY_LIMITS,
    Description,
    JobSpec,
    ParametricMembers,
    Template,
    cohorts,
    input_names,
    locate,
    read_description,
    read_job,
    read_jobs,
    spec_to_json,
)
from lodesman.matching.policy import Policy, VOConfig
from lodesman.resources import GroupConfig
from lodesman.store import Reader
from lodesman.store.sandboxes import uploaded_size
from lodesman.submission import (
    Exclusions,
    JobDraft,
    find_exclusions,
    optimize,
)

FEW_RUNS = 5
_VERDICTS_KEPT = 100_000
Positions = Mapping[str, tuple[int, int]] | None
Runs = tuple[tuple[int, int], ...]
ENCODER = msgspec.json.Encoder()
# What stands in the way at a queue -> the attribute of a job that would have to change.
OF_JOBS = {"RequiredTag": "Tag"}
# The fields of a spec that decide its task queue, but for the Requirements.
KEY_VALUES = attrgetter(
    *("job_class", "variant", "project", "job_type", "user_priority", "sites", "banned_sites", "grid_ces"),
    *("platforms", "tags", "pilot_type", "submission_pools", "cores", "memory_mb", "norm_cpu_seconds"),
)


class _Preparation:
    """One submission being prepared: who, where to, and what was found so far."""

    def __init__(self, body: SubmitBody, who: Principal, policy: Policy, db: Reader | None) -> None:
        self.body = body
        self.who = who
        self.policy = policy
        self.db = db
        self.notices: list[Notice] = []
        self.pools: dict[str, NewPool] = {}
        self.odd: dict[str, Mapping[str, Any]] = {}
        self.group = ""
        self._uploads: dict[str, tuple[str, int]] = {}
        self._config: VOConfig | None = None
        self._drafts: dict[tuple[Any, ...], JobDraft] = {}

    def config(self, group: str) -> VOConfig:
        """The configuration of the submission's VO; all its jobs have one group."""
        if self._config is None:
            self.group = self._group(group).name
            self._config = self.policy.vo_config(self.who.vo)
        elif group and not self.body.group and group != self.group:
            raise InvalidJob(
                f"OwnerGroup {group}: the jobs of one submission have one group.",
                hint=f"Give {self.group} as all others, or submit it apart.",
                attribute="OwnerGroup",
            )
        return self._config

    def _group(self, wanted: str) -> GroupConfig:
        try:
            return group_of(self.who, self.policy, self.body.group or wanted)
        except LodesmanError as wrong:
            if wanted and not self.body.group:
                wrong.data = {**wrong.data, "attribute": "OwnerGroup"}
            raise

    def cohorts_of(
        self, description: Description, offset: int, positions: Positions = None
    ) -> Iterator[PreparedCohort]:
        """The cohorts of one description whose first member has index `offset` in the submission."""
        if description.warnings:
            self.notices.extend(description.warnings)
            self.odd[str(offset)] = description.record
        config = self.config(description.group)
        for cohort in cohorts(description, positions=positions):
            draft = self._optimized(cohort.spec, config)
            assert draft.key is not None  # noqa: S101
            if draft.never and not self.body.hold_if_impossible:
                found = find_exclusions(draft.key, cohort.spec.requirements, config)
                raise _refusal(draft.never, cohort.runs, description.members, found)
            template, expand = self._stored(cohort.spec, description.members, cohort.runs)
            yield PreparedCohort(
                key=draft.key,
                template=template,
                expand=expand,
                max_attempts=cohort.spec.max_attempts,
                runs=cohort.runs if not offset else tuple([(a + offset, b + offset) for a, b in cohort.runs]),
                held=draft.never,
            )

    def _optimized(self, spec: JobSpec, config: VOConfig) -> JobDraft:
        """The draft of a spec, less its payload; jobs that can be matched alike share it."""
        wanted = ENCODER.encode(spec.requirements) if spec.requirements else b""
        alike = (*KEY_VALUES(spec), wanted)
        known = self._drafts.get(alike)
        if known is None:
            known = self._drafts[alike] = self._optimize(spec, config)
        return known

    def _optimize(self, spec: JobSpec, config: VOConfig) -> JobDraft:
        """Optimize; the verdict on a key that was judged before in this configuration is remembered."""
        hold = self.body.hold_if_impossible
        draft = JobDraft(spec=spec, owner=self.who.name, group=self.group, vo=self.who.vo, hold=hold)
        draft = optimize(draft, config, self.policy.verdicts)
        if draft.key is not None and len(self.policy.verdicts) < _VERDICTS_KEPT:
            self.policy.verdicts[draft.key] = draft.never
        if draft.submit_pool and draft.submit_pool not in self.pools:
            queues = self.policy.queues_of_mask(config.vo, draft.pool_mask)
            self.pools[draft.submit_pool] = NewPool(
                id=draft.submit_pool,
                requirements=draft.requirements,
                vo=config.vo,
                queues=queues,
            )
        return draft

    def _stored(self, spec: JobSpec, members: ParametricMembers | None, runs: Runs) -> tuple[str, bool]:
        """The template as it is stored, and whether it must be filled in at the claim."""
        if members is None or not Template(spec, members).varies:
            return ENCODER.encode(payload(spec, self._uploads_of(spec.input_sandbox))).decode(), False
        names = input_names(spec, members, runs)
        stored = {"spec": spec_to_json(spec), "uploads": self._uploads_of(names)}
        return ENCODER.encode(stored).decode(), True

    def _uploads_of(self, names: Iterable[str]) -> dict[str, tuple[str, int]]:
        """The uploaded files of these names. Raises InvalidJob for one that is not there."""
        return {name: self._upload(name) for name in names}

    def _upload(self, name: str) -> tuple[str, int]:
        known = self._uploads.get(name)
        if known is not None:
            return known
        if self.db is None:
            return "", 0
        announced = self.body.sandboxes.get(name)
        if announced is None or uploaded_size(self.db, self.who.name, announced.sha256) != announced.size:
            raise InvalidJob(
                f"InputSandbox: the file {name!r} was not uploaded.",
                hint="lode submit uploads local files by itself; other clients use POST /v1/sandboxes first.",
                attribute="InputSandbox",
            )
        self._uploads[name] = announced.sha256, announced.size
        return self._uploads[name]

    def inputs(self) -> tuple[str, ...]:
        """The checksums of all uploaded files that are named, each once."""
        return tuple({sha256 for sha256, _ in self._uploads.values()})


def group_of(who: Principal, policy: Policy, wanted: str) -> GroupConfig:
    """The group that a submission counts for. Raises Forbidden, InvalidJob."""
    if not who.groups:
        raise Forbidden(f"User {who.name} is in no group.")
    name = wanted or who.groups[0]
    if name not in who.groups:
        raise Forbidden(f"You are not in group {name}.", hint=f"Your groups: {', '.join(who.groups)}.")
    group = policy.config.groups.get(name, GroupConfig(name=name, vo=who.vo))
    if group.vo and group.vo != who.vo:
        raise InvalidJob(f"Group {name} belongs to VO {group.vo}, you to {who.vo}.", attribute="OwnerGroup")
    return group


def prepare(
    body: SubmitBody, who: Principal, policy: Policy, db: Reader | None
) -> tuple[PreparedSubmission, Sequence[Notice]]:
    """Check a submission; without a database whether its input files were uploaded is not asked (nor stored).

    Raises SyntaxFault, InvalidJob, Impossible, TooLarge, Forbidden, InvalidRequest.
    """
    work = _Preparation(body, who, policy, db)
    single, positions, form, many = _descriptions(body)
    try:
        parts, count = _batch(work, many) if single is None else _alone(work, single, positions)
    except LodesmanError as wrong:
        locate(wrong, positions or _positions(body, wrong))
        raise
    members = None if single is None else single.members
    prepared = PreparedSubmission(
        owner=who.name,
        group=work.group,
        vo=who.vo,
        name="" if single is None else single.spec.name,
        form=form,
        record=_record(work, single),
        members=None if members is None else ENCODER.encode(members).decode(),
        count=count,
        cohorts=tuple(parts),
        pools=tuple(work.pools.values()),
        inputs=work.inputs(),
        request_id=body.request_id,
        config=policy.digest,
    )
    return prepared, work.notices


def _alone(work: _Preparation, single: Description, positions: Positions) -> tuple[list[PreparedCohort], int]:
    parts = list(work.cohorts_of(single, 0, positions))
    return parts, single.members.count if single.members else 1


def _record(work: _Preparation, single: Description | None) -> str:
    """The description as it was given. Those of a batch can be told from what else is stored of its jobs, but for odd
    ones; these by their indexes, '' without any.
    """
    if single is not None:
        return ENCODER.encode(single.record).decode()
    return ENCODER.encode(work.odd).decode() if work.odd else ""


def _positions(body: SubmitBody, wrong: LodesmanError) -> Mapping[str, tuple[int, int]]:
    """Where the attributes stand in the text of a batch that is wrong; nobody looked before it was."""
    job = wrong.data.get("job")
    if body.texts is None or job is None or "attribute" not in wrong.data:
        return {}
    return read_description(
        body.texts[job], form=cast("Form", body.form) if body.form else None, limits=ARRAY_LIMITS
    ).positions


def _batch(work: _Preparation, many: Iterator[Description]) -> tuple[list[PreparedCohort], int]:
    parts: list[PreparedCohort] = []
    count = 0
    for position, description in enumerate(_named(many)):
        if description.members is not None:
            raise InvalidJob(
                f"Job {position} of the batch: a parametric job is submitted alone.",
                hint="Give it as `text`, or leave Parameters out.",
                attribute="Parameters",
                job=position,
            )
        try:
            parts.extend(work.cohorts_of(description, count))
        except LodesmanError as wrong:
            raise _naming(wrong, position) from None
        count += 1
    return parts, count


def _refusal(never: str, runs: Runs, members: ParametricMembers | None, found: Exclusions) -> Impossible:
    """What a submission is refused with of which no queue can run these members."""
    lost = sum(stop - start for start, stop in runs)
    who = "The job"
    which: dict[str, Any] = {}
    if members is not None and lost < members.count:
        ranges = [[start, stop - 1] for start, stop in runs[:FEW_RUNS]]
        told = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
        more = ", ..." if len(runs) > FEW_RUNS else ""
        who = f"Member{'' if lost == 1 else 's'} {told}{more} ({lost} of {members.count})"
        which = {"members": ranges, "jobs": lost}
    attribute = _in_the_way(found)
    if attribute:
        which["attribute"] = attribute
    return Impossible(
        f"{who} can never run: {never}.",
        hint="Change it, or submit it with --hold-if-impossible to keep it Held until a queue appears.",
        queues=msgspec.to_builtins(found.summary()),
        **which,
    )


def _in_the_way(found: Exclusions) -> str:
    """The attribute that the smallest change begins with, as a description calls it; '' if no change helps."""
    best = found.job_changes(1)
    return OF_JOBS.get(best[0].steps[0].criterion, best[0].steps[0].criterion) if best else ""


def _named(many: Iterator[Description]) -> Iterator[Description]:
    position = 0
    while True:
        try:
            description = next(many)
        except StopIteration:
            return
        except LodesmanError as wrong:
            raise _naming(wrong, position) from None
        yield description
        position += 1


def _naming(wrong: LodesmanError, position: int) -> LodesmanError:
    """The same error, saying which job of the batch it is (counted from 0)."""
    wrong.message = f"Job {position} of the batch: {wrong.message}"
    wrong.data = {**wrong.data, "job": position}
    return wrong


def _descriptions(body: SubmitBody) -> tuple[Description | None, Positions, str, Iterator[Description]]:
    """Either the single description (with the places of its attributes, if it was a text) and its language, or an
    iterator over a batch that reads each as it comes.
    """
    given = [x for x in (body.text, body.texts, body.jobs) if x is not None]
    if len(given) != 1:
        raise InvalidRequest("Give exactly one of text, texts and jobs.")
    if body.text is not None:
        return *_read(body.text, body.form), iter(())
    if body.texts is not None:
        if not body.texts:
            raise InvalidRequest("The batch is empty.")
        if len(body.texts) == 1:
            return *_read(body.texts[0], body.form), iter(())
        return None, None, body.form or "json", (_read(text, body.form)[0] for text in body.texts)
    jobs = body.jobs or []
    if not jobs:
        raise InvalidRequest("The batch is empty.")
    if len(jobs) == 1:
        return read_job(jobs[0]), None, "json", iter(())
    return None, None, "json", read_jobs(jobs)


def _read(text: str, form: str) -> tuple[Description, Positions, str]:
    parsed = read_description(text, form=cast("Form", form) if form else None, limits=ARRAY_LIMITS)
    return read_job(parsed.record, parsed.positions), parsed.positions, parsed.form
