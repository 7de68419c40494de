"""The local backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from tests.kits.backend_kit import Kit

from lodesman.decide.resources import QueueId
from lodesman.server.engines.local import LocalBackend


def local_kit(root: Path) -> Iterator[Kit]:
    queue = QueueId("Contract.Site", "localhost", "queue")
    place = root.with_name("place")
    place.mkdir()
    backend = LocalBackend(root, {queue: 2}, grace_seconds=5.0)

    def advance() -> None:
        backend.tick()
        threading.Event().wait(0.01)

    yield Kit(
        backend=backend,
        queue=queue,
        place=place,
        again=lambda: LocalBackend(root, {queue: 2}, grace_seconds=5.0),
        advance=advance,
    )
    assert backend.stop_all(grace_seconds=0.0, deadline_seconds=60.0) == ()
