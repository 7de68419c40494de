"""The start of a local pilot in namespaces of its own, beside one without."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
import zipfile
from functools import cache
from pathlib import Path

from bench.context import Context
from bench.figures import Figure
from bench.generator import LoadFault
from bench.stats import percentile

from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState, PilotSpec, stamp_of
from lodesman.server.engines.isolation import Isolation, Wishes, find_isolation
from lodesman.server.engines.local import LocalBackend

QUEUE = QueueId("bench", "ce", "queue")
PATIENCE, POLL = 60.0, 0.0002


def measure(context: Context) -> list[Figure]:
    """Pilots that do nothing, in turn with and without; from their submission until their program runs."""
    home = context.home / "isolation"
    home.mkdir()
    programs = Path(tempfile.mkdtemp(dir=context.home))
    programs.chmod(0o755)
    account = "nobody" if os.geteuid() == 0 else ""
    wishes = Wishes(data=home, run_as=account, python=sys.executable, shown=(programs,))
    found = find_isolation(wishes, make_account=False)
    if not found.namespaces:
        raise LoadFault(f"no pilot can be isolated here: {found.fault}")
    kinds = {
        name: LocalBackend(home / name, {QUEUE: 1}, isolation=isolation, programs=programs)
        for name, isolation in (("isolated", found), ("plain", Isolation()))
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for number in range(context.less(100)):
        for name, backend in kinds.items():
            times[name].append(_one(backend, f"p{number}"))
    isolated, plain = (1e3 * percentile(times[name], 50) for name in kinds)
    return [
        Figure(
            row="pilot-start-isolated", what="what isolation adds to the start of a pilot, half of them", unit="ms",
            value=isolated - plain, target=5, less=True, size=f"{len(times['plain'])} pilots each",
            details={"isolated_ms": isolated, "plain_ms": plain},
        )
    ]  # fmt: skip


@cache
def _program() -> bytes:
    """A zipapp that does nothing but show that it runs."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("__main__.py", 'open("ready", "w")')
    return target.getvalue()


def _one(backend: LocalBackend, name: str) -> float:
    """Seconds from the submission of a pilot until its program runs; returns when it is gone."""
    begun, stamp = time.monotonic(), stamp_of(name, 1)
    spec = PilotSpec(queue=QUEUE, submission=name, count=1, program=_program(), pilot_file=b"{}")
    refused = backend.submit(spec).refused
    if refused:
        raise LoadFault(f"{refused}")
    ready = Path(backend.root) / stamp / "work" / "ready"
    while not ready.exists():
        _wait(begun)
    seconds = time.monotonic() - begun
    while backend.status({stamp: stamp})[stamp].state is not NativeState.ENDED:
        backend.tick()
        _wait(begun)
    return seconds


def _wait(begun: float) -> None:
    if time.monotonic() - begun > PATIENCE:
        raise LoadFault("a pilot did not start, or did not end")
    time.sleep(POLL)
