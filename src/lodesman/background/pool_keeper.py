"""When SubmitPools are evaluated, judged and cleaned up: the part of the background process that keeps them true.

A pass comes at the start, at regular intervals, when the configuration changed, and when the writer asked for one
(a job needs a pool that was removed; a job was judged by an older configuration).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TypeVar

from msgspec.structs import replace

from lodesman.answers import calls
from lodesman.answers.call import Post
from lodesman.answers.service import Cleaning, Judgement, Renewals
from lodesman.background.pool_pass import Looker, Picture, difference, evaluate, judge, unnamed
from lodesman.commands.submit_pools import CONFIG, PoolIds
from lodesman.errors import Conflict
from lodesman.matching.policy import Policy
from lodesman.store import Reader
from lodesman.store.read.submit_pools import pass_requests, pools_needed, stored_pools

log = logging.getLogger(__name__)

TRIES = 3
PATIENCE_SECONDS = 30.0
# What the writer is given at once: task queues to hold or to release, pools to mark or to remove.
PART = 200
START, INTERVAL, CONFIGURATION, REQUEST = "start", "interval", "configuration", "request"

T = TypeVar("T")


class PoolKeeper:
    """`tick` is called every few seconds. Holds a read connection: one thread at a time.

    `refresh_seconds` between passes; a pool is removed when no job has needed it for `grace_seconds`. Both may be
    changed at any time.
    """

    def __init__(self, db: Reader, post: Post, *, refresh_seconds: float, grace_seconds: float) -> None:
        self.refresh_seconds = refresh_seconds
        self.grace_seconds = grace_seconds
        self._db = db
        self._post = post
        self._looker = Looker(db)
        self._settled = PoolIds()
        self._policy: Policy | None = None
        self._at = 0.0
        self._differs_since: float | None = None

    def tick(self, policy: Policy, now: float) -> str:
        """Run what is due. `now` in UNIX seconds. Returns the cause of the pass, '' if there was none.

        Raises LodesmanError if it could not be stored; it stays due. That the writer has not read the same configuration
        yet, or has read the next one already, is no fault unless it stays so.
        """
        cause = self._due(policy, now)
        if not cause:
            return ""
        try:
            self._pass(policy, cause)
        except Conflict as fault:
            if CONFIG in fault.data and self._may_differ(now):
                return ""
            raise
        self._policy, self._at, self._differs_since = policy, now, None
        self.clean(now)
        return cause

    def _may_differ(self, now: float) -> bool:
        """Whether the two processes have not differed for long."""
        if self._differs_since is None or now < self._differs_since:
            self._differs_since = now
        return now - self._differs_since < PATIENCE_SECONDS

    def _due(self, policy: Policy, now: float) -> str:
        if self._policy is None:
            return START
        if policy is not self._policy:
            return CONFIGURATION
        if not 0.0 <= now - self._at < self.refresh_seconds:
            return INTERVAL
        return REQUEST if pass_requests(self._db).is_due else ""

    def _pass(self, policy: Policy, cause: str) -> None:
        for number in range(1, TRIES + 1):
            try:
                self._try(policy, cause)
                return
            except Conflict as fault:
                if number == TRIES or CONFIG in fault.data:
                    raise

    def _try(self, policy: Policy, cause: str) -> None:
        begun = time.perf_counter()
        picture = self._look(policy)
        masks = evaluate(policy, picture.pools)
        found = difference(policy, picture, masks, cause=cause)
        hold, release = judge(policy, picture, masks)
        seconds = time.perf_counter() - begun
        done = self._post(calls.POOL_PASS, replace(found, seconds=seconds))
        for part in _parts(hold):
            self._judged(Judgement(number=done.number, hold=list(part)))
        for part in _parts(release):
            self._judged(Judgement(number=done.number, release=list(part)))
        counts = {
            "pools": found.pools,
            "changed": len(found.masks),
            "held": len(hold),
            "released": len(release),
        }
        log.info(
            "the SubmitPools were evaluated", extra={"cause": cause, "seconds": round(seconds, 3), **counts}
        )

    def _look(self, policy: Policy) -> Picture:
        picture = self._looker.look()
        changed = self._settled.changed(policy.config.types, picture.pools)
        for part in _parts(changed):
            self._post(calls.REKEY_POOLS, Renewals(config=policy.digest, pools=list(part)))
        if changed:
            picture = self._looker.look()
        places = unnamed(policy, picture)
        if places:
            self._post(calls.NAME_QUEUES, places)
            picture = self._looker.look()
        return picture

    def _judged(self, found: Judgement) -> None:
        self._post(calls.JUDGE_QUEUES, found)

    def clean(self, now: float) -> int:
        """Mark pools that no job needs, and remove those that none has needed for long; returns how many went."""
        needed = pools_needed(self._db)
        mark, unmark, old = [], [], []
        for pool in stored_pools(self._db):
            if pool.id in needed:
                if pool.unused_since is not None:
                    unmark.append(pool.id)
            elif pool.unused_since is None:
                mark.append(pool.id)
            elif pool.unused_since <= now - self.grace_seconds:
                old.append(pool.id)
        for part in _parts(mark):
            self._post(calls.CLEAN_POOLS, Cleaning(mark=list(part)))
        for part in _parts(unmark):
            self._post(calls.CLEAN_POOLS, Cleaning(unmark=list(part)))
        before = now - self.grace_seconds
        return sum(
            self._post(calls.CLEAN_POOLS, Cleaning(remove=list(part), unused_before=before)).removed
            for part in _parts(old)
        )


def _parts(rows: Sequence[T]) -> list[Sequence[T]]:
    return [rows[begun : begun + PART] for begun in range(0, len(rows), PART)]
