"""The database of a demo."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from lodesman.base import kernel
from lodesman.base.errors import Unavailable

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "services" / "postgresql"
DURABLE = ("-c", "fsync=on", "-c", "full_page_writes=on")
START_SECONDS = 60.0
POLL_SECONDS = 0.05


def url_of(store: str, home: Path) -> str:
    """The address of the database in `home`; '' for the file that is the default."""
    return f"postgresql://lode@/postgres?host={home / 'postgresql'}" if store == "postgresql" else ""


@contextlib.contextmanager
def store_runs(store: str, home: Path) -> Iterator[None]:
    """A PostgreSQL of the demo's own, which ends with it, also when it is killed. Raises Unavailable if there is none."""
    if store != "postgresql":
        yield
        return
    home.chmod(0o711)  # its account passes through
    folder = home / "postgresql"
    with (home / "postgresql.log").open("wb") as log:
        process = subprocess.Popen(
            [SCRIPT, "run", folder, *DURABLE],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            preexec_fn=_end_with_the_demo,  # noqa: PLW1509 - one call of the kernel, which needs no lock
        )  # fmt: skip
    try:
        _wait(process, folder, home / "postgresql.log")
        yield
    finally:
        process.send_signal(signal.SIGINT)  # without waiting for its connections
        process.wait()


def _end_with_the_demo() -> None:
    kernel.set_attribute(kernel.PDEATHSIG, signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    """Until it takes connections. Raises Unavailable."""
    end = time.monotonic() + START_SECONDS
    while not (folder / ".s.PGSQL.5432").exists():
        if process.poll() is not None or time.monotonic() > end:
            words = log.read_text(errors="replace")[-1_000:]
            raise Unavailable(f"PostgreSQL did not start: {words}", hint="apt-get install -y postgresql")
        time.sleep(POLL_SECONDS)
