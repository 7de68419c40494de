"""The second store of the benchmark: its targets, its worlds, and the order of the rows."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from bench import suite
from bench.context import QUICK, Context
from bench.engine import Engine
from bench.figures import Figure
from bench.second import on_postgresql
from bench.stores import SCRIPT, PostgresServer, address, database
from bench.world import GRID, Size

CLAIMS = Figure(row="claims-http", what="claims", unit="/s", value=6_000, target=8_000)
LATE = Figure(row="claims-http-p99", what="99 % within", unit="ms", value=20, target=20, less=True)


@pytest.fixture
def context(tmp_path):
    return Context(home=tmp_path, part=QUICK, samples=1, floors=None, say=lambda text: None)


def test_the_second_store_has_targets_of_its_own_and_a_part_of_the_first_to_reach():
    own, late, part = on_postgresql([CLAIMS, LATE], [CLAIMS, LATE])
    assert (own.row, own.target, own.met) == ("claims-http-postgresql", 5_000, True)
    assert (late.row, late.target) == ("claims-http-p99-postgresql", None)
    assert (part.row, part.value, part.target) == ("claims-http-postgresql-part", 1.0, 0.5)


def test_alone_the_second_store_is_held_against_nothing():
    assert [one.row for one in on_postgresql([CLAIMS], [])] == ["claims-http-postgresql"]


def test_each_row_is_measured_on_both_stores_before_the_next(context, tmp_path, monkeypatch):
    second = Context(home=tmp_path, part=QUICK, samples=1, floors=None, say=context.say, postgresql=object())
    measured = []
    for row in ("claims-http", "why", "choice"):
        monkeypatch.setitem(
            suite.ROWS, row, lambda given, row=row: measured.append((row, given is second)) or [CLAIMS]
        )
    outcomes = suite._measure(context, second, ["claims-http", "choice", "why"])
    assert measured == [
        ("claims-http", False), ("claims-http", True), ("choice", False), ("why", False), ("why", True),
    ]  # fmt: skip
    assert [one.row for one in outcomes["why-postgresql"]] == [
        "claims-http-postgresql",
        "claims-http-postgresql-part",
    ]


@pytest.mark.slow
@pytest.mark.skipif(
    subprocess.run([SCRIPT, "there"], check=False, capture_output=True).returncode != 0,
    reason="there is no PostgreSQL",
)
def test_a_world_on_postgresql_is_made_once_and_copied(context):
    # Another account passes through, which it may not in the folder of a test.
    with (
        tempfile.TemporaryDirectory(prefix="lode-bench-") as home,
        PostgresServer.started(Path(home)) as server,
    ):
        context.home, context.postgresql = Path(home), server
        copies = [context.world(Size(queues=70, jobs=1_000, rows=300, pilots=3)) for _ in range(2)]
        engine = Engine(copies[0], shares=GRID.shares, seed=1)
        engine.run(50, clients=3)
        engine.close()
        for data, taken in zip(copies, (50, 0), strict=True):
            db = database(data).reader()
            assert address(data).startswith("postgresql://")
            assert db.only("SELECT count(*) FROM attempt")[0] == taken
            assert db.only("SELECT sum(waiting) FROM queue_waiting")[0] == 1_000 - taken
            assert db.only("SHOW fsync")[0] == "on"
            db.close()
            context.drop(data)
