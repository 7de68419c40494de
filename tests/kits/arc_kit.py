"""ARC: a computing element that `tests/services/arc` starts, or the one that the environment names."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kits.backend_kit import Kit, missing

from lodesman.decide.resources import QueueId
from lodesman.server.engines.arc import ArcBackend
from lodesman.server.engines.run.https import Https

SERVICE = Path(__file__).parents[1] / "services" / "arc"
# What it says is made new at most, and at least, after so many seconds.
_OFTEN_S, _SELDOM_S = 2.0, 15.0
QUEUE = QueueId("Contract.Site", "arc", "pilots")


@contextmanager
def started_arc() -> Iterator[dict[str, str]]:
    """The names and values that `tests/services/arc env` prints."""
    if "LODE_TEST_ARC" in os.environ:
        yield {name: value for name, value in os.environ.items() if name.startswith("LODE_TEST_ARC")}
        return
    there = subprocess.run([SERVICE, "there"], capture_output=True, text=True, timeout=120, check=False)
    if there.returncode:
        missing("arc", there.stderr.strip())
    with tempfile.TemporaryDirectory(prefix="lode-arc-") as place:
        Path(place).chmod(0o755)  # the account of the jobs passes through
        folder = f"{place}/arc"
        try:
            subprocess.run([SERVICE, "start", folder], check=True, timeout=900)
            said = subprocess.run(
                [SERVICE, "env", folder], check=True, timeout=120, capture_output=True, text=True
            )
            yield dict(word.split("=", 1) for line in said.stdout.splitlines() for word in shlex.split(line))
        finally:
            subprocess.run([SERVICE, "purge", folder], check=True, timeout=900)


def run_service(service: Mapping[str, str], action: str) -> None:
    """An action of the script that started it."""
    folder = str(Path(service["LODE_TEST_ARC_CA"]).parent)
    subprocess.run([SERVICE, action, folder], check=True, timeout=900)


def arc_backend(service: Mapping[str, str]) -> ArcBackend:
    """A new backend for it."""
    return ArcBackend(
        service=Https(
            url=service["LODE_TEST_ARC"],
            ca=service["LODE_TEST_ARC_CA"],
            certificate=service["LODE_TEST_ARC_CERTIFICATE"],
        )
    )


class News:
    """What ARC says of its jobs: made new when A-REX has noted something of them, and now and then."""

    def __init__(self, service: Mapping[str, str]) -> None:
        self._service = service
        self._control = Path(service["LODE_TEST_ARC_CA"]).parent / "control"
        self._seen: frozenset[tuple[str, int]] = frozenset()
        self._due = 0.0

    def push(self) -> None:
        """If it is time for it: it takes a second of a processor."""
        now, noted = time.monotonic(), self._noted()
        if now >= self._due - (_SELDOM_S - _OFTEN_S) * (noted != self._seen):
            self._refresh(noted)

    def await_one(self) -> None:
        """Wait for something new."""
        while (noted := self._noted()) == self._seen and time.monotonic() < self._due:
            time.sleep(0.1)
        self._refresh(noted)

    def _refresh(self, noted: frozenset[tuple[str, int]]) -> None:
        run_service(self._service, "refresh")
        self._seen, self._due = noted, time.monotonic() + _SELDOM_S

    def _noted(self) -> frozenset[tuple[str, int]]:
        found = set()
        for path in self._control.glob("*/*.status"):
            with contextlib.suppress(FileNotFoundError):  # it goes to another folder
                found.add((str(path), path.stat().st_mtime_ns))
        return frozenset(found)


@contextmanager
def arc_kit(service: Mapping[str, str]) -> Iterator[Kit]:
    """A kit. Each push makes what ARC says new, which it does by itself once a minute."""
    # Folders of pytest are closed to the account of the jobs.
    with tempfile.TemporaryDirectory(prefix="lode-place-") as place:
        Path(place).chmod(0o777)
        yield Kit(
            backend=arc_backend(service),
            queue=QUEUE,
            place=Path(place),
            again=lambda: arc_backend(service),
            advance=News(service).await_one,
            patience=400.0,
        )
