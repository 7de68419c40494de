"""Resource quota sets: what the writer stores of them, and the rules that hold from then on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial, reduce
from itertools import islice
from operator import and_

from lodesman.answers.quotas import BucketRow, FullBucket
from lodesman.answers.service import Limited
from lodesman.commands.live import Live
from lodesman.commands.sessions import PilotSession
from lodesman.errors import Conflict, NotFound, SyntaxFault
from lodesman.gridengine.values import Value
from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.matching.limit_rules import RunPlace
from lodesman.matching.quota_book import QuotaBook
from lodesman.quota.reading import read_quota_sets
from lodesman.quota.rules import QuotaSet, write_quota_sets
from lodesman.store.journal import Transaction
from lodesman.store.quotas import StoredQuotas, drop_quotas, put_quotas

log = logging.getLogger(__name__)

_MOST_SHOWN = 20
FullBucketKey = tuple[str, ...]


class QuotaRules:
    """The sets as they were read, and their vocabulary. Belongs to the writer's thread, like the limits that follow."""

    def __init__(self, live: Live, stored: Iterable[StoredQuotas], vocabulary: Vocabulary) -> None:
        self._live = live
        self._vocabulary = vocabulary
        self.sets: dict[str, QuotaSet] = {}
        for one in stored:
            faults: list[SyntaxFault] = []
            self.sets |= {
                found.name: found for found in read_quota_sets(one.text, vocabulary.complexes, faults=faults)
            }
            for fault in faults:
                log.error("a quota set does not hold: %s", fault, extra={"quota_set": one.name})
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
        if shut and (mask := reduce(and_, (one[group.number] for one in shut), group.alive))
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
            of = [value for value in (*use.of_key, *use.of_place) if value]
            bucket = FullBucket(use.rule, of, use.resource, _shown(use.used), _shown(use.limit), _shown(need))
            found.setdefault((use.rule, *of, use.resource), bucket)
    return Limited(buckets=list(islice(found.values(), _MOST_SHOWN)), everywhere=everywhere)


def buckets(_tx: Transaction, live: Live) -> list[BucketRow]:
    """What is used of limits, by rule; reads memory only."""
    index = live.queues.index
    groups = {group.number: group for group in index.groups()}
    rows = []
    for use, shut in index.limits.uses():
        waiting = sum(
            queue.waiting
            for number, mask in shut.items()
            if number in groups
            for queue in groups[number].queues(mask)
        )
        rows.append(BucketRow(
            rule=use.rule, of=[value for value in (*use.of_key, *use.of_place) if value], resource=use.resource,
            used=_shown(use.used), limit=_shown(use.limit), full=bool(shut), jobs=waiting,
        ))  # fmt: skip
    return sorted(rows, key=lambda row: (row.rule, row.of, row.resource))


def _shown(value: Value) -> str:
    return f"{float(value):g}" if not isinstance(value, (int, str)) else str(value)
