"""Resource quota sets: what the writer stores of them, and the rules that hold from then on."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from lodesman.answers.quotas import BucketRow
from lodesman.commands.live import Live
from lodesman.errors import Conflict, NotFound, SyntaxFault
from lodesman.gridengine.values import Value
from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.matching.quota_book import QuotaBook
from lodesman.quota.reading import read_quota_sets
from lodesman.quota.rules import QuotaSet, write_quota_sets
from lodesman.store.journal import Transaction
from lodesman.store.quotas import StoredQuotas, drop_quotas, put_quotas

log = logging.getLogger(__name__)


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
        self._use()

    def use(self, vocabulary: Vocabulary) -> None:
        """The configuration has other complexes, groups or lists."""
        if vocabulary != self._vocabulary:
            self._vocabulary = vocabulary
            self._use()

    def put(self, changed: Mapping[str, QuotaSet | None]) -> None:
        """These sets are so from now on; None: there is no such set any more."""
        for name, one in changed.items():
            if one is None:
                self.sets.pop(name, None)
            else:
                self.sets[name] = one
        self._use()

    def _use(self) -> None:
        self._live.bookings.use_rules(QuotaBook(self.sets.values(), self._vocabulary))


def use_vocabulary(tx: Transaction, rules: QuotaRules, vocabulary: Vocabulary) -> None:
    """Judge by the vocabulary of a new configuration."""
    tx.afterwards.append(partial(rules.use, vocabulary))


def set_quotas(tx: Transaction, rules: QuotaRules, sets: Iterable[QuotaSet], *, new: bool, by: str) -> None:
    """Store new sets, or change those that there are: all or none. Raises Conflict, NotFound."""
    changed = {one.name: one for one in sets}
    for name, one in changed.items():
        if new and name in rules.sets:
            raise Conflict(
                f"There is a quota set {name} already.", hint="To change it: lode quota change FILE."
            )
        if not new and name not in rules.sets:
            raise _no_set(name)
        put_quotas(tx, name, write_quota_sets([one]), by)
    tx.afterwards.append(partial(rules.put, changed))


def remove_quotas(tx: Transaction, rules: QuotaRules, names: Iterable[str]) -> None:
    """Remove sets: all or none. Raises NotFound."""
    gone = dict.fromkeys(names)
    for name in gone:
        if name not in rules.sets:
            raise _no_set(name)
        drop_quotas(tx, name)
    tx.afterwards.append(partial(rules.put, gone))


def _no_set(name: str) -> NotFound:
    return NotFound(f"There is no quota set {name}.", hint="lode quota ls lists them.")


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
