"""The configuration as the hot process uses it: one immutable picture, swapped as a whole on reload."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from lodesman.errors import Forbidden, InvalidJob
from lodesman.matching import GroupShare, TaskQueueKey, offers_of
from lodesman.matching.shares import DEFAULT_SHARE
from lodesman.resources import GroupConfig, QueueId, QueueTable, ResourceConfig
from lodesman.services.accounts import Principal
from lodesman.submission import World

VERDICTS_KEPT = 100_000


@dataclass(slots=True)
class Policy:
    """Resources, groups and shares. `verdicts` remembers per key whether it is possible ('' = yes).

    `add_eligible_sites`: descriptions of jobs with Requirements name the sites that fulfil them. `digest`: equal
    for equal resources, in every process.
    """

    config: ResourceConfig
    add_eligible_sites: bool = False
    worlds: dict[str, World] = field(default_factory=dict)
    verdicts: dict[TaskQueueKey, str] = field(default_factory=dict)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        resources = repr((self.config.types.all(), self.config.tree))
        self.digest = hashlib.sha256(resources.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def world(self, vo: str) -> World:
        """The world of one VO, made at its first use."""
        known = self.worlds.get(vo)
        if known is None:
            table = QueueTable(self.config, vo)
            offers = offers_of(table, vo)
            sites = frozenset(offer.queue.site for offer in offers)
            known = self.worlds[vo] = World(
                vo=vo, offers=offers, table=table, types=self.config.types, sites=sites
            )
        return known

    def shares(self) -> dict[str, GroupShare]:
        """Shares and habits of all configured groups."""
        return {
            name: GroupShare(share=group.share, job_sharing=group.job_sharing, background=group.background)
            for name, group in self.config.groups.items()
        }

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
