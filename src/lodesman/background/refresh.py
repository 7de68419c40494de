"""SubmitPools and task queues held against the configuration: evaluated, judged and cleaned up (RFC #7).

All of them are evaluated by bitsets, outside the writer. What is found is a difference to one moment of the database;
`commands.submit_pools` takes it, or refuses it if another refresh came between.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import structs
from msgspec.structs import replace

from lodesman.answers import inner_calls
from lodesman.answers.call import Post
from lodesman.answers.service import Cleaning, Difference, Holds, Judgement, Renewals
from lodesman.answers.vocabulary import Kind
from lodesman.background import portions
from lodesman.commands.submit_pools import CONFIG, PoolIds
from lodesman.errors import Conflict, InvalidJob
from lodesman.masks.bits import bits
from lodesman.matching import wanted_of
from lodesman.matching.policy import Policy, VOConfig
from lodesman.matching.submit_pool import wanted_values
from lodesman.resources import QueueTable, compile_requirements
from lodesman.resources.expression_table import PlacementClause
from lodesman.store import Reader
from lodesman.store.read import submit_pools as read
from lodesman.store.read.task_queues import JudgedQueue, queues_to_judge
from lodesman.submission import find_exclusions, never_text

log = logging.getLogger(__name__)

_TRIES: Final = 3
_CONFLICT_SECONDS: Final = 30.0
# What the writer is given at once: task queues to hold or to release, pools to mark or to remove.
_AT_ONCE: Final = 200
_ADS: Final = "ads of sites"
_REQUIREMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RefreshInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh is held against: one moment of the database."""

    last: read.PassRow
    state: read.PassRequests
    pools: Sequence[read.PoolRow]
    queues: Sequence[JudgedQueue]


def read_refresh_input(db: Reader) -> RefreshInput:
    """Everything as it is at one moment."""
    with db:
        return RefreshInput(
            last=read.last_pass(db),
            state=read.pass_requests(db),
            pools=list(read.stored_pools(db)),
            queues=list(queues_to_judge(db)),
        )


class PoolKeeper:
    """Refreshes every `refresh_seconds`, and removes pools that no job has needed for `grace_seconds`. Has a read
    connection: one thread at a time. `ask_ads`: the queues that the ads of sites exclude, for each pool that asks for
    something in them; when it answers otherwise these pools alone are refreshed.
    """

    def __init__(
        self, db: Reader, post: Post, *, refresh_seconds: float, grace_seconds: float,
        ask_ads: Callable[[Reader, Policy, float], Mapping[str, int]] = lambda _db, _policy, _now: {},
    ) -> None:  # fmt: skip
        self.refresh_seconds = refresh_seconds
        self.grace_seconds = grace_seconds
        self.unfit: Mapping[str, int] = {}
        """By pool, the queues that the ads of sites excluded at the last refresh. Any thread may ask."""
        self._db = db
        self._post = post
        self._ask_ads = ask_ads
        self._ids = PoolIds()
        self._version: tuple[str, float | None] | None = None
        self._at = 0.0
        self._differs_since: float | None = None

    def tick(self, policy: Policy, now: float) -> str:
        """Refresh if that is due. `now` in UNIX seconds. Returns the cause of the refresh, '' if there was none.

        Raises LodesmanError if it could not be stored; it stays due. That the writer has not read the same configuration
        yet, or has read the next one already, is an error only if it stays so.
        """
        cause = self._due(policy, now)
        if not cause:
            return ""
        for left in reversed(range(_TRIES)):
            try:
                self._refresh(policy, cause, now)
                break
            except Conflict as fault:
                differs = CONFIG in fault.data
                if differs:
                    self._differs_since = min(now, self._differs_since or now)
                    if now - self._differs_since < _CONFLICT_SECONDS:
                        return ""
                if differs or not left:
                    raise
        self._differs_since = None
        if cause != _ADS:
            self._version, self._at = policy.version, now
            self.clean(now)
        return cause

    def _due(self, policy: Policy, now: float) -> str:
        """The cause; request: a job needs a pool that was removed, or was judged by an older configuration; ads: they
        exclude other queues than before, or a new pool asks for something in them.
        """
        if self._version is None:
            return "start"
        if policy.version != self._version:
            return "configuration"
        if not 0.0 <= now - self._at < self.refresh_seconds:
            return "interval"
        if read.pass_requests(self._db).is_due:
            return "request"
        is_new = read.has_new_pools(self._db) or self._ask_ads(self._db, policy, now) != self.unfit
        return _ADS if is_new else ""

    def _refresh(self, policy: Policy, cause: str, now: float) -> None:
        begun = time.perf_counter()
        stored = self._read(policy)
        unfit = self._ask_ads(self._db, policy, now)
        if cause == _ADS:  # what the configuration says has not changed
            pools = [one for one in stored.pools if one.id in unfit or not one.is_evaluated]
            stored = replace(stored, pools=pools, queues=())
        masks = evaluate(policy, stored.pools)
        found = difference(policy, stored, masks, cause=cause, unfit=unfit)
        hold, release = judge(policy, stored, masks)
        seconds = time.perf_counter() - begun
        done = self._post(inner_calls.POOL_PASS, structs.replace(found, seconds=seconds))
        self.unfit = unfit
        for part in portions(hold, _AT_ONCE):
            self._post(inner_calls.JUDGE_QUEUES, Judgement(number=done.number, hold=part))
        for part in portions(release, _AT_ONCE):
            self._post(inner_calls.JUDGE_QUEUES, Judgement(number=done.number, release=part))
        extra = {
            "cause": cause, "seconds": round(seconds, 3), "pools": found.pools, "changed": len(found.masks),
            "held": len(hold), "released": len(release),
        }  # fmt: skip
        log.info("the SubmitPools were evaluated", extra=extra)

    def _read(self, policy: Policy) -> RefreshInput:
        """The input, where pools have the identifiers of today's types."""
        stored = read_refresh_input(self._db)
        changed = self._ids.changed(policy.config.types, stored.pools)
        for part in portions(changed, _AT_ONCE):
            self._post(inner_calls.REKEY_POOLS, Renewals(config=policy.digest, pools=part))
        return read_refresh_input(self._db) if changed else stored

    def clean(self, now: float) -> int:
        """Mark pools that no job needs, and remove those that none has needed for long; returns how many went."""
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
        todo = [
            *(Cleaning(mark=part) for part in portions(mark, _AT_ONCE)),
            *(Cleaning(unmark=part) for part in portions(unmark, _AT_ONCE)),
            *(Cleaning(remove=part, unused_before=before) for part in portions(old, _AT_ONCE)),
        ]
        return sum(self._post(inner_calls.CLEAN_POOLS, one).removed for one in todo)


# --- pure: from the configuration and the input to what is to be changed -----------------------------------


def evaluate(policy: Policy, pools: Sequence[read.PoolRow]) -> dict[str, int]:
    """For every pool the queues that fulfil its Requirements; none if the declared types cannot read them."""
    evaluators = {vo: _Evaluator(policy.vo_config(vo).table) for vo in {pool.vo for pool in pools}}
    return {pool.id: evaluators[pool.vo].mask(pool.requirements) for pool in pools}


def placement_clauses(
    policy: Policy, pools: Iterable[read.PoolRow]
) -> dict[str, tuple[PlacementClause, ...]]:
    """By pool, what of its expression only the ads of sites decide; pools of which that is nothing are left out."""
    found = {}
    for pool in pools:
        if f'"{Kind.EXPRESSION}"' in pool.requirements:  # few have one
            table = policy.vo_config(pool.vo).table
            with suppress(InvalidJob, ValueError, TypeError):
                criteria = compile_requirements(wanted_of(pool.requirements), table.types)
                found[pool.id] = table.placement(criteria)
    return {pool: clauses for pool, clauses in found.items() if clauses}


class _Evaluator:
    """Evaluates many canonical texts for one VO; what one requirement admits is evaluated once."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._known: dict[tuple[str, bytes], int] = {}

    def mask(self, requirements: str) -> int:
        """The queues that fulfil all of them; none if the text is not a set of Requirements."""
        mask = self._table.open_to_vo
        known = self._known
        try:
            found = _REQUIREMENTS.decode(requirements)
        except msgspec.DecodeError:
            return 0
        for name, raw in found.items():
            key = name, bytes(raw)
            one = known.get(key)
            if one is None:
                one = known[key] = self._one(name, key[1])
            mask &= one
        return mask

    def _one(self, name: str, raw: bytes) -> int:
        try:
            wanted = {name: wanted_values(json.loads(raw))}
            return self._table.eligible_mask(compile_requirements(wanted, self._table.types))
        except (InvalidJob, ValueError, TypeError):
            return 0


def difference(
    policy: Policy, stored: RefreshInput, masks: Mapping[str, int], *, cause: str,
    unfit: Mapping[str, int] = MappingProxyType({}),
) -> Difference:  # fmt: skip
    """What is to be changed so that the stored pools are as they were evaluated, less the queues that are `unfit` by what
    their sites advertise. `seconds` is left open.
    """
    served = {pool.id: masks[pool.id] & ~unfit.get(pool.id, 0) for pool in stored.pools}
    changed = {
        pool.id: f"{served[pool.id]:x}"
        for pool in stored.pools
        if served[pool.id] != pool.queues or not pool.is_evaluated
    }
    return Difference(
        previous=stored.last.id,
        answers=stored.state.asked,
        config=policy.digest,
        cause=cause,
        pools=len(stored.pools),
        seconds=0.0,
        masks=changed,
    )


def judge(policy: Policy, stored: RefreshInput, masks: Mapping[str, int]) -> tuple[Holds, Holds]:
    """The task queues to hold, since no configured queue can run them, and those to release; each with the reason.

    One that stays held is named again if its reason reads otherwise now. An empty one is held as long as a job may
    return to it, which is Held at once then.
    """
    hold: Holds = []
    release: Holds = []
    for queue in stored.queues:
        config = policy.vo_config(queue.key.vo)
        can = runnable(queue, policy, masks)
        if can or not (queue.jobs or queue.may_return):
            if queue.held is not None:
                release.append((queue.id, _can_run(can, config) if can else ""))
            continue
        reason = never_text(find_exclusions(queue.key, wanted_of(queue.requirements), config))
        if reason and reason != queue.held:
            hold.append((queue.id, reason))
    return hold, release


def runnable(queue: JudgedQueue, policy: Policy, masks: Mapping[str, int]) -> int:
    """The configured queues that can run a task queue; `masks` are those of the SubmitPools. If its
    SubmitPool is gone, its own Requirements count.
    """
    config = policy.vo_config(queue.key.vo)
    pool = queue.key.submit_pool
    mask = masks.get(pool, 0)
    if pool and pool not in masks:
        mask = _Evaluator(config.table).mask(queue.requirements)
    return config.possible_queues(queue.key, mask)


def _can_run(mask: int, config: VOConfig) -> str:
    first = "/".join(config.table.queues[next(bits(mask))])
    return f"{first} can run it now ({mask.bit_count()} of {config.table.open_to_vo.bit_count()} queues)"
