"""The configuration as decisions see it: one immutable snapshot, swapped as a whole when the files change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from lodesman.masks.bits import Plane, bits, mask_of, numbered
from lodesman.matching.offers import BACKENDS, QueueOffer, never_sent, offers_of
from lodesman.matching.request import ANY
from lodesman.matching.shares import DEFAULT_SHARE, GroupShare
from lodesman.matching.tables import PLACE, RequestTable
from lodesman.matching.task_queue import TaskQueueKey
from lodesman.resources import QueueId, QueueTable, ResourceConfig


@dataclass(frozen=True, kw_only=True)
class VOConfig:
    """The configuration for one VO.

    `offers`: the queues that it may use, in the order of `table`. `backends`: the batch systems of this server.
    `inhabited`: of the queues to which no pilot is ever sent, those where pilots live (a mask). `pools`: the names of
    the submission pools, None if they are unknown. `version`: equal for equal configurations.
    """

    vo: str
    offers: tuple[QueueOffer, ...]
    table: QueueTable
    backends: Collection[str] = BACKENDS
    inhabited: int = 0
    pools: frozenset[str] | None = None
    version: str = ""

    @cached_property
    def by_bit(self) -> Mapping[int, QueueOffer]:
        """The offers by their bits."""
        return {offer.bit: offer for offer in self.offers}

    @cached_property
    def sites(self) -> frozenset[str]:
        """The sites that have an offer."""
        return frozenset(offer.queue.site for offer in self.offers)

    @cached_property
    def ces(self) -> frozenset[str]:
        """The CEs that have an offer."""
        return frozenset(offer.queue.ce for offer in self.offers)

    @cached_property
    def places(self) -> RequestTable:
        """The offers by their bits, to be asked by keys."""
        return RequestTable(PLACE, ((offer.bit, offer.request) for offer in self.offers))

    @cached_property
    def never_sent(self) -> tuple[Plane, ...]:
        """By parameter, the queues to which it never lets a pilot be sent."""
        closed: dict[str, int] = {}
        for offer in self.offers:
            found = never_sent(offer, self.backends)
            if found is not None:
                closed[found.parameter] = closed.get(found.parameter, 0) | 1 << offer.bit
        return tuple(closed.items())

    @cached_property
    def hopeless(self) -> int:
        """The queues that require a tag which they do not offer: no job can run there, however it is changed."""
        return mask_of(
            one.bit
            for one in self.offers
            if ANY not in one.request.tags and not set(one.request.required_tags) <= set(one.request.tags)
        )

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return {}

    def offer(self, queue: QueueId) -> QueueOffer | None:
        """The offer of a queue; None if the VO may not use it, or it is not configured."""
        bit = self.table.bit(queue)
        return None if bit is None else self.by_bit.get(bit)

    def column(self, name: str) -> list[Any]:
        """What the queues offer of one field of a request, by bit; None where the VO may not use the queue."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = [None] * self.table.full.bit_length()
            for offer in self.offers:
                column[offer.bit] = getattr(offer.request, name)
        return column

    def has_pool_for(self, key: TaskQueueKey) -> bool:
        """Whether there is a submission pool that may carry pilots for the key."""
        return (
            not key.submission_pools or self.pools is None or not self.pools.isdisjoint(key.submission_pools)
        )

    def without_pilots(self) -> Iterator[Plane]:
        """By parameter, the queues where no pilot is and none will ever be sent."""
        for name, mask in self.never_sent:
            if mask & ~self.inhabited:
                yield name, mask & ~self.inhabited

    def possible_queues(self, key: TaskQueueKey, pool_mask: int) -> int:
        """The queues whose pilots, made for this key, could ever take its jobs: the predicate of submission and passes.

        `pool_mask`: the queues that fulfil its Requirements; it does not count without Requirements.
        """
        mask = self.table.open_to_vo
        if key.submit_pool:
            mask, key = pool_mask, replace(key, submit_pool="")
        if not self.has_pool_for(key):
            return 0
        for _, closed in self.without_pilots():
            mask &= ~closed
        return self.places.narrow(mask, key)


@dataclass
class Policy:
    """Resources, groups and shares. `verdicts`: by key, why it is impossible ('': it is possible).

    `add_eligible_sites`: descriptions of jobs with Requirements name the sites that fulfil them. `loaded_at`: when the
    configuration was taken in, UNIX seconds. `bits`: of CE queues, as they are stored (ADR 0028); queues without one are
    numbered behind them. `inhabited`: where live pilots are that take jobs; it is asked about queues
    to which none is ever sent. `submission_pools`: the names of the director's pools, None if they are unknown.
    `life_seconds`: how long pilots live at most, 0 for no such limit.
    """

    config: ResourceConfig
    add_eligible_sites: bool = False
    submission_pools: frozenset[str] | None = None
    life_seconds: int = 0
    loaded_at: float | None = None
    bits: Mapping[QueueId, int] = field(default_factory=dict)
    inhabited: Callable[[], Container[QueueId]] = frozenset
    verdicts: dict[TaskQueueKey, str] = field(default_factory=dict)
    _of_vo: dict[str, VOConfig] = field(init=False, default_factory=dict)
    _seen: dict[str, Container[QueueId]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = numbered(self.config.tree.queue_ids(), self.bits)

    @cached_property
    def digest(self) -> str:
        """Equal for equal resources and pools, in every process."""
        pools = None if self.submission_pools is None else sorted(self.submission_pools)
        resources = repr((self.config.types.all(), self.config.tree, pools))
        return hashlib.sha256(resources.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, float | None]:
        """Another one whenever the files are read again, be they equal or not."""
        return self.digest, self.loaded_at

    def vo_config(self, vo: str) -> VOConfig:
        """The configuration of one VO, made at its first use; anew when pilots came or went where none is ever sent."""
        known = self._of_vo.get(vo)
        if known is None:
            table = QueueTable(self.config, vo, self.bits)
            offers = offers_of(table, vo, life_seconds=self.life_seconds)
            known = self._of_vo[vo] = VOConfig(
                vo=vo, offers=offers, table=table, pools=self.submission_pools, version=self.digest
            )
        if not known.never_sent:
            return known
        queues = self.inhabited()
        # By value; items of lists are compared fast if they are the same object.
        if [self._seen.get(vo)] != [queues]:
            self._seen[vo] = queues
            inhabited = 0
            for _, closed in known.never_sent:
                inhabited |= mask_of(bit for bit in bits(closed) if known.by_bit[bit].queue in queues)
            if inhabited != known.inhabited:
                known = self._of_vo[vo] = replace(known, inhabited=inhabited)
                self.verdicts = {}
        return known

    def shares(self) -> Mapping[str, GroupShare]:
        """Shares and settings of all configured groups."""
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
