"""A database with a writer, and resources, for tests of commands and of the background."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from tests.conftest import hasty

from lodesman.decide.director.plan import Plan
from lodesman.decide.director.record import _row
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.store.journal import Journal
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.live import WriterState
from lodesman.server.writer.submit_pools import number_at_start

RESOURCES = """
[site.North]
Platform = "el9"
VO = ["lab"]
[site.North.ce.cn.queue.short]
Slots = 2
NumberOfProcessors = 4
CPUTime = 1000
Memory = 2000
MaxWaitingJobs = 3
MaxTotalJobs = 7

[site.South]
VO = ["lab", "other"]
[site.South.ce.cs.queue.long]
Backend = "slurm"
CPUTime = 100000
CPUScalingFactor = 2.0
Memory = 64000

[group.physics]
vo = "lab"
share = 3000
[group.open]
vo = "lab"
job_sharing = true
"""


class Base:
    """The writer's side of a database; `do` runs a command, `db` is a read connection. Its queues are those of RESOURCES."""

    def __init__(self, database) -> None:
        self.writer = hasty(database.writer())
        self.clock = 1_000.0
        with self.writer:
            tx = Transaction(self.writer, self.clock)
            number_at_start(tx, list(load_resources([("sites.toml", RESOURCES)]).tree.queue_ids()))
            tx.flush()
        self.live = WriterState(self.writer, rng=random.Random(3), now=self.clock)
        self.journal = Journal(self.writer, clock=lambda: self.clock)
        self.journal.start()
        self.db = database.reader()

    def do(self, command):
        return self.journal.call(command, 10.0)

    def close(self):
        self.journal.close()
        self.db.close()
        self.writer.close()


@pytest.fixture
def policy():
    return Policy(load_resources([("sites.toml", RESOURCES)]))


@pytest.fixture
def base(database):
    found = Base(database)
    yield found
    found.close()


@pytest.fixture
def make_key():
    def make(**changes):
        return TaskQueueKey(
            **{"owner": "ann", "group": "physics", "vo": "lab", "norm_cpu_seconds": 100, **changes}
        )

    return make


@pytest.fixture(scope="session")
def plan_of():
    """The plan inside a stored iteration."""

    def read(record) -> Plan:
        rows = tuple(_row(record["row_fields"], values) for values in record["rows"])
        return Plan(**record["plan"], rows=rows)

    return read


@pytest.fixture
def disk(monkeypatch):
    """What is done to the disk, in order: ('file' or 'directory' synced, path) and ('moved', path); and by which thread."""
    done, threads = [], set()
    real_sync, real_replace = os.fsync, Path.replace

    def sync(number):
        threads.add(threading.get_ident())
        path = Path(f"/proc/self/fd/{number}").readlink()
        done.append(("directory" if path.is_dir() else "file", path))
        real_sync(number)

    def replace(path, target):
        done.append(("moved", target))
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    return done, threads
