"""What all tests share: how much Hypothesis tries, and ports that nobody else gets."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# `default` looks further with each run on a developer's machine; `ci` repeats the same examples, so
# that a change is judged by what it changed; `long` is for a night.
settings.register_profile("default", _CALM, max_examples=100)
settings.register_profile("ci", _CALM, max_examples=100, derandomize=True, print_blob=True)
settings.register_profile("long", _CALM, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def _free_port() -> int:
    """A port of this machine for a server that is about to start.

    For a minute no other program is given it: it is known from a connection that was ended on this side, as
    a port is after a server that was restarted; only who asks for it by number can have it.
    """
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = int(listener.getsockname()[1])
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.accept()[0].close()
            client.recv(1)
    return port


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Ports for servers, a new one with each call."""
    return _free_port
