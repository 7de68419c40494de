"""The free capacity that an iteration of the director left the CE queues, and what left them none. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.decide.explain.actors import NOT_CONSIDERED
from lodesman.decide.matching import QueueOffer
from lodesman.decide.matching.offers import SUBMISSION_POOLS, not_sent
from lodesman.decide.matching.policy import VOConfig
from lodesman.wire.nodes import Closing
from lodesman.wire.vocabulary import ClampName

_GATES: Final = {
    "Backend": ClampName.NO_BACKEND.value,
    SUBMISSION_POOLS: ClampName.NO_POOL.value,
    "MaxTotalJobs": ClampName.MAX_TOTAL.value,
    "MaxWaitingJobs": ClampName.MAX_WAITING.value,
    "Slots": ClampName.MAX_TOTAL.value,
}
"""What can keep all pilots away (`submission.CAUSES`) -> the clamp by which the director knows it."""


class Gate(NamedTuple):
    """What leaves CE queues no free capacity: one word, and the reason in words."""

    name: str
    text: str


FILLED: Final = Gate("filled", "the pilots that the director has just sent there fill it")
REOPENED: Final = Gate(NOT_CONSIDERED, "the director has not considered it since it was opened")


class Capacity(Struct, frozen=True, kw_only=True):
    """The free capacity that an iteration left the CE queues of a VO, as masks: a job's queues are counted at once."""

    open: int
    by_pilots: Mapping[int, int]
    """Pilots that may be sent -> the queues with that much free capacity."""
    closed: Mapping[Gate, int]
    """The queues that each gate leaves none."""
    loads: Sequence[tuple[float, str, int]] = ()
    """When a load was observed and by which source, with its queues; oldest first. Unknown loads are left out."""
    gated: int = 0
    """The queues that the gates of their sites shut."""
    unsent: int = 0
    """The queues where no pilots are ever sent, such as those where they are started by hand."""

    def pilots(self, queues: int) -> int:
        """The pilots that may be sent to these queues."""
        return sum(pilots * (found & queues).bit_count() for pilots, found in self.by_pilots.items())

    def oldest_load(self, queues: int) -> tuple[float, str] | None:
        """When the oldest load of these queues was observed, and by which source; None if none is known."""
        return next(((at, source) for at, source, found in self.loads if found & queues), None)

    def gates(
        self, eligible: int, closings: Iterable[tuple[Closing, int]], now: float
    ) -> list[tuple[Gate, int]]:
        """What leaves these queues no free capacity, most queues first: `closings` of now, else what the iteration found."""
        gates, left = Counter[Gate](), eligible
        for closing, mask in closings:
            gates[Gate(ClampName.CLOSED.value, closing.text_at(now))] |= mask & left
            left &= ~mask
        for gate, mask in self.closed.items():
            gates[REOPENED if gate.name == ClampName.CLOSED else gate] |= mask & left
        return sorted([one for one in gates.items() if one[1]], key=lambda one: -one[1].bit_count())


def not_sent_gate(config: VOConfig, offer: QueueOffer) -> Gate | None:
    """The gate if no pilot of this VO is sent to a queue, whatever capacity the director has there for others."""
    closed = not_sent(offer, config.backends, config.pools)
    return None if closed is None else Gate(_GATES[closed.parameter], closed.text)
