"""Limits on what runs: quota sets, limits of sites, and the rules that hold."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from math import inf
from operator import and_
from types import MappingProxyType
from typing import Final

from lodesman.base.errors import Conflict, NotFound, SyntaxFault
from lodesman.decide.matching.limit_rules import BucketUse, RuleBook, RunPlace, join_books
from lodesman.decide.matching.limit_takers import values_shown
from lodesman.decide.matching.place_book import DelayRules, PlaceBook, concerns
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.decide.matching.spots import Spot
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import PlaceLimit
from lodesman.languages.gridengine.values import Value
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.quota.matching import prepare_patterns
from lodesman.languages.quota.reading import read_quota_sets
from lodesman.languages.quota.rules import FilterTag, QuotaSet, write_quota_sets
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.audit import append_entry as noted
from lodesman.server.store.quotas import StoredQuotas, drop_quotas, put_quotas
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.sessions import HostLoads
from lodesman.wire.accounts import AuditNote
from lodesman.wire.nodes import QueueId
from lodesman.wire.quotas import NEXT_START, BucketRow, FullBucket, Waiter
from lodesman.wire.service import BehindBucket, LimitAnswer, LimitQuery, QueueBehind

log = logging.getLogger(__name__)

_MOST_SHOWN = 20
MOST_NAMED: Final = 5
# More than are named, since a reader may see those of one VO only.
MOST_OWNERS: Final = 50
# How many rules are shown at a time.
PART: Final = 10
_NO_ACCOUNTS: Final[Mapping[str, Collection[str]]] = MappingProxyType({})
_FullBucketKey = tuple[str, ...]
_Write = Callable[[Transaction], None]


def sets_stored(stored: Iterable[StoredQuotas], vocabulary: Vocabulary) -> dict[str, QuotaSet]:
    """The sets by name, as they are read now."""
    sets: dict[str, QuotaSet] = {}
    for row in stored:
        faults: list[SyntaxFault] = []
        sets |= {
            quota_set.name: quota_set
            for quota_set in read_quota_sets(row.text, vocabulary.complexes, faults=faults)
        }
        for fault in faults:
            log.error("a quota set does not hold: %s", fault, extra={"quota_set": row.name})
    return sets


def limit_rules(
    sets: Iterable[QuotaSet], vocabulary: Vocabulary, of_places: Iterable[PlaceLimit], hosts: HostLoads,
    is_open: Callable[[str], bool] = lambda _: True,
) -> RuleBook:  # fmt: skip
    """Quota sets and limits of sites. `is_open`: whether a job may start by a delay."""
    return join_books([QuotaBook(sets, vocabulary, hosts.of), PlaceBook(of_places, is_open)])


def vocabulary_of(
    sets: Iterable[QuotaSet], vocabulary: Vocabulary, accounts: Mapping[str, Collection[str]]
) -> Vocabulary:
    """Adds the groups of `accounts` if a set names a list of users."""
    users = (rule.filters.get(FilterTag.USERS) for quota_set in sets for rule in quota_set.rules)
    is_asked = any(name.startswith("@") for held in users if held for name in (*held.names, *held.excluded))
    return vocabulary.with_accounts(accounts) if is_asked else vocabulary


class QuotaRules:
    """The quota sets, and the configuration that they are read by. For the writer's thread.

    Changes are stored with the commit from which they hold: no claim is read against a stored limit.
    """

    def __init__(
        self, live: WriterState, stored: Iterable[StoredQuotas], vocabulary: Vocabulary,
        of_places: tuple[PlaceLimit, ...] = (), accounts: Mapping[str, Collection[str]] = _NO_ACCOUNTS,
    ) -> None:  # fmt: skip
        self._live = live
        self._configured = vocabulary, of_places, accounts
        # These hold as soon as they are prepared.
        self.sets = sets_stored(stored, vocabulary)
        # These hold now.
        self.in_use: Mapping[str, QuotaSet] = dict(self.sets)
        prepare_patterns(self.sets.values())
        self._writes: list[_Write] = []
        self._prepare(None)
        while not live.bookings.go_on(None):
            pass
        live.queues.index.delays.start_all()

    def use(self, tx: Transaction, vocabulary: Vocabulary, of_places: tuple[PlaceLimit, ...]) -> bool:
        """Take over another configuration, and other groups of accounts. Returns as `go_on`."""
        new = vocabulary, of_places, groups_by_user(tx.reader())
        if new != self._configured:
            before = self._used()
            tx.undo.append(partial(setattr, self, "_configured", self._configured))
            self._configured = new
            if self._used() != before:
                self._prepare(tx)
        return self.go_on(tx)

    def _used(self) -> tuple[Vocabulary, tuple[PlaceLimit, ...]]:
        vocabulary, of_places, accounts = self._configured
        return vocabulary_of(self.sets.values(), vocabulary, accounts), of_places

    def put(self, tx: Transaction, changed: Mapping[str, QuotaSet | None], write: _Write) -> bool:
        """Set quota sets; None: removed. `write` stores that. Returns as `go_on`."""
        tx.undo.append(partial(setattr, self, "_writes", self._writes))
        self._writes = [*self._writes, write]
        for name, quota_set in changed.items():
            if quota_set is None:
                tx.drop(self.sets, name)
            else:
                tx.put(self.sets, name, quota_set)
        self._prepare(tx)
        return self.go_on(tx)

    def check(self, tx: Transaction) -> bool:
        """Prove that limits count what lives; else log and mend. Returns as `go_on`."""
        bookings = self._live.bookings
        if bookings.check_attempts(tx) and self._live.queues.index.limits.active:
            self._prepare(tx, is_proof=True)
        return self.go_on(tx)

    def go_on(self, tx: Transaction) -> bool:
        """Prepare a portion; true if changed rules are in use, and stored."""
        if not self._live.bookings.go_on(tx):
            return False
        if self._writes:
            tx.undo.append(partial(setattr, self, "_writes", self._writes))
            tx.undo.append(partial(setattr, self, "in_use", self.in_use))
            writes, self._writes, self.in_use = self._writes, [], dict(self.sets)
            for write in writes:
                write(tx)
        return True

    def _prepare(self, tx: Transaction | None, *, is_proof: bool = False) -> None:
        vocabulary, of_places = self._used()
        rules = limit_rules(
            self.sets.values(),
            vocabulary,
            of_places,
            self._live.hosts,
            self._live.queues.index.delays.is_open,
        )
        self._live.bookings.prepare(tx, rules, DelayRules(of_places), is_proof=is_proof)


def use_limits(
    tx: Transaction, rules: QuotaRules, vocabulary: Vocabulary, of_places: tuple[PlaceLimit, ...] = ()
) -> bool:
    """As `QuotaRules.use`."""
    return rules.use(tx, vocabulary, of_places)


def check_limits(tx: Transaction, rules: QuotaRules) -> bool:
    """As `QuotaRules.check`."""
    return rules.check(tx)


def open_delays(tx: Transaction, live: WriterState) -> None:
    """Open due delays; waiting claims are asked again with this batch."""
    delays = live.queues.index.delays
    for delay, until in delays.open_due():
        tx.undo.append(partial(delays.shut_until, delay, until))


def go_on(tx: Transaction, rules: QuotaRules) -> bool:
    """As `QuotaRules.go_on`."""
    return rules.go_on(tx)


def set_quotas(
    tx: Transaction, rules: QuotaRules, sets: Iterable[QuotaSet], *, new: bool, note: AuditNote
) -> bool:
    """Add or replace sets, all or none. Returns as `go_on`. Raises Conflict, NotFound."""
    changed = {quota_set.name: quota_set for quota_set in sets}
    for name in changed:
        if new and name in rules.sets:
            raise Conflict(
                f"There is a quota set {name} already.", hint="To change it: lode quota change FILE."
            )
        if not new and name not in rules.sets:
            raise _no_set(name)

    def write(tx: Transaction) -> None:
        for name, quota_set in changed.items():
            put_quotas(tx, name, write_quota_sets([quota_set]), note.by)
        noted(tx, note)

    return rules.put(tx, changed, write)


def remove_quotas(tx: Transaction, rules: QuotaRules, names: Iterable[str], note: AuditNote) -> bool:
    """All or none. Returns as `go_on`. Raises NotFound."""
    gone = dict.fromkeys(names)
    for name in gone:
        if name not in rules.sets:
            raise _no_set(name)

    def write(tx: Transaction) -> None:
        for name in gone:
            drop_quotas(tx, name)
        noted(tx, note)

    return rules.put(tx, gone, write)


def _no_set(name: str) -> NotFound:
    return NotFound(f"There is no quota set {name}.", hint="lode quota ls lists them.")


def places_of_queues(limits_at: LimitQuery) -> set[RunPlace]:
    """Where pilots of these CE queues will be; hosts are unknown, but for queues of one host."""
    here = {*limits_at.here}
    return {RunPlace(*queue, limits_at.host if queue in here else "") for queue in limits_at.queues}


def alike_places(_tx: Transaction, live: WriterState, run_places: Iterable[RunPlace]) -> list[list[RunPlace]]:
    """Places that some limit concerns, grouped as limits see them; reads memory only."""
    limits, by_spot = live.queues.index.limits, defaultdict[Spot, list[RunPlace]](list)
    for place in run_places:
        by_spot[limits.spot(place)].append(place)
    return [some for spot, some in by_spot.items() if spot.sets]


def limited_there(_tx: Transaction, live: WriterState, place: RunPlace) -> tuple[list[int], list[int]]:
    """Task queues limited there, and those limited even if nothing ran; reads memory only."""
    index = live.queues.index
    shut, never = index.limits.shut_slots(place), index.limits.never(place)
    limited_ids, vain = list[int](), list[int]()
    for group in index.groups():
        limited_ids += (queue.tq_id for queue in group.queues(shut[group.number] & group.alive))
        vain += (queue.tq_id for queue in group.queues(never.get(group.number, 0) & group.alive))
    return limited_ids, vain


def limited_everywhere(_tx: Transaction, live: WriterState, run_places: Iterable[RunPlace]) -> list[int]:
    """Task queues limited at all of these places; reads memory only."""
    index = live.queues.index
    if not index.limits.active:
        return []
    spots = {index.limits.spot(place): place for place in run_places}
    shut = [index.limits.shut_slots(place) for place in spots.values()]
    return [
        queue.tq_id
        for group in index.groups()
        if shut and (mask := reduce(and_, (masks[group.number] for masks in shut), group.alive))
        for queue in group.queues(mask)
    ]


def limits_of(
    _tx: Transaction, live: WriterState, run_places: Iterable[RunPlace], pilots: Mapping[int, RunPlace],
    jobs: int | TaskQueueKey,
) -> LimitAnswer:  # fmt: skip
    """Buckets that keep jobs of a task queue, or key, from starting at the places and in the `pilots`; reads memory
    only.
    """
    index = live.queues.index
    if not index.limits.active or not (isinstance(jobs, TaskQueueKey) or index.has(jobs)):
        return LimitAnswer()
    spots = defaultdict[Spot, list[int]](list)
    queues = defaultdict[Spot, list[QueueId]](list)
    for place in run_places:
        queues[index.limits.spot(place)].append(QueueId(place.site, place.ce, place.queue))
    sample = {index.limits.spot(place): place for place in run_places}
    for pilot, place in pilots.items():
        spot = index.limits.spot(place)
        sample.setdefault(spot, place)
        spots[spot].append(pilot)
    key = jobs if isinstance(jobs, TaskQueueKey) else index.key(jobs)
    by_name, everywhere = dict[_FullBucketKey, FullBucket](), bool(sample)
    limited, kept, never = list[int](), list[QueueId](), list[QueueId]()
    shut = {
        delay.name: (f"{seconds:.0f}", str(delay.number)) for delay, seconds in index.delays.shut_delays()
    }
    for spot, place in sample.items():
        refusals = index.limits.refusals(key, place)
        everywhere &= bool(refusals)
        limited += spots[spot] if refusals else ()
        kept += queues[spot] if refusals else ()
        never += queues[spot] if any(use.never for use, _ in refusals) else ()
        for use, need in refusals:
            of = values_shown(use.of_key, use.of_place)
            used, most = shut.get(str(use.limit)) or (amount_text(use.used), amount_text(use.limit))
            bucket = FullBucket(
                rule=use.rule, of=[*of], resource=use.resource, used=used, limit=most, need=amount_text(need),
                hopeless=use.never,
            )  # fmt: skip
            by_name.setdefault((use.rule, *of, use.resource), bucket)
    # First what never opens, if all queues wait in vain; else what time opens.
    is_vain = sum(map(len, queues.values())) == len(never)
    first = sorted(by_name.values(), key=lambda row: row.hopeless is not is_vain)
    return LimitAnswer(
        buckets=first[:_MOST_SHOWN], pilots=sorted(limited), queues=sorted(kept), never=sorted(never),
        everywhere=everywhere,
    )  # fmt: skip


def bucket_page(_tx: Transaction, live: WriterState, first: int) -> tuple[list[BehindBucket], bool]:
    """A part of them with who waits, and whether there is more; reads memory only."""
    index = live.queues.index
    groups = {group.number: group for group in index.groups()}
    rows = []
    for use, shut in index.limits.buckets(first, PART):
        waiting = [
            (queue.tq_id, queue.key, queue.waiting)
            for number, mask in shut.items()
            if number in groups
            for queue in groups[number].queues(mask)
            if queue.waiting and not queue.limits  # those wait for something else
        ]
        if use.used or waiting:
            rows.append(_behind(use, waiting, full=bool(shut)))
    return [*rows, *(() if first else _delays(live))], first + PART < index.limits.rules


def _behind(use: BucketUse, waiting: Sequence[tuple[int, TaskQueueKey, int]], *, full: bool) -> BehindBucket:
    row = bucket_row(use, [(key, jobs) for _, key, jobs in waiting], full=full)
    behind = [QueueBehind(tq_id, key.vo, key.owner, jobs) for tq_id, key, jobs in waiting]
    return BehindBucket(row, [*use.of_place], behind)


def _delays(live: WriterState) -> Iterator[BehindBucket]:
    """Shut delays; the seconds until they open count as used."""
    index = live.queues.index
    for delay, seconds in index.delays.shut_delays():
        use = BucketUse(delay.rule, (), (str(delay.path),), NEXT_START, round(seconds), delay.number)
        waiting = [
            (tq_id, key, jobs) for tq_id, key, jobs in index.queues()
            if jobs and not key.waits_for_jobs and concerns(delay, key)
        ]  # fmt: skip
        yield _behind(use, waiting, full=True)


def bucket_row(use: BucketUse, waiting: Collection[tuple[TaskQueueKey, int]], *, full: bool) -> BucketRow:
    """A bucket, with the jobs that it keeps from starting."""
    owners, more = first_waiters(waiting, MOST_OWNERS)
    return BucketRow(
        rule=use.rule, of=[*values_shown(use.of_key, use.of_place)], resource=use.resource, used=amount_text(use.used),
        limit=amount_text(use.limit), need="" if use.least is None else amount_text(use.least), full=full,
        jobs=sum(jobs for _, jobs in waiting), task_queues=len(waiting), owners=owners, more_owners=more,
    )  # fmt: skip


def first_waiters(
    waiting: Iterable[tuple[TaskQueueKey | QueueBehind, int]], most: int = MOST_NAMED
) -> tuple[list[Waiter], int]:
    """Owners with most jobs, and how many more there are."""
    jobs = Counter[tuple[str, str]]()
    for key, count in waiting:
        jobs[key.owner, key.vo] += count
    first = sorted(jobs.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [Waiter(vo, owner, count) for (owner, vo), count in first], len(jobs) - len(first)


def amount_text(value: Value) -> str:
    """An amount as text."""
    if value == inf:  # a dynamic limit, without the load values of its host
        return "unknown"
    return f"{float(value):.15g}" if not isinstance(value, (int, str)) else str(value)
