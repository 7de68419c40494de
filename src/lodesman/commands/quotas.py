"""Limits on what runs: quota sets, which the writer stores, with those of sites, and the rules that hold from then on."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import islice
from math import inf
from operator import and_

from lodesman.answers.quotas import NEXT_START, BucketRow, FullBucket
from lodesman.answers.service import Limited
from lodesman.commands.live import Live
from lodesman.commands.sessions import PilotSession
from lodesman.errors import Conflict, NotFound, SyntaxFault
from lodesman.gridengine.values import Value
from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.matching.delays import DelayRules
from lodesman.matching.joined_book import joined
from lodesman.matching.limit_rules import RunPlace
from lodesman.matching.place_book import PlaceBook, concerns
from lodesman.matching.quota_book import QuotaBook
from lodesman.matching.spots import Spot
from lodesman.quota.reading import read_quota_sets
from lodesman.quota.rules import QuotaSet, write_quota_sets
from lodesman.resources import PlaceLimit, QueueId
from lodesman.store.journal import Transaction
from lodesman.store.quotas import StoredQuotas, drop_quotas, put_quotas

log = logging.getLogger(__name__)

_MOST_SHOWN = 20
FullBucketKey = tuple[str, ...]


class QuotaRules:
    """The sets as they were read, and the configuration: their vocabulary, and the limits of sites. Belongs to the writer's
    thread, like the limits that follow.
    """

    def __init__(
        self, live: Live, stored: Iterable[StoredQuotas], vocabulary: Vocabulary,
        of_places: tuple[PlaceLimit, ...] = (),
    ) -> None:  # fmt: skip
        self._live = live
        self._configured = vocabulary, of_places
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
        live.queues.index.delays.start_all()

    def use(self, tx: Transaction, vocabulary: Vocabulary, of_places: tuple[PlaceLimit, ...]) -> bool:
        """The configuration may have other complexes, groups or lists, or other limits of sites. Returns as `go_on`."""
        if (vocabulary, of_places) != self._configured:
            tx.undo.append(partial(setattr, self, "_configured", self._configured))
            self._configured = vocabulary, of_places
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

    def check(self, tx: Transaction) -> bool:
        """Prove that the limits count what lives; if not, it is reported and mended. Returns as `go_on`."""
        bookings = self._live.bookings
        if bookings.check_attempts(tx) and self._live.queues.index.limits.active:
            self._prepare(tx, is_proof=True)
        return self.go_on(tx)

    def go_on(self, tx: Transaction) -> bool:
        """Prepare a portion more of rules that changed; true if they are in use."""
        return self._live.bookings.go_on(tx)

    def _prepare(self, tx: Transaction | None, *, is_proof: bool = False) -> None:
        vocabulary, of_places = self._configured
        quotas = QuotaBook(self.sets.values(), vocabulary, self._live.hosts.of)
        at_places = PlaceBook(of_places, self._live.queues.index.delays.is_open)
        rules = joined([quotas, at_places])
        self._live.bookings.prepare(tx, rules, DelayRules(of_places), is_proof=is_proof)


def use_limits(
    tx: Transaction, rules: QuotaRules, vocabulary: Vocabulary, of_places: tuple[PlaceLimit, ...] = ()
) -> bool:
    """Judge by the vocabulary and the limits of sites of a new configuration. Returns as `go_on`."""
    return rules.use(tx, vocabulary, of_places)


def check_limits(tx: Transaction, rules: QuotaRules) -> bool:
    """Compare what limits count with the live attempts. Returns as `go_on`."""
    return rules.check(tx)


def open_delays(tx: Transaction, live: Live) -> None:
    """Open the matching delays whose time has come; claims that wait for them are asked again with this batch."""
    delays = live.queues.index.delays
    for delay, until in delays.open_due():
        tx.undo.append(partial(delays.shut_until, delay, until))


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


def places(sessions: Iterable[PilotSession], queues: Collection[tuple[str, str, str]]) -> set[RunPlace]:
    """Where jobs may run: in these CE queues, on hosts that are not known yet, and where pilots are."""
    return {*(one.place for one in sessions), *(RunPlace(*queue) for queue in queues)}


def alike_queues(_tx: Transaction, live: Live, queues: Iterable[QueueId]) -> list[list[QueueId]]:
    """Those CE queues that some limit is about, in groups that limits see alike; reads memory only."""
    limits, found = live.queues.index.limits, defaultdict[Spot, list[QueueId]](list)
    for queue in queues:
        found[limits.spot(RunPlace(*queue))].append(queue)
    return [some for spot, some in found.items() if spot.sets]


def limited(_tx: Transaction, live: Live, there: Iterable[RunPlace]) -> list[int]:
    """The task queues that are limited at all of these places; reads memory only."""
    index = live.queues.index
    if not index.limits.active:
        return []
    spots = {index.limits.spot(place): place for place in there}
    shut = [index.limits.shut(place) for place in spots.values()]
    return [
        queue.tq_id
        for group in index.groups()
        if shut and (mask := reduce(and_, (one[group.number] for one in shut), group.alive))
        for queue in group.queues(mask)
    ]


def limits_of(_tx: Transaction, live: Live, there: Iterable[RunPlace], tq_id: int) -> Limited:
    """The buckets that keep jobs of a task queue from starting at these places; reads memory only."""
    index = live.queues.index
    if not index.limits.active or not index.has(tq_id):
        return Limited()
    spots = {index.limits.spot(place): place for place in there}
    key, found, everywhere = index.key(tq_id), dict[FullBucketKey, FullBucket](), bool(spots)
    shut = {one.name: (f"{seconds:.0f}", str(one.number)) for one, seconds in index.delays.shut()}
    for place in spots.values():
        refusals = index.limits.refusals(key, place)
        everywhere &= bool(refusals)
        for use, need in refusals:
            of = [value for value in (*use.of_key, *use.of_place) if value]
            used, most = shut.get(str(use.limit)) or (_shown(use.used), _shown(use.limit))
            bucket = FullBucket(use.rule, of, use.resource, used, most, _shown(need))
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
    return sorted([*rows, *_delays(live)], key=lambda row: (row.rule, row.of, row.resource))


def _delays(live: Live) -> Iterator[BucketRow]:
    """The matching delays that are shut, with the seconds until they open as what is used."""
    index = live.queues.index
    for one, seconds in index.delays.shut():
        jobs = sum(waiting for _, key, waiting in index.queues() if waiting and concerns(one, key))
        yield BucketRow(
            one.rule, [str(one.path)], NEXT_START, f"{seconds:.0f}", str(one.number), full=True, jobs=jobs
        )


def _shown(value: Value) -> str:
    if value == inf:  # a dynamic limit, without the load values of its host
        return "unknown"
    return f"{float(value):g}" if not isinstance(value, (int, str)) else str(value)
