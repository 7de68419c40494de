"""Through which submission pool a task queue's pilots go.

Seed taskqueue-director: the pools of the task queue, or DefaultSubmitPools, in random order; the first one
that is enabled and takes the work gets it; a full one is disabled until the next cycle. When none takes it,
nothing is submitted and that is what is recorded (the original reported the number it had wished for).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from lodesman.answers.vocabulary import PoolOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A submission pool now: threads at work, tasks waiting for one, and their limits.

    `max` threads (maxThreadsInPool), `total` tasks that may wait (totalThreadsInPool).
    """

    name: str
    enabled: bool = True
    running: int = 0
    queued: int = 0
    max: int = 2
    total: int = 40

    @property
    def is_full(self) -> bool:
        """Whether it can take no task more."""
        return max(0, self.max - self.running) + self.total <= self.queued


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTry:
    """One pool asked, in order."""

    pool: str
    outcome: PoolOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChoice:
    """The pool that takes the work (None: no pool, no pilot), all that were asked, and the pools after."""

    pool: str | None
    tries: tuple[PoolTry, ...]
    states: Mapping[str, PoolState]


def new_cycle(states: Mapping[str, PoolState]) -> dict[str, PoolState]:
    """The pools at the start of a cycle: those disabled for being full get another chance."""
    return {name: replace(state, enabled=True) for name, state in states.items()}


def choose_pool(
    wanted: Sequence[str],
    *,
    defaults: Sequence[str],
    states: Mapping[str, PoolState],
    rng: Random,
) -> PoolChoice:
    """Draw a pool; `wanted` empty means `defaults` (DefaultSubmitPools). The choice counts as one task."""
    order = list(wanted or defaults)
    rng.shuffle(order)
    after = dict(states)
    tries = []
    for name in order:
        outcome = _ask(name, after)
        tries.append(PoolTry(pool=name, outcome=outcome))
        if outcome is PoolOutcome.TAKEN:
            return PoolChoice(pool=name, tries=tuple(tries), states=after)
    return PoolChoice(pool=None, tries=tuple(tries), states=after)


def _ask(name: str, states: dict[str, PoolState]) -> PoolOutcome:
    """Ask one pool, and note in `states` what the answer changes."""
    state = states.get(name)
    if state is None:
        return PoolOutcome.UNKNOWN
    if not state.enabled:
        return PoolOutcome.DISABLED
    if state.is_full:
        states[name] = replace(state, enabled=False)
        return PoolOutcome.FULL
    states[name] = replace(state, queued=state.queued + 1)
    return PoolOutcome.TAKEN
