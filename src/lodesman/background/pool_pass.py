"""The evaluation of all SubmitPools and task queues against the configuration, by bitsets, outside the writer.

RFC #7: the mapping of SubmitPools to queues is refreshed at regular intervals. What is found is a difference to one
consistent picture of the database; `services.submit_pools.refresh` takes it, or refuses it if that picture is old.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from lodesman.answers.service import Difference, Holds
from lodesman.errors import InvalidJob
from lodesman.masks.bits import bits
from lodesman.matching import TaskQueueKey, key_from_json, wanted_of, wanted_values
from lodesman.matching.policy import Policy, VOConfig
from lodesman.resources import QueueId, QueueTable, compile_requirements
from lodesman.store import Reader
from lodesman.store.read.submit_pools import (
    PassRequests,
    PassRow,
    PoolRow,
    bits_of_queues,
    last_pass,
    pass_requests,
    stored_pools,
)
from lodesman.store.read.task_queues import queues_to_judge
from lodesman.submission import find_exclusions, never_text

REQUIREMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A task queue that has jobs, is held, or that a job may return to. `held`: the reason, None if its jobs wait.

    `may_return`: a job of it runs, or a person holds one.
    """

    id: int
    key: TaskQueueKey
    requirements: str
    jobs: int
    held: str | None
    may_return: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a pass is held against: one moment of the database."""

    last: PassRow
    state: PassRequests
    pools: Sequence[PoolRow]
    bits: Mapping[QueueId, int]
    queues: Sequence[QueueRow]


@dataclass(slots=True)
class Looker:
    """Takes pictures. Holds a read connection: one thread at a time. Keys that were read are kept, by their texts."""

    db: Reader
    _keys: dict[str, TaskQueueKey] = field(default_factory=dict)

    def look(self) -> Picture:
        """Everything as it is at one moment."""
        with self.db:
            return self._read()

    def _read(self) -> Picture:
        return Picture(
            last=last_pass(self.db),
            state=pass_requests(self.db),
            pools=list(stored_pools(self.db)),
            bits=bits_of_queues(self.db),
            queues=list(self._queues()),
        )

    def _queues(self) -> Iterator[QueueRow]:
        known, self._keys = self._keys, {}
        for one in queues_to_judge(self.db):
            key = self._keys[one.key] = known.get(one.key) or key_from_json(one.key)
            yield QueueRow(one.id, key, one.requirements, one.jobs, one.held, bool(one.may_return))


def unnamed(policy: Policy, picture: Picture) -> list[QueueId]:
    """Configured queues without a bit, though there are pools that may need one."""
    if not picture.pools:
        return []
    return [place for place in _configured(policy) if place not in picture.bits]


def _configured(policy: Policy) -> list[QueueId]:
    """The configured queues; a queue's place in the list is its bit in masks of the configuration."""
    return list(policy.config.tree.queue_ids())


def evaluate(policy: Policy, pools: Iterable[PoolRow]) -> dict[str, int]:
    """For every pool the queues that fulfil its Requirements as things are configured, by ordinal.

    Requirements that the declared types cannot read any more have no queue.
    """
    by_vo: dict[str, _Evaluator] = {}
    found: dict[str, int] = {}
    for pool in pools:
        evaluator = by_vo.get(pool.vo)
        if evaluator is None:
            evaluator = by_vo[pool.vo] = _Evaluator(policy.vo_config(pool.vo).table)
        found[pool.id] = evaluator.mask(pool.requirements)
    return found


class _Evaluator:
    """Evaluates many canonical texts for one VO. What one requirement admits is found once, whoever has it."""

    def __init__(self, table: QueueTable) -> None:
        self._table = table
        self._known: dict[tuple[str, bytes], int] = {}

    def mask(self, requirements: str) -> int:
        """The queues that fulfil all of them; none if the text is no set of Requirements."""
        mask = self._table.open_to_vo
        known = self._known
        try:
            found = REQUIREMENTS.decode(requirements)
        except msgspec.DecodeError:
            return 0
        for name, raw in found.items():
            key = name, bytes(raw)
            one = known.get(key)
            if one is None:
                one = known[key] = self._one(name, key[1])
            mask &= one
        return mask

    def _one(self, name: str, raw: bytes) -> int:
        try:
            wanted = {name: wanted_values(json.loads(raw))}
            return self._table.eligible_mask(compile_requirements(wanted, self._table.types))
        except (InvalidJob, ValueError, TypeError):
            return 0


def difference(policy: Policy, picture: Picture, masks: Mapping[str, int], *, cause: str) -> Difference:
    """What is to be changed so that the stored pools are as they were evaluated. `seconds` is left open."""
    order = _configured(policy)
    stored = Renumbering([picture.bits[place] for place in order]) if picture.pools else Renumbering([])
    changed = {}
    for pool in picture.pools:
        mask = stored.of(masks[pool.id])
        if mask != pool.queues or not pool.is_evaluated:
            changed[pool.id] = f"{mask:x}"
    configured = set(order)
    return Difference(
        previous=picture.last.id,
        answers=picture.state.asked,
        config=policy.digest,
        cause=cause,
        pools=len(picture.pools),
        seconds=0.0,
        masks=changed,
        gone=[place for place in picture.bits if place not in configured],
    )


def judge(policy: Policy, picture: Picture, masks: Mapping[str, int]) -> tuple[Holds, Holds]:
    """The task queues to hold, since no configured queue can run them, and those to release; each with the reason.

    One that stays held is named again if its reason reads otherwise now. An empty one is held as long as a job may
    return to it, which is Held at once then.
    """
    hold: Holds = []
    release: Holds = []
    for queue in picture.queues:
        world = policy.vo_config(queue.key.vo)
        can = runnable(queue, policy, masks)
        if can or not (queue.jobs or queue.may_return):
            if queue.held is not None:
                release.append((queue.id, _can_run(can, world) if can else ""))
            continue
        reason = never_text(find_exclusions(queue.key, wanted_of(queue.requirements), world))
        if reason and reason != queue.held:
            hold.append((queue.id, reason))
    return hold, release


def runnable(queue: QueueRow, policy: Policy, masks: Mapping[str, int]) -> int:
    """The configured queues, by ordinal, that can run a task queue; `masks` are those of the SubmitPools.

    If its SubmitPool is gone, its own Requirements tell.
    """
    world = policy.vo_config(queue.key.vo)
    pool = queue.key.submit_pool
    mask = masks.get(pool, 0)
    if pool and pool not in masks:
        mask = _Evaluator(world.table).mask(queue.requirements)
    return world.possible_queues(queue.key, mask)


def _can_run(mask: int, world: VOConfig) -> str:
    first = "/".join(world.table.queues[next(bits(mask))])
    return f"{first} can run it now ({mask.bit_count()} of {world.table.open_to_vo.bit_count()} queues)"


class Renumbering:
    """Moves the bits of masks from ordinals of the configuration to the numbers that stored masks have.

    Queues that follow each other in both are moved together; as long as nothing was reordered that is one step.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        """`numbers`: that of each ordinal."""
        self._runs: list[tuple[int, int, int]] = []
        begin = 0
        for at in range(1, len(numbers) + 1):
            if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                self._runs.append((begin, (1 << at - begin) - 1, numbers[begin]))
                begin = at
        self._known: dict[int, int] = {}

    def of(self, mask: int) -> int:
        """The mask in stored numbers."""
        known = self._known.get(mask)
        if known is None:
            known = 0
            for begin, ones, number in self._runs:
                known |= (mask >> begin & ones) << number
            self._known[mask] = known
        return known
