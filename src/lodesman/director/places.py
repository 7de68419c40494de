"""The CE queues of one iteration as bits: which of them could serve a task queue, and why not the others.

Queue i of the snapshot is bit i. Every answer is the matcher's (`lodesman.matching`): the place is judged for all
queues at once, the identity of the pilots once for all queues that are open to the same groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lodesman.director.pilot_type import PilotIdentity, presented
from lodesman.director.queues import CandidateQueue
from lodesman.director.serving import Serving, ServingQueues
from lodesman.masks.bits import mask_of
from lodesman.matching.criteria import Reason, explain
from lodesman.matching.request import ResourceRequest
from lodesman.matching.tables import PLACE, RequestTable, serves
from lodesman.matching.task_queue import TaskQueueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Pilots to place: `count` of them for one task queue, through one pool, of one identity."""

    tq_id: int
    key: TaskQueueKey
    count: int
    pool: str
    identity: PilotIdentity


class _VOPlaces:
    """The queues that serve one VO. `alike`: an example and the mask of the queues open to the same groups."""

    __slots__ = ("alike", "mask", "table")

    def __init__(self, templates: Sequence[tuple[int, ResourceRequest]]) -> None:
        self.table = RequestTable(PLACE, templates)
        self.mask = mask_of(bit for bit, _ in templates)
        by_groups: defaultdict[tuple[str, ...] | None, list[int]] = defaultdict(list)
        for bit, template in templates:
            by_groups[template.groups].append(bit)
        self.alike = [(members[0], mask_of(members)) for members in by_groups.values()]


class Places:
    """All candidate queues of an iteration."""

    __slots__ = ("_of_pool", "_of_vo", "_serving", "_shown", "queues")

    def __init__(self, queues: Sequence[CandidateQueue], serving: Serving) -> None:
        self.queues = tuple(queues)
        self._serving = ServingQueues([queue.queue_id for queue in queues], serving)
        in_pool: defaultdict[str, list[int]] = defaultdict(list)
        of_vo: defaultdict[str, list[tuple[int, ResourceRequest]]] = defaultdict(list)
        for bit, queue in enumerate(self.queues):
            for pool in queue.submission_pools:
                in_pool[pool].append(bit)
            for vo, template in queue.templates.items():
                of_vo[vo].append((bit, template))
        self._of_pool = {pool: mask_of(members) for pool, members in in_pool.items()}
        self._of_vo = {vo: _VOPlaces(templates) for vo, templates in of_vo.items()}
        # What pilots present, by queue and by all of their identity and pool that shows: most asks share it.
        self._shown: dict[tuple[int, str, tuple[str | None, ...]], ResourceRequest] = {}

    @property
    def full(self) -> int:
        """The mask of all queues."""
        return (1 << len(self.queues)) - 1

    def of_pool(self, pool: str) -> int:
        """The queues that a submission pool serves."""
        return self._of_pool.get(pool, 0)

    def of_vo(self, vo: str) -> int:
        """The queues that serve a VO."""
        return self._of_vo[vo].mask if vo in self._of_vo else 0

    def eligible(self, ask: Ask) -> int:
        """The queues where a pilot of the ask would be given jobs of its task queue."""
        key = ask.key
        mask = self.of_pool(ask.pool) & self.of_vo(key.vo)
        if key.submit_pool:
            mask &= self._serving.of(key.submit_pool)
            key = replace(key, submit_pool="")
        if not mask:
            return 0
        known = self._of_vo[key.vo]
        for example, members in known.alike:
            if not serves(key, self.request(example, ask)):
                mask &= ~members
        return known.table.narrow(mask, key) if mask else 0

    def request(self, bit: int, ask: Ask) -> ResourceRequest:
        """What a pilot of the ask would present in that queue, which must serve the ask's VO.

        Of the SubmitPools that the queue serves only the task queue's own is named.
        """
        who, pool = ask.identity, ask.key.submit_pool
        if pool and not self._serving.of(pool) >> bit & 1:
            pool = ""
        shows = (ask.key.vo, ask.pool, who.serves_owner, who.serves_group, who.pilot_type)
        request = self._shown.get((bit, pool, shows))
        if request is None:
            template = replace(self.queues[bit].templates[ask.key.vo], submit_pools=(pool,) if pool else ())
            request = self._shown[bit, pool, shows] = presented(template, who, submission_pool=ask.pool)
        return request

    def reasons(self, bit: int, ask: Ask) -> tuple[Reason, ...]:
        """What the matcher has against a pilot of the ask in that queue, which must serve the ask's VO."""
        return explain(ask.key, self.request(bit, ask))
