"""The in-memory choice alone, by share, on one thread: `bench/choice.py` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure, best
from bench.machine import Meter

PROGRAM = Path(__file__).parent.parent / "choice.py"
SIZES = (
    ("choice-10k", 10_000, 0, 100_000),
    ("choice-100k", 100_000, 0, 20_000),
    ("choice-churn", 10_000, 1_000, 50_000),
)


def measure(context: Context) -> list[Figure]:
    """Choices per second in three settings; each checked by the oracle of the program."""
    return [_figure(context, *size) for size in SIZES]


def _figure(context: Context, row: str, full: int, churn: int, target: float) -> Figure:  # noqa: PLR0917
    queues = full // 10 if context.quick else full
    samples = [_sample(context, queues, churn, number) for number in range(context.samples)]
    top = best(samples, "choices_per_s")
    extra = f" while {churn:,} a second come and go" if churn else ""
    return Figure(
        row=row, what=f"in-memory choice, {queues:,} task queues{extra}", unit="/s", value=top["choices_per_s"],
        target=target, floor_name="bare HTTP", floor=context.floors.http,
        size=f"{queues:,} task queues, {top['groups']} groups, churn {churn}/s",
        samples=[one["choices_per_s"] for one in samples], details=top,
    )  # fmt: skip


def _sample(context: Context, queues: int, churn: int, number: int) -> dict[str, Any]:
    file = context.home / "choice.json"
    meter = Meter()
    subprocess.run(
        [sys.executable, str(PROGRAM), "--queues", str(queues), "--seconds", str(context.seconds),
         "--churn", str(churn), "--seed", str(7 + number), "--json", str(file)],
        check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(file.read_text())
    return found | {"busy_cores": meter.read()["other_cores"]}
