"""Limits and the jobs that wait: those behind one, and what other quota sets would do. Nothing is stored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from msgspec.structs import replace

from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.limit_takers import taken_by
from lodesman.decide.matching.policy import Policy
from lodesman.decide.rehearse.limits import WaitingQueue, WorkToLimit, hold_against
from lodesman.decide.resources import QueueId
from lodesman.languages.quota.matching import QuotaPlace, admits, check_size
from lodesman.languages.quota.rules import FilterTag, QuotaFilter, QuotaSet
from lodesman.server.loops.limit_use import LimitUse, limits_at, stored_attempts
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.reads.plans import LiveState
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.quotas import quota_sets
from lodesman.server.writer.quotas import (
    MOST_OWNERS,
    bucket_row,
    limit_rules,
    places,
    sets_stored,
    shown,
    vocabulary_of,
    waiters,
)
from lodesman.server.writer.sessions import HostLoads, known_pilots, load_sessions
from lodesman.wire.quotas import BucketRow, QuotaNoticeRow, QuotaPlan, RuleEffect
from lodesman.wire.service import Behind, BehindBucket

_MOST_SHOWN: Final = 100
_ANY_HOST: Final = QuotaFilter(names=("*",))


class JobsBehind:
    """Of a set the first rule that matches counts: jobs of which that is another one wherever they can run are not behind a
    rule. A rule about hosts may match in every queue that it is about, and may not: hosts are known of live pilots only.
    """

    def __init__(self, policy: Policy, use: LimitUse, keeper: SnapshotKeeper) -> None:
        self._policy, self._use, self._keeper, self._book = policy, use, keeper, use.book
        self._rules = {name: number for number, name in enumerate(use.book.names)}
        self._keys = {tq_id: key for tq_id, key, _ in keeper.snapshot.waiting}
        of_hosts = {
            self._rules[name]: one
            for name, rule in use.rules.items()
            if name in self._rules and (one := rule.filters.get(FilterTag.HOSTS)) is not None
        }
        self._of_hosts = of_hosts.keys()
        self._unsure = mask_of(
            n
            for n, one in of_hosts.items()
            if (one.names, one.excluded) != (_ANY_HOST.names, _ANY_HOST.excluded)
        )
        self._there, self._of_key = cache(self._bits_of), cache(use.book.of_key)
        self._may_count = cache(self._counts)

    def narrow(self, found: Iterable[BehindBucket]) -> list[BucketRow]:
        """The rows with these jobs alone; without those that are empty then."""
        return [row for one in found if (row := self._narrow(one)) is not None]

    def _narrow(self, one: BehindBucket) -> BucketRow | None:
        row, rule = one.row, self._rules.get(one.row.rule)
        kept = [some for some in one.behind if rule is None or self._is_behind(rule, one.of_place, some)]
        if rule is None or len(kept) == len(one.behind):
            return row
        if not kept and row.used == "0":
            return None
        owners, more_owners = waiters([(some, some.jobs) for some in kept], MOST_OWNERS)
        return replace(
            row, jobs=sum(some.jobs for some in kept), task_queues=len(kept), owners=owners, more_owners=more_owners,
            full=bool(kept), need=self._least(rule, row, kept),
        )  # fmt: skip

    def _least(self, rule: int, row: BucketRow, kept: Collection[Behind]) -> str:
        """The smallest amount that they need."""
        if any(some.task_queue not in self._keys for some in kept):
            return row.need
        keys = (self._keys[some.task_queue] for some in kept)
        needs = (need for key in keys for need in self._of_key(key).needs(rule))
        amounts = [need.amount for need in needs if need.resource == row.resource]
        return shown(min(amounts)) if amounts else ""

    def _is_behind(self, rule: int, of_place: Sequence[str], some: Behind) -> bool:
        key = self._keys.get(some.task_queue)
        mask = None if key is None else self._where(some.task_queue, key)
        return (
            key is None
            or mask is None
            or self._may_count(rule, tuple(of_place), self._of_key(key).bits, mask, key.vo)
        )

    def _where(self, tq_id: int, key: TaskQueueKey) -> int | None:
        """The queues that can run them; None if that is not known yet."""
        config = self._policy.vo_config(key.vo)
        known = self._keeper.known_where(config, tq_id)
        if known is None and not key.submit_pool:
            return config.possible_queues(key, 0)
        return known

    def _counts(self, rule: int, of_place: tuple[str, ...], of_key: int, mask: int, vo: str) -> bool:
        """Whether a rule may be the one that counts them in one of the queues of a mask, in a bucket for such places."""
        queues = self._policy.vo_config(vo).table.queues
        start = next(first for first, stop in self._book.sets if first <= rule < stop)
        before, name = (1 << rule) - (1 << start), self._book.names[rule]
        for queue in (QueueId(*queues[bit]) for bit in bits(mask)):
            both = of_key & self._there(queue)
            if both >> rule & 1 and not both & before & ~self._unsure:
                if name in self._use.rules:  # of a quota set: the queue if it is in braces, the host
                    values: Sequence[str] = (queue.queue,)
                else:
                    values = self._book.of_place(RunPlace(*queue)).values(rule)
                if all(one in ("", value) for one, value in zip(of_place, values, strict=False)):
                    return True
        return False

    def _bits_of(self, queue: QueueId) -> int:
        """The rules that may match in a queue, on whatever host."""
        found, place = self._book.of_place(RunPlace(*queue)).bits, QuotaPlace(queue=queue.queue, host="")
        for number in self._of_hosts:
            one = self._use.rules[self._book.names[number]].filters.get(FilterTag.QUEUES)
            if one is None or admits(FilterTag.QUEUES, one, place):
                found |= 1 << number
        return found


# --- plans -----------------------------------------------------------------------------------------------


def plan_quotas(changed: Sequence[QuotaSet], notices: list[QuotaNoticeRow], state: LiveState) -> QuotaPlan:
    """What would change if these sets were added, or replaced those of the same name. Raises TooLarge."""
    config, vocabulary = state.policy.config, state.policy.vocabulary
    sets = sets_stored(quota_sets(state.db), vocabulary)
    hosts = HostLoads(row.node for row in known_pilots(state.db))
    live = stored_attempts(state.db)
    watches = state.director.watches if state.director else {}
    there = places(limits_at([*config.tree.queue_ids()], watches))
    there.update(one.place for one in load_sessions(state.db, now=state.now).values())
    there.update(one.place for one in live)
    work = WorkToLimit(waiting=list(_waiting(state)), live=live, places=there, tick=state.tick)
    new = sets | {one.name: one for one in changed}
    check_size(new.values())
    accounts = groups_by_user(state.db)
    now, book = (
        limit_rules(some, vocabulary_of(some, vocabulary, accounts), config.limits, hosts)
        for some in (sets.values(), new.values())
    )
    before = hold_against(now, work)
    after = hold_against(book, work)
    # Of rules that do not hold yet nothing has been full since a time.
    use = LimitUse(taken_by(book, live), vocabulary.complexes, {})
    over = [use.named(bucket_row(one, (), full=True), "") for one in after.over[:_MOST_SHOWN]]
    return QuotaPlan(
        names=[one.name for one in changed],
        notices=notices,
        over=sorted(over, key=_name),
        more_over=max(0, len(after.over) - _MOST_SHOWN),
        stopped=_effects(work, after.limited, before.limited),
        freed=_effects(work, before.limited, after.limited),
        limited_now=_jobs(work, before.limited),
        limited_then=_jobs(work, after.limited),
    )


def _name(row: BucketRow) -> tuple[str, list[str], str]:
    return row.rule, row.of, row.resource


def _waiting(state: LiveState) -> Iterator[WaitingQueue]:
    for key, jobs, mask in state.waiting():
        queues = state.policy.vo_config(key.vo).table.queues
        yield WaitingQueue(key, jobs, [QueueId(*queues[bit]) for bit in bits(mask)])


def _effects(work: WorkToLimit, limited: Mapping[int, str], otherwise: Mapping[int, str]) -> list[RuleEffect]:
    """What is limited, and would not be otherwise, by rule."""
    by_rule: dict[str, list[int]] = {}
    for slot in limited.keys() - otherwise.keys():
        by_rule.setdefault(limited[slot], []).append(slot)
    found = []
    for rule, slots in sorted(by_rule.items()):
        waiting = [(work.waiting[slot].key, work.waiting[slot].jobs) for slot in slots]
        found.append(RuleEffect(rule, len(slots), sum(jobs for _, jobs in waiting), *waiters(waiting)))
    return found


def _jobs(work: WorkToLimit, slots: Iterable[int]) -> int:
    return sum(work.waiting[slot].jobs for slot in slots)
