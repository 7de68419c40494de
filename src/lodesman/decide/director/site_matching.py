"""What the broker says of sites, as the placement of pilots needs it (`broker.site_choice`)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final, Protocol

from lodesman.decide.director.budgets import SiteBudget
from lodesman.decide.director.orders import PilotOrder
from lodesman.decide.masks.bits import Mask


class OrderAtSites(Protocol):
    """An order before the sites that advertise themselves; CE queues are bits."""

    @property
    def refusing(self) -> Mask:
        """The queues of sites that do not match it until they advertise anew."""

    def admits(self, site: str, bit: int) -> bool:
        """Whether one of its pilots may go to a queue of a site now."""

    def best(self, free: Mask) -> Mask:
        """The queues whose sites have the greatest Rank."""

    def drawn(self, best: Mask, rng: Random) -> Mask:
        """The queues of one drawn site, if its jobs choose among sites; else all."""

    def refusal(self, site: str, bit: int) -> str:
        """Why none may go to a queue of a site now, '' if one may."""


class SiteMatching(Protocol):
    """The sites of one iteration."""

    @property
    def gates(self) -> Mapping[str, SiteBudget]:
        """The gates of sites that advertise themselves."""

    def request(self, order: PilotOrder) -> OrderAtSites | None:
        """An order before them; None: they make no difference but by their gates."""

    def wished(self, pool: str) -> Mask:
        """The queues where the ads of sites decide about the jobs of a SubmitPool."""


class _NoSites:
    """No site advertises itself."""

    gates: Final[Mapping[str, SiteBudget]] = {}

    def request(self, order: PilotOrder) -> None:
        """There is nothing to ask."""

    def wished(self, _pool: str) -> Mask:
        return 0


NO_SITES: Final = _NoSites()
