"""The backends under test: how each is made, its queue, and how to drive it on."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.kits.shell_pilots import shell_spec

from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import Backend, NativeState, NativeStatus, PilotSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """One backend under test: a queue with two slots, the same system seen by a new process, and a push."""

    backend: Backend
    queue: QueueId
    place: Path
    again: Callable[[], Backend]
    advance: Callable[[], object] = lambda: time.sleep(0.2)
    patience: float = 240.0

    def spec(self, script: str, *, count: int = 1, **more: Any) -> PilotSpec:
        """Pilots that run a line of shell; their own file is $1, the number of the copy $2."""
        return shell_spec(self.queue, f"test{secrets.token_hex(8)}", script, count=count, **more)

    def submit(self, script: str, *, count: int = 1, **more: Any) -> dict[str, str]:
        """Stamp -> native id."""
        result = self.backend.submit(self.spec(script, count=count, **more))
        assert (dict(result.refused), len(result.accepted)) == ({}, count)
        return dict(result.accepted)

    def wait_for(self, pilots: Mapping[str, str], *states: NativeState) -> dict[str, NativeStatus]:
        """Until all of these are in one of the states."""
        deadline = time.monotonic() + self.patience
        while True:
            self.advance()
            seen = self.backend.status(pilots)
            if all(status.state in states for status in seen.values()):
                return seen
            assert time.monotonic() < deadline, seen

    def running(self, pilots: Mapping[str, str], count: int) -> list[str]:
        """Until so many of these run; their stamps."""
        deadline = time.monotonic() + self.patience
        while True:
            self.advance()
            seen = self.backend.status(pilots)
            found = [stamp for stamp, status in seen.items() if status.state is NativeState.RUNNING]
            if len(found) == count:
                return found
            assert time.monotonic() < deadline, seen

    def gate(self) -> Path:
        """A FIFO: pilots that read it run until they are cancelled, or the test opens it."""
        path = self.place / f"gate{secrets.token_hex(4)}"
        os.mkfifo(path)
        path.chmod(0o666)
        return path


def missing(service: str, install: str) -> NoReturn:
    """Skip what needs a service that is not there; fail where the environment says that it has to be there."""
    if service in os.environ.get("LODE_CHECK_NEEDS", "").split(","):
        pytest.fail(f"{service} has to be there: {install}")
    pytest.skip(install)
