"""Numbered migrations: applied once, in order, and never edited."""

import json
from dataclasses import asdict

import pytest

from lodesman.base.errors import Unavailable
from lodesman.decide.matching import TaskQueueKey, key_to_json
from lodesman.server.store import SqliteDatabase
from lodesman.server.store.migrate import Script, load_scripts, migrate


@pytest.fixture
def db(database):
    writer = database.writer()
    yield writer
    writer.close()


def test_a_new_database_has_every_migration(db):
    names = [name for (name,) in db.execute("SELECT name FROM migration ORDER BY number")]
    assert names == [name for _, name, _ in load_scripts()]
    assert migrate(db) == []


def test_numbers_are_unique_and_ascending():
    numbers = [number for number, _, _ in load_scripts()]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


def test_an_edited_migration_is_refused(db):
    db.change("UPDATE migration SET sha256 = 'other' WHERE number = 1")
    with pytest.raises(Unavailable, match="changed after"):
        migrate(db)


def test_a_newer_database_is_refused(db):
    db.change("INSERT INTO migration VALUES (9999, 'later', 'x')")
    with pytest.raises(Unavailable, match="9999"):
        migrate(db)


def test_a_failing_migration_leaves_nothing_behind(db, monkeypatch):
    scripts = [Script(8_888, "8888_a.sql", "CREATE TABLE a (x TEXT); CREATE TABLE a (x TEXT);")]
    monkeypatch.setattr("lodesman.server.store.migrate.load_scripts", lambda _: scripts)
    db.change("DELETE FROM migration")
    with pytest.raises(Exception, match="already exists"):
        migrate(db)
    db.execute("CREATE TABLE a (x TEXT)")


@pytest.mark.sqlite
def test_the_database_is_durable_and_private(database, db):
    assert db.only("PRAGMA journal_mode") == ("wal",)
    assert db.only("PRAGMA synchronous") == (2,)
    assert database.path.stat().st_mode & 0o777 == 0o600
    assert database.path.parent.stat().st_mode & 0o077 == 0


OLD_KEYS = (
    TaskQueueKey(owner="ann", group="bio", vo="lab"),
    TaskQueueKey(
        owner='a"\\\nä\x07', group="", vo="é", sites=("A", "Ω b"), user_priority=3, cores=8, tags=("",)
    ),
    TaskQueueKey(
        owner="", group="[]", vo="1", job_class="User", job_type="", memory_mb=1, norm_cpu_seconds=86400
    ),
)
# Of the key, that were added after keys said all of theirs.
LATER_FIELDS = {
    "force_generic",
    "pe",
    "consumables",
    "expected_seconds",
    "waits_for_jobs",
    "at_most",
    "submission",
}


def test_stored_keys_say_what_is_not_at_its_default(db):
    for number, key in enumerate(OLD_KEYS, 1):
        fields = {name: value for name, value in asdict(key).items() if name not in LATER_FIELDS}
        old = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        db.change("INSERT INTO task_queue (id, key, created_at) VALUES (?, ?, 0)", (number, old))
    db.change("DELETE FROM migration WHERE number = 16")
    assert migrate(db) == ["0016_short_keys.sql"]
    stored = [key for (key,) in db.execute("SELECT key FROM task_queue ORDER BY id")]
    assert stored == list(map(key_to_json, OLD_KEYS))


@pytest.mark.sqlite
def test_shares_behind_older_claims_are_unknown(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        older = lambda *dialect: [script for script in load_scripts(*dialect) if script[0] < 13]  # noqa: E731
        patch.setattr("lodesman.server.store.migrate.load_scripts", older)
        db = SqliteDatabase(tmp_path / "older.db").writer()
    columns = "id, job_id, number, tq_id, pilot_id, claim_token, site, eligible, claimed_at"
    db.change(f"INSERT INTO attempt ({columns}) VALUES (1, 1, 1, 1, 1, '', 'S', '[\"g\",\"h\"]', 5)")
    migrate(db)
    assert db.only("SELECT shares FROM attempt") == (None,)
    db.close()


def test_readers_cannot_write(database):
    db = database.reader()
    with pytest.raises(Exception, match=r"read-?only"):
        list(db.execute("UPDATE leadership SET epoch = 9"))
    db.close()
