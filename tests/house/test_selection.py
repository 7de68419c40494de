"""Which tests a run consists of, and that a quick one that costs too much fails it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import sys
sys.path.insert(0, {root!r})
from tests.kits.cost import CostWatch

def pytest_configure(config):
    config.pluginmanager.register(CostWatch())
    config.addinivalue_line("markers", "slow: costs much")
"""
COSTLY = """
import pytest
from time import process_time

def spend(seconds):
    begun = process_time()
    while process_time() - begun < seconds:
        pass

seen = set()

def test_dear():
    spend(1.5)

@pytest.mark.slow
def test_marked():
    spend(0.5)

def test_first_use():
    if "here" not in seen:
        seen.add("here")
        spend(0.5)

def test_cheap():
    seen.add("left behind")

def test_in_company():
    if "left behind" in seen:
        spend(0.5)

@pytest.fixture(scope="session")
def dear_to_make():
    spend(0.5)
    yield
    spend(0.5)

def test_last(dear_to_make):
    pass
"""


def collected(root: Path, *words: str) -> set[str]:
    """Node ids."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in {0, 5}, done.stdout
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_a_quick_test_that_costs_too_much_fails_the_run(root, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST.format(root=str(root)))
    (tmp_path / "test_costs.py").write_text(COSTLY)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "test_costs.py::test_dear takes 1." in done.stdout
    assert "of CPU time: make it cheaper, or mark it slow" in done.stdout
    assert "6 passed, 1 error" in done.stdout


@pytest.mark.slow
def test_a_landing_leaves_out_what_is_thorough_and_repeats_on_postgresql_what_depends_on_it(root):
    def kinds(*words: str) -> set[str]:
        return collected(
            root, *words, "--store=both", "tests/e2e/test_kill_nine.py", "tests/e2e/test_server.py"
        )

    everything, landing = kinds(), kinds("--extent=landing")
    assert landing < everything
    on_postgresql = {name for name in landing if "postgresql" in name}
    assert any("test_kill_nine" in name for name in on_postgresql)
    contract = "tests/contract/test_order.py"
    assert collected(root, "--store=postgresql", contract) == collected(
        root, "--store=postgresql", "--extent=landing", contract
    )
    shapes = ("--store=postgresql", "--extent=landing", "tests/api/test_api_permissions.py")
    assert collected(root, *shapes) == set()
