"""Who uses what of limits, since when, and what they stop, by the stored attempts."""

from __future__ import annotations

import socket
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.decide.explain.verdict import LimitMasks
from lodesman.decide.masks.bits import mask_of
from lodesman.decide.matching.limit_rules import RuleBook, RunPlace
from lodesman.decide.matching.limit_takers import BucketLoad, BucketName, RunningJob, taken_by
from lodesman.decide.matching.place_book import PlaceBook
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import LOCAL
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.gridengine.values import ComplexType
from lodesman.languages.quota.matching import QuotaJob, may_charge
from lodesman.languages.quota.rules import QuotaRule
from lodesman.server.loops.census import BackendWatch
from lodesman.server.store import Reader
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.read.pilots import live_attempts
from lodesman.server.store.task_queues import keys_by_id
from lodesman.server.writer.pool_map import PoolQueues
from lodesman.server.writer.quotas import MOST_NAMED, amount_text, limit_rules, sets_stored, vocabulary_of
from lodesman.server.writer.sessions import HostLoads
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.hosts import reported_host
from lodesman.wire.nodes import QueueId
from lodesman.wire.quotas import BYTES, RUNNING_JOBS, BucketRow, FullBucket, Holder, LimitBucket
from lodesman.wire.service import LimitAnswer, LimitQuery

_B = TypeVar("_B", BucketRow, FullBucket)
_NOTHING = BucketLoad()
_UNITS = {ComplexType.MEMORY: BYTES, ComplexType.TIME: "seconds"}


class Barrier(NamedTuple):
    """Where limits keep jobs from starting."""

    pilots: Collection[int] = ()  # these, and pilots on their way to `queues`
    queues: Container[QueueId] = frozenset()
    never: Container[QueueId] = frozenset()  # of the queues, whatever ends
    by_queue: bool = False  # busy pilots, too, are known by their queues alone

    @classmethod
    def of(cls, limits: LimitAnswer) -> Barrier:
        """Of one task queue."""
        barred = cls(limits.pilots, frozenset(limits.queues), frozenset(limits.never))
        return barred if limits.buckets else NOWHERE


NOWHERE: Final = Barrier()
_UNLIMITED: Final = LimitMasks()


class SeenLimits(Struct, frozen=True):
    """What limits stop, by task queue."""

    queues: Mapping[int, int] = field(default_factory=dict)  # as masks, the CE queues where it cannot start
    never: Mapping[int, int] = field(default_factory=dict)  # those of them where it could not if nothing ran
    pilots: Mapping[int, Sequence[int]] = field(default_factory=dict)  # idle pilots where it cannot start

    @classmethod
    def of(cls, limited: LimitAnswer, bits: Mapping[QueueId, int]) -> SeenLimits:
        """From the answer of the hot process; `bits`: of CE queues."""
        kept, never, pilots = dict[int, int](), dict[int, int](), dict[int, list[int]]()
        for part in limited.some:
            mask = mask_of(bits[queue] for queue in part.queues if queue in bits)
            for masks, ids in ((kept, part.ids), (never, part.never)):
                for tq_id in ids:
                    masks[tq_id] = masks.get(tq_id, 0) | mask
        for idle in limited.idle:
            for tq_id in idle.ids:
                pilots.setdefault(tq_id, []).extend(idle.pilots)
        return cls(kept, never, pilots)

    def masks(self, tq_id: int) -> LimitMasks:
        """Of a task queue."""
        kept, never = self.queues.get(tq_id, 0), self.never.get(tq_id, 0)
        return LimitMasks(kept, never) if kept or never else _UNLIMITED

    def barred(self, tq_id: int, bits: Mapping[QueueId, int]) -> Barrier:
        """Where jobs of a task queue cannot start."""
        kept, pilots = self.queues.get(tq_id, 0), self.pilots.get(tq_id, ())
        if not kept and not pilots:
            return NOWHERE
        never = PoolQueues(self.never.get(tq_id, 0), bits)
        return Barrier(pilots, PoolQueues(kept, bits), never, by_queue=True)


class LimitUse(Struct, frozen=True):
    """What live attempts take of limits."""

    taken: Mapping[BucketName, BucketLoad]
    complexes: Complexes
    changed: Mapping[str, float]  # by quota set, UNIX seconds of the last change
    rules: Mapping[str, QuotaRule] = field(default_factory=dict)  # of all sets, by name
    book: RuleBook = field(default_factory=lambda: PlaceBook(()))

    def concerns(self, row: LimitBucket, job: QuotaJob) -> bool:
        """Whether a bucket may be charged with jobs of this user and job class; '' is any."""
        rule = self.rules.get(row.rule)
        if rule is not None:
            return may_charge(rule, job, row.of)
        values = (("Owner", job.user), ("JobClass", job.job_class))
        return not any(
            value and f"/{name}/" in row.rule and not row.rule.endswith(f"/{name}/{value}")
            for name, value in values
        )

    def named(self, row: _B, vo: str) -> _B:
        """The row with those of a VO ('': all) who use it, and since when it is full."""
        use = self.taken.get((row.rule, tuple(row.of), row.resource), _NOTHING)
        using = use.holders()
        # Of several limits on a resource that jobs do not use up, all but the first have a number.
        resource = self.complexes.get(row.resource.partition("#")[0])
        holders = [
            Holder(holder.vo, holder.owner, holder.project, amount_text(holder.amount), holder.jobs)
            for holder in using
            if vo in ("", holder.vo)
        ][:MOST_NAMED]
        row = replace(
            row, unit=_UNITS.get(resource.kind, "") if resource else "", since=self._since(row, use),
            holders=holders, more_holders=len(using) - len(holders),
        )  # fmt: skip
        if isinstance(row, BucketRow):
            owners = [owner for owner in row.owners if vo in ("", owner.vo)][:MOST_NAMED]
            return replace(row, owners=owners, more_owners=len(row.owners) + row.more_owners - len(owners))
        if not row.need:
            return row
        if not use.attempts:
            return replace(row, enough=row.need)
        used, limit, need = map(float, (row.used, row.limit, row.need))
        return replace(row, ends=use.ends_needed(used + need - limit), enough=f"{used + need:.15g}")

    def _since(self, row: LimitBucket, use: BucketLoad) -> float | None:
        if not row.need:
            return row.since
        # Nothing that ended before the set was as it is counts; since when a limit of a site is as it is is not known.
        changed = self.changed.get(row.rule.partition("/")[0])
        if not use.attempts:
            return changed
        at = use.full_since(float(row.limit), float(row.need))
        if row.resource == RUNNING_JOBS:
            return at
        return None if changed is None or at is None else max(at, changed)


def read_running_jobs(db: Reader) -> list[RunningJob]:
    """All live attempts as they are stored."""
    attempts = live_attempts(db)
    keys = keys_by_id(db, {attempt.tq_id for attempt in attempts})
    return [
        RunningJob(keys[attempt.tq_id], RunPlace(*attempt.place), attempt.claimed_at) for attempt in attempts
    ]


def limits_at(
    queues: Sequence[QueueId], watches: Mapping[str, BackendWatch], *, task_queue: int = 0, key: str = ""
) -> LimitQuery:
    """What to ask about limits in these queues. Pilots of the local backend run on this machine."""
    here = {*watches[LOCAL].queues} if LOCAL in watches else set()
    return LimitQuery(
        [*queues],
        task_queue,
        key,
        here=[queue for queue in queues if queue in here],
        host=reported_host(socket.gethostname()),
    )


def ask_limits(post: Post, policy: Policy, watches: Mapping[str, BackendWatch]) -> SeenLimits:
    """What limits keep from starting now. Raises LodesmanError."""
    question = limits_at(list(policy.config.tree.queue_ids()), watches)
    return SeenLimits.of(post(inner_calls.LIMITED, question), policy.bits)


def limit_use(policy: Policy, db: Reader) -> LimitUse:
    """What is used of the stored quota sets, and of the limits of sites."""
    with db:  # one moment
        sets, attempts, accounts = quota_sets(db), read_running_jobs(db), groups_by_user(db)
    # How much there is on a host changes nothing of who uses it.
    stored = sets_stored(sets, policy.vocabulary).values()
    rules = {rule.label: rule for quota_set in stored for rule in quota_set.rules}
    words = vocabulary_of(stored, policy.vocabulary, accounts)
    book = limit_rules(stored, words, policy.config.limits, HostLoads(()))
    return LimitUse(
        taken_by(book, attempts),
        policy.vocabulary.complexes,
        {quota_set.name: quota_set.changed_at for quota_set in sets},
        rules,
        book,
    )
