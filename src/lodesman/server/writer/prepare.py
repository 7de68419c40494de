"""From the body of a submission to what the writer stores: parse, check, optimize, once per cohort."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import msgspec

from lodesman.base.errors import Impossible, InvalidJob, LodesmanError
from lodesman.base.kernel import FIRST_LINE_BYTES, wants_interpreter_with_cr
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import JudgedJob, Policy, VOConfig
from lodesman.decide.resources.requirement import without_clause
from lodesman.decide.submission import Exclusions, JobDraft, ban_of_nothing, find_exclusions, optimize
from lodesman.decide.submission.native import hold_of
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages import jobs
from lodesman.languages.jobs.record import NO_POSITIONS, PositionMap, Record, shown
from lodesman.server.store import Reader
from lodesman.server.store.sandboxes import uploaded_size
from lodesman.server.store.shelf import Shelf
from lodesman.server.writer.memberships import check_owner, check_project, group_of
from lodesman.server.writer.order import WaitRule, waits_of
from lodesman.server.writer.resolving import (
    Resolver,
    TakesLong,
    entries_of,
    in_batch,
    name_writer,
    read_entry,
)
from lodesman.server.writer.submit import NewPool, PreparedCohort, PreparedSubmission
from lodesman.server.writer.templates import Upload, make_payload
from lodesman.wire.accounts import Principal
from lodesman.wire.jobs import Notice, Resolution
from lodesman.wire.jsv import VerifyResult
from lodesman.wire.requests import SubmitBody
from lodesman.wire.vocabulary import Form

_FEW_RUNS = 5
_TIME = "CPUTime"
_MOST_BANS = 100
_VERDICTS_KEPT = 100_000
# A verdict with a longer key is not kept.
_LARGE_KEY = 16 << 10
Runs = tuple[tuple[int, int], ...]
_ON_HOLD = "submitted on hold"
_BY_USER = "command line"
_ENCODER = msgspec.json.Encoder()
# An obstacle at a queue -> the attribute of a job that would have to change.
_OF_JOBS = {"RequiredTag": "Tag", "GenericPilots": "PilotType"}
# The fields of a spec that decide its task queue, but for the Requirements.
_KEY_VALUES = attrgetter(
    *("job_class", "variant", "project", "job_type", "user_priority", "sites", "banned_sites", "grid_ces"),
    *("stations", "platforms", "tags", "pilot_type", "force_generic", "submission_pools"),
    *("cores", "memory_mb", "norm_cpu_seconds", "pe", "consumables", "expected_seconds", "at_most"),
)


class Preparation:
    """One submission being prepared."""

    def __init__(
        self, body: SubmitBody, who: Principal, policy: Policy, db: Reader | None, resolver: Resolver
    ) -> None:
        self._resolver = resolver
        self.resolutions: dict[int, Resolution] = {}
        self.holds: dict[int, str] = {}
        self.few_kinds = False
        self.body = body
        self.who = who
        self.policy = policy
        self.db = db
        self.notices: list[Notice] = []
        self.pools: dict[str, NewPool] = {}
        self.waits: list[WaitRule] = []
        self.odd: dict[str, Mapping[str, Any]] = {}
        self.group = ""
        self.uploads: dict[str, Upload] = {}
        self.shelf: Shelf | None = None
        self._scripts: set[str] = set()
        self._config: VOConfig | None = None
        self._bans: set[str] = set()
        self._judged: dict[tuple[Any, ...], JudgedJob] = {}

    def config(self, group: str) -> VOConfig:
        """The configuration of the VO; all jobs have one group."""
        if self._config is None:
            try:
                self.group = group_of(self.who, self.policy, self.body.group or group).name
            except LodesmanError as wrong:
                if group and not self.body.group:
                    wrong.data = {**wrong.data, "attribute": "OwnerGroup"}
                raise
            self._config = self.policy.vo_config(self.who.vo)
        elif group and not self.body.group and group != self.group:
            raise InvalidJob(
                f"OwnerGroup {group}: the jobs of one submission have one group.",
                hint=f"Give {self.group} as all others, or submit it apart.",
                attribute="OwnerGroup",
            )
        return self._config

    def read(
        self, index: int, entry: str | jobs.Record, verified: VerifyResult | None
    ) -> tuple[jobs.Description, PositionMap, Form]:
        """A description after the six steps, places of its attributes, its language. `verified`: the result before
        the server's JSV.
        """
        original, places, form = read_entry(self.body, entry)
        resolved = verified or self._resolver.resolve(original, places, self.body)
        self.notices.extend(resolved.notices)
        if resolved.resolution is not None:
            self.resolutions[index] = resolved.resolution
        record = original if resolved.record is None else resolved.record
        self._hold(index, hold_of(record), resolved.resolution)
        try:
            description = jobs.read_job(record, places, ignore_unknown=self.body.ignore_unknown)
            jobs.check_program(description.spec, description.members)
        except InvalidJob as wrong:
            name_writer(wrong, resolved.resolution)
            raise
        # What is kept is what the user wrote.
        kept = description if record is original else msgspec.structs.replace(description, record=original)
        return kept, places, form

    def _hold(self, index: int, letters: str, resolution: Resolution | None) -> None:
        """`h` also stands for the user's option where class or JSV may have changed it."""
        origin = _BY_USER if resolution is None else resolution.origins.get("Held", "")
        if self.body.hold and (resolution is None or (letters and origin == _BY_USER)):
            self.holds[index] = _ON_HOLD
        elif letters:
            self.holds[index] = f"submitted with h {shown(letters)} ({origin})"
            self.notices.append(Notice("Held", f"It is Held until it is released: {self.holds[index]}."))
        elif self.body.hold:
            self.notices.append(
                Notice("Held", "It is not Held: the JSV of the server took the hold (h) away.")
            )

    def cohorts_of(
        self, description: jobs.Description, offset: int, places: PositionMap = NO_POSITIONS
    ) -> Iterator[PreparedCohort]:
        """`offset`: the index of the first member in the submission."""
        check_owner(description, self.who)
        if description.warnings:
            self.notices.extend(description.warnings)
            self.odd[str(offset)] = description.record
        config = self.config(description.group)
        if self.few_kinds and description.members is not None and description.spec.deferred:
            raise TakesLong
        if description.spec.after or description.spec.after_ok:
            count = description.members.count if description.members else 1
            self.waits.append(waits_of(description.spec, range(offset, offset + count)))
        for cohort in jobs.cohorts(description, places=places):
            self._check_project(cohort.spec.project, offset)
            try:
                key, never = self.judge(cohort, description.members, config)
            except Impossible as wrong:
                self._say_default(wrong, description.record, offset)
                raise
            self._warn_of_bans(cohort.spec.banned_sites, config, description.record, places)
            if cohort.spec.after or cohort.spec.after_ok:
                key = replace(key, waits_for_jobs=True)
            template, expand = self._stored(cohort.spec, description.members, cohort.runs)
            yield PreparedCohort(
                key=key,
                template=template,
                expand=expand,
                numbered=description.members is not None,
                max_attempts=cohort.spec.max_attempts,
                retry=jobs.retry_text(cohort.spec),
                runs=cohort.runs if not offset else tuple([(a + offset, b + offset) for a, b in cohort.runs]),
                held=never,
                hold=self.holds.get(offset, ""),
            )
        if self.uploads and self.shelf is not None:
            self._check_programs(description, self.shelf)

    def _check_programs(self, description: jobs.Description, shelf: Shelf) -> None:
        """Raises InvalidJob for an uploaded program whose interpreter no node has; adds a notice if a shell will
        read it.
        """
        programs = jobs.list_programs(description.spec, description.members)
        for name in jobs.input_names(description.spec, description.members):
            if name in self._scripts or name.rpartition("/")[2] not in programs:
                continue
            self._scripts.add(name)
            head = shelf.head(self.who.name, self.uploads[name].sha256, FIRST_LINE_BYTES)
            if wants_interpreter_with_cr(head):
                raise InvalidJob(
                    f"Executable: the first line of {name} ends with CR LF: no node has such an interpreter.",
                    hint="Write it with line ends of Unix, and upload it again.",
                    attribute="Executable",
                )
            if not (self.uploads[name].executable or head.startswith((b"#!", b"\x7fELF"))):
                text = f"{name} names no interpreter in its first line (#!) and is not executable: /bin/sh reads it."
                self.notices.append(Notice("Executable", text))

    def _check_project(self, project: str, offset: int) -> None:
        try:
            check_project(project, self.who, self.policy)
        except InvalidJob as wrong:
            name_writer(wrong, self.resolutions.get(offset))
            raise

    def _say_default(self, wrong: Impossible, record: Record, offset: int) -> None:
        resolution = self.resolutions.get(offset)
        is_given = jobs.find_spelling(_TIME, record) in record or (
            resolution is not None and _TIME in resolution.origins
        )
        if is_given or wrong.data.get("attribute") != _TIME:
            return
        steps = wrong.data["queues"]["nearest"][0]["steps"]
        longest = next((step["instead"] for step in steps if step["criterion"] == _TIME), None)
        default_s = jobs.JobSpec(executable="").norm_cpu_seconds
        how = f", as by lode submit --cpu-time {longest // 60}m" if longest and longest >= 60 else ""
        wrong.hint = (
            f"It says no CPUTime, which then is {default_s} s: say how long it needs{how}. {wrong.hint}"
        )

    def _warn_of_bans(
        self, sites: Collection[str], config: VOConfig, record: Record, places: PositionMap
    ) -> None:
        for name in sites:
            if name in self._bans or len(self._bans) >= _MOST_BANS:
                continue
            self._bans.add(name)
            if text := ban_of_nothing(name, config, jobs.find_spelling("BannedSite", record)):
                self.notices.append(
                    Notice("BannedSite", text, *(jobs.place_of("BannedSite", places) or (0, 0)))
                )

    def judge(
        self, cohort: jobs.CohortSpec, members: jobs.ParametricMembers | None, config: VOConfig
    ) -> tuple[TaskQueueKey, str]:
        """The key, and why no queue can run it, or ''. Raises Impossible."""
        judged = self._judge(cohort.spec, config)
        if judged.never and not self.body.hold_if_impossible:
            exclusions = find_exclusions(
                judged.key, judged.requirements.criteria, config, self._resolver.usable
            )
            raise _refusal(judged.never, cohort.runs, members, exclusions)
        return judged.key, judged.never

    def _judge(self, spec: jobs.JobSpec, config: VOConfig) -> JudgedJob:
        """Equal jobs share a verdict, across submissions of one configuration."""
        requirements = _ENCODER.encode(spec.requirements) if spec.requirements else b""
        owner, vo, hold = self.who.name, self.who.vo, self.body.hold_if_impossible
        alike = (owner, self.group, vo, hold, *_KEY_VALUES(spec), requirements)
        judged = self._judged.get(alike) or self.policy.verdicts.get(alike)
        if judged is None:
            draft = JobDraft(
                spec=spec, owner=owner, group=self.group, vo=vo, hold=hold, usable=self._resolver.usable
            )
            judged = optimize(draft, config)
            # What is suggested follows the job classes.
            is_kept = not (judged.never and config.has_jc_lists)
            if is_kept and len(self.policy.verdicts) < _VERDICTS_KEPT and len(repr(alike)) < _LARGE_KEY:
                self.policy.verdicts[alike] = judged
        self._judged[alike] = judged
        compiled = judged.requirements
        if compiled.pool and compiled.pool not in self.pools:
            self.pools[compiled.pool] = NewPool(
                id=compiled.pool, requirements=compiled.text, vo=config.vo, queues=judged.pool_mask,
                asks_ads=bool(config.table.placement(compiled.criteria)),
            )  # fmt: skip
        return judged

    def _stored(
        self, spec: jobs.JobSpec, members: jobs.ParametricMembers | None, runs: Runs
    ) -> tuple[str, bool]:
        """The template, and whether a claim must fill it in."""
        if members is None or not jobs.Template(spec, members).varies:
            return _ENCODER.encode(make_payload(spec, self._uploads_of(spec.input_sandbox))).decode(), False
        names = jobs.input_names(spec, members, runs)
        stored = {"spec": jobs.spec_to_json(spec), "uploads": self._uploads_of(names)}
        return _ENCODER.encode(stored).decode(), True

    def _uploads_of(self, names: Collection[str]) -> dict[str, Upload]:
        if self.db is None:
            return dict.fromkeys(names, Upload("", 0))
        for name in names:
            if name in self.uploads:
                continue
            announced = self.body.sandboxes.get(name)
            if announced is None or uploaded_size(self.db, self.who.name, announced.sha256) != announced.size:
                raise InvalidJob(
                    f"InputSandbox: the file {name!r} was not uploaded.",
                    hint="lode submit uploads local files by itself; other clients use POST /v1/sandboxes first.",
                    attribute="InputSandbox",
                )
            self.uploads[name] = Upload(
                announced.sha256, announced.size, announced.executable, announced.modified
            )
        return {name: self.uploads[name] for name in names}


def prepare(
    body: SubmitBody, who: Principal, policy: Policy, db: Reader | None, classes: PreparedClasses,
    *, verified: Sequence[VerifyResult] | None = None, room: int | None = None, shelf: Shelf | None = None,
) -> tuple[PreparedSubmission, Sequence[Notice]]:  # fmt: skip
    """Check a submission. Without a database input files are not checked. `verified`: what the server's JSV left of
    each description; None: no JSV. `shelf`: where input files lie.

    Raises SyntaxFault, InvalidJob, Impossible, TooLarge, Forbidden, InvalidRequest; TakesLong beyond `room` for
    letters of job classes, or then if members may be of many kinds.
    """
    work = Preparation(body, who, policy, db, Resolver(classes, who.name, who.groups, room=room))
    work.few_kinds, work.shelf = room is not None, shelf
    entries = entries_of(body)
    checked = [None] * len(entries) if verified is None else verified
    single, places, form = None, NO_POSITIONS, body.form if body.texts else ""
    if len(entries) == 1:
        single, places, form = work.read(0, entries[0], checked[0])
    try:
        parts = _batch(work, entries, checked) if single is None else list(work.cohorts_of(single, 0, places))
    except LodesmanError as wrong:
        job = wrong.data.get("job")
        if body.texts is not None and job is not None and "attribute" in wrong.data:
            places = read_entry(body, body.texts[job])[1]
        jobs.locate(wrong, places)
        raise
    members = None if single is None else single.members
    # Of a batch only odd descriptions are kept, by index: others follow from what is stored of the jobs.
    record = work.odd if single is None else single.record
    prepared = PreparedSubmission(
        owner=who.name,
        group=work.group,
        vo=who.vo,
        name="" if single is None else jobs.common_name(single.spec, single.members),
        form=form or "json",
        record=_ENCODER.encode(record).decode() if record or single else "",
        members=None if members is None else _ENCODER.encode(members).decode(),
        count=len(entries) if members is None else members.count,
        cohorts=tuple(parts),
        pools=tuple(work.pools.values()),
        inputs=tuple({upload.sha256 for upload in work.uploads.values()}),
        request_id=body.request_id,
        resolution=_ENCODER.encode(work.resolutions).decode() if work.resolutions else None,
        config=policy.digest,
        waits=tuple(work.waits),
    )
    return prepared, work.notices


def _batch(
    work: Preparation, entries: Sequence[str | jobs.Record], checked: Sequence[VerifyResult | None]
) -> list[PreparedCohort]:
    parts: list[PreparedCohort] = []
    for position, (entry, verified) in enumerate(zip(entries, checked, strict=True)):
        with in_batch(position):
            description = work.read(position, entry, verified)[0]
            if description.members is not None:
                raise InvalidJob(
                    "a parametric job is submitted alone.",
                    hint="Give it as `text`, or leave Parameters out.",
                    attribute="Parameters",
                )
            parts.extend(work.cohorts_of(description, position))
    return parts


def _refusal(
    never: str, runs: Runs, members: jobs.ParametricMembers | None, exclusions: Exclusions
) -> Impossible:
    lost = sum(stop - start for start, stop in runs)
    who = "The job"
    which: Mapping[str, object] = {}
    if members is not None and lost < members.count:
        ranges = [[start, stop - 1] for start, stop in runs[:_FEW_RUNS]]
        shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
        more = ", ..." if len(runs) > _FEW_RUNS else ""
        who = f"Member{'' if lost == 1 else 's'} {shown}{more} ({lost} of {members.count})"
        which = {"members": ranges, "jobs": lost}
    # The first step of the smallest change, as a description calls it.
    best = exclusions.job_changes(1)
    criterion = best[0].steps[0].criterion if best else ""
    attribute = without_clause(_OF_JOBS.get(criterion, criterion))
    return Impossible(
        f"{who} can never run: {never}.",
        hint="Change it, or submit it with --hold-if-impossible to keep it Held until a queue appears.",
        queues=msgspec.to_builtins(exclusions.summary()),
        **which,
        **({"attribute": attribute} if attribute else {}),
    )
