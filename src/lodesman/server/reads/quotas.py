"""Limits and the jobs that wait, and what other quota sets would do."""

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
from lodesman.server.loops.limit_use import LimitUse, limits_at, read_running_jobs
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.reads.plans import LiveState
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.quotas import quota_sets
from lodesman.server.writer.quotas import (
    MOST_OWNERS,
    amount_text,
    bucket_row,
    first_waiters,
    limit_rules,
    places_of_queues,
    sets_stored,
    vocabulary_of,
)
from lodesman.server.writer.sessions import HostLoads, known_pilots, load_sessions
from lodesman.wire.quotas import BucketRow, QuotaNoticeRow, QuotaPlan, RuleEffect
from lodesman.wire.service import BehindBucket, QueueBehind

_MOST_SHOWN: Final = 100
_ANY_HOST: Final = QuotaFilter(names=("*",))


class JobsBehind:
    """The jobs that wait behind a rule: not those of which another rule of its set matches first wherever they can run. A
    rule about hosts is taken for one that may match or not.
    """

    def __init__(self, policy: Policy, use: LimitUse, keeper: SnapshotKeeper) -> None:
        self._policy, self._use, self._keeper, self._book = policy, use, keeper, use.book
        self._rules = {name: number for number, name in enumerate(use.book.names)}
        self._keys = {tq_id: key for tq_id, key, _ in keeper.snapshot.waiting}
        of_hosts = {
            self._rules[name]: hosts
            for name, rule in use.rules.items()
            if name in self._rules and (hosts := rule.filters.get(FilterTag.HOSTS)) is not None
        }
        self._of_hosts = of_hosts.keys()
        self._unsure = mask_of(
            n
            for n, hosts in of_hosts.items()
            if (hosts.names, hosts.excluded) != (_ANY_HOST.names, _ANY_HOST.excluded)
        )
        self._there, self._of_key = cache(self._bits_of), cache(use.book.of_key)
        self._may_count = cache(self._counts)

    def narrow(self, buckets: Iterable[BehindBucket]) -> list[BucketRow]:
        """The rows with the jobs behind them alone, without rows that are then empty."""
        return [row for bucket in buckets if (row := self._narrow(bucket)) is not None]

    def _narrow(self, bucket: BehindBucket) -> BucketRow | None:
        row, rule = bucket.row, self._rules.get(bucket.row.rule)
        kept = [
            jobs for jobs in bucket.behind if rule is None or self._is_behind(rule, bucket.of_place, jobs)
        ]
        if rule is None or len(kept) == len(bucket.behind):
            return row
        if not kept and row.used == "0":
            return None
        owners, more_owners = first_waiters([(jobs, jobs.jobs) for jobs in kept], MOST_OWNERS)
        return replace(
            row, jobs=sum(jobs.jobs for jobs in kept), task_queues=len(kept), owners=owners, more_owners=more_owners,
            full=bool(kept), need=self._least(rule, row, kept),
        )  # fmt: skip

    def _least(self, rule: int, row: BucketRow, kept: Collection[QueueBehind]) -> str:
        if any(jobs.task_queue not in self._keys for jobs in kept):
            return row.need
        keys = (self._keys[jobs.task_queue] for jobs in kept)
        needs = (need for key in keys for need in self._of_key(key).needs(rule))
        amounts = [need.amount for need in needs if need.resource == row.resource]
        return amount_text(min(amounts)) if amounts else ""

    def _is_behind(self, rule: int, of_place: Sequence[str], jobs: QueueBehind) -> bool:
        key = self._keys.get(jobs.task_queue)
        mask = None if key is None else self._where(jobs.task_queue, key)
        return (
            key is None
            or mask is None
            or self._may_count(rule, tuple(of_place), self._of_key(key).bits, mask, key.vo)
        )

    def _where(self, tq_id: int, key: TaskQueueKey) -> int | None:
        """None: not known yet."""
        config = self._policy.vo_config(key.vo)
        queues = self._keeper.known_where(config, tq_id)
        if queues is None and not key.submit_pool:
            return config.possible_queues(key, 0)
        return queues

    def _counts(self, rule: int, of_place: tuple[str, ...], of_key: int, mask: int, vo: str) -> bool:
        """Whether a rule may be the first that matches in a queue of the mask."""
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
                if all(word in ("", value) for word, value in zip(of_place, values, strict=False)):
                    return True
        return False

    def _bits_of(self, queue: QueueId) -> int:
        rules, place = self._book.of_place(RunPlace(*queue)).bits, QuotaPlace(queue=queue.queue, host="")
        for number in self._of_hosts:
            queues = self._use.rules[self._book.names[number]].filters.get(FilterTag.QUEUES)
            if queues is None or admits(FilterTag.QUEUES, queues, place):
                rules |= 1 << number
        return rules


# --- plans -----------------------------------------------------------------------------------------------


def plan_quotas(changed: Sequence[QuotaSet], notices: list[QuotaNoticeRow], state: LiveState) -> QuotaPlan:
    """What would change by adding these sets, or replacing those of the same name. Raises TooLarge."""
    config, vocabulary = state.policy.config, state.policy.vocabulary
    sets = sets_stored(quota_sets(state.db), vocabulary)
    hosts = HostLoads(row.node for row in known_pilots(state.db))
    live = read_running_jobs(state.db)
    watches = state.director.watches if state.director else {}
    run_places = places_of_queues(limits_at([*config.tree.queue_ids()], watches))
    run_places.update(session.place for session in load_sessions(state.db, now=state.now).values())
    run_places.update(attempt.place for attempt in live)
    work = WorkToLimit(waiting=list(_waiting(state)), live=live, places=run_places, tick=state.tick)
    new = sets | {quota_set.name: quota_set for quota_set in changed}
    check_size(new.values())
    accounts = groups_by_user(state.db)
    now, book = (
        limit_rules(rule_sets, vocabulary_of(rule_sets, vocabulary, accounts), config.limits, hosts)
        for rule_sets in (sets.values(), new.values())
    )
    before = hold_against(now, work)
    after = hold_against(book, work)
    # By rules that do not hold yet, nothing has been full since any time.
    use = LimitUse(taken_by(book, live), vocabulary.complexes, {})
    over = [use.named(bucket_row(bucket, (), full=True), "") for bucket in after.over[:_MOST_SHOWN]]
    return QuotaPlan(
        names=[quota_set.name for quota_set in changed],
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
    by_rule: dict[str, list[int]] = {}
    for slot in limited.keys() - otherwise.keys():
        by_rule.setdefault(limited[slot], []).append(slot)
    effects = []
    for rule, slots in sorted(by_rule.items()):
        waiting = [(work.waiting[slot].key, work.waiting[slot].jobs) for slot in slots]
        effects.append(
            RuleEffect(rule, len(slots), sum(jobs for _, jobs in waiting), *first_waiters(waiting))
        )
    return effects


def _jobs(work: WorkToLimit, slots: Iterable[int]) -> int:
    return sum(work.waiting[slot].jobs for slot in slots)
