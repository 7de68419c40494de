"""What a process of the server loads for nothing costs memory in every server."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_the_hot_process_loads_nothing_that_renders_metrics():
    """The background process does that, and the hot one forwards the call."""
    code = "import lodesman.server.main.server, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in done.stdout.split()}
    assert "lodesman" in modules
    assert "prometheus_client" not in modules
