"""What a process of the server loads for nothing costs memory in every server."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def hot():
    code = "import lodesman.server.main.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "lodesman.server.writer.claim" in done.stdout.split()
    return set(done.stdout.split())


def test_the_hot_process_loads_nothing_that_renders_metrics(hot):
    """The background process does that, and the hot one forwards the call."""
    assert "prometheus_client" not in hot


def test_the_hot_process_loads_no_director_and_no_snapshot(hot):
    """Endpoints of the background process stand beside those of the hot one; what they read is not loaded for a type."""
    of_background = (
        "http.read_side loops.direct loops.snapshot loops.pilot_book loops.site_tests reads.verifying"
    )
    assert not {f"lodesman.server.{name}" for name in of_background.split()} & hot
