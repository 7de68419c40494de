"""An iteration's CE queues as bits: which may serve a task queue, and why others do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from lodesman.decide.director.orders import PilotOrder, presented
from lodesman.decide.director.queues import CandidateQueue
from lodesman.decide.masks.bits import MaskMatrix, mask_of
from lodesman.decide.matching.criteria import Reason, explain
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.tables import PLACE, KeyTable, RequestTable, serves
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources import QueueId


class PoolServing(Protocol):
    """The SubmitPools of the service."""

    def mask(self, pool: str, /) -> int | None:
        """The queues that serve a pool; None if it is unknown."""

    def bit(self, queue: QueueId, /) -> int | None:
        """None if the queue serves no pool."""


class ServedTaskQueues:
    """Task queues by the queues that may serve them by SubmitPools."""

    __slots__ = ("_any", "_known", "_rows", "_serving")

    def __init__(self, table: KeyTable, serving: PoolServing) -> None:
        self._serving = serving
        self._rows = MaskMatrix(
            [serving.mask(table.pools.get(bit, "")) or 0 for bit in range(table.full.bit_length())]
        )
        # Those that ask for no pool.
        self._any = table.full ^ mask_of(table.pools)
        self._known: dict[int, int] = {}

    def served_at(self, queue_id: QueueId) -> int:
        """The task queues that a queue may serve."""
        place = self._serving.bit(queue_id)
        if place is None:
            return self._any
        mask = self._known.get(place)
        if mask is None:
            mask = self._known[place] = self._any | self._rows.column(place)
        return mask


class _VOPlaces:
    __slots__ = ("alike", "mask", "table")

    def __init__(self, templates: Sequence[tuple[int, ResourceRequest]]) -> None:
        self.table = RequestTable(PLACE, templates)
        self.mask = mask_of(bit for bit, _ in templates)
        by_groups: defaultdict[tuple[str, ...] | None, list[int]] = defaultdict(list)
        for bit, template in templates:
            by_groups[template.groups].append(bit)
        # an example and the mask of the queues open to the same groups
        self.alike = [(members[0], mask_of(members)) for members in by_groups.values()]


class Places:
    """An iteration's candidate queues, by bits."""

    __slots__ = (
        "_limited",
        "_of_pool",
        "_of_vo",
        "_private_only",
        "_serving",
        "_shown",
        "_shut_for",
        "full",
        "queues",
    )

    def __init__(
        self,
        queues: Sequence[CandidateQueue],
        serving: PoolServing,
        limited: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._limited = limited  # by task queue, the queues where limits keep its jobs from starting
        self.queues = {queue.bit: queue for queue in queues}
        self.full = mask_of(self.queues)
        self._serving = serving
        in_pool: defaultdict[str, list[int]] = defaultdict(list)
        shut_for: defaultdict[str, list[int]] = defaultdict(list)
        of_vo: defaultdict[str, list[tuple[int, ResourceRequest]]] = defaultdict(list)
        private_only: defaultdict[str, list[int]] = defaultdict(list)
        for bit, queue in self.queues.items():
            for pool in queue.submission_pools:
                in_pool[pool].append(bit)
            for account in queue.shut_for:
                shut_for[account].append(bit)
            for vo, template in queue.templates.items():
                of_vo[vo].append((bit, template))
            for vo in queue.private_only:
                private_only[vo].append(bit)
        self._of_pool = {pool: mask_of(members) for pool, members in in_pool.items()}
        self._private_only = {vo: mask_of(members) for vo, members in private_only.items()}
        self._shut_for = {account: mask_of(members) for account, members in shut_for.items()}
        self._of_vo = {vo: _VOPlaces(templates) for vo, templates in of_vo.items()}
        # What pilots present, by queue and by all of their identity and pool that shows: most orders share it.
        self._shown: dict[tuple[int, str, tuple[str | None, ...]], ResourceRequest] = {}

    def of_pool(self, pool: str) -> int:
        """The queues that a submission pool serves."""
        return self._of_pool.get(pool, 0)

    def shut_for(self, account: str) -> int:
        """The queues where this identity may submit nothing."""
        return self._shut_for.get(account, 0)

    def of_vo(self, vo: str) -> int:
        """The queues that serve a VO."""
        return self._of_vo[vo].mask if vo in self._of_vo else 0

    def refusing(self, order: PilotOrder) -> int:
        """The queues that take no pilots of this kind."""
        return 0 if order.identity.private else self._private_only.get(order.key.vo, 0)

    def eligible(self, order: PilotOrder) -> int:
        """The queues where its pilots would get jobs."""
        key = replace(order.key, submit_pool="") if order.key.submit_pool else order.key
        mask = self._served(order.key, order.pool) & ~self.refusing(order)
        mask &= ~(self.shut_for(order.identity.account) | self._limited.get(order.tq_id, 0))
        if not mask:
            return 0
        of_vo = self._of_vo[key.vo]
        for example, members in of_vo.alike:
            if not serves(key, self.request(example, order)):
                mask &= ~members
        return of_vo.table.narrow(mask, key) if mask else 0

    def has_queue(self, key: TaskQueueKey, pool: str) -> bool:
        """Whether a pool serves a queue that could run jobs of the key."""
        if self.of_pool(pool) == self.full:
            return True
        mask = self._served(key, pool)
        place = replace(key, submit_pool="") if key.submit_pool else key
        return bool(mask and self._of_vo[key.vo].table.narrow(mask, place))

    def _served(self, key: TaskQueueKey, pool: str) -> int:
        mask = self.of_pool(pool) & self.of_vo(key.vo)
        return mask & (self._serving.mask(key.submit_pool) or 0) if key.submit_pool else mask

    def request(self, bit: int, order: PilotOrder) -> ResourceRequest:
        """What a pilot would present there; only its own SubmitPool."""
        who, pool = order.identity, order.key.submit_pool
        if pool and not (self._serving.mask(pool) or 0) >> bit & 1:
            pool = ""
        shows = (order.key.vo, order.pool, who.serves_owner, who.serves_group, who.pilot_type)
        request = self._shown.get((bit, pool, shows))
        if request is None:
            template = replace(self.queues[bit].templates[order.key.vo], submit_pools=(pool,) if pool else ())
            request = self._shown[bit, pool, shows] = presented(template, who, submission_pool=order.pool)
        return request

    def reasons(self, bit: int, order: PilotOrder) -> tuple[Reason, ...]:
        """What the matcher has against a pilot there."""
        return explain(order.key, self.request(bit, order))
