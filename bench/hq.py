"""HyperQueue's side: the same jobs on the server and the workers of its wheel, in a process of a Python that has it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from bench.generator import LoadFault
from bench.payloads import Fleet, Run, Work

PROGRAM = Path(__file__).resolve().parent / "hq_tasks.py"
RUN_SECONDS = 3_600.0


def run(python: Path, home: Path, fleet: Fleet, work: Work) -> Run:
    """All jobs, on one worker for each pilot. Raises LoadFault."""
    with tempfile.TemporaryDirectory(prefix="hyperqueue-", dir=home) as folder:
        command = [str(python), str(PROGRAM), *map(str, (work.jobs, fleet.pilots, fleet.slots)), work.program]
        command += [work.arguments] if work.arguments else []
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, timeout=RUN_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    if done.returncode:
        raise LoadFault(f"HyperQueue failed: {done.stderr[-1_000:]}")
    return read(done.stdout, work.jobs)


def read(output: str, jobs: int) -> Run:
    """The last line that its process printed. Raises LoadFault if it is no measurement."""
    try:
        found = json.loads(output.strip().splitlines()[-1])
        cpu = {"hyperqueue": float(found["own_cpu"]), "children": float(found["tasks_cpu"])}
        return Run(jobs=jobs, seconds=float(found["seconds"]), cpu_seconds=cpu)
    except (ValueError, LookupError, TypeError) as fault:
        raise LoadFault(f"HyperQueue printed no result: {output[-500:]!r}") from fault
