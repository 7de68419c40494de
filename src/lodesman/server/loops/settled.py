"""Task queues that need not be judged again at each refresh, since nothing that a judgement goes by changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lodesman.decide.matching.policy import Policy, VOConfig
from lodesman.server.store.task_queues import JudgedQueue


class Settled:
    """Those that a pass left as they were, with what that followed from. One thread uses it."""

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._configs: dict[str, VOConfig] = {}
        self._told: object = None
        self._facts: dict[int, tuple[int, str | None, bool]] = {}

    def begin(self, policy: Policy, queues: Sequence[JudgedQueue], told: object) -> None:
        """A pass begins: all are forgotten with the configuration of a VO, which also changes with the pilots in queues
        where none is ever sent. `told`: the same for what decides beside it: the version of keys, suggested classes.
        """
        configs = {vo: policy.vo_config(vo) for vo in {queue.key.vo for queue in queues}}
        same = policy is self._policy and told == self._told and configs.keys() <= self._configs.keys()
        if not same or any(config is not self._configs[vo] for vo, config in configs.items()):
            self._policy, self._configs, self._told, self._facts = policy, configs, told, {}
        elif len(self._facts) > len(queues):
            there = {queue.id for queue in queues}
            self._facts = {tq_id: facts for tq_id, facts in self._facts.items() if tq_id in there}

    def has(self, queue: JudgedQueue, masks: Mapping[str, int]) -> bool:
        """Whether it was settled by the very same facts."""
        return self._facts.get(queue.id) == _facts_of(queue, masks)

    def put(self, queue: JudgedQueue, masks: Mapping[str, int]) -> None:
        """It stays as it is."""
        self._facts[queue.id] = _facts_of(queue, masks)


def _facts_of(queue: JudgedQueue, masks: Mapping[str, int]) -> tuple[int, str | None, bool]:
    """Beside its key, from which its Requirements follow."""
    pool = queue.key.submit_pool
    return masks.get(pool, -1) if pool else 0, queue.held, bool(queue.jobs or queue.may_return)
