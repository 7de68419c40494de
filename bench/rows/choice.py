"""The in-memory choice alone, by share, on one thread."""

from __future__ import annotations

from dataclasses import asdict

from bench.choice import GROUPS, run
from bench.context import Context
from bench.figures import Figure, best
from bench.machine import Meter

SIZES = (("choice-10k", 10_000, 0, 100_000), ("choice-100k", 100_000, 0, 20_000), ("choice-churn", 10_000, 1_000, 50_000))


def measure(context: Context) -> list[Figure]:
    """Choices per second in three settings; each checked by the oracle of `bench.choice`."""
    figures = []
    for row, queues, churn, target in SIZES:
        queues = queues // 10 if context.quick else queues
        samples = []
        for number in range(context.samples):
            meter = Meter()
            found = asdict(run(queues=queues, seconds=context.seconds, churn=churn, groups=GROUPS, seed=7 + number))
            samples.append(found | {"busy_cores": meter.read()["other_cores"]})
        top = best(samples, "choices_per_s")
        extra = f" while {churn:,} a second come and go" if churn else ""
        figures.append(
            Figure(
                row=row, what=f"in-memory choice, {queues:,} task queues{extra}", unit="/s",
                value=top["choices_per_s"], target=target, floor_name="bare HTTP", floor=context.floors.http,
                size=f"{queues} task queues, {GROUPS} groups, churn {churn}/s",
                samples=[one["choices_per_s"] for one in samples], details=top,
            )
        )  # fmt: skip
    return figures
