"""DIRAC's own TaskQueueDB, measured by the harness that drives it, in the same run as ours.

The harness is a folder with `servers.sh start|stop` (its MariaDB, which forces each commit to the disk) and
`bench_match.py`, set up with a `venv/` of its own; see docs/benchmarks.md.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JOBS, QUEUES = 100_000, 10_000
PROCESSES = (1, 4, 8)
SECONDS = 20
START_SECONDS, RUN_SECONDS = 120.0, 900.0
STEP = re.compile(r"match_(\d+)p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The figures of DIRAC. `rates`: claims per second by number of processes. `same_run`: measured just before ours."""

    rates: dict[int, float]
    jobs: int
    queues: int
    same_run: bool

    @property
    def best(self) -> tuple[int, float]:
        """Number of processes and rate where it was fastest."""
        return max(self.rates.items(), key=lambda one: one[1])


def read_report(report: dict[str, Any], *, same_run: bool) -> Peer:
    """The report of the harness. Raises ValueError if it has no rate of one process."""
    steps = {int(found[1]): step for name, step in report.items() if (found := STEP.fullmatch(name))}
    try:
        rates = {number: float(step["match"]["matches_per_s"]) for number, step in steps.items()}
        jobs, queues = int(report["params"]["jobs"]), int(report["params"]["requirement_sets"])
    except KeyError as lacking:
        raise ValueError(f"the report of DIRAC lacks {lacking}") from None
    if 1 not in rates:
        raise ValueError("the report of DIRAC has no match_1p")
    return Peer(rates=rates, jobs=jobs, queues=queues, same_run=same_run)


def measure(given: Path, home: Path, *, part: int) -> Peer:
    """Run the harness in the folder `given` with sizes divided by `part`, or read the report that it left in the
    file `given`.

    Raises OSError, ValueError.
    """
    if given.is_file():
        return read_report(json.loads(given.read_text()), same_run=False)
    report = home / "dirac.json"
    numbers = {
        "jobs": JOBS // part, "tqs": QUEUES // part, "procs": ",".join(map(str, PROCESSES)),
        "seconds": max(2, SECONDS // part),
    }  # fmt: skip
    options = [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
    try:
        _call(given, ["./servers.sh", "start"], START_SECONDS)
        _call(
            given, ["venv/bin/python", "bench_match.py", "run", *options, "--out", str(report)], RUN_SECONDS
        )
    finally:
        # None of its processes may run during our measurement.
        _call(given, ["./servers.sh", "stop"], START_SECONDS)
    return read_report(json.loads(report.read_text()), same_run=True)


def _call(folder: Path, command: list[str], seconds: float) -> None:
    try:
        subprocess.run(
            command, cwd=folder, timeout=seconds, check=True, capture_output=True, stdin=subprocess.DEVNULL
        )
    except subprocess.CalledProcessError as failed:
        reported = failed.stderr.decode(errors="replace")[-1_000:]
        raise ValueError(f"{' '.join(command)} ended with {failed.returncode}: {reported}") from None
    except subprocess.TimeoutExpired:
        raise ValueError(f"{' '.join(command)} did not end within {seconds:.0f} s") from None
