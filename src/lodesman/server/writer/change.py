"""Change jobs that wait or are held, judged as at submission. Ids, attempts and history stay; untouched members
stay a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from lodesman.base.errors import InvalidJob, LodesmanError, TooLarge
from lodesman.decide.matching.policy import Policy
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages import jobs
from lodesman.languages.jobclass import Classes
from lodesman.server.store import Reader, submit_pools
from lodesman.server.store.read.jobs import (
    ChangeableJobs,
    StoredTemplate,
    changeable_jobs,
    resolutions_of_kind,
    stored_members,
)
from lodesman.server.store.task_queues import key_and_requirements
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import cohorts
from lodesman.server.store.write import jobs as stored
from lodesman.server.store.write.cohorts import CohortRow, Hole
from lodesman.server.store.write.jobs import JobRow
from lodesman.server.writer.control import RangeAction
from lodesman.server.writer.control_outcome import ControlOutcome
from lodesman.server.writer.job_classes import groups_of
from lodesman.server.writer.memberships import check_project
from lodesman.server.writer.other_values import OtherValues
from lodesman.server.writer.prepare import Preparation
from lodesman.server.writer.resolving import Resolver
from lodesman.server.writer.submit import NewPool, PreparedCohort, need_task_queues, store_pools
from lodesman.server.writer.templates import make_payload, stored_job
from lodesman.wire.accounts import Principal
from lodesman.wire.jsv import JsvSection
from lodesman.wire.requests import SubmitBody
from lodesman.wire.vocabulary import JobState

_MOST_KINDS: Final = 100
"""Kinds of jobs, each with its own description, that one request may change."""
_CHANGING: Final = frozenset({JobState.WAITING, JobState.HELD})
_MEANWHILE: Final = "it was changed at the same time; try again"
_Kind = tuple[int, int, int]  # submission, template, task queue


class PreparedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What each kind of jobs becomes, by submission, template and task queue."""

    attributes: tuple[str, ...]
    kinds: Mapping[_Kind, PreparedCohort]  # without `runs`
    owners: Mapping[_Kind, str]
    pools: tuple[NewPool, ...]
    config: str


def find_kinds(
    db: Reader, ranges: Iterable[range], may: Callable[[str, str, str], bool]
) -> list[ChangeableJobs]:
    """Waiting and held jobs in these ranges that the caller may touch. Raises TooLarge."""
    touchable: dict[ChangeableJobs, None] = {}
    for ids in ranges:
        kinds = changeable_jobs(db, ids[0], ids[-1], most=_MOST_KINDS + 1)
        touchable |= dict.fromkeys(kind for kind in kinds if may(kind.owner, kind.group, kind.vo))
        if len(kinds) > _MOST_KINDS or len(touchable) > _MOST_KINDS:
            raise TooLarge(
                f"These jobs have more than {_MOST_KINDS} descriptions, which are not changed at once.",
                hint="Name fewer. All members of an array that are alike have one description.",
                limit=_MOST_KINDS,
            )
    return list(touchable)


class ChangePreparation:
    """New values, judged for each kind of jobs; None takes an attribute away."""

    def __init__(
        self, values: jobs.Record, policy: Policy, db: Reader, classes: Classes, jsv: JsvSection, *,
        hold_if_impossible: bool, by: str,
    ) -> None:  # fmt: skip
        """`jsv` does not verify changes. `by`: who changes. Raises InvalidJob."""
        self._change = OtherValues(values, db, classes, jsv, by=by)
        self._policy = policy
        self._db = db
        self._classes = classes
        self._body = SubmitBody(hold_if_impossible=hold_if_impossible)
        self._pools: dict[str, NewPool] = {}

    def prepare(self, kinds: Sequence[ChangeableJobs]) -> PreparedChange:
        """Raises InvalidJob, Impossible, Forbidden; names the submission among several kinds."""
        made = {}
        for kind in kinds:
            try:
                made[kind.submission, kind.template, kind.tq_id] = self._changed(kind)
            except LodesmanError as wrong:
                if len(kinds) > 1:
                    wrong.message = f"Jobs of submission {kind.submission}: {wrong.message}"
                    wrong.data = {**wrong.data, "first": kind.base}
                raise
        return PreparedChange(
            attributes=tuple(sorted(self._change.given)),
            kinds=made,
            owners={(kind.submission, kind.template, kind.tq_id): kind.owner for kind in kinds},
            pools=tuple(self._pools.values()),
            config=self._policy.digest,
        )

    def _changed(self, kind: ChangeableJobs) -> PreparedCohort:
        key, requirements = key_and_requirements(self._db, kind.tq_id)
        before, uploads = stored_job(self._db, kind.template, key, requirements)
        text = stored_members(self._db, kind.submission)[1]
        members = msgspec.json.decode(text, type=jobs.ParametricMembers) if text else None
        after, made = self._change.of_job(kind, before, resolutions_of_kind(self._db, kind))
        if after.at_most and not key.at_most:
            raise InvalidJob(
                "AtMost: it was not given when these jobs were submitted, so those that run are not counted.",
                hint="Delete the jobs that wait and submit them again.",
                attribute="AtMost",
            )
        if after.executable != before.executable:
            jobs.check_program(after, members)
        who = Principal(kind="user", name=kind.owner, vo=kind.vo, groups=(kind.group,))
        if after.project != before.project or "JobGroup" in self._change.given:
            all_groups = replace(who, groups=groups_of(self._db, kind.owner))
            check_project(after.project, all_groups, self._policy)
        resolver = Resolver(PreparedClasses(self._classes), kind.owner, groups_of(self._db, kind.owner))
        work = Preparation(self._body, who, self._policy, self._db, resolver)
        config = work.config("")
        # One cohort: values other than texts that members differ in were filled in before.
        (cohort,) = jobs.cohorts(jobs.Description(record={}, spec=after, members=members))
        was = key
        key, never = work.judge(cohort, members, config)
        self._pools |= work.pools
        expand = members is not None and jobs.Template(after, members).varies
        body: Any = {"spec": jobs.spec_to_json(after), "uploads": uploads}
        return PreparedCohort(
            key=dataclasses.replace(
                key, waits_for_jobs=was.waits_for_jobs, submission=kind.submission if key.at_most else 0
            ),
            template=msgspec.json.encode(body if expand else make_payload(after, uploads)).decode(),
            expand=expand,
            numbered=members is not None,
            max_attempts=after.max_attempts,
            retry=jobs.retry_text(after),
            runs=(),
            held=never,
            resolution=None if made is None else msgspec.json.encode(made).decode(),
        )


@dataclass(slots=True)
class ChangeJobs(RangeAction):
    """Give jobs new values. `most`: of task queues. Jobs of no prepared kind any more are refused."""

    change: PreparedChange = field(kw_only=True)
    _requirements: dict[str, str] = field(init=False, default_factory=dict)
    _runs: dict[_Kind, int] = field(init=False, default_factory=dict)

    def apply(self, tx: Transaction) -> ControlOutcome:
        """As `RangeAction`. Raises TooLarge."""
        change, queues = self.change, self.live.queues
        self._runs.clear()  # a replay begins anew
        for owner in set(change.owners.values()):
            keys = [cohort.key for kind, cohort in change.kinds.items() if change.owners[kind] == owner]
            need_task_queues(self.live, owner, keys, self.most)
        if self.dry_run:
            return RangeAction.apply(self, tx)
        self._requirements = store_pools(tx, self.live, change.pools)
        if queues.held:
            tx.holds_changed()
        out = RangeAction.apply(self, tx)
        for cohort in change.kinds.values():
            tq_id = queues.index.find(cohort.key)
            if cohort.held and tq_id is not None:
                queues.hold(tx, tq_id, cohort.held)
        if change.config != self.live.pools.last_pass.config:
            submit_pools.ask_for_pass(tx)
        return out

    def _row(self, tx: Transaction, out: ControlOutcome, row: JobRow) -> None:
        new = self.change.kinds.get((row.submission_id, row.template_id, row.tq_id))
        if row.state not in _CHANGING or new is None:
            out.refuse(row.id, _MEANWHILE if row.state in _CHANGING else f"it is {row.state}")
            return
        out.change()
        if self.dry_run:
            return
        queues, ids = self.live.queues, self.live.ids
        if row.state is JobState.WAITING:
            queues.left(tx, row.tq_id, 1)
        tq_id = self._queue_of(tx, new)
        stored.change_row(
            tx, ids, row, tq_id=tq_id, template=self._template(tx, new),
            max_attempts=self.live.attempts(new.max_attempts),
            **self._data(),
        )  # fmt: skip
        self._rename(tx, row.submission_id)
        if row.state is JobState.WAITING:
            queues.came_back(tx, tq_id, row.id)

    def _in_hole(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, hole: Hole, run: range
    ) -> None:
        if hole.state == "Moved":
            return
        if hole.state != JobState.HELD:
            out.refuse(cohort.base + run.start, f"it is {hole.state}", count=len(run))
            return
        number = self._move(tx, out, cohort, run)
        if number is not None:
            cohorts.change_hole(tx, cohort.id, hole, run, state="Moved", reason="")
            kept = hole.admin_held
            cohorts.add_hole(tx, number, run, state=hole.state, reason=hole.reason, admin_held=kept)

    def _waiting(self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range) -> None:
        if self._move(tx, out, cohort, run, waits=True) is not None:
            cohorts.add_hole(tx, cohort.id, run, state="Moved", reason="")

    def _move(
        self, tx: Transaction, out: ControlOutcome, cohort: CohortRow, run: range, *, waits: bool = False
    ) -> int | None:
        """Returns the cohort of the run, None if refused or only counted."""
        kind = (cohort.submission_id, cohort.template_id, cohort.tq_id)
        new = self.change.kinds.get(kind)
        first, queues, ids = cohort.base + run.start, self.live.queues, self.live.ids
        if new is None:
            out.refuse(first, _MEANWHILE, count=len(run))
            return None
        out.change(len(run))
        if self.dry_run:
            return None
        if waits:
            queues.left(tx, cohort.tq_id, len(run))
        tq_id = self._queue_of(tx, new)
        if kind not in self._runs:
            self._runs[kind] = self._template(tx, new)
        number = cohorts.insert_run(
            tx,
            ids,
            run,
            submission=cohort.submission_id,
            tq_id=tq_id,
            base=cohort.base,
            template=self._runs[kind],
        )
        stored.add_range_event(tx, ids, range(first, first + len(run)), "Changed", **self._data())
        self._rename(tx, cohort.submission_id)
        if waits:
            queues.run_came_back(tx, tq_id, len(run))
        return number

    def _queue_of(self, tx: Transaction, new: PreparedCohort) -> int:
        return self.live.queues.queue_for(tx, new.key, self._requirements.get(new.key.submit_pool, ""))

    def _template(self, tx: Transaction, new: PreparedCohort) -> int:
        """One for each row: it goes when the row is changed again, or purged."""
        number = self.live.ids.template()
        most = self.live.attempts(new.max_attempts)
        stored.insert_template(
            tx, number, StoredTemplate(new.fill, most, new.template, new.retry, new.resolution)
        )
        return number

    def _rename(self, tx: Transaction, submission: int) -> None:
        if "JobName" in self.change.attributes:
            stored.forget_name(tx, submission)

    def _data(self) -> dict[str, Any]:
        reason = {"reason": self.reason} if self.reason else {}
        return {**self._by(), **reason, "attributes": list(self.change.attributes)}
