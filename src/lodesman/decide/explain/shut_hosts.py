"""Hosts that get no jobs, as explanations go by them: which queues have no other, and who opens them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from lodesman.base.errors import counted
from lodesman.decide.explain.pilot import opens_host, shut_text
from lodesman.decide.masks.bits import bits, mask_of
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import LOCAL
from lodesman.wire.hosts import HostName, HostRecord

_SHOWN: Final = 3


class ShutHosts(NamedTuple):
    """The hosts that get no jobs, with their records. `here`: the machine of this server, where its local pilots run."""

    records: Mapping[HostName, HostRecord] = MappingProxyType({})
    here: str = ""

    @property
    def sites(self) -> frozenset[str]:
        """Where local pilots get no jobs."""
        return frozenset(one.site for one in self.records if one.host == self.here)

    def queues(self, config: VOConfig) -> int:
        """The queues whose only host is one of these."""
        sites = self.sites
        if not sites:
            return 0
        return mask_of(
            bit for bit, one in config.by_bit.items() if one.backend == LOCAL and one.queue.site in sites
        )

    def text(self, config: VOConfig, queues: int, now: float) -> str:
        """Those where pilots of these queues may be, and why they get no jobs."""
        found = [f"{host}: {shut_text(record, now)}" for host, record in self._of(config, queues)]
        more = [f"and {counted(len(found) - _SHOWN, 'more host')}"] if len(found) > _SHOWN else []
        return "; ".join([*found[:_SHOWN], *more])

    def who(self, config: VOConfig, queues: int) -> str:
        """Who can open them."""
        names = [opens_host(host, record) for host, record in self._of(config, queues)[:_SHOWN]]
        return "; ".join(names) or "an administrator: lode host open"

    def _of(self, config: VOConfig, queues: int) -> list[tuple[HostName, HostRecord]]:
        """Those at the sites of these queues, the machine here first; it alone if all queues are local."""
        offers = [config.by_bit[bit] for bit in bits(queues) if bit in config.by_bit]
        sites = {one.queue.site for one in offers}
        found = [(host, record) for host, record in sorted(self.records.items()) if host.site in sites]
        mine = [one for one in found if one[0].host == self.here]
        if mine and all(one.backend == LOCAL for one in offers):
            return mine
        return [*mine, *(one for one in found if one not in mine)]


NONE_SHUT: Final = ShutHosts()
