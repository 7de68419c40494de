"""Storing a submission: one row for the whole, cohorts for arrays, rows for single jobs (DESIGN 3.2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from lodesman.commands import sandboxes
from lodesman.commands.live import Live
from lodesman.errors import Conflict, InvalidRequest
from lodesman.matching import TaskQueueKey
from lodesman.resources import QueueId
from lodesman.store import submit_pools
from lodesman.store.cohorts import INSERT_COHORT
from lodesman.store.fronts import Candidate
from lodesman.store.inputs import NAMED_BY
from lodesman.store.jobs import INSERT_WAITING, add_event, add_range_event
from lodesman.store.journal import Transaction

INSERT_SUBMISSION = """INSERT INTO submission
(id, base, count, owner, grp, vo, name, created_at, form, record, members, request_id, held, first_template,
last_template) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"""
INSERT_TEMPLATE = "INSERT INTO template (id, expand, max_attempts, body) VALUES (?,?,?,?)"
SAME_REQUEST = """SELECT id, base, count, held, record = ? AND members IS ? AND grp = ? AND name = ? AND count = ?
FROM submission WHERE owner = ? AND request_id = ?"""


class PreparedCohort(Struct, frozen=True, kw_only=True, gc=False):
    """Members of a submission with one key and one template. `runs` are index ranges [start, stop).

    `held`: why no configured queue can run them; '' if one can.
    """

    key: TaskQueueKey
    template: str
    expand: bool
    max_attempts: int
    runs: tuple[tuple[int, int], ...]
    held: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPool:
    """A SubmitPool that a submission brings: its requirements as canonical JSON and its eligible queues."""

    id: str
    requirements: str
    vo: str
    queues: tuple[QueueId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubmission:
    """A checked submission, ready to be stored.

    `inputs`: the checksums of the uploaded files that its jobs take along. `config`: the digest of the configuration
    that it was checked by.
    """

    owner: str
    group: str
    vo: str
    name: str
    form: str
    record: str
    members: str | None
    count: int
    cohorts: tuple[PreparedCohort, ...]
    pools: tuple[NewPool, ...] = ()
    inputs: tuple[str, ...] = ()
    request_id: str | None = None
    config: str = ""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The answer: a contiguous block of job ids from `first`."""

    submission: int
    first: int
    count: int
    held: int
    repeated: bool = False


@dataclass(slots=True)
class Submit:
    """Store a prepared submission. A request id that this owner used before gets the first answer again."""

    live: Live
    prepared: PreparedSubmission
    _templates: dict[str, int] = field(default_factory=dict)
    # Of this submission: its keys by identity (equal jobs share the object), and what joins each queue.
    _queues: dict[int, int] = field(default_factory=dict)
    _joining: Counter[int] = field(default_factory=Counter)
    # Task queues that no configured queue can run, with the reason.
    _never: dict[int, str] = field(default_factory=dict)

    def apply(self, tx: Transaction) -> Submitted:
        """Store all or nothing."""
        what = self.prepared
        before = self._before(tx)
        if before is not None:
            return before
        if what.count < 1:
            raise InvalidRequest("A submission needs at least one job.")
        sandboxes.need_all(tx, what.owner, what.inputs)
        for memory in (self._templates, self._queues, self._joining, self._never):
            memory.clear()  # a replay begins anew
        base = self.live.ids.jobs(tx, what.count)
        number = self.live.ids.submission()
        if what.count > 1:
            add_range_event(tx, self.live.ids, (base, base + what.count - 1), "Submitted", submission=number)
        self._store_pools(tx)
        held = sum([self._store_cohort(tx, cohort, (number, base)) for cohort in what.cohorts])
        templates = self._templates.values()
        tx.later(
            INSERT_SUBMISSION,
            (number, base, what.count, what.owner, what.group, what.vo, what.name, tx.now, what.form,
             what.record, what.members, what.request_id, held, min(templates), max(templates)),
        )  # fmt: skip
        sandboxes.use(tx, what.owner, what.inputs, number)
        for tq_id, joining in self._joining.items():
            self._join(tx, tq_id, joining)
        for tq_id, reason in self._never.items():
            self.live.hold(tx, tq_id, reason)
        if what.config != self.live.last_pass.config:
            # It was judged by another configuration than all others: judge them together.
            submit_pools.ask_for_pass(tx)
        return Submitted(number, base, what.count, held)

    def _before(self, tx: Transaction) -> Submitted | None:
        """What was answered to the same request before. Raises Conflict if that was about something else."""
        what = self.prepared
        if what.request_id is None:
            return None
        same = (what.record, what.members, what.group, what.name, what.count)
        found = tx.read(SAME_REQUEST, (*same, what.owner, what.request_id))
        if not found:
            return None
        number, first, count, held, alike = found[0]
        files = {row[0] for row in tx.read(NAMED_BY, (number,))}
        if not alike or (files and not files.issuperset(what.inputs)):
            raise Conflict(
                f"The request id {what.request_id!r} was used for other jobs: {first} to {first + count - 1}.",
                hint="Nothing was submitted. Use the same id only to repeat the same submission.",
                first=first,
                count=count,
            )
        return Submitted(number, first, count, held, repeated=True)

    def _store_pools(self, tx: Transaction) -> None:
        """Store pools that are new. One that is known keeps its queues, which its last pass has found."""
        live = self.live
        for pool in self.prepared.pools:
            mask = live.pools.mask(pool.id)
            if not mask:  # new, or made again by a job that came back, and not evaluated since
                mask = 0
                for place in pool.queues:
                    mask |= 1 << live.name_queue(tx, place)
                live.serve(tx, {pool.id: mask})
            row = (pool.id, pool.vo, pool.requirements, submit_pools.bitmap(mask), tx.now)
            tx.later(submit_pools.STORE, row)

    def _store_cohort(self, tx: Transaction, cohort: PreparedCohort, at: tuple[int, int]) -> int:
        """Store one cohort; returns how many of its members are held."""
        tq_id = self._queues.get(id(cohort.key))
        if tq_id is None:
            tq_id = self._queues[id(cohort.key)] = self._queue_for(tx, cohort)
        template = self._template(tx, cohort)
        members = sum([stop - start for start, stop in cohort.runs])
        if members == 1:
            self._store_single(tx, cohort, (tq_id, template), at)
        else:
            for run in cohort.runs:
                self._store_run(tx, cohort, (tq_id, template), (*at, *run))
        self._joining[tq_id] += members
        if cohort.held:
            self._never[tq_id] = cohort.held
            return members
        return 0

    def _queue_for(self, tx: Transaction, cohort: PreparedCohort) -> int:
        key, wanted = cohort.key, ""
        if key.submit_pool:
            wanted = next(
                (pool.requirements for pool in self.prepared.pools if pool.id == key.submit_pool), ""
            )
        return self.live.queue_for(tx, key, wanted)

    def _join(self, tx: Transaction, tq_id: int, joining: int) -> None:
        """Count what joined a task queue; its front reads anew, but for one row that it can append."""
        if self.prepared.count > 1:
            self.live.fronts.forget(tq_id)
            tx.undo.append(partial(self.live.fronts.forget, tq_id))
        self.live.joined(tx, tq_id, joining)

    def _template(self, tx: Transaction, cohort: PreparedCohort) -> int:
        known = self._templates.get(cohort.template)
        if known is not None:
            return known
        number = self._templates[cohort.template] = self.live.ids.template()
        tx.later(INSERT_TEMPLATE, (number, cohort.expand, cohort.max_attempts, cohort.template))
        return number

    def _store_single(
        self, tx: Transaction, cohort: PreparedCohort, queue: tuple[int, int], at: tuple[int, int]
    ) -> None:
        (tq_id, template), (number, base) = queue, at
        job_id = base + cohort.runs[0][0]
        event = None
        if self.prepared.count == 1 or cohort.held:
            kind = "Held" if cohort.held else "Waiting"
            reason = {"reason": cohort.held} if cohort.held else {}
            event = add_event(tx, self.live.ids, job_id, kind, previous=None, **reason)
        row = (job_id, number, tq_id, template, "Waiting", 1, tx.now, event, cohort.max_attempts)
        tx.later(INSERT_WAITING, row)
        if self.prepared.count == 1:
            new = Candidate(job_id, number, template, 0, event, None, cohort.max_attempts)
            self.live.add_row(tx, tq_id, new)

    def _store_run(
        self, tx: Transaction, cohort: PreparedCohort, queue: tuple[int, int], at: tuple[int, int, int, int]
    ) -> None:
        (tq_id, template), (number, base, start, stop) = queue, at
        cohort_id = self.live.ids.cohort()
        tx.later(INSERT_COHORT, (cohort_id, number, tq_id, base, start, stop, start, template))
        if cohort.held:
            add_range_event(tx, self.live.ids, (base + start, base + stop - 1), "Held", reason=cohort.held)
