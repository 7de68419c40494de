"""SubmitPools and task queues held against the configuration: evaluated, judged and cleaned up (RFC #7)."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec
from msgspec import structs
from msgspec.structs import replace

from lodesman.base.errors import Conflict, InvalidJob, counted
from lodesman.decide.masks.bits import bits
from lodesman.decide.matching import wanted_of
from lodesman.decide.matching.policy import Policy, VOConfig
from lodesman.decide.matching.submit_pool import wanted_values
from lodesman.decide.resources import QueueTable, compile_requirements
from lodesman.decide.resources.expression_table import PlacementClause
from lodesman.decide.submission import find_exclusions, never_text
from lodesman.languages.jobclass import Classes
from lodesman.languages.jobclass.classes import NO_CLASSES, UsableClass, every_class
from lodesman.server.loops import portions
from lodesman.server.loops.left_out import Item, LeftOutItems, StepPass, task_queue
from lodesman.server.loops.settled import Settled
from lodesman.server.store import Reader
from lodesman.server.store import submit_pools as read
from lodesman.server.store.accounts import groups_by_user
from lodesman.server.store.task_queues import JudgedQueue, keys_version, queues_to_judge
from lodesman.server.writer.job_classes import usable_by
from lodesman.server.writer.submit_pools import CONFIG, PoolIds
from lodesman.wire import inner_calls
from lodesman.wire.call import Post
from lodesman.wire.service import Holds, PassResult, PoolCleaning, QueueVerdicts, Renewal, Renewals
from lodesman.wire.vocabulary import Kind

log = logging.getLogger(__name__)

_TRIES: Final = 3
_CONFLICT_SECONDS: Final = 30.0
_AGAIN_SECONDS: Final = 60.0  # that new pools wait after a pass that left something out
_AT_ONCE: Final = 200  # task queues or pools in one command
_ADS: Final = "ads of sites"
Handling = Callable[[Item], AbstractContextManager[object]]
_REQUIREMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RefreshInput(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of the database, against which a refresh is held."""

    last: read.PassRow
    state: read.PassRequests
    pools: Sequence[read.PoolRow]
    queues: Sequence[JudgedQueue]
    rekeyed: int = 0  # `keys_version`
    damaged: Mapping[int, Exception] = {}  # task queues whose keys cannot be read


def read_refresh_input(db: Reader) -> RefreshInput:
    """Everything as it is at one moment."""
    damaged: dict[int, Exception] = {}
    with db:
        return RefreshInput(
            last=read.last_pass(db),
            state=read.pass_requests(db),
            pools=list(read.stored_pools(db)),
            queues=list(queues_to_judge(db, damaged)),
            rekeyed=keys_version(db),
            damaged=damaged,
        )


class PoolKeeper:
    """Refreshes SubmitPools, and removes unused ones. One thread at a time uses it."""

    def __init__(
        self, db: Reader, post: Post, *, refresh_seconds: float, grace_seconds: float,
        ask_ads: Callable[[Reader, Policy, float], Mapping[str, int]] = lambda _db, _policy, _now: {},
        left_out: LeftOutItems | None = None, classes: Callable[[Reader], Classes] = lambda _db: NO_CLASSES,
    ) -> None:  # fmt: skip
        """`ask_ads`: by pool that asks for something in ads, the queues that these exclude. `grace_seconds`: for
        pools that no job needs.
        """
        self._classes = classes
        self._left_out = left_out or LeftOutItems()
        self.refresh_seconds = refresh_seconds
        self.grace_seconds = grace_seconds
        # By pool, the queues that the ads of sites excluded at the last refresh; any thread may ask.
        self.unfit: Mapping[str, int] = {}
        self._db = db
        self._post = post
        self._ask_ads = ask_ads
        self._ids = PoolIds()
        self._settled = Settled()
        self._version: tuple[str, float | None] | None = None
        self._at = self._new_at = 0.0
        self._differs_since: float | None = None

    def tick(self, policy: Policy, now: float) -> str:
        """Refresh if that is due; returns the cause, '' if it was not. `now` in UNIX seconds.

        After LodesmanError it stays due. That the writer has read another configuration is an error only if it
        stays so.
        """
        cause = self._due(policy, now)
        if not cause:
            return ""
        for tries in reversed(range(_TRIES)):
            try:
                with self._left_out.step("the SubmitPools") as left:
                    self._refresh(policy, cause, now, left)
                break
            except Conflict as fault:
                differs = CONFIG in fault.data
                if differs:
                    self._differs_since = min(now, self._differs_since or now)
                    if now - self._differs_since < _CONFLICT_SECONDS:
                        return ""
                if differs or not tries:
                    raise
        self._differs_since = None
        self._new_at = now + _AGAIN_SECONDS if left.faults else 0.0
        if cause != _ADS:
            self._version, self._at = policy.version, now
            self.clean(now)
        return cause

    def _due(self, policy: Policy, now: float) -> str:
        """The cause. request: a job needs a pool that was removed or judged before. ads: they exclude other queues,
        or concern a new pool.
        """
        if self._version is None:
            return "start"
        if policy.version != self._version:
            return "configuration"
        if not 0.0 <= now - self._at < self.refresh_seconds:
            return "interval"
        if read.pass_requests(self._db).is_due:
            return "request"
        # A new pool at fault stays new.
        is_new = now >= self._new_at and read.has_new_pools(self._db)
        is_new = is_new or self._ask_ads(self._db, policy, now) != self.unfit
        return _ADS if is_new else ""

    def _refresh(self, policy: Policy, cause: str, now: float, left: StepPass) -> None:
        begun = time.perf_counter()
        stored, unfit = self._read(policy, left), self.unfit
        with left.item(_ADS):
            unfit = self._ask_ads(self._db, policy, now)
        if cause == _ADS:  # what the configuration says has not changed
            pools = [pool for pool in stored.pools if pool.id in unfit or not pool.is_evaluated]
            stored = replace(stored, pools=pools, queues=())
        masks = evaluate(policy, stored.pools, left.item)
        evaluated = difference(policy, stored, masks, cause=cause, unfit=unfit)
        usable = cache(partial(usable_by, self._db, classes=cache(partial(self._classes, self._db))))
        settled = None
        with left.item("what task queues were judged by"):
            told = stored.rekeyed, self._classes(self._db), groups_by_user(self._db)
            if cause != _ADS:
                self._settled.begin(policy, stored.queues, told)
            settled = self._settled
        hold, release = judge(policy, stored, masks, left.item, usable, settled=settled)
        seconds = time.perf_counter() - begun
        done = self._post(inner_calls.POOL_PASS, structs.replace(evaluated, seconds=seconds))
        self.unfit = unfit
        for part in portions(hold, _AT_ONCE):
            self._tell(left, part, lambda some: QueueVerdicts(number=done.number, hold=some))
        for part in portions(release, _AT_ONCE):
            self._tell(left, part, lambda some: QueueVerdicts(number=done.number, release=some))
        extra = {
            "cause": cause, "seconds": round(seconds, 3), "pools": evaluated.pools, "changed": len(evaluated.masks),
            "held": len(hold), "released": len(release),
        }  # fmt: skip
        log.info("the SubmitPools were evaluated", extra=extra)

    def _tell(self, left: StepPass, part: Holds, judgement: Callable[[Holds], QueueVerdicts]) -> None:
        post = partial(self._post, inner_calls.JUDGE_QUEUES)
        left.in_parts(part, lambda some: post(judgement(some)), lambda row: task_queue(row[0]))

    def _read(self, policy: Policy, left: StepPass) -> RefreshInput:
        """With the identifiers of today's types."""
        stored = read_refresh_input(self._db)
        for number, fault in stored.damaged.items():
            left.leave_out(task_queue(number), fault)
        renewals = partial(self._ids.changed, policy.config.types)
        parts = left.in_parts(stored.pools, renewals, lambda pool: _pool(pool.id))
        changed = list(chain.from_iterable(parts))
        for part in portions(changed, _AT_ONCE):
            left.in_parts(part, partial(self._renew, policy), lambda row: _pool(row[0]))
        return read_refresh_input(self._db) if changed else stored

    def _renew(self, policy: Policy, pools: list[Renewal]) -> None:
        self._post(inner_calls.REKEY_POOLS, Renewals(config=policy.digest, pools=pools))

    def clean(self, now: float) -> int:
        """Mark pools that no job needs, and remove those that none has needed for long; returns how many."""
        needed, before = read.pools_needed(self._db), now - self.grace_seconds
        mark, unmark, old = [], [], []
        for pool in read.stored_pools(self._db):
            if pool.id in needed:
                if pool.unused_since is not None:
                    unmark.append(pool.id)
            elif pool.unused_since is None:
                mark.append(pool.id)
            elif pool.unused_since <= before:
                old.append(pool.id)
        with self._left_out.step("the removal of SubmitPools") as left:

            def order(pools: list[str], cleaning: Callable[[list[str]], PoolCleaning]) -> int:
                done = lambda some: self._post(inner_calls.CLEAN_POOLS, cleaning(some)).removed  # noqa: E731
                return sum(sum(left.in_parts(part, done, _pool)) for part in portions(pools, _AT_ONCE))

            order(mark, lambda some: PoolCleaning(mark=some))
            order(unmark, lambda some: PoolCleaning(unmark=some))
            return order(old, lambda some: PoolCleaning(remove=some, unused_before=before))


def _pool(number: str) -> Item:
    return Item("SubmitPool", number)


# --- pure: from the configuration and the input to what is to be changed -----------------------------------


def evaluate(
    policy: Policy, pools: Sequence[read.PoolRow], handling: Handling = nullcontext
) -> dict[str, int]:
    """By pool, the queues that fulfil its Requirements; none if the declared types cannot read them. `handling`:
    what a fault in one pool means, which is absent then.
    """
    evaluators = {vo: _Evaluator(policy.vo_config(vo).table) for vo in {pool.vo for pool in pools}}
    masks = {}
    for pool in pools:
        with handling(_pool(pool.id)):
            masks[pool.id] = evaluators[pool.vo].mask(pool.requirements)
    return masks


def placement_clauses(
    policy: Policy, pools: Iterable[read.PoolRow], handling: Handling = nullcontext
) -> dict[str, tuple[PlacementClause, ...]]:
    """By pool, the clauses of its expression that only the ads of sites decide, if any."""
    clauses_of = {}
    for pool in pools:
        if f'"{Kind.EXPRESSION}"' in pool.requirements:  # few have one
            table = policy.vo_config(pool.vo).table
            with handling(_pool(pool.id)), suppress(InvalidJob, ValueError, TypeError):
                criteria = compile_requirements(wanted_of(pool.requirements), table.types)
                clauses_of[pool.id] = table.placement(criteria)
    return {pool: clauses for pool, clauses in clauses_of.items() if clauses}


class _Evaluator:
    """Equal requirements are evaluated once."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._known: dict[tuple[str, bytes], int] = {}

    def mask(self, requirements: str) -> int:
        """None if the text is not a set of Requirements."""
        mask = self._table.open_to_vo
        masks = self._known
        try:
            texts = _REQUIREMENTS.decode(requirements)
        except msgspec.DecodeError:
            return 0
        for name, raw in texts.items():
            key = name, bytes(raw)
            admitted = masks.get(key)
            if admitted is None:
                admitted = masks[key] = self._one(name, key[1])
            mask &= admitted
        return mask

    def _one(self, name: str, raw: bytes) -> int:
        try:
            values = {name: wanted_values(json.loads(raw))}
            return self._table.eligible_mask(compile_requirements(values, self._table.types))
        except (InvalidJob, ValueError, TypeError):
            return 0


def difference(
    policy: Policy, stored: RefreshInput, masks: Mapping[str, int], *, cause: str,
    unfit: Mapping[str, int] = MappingProxyType({}),
) -> PassResult:  # fmt: skip
    """What makes the stored pools as they were evaluated, less the `unfit` queues. `seconds` is left open."""
    pools = [pool for pool in stored.pools if pool.id in masks]
    served = {pool.id: masks[pool.id] & ~unfit.get(pool.id, 0) for pool in pools}
    changed = {
        pool.id: f"{served[pool.id]:x}"
        for pool in pools
        if served[pool.id] != pool.queues or not pool.is_evaluated
    }
    return PassResult(
        previous=stored.last.id,
        answers=stored.state.asked,
        config=policy.digest,
        cause=cause,
        pools=len(stored.pools),
        seconds=0.0,
        masks=changed,
    )


def judge(
    policy: Policy, stored: RefreshInput, masks: Mapping[str, int], handling: Handling = nullcontext,
    usable: Callable[[str], UsableClass] = lambda _: every_class, *, settled: Settled | None = None,
) -> tuple[Holds, Holds]:  # fmt: skip
    """The task queues to hold, since no configured queue can run them, and to release; each with the reason. One at
    fault (`handling`) stays as it is. `usable`: the classes that may be suggested to a user.
    """
    hold: Holds = []
    release: Holds = []
    for queue in stored.queues:
        if settled is not None and settled.has(queue, masks):
            continue
        with handling(task_queue(queue.id)):
            judgement = _judgement(queue, policy, masks, usable)
            if judgement is not None:
                (hold if judgement.hold else release).append((queue.id, judgement.text))
            elif settled is not None:
                settled.put(queue, masks)
    return hold, release


class _Judgement(NamedTuple):
    hold: bool
    text: str


def _judgement(
    queue: JudgedQueue, policy: Policy, masks: Mapping[str, int], usable: Callable[[str], UsableClass]
) -> _Judgement | None:
    """None: no change. An empty task queue is held as long as a job may return to it."""
    config = policy.vo_config(queue.key.vo)
    can = runnable(queue, policy, masks)
    if can or not (queue.jobs or queue.may_return):
        return (
            None if queue.held is None else _Judgement(hold=False, text=_can_run(can, config) if can else "")
        )
    reason = never_text(
        find_exclusions(queue.key, wanted_of(queue.requirements), config, usable(queue.key.owner))
    )
    return _Judgement(hold=True, text=reason) if reason and reason != queue.held else None


def runnable(queue: JudgedQueue, policy: Policy, masks: Mapping[str, int]) -> int:
    """The configured queues that can run a task queue. `masks`: of SubmitPools; without its own, its Requirements
    count.
    """
    config = policy.vo_config(queue.key.vo)
    pool = queue.key.submit_pool
    mask = masks.get(pool, 0)
    if pool and pool not in masks:
        mask = _Evaluator(config.table).mask(queue.requirements)
    return config.possible_queues(queue.key, mask)


def _can_run(mask: int, config: VOConfig) -> str:
    first = "/".join(config.table.queues[next(bits(mask))])
    return f"{first} can run it now ({mask.bit_count()} of {counted(config.table.open_to_vo.bit_count(), 'queue')})"
