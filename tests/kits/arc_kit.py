"""ARC: a computing element that `tests/services/arc` starts, or the one that the environment names."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.kits.backend_kit import Kit, missing

from lodesman.batch.arc import ArcBackend
from lodesman.batch.run.https import Https
from lodesman.resources import QueueId

SERVICE = Path(__file__).parents[1] / "services" / "arc"
QUEUE = QueueId("Contract.Site", "arc", "pilots")


@contextmanager
def started_arc() -> Iterator[dict[str, str]]:
    """The names and values that `tests/services/arc env` prints."""
    if "LODE_TEST_ARC" in os.environ:
        yield {name: value for name, value in os.environ.items() if name.startswith("LODE_TEST_ARC")}
        return
    there = subprocess.run([SERVICE, "there"], capture_output=True, text=True, timeout=10, check=False)
    if there.returncode:
        missing("arc", there.stderr.strip())
    with tempfile.TemporaryDirectory(prefix="lode-arc-") as place:
        Path(place).chmod(0o755)  # the account of the jobs passes through
        folder = f"{place}/arc"
        try:
            subprocess.run([SERVICE, "start", folder], check=True, timeout=120)
            said = subprocess.run(
                [SERVICE, "env", folder], check=True, timeout=10, capture_output=True, text=True
            )
            yield dict(word.split("=", 1) for line in said.stdout.splitlines() for word in shlex.split(line))
        finally:
            subprocess.run([SERVICE, "purge", folder], check=True, timeout=120)


def run_service(service: Mapping[str, str], action: str) -> None:
    """An action of the script that started it."""
    folder = str(Path(service["LODE_TEST_ARC_CA"]).parent)
    subprocess.run([SERVICE, action, folder], check=True, timeout=120)


def arc_backend(service: Mapping[str, str]) -> ArcBackend:
    """A new backend for it."""
    return ArcBackend(
        service=Https(
            url=service["LODE_TEST_ARC"],
            ca=service["LODE_TEST_ARC_CA"],
            certificate=service["LODE_TEST_ARC_CERTIFICATE"],
        )
    )


@contextmanager
def arc_kit(service: Mapping[str, str]) -> Iterator[Kit]:
    """A kit. Each push makes what ARC says new, which it does by itself once a minute."""

    def advance() -> None:
        time.sleep(2.0)
        run_service(service, "refresh")

    # Folders of pytest are closed to the account of the jobs.
    with tempfile.TemporaryDirectory(prefix="lode-place-") as place:
        Path(place).chmod(0o777)
        yield Kit(
            backend=arc_backend(service),
            queue=QUEUE,
            place=Path(place),
            again=lambda: arc_backend(service),
            advance=advance,
            patience=180.0,
        )
