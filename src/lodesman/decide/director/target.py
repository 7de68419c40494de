"""How many pilots the formula aims at, by one of four policies.

`seed` is the seed's pilotsPerIteration, `adaptive` its proposed fix; there the target is a scale. `gap` and `ratio`
count pilots: their target bounds the total.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from msgspec import Struct

from lodesman.base.errors import counted
from lodesman.decide.director.options import DirectorOptions
from lodesman.wire.director import DirectorTarget
from lodesman.wire.vocabulary import TargetPolicy

# their target is a number of pilots: 0 says that no more are needed now, not that none is sent
COUNTING: Final = frozenset({TargetPolicy.GAP, TargetPolicy.RATIO})


class TargetFacts(Struct, frozen=True, kw_only=True):
    """What the policies go by."""

    waiting_jobs: int
    running_jobs: int
    usable_pilots: int  # wait or are idle and have a waiting job, each for one task queue
    waiting_pilots: int  # all usable ones that have not started
    running_pilots: int  # run and take jobs


class _Aim(NamedTuple):
    value: float
    arithmetic: list[str]


def target_of(facts: TargetFacts, options: DirectorOptions) -> DirectorTarget:
    """The target, with its arithmetic in words."""
    policy, most = options.target.policy, options.max_pilots_per_iteration
    aim = _POLICIES[policy](facts, options)
    return DirectorTarget(
        policy=policy,
        value=aim.value,
        most=int(aim.value) if policy in COUNTING else most,
        waiting_jobs=facts.waiting_jobs,
        running_jobs=facts.running_jobs,
        usable_pilots=facts.usable_pilots,
        waiting_pilots=facts.waiting_pilots,
        running_pilots=facts.running_pilots,
        arithmetic=aim.arithmetic,
    )


def _seed(_facts: TargetFacts, options: DirectorOptions) -> _Aim:
    return _Aim(options.pilots_per_iteration, [f"target = pilotsPerIteration = {_base(options)}"])


def _adaptive(facts: TargetFacts, options: DirectorOptions) -> _Aim:
    """More waiting jobs: more pilots; more running: fewer."""
    rules = options.target
    more = min(facts.waiting_jobs / rules.target_waiting_jobs, rules.max_factor)
    waiting = f"{counted(facts.waiting_jobs, 'waiting job')} / targetWaitingJobs {rules.target_waiting_jobs}"
    lines = [f"growth = min({waiting}, adaptiveMaxFactor {rules.max_factor:g}) = {more:g}"]
    less = 1.0
    if rules.target_running_jobs > 0:
        less = max(0.0, 1.0 - facts.running_jobs / rules.target_running_jobs)
        running = (
            f"{counted(facts.running_jobs, 'running job')} / targetRunningJobs {rules.target_running_jobs}"
        )
        lines.append(f"remainder = max(0, 1 - {running}) = {less:g}")
    value = options.pilots_per_iteration * more * less
    product = f"pilotsPerIteration {_base(options)} x {more:g}"
    product += f" x {less:g}" if rules.target_running_jobs > 0 else ""
    return _Aim(value, [*lines, f"target = {product} = {value:g}"])


def _gap(facts: TargetFacts, options: DirectorOptions) -> _Aim:
    """A part of the missing pilots; a small gap closes at once."""
    rules = options.target
    missing = max(0, facts.waiting_jobs - facts.usable_pilots)
    part = math.ceil(missing / rules.gap_iterations)
    value, waiting = min(missing, _bounded(part, options)), counted(facts.waiting_jobs, "waiting job")
    return _Aim(
        value,
        [
            f"missing = {waiting} - {counted(facts.usable_pilots, 'usable pilot')} waiting or idle = {missing}",
            f"part = {missing} / gapIterations {rules.gap_iterations}, rounded up = {part}",
            f"target = {part} {_bounds(options)}, and at most the missing {missing} = {value}",
        ],
    )


def _ratio(facts: TargetFacts, options: DirectorOptions) -> _Aim:
    fraction, running = options.target.running_fraction, facts.running_pilots
    part = math.floor(fraction * running)
    may_wait = _bounded(part, options)
    value = max(0, may_wait - facts.waiting_pilots)
    return _Aim(
        value,
        [
            f"part = runningFraction {fraction:g} x {counted(running, 'running pilot')}, rounded down = {part}",
            f"may wait = {part} {_bounds(options)} = {may_wait}",
            f"target = {may_wait} - {counted(facts.waiting_pilots, 'usable pilot')} waiting = {value}",
        ],
    )


_POLICIES: Final = {
    TargetPolicy.SEED: _seed,
    TargetPolicy.ADAPTIVE: _adaptive,
    TargetPolicy.GAP: _gap,
    TargetPolicy.RATIO: _ratio,
}


def _base(options: DirectorOptions) -> str:
    return f"{options.pilots_per_iteration:g}"


def _highest(options: DirectorOptions) -> tuple[str, int]:
    """The smaller maximum, and the name of its option."""
    own, cap = options.target.maximum, options.max_pilots_per_iteration
    return ("maxPilotsPerIteration", cap) if 0 < cap < own else ("maxTarget", own)


def _bounded(number: int, options: DirectorOptions) -> int:
    return min(max(number, options.target.minimum), _highest(options)[1])


def _bounds(options: DirectorOptions) -> str:
    name, most = _highest(options)
    return f"from minTarget {options.target.minimum} to {name} {most}"
