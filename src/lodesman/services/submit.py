"""Storing a submission: one row for the whole, cohorts for arrays, rows for single jobs (DESIGN 3.2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial

from lodesman.errors import InvalidRequest
from lodesman.matching import TaskQueueKey
from lodesman.services.live import Live
from lodesman.store.fronts import Candidate
from lodesman.store.jobs import INSERT_JOB, add_event, add_range_event
from lodesman.store.journal import Transaction

INSERT_SUBMISSION = """INSERT INTO submission
(id, base, count, owner, grp, vo, name, created_at, form, record, members, request_id)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?)"""
INSERT_TEMPLATE = "INSERT INTO template (id, expand, max_attempts, body) VALUES (?,?,?,?)"
INSERT_COHORT = """INSERT INTO cohort (id, submission_id, tq_id, base, start, stop, cursor, template_id)
VALUES (?,?,?,?,?,?,?,?)"""
INSERT_HOLE = "INSERT INTO hole (cohort_id, start, stop, state, reason, at) VALUES (?,?,?,?,?,?)"
SAME_REQUEST = "SELECT id, base, count FROM submission WHERE owner = ? AND request_id = ?"
STORE_POOL = """INSERT INTO submit_pool (id, requirements, vo, created_at, refreshed_at) VALUES (?1,?2,?3,?4,?4)
ON CONFLICT (id) DO NOTHING"""
STORE_POOL_QUEUE = "INSERT OR IGNORE INTO submit_pool_queue (pool_id, site, ce, queue) VALUES (?,?,?,?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCohort:
    """Members of a submission with one key and one template. `runs` are index ranges [start, stop)."""

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
    queues: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedSubmission:
    """A checked submission, ready to be stored."""

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
    request_id: str | None = None


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

    def apply(self, tx: Transaction) -> Submitted:
        """Store all or nothing."""
        what = self.prepared
        if what.request_id is not None:
            before = tx.read(SAME_REQUEST, (what.owner, what.request_id))
            if before:
                number, first, count = before[0]
                return Submitted(number, first, count, 0, repeated=True)
        if what.count < 1:
            raise InvalidRequest("A submission needs at least one job.")
        for memory in (self._templates, self._queues, self._joining):
            memory.clear()  # a replay begins anew
        base = self.live.ids.jobs(tx, what.count)
        number = self.live.ids.submission()
        tx.later(
            INSERT_SUBMISSION,
            (number, base, what.count, what.owner, what.group, what.vo, what.name, tx.now, what.form,
             what.record, what.members, what.request_id),
        )  # fmt: skip
        self._store_pools(tx)
        held = sum([self._store_cohort(tx, cohort, (number, base)) for cohort in what.cohorts])
        for tq_id, joining in self._joining.items():
            self._join(tx, tq_id, joining)
        if what.count > 1:
            add_range_event(tx, self.live.ids, (base, base + what.count - 1), "Submitted", submission=number)
        return Submitted(number, base, what.count, held)

    def _store_pools(self, tx: Transaction) -> None:
        for pool in self.prepared.pools:
            tx.later(STORE_POOL, (pool.id, pool.requirements, pool.vo, tx.now))
            tx.later_many(STORE_POOL_QUEUE, [(pool.id, *queue) for queue in pool.queues])
            if pool.id not in self.live.pools.known:
                # Kept if the batch fails: it is true of the configuration whether or not this job is stored.
                self.live.add_pool(pool.id, list(pool.queues))

    def _store_cohort(self, tx: Transaction, cohort: PreparedCohort, at: tuple[int, int]) -> int:
        """Store one cohort; returns how many of its members are held."""
        tq_id = self._queues.get(id(cohort.key))
        if tq_id is None:
            tq_id = self._queues[id(cohort.key)] = self.live.queue_for(tx, cohort.key)
        template = self._template(tx, cohort)
        members = sum([stop - start for start, stop in cohort.runs])
        if members == 1:
            self._store_single(tx, cohort, (tq_id, template), at)
        else:
            for run in cohort.runs:
                self._store_run(tx, cohort, (tq_id, template), (*at, *run))
        if cohort.held:
            return members
        self._joining[tq_id] += members
        return 0

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
        state = "Held" if cohort.held else "Waiting"
        event = None
        if self.prepared.count == 1 or cohort.held:
            reason = {"reason": cohort.held} if cohort.held else {}
            event = add_event(tx, self.live.ids, job_id, state, previous=None, **reason)
        queued = None if cohort.held else 1
        tx.later(
            INSERT_JOB,
            (job_id, number, tq_id, template, state, 0, None, queued, tx.now, event, None,
             cohort.max_attempts, cohort.held),
        )  # fmt: skip
        if not cohort.held and self.prepared.count == 1:
            new = Candidate(job_id, number, template, 0, event, None, cohort.max_attempts)
            self.live.add_row(tx, tq_id, new)

    def _store_run(
        self, tx: Transaction, cohort: PreparedCohort, queue: tuple[int, int], at: tuple[int, int, int, int]
    ) -> None:
        (tq_id, template), (number, base, start, stop) = queue, at
        cohort_id = self.live.ids.cohort()
        cursor = stop if cohort.held else start
        tx.later(INSERT_COHORT, (cohort_id, number, tq_id, base, start, stop, cursor, template))
        if cohort.held:
            tx.later(INSERT_HOLE, (cohort_id, start, stop, "Held", cohort.held, tx.now))
            add_range_event(tx, self.live.ids, (base + start, base + stop - 1), "Held", reason=cohort.held)
