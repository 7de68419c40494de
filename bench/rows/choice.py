"""The in-memory choice alone, by share, on one thread: `bench/choice.py` in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.context import Context
from bench.figures import Figure, best
from bench.machine import Meter

PROGRAM = Path(__file__).parent.parent / "choice.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The task queues of a measurement; `churn` of them a second come and go. `pools`: some have Requirements."""

    row: str
    queues: int
    churn: int = 0
    target: float | None = None
    pools: bool = False


SETTINGS = (
    Setting(row="choice-10k", queues=10_000, target=100_000),
    Setting(row="choice-100k", queues=100_000, target=20_000),
    Setting(row="choice-churn", queues=10_000, churn=1_000, target=50_000),
    Setting(row="choice-pools", queues=10_000, pools=True),
    Setting(row="choice-pools-churn", queues=10_000, churn=1_000, pools=True),
)


def measure(context: Context) -> list[Figure]:
    """Choices per second in some settings; each checked by the oracle of the program."""
    return [_figure(context, setting) for setting in SETTINGS]


def _figure(context: Context, setting: Setting) -> Figure:
    queues, churn = context.less(setting.queues), context.less(setting.churn, 100)
    samples = [_sample(context, setting, queues, number) for number in range(context.samples)]
    top = best(samples, "choices_per_s")
    extra = ", three in ten with Requirements" if setting.pools else ""
    extra += f" while {churn:,} a second come and go" if churn else ""
    return Figure(
        row=setting.row, what=f"in-memory choice, {queues:,} task queues{extra}", unit="/s", value=top["choices_per_s"],
        target=setting.target, floor_name="bare HTTP", floor=context.floors.http,
        size=f"{queues:,} task queues, {top['groups']} groups, churn {churn}/s",
        samples=[one["choices_per_s"] for one in samples], details=top,
    )  # fmt: skip


def _sample(context: Context, setting: Setting, queues: int, number: int) -> dict[str, Any]:
    file = context.home / "choice.json"
    meter = Meter()
    subprocess.run(
        [sys.executable, str(PROGRAM), "--queues", str(queues), "--seconds", str(context.seconds),
         "--churn", str(setting.churn), "--seed", str(7 + number), "--json", str(file),
         *(["--pools"] if setting.pools else [])],
        check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    found: dict[str, Any] = json.loads(file.read_text())
    return found | {"busy_cores": meter.read()["other_cores"]}
