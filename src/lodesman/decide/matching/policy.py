"""The configuration as decisions see it: a snapshot, swapped as a whole when files change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import inf
from operator import or_
from typing import Any, NamedTuple

from lodesman.decide.masks.bits import Plane, bits, mask_of, numbered
from lodesman.decide.matching.criteria import CRITERIA
from lodesman.decide.matching.offers import (
    BACKENDS,
    PRIVATE_ONLY,
    Pools,
    QueueOffer,
    gets_private,
    never_sent,
    offers_of,
)
from lodesman.decide.matching.request import ANY, ResourceRequest
from lodesman.decide.matching.shares import DEFAULT_GROUP, DEFAULT_SHARE, GroupShare, corrected_shares
from lodesman.decide.matching.submit_pool import Requirements
from lodesman.decide.matching.tables import PLACE, RequestTable
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import MANUAL, QueueId, QueueTable, ResourceConfig
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, Complexes
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.wire.groups import KnownUsage


class Residents:
    """Live pilots that take jobs now or later, by what they present when idle."""

    def __init__(self, requests: frozenset[ResourceRequest]) -> None:
        self.requests = requests
        self._places = [QueueId(request.site, request.ce, request.queue) for request in requests]
        self._table = RequestTable(CRITERIA, enumerate(requests)).settled()

    def serving(self, key: TaskQueueKey) -> set[QueueId]:
        """Queues whose residents could take jobs of the key, but for SubmitPools."""
        place, everyone = replace(key, submit_pool=""), mask_of(range(len(self._places)))
        return {self._places[bit] for bit in bits(self._table.narrow(everyone, place))}


@dataclass(frozen=True, kw_only=True)
class VOConfig:
    """The configuration for one VO. Any thread may ask it."""

    vo: str
    offers: tuple[QueueOffer, ...]  # the queues that it may use, in the order of `table`
    table: QueueTable
    backends: Collection[str] = BACKENDS
    # the pilots in queues to which none, or no generic one, is ever sent
    residents: Residents = field(default_factory=lambda: Residents(frozenset()))
    pools: Pools | None = None  # the submission pools; None: unknown
    private_pools: frozenset[str] = frozenset()  # see `gets_private`
    version: str = ""  # equal for equal configurations
    complexes: Complexes = STOCK_COMPLEXES

    @cached_property
    def by_bit(self) -> Mapping[int, QueueOffer]:
        """The offers by their bits."""
        return {offer.bit: offer for offer in self.offers}

    @cached_property
    def lives(self) -> Mapping[int, int]:
        """The longest life of pilots, in seconds, by bit; 0: unknown."""
        return {offer.bit: offer.life_seconds for offer in self.offers}

    @cached_property
    def sites(self) -> frozenset[str]:
        """Sites with an offer."""
        return frozenset(offer.queue.site for offer in self.offers)

    @cached_property
    def ces(self) -> frozenset[str]:
        """CEs with an offer."""
        return frozenset(offer.queue.ce for offer in self.offers)

    @cached_property
    def places(self) -> RequestTable:
        """The offers by bits, to be asked by keys."""
        return RequestTable(PLACE, ((offer.bit, offer.request) for offer in self.offers)).settled()

    @cached_property
    def never_sent(self) -> tuple[Plane, ...]:
        """By parameter, the queues to which it never lets a pilot be sent."""
        closed: dict[str, int] = {}
        for offer in self.offers:
            reason = never_sent(offer, self.backends, self.pools)
            if reason is not None:
                closed[reason.parameter] = closed.get(reason.parameter, 0) | 1 << offer.bit
        return tuple(closed.items())

    @cached_property
    def private_only(self) -> int:
        """Queues that take no generic pilots."""
        return mask_of(offer.bit for offer in self.offers if not offer.settings.generic_pilots)

    @cached_property
    def hopeless(self) -> int:
        """Queues that let no class in, or require a tag that they do not offer."""
        return mask_of(
            offer.bit
            for offer in self.offers
            if offer.request.job_classes == ()
            or (
                ANY not in offer.request.tags
                and not set(offer.request.required_tags) <= set(offer.request.tags)
            )
        )

    @cached_property
    def has_jc_lists(self) -> bool:
        """Whether queues limit job classes."""
        return any(offer.request.job_classes is not None for offer in self.offers)

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return {}

    def offer(self, queue: QueueId) -> QueueOffer | None:
        """None if the VO has no such queue."""
        bit = self.table.bit(queue)
        return None if bit is None else self.by_bit.get(bit)

    def column(self, name: str) -> list[Any]:
        """A field of the queues' offers, by bit; None where the VO may not use the queue."""
        column = self._columns.get(name)
        if column is None:
            column = [None] * self.table.full.bit_length()
            for offer in self.offers:
                column[offer.bit] = getattr(offer.request, name)
            self._columns[name] = column  # whole, since other threads may ask
        return column

    def carried(self, submission_pools: Collection[str]) -> int:
        """Queues to which one of these pools carries pilots, or none need to be carried."""
        if not submission_pools or self.pools is None:
            return self.table.open_to_vo
        return reduce(or_, (self._carried.get(name, 0) for name in submission_pools), 0)

    @cached_property
    def _carried(self) -> Mapping[str, int]:
        return {
            name: mask_of(
                offer.bit
                for offer in self.offers
                if offer.backend == MANUAL or scope.serves(offer.queue, offer.backend)
            )
            for name, scope in (self.pools or {}).items()
        }

    @cached_property
    def uninhabitable(self) -> frozenset[QueueId]:
        """Queues to which no pilot, or no generic one, is ever sent."""
        masks = (self.private_only, *(mask for _, mask in self.never_sent))
        return frozenset(self.by_bit[bit].queue for mask in masks for bit in bits(mask))

    def without_pilots(self, key: TaskQueueKey) -> Iterator[Plane]:
        """By parameter, queues without residents for the key to which none is ever sent for it."""
        served, closed = self.served_by_residents(key), list(self.never_sent)
        if self.private_only and not gets_private(key, self.private_pools):
            closed.append((PRIVATE_ONLY.parameter, self.private_only))
        for name, mask in closed:
            if mask & ~served:
                yield name, mask & ~served

    def served_by_residents(self, key: TaskQueueKey) -> int:
        """Queues whose residents could take jobs of the key, but for SubmitPools."""
        if not self.residents.requests:
            return 0
        bits_served = map(self.table.bit, self.residents.serving(key))
        return mask_of(bit for bit in bits_served if bit is not None)

    def possible_queues(self, key: TaskQueueKey, pool_mask: int) -> int:
        """Queues whose pilots, made for this key, could take its jobs. `pool_mask`: those that fulfil its
        Requirements, if any.
        """
        mask = self.table.open_to_vo
        if key.submit_pool:
            mask, key = pool_mask, replace(key, submit_pool="")
        mask &= self.carried(key.submission_pools)
        for _, closed in self.without_pilots(key):
            mask &= ~closed
        return self.places.narrow(mask, key)


class JudgedJob(NamedTuple):
    """What was found about jobs that can be matched alike."""

    key: TaskQueueKey
    requirements: Requirements
    pool_mask: int  # the queues that fulfil their Requirements
    never: str  # why no configured queue could run them; '' if one could


@dataclass
class Policy:
    """Resources, groups and shares."""

    config: ResourceConfig
    add_eligible_sites: bool = False  # descriptions of jobs with Requirements name the sites that fulfil them
    submission_pools: Pools | None = None  # the director's; None: unknown
    private_pools: frozenset[str] = frozenset()  # see `gets_private`
    backends: Collection[str] = BACKENDS  # the names of the batch systems
    life_seconds: int = 0  # how long pilots live at most; 0: any time
    loaded_at: float | None = None  # UNIX seconds
    # of CE queues as stored (ADR 0028); queues without one are numbered behind them
    bits: Mapping[QueueId, int] = field(default_factory=dict)
    # what live pilots in these queues, to which none is ever sent, present
    inhabited: Callable[[frozenset[QueueId]], frozenset[ResourceRequest]] = lambda _: frozenset()
    verdicts: dict[tuple[Any, ...], JudgedJob] = field(default_factory=dict)  # by all that decides them
    usage: KnownUsage | None = None  # corrects the shares; None: they are as configured
    # shares that hold instead of those of the files
    set_by_command: Mapping[str, float] = field(default_factory=dict)
    shares_version: int = -1  # of `set_by_command`
    shares_until: float = inf  # when the first share set by command ends
    vocabulary: Vocabulary = field(default_factory=Vocabulary)  # of Grid Engine
    _shares: Mapping[str, GroupShare] = field(init=False, default_factory=dict)
    _of_vo: dict[str, VOConfig] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.bits = numbered(self.config.tree.queue_ids(), self.bits)
        self.set_usage(self.usage)

    @cached_property
    def digest(self) -> str:
        """Equal for equal resources and pools, in every process."""
        pools = None if self.submission_pools is None else sorted(self.submission_pools.items())
        names = pools, sorted(self.backends), sorted(self.private_pools)
        resources = repr((self.config.types.all(), self.config.tree, *names))
        return hashlib.sha256(resources.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def version(self) -> tuple[str, float | None]:
        """Changes whenever the files are read."""
        return self.digest, self.loaded_at

    def vo_config(self, vo: str) -> VOConfig:
        """Made at its first use; anew when pilots came or went where none is ever sent."""
        config = self._of_vo.get(vo)
        if config is None:
            table = QueueTable(self.config, vo, self.bits)
            offers = offers_of(table, vo, life_seconds=self.life_seconds)
            config = self._of_vo[vo] = VOConfig(
                vo=vo, offers=offers, table=table, pools=self.submission_pools, version=self.digest,
                backends=self.backends, private_pools=self.private_pools, complexes=self.vocabulary.complexes,
            )  # fmt: skip
        if not config.uninhabitable:
            return config
        residents, before = self.inhabited(config.uninhabitable), config.residents.requests
        if residents is not before and residents != before:
            config = self._of_vo[vo] = copy(config)  # with its tables, which say nothing of pilots
            vars(config)["residents"] = Residents(residents)
            self.verdicts = {}
        return config

    def set_usage(self, usage: KnownUsage | None) -> None:
        """Usage that corrects shares; None: none."""
        self.usage = usage
        self._shares = self.corrected(self.configured_shares())

    def set_shares(self, version: int, shares: Mapping[str, float], until: float = inf) -> None:
        """Let these groups have these shares, whatever the files say."""
        self.set_by_command, self.shares_version, self.shares_until = shares, version, until
        self.set_usage(self.usage)

    def corrected(self, shares: Mapping[str, GroupShare]) -> Mapping[str, GroupShare]:
        """What draws would use if these shares were configured."""
        return shares if self.usage is None else corrected_shares(shares, self.usage)

    def shares(self) -> Mapping[str, GroupShare]:
        """Shares and settings for draws."""
        return self._shares

    def configured_shares(self) -> Mapping[str, GroupShare]:
        """As configured or by command."""
        shares = {
            name: GroupShare(share=group.share, job_sharing=group.job_sharing, background=group.background)
            for name, group in self.config.groups.items()
        }
        for name, share in self.set_by_command.items():
            shares[name] = replace(shares.get(name, DEFAULT_GROUP), share=share)
        return shares

    def share_of(self, group: str) -> float:
        """By command, as configured, or the default."""
        if group in self.set_by_command:
            return self.set_by_command[group]
        group_config = self.config.groups.get(group)
        return DEFAULT_SHARE if group_config is None else group_config.share

    def drawn_share(self, group: str) -> float:
        """A group's share in draws."""
        return self._shares.get(group, DEFAULT_GROUP).share

    def sharing_groups(self) -> frozenset[str]:
        """Groups whose members share jobs."""
        return frozenset(name for name, group in self.config.groups.items() if group.job_sharing)
