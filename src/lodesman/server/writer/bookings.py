"""What live attempts take of the limits: booked by the claim, released when the attempt ends.

No counter is stored. New rules are prepared in portions, to hold the writer only briefly; now and then the same
rules are prepared again, as a proof.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Final

from lodesman.decide.matching.index import Index
from lodesman.decide.matching.limit_rules import RuleBook, RunPlace
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.place_book import NO_DELAYS, DelayRules
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.values import Number
from lodesman.server.store import Reader
from lodesman.server.store.read.pilots import live_attempts, live_sums
from lodesman.server.store.task_queues import keys_by_id
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.sessions import UNLIMITED, host_of, known_pilots, presented_by

log = logging.getLogger(__name__)

Attempt = tuple[int, int]
"""Job and number."""
Hold = tuple[int, int, TaskQueueKey, RunPlace]
"""What a live attempt holds: cores (0: it is handed in; or `AHEAD`, `BEYOND`) and MB (0: its cores' part) of its pilot; and
what limits count: key and place.
"""
AHEAD: Final = -1
"""Cores of an attempt that a pilot has ahead: it takes nothing before it is reported as Running."""
MOST_HANDED_IN: Final = 64
"""Results that a pilot may hand in while it runs others (`pilot.decisions`)."""
BEYOND: Final = -2
"""Cores of an attempt reported as Running beyond the pilot's size: it still counts as ahead."""
_Booked = tuple[TaskQueueKey, RunPlace]
# A live attempt, and the pilot that has it.
_Name = tuple[int, Attempt]
# For how long a portion holds the writer.
_HELD_SECONDS: Final = 0.01
_MOST_SAID: Final = 20


@dataclass(slots=True, eq=False)
class _NextRules:
    """In preparation. Places come first: dividing the task queues by them is then found one by one."""

    limits: RunLimits
    places: list[RunPlace]  # not known to the rules yet
    queues: list[int]  # task queues not known to the rules yet
    stale: set[_Name]  # attempts whose booking may differ from `booked`
    delays: DelayRules
    is_proof: bool  # the rules in use once more, to replace these only if they find another use
    booked: dict[_Name, _Booked] = field(default_factory=dict)


def _places_of_pilots(db: Reader) -> Iterator[RunPlace]:
    return (RunPlace(pilot.site, pilot.ce, pilot.queue, host_of(pilot.node)) for pilot in known_pilots(db))


def _used(limits: RunLimits) -> dict[tuple[str, ...], Number]:
    return {
        (use.rule, *use.of_key, *use.of_place, use.resource): use.used for use, _ in limits.uses() if use.used
    }


def left_of(cores: int, memory_mb: int, promised: Iterable[tuple[int, int] | Hold]) -> tuple[int, int]:
    """Cores and MB that jobs leave; below 0 if more was promised."""
    all_cores, all_mb = max(1, cores), memory_mb
    for hold in promised:
        held = hold[0]
        cores -= held
        memory_mb -= hold[1] or all_mb * held // all_cores
    return cores, memory_mb


def fitting_attempts(held: Mapping[Attempt, Hold], cores: int, memory_mb: float) -> dict[Attempt, Hold]:
    """Attempts that were beyond the pilot's size (0 MB: unknown) and fit now. One alone always fits: the matcher
    admitted it.
    """
    beyond = [name for name, hold in held.items() if hold[0] == BEYOND]
    if not beyond:
        return {}
    whole = cores, int(memory_mb) or UNLIMITED
    runs, fits = [hold[:2] for hold in held.values() if hold[0] > 0], dict[Attempt, Hold]()
    for name in beyond:
        _, memory, key, place = held[name]
        if not runs or min(left_of(*whole, [*runs, (key.cores, memory)])) >= 0:
            runs.append((key.cores, memory))
            fits[name] = key.cores, memory, key, place
    return fits


class Bookings:
    """What live attempts take of the limits."""

    def __init__(self, index: Index, held: dict[int, dict[Attempt, Hold]]) -> None:
        self._index = index
        self._held = held  # by pilot
        self._next: _NextRules | None = None
        self.wrong = 0  # buckets found with another use

    def read(self, db: Reader) -> None:
        """Follow the stored live attempts."""
        attempts = live_attempts(db)
        keys = keys_by_id(db, {live.tq_id for live in attempts}, {})
        before = {name: self._held[name[0]][name[1]] for name in self._names()}
        self._held.clear()
        for live in attempts:
            key = keys.get(live.tq_id)
            if key is None:  # damaged, or purged with the job: such attempts are mended after the start
                continue
            of_pilot = self._held.setdefault(live.pilot, {})
            hold = before.get((live.pilot, live.attempt))  # it may be handed in
            # The database does not say which attempts are ahead; the pilot knows those that have not started.
            cores = BEYOND if live.started else AHEAD if live.taken else key.cores
            of_pilot[live.attempt] = hold or (cores, key.memory_mb, key, RunPlace(*live.place))
        for pilot in known_pilots(db) if attempts else ():
            if held := self._held.get(pilot.id):
                offer = presented_by(pilot.request, pilot.node, pilot.queue_id, joined_at=None, now=0.0)
                held.update(fitting_attempts(held, offer.cores, offer.memory_mb))
        self._recount()

    def _recount(self) -> int:
        return self._index.recount(key for held in self._held.values() for _, _, key, _ in held.values())

    def _names(self) -> list[_Name]:
        return [(pilot, attempt) for pilot, held in self._held.items() for attempt in held]

    def _booked(self, name: _Name) -> _Booked | None:
        pilot, attempt = name
        hold = self._held.get(pilot, {}).get(attempt)
        return hold and hold[2:]

    # --- rules -----------------------------------------------------------------------------------------------

    def prepare(
        self,
        tx: Transaction | None,
        book: RuleBook | None,
        delays: DelayRules = NO_DELAYS,
        *,
        is_proof: bool = False,
    ) -> None:
        """Begin with other rules; `go_on` puts them into use. What runs goes on, even beyond a lower limit.
        `is_proof`: the rules in use, replaced only if they count otherwise.
        """
        if tx is not None:
            tx.undo.append(partial(self._set_next, self._next))
        queues = [tq_id for tq_id, _, _ in self._index.queues()]
        names = self._names()
        places = {place for held in self._held.values() for _, _, _, place in held.values()}
        if tx is not None and not is_proof:
            places.update(_places_of_pilots(tx.reader()))
        self._set_next(_NextRules(RunLimits(book), [*places], queues, set(names), delays, is_proof))

    def go_on(self, tx: Transaction | None, seconds: float = _HELD_SECONDS) -> bool:
        """Prepare a portion; true if the newest rules are in use."""
        rules = self._next
        if rules is None:
            return True
        until = perf_counter() + seconds
        while self._step(rules):
            if perf_counter() >= until:
                return False
        if rules.is_proof and not self._count_wrong(rules.limits):
            if tx is not None:
                tx.undo.append(partial(self._set_next, rules))
            self._set_next(None)
            return True
        if tx is not None:
            tx.undo.append(partial(self._go_back, rules, self._index.limits, self._index.delays.rules))
        self._set_next(None)
        self._index.limits, self._index.delays.rules = rules.limits, rules.delays
        return True

    def _step(self, rules: _NextRules) -> bool:
        if rules.places:
            rules.limits.spot(rules.places.pop())
        elif rules.queues:
            self._index.prepare(rules.limits, rules.queues.pop())
        elif rules.stale:
            self._catch_up(rules, rules.stale.pop())
        else:
            return False
        return True

    def check_attempts(self, tx: Transaction) -> bool:
        """Read the attempts anew if the stored ones differ; true if a proof may begin."""
        stored = live_sums(tx.reader())
        before = self._names()
        counted = len(before), sum(job for _, (job, _) in before), sum(n for _, (_, n) in before)
        if counted != stored:
            log.error("limits counted other attempts than live", extra={"counted": counted, "stored": stored})
            tx.undo.append(partial(self._held_again, dict(self._held)))
            self.read(tx.reader())
            if self._next is not None:
                self._next.stale.update(before, self._names())
        elif wrong := self._recount():
            log.error("submissions with AtMost counted other jobs than live", extra={"submissions": wrong})
        return self._next is None

    def _count_wrong(self, proof: RunLimits) -> int:
        counted, live = _used(self._index.limits), _used(proof)
        wrong = {name for name in counted.keys() | live.keys() if counted.get(name, 0) != live.get(name, 0)}
        for name in sorted(wrong)[:_MOST_SAID]:
            details = {"bucket": "/".join(name), "counted": counted.get(name, 0), "live": live.get(name, 0)}
            log.error("the use of a limit was wrong", extra=details)
        self.wrong += len(wrong)
        return len(wrong)

    def _held_again(self, before: dict[int, dict[Attempt, Hold]]) -> None:
        self._held.clear()
        self._held.update(before)
        self._recount()

    def _catch_up(self, rules: _NextRules, name: _Name) -> None:
        booked, now = rules.booked.pop(name, None), self._booked(name)
        if booked is not None:
            rules.limits.give(*booked)
        if now is not None:
            rules.limits.take(*now)
            rules.booked[name] = now

    def _set_next(self, rules: _NextRules | None) -> None:
        self._next = rules
        self._index.next_limits = None if rules is None else rules.limits

    def _go_back(self, rules: _NextRules, before: RunLimits, delays: DelayRules = NO_DELAYS) -> None:
        self._index.limits, self._index.delays.rules = before, delays
        rules.limits.are_new = True
        self._set_next(rules)

    # --- attempts --------------------------------------------------------------------------------------------

    def claimed(self, tx: Transaction, pilot: int, attempt: Attempt) -> None:
        """An attempt lives; the matcher has booked it."""
        if self._next is not None:
            self._changes(tx, (pilot, attempt))

    def not_claimed(self, tx: Transaction, key: TaskQueueKey, place: RunPlace) -> None:
        """A booked job does not exist."""
        self._index.undo_start(key, place)
        tx.undo.append(partial(self._index.count_start, key, place))

    def ended(self, tx: Transaction, pilot: int, attempt: Attempt) -> None:
        """An attempt ends; its pilot still holds it."""
        name = pilot, attempt
        self._changes(tx, name)
        booking = self._booked(name)
        if booking is not None:
            self._index.uncount_attempt(*booking)
            tx.undo.append(partial(self._index.count_attempt, *booking))

    def moved(self, tx: Transaction, pilot: int, attempt: Attempt, tq_id: int, place: RunPlace) -> bool:
        """Book an attempt at another place; false, and it stays, if limits are full there."""
        of_pilot = self._held[pilot]
        cores, memory_mb, key, before = of_pilot[attempt]
        self._index.limits.give(key, before)
        if self._index.is_shut(tq_id, place):
            self._take(key, before)
            return False
        self._take(key, place)
        tx.undo.append(partial(self._take, key, before))
        tx.undo.append(partial(self._give, key, place))
        tx.put(of_pilot, attempt, (cores, memory_mb, key, place))
        self._changes(tx, (pilot, attempt))
        return True

    def _give(self, key: TaskQueueKey, place: RunPlace) -> None:
        self._index.limits.give(key, place)

    def _take(self, key: TaskQueueKey, place: RunPlace) -> None:
        self._index.limits.take(key, place)

    def _changes(self, tx: Transaction, name: _Name) -> None:
        if self._next is not None:
            self._is_stale(name)
            tx.undo.append(partial(self._is_stale, name))

    def _is_stale(self, name: _Name) -> None:
        if self._next is not None:
            self._next.stale.add(name)
