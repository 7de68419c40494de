"""Numbered migrations: applied once, in order, and never edited."""

import apsw
import pytest

from lodesman.errors import Unavailable
from lodesman.store import open_reader, open_writer
from lodesman.store.sqlite import load_scripts, migrate


def test_a_new_database_gets_every_migration():
    db = apsw.Connection(":memory:")
    assert migrate(db) == [name for _, name, _ in load_scripts()]
    assert migrate(db) == []


def test_numbers_are_unique_and_ascending():
    numbers = [number for number, _, _ in load_scripts()]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 1


def test_an_edited_migration_is_refused():
    db = apsw.Connection(":memory:")
    migrate(db)
    db.execute("UPDATE migration SET sha256 = 'other' WHERE number = 1")
    with pytest.raises(Unavailable, match="changed after"):
        migrate(db)


def test_a_newer_database_is_refused():
    db = apsw.Connection(":memory:")
    migrate(db)
    db.execute("INSERT INTO migration VALUES (9999, 'later', 'x')")
    with pytest.raises(Unavailable, match="9999"):
        migrate(db)


def test_a_failing_migration_leaves_nothing_behind(monkeypatch):
    db = apsw.Connection(":memory:")
    scripts = [(1, "0001_a.sql", "CREATE TABLE a (x); CREATE TABLE a (x);")]
    monkeypatch.setattr("lodesman.store.sqlite.load_scripts", lambda: scripts)
    with pytest.raises(apsw.SQLError):
        migrate(db)
    assert db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'a'").fetchone() == (0,)


def test_shares_behind_older_claims_are_unknown(monkeypatch):
    db = apsw.Connection(":memory:")
    with monkeypatch.context() as patch:
        before = [script for script in load_scripts() if script[0] < 13]
        patch.setattr("lodesman.store.sqlite.load_scripts", lambda: before)
        migrate(db)
    columns = "id, job_id, number, tq_id, pilot_id, claim_token, site, eligible, claimed_at"
    db.execute(f"INSERT INTO attempt ({columns}) VALUES (1, 1, 1, 1, 1, '', 'S', '[\"g\",\"h\"]', 5)")
    migrate(db)
    assert db.execute("SELECT shares FROM attempt").fetchone() == (None,)


def test_the_database_is_durable_and_private(tmp_path):
    path = tmp_path / "data" / "lode.db"
    db = open_writer(path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o077 == 0


def test_readers_cannot_write(tmp_path):
    path = tmp_path / "lode.db"
    open_writer(path).close()
    with pytest.raises(apsw.ReadOnlyError):
        open_reader(path).execute("UPDATE leadership SET epoch = 9")
