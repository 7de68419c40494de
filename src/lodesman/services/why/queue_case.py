"""What there is to know of one CE queue and the pilots that could be sent there: the material of `lode why QUEUE`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lodesman.answers.vocabulary import QueueReason
from lodesman.commands.policy import Policy
from lodesman.director.site_mask import Closing
from lodesman.matching import QueueOffer
from lodesman.resources import AccessDenied, NodePath, QueueId, access_refusal, effective_params
from lodesman.services.why.picture import Picture
from lodesman.services.why.queue_gate import Gate
from lodesman.services.why.queue_verdict import Demand, QueueFacts, demands, judge_queue
from lodesman.services.why.step import since
from lodesman.store.engine import Reader
from lodesman.submission import BY_HAND
from lodesman.why.survey import SENDABLE, Survey

LOOKED_AT: Final = 10_000
LATELY: Final = 5
OWN = """SELECT state, count(*) FROM pilot WHERE ended_at IS NULL AND site = ? AND ce = ? AND queue = ?
GROUP BY state"""
LAST = """SELECT id, stamp, state, reason, drain, created_at, joined_at, ended_at, jobs_done FROM (
  SELECT * FROM pilot ORDER BY id DESC LIMIT ?) WHERE site = ? AND ce = ? AND queue = ? ORDER BY id DESC"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCase:
    """One queue held against the world of a VO. `survey` and `gate` are None where the VO may not use it. `closings`: what
    closes it now, the widest first.
    """

    place: QueueId
    vo: str
    configured: bool
    denied: AccessDenied | None
    offer: QueueOffer | None
    pools: int
    survey: Survey | None
    demand: Counter[Demand] | None
    gate: Gate | None
    own: Mapping[str, int]
    lately: tuple[Mapping[str, Any], ...]
    picture: Picture
    policy: Policy
    now: float
    closings: tuple[Closing, ...] = ()

    def age(self, at: float | None) -> float | None:
        """Seconds since then; None if unknown."""
        return since(at, self.now)

    @property
    def decided(self) -> Mapping[str, Any] | None:
        """What the last iteration allowed the queue: `wanted`, `room` and the clamps that bit. None if that was long ago."""
        iteration = self.picture.decision(self.now)
        return None if iteration is None else iteration.room(self.place)

    @property
    def decided_at(self) -> float | None:
        """When the last iteration was."""
        iteration = self.picture.iteration
        return None if iteration is None else iteration.at

    @property
    def room(self) -> int | None:
        """Pilots that may be sent now at most; -1 if nothing limits them, None if nobody knows."""
        if self.closings:
            return 0
        if self.gate is not None:
            return -1 if self.gate.room is None else self.gate.room
        return None if self.decided is None else int(self.decided["room"])

    @property
    def by_hand(self) -> bool:
        """Whether pilots there are started by somebody else."""
        return self.offer is not None and self.offer.backend == BY_HAND

    @property
    def reason(self) -> QueueReason:
        """The judgement."""
        decision = self.picture.decision(self.now)
        return judge_queue(
            QueueFacts(
                configured=self.configured,
                offer=self.offer,
                backend_missing=bool(self.gate and self.gate.candidate.no_backend) and not self.by_hand,
                by_hand=self.by_hand,
                fitting=len(self.survey.fitting) if self.survey else 0,
                demand=self.demand,
                room=self.room,
                sends=decision is None or decision.sends,
            )
        )


def find_offer(policy: Policy, place: QueueId, vo: str) -> QueueOffer | None:
    """What a pilot there would present; None if the VO may not use the queue or there is none such."""
    world = policy.world(vo)
    try:
        return world.by_ordinal.get(world.table.ordinal(place))
    except KeyError:
        return None


def look_at_queue(
    db: Reader, policy: Policy, place: QueueId, *, vo: str, picture: Picture, gate: Gate | None, now: float
) -> QueueCase:  # fmt: skip
    """Gather what there is to know. `gate` is None where nobody can look at it."""
    offer = find_offer(policy, place, vo)
    served = picture.served(place)
    survey = demand = None
    if offer is not None:
        survey = picture.survey(replace(offer.request, submit_pools=served), SENDABLE)
        iteration = picture.decision(now)
        demand = None if iteration is None else demands(iteration, survey.fitting)
    configured = policy.config.tree.has_queue(*place)
    params = (
        effective_params(policy.config.tree, NodePath(*place), vo=vo, types=policy.config.types)
        if configured
        else {}
    )
    return QueueCase(
        place=place,
        vo=vo,
        configured=configured,
        denied=access_refusal(params.get("vo"), vo),
        offer=offer,
        pools=len(served),
        survey=survey,
        demand=demand,
        gate=gate,
        own=dict(db.execute(OWN, place)),
        lately=tuple(_lately(db, place, now)),
        picture=picture,
        policy=policy,
        now=now,
        closings=picture.mask(db).of(place, now),
    )  # fmt: skip


def _lately(db: Reader, place: QueueId, now: float) -> Iterator[dict[str, Any]]:
    """The last pilots sent there, newest first, if they are among the last that were sent anywhere."""
    for row, _ in zip(db.execute(LAST, (LOOKED_AT, *place)), range(LATELY), strict=False):
        number, stamp, state, reason, drain, created, joined, ended, done = row
        yield {
            "id": number,
            "stamp": stamp,
            "state": state,
            "reason": reason or ("draining" if drain and ended is None else ""),
            "sent_seconds_ago": since(created, now),
            "joined": joined is not None,
            "ended_seconds_ago": since(ended, now),
            "jobs_done": done,
        }
