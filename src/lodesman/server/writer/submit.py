"""Storing a submission: cohorts for arrays, rows for single jobs; and input files of users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import Struct

from lodesman.base.errors import Conflict, InvalidJob, InvalidRequest, StorageFull, TooLarge, counted
from lodesman.decide.matching import TaskQueueKey
from lodesman.server.store import sandboxes, submit_pools
from lodesman.server.store.read.jobs import StoredTemplate
from lodesman.server.store.sandboxes import (
    InputUsage,
    counted_size,
    inputs_of_submission,
    usage_of,
    use_inputs,
)
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import jobs
from lodesman.server.store.write.cohorts import insert_run
from lodesman.server.store.write.jobs import Fill, NewSubmission, WaitingJob
from lodesman.server.writer.control import Control
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.order import WaitRule, rows_of
from lodesman.wire.accounts import LimitSection
from lodesman.wire.jobs import Submission

_DELETE = "Delete jobs that you need no more (lode delete JOB): files that no job names go a day later."


class PreparedCohort(Struct, frozen=True, kw_only=True, gc=False):
    """Members of a submission with one key and one template."""

    key: TaskQueueKey
    template: str
    expand: bool  # claims fill in placeholders of the template
    max_attempts: int
    retry: str | None = None  # after which ends they are tried again (`jobs.retries`)
    runs: tuple[tuple[int, int], ...]  # index ranges [start, stop)
    held: str = ""  # why no configured queue can run them, '' if one can
    hold: str = ""  # why they are Held until they are released
    numbered: bool = False  # they are members of an array, and know their indexes
    resolution: str | None = None  # what their class made of changed jobs (`wire.jobs.Resolution`)

    @property
    def fill(self) -> Fill:
        """What claims of its members fill in."""
        return Fill.ALL if self.expand else Fill.INDEX if self.numbered else Fill.NOTHING

    @property
    def jobs(self) -> int:
        """The number of members."""
        return sum([stop - start for start, stop in self.runs])


class NewPool(Struct, frozen=True, kw_only=True):
    """A SubmitPool that a submission brings."""

    id: str
    requirements: str  # canonical JSON
    vo: str
    queues: int  # the mask of eligible queues
    asks_ads: bool = False  # ads of sites exclude some of them; the next refresh finds out which


class PreparedSubmission(NewSubmission, frozen=True, kw_only=True):
    """Checked, ready to be stored."""

    cohorts: tuple[PreparedCohort, ...]
    pools: tuple[NewPool, ...] = ()
    inputs: tuple[str, ...] = ()  # checksums of uploaded files that its jobs take along
    config: str = ""  # the digest of the configuration that checked it
    waits: tuple[WaitRule, ...] = ()  # what its jobs wait for


@dataclass(slots=True)
class Submit:
    """Store a submission. A repeated request id of the owner gets the first answer."""

    live: WriterState
    prepared: PreparedSubmission
    limits: LimitSection | None = None
    _templates: dict[StoredTemplate, int] = field(default_factory=dict)
    # The task queues of its keys, by identity (equal jobs share the object), and how many jobs join each.
    _queues: dict[int, int] = field(default_factory=dict)
    _joining: dict[int, int] = field(default_factory=dict)
    # Task queues that no configured queue can run, with the reason.
    _never: dict[int, str] = field(default_factory=dict)
    _requirements: dict[str, str] = field(default_factory=dict)

    def apply(self, tx: Transaction) -> Submission:
        """Store all or nothing."""
        prepared = self.prepared
        before = self._before(tx)
        if before is not None:
            return before
        if prepared.count < 1:
            raise InvalidRequest("A submission needs at least one job.")
        self._need_room()
        _need_all(tx, prepared.owner, prepared.inputs)
        for memory in (self._templates, self._queues, self._joining, self._never):
            memory.clear()  # a replay begins anew
        number, base = self.live.ids.submission(), self.live.ids.next_job
        waits = (
            rows_of(tx, prepared.waits, prepared.owner, base=base, number=number) if prepared.waits else ()
        )
        self.live.ids.jobs(tx, prepared.count)
        ids = range(base, base + prepared.count)
        if prepared.count > 1:
            jobs.add_range_event(tx, self.live.ids, ids, "Submitted", submission=number)
        self._requirements = store_pools(tx, self.live, prepared.pools)
        held = sum([self._store_cohort(tx, cohort, number, base) for cohort in prepared.cohorts])
        jobs.insert_submission(
            tx, prepared, number=number, base=base, held=held, templates=self._templates.values()
        )
        use_inputs(tx, prepared.owner, prepared.inputs, number)
        for tq_id, joining in self._joining.items():
            if prepared.count > 1:  # of one row the front has been given
                self.live.queues.forget_front(tx, tq_id)
            self.live.queues.joined(tx, tq_id, joining)
        if waits:
            self.live.order.add(tx, waits)
        self._hold(tx, base)
        if prepared.config != self.live.pools.last_pass.config:
            # Another configuration judged it than all others: judge them together.
            submit_pools.ask_for_pass(tx)
        return Submission(number, base, prepared.count, held, repeated=False, notices=[])

    def _before(self, tx: Transaction) -> Submission | None:
        """Raises Conflict if the request was another one."""
        prepared = self.prepared
        if prepared.request_id is None:
            return None
        earlier = jobs.submission_of_request(tx, prepared.owner, prepared.request_id)
        if earlier is None:
            return None
        first, count = earlier.base, earlier.count
        names = ("record", "members", "group", "count")  # a name may have changed, and is in the record
        alike = all(getattr(earlier, name) == getattr(prepared, name) for name in names)
        files = inputs_of_submission(tx.reader(), earlier.id)
        if not alike or (files and not files.issuperset(prepared.inputs)):
            raise Conflict(
                f"The request id {prepared.request_id!r} was used for other jobs: {first} to {first + count - 1}.",
                hint="Nothing was submitted. Use the same id only to repeat the same submission.",
                first=first,
                count=count,
            )
        return Submission(earlier.id, first, count, earlier.held, repeated=True, notices=[])

    def _need_room(self) -> None:
        prepared, limits, index = self.prepared, self.limits, self.live.queues.index
        if limits is None:
            return
        _need(
            prepared.owner,
            "waiting_jobs",
            index.load(prepared.owner).waiting + prepared.count,
            limits.waiting_jobs,
        )
        need_task_queues(
            self.live, prepared.owner, (cohort.key for cohort in prepared.cohorts), limits.task_queues
        )

    def _store_cohort(self, tx: Transaction, cohort: PreparedCohort, number: int, base: int) -> int:
        """Returns how many members are held."""
        tq_id = self._queues.get(id(cohort.key))
        if tq_id is None:
            key = replace(cohort.key, submission=number) if cohort.key.at_most else cohort.key
            requirements = self._requirements.get(key.submit_pool, "")
            tq_id = self._queues[id(cohort.key)] = self.live.queues.queue_for(tx, key, requirements)
        template = self._template(tx, cohort)
        members = cohort.jobs
        if members == 1:
            job_id = base + cohort.runs[0][0]
            # A single job has its own event; jobs of a batch share one, unless they are held.
            event = None
            if cohort.held:
                event = jobs.add_event(tx, self.live.ids, job_id, "Held", previous=None, reason=cohort.held)
            elif self.prepared.count == 1:
                event = jobs.add_event(tx, self.live.ids, job_id, "Waiting", previous=None)
            most = self.live.attempts(cohort.max_attempts)
            job = WaitingJob(job_id, number, template, 0, event, None, most)
            jobs.insert_waiting(tx, tq_id, job)
            if self.prepared.count == 1:
                self.live.queues.row_joined(tx, tq_id, job)
        else:
            for start, stop in cohort.runs:
                run, ids = range(start, stop), self.live.ids
                insert_run(tx, ids, run, submission=number, tq_id=tq_id, base=base, template=template)
                if cohort.held:
                    held = range(base + start, base + stop)
                    jobs.add_range_event(tx, ids, held, "Held", reason=cohort.held)
        self._joining[tq_id] = self._joining.get(tq_id, 0) + members
        if cohort.held:
            self._never[tq_id] = cohort.held
            return members
        return 0

    def _hold(self, tx: Transaction, base: int) -> None:
        """Hold jobs before any pilot can ask."""
        for tq_id, reason in self._never.items():
            self.live.queues.hold(tx, tq_id, reason)
        owner = self.prepared.owner
        for cohort in self.prepared.cohorts:
            if not cohort.hold:
                continue
            rest = tuple(range(base + start, base + stop) for start, stop in cohort.runs)
            while rest:
                order = Control(
                    self.live, "hold", rest, cohort.hold, lambda who, _grp, _vo: who == owner, owner
                )
                rest = order.apply(tx).rest

    def _template(self, tx: Transaction, cohort: PreparedCohort) -> int:
        body = StoredTemplate(
            cohort.fill, self.live.attempts(cohort.max_attempts), cohort.template, cohort.retry
        )
        existing = self._templates.get(body)
        if existing is not None:
            return existing
        number = self._templates[body] = self.live.ids.template()
        jobs.insert_template(tx, number, body)
        return number


def store_pools(tx: Transaction, live: WriterState, pools: Iterable[NewPool]) -> dict[str, str]:
    """Store new pools; returns the requirements of all. A known pool keeps its queues."""
    requirements = {}
    for pool in pools:
        requirements[pool.id] = pool.requirements
        known_mask = live.pools.mask(pool.id)
        # 0: made again for a job that came back, and not evaluated yet; or ads exclude all queues.
        mask = known_mask or (0 if pool.asks_ads else pool.queues)
        if mask != known_mask:
            live.queues.serve(tx, {pool.id: mask})
        submit_pools.store_pool(
            tx, pool.id, pool.vo, pool.requirements, mask=mask, is_evaluated=not pool.asks_ads
        )
    return requirements


def need_task_queues(live: WriterState, owner: str, keys: Iterable[TaskQueueKey], most: int) -> None:
    """Raises TooLarge for too many with waiting jobs; 0: unlimited."""
    if not most:
        return
    index = live.queues.index
    different = {id(key): key for key in keys}  # a preparation makes each once
    new = sum([not index.waiting(index.find(key) or 0) for key in different.values()])
    _need(owner, "task_queues", index.load(owner).queues + new, most)


def _need(owner: str, name: str, would: int, most: int) -> None:
    if most and would > most:
        raise TooLarge(
            f"User {owner} would have {counted(would, name.replace('_', ' ').removesuffix('s'))} and may have {most:,}.",
            hint=f"Wait until some have run, or delete some (lode delete). Administrators set {name} in [limits].",
            limit=most,
            size=would,
        )


# --- files of users ----------------------------------------------------------------------------------------


def register_input(
    tx: Transaction, owner: str, sha256: str, size: int, *, quota: int = 0, most_files: int = 0
) -> None:
    """Record an uploaded file; idempotent. Raises as `need_room`."""
    if not sandboxes.renew_input(tx, owner, sha256):
        need_room(owner, usage_of(tx.reader(), owner), size, quota=quota, most_files=most_files)
        sandboxes.insert_input(tx, owner, sha256, size)


def need_room(owner: str, used: InputUsage, size: int, *, quota: int, most_files: int = 0) -> None:
    """Raises StorageFull beyond the quota of bytes, TooLarge for a file too many (0: unlimited)."""
    would, present = used.bytes + used.outputs + counted_size(size), used.bytes + used.outputs
    if quota and would > quota:
        raise StorageFull(
            f"The input files and outputs of user {owner} would take {_mb(would)}: {_mb(present)} are there, "
            f"{_mb(quota)} allowed.",
            hint=f"{_DELETE} Or ask an administrator for a larger sandbox_quota_mb.",
            limit=quota,
            used=present,
            size=size,
        )
    if most_files and used.files >= most_files:
        raise TooLarge(
            f"User {owner} has {counted(used.files, 'input file')}, and may have no more.",
            hint=f"{_DELETE} Administrators set input_files in [limits].",
            limit=most_files,
        )


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


def _need_all(tx: Transaction, owner: str, inputs: Sequence[str]) -> None:
    """Raises InvalidJob: a file may have been removed meanwhile."""
    if inputs and not sandboxes.known_inputs(tx.reader(), owner, inputs).issuperset(inputs):
        raise InvalidJob(
            "InputSandbox: a file that was uploaded long ago is not there any more.",
            hint="Submit again: it is uploaded anew.",
            attribute="InputSandbox",
        )
