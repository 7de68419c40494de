"""Resource quota sets: what the writer stores of them, and the rules that hold from then on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial, reduce
from itertools import islice
from operator import and_
from typing import Final

from lodesman.answers.quotas import BucketRow, FullBucket, Waiter
from lodesman.answers.service import Limited
from lodesman.commands.live import Live
from lodesman.commands.sessions import PilotSession
from lodesman.errors import Conflict, NotFound, SyntaxFault
from lodesman.gridengine.values import Value
from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.matching.limit_rules import BucketUse, RunPlace
from lodesman.matching.limit_takers import values_shown
from lodesman.matching.quota_book import QuotaBook
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.quota.reading import read_quota_sets
from lodesman.quota.rules import QuotaSet, write_quota_sets
from lodesman.store.journal import Transaction
from lodesman.store.quotas import StoredQuotas, drop_quotas, put_quotas

log = logging.getLogger(__name__)

_MOST_SHOWN = 20
MOST_NAMED: Final = 5
# More than are named, since who asks may see those of one VO only.
_MOST_OWNERS: Final = 50
# Families of buckets that are gone through at a time.
PART: Final = 20
FullBucketKey = tuple[str, ...]


def sets_stored(stored: Iterable[StoredQuotas], vocabulary: Vocabulary) -> dict[str, QuotaSet]:
    """The sets by name, as they are read now."""
    found: dict[str, QuotaSet] = {}
    for row in stored:
        faults: list[SyntaxFault] = []
        found |= {one.name: one for one in read_quota_sets(row.text, vocabulary.complexes, faults=faults)}
        for fault in faults:
            log.error("a quota set does not hold: %s", fault, extra={"quota_set": row.name})
    return found


class QuotaRules:
    """The sets as they were read, and their vocabulary. Belongs to the writer's thread, like the limits that follow."""

    def __init__(self, live: Live, stored: Iterable[StoredQuotas], vocabulary: Vocabulary) -> None:
        self._live = live
        self._vocabulary = vocabulary
        self.sets = sets_stored(stored, vocabulary)
        self._prepare(None)
        while not live.bookings.go_on(None):
            pass

    def use(self, tx: Transaction, vocabulary: Vocabulary) -> bool:
        """The configuration has other complexes, groups or lists. Returns as `go_on`."""
        if vocabulary != self._vocabulary:
            tx.undo.append(partial(setattr, self, "_vocabulary", self._vocabulary))
            self._vocabulary = vocabulary
            self._prepare(tx)
        return self.go_on(tx)

    def put(self, tx: Transaction, changed: Mapping[str, QuotaSet | None]) -> bool:
        """These sets are so from now on; None: there is no such set any more. Returns as `go_on`."""
        for name, one in changed.items():
            if one is None:
                tx.drop(self.sets, name)
            else:
                tx.put(self.sets, name, one)
        self._prepare(tx)
        return self.go_on(tx)

    def go_on(self, tx: Transaction) -> bool:
        """Prepare a portion more of rules that changed; true if they are in use."""
        return self._live.bookings.go_on(tx)

    def _prepare(self, tx: Transaction | None) -> None:
        self._live.bookings.prepare(tx, QuotaBook(self.sets.values(), self._vocabulary))


def use_vocabulary(tx: Transaction, rules: QuotaRules, vocabulary: Vocabulary) -> bool:
    """Judge by the vocabulary of a new configuration. Returns as `go_on`."""
    return rules.use(tx, vocabulary)


def go_on(tx: Transaction, rules: QuotaRules) -> bool:
    """A portion more of what changed rules need; true if they are in use."""
    return rules.go_on(tx)


def set_quotas(tx: Transaction, rules: QuotaRules, sets: Iterable[QuotaSet], *, new: bool, by: str) -> bool:
    """Store new sets, or change those that there are: all or none. Returns as `go_on`. Raises Conflict, NotFound."""
    changed = {one.name: one for one in sets}
    # All is asked before anything is written: what a refused command wrote would stay.
    for name in changed:
        if new and name in rules.sets:
            raise Conflict(
                f"There is a quota set {name} already.", hint="To change it: lode quota change FILE."
            )
        if not new and name not in rules.sets:
            raise _no_set(name)
    for name, one in changed.items():
        put_quotas(tx, name, write_quota_sets([one]), by)
    return rules.put(tx, changed)


def remove_quotas(tx: Transaction, rules: QuotaRules, names: Iterable[str]) -> bool:
    """Remove sets: all or none. Returns as `go_on`. Raises NotFound."""
    gone = dict.fromkeys(names)
    for name in gone:
        if name not in rules.sets:
            raise _no_set(name)
    for name in gone:
        drop_quotas(tx, name)
    return rules.put(tx, gone)


def _no_set(name: str) -> NotFound:
    return NotFound(f"There is no quota set {name}.", hint="lode quota ls lists them.")


def places(sessions: Iterable[PilotSession], queues: Iterable[tuple[str, str, str]]) -> set[RunPlace]:
    """Where jobs may run: where pilots are, and in these CE queues, on hosts that are not known yet."""
    return {*(one.place for one in sessions), *(RunPlace(*queue) for queue in queues)}


def limited(_tx: Transaction, live: Live, there: Iterable[RunPlace]) -> Limited:
    """The task queues that are limited at all of these places; reads memory only."""
    index = live.queues.index
    if not index.limits.active:
        return Limited()
    spots = {index.limits.spot(place): place for place in there}
    shut = [index.limits.shut(place) for place in spots.values()]
    ids = [
        queue.tq_id
        for group in index.groups()
        if shut and (mask := reduce(and_, (one.get(group.number, 0) for one in shut), group.alive))
        for queue in group.queues(mask)
    ]
    return Limited(ids=ids)


def limits_of(_tx: Transaction, live: Live, there: Iterable[RunPlace], tq_id: int) -> Limited:
    """The buckets that keep jobs of a task queue from starting at these places; reads memory only."""
    index = live.queues.index
    if not index.limits.active or not index.has(tq_id):
        return Limited()
    spots = {index.limits.spot(place): place for place in there}
    key, found, everywhere = index.key(tq_id), dict[FullBucketKey, FullBucket](), bool(spots)
    for place in spots.values():
        refusals = index.limits.refusals(key, place)
        everywhere &= bool(refusals)
        for use, need in refusals:
            of = values_shown(use.of_key, use.of_place)
            bucket = FullBucket(
                rule=use.rule, of=[*of], resource=use.resource, used=shown(use.used), limit=shown(use.limit),
                need=shown(need),
            )  # fmt: skip
            found.setdefault((use.rule, *of, use.resource), bucket)
    return Limited(buckets=list(islice(found.values(), _MOST_SHOWN)), everywhere=everywhere)


def buckets(_tx: Transaction, live: Live, first: int) -> tuple[list[BucketRow], bool]:
    """What is used of limits, and who waits behind them: a part, and whether there is more; reads memory only."""
    index = live.queues.index
    groups = {group.number: group for group in index.groups()}
    rows = []
    for use, shut in index.limits.buckets(first, PART):
        waiting = [
            (queue.key, queue.waiting)
            for number, mask in shut.items()
            if number in groups
            for queue in groups[number].queues(mask)
            if queue.waiting
        ]
        if use.used or waiting:
            rows.append(bucket_row(use, waiting, full=bool(shut)))
    return rows, first + PART < index.limits.families


def bucket_row(use: BucketUse, waiting: Collection[tuple[TaskQueueKey, int]], *, full: bool) -> BucketRow:
    """A bucket, with the task queues that it keeps from starting and the number of their jobs."""
    owners, more = waiters(waiting, _MOST_OWNERS)
    return BucketRow(
        rule=use.rule, of=[*values_shown(use.of_key, use.of_place)], resource=use.resource, used=shown(use.used),
        limit=shown(use.limit), need="" if use.least is None else shown(use.least), full=full,
        jobs=sum(jobs for _, jobs in waiting), task_queues=len(waiting), owners=owners, more_owners=more,
    )  # fmt: skip


def waiters(waiting: Iterable[tuple[TaskQueueKey, int]], most: int = MOST_NAMED) -> tuple[list[Waiter], int]:
    """The owners with most jobs in these task queues, and how many more there are."""
    jobs = Counter[tuple[str, str]]()
    for key, count in waiting:
        jobs[key.owner, key.vo] += count
    first = sorted(jobs.items(), key=lambda one: (-one[1], one[0]))[:most]
    return [Waiter(vo, owner, count) for (owner, vo), count in first], len(jobs) - len(first)


def shown(value: Value) -> str:
    """An amount as text."""
    return f"{float(value):g}" if not isinstance(value, (int, str)) else str(value)
