"""kill -9 of PostgreSQL's own processes, and of the server, at random moments: no job lost, no attempt run twice.

PostgreSQL ends all its sessions then, and recovers from its journal. The tables are what `Workload.check` reads.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import psycopg
import pytest
from tests.e2e.conftest import Server, wait_until
from tests.e2e.test_kill_nine import BOUND, SETTINGS, Workload, end, kill_one, pause
from tests.services.conftest import PostgresDatabases

pytestmark = pytest.mark.postgresql

KILLS = int(os.environ.get("LODE_TEST_DATABASE_KILLS", "4"))
IN_A_ROUND = 4


@pytest.fixture
def databases():
    """A PostgreSQL that nobody else uses: all its sessions end when one is killed."""
    with PostgresDatabases.alone() as found:
        yield found


def sessions(url) -> list[int] | None:
    """Processes of PostgreSQL that serve our server; None while it recovers."""
    found = "SELECT pid FROM pg_stat_activity WHERE datname LIKE 'test_%' AND pid <> pg_backend_pid()"
    try:
        with psycopg.connect(url) as db:
            return [pid for (pid,) in db.execute(found)]
    except psycopg.OperationalError:
        return None


def test_sessions_and_the_server_are_killed(databases, tmp_path, free_port):
    rng = random.Random(11)
    server = Server(tmp_path / "server", free_port(), databases.empty(Path(tmp_path)), **SETTINGS).start()
    try:
        killed = 0
        while killed < KILLS:
            work = Workload(server)
            for _ in range(IN_A_ROUND):
                pause(rng, 0.05, 1.5)
                if rng.random() < 0.4:
                    server.process.kill()
                    server.process.wait()
                    # A server that starts without its database says so and ends.
                    wait_until(lambda: sessions(databases.url) is not None, "the database", patience=BOUND)
                    server.start()
                    killed += 1
                else:
                    killed += kill_one(rng, sessions(databases.url) or [])
            server.wait_for("Done", work.first, work.last, patience=work.left())
            wait_until(
                lambda: server.ask("GET", "/health").json.get("trouble") == "", "the database", patience=BOUND
            )
            work.check()
            work.ran_file.unlink()
        end(server)
    finally:
        server.clean_up()
