"""What placement needs to know of sites (`broker.site_choice`)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, Protocol

from lodesman.decide.director.budgets import SiteBudget
from lodesman.decide.director.orders import PilotOrder
from lodesman.decide.masks.bits import Mask


class OrderAtSites(Protocol):
    """An order at sites that advertise; CE queues are bits."""

    @property
    def refusing(self) -> Mask:
        """The queues of sites that do not match until they advertise anew."""

    def admits(self, site: str, bit: int) -> bool:
        """Whether a pilot may go there now."""

    def best(self, free: Mask) -> Mask:
        """The queues whose sites have the greatest Rank."""

    def drawn(self, best: Mask, rng: Random) -> Mask:
        """The queues of a drawn site, if its jobs choose among sites; else all."""

    def refusal(self, site: str, bit: int) -> str:
        """Why no pilot may go there now, '' if one may."""


class SiteMatching(Protocol):
    """The sites of one iteration."""

    @property
    def gates(self) -> Mapping[str, SiteBudget]:
        """The gates of sites that advertise themselves."""

    def request(self, order: PilotOrder) -> OrderAtSites | None:
        """None: sites make no difference but by their gates."""

    def wished(self, pool: str) -> Mask:
        """The queues where sites' ads decide about a SubmitPool's jobs."""


class _NoSites:
    gates: Final[Mapping[str, SiteBudget]] = {}

    def request(self, order: PilotOrder) -> None:
        """There is nothing to ask."""

    def wished(self, _pool: str) -> Mask:
        return 0


NO_SITES: Final = _NoSites()
