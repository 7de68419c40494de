"""How many pilots several CE queues may still get together: a CE's tokens, and what a site's gate admits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from lodesman.decide.director.limits import Limit
from lodesman.decide.masks.bits import Mask, mask_of
from lodesman.decide.resources import NodePath, QueueId
from lodesman.wire.vocabulary import ClampName

UNBOUNDED: Final = 1 << 30


class SiteBudget(Protocol):
    """A site's gate as placement needs it (`broker.gate.SiteGate`)."""

    @property
    def shut(self) -> str:
        """Why it admits nothing now, '' if it may."""

    def room(self, most: int) -> int:
        """How many more pilots it admits now, up to `most`."""

    def admits(self) -> bool:
        """Whether it admits one more now."""

    def take(self) -> None:
        """Count a pilot that goes to the site."""


class Budget:
    """What the queues of `mask` may still get together."""

    __slots__ = ("_highest", "left", "mask")

    def __init__(self, mask: Mask, left: int, highest: int = UNBOUNDED) -> None:
        self.mask = mask
        self.left = left
        self._highest = highest  # the most that one of the queues would take alone

    @property
    def binds(self) -> bool:
        """Whether it bounds any queue: rooms only shrink."""
        return self.left < self._highest

    def take(self) -> None:
        """Count a pilot."""
        self.left -= 1


class GateBudget(Budget):
    """Only the gate says whether anything is left; its number is a weight for the draw."""

    __slots__ = ("_gate",)

    def __init__(self, mask: Mask, gate: SiteBudget, left: int, highest: int) -> None:
        super().__init__(mask, left, highest)
        self._gate = gate

    def take(self) -> None:
        """Count a pilot."""
        self._gate.take()
        self.left = max(1, self.left - 1) if self._gate.admits() else 0


def gate_limit(gate: SiteBudget, wanted: int) -> Limit | None:
    """What a gate admits of the pilots wanted; None if all."""
    room = gate.room(wanted)
    if room >= wanted:
        return None
    detail = f"the gate of the site admits {room} more" if room else f"the gate of the site: {gate.shut}"
    return Limit(name=ClampName.SITE_GATE, limit=room, detail=detail)


def shared_budgets(
    rooms: Mapping[int, int],
    queues: Mapping[int, QueueId],
    *,
    tokens: Mapping[NodePath, int],
    sites: Mapping[str, SiteBudget],
    limits: Mapping[str, Limit],
) -> dict[int, list[Budget]]:
    """By bit of a queue. `rooms`: what each takes at most; `limits`: of gates that cut some."""
    by_ce: defaultdict[NodePath, list[int]] = defaultdict(list)
    by_site: defaultdict[str, list[int]] = defaultdict(list)
    for bit, queue_id in queues.items():
        if queue_id.ce_path in tokens:
            by_ce[queue_id.ce_path].append(bit)
        if queue_id.site in sites:
            by_site[queue_id.site].append(bit)
    budgets: dict[int, list[Budget]] = {bit: [] for bit in queues}
    for ce_path, members in by_ce.items():
        tokens_left = Budget(mask_of(members), tokens[ce_path], _highest(rooms, members))
        for bit in members:
            budgets[bit].append(tokens_left)
    for site, members in by_site.items():
        left = limits[site].limit if site in limits else UNBOUNDED
        gate = GateBudget(mask_of(members), sites[site], left, _highest(rooms, members))
        for bit in members:
            budgets[bit].append(gate)
    return budgets


def _highest(rooms: Mapping[int, int], members: Iterable[int]) -> int:
    return max(rooms[bit] for bit in members)
