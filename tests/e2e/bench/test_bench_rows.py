"""Every row of the benchmark runs and gives numbers: a hundredth of its size, so that the numbers mean nothing."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from bench import pool_world, suite, world
from bench.context import SMOKE, Context
from bench.floors import Floors
from bench.rows import payloads, pools
from bench.stores import PostgresServer
from tests.kits.backend_kit import missing

# Where foreign software is, if it is there.
PYTHONS = {"pgqueuer": "LODE_BENCH_PGQUEUER"}
FLOORS = Floors(fdatasync=1e3, sqlite_commits=1e3, spawns=1e3, http=1e4)


@pytest.fixture(scope="module")
def context() -> Iterator[Context]:
    """One run, whose rows share their worlds; with fewer sites. Other accounts reach its folder, unlike those of pytest."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="bench-") as home:
        patch.setattr(world, "SITES", 100)
        for name in ("resources", "attributes", "many_keys"):
            patch.setattr(pools, name, partial(getattr(pool_world, name), sites=100))
        patch.setattr(payloads, "MIXED_SECONDS", (0.02, 0.5))
        yield Context(home=Path(home), part=SMOKE, samples=1, floors=FLOORS, say=print)


def hold_numbers(figures):
    assert figures, "it gave no figure"
    wrong = {one.row: one.value for one in figures if not math.isfinite(one.value)}
    assert wrong == {}
    names = [one.row for one in figures]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("row", [row for row in suite.ROWS if row not in PYTHONS])
def test_a_row_gives_numbers(context, row):
    if row in suite.NEED_WRK and shutil.which("wrk") is None:
        missing("wrk", f"{row} asks with it: apt-get install wrk")
    hold_numbers(suite.ROWS[row](context))


def test_a_row_gives_numbers_on_postgresql(context):
    if shutil.which("pg_ctl") is None and not any(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")):
        pytest.skip("rows on PostgreSQL are left out: it is not installed")
    home = context.home / "postgresql"
    home.mkdir()
    context.home.chmod(0o755)
    python = os.environ.get(PYTHONS["pgqueuer"])
    with PostgresServer.started(home) as server:
        second = replace(context, home=home, postgresql=server, pgqueuer=Path(python) if python else None)
        hold_numbers(suite.ROWS["claims-process"](second))
        if python is None:
            pytest.skip(f"the row pgqueuer is left out: {PYTHONS['pgqueuer']} names no Python that has it")
        hold_numbers(suite.ROWS["pgqueuer"](second))
