"""The proposed fix of the seed: the iteration's target follows the jobs waiting and running.

Seed taskqueue-director, "Proposed fixes": adapt the number of pilots per iteration "depending on the
current number of Waiting and Running Jobs in the system" with respect to predefined targets. Off by
default; then the target is pilotsPerIteration.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRules:
    """The predefined targets.

    target_waiting_jobs: with so many jobs waiting the target is the plain pilotsPerIteration.
    target_running_jobs: with so many running none is wanted any more; 0 means no such target.
    max_factor: the target is never more than this times pilotsPerIteration.
    """

    enabled: bool = False
    target_waiting_jobs: int = 200
    target_running_jobs: int = 0
    max_factor: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Pilots aimed at in one iteration: value = base x waiting_factor x running_factor."""

    base: float
    value: float
    waiting_jobs: int
    running_jobs: int
    waiting_factor: float = 1.0
    running_factor: float = 1.0


def adapt(base: float, *, waiting_jobs: int, running_jobs: int, rules: AdaptiveRules) -> Target:
    """The target of this iteration from `base` = pilotsPerIteration and the jobs in the system.

    The more jobs wait with respect to their target, the more pilots; the nearer the running jobs come to
    theirs, the fewer.
    """
    if not rules.enabled:
        return Target(base=base, value=base, waiting_jobs=waiting_jobs, running_jobs=running_jobs)
    more = min(waiting_jobs / rules.target_waiting_jobs, rules.max_factor)
    less = 1.0
    if rules.target_running_jobs > 0:
        less = max(0.0, 1.0 - running_jobs / rules.target_running_jobs)
    return Target(
        base=base,
        value=base * more * less,
        waiting_jobs=waiting_jobs,
        running_jobs=running_jobs,
        waiting_factor=more,
        running_factor=less,
    )
