"""A plan of quota sets: what they would do to what runs and waits now. Nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lodesman.decide.masks.bits import bits
from lodesman.decide.matching.limit_takers import taken_by
from lodesman.decide.rehearse.limits import WaitingQueue, WorkToLimit, hold_against
from lodesman.decide.resources import QueueId
from lodesman.languages.quota.matching import check_size
from lodesman.languages.quota.rules import QuotaSet
from lodesman.server.loops.limit_use import LimitUse, limits_at, stored_attempts
from lodesman.server.loops.refresh import evaluate
from lodesman.server.reads.plans import LiveState
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.quotas import quota_sets
from lodesman.server.store.read.submit_pools import stored_pools
from lodesman.server.writer.quotas import bucket_row, limit_rules, places, sets_stored, vocabulary_of, waiters
from lodesman.server.writer.sessions import HostLoads, known_pilots, load_sessions
from lodesman.wire.quotas import BucketRow, QuotaNoticeRow, QuotaPlan, RuleEffect

_SHOWN: Final = 100


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
    work = WorkToLimit(waiting=_waiting(state), live=live, places=there, tick=state.tick)
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
    over = [use.named(bucket_row(one, (), full=True), "") for one in after.over[:_SHOWN]]
    return QuotaPlan(
        names=[one.name for one in changed],
        notices=notices,
        over=sorted(over, key=_name),
        more_over=max(0, len(after.over) - _SHOWN),
        stopped=_effects(work, after.limited, before.limited),
        freed=_effects(work, before.limited, after.limited),
        limited_now=_jobs(work, before.limited),
        limited_then=_jobs(work, after.limited),
    )


def _name(row: BucketRow) -> tuple[str, list[str], str]:
    return row.rule, row.of, row.resource


def _waiting(state: LiveState) -> list[WaitingQueue]:
    pools, policy = evaluate(state.policy, list(stored_pools(state.db))), state.policy
    found = []
    for _, key, jobs in state.keeper.snapshot.waiting:
        state.tick()
        config = policy.vo_config(key.vo)
        mask = config.possible_queues(key, pools.get(key.submit_pool, 0))
        found.append(WaitingQueue(key, jobs, [QueueId(*config.table.queues[bit]) for bit in bits(mask)]))
    return found


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
