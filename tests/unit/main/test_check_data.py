"""What `lode server --check-data` finds in a data folder."""

from __future__ import annotations

import pytest

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.config import load_config
from lodesman.server.loops.reconciler import check_data
from lodesman.server.store.shelf import Shelf

ATTEMPT = """INSERT INTO attempt
(id, job_id, number, pilot_id, tq_id, claim_token, site, claimed_at, output_sha256, output_size)
VALUES (?, ?, 1, 1, 1, 't', 'S', 0, 'x', 3)"""


@pytest.fixture
def config(tmp_path):
    return load_config(None, overrides={"server": {"data": str(tmp_path)}})


@pytest.fixture
def db(config):
    writer = config.database.writer()
    yield writer
    writer.close()


def test_a_new_database_is_whole(config, db):
    db.close()
    assert check_data(config) == []


def test_files_that_are_missing_or_cut_are_counted_and_named(config, db):
    shelf = Shelf(config.data / "sandboxes", limit_bytes=1)
    db.execute(ATTEMPT, (4, 4))
    db.execute("INSERT INTO small_output (attempt_id, content) VALUES (4, x'00')")  # no file
    for job in (1, 2, 3):
        db.execute(ATTEMPT, (job, job))
        shelf.output_path(job, 1).parent.mkdir(parents=True, exist_ok=True)
        shelf.output_path(job, 1).write_bytes(b"abc")
    db.execute("INSERT INTO sandbox (owner, sha256, size, created_at) VALUES ('ann', 'f0', 3, 0)")
    shelf.output_path(2, 1).unlink()
    shelf.output_path(3, 1).write_bytes(b"ab")
    db.close()
    strays, outputs, inputs = check_data(config)
    assert strays.startswith(
        "4 live attempts that the job does not name, or whose pilot has ended (1, 2, 3, 4)"
    )
    assert outputs.startswith("Missing or of another size: 2 outputs (")
    assert "2.1.tar.gz" in outputs
    assert inputs.startswith("Missing or of another size: 1 input file (")


def test_counters_that_are_wrong_are_named(config, db):
    db.execute("INSERT INTO task_queue_count (tq_id, waiting, as_of) VALUES (7, 5, 0)")
    db.close()
    (fault,) = check_data(config)
    assert fault.startswith("The counters of 1 task queue are wrong (7); the server repairs")


def test_usage_that_no_attempt_has_used_is_named(config, db):
    db.execute("INSERT INTO usage_day VALUES (20000, 'ann', 'g', 'vo', 'S', 'ok', '', '', 1, 1, 5, 5, 5, 5)")
    db.close()
    assert check_data(config) == ["The usage of some days is not what their attempts used (2024-10-04)."]


def test_pages_that_are_overwritten_are_found(config, db):
    db.execute("CREATE TABLE note (text TEXT)")
    with db:
        db.change_each("INSERT INTO note VALUES (?)", [("x" * 200,)] * 2_000)
    db.close()
    with config.database.path.open("r+b") as file:
        file.seek(-40 * 4096, 2)
        file.write(b"\xff" * 8 * 4096)
    assert check_data(config)


def test_it_needs_a_database_of_its_own(config, db, tmp_path):
    with pytest.raises(Conflict, match="already owns"):
        check_data(config)
    nothing = load_config(None, overrides={"server": {"data": str(tmp_path / "nothing")}})
    with pytest.raises(Unavailable, match="is not there"):
        check_data(nothing)
    assert not nothing.data.exists()
