"""The configuration as the hot process uses it: one immutable picture, swapped as a whole on reload."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from lodesman.commands.accounts import Principal
from lodesman.errors import Forbidden, InvalidJob
from lodesman.matching import GroupShare, TaskQueueKey, offers_of
from lodesman.matching.shares import DEFAULT_SHARE
from lodesman.resources import GroupConfig, QueueId, QueueTable, ResourceConfig
from lodesman.submission import World

VERDICTS_KEPT = 100_000


@dataclass(slots=True)
class Policy:
    """Resources, groups and shares. `verdicts` remembers per key whether it is possible ('' = yes).

    `add_eligible_sites`: descriptions of jobs with Requirements name the sites that fulfil them. `loaded_at`: when the
    configuration was taken in, UNIX seconds. `inhabited` tells where live pilots are that take jobs: it is asked about
    queues to which none is ever sent. `submission_pools`: the names of the director's pools, None if nobody told.
    `life_seconds`: how long pilots live at most, 0 for no such limit.
    `digest`: equal for equal resources and pools, in every process.
    """

    config: ResourceConfig
    add_eligible_sites: bool = False
    submission_pools: frozenset[str] | None = None
    life_seconds: int = 0
    loaded_at: float | None = None
    inhabited: Callable[[], Container[QueueId]] = frozenset
    worlds: dict[str, World] = field(default_factory=dict)
    verdicts: dict[TaskQueueKey, str] = field(default_factory=dict)
    digest: str = field(init=False)
    _seen: dict[str, Container[QueueId]] = field(init=False, default_factory=dict)
    _shares: Mapping[str, GroupShare] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        pools = None if self.submission_pools is None else sorted(self.submission_pools)
        resources = repr((self.config.types.all(), self.config.tree, pools))
        self.digest = hashlib.sha256(resources.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def world(self, vo: str) -> World:
        """The world of one VO, made at its first use; anew when pilots came or went where none is ever sent."""
        known = self.worlds.get(vo)
        if known is None:
            table = QueueTable(self.config, vo)
            offers = offers_of(table, vo, life_seconds=self.life_seconds)
            sites = frozenset(offer.queue.site for offer in offers)
            found = World(
                vo=vo, offers=offers, table=table, types=self.config.types, sites=sites,
                pools=self.submission_pools, version=self.digest,
            )  # fmt: skip
            known = self.worlds[vo] = found
        return self._seeing(known) if known.never_sent else known

    def _seeing(self, world: World) -> World:
        """The world as it is with the pilots that live now."""
        places = self.inhabited()
        if self._seen.get(world.vo) is places:
            return world
        now = world.seeing(places)
        if now is not world:
            self.worlds[world.vo], self.verdicts = now, {}
        self._seen[world.vo] = places
        return now

    def shares(self) -> Mapping[str, GroupShare]:
        """Shares and habits of all configured groups. The same object each time."""
        if self._shares is None:
            self._shares = {
                name: GroupShare(
                    share=group.share, job_sharing=group.job_sharing, background=group.background
                )
                for name, group in self.config.groups.items()
            }
        return self._shares

    def share_of(self, group: str) -> float:
        """The share of a group, the default one if it is not configured."""
        found = self.config.groups.get(group)
        return DEFAULT_SHARE if found is None else found.share

    def sharing_groups(self) -> frozenset[str]:
        """The groups whose members share their jobs."""
        return frozenset(name for name, group in self.config.groups.items() if group.job_sharing)

    def group_of(self, principal: Principal, wanted: str) -> GroupConfig:
        """The group that a submission counts for. Raises Forbidden, InvalidJob."""
        if not principal.groups:
            raise Forbidden(f"User {principal.name} is in no group.")
        name = wanted or principal.groups[0]
        if name not in principal.groups:
            raise Forbidden(
                f"You are not in group {name}.", hint=f"Your groups: {', '.join(principal.groups)}."
            )
        group = self.config.groups.get(name)
        if group is None:
            group = GroupConfig(name=name, vo=principal.vo)
        if group.vo and group.vo != principal.vo:
            raise InvalidJob(
                f"Group {name} belongs to VO {group.vo}, you to {principal.vo}.", attribute="OwnerGroup"
            )
        return group

    def queues_of_mask(self, vo: str, mask: int) -> tuple[QueueId, ...]:
        """The queues whose bits are set."""
        return tuple(offer.queue for offer in self.world(vo).offers if mask >> offer.ordinal & 1)
