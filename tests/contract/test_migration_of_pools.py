"""A database of the first schema: its pools, its held jobs and its counters, after the second."""

import json
import random

import pytest
from tests.conftest import all_suspects

from lodesman.decide.matching import wanted_of
from lodesman.server.store import SqliteDatabase
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.migrate import load_scripts, migrate
from lodesman.server.store.read.jobs import events_of_job, job_by_id
from lodesman.server.store.read.submit_pools import bits_of_queues, last_pass, pass_requests, stored_pools
from lodesman.server.store.read.usage import count_jobs
from lodesman.server.writer.live import Live
from lodesman.server.writer.upkeep import reconcile
from lodesman.wire.jobs import Count
from lodesman.wire.service import Repaired
from lodesman.wire.vocabulary import JobState

pytestmark = pytest.mark.sqlite

KEY = '{"owner":"ann","group":"g","vo":"lab","submit_pool":"%s"}'
WHY = '{"reason":"no queue of VO lab fulfils it"}'
BY = '{"by":"user","reason":"mine"}'


@pytest.fixture
def old(monkeypatch, tmp_path):
    """Two pools; task queue 1 has rows, task queue 2 an array of ten, both held in part by ann."""
    with monkeypatch.context() as patch:
        first = [script for script in load_scripts() if script[0] == 1]
        patch.setattr("lodesman.server.store.migrate.load_scripts", lambda _: first)
        db = SqliteDatabase(tmp_path / "old.db").writer()
    with db:
        db.execute(
            "INSERT INTO submit_pool VALUES ('req1:a', '{}', 'lab', 5, 6), ('req1:b', '{}', 'lab', 5, 6)"
        )
        db.execute(
            "INSERT INTO submit_pool_queue VALUES ('req1:a', 'S', 'c', 'q'), ('req1:a', 'A/B', 'c', 'q')"
        )
        db.execute("INSERT INTO task_queue VALUES (1, ?, 1), (2, ?, 1)", (KEY % "req1:a", KEY % ""))
        db.execute("INSERT INTO task_queue_count (tq_id, waiting) VALUES (1, 0), (2, 0)")
        db.execute(
            """INSERT INTO submission (id, base, count, owner, grp, vo, name, created_at, form, record) VALUES
            (1, 1, 1, 'ann', 'g', 'lab', '', 1, '', ''), (2, 2, 1, 'ann', 'g', 'lab', '', 1, '', ''),
            (3, 3, 10, 'ann', 'g', 'lab', '', 1, '', '')"""
        )
        db.execute("UPDATE leadership SET next_job = 13")
        db.execute(
            """INSERT INTO event VALUES (1, 1, 1, NULL, NULL, 'Held', ?), (2, 1, 2, NULL, NULL, 'Waiting', NULL),
            (3, 2, 2, NULL, 2, 'Held', ?), (4, 1, 3, 12, NULL, 'Held', ?), (5, 2, 11, 12, NULL, 'Held', ?)""",
            (WHY, BY, WHY, BY),
        )
        db.execute(
            """INSERT INTO job (id, submission_id, tq_id, template_id, state, since, last_event, reason) VALUES
            (1, 1, 1, 1, 'Held', 1, 1, 'no queue of VO lab fulfils it'), (2, 2, 1, 1, 'Held', 2, 3, 'mine')"""
        )
        db.execute("INSERT INTO template VALUES (1, 0, 3, '{}')")
        db.execute("INSERT INTO cohort VALUES (1, 3, 2, 3, 0, 10, 10, 1)")
        db.execute("INSERT INTO hole VALUES (1, 0, 8, 'Held', 'no queue', 1), (1, 8, 10, 'Held', 'mine', 2)")
    return db


def states(db, ids):
    return [(job_by_id(db, job).state, job_by_id(db, job).held_by) for job in ids]


def test_jobs_that_no_person_held_are_held_by_their_task_queue(old):
    migrate(old)
    assert states(old, [1, 2]) == [("Held", "impossible"), ("Held", "user")]
    assert states(old, range(3, 11)) == [("Held", "impossible")] * 8
    assert states(old, [11, 12]) == [("Held", "user")] * 2
    assert count_jobs(old) == [Count("ann", "g", JobState.HELD, 12)]
    assert [event.event for event in events_of_job(old, job_by_id(old, 3))] == ["Held"]


def test_counters_are_true_and_jobs_can_be_released(old):
    migrate(old)
    live = Live(old, rng=random.Random(1), now=100.0)
    journal = Journal(old, clock=lambda: 100.0)
    journal.start()
    assert journal.call(Change(reconcile, live, all_suspects(old))) == Repaired()

    class Release:
        def apply(self, tx):
            return live.queues.release(tx, 1, "now"), live.queues.release(tx, 2, "now")

    assert journal.call(Release()) == (1, 8)
    assert journal.call(Change(reconcile, live, all_suspects(old))) == Repaired()
    journal.close()
    assert count_jobs(old) == [Count("ann", "g", JobState.HELD, 3), Count("ann", "g", JobState.WAITING, 9)]


def test_pools_keep_their_requirements_and_are_evaluated_anew(old):
    migrate(old)
    assert [(row.id, row.vo, row.requirements, row.queues) for row in stored_pools(old)] == [
        ("req1:a", "lab", "{}", 0), ("req1:b", "lab", "{}", 0),
    ]  # fmt: skip
    assert bits_of_queues(old) == {("A/B", "c", "q"): 0, ("S", "c", "q"): 1}
    assert list(old.execute("SELECT id, requirements, pool_id FROM task_queue")) == [
        (1, "{}", "req1:a"),
        (2, "", None),
    ]
    assert list(old.execute("SELECT * FROM submit_pool_queue")) == []
    with old:
        old.execute("UPDATE submit_pool_bits SET queues = x'02' WHERE id = 'req1:a'")
    assert list(old.execute("SELECT * FROM submit_pool_queue")) == [("req1:a", "S", "c", "q")]


TEXTS = [
    ('{"Memory":["number",[4000,0.5]],"a \\"b":["list",["x","\u00e9"]],"y":["boolean",[true]]}',
     {"Memory": ["number", "", None, [4000, 0.5]], 'a "b': ["list", "", None, ["x", "\u00e9"]],
      "y": ["boolean", "", None, [True]]}),
    ('{"big":["number",[123456789012345678901234567890]]}',
     {"big": ["number", "", None, [123456789012345678901234567890]]}),
    ("{}", {}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), TEXTS)
def test_requirements_are_stamped_that_their_unit_is_not_known(old, before, after):
    with old:
        old.execute("UPDATE submit_pool SET requirements = ?", (before,))
    migrate(old)
    for table in ("submit_pool_bits", "task_queue"):
        (text,) = old.execute(f"SELECT requirements FROM {table} LIMIT 1").fetchone()
        assert json.loads(text) == after
    assert wanted_of(text) == {name: row[3] for name, row in after.items()}


def test_the_queues_of_pools_are_unknown_before_the_first_refresh(old):
    migrate(old)
    assert [row.is_evaluated for row in stored_pools(old)] == [False, False]
    assert [row[0] for row in old.execute("SELECT refreshed_at FROM submit_pool")] == [None, None]
    with old:
        old.execute(
            "UPDATE submit_pool_bits SET queues = ?, evaluated_at = ? WHERE id = ?", (b"", 50.0, "req1:a")
        )
        old.execute("INSERT INTO submit_pool_pass VALUES (1, 60, '', '', 0, 0, 0, 0, 0)")
    assert [row[0] for row in old.execute("SELECT refreshed_at FROM submit_pool")] == [60, None]


def test_an_empty_database_has_nothing_held(database):
    db = database.writer()
    assert db.execute("SELECT count(*) FROM task_queue_hold").fetchone() == (0,)
    assert last_pass(db).id == 0
    assert not pass_requests(db).is_due
    db.close()
