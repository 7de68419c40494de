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
    """Medians over the seeds, with default options on both sides."""
    pairs = []
    for seed in SEEDS[: 1 if context.quick else None]:
        ours, literal = by_the_director(seed, {}), by_the_seed(seed, {})
        for name, one in (("director", ours), ("formula", literal)):
            context.say(f"black hole, seed {seed}, {name}: {_text(one)}")
        context.say(f"black hole, seed {seed}: makespan {ours.makespan_s / literal.makespan_s:.3f} x")
        pairs.append((ours, literal))
    empty, failed = [float(one.empty) for one, _ in pairs], [float(one.failed) for one, _ in pairs]
    longer = [ours.makespan_s / literal.makespan_s for ours, literal in pairs]
    formula = [literal for _, literal in pairs]
    return [
        _figure("empty", "pilots that ran no job", empty, MOST_EMPTY, formula=[one.empty for one in formula]),
        _figure("failed", "failed attempts", failed, MOST_FAILED, formula=[one.failed for one in formula]),
        _figure(
            "makespan", "makespan against the formula's", longer, MOST_LONGER,
            formula=[one.makespan_s for one in formula],
        ),
    ]  # fmt: skip


def _figure(
    row: str, what: str, samples: list[float], most: float, *, formula: Sequence[float]
) -> Figure:  # fmt: skip
    return Figure(
        row=f"black-hole-{row}", what=f"a site that fails all jobs: {what}", unit="x" if row == "makespan" else "",
        value=median(samples), target=most, less=True, samples=samples, size=SIZE, details={"formula": formula},
    )  # fmt: skip


def _text(one: Result) -> str:
    return (
        f"{one.pilots:,} pilots, {one.to_hole:,} to the black hole, {one.cancelled} cancelled, {one.empty:,} empty, "
        f"{one.failed:,} failed attempts, {one.makespan_s / 3_600:.2f} h"
    )
