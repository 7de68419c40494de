"""A job on its way in: what is decided so far, and what the world is (DESIGN 1, step 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lodesman.jobs import JobSpec
from lodesman.matching import QueueOffer, TaskQueueKey
from lodesman.matching.tables import PlaceTable
from lodesman.resources import QueueTable, TypeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What optimizers may look at: one consistent picture of the configuration for one VO.

    `offers` are in the order of the ordinals of `table`.
    """

    vo: str
    offers: tuple[QueueOffer, ...]
    table: QueueTable
    types: TypeTable
    sites: frozenset[str]
    by_ordinal: Mapping[int, QueueOffer] = field(init=False, repr=False, compare=False)
    places: PlaceTable = field(init=False, repr=False, compare=False)
    """The offers as bits of their ordinals."""

    def __post_init__(self) -> None:
        members = {offer.ordinal: offer for offer in self.offers}
        object.__setattr__(self, "by_ordinal", members)
        places = PlaceTable((ordinal, offer.request) for ordinal, offer in members.items())
        object.__setattr__(self, "places", places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One cohort of a submission. `never` says why no configured queue could ever run it, '' otherwise.

    `requirements` is the text of the Requirements, names as written; `pool_mask` the queues that fulfil them (a bit per
    ordinal). Both are empty without Requirements.
    """

    spec: JobSpec
    owner: str
    group: str
    vo: str
    requirements: str = ""
    submit_pool: str = ""
    pool_mask: int = 0
    key: TaskQueueKey | None = None
    never: str = ""
    why: Mapping[str, Any] | None = None


Optimizer = Callable[[Draft, World], Draft]
