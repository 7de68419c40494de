"""A job on its way in: what is decided so far, and what the world is (DESIGN 1, step 5)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lodesman.jobs import JobSpec
from lodesman.matching import ANY, QueueOffer, ResourceRequest, TaskQueueKey
from lodesman.matching.tables import PlaceTable
from lodesman.resources import Plane, QueueTable, TypeTable, bits
from lodesman.submission.sending import BACKENDS, never_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What optimizers may look at: one consistent picture of the configuration for one VO.

    `offers` are in the order of the ordinals of `table`. `backends` are the batch systems that there are; `inhabited`
    are those of the queues to which no pilot is ever sent where pilots live all the same (a bit per ordinal). `pools`:
    the names of the submission pools, None if nobody told. `version`: equal for worlds of equal configurations.
    """

    vo: str
    offers: tuple[QueueOffer, ...]
    table: QueueTable
    types: TypeTable
    sites: frozenset[str]
    backends: frozenset[str] = BACKENDS
    inhabited: int = 0
    pools: frozenset[str] | None = None
    version: str = ""
    by_ordinal: Mapping[int, QueueOffer] = field(init=False, repr=False, compare=False)
    places: PlaceTable = field(init=False, repr=False, compare=False)
    """The offers as bits of their ordinals."""
    never_sent: tuple[Plane, ...] = field(init=False, repr=False, compare=False)
    """By parameter, the queues to which it never lets a pilot be sent."""
    hopeless: int = field(init=False, repr=False, compare=False)
    """The queues that require a tag which they do not offer: no job can run there, however it is changed."""
    _columns: dict[str, list[Any]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        members = {offer.ordinal: offer for offer in self.offers}
        object.__setattr__(self, "by_ordinal", members)
        places = PlaceTable((ordinal, offer.request) for ordinal, offer in members.items())
        object.__setattr__(self, "places", places)
        closed: dict[str, int] = {}
        for offer in self.offers:
            found = never_sent(offer, self.backends)
            if found is not None:
                closed[found.parameter] = closed.get(found.parameter, 0) | 1 << offer.ordinal
        object.__setattr__(self, "never_sent", tuple(closed.items()))
        hopeless = (1 << offer.ordinal for offer in self.offers if _requires_more(offer.request))
        object.__setattr__(self, "hopeless", sum(hopeless))

    def column(self, name: str) -> list[Any]:
        """What the queues offer of one field of a request, by ordinal; None where the VO may not use the queue."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = [None] * len(self.table.queues)
            for offer in self.offers:
                column[offer.ordinal] = getattr(offer.request, name)
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

    def seeing(self, places: Container[tuple[str, str, str]]) -> World:
        """The same world where pilots live in these places."""
        mask = 0
        for _, closed in self.never_sent:
            for ordinal in bits(closed):
                mask |= (tuple(self.by_ordinal[ordinal].queue) in places) << ordinal
        return self if mask == self.inhabited else replace(self, inhabited=mask)


def _requires_more(offered: ResourceRequest) -> bool:
    tags = offered.tags
    return ANY not in tags and any(tag not in tags for tag in offered.required_tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One cohort of a submission. `never` says why no configured queue could ever run it, '' otherwise.

    `hold`: the user would rather have it Held than refused, even if it names what is not there (yet).
    `requirements` is the text of the Requirements, names as written; `pool_mask` the queues that fulfil them (a bit per
    ordinal). Both are empty without Requirements.
    """

    spec: JobSpec
    owner: str
    group: str
    vo: str
    hold: bool = False
    requirements: str = ""
    submit_pool: str = ""
    pool_mask: int = 0
    key: TaskQueueKey | None = None
    never: str = ""
    why: Mapping[str, Any] | None = None


Optimizer = Callable[[Draft, World], Draft]
