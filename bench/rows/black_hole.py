"""A site that fails every job, on the director and by the seed's formula to the letter."""

from __future__ import annotations

from collections.abc import Sequence

from bench.black_hole import Result
from bench.black_hole_ways import by_the_director, by_the_seed
from bench.context import Context
from bench.figures import Figure
from bench.stats import median

SEEDS = (1, 2, 3, 4, 5)
MOST_EMPTY, MOST_FAILED, MOST_LONGER = 20, 150, 1.05
SIZE = "6,600 jobs, 500/500/200 slots, 300 that fail them"


def measure(context: Context) -> list[Figure]:
    """Medians over the seeds, with default options on both sides. `staying` in the details: with pilots that ask for the
    next job after one that failed, as this program's do.
    """
    ours, formula, staying = [], [], []
    for seed in SEEDS[: context.less(len(SEEDS))]:
        ours.append(by_the_director(seed, {}))
        formula.append(by_the_seed(seed, {}))
        staying.append(by_the_director(seed, {}, stays=True))
        found = {"director": ours[-1], "formula": formula[-1], "director, staying pilots": staying[-1]}
        for name, one in found.items():
            context.say(f"black hole, seed {seed}, {name}: {_text(one)}")
        context.say(f"black hole, seed {seed}: makespan {ours[-1].makespan_s / formula[-1].makespan_s:.3f} x")
    longer = [one.makespan_s / other.makespan_s for one, other in zip(ours, formula, strict=True)]
    empty, failed = [one.empty for one in ours], [one.failed for one in ours]
    return [
        _figure(
            "empty", "pilots that ran no job", empty, MOST_EMPTY,
            formula=[one.empty for one in formula], staying=[one.empty for one in staying],
        ),
        _figure(
            "failed", "failed attempts", failed, MOST_FAILED,
            formula=[one.failed for one in formula], staying=[one.failed for one in staying],
        ),
        _figure(
            "makespan", "makespan against the formula's", longer, MOST_LONGER,
            formula=[one.makespan_s for one in formula], staying=[one.makespan_s for one in staying],
        ),
    ]  # fmt: skip


def _figure(row: str, what: str, samples: Sequence[float], most: float, **details: Sequence[float]) -> Figure:
    return Figure(
        row=f"black-hole-{row}", what=f"a site that fails all jobs: {what}", unit="x" if row == "makespan" else "",
        value=median(list(samples)), target=most, less=True, samples=samples, size=SIZE, details=details,
    )  # fmt: skip


def _text(one: Result) -> str:
    return (
        f"{one.pilots:,} pilots, {one.to_hole:,} to the black hole, {one.cancelled} cancelled, {one.empty:,} empty, "
        f"{one.failed:,} failed attempts, {one.makespan_s / 3_600:.2f} h"
    )
