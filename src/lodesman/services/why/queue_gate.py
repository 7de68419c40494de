"""What stands before new pilots in one CE queue now: the director's own limits, looked at between two iterations.

Needs the director itself, since breakers and buckets live in its memory, and asks the batch system for its load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lodesman.answers.vocabulary import BreakerState
from lodesman.background.candidates import CandidateMaker, OwnQueue
from lodesman.background.direct import Director
from lodesman.director import Breaker, CandidateQueue, PoolState, QueueId
from lodesman.director.breaker import settle
from lodesman.director.clamps import Limit
from lodesman.director.observation import age_s
from lodesman.director.queues import queue_limits
from lodesman.director.site_mask import NOTHING_CLOSED, SiteMask
from lodesman.director.token_bucket import full, refill, whole_tokens
from lodesman.matching import QueueOffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """As of `at`. `limits` are all of them, in order, whether or not they leave room."""

    at: float
    candidate: CandidateQueue
    limits: tuple[Limit, ...]
    breaker: Breaker
    pools: tuple[PoolState, ...]

    @property
    def room(self) -> int | None:
        """Pilots that may be sent now at most; None if nothing limits them."""
        return max(0, min(one.limit for one in self.limits)) if self.limits else None

    @property
    def shut(self) -> tuple[Limit, ...]:
        """The limits that leave no room."""
        return tuple(one for one in self.limits if one.limit <= 0)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        own = self.candidate.own
        return {
            "room": self.room,
            "limits": [
                {"clamp": one.name.value, "limit": one.limit, "text": one.detail, "shut": one.limit <= 0}
                for one in self.limits
            ],
            "breaker": self._breaker(),
            "load": {
                "waiting": self.candidate.load_waiting.value,
                "running": self.candidate.load_running.value,
                "slots": self.candidate.slots,
                "told_by": self.candidate.load_waiting.source,
                "age_seconds": age_s(self.candidate.load_waiting, now=self.at),
            },
            "own": {
                "waiting": own.waiting, "running": own.running, "since_load": own.since_load,
            },
            "submission_pools": [
                {"name": one.name, "threads": one.max, "busy": one.running, "queued": one.queued, "full": one.is_full}
                for one in self.pools
            ],
        }  # fmt: skip

    def _breaker(self) -> dict[str, Any]:
        breaker = self.breaker
        closed = breaker.state is BreakerState.CLOSED
        return {
            "state": breaker.state.value,
            "failures": breaker.failures,
            "retry_seconds": None if closed else max(0.0, breaker.retry_at - self.at),
            "probing": breaker.probing,
            "reason": breaker.reason,
        }


class Gates:
    """Looks at single queues with a director's eyes. Any thread may ask."""

    def __init__(self, director: Director) -> None:
        self.director = director

    def look(
        self, vo: str, offer: QueueOffer, *, own: OwnQueue, now: float, mask: SiteMask = NOTHING_CLOSED
    ) -> Gate:
        """The gate of a queue that the VO may use. `own` are our live pilots there, `mask` what is closed."""
        director, queue_id = self.director, QueueId(*offer.queue)
        options = director.options
        candidate = CandidateMaker(
            policy=director.policy,
            backends=director.backends,
            pools=options.submission_pools,
            own={queue_id: own},
            now=now,
            mask=mask,
        ).one(vo, offer, director.vos)
        breaker = settle(director.breakers.get(queue_id, Breaker()), now=now)
        bucket = director.buckets.get(queue_id.ce_id) or full(options.rate, now=now)
        tokens = whole_tokens(refill(bucket, now=now, rules=options.rate))
        limits = queue_limits(
            candidate, breaker=breaker, tokens=tokens, now=now, max_age_s=options.max_load_age_s
        )
        states = director.pools()
        return Gate(
            at=now,
            candidate=candidate,
            limits=tuple(limits),
            breaker=breaker,
            pools=tuple(states[name] for name in options.submission_pools if name in states),
        )
