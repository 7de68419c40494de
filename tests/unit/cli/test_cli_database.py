"""`lode db`: what is copied, checked, backed up and migrated, and what is refused."""

from __future__ import annotations

import json
import resource
import signal
import threading
from contextlib import closing

import apsw
import pytest
from tests.kits.old_database import restore

from lodesman.server.store import SqliteDatabase, backup
from lodesman.server.store.migrate import load_scripts

INSERT = "INSERT INTO director_iteration (at, bytes, plan) VALUES (0, 0, ?)"
SECRET = "geheim"


@pytest.fixture
def database(home):
    """The database of a server that was started here."""
    found = SqliteDatabase(home / "lode-data" / "lode.db")
    with closing(found.writer()) as db, db:
        db.change_each(INSERT, [("x" * 3_000,)] * 500)
    return found


def plans(path):
    with closing(SqliteDatabase(path).reader()) as db:
        return db.only("SELECT count(*) FROM director_iteration")[0]


# --- copy


@pytest.mark.slow
def test_a_copy_says_what_it_has(lode, database, home):
    result = lode("db", "copy", "lode-data/lode.db", "copy.db")
    assert result.code == 0, result.err
    assert "director_iteration   500" in result.out
    assert "copy.db; both were compared row by row" in result.err
    assert plans(home / "copy.db") == 500


@pytest.mark.slow
def test_a_copy_for_programs(lode, database, home):
    found = lode("db", "copy", f"sqlite://{database.path}", "copy.db", "--json").json
    rows = {one["table"]: one for one in found["tables"]}
    assert found["rows"] == sum(one["rows"] for one in found["tables"])
    assert (rows["director_iteration"]["rows"], rows["job"]["rows"]) == (500, 0)
    assert len(rows["director_iteration"]["sha256"]) == 64


@pytest.mark.slow
def test_a_configuration_names_its_database(lode, database, home):
    (home / "other.toml").write_text('[store]\nurl = "sqlite:///%s"\n' % (home / "other.db"))
    assert lode("db", "copy", "lode-data/lode.db", "other.toml").code == 0
    assert plans(home / "other.db") == 500


@pytest.mark.slow
def test_what_cannot_be_copied_is_refused_in_one_sentence(lode, database, home):
    (home / "text").write_text("no database" * 100)
    foreign = apsw.Connection(str(home / "foreign.db"))
    foreign.execute("CREATE TABLE x (a)")
    foreign.close()
    SqliteDatabase(home / "other.db").writer().close()
    with closing(SqliteDatabase(home / "full.db").writer()) as db:
        db.change(INSERT, ("x",))
    there, here = "lode-data/lode.db", "copy.db"
    (home / "nothing.db").touch()
    cases = {
        ("nothing.db", here): (5, "There is nothing in"),
        ("missing.db", here): (5, "missing.db is not there"),
        ("text", here): (5, "text is not a database"),
        ("foreign.db", here): (5, "foreign.db has tables of another program"),
        (there, "foreign.db"): (5, "foreign.db has tables of another program"),
        (there, "full.db"): (6, "full.db; a copy needs an empty database"),
        (there, there): (1, "FROM and TO are both"),
        ("mysql://host/name", here): (1, "url begins with postgresql:// or with sqlite:///"),
        (there, f"postgresql://lode:{SECRET}@127.0.0.1:1/lode"): (1, "url has a password"),
        (there, "postgresql://lode@127.0.0.1:1/lode"): (5, "lode at 127.0.0.1 cannot be reached"),
    }
    for words, (code, sentence) in cases.items():
        result = lode("db", "copy", *words)
        assert (result.code, result.out) == (code, ""), result.err
        assert sentence in result.err
        assert len(result.err.splitlines()) == 1
        assert SECRET not in result.err
    assert not (home / "copy.db").exists()
    assert not (home / "missing.db").exists()
    assert lode("db", "copy", there, "other.db").code == 0, "it has tables and no rows"


@pytest.mark.parametrize("owned", ["lode-data/lode.db", "copy.db"])
def test_nothing_is_copied_while_a_server_writes(lode, database, home, owned):
    with closing(SqliteDatabase(home / owned).writer()):
        result = lode("db", "copy", "lode-data/lode.db", "copy.db")
        assert (result.code, plans(database.path)) == (6, 500)
    assert result.err.startswith("lode: Another server already owns ")
    assert result.err.endswith("Stop that server first.\n")


@pytest.mark.slow
def test_no_server_begins_with_an_unfinished_copy(lode, database, home, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("lodesman.server.store.copy._compare_table", interrupt)
        assert lode("db", "copy", "lode-data/lode.db", "copy.db").code == 130
    refused = lode("db", "check", "--set", f"store.url=sqlite://{home}/copy.db")
    assert (refused.code, "unfinished copy" in refused.err) == (5, True)
    assert lode("db", "copy", "lode-data/lode.db", "copy.db").code == 0
    assert lode("db", "check", "--set", f"store.url=sqlite://{home}/copy.db").code == 0


# --- check


def test_nothing_is_checked_while_a_server_writes(lode, database):
    with closing(database.writer()):
        result = lode("db", "check")
    assert (result.code, result.err.endswith("Stop that server first.\n")) == (6, True)


def test_check_is_what_the_server_checks(lode, database):
    whole = lode("db", "check")
    assert (whole.code, whole.out) == (0, "")
    assert whole.err.endswith("lode-data is whole.\n")
    with closing(database.writer()) as db:
        db.change("INSERT INTO task_queue_count (tq_id, waiting, as_of) VALUES (7, 5, 0)")
    found = [lode(*words) for words in (("db", "check"), ("server", "--check-data"))]
    assert found[0] == found[1]
    assert (found[0].code, "The counters of 1 task queue are wrong" in found[0].err) == (1, True)


@pytest.mark.parametrize("words", [("check",), ("migrate",), ("copy", "lode-data/lode.db", "copy.db")])
def test_a_database_that_was_lost_is_not_taken_for_a_good_one(lode, database, home, words):
    database.path.with_name("lode.seen-000000000000007").touch()
    with closing(database.writer()) as db:
        db.change("UPDATE leadership SET epoch = 1")
    assert lode("db", *words).code == 0
    (home / "copy.db").unlink(missing_ok=True)
    database.path.write_bytes(b"")
    result = lode("db", *words)
    assert (result.code, "lode server --accept-new-database" in result.err) == (8, True)
    assert (database.path.read_bytes(), (home / "copy.db").exists()) == (b"", False)


# --- backup


def test_a_backup_of_nothing_does_not_replace_a_good_one(lode, database, home):
    assert lode("db", "backup", "backup.db").code == 0
    database.path.write_bytes(b"")
    result = lode("db", "backup", "--force", "backup.db")
    assert (result.code, "There is nothing in" in result.err) == (5, True)
    assert plans(home / "backup.db") == 500


def test_a_backup_is_one_moment_of_a_database_that_changes(lode, database, home, monkeypatch):
    """Another connection commits between any two steps."""
    monkeypatch.setattr(backup, "_STEP_PAGES", 20)
    steps = []
    with closing(database.writer()) as writer:

        class Progress:
            def __enter__(self):
                return self.advance

            def __exit__(self, *_):
                pass

            def advance(self, count):
                steps.append(count)
                thread = threading.Thread(target=writer.change, args=(INSERT, ("y" * 3_000,)))
                thread.start()
                thread.join()

        monkeypatch.setattr("lodesman.user.cli.commands.database.progress", lambda *_, **__: Progress())
        result = lode("db", "backup", "backup.db")
        assert result.code == 0, result.err
        assert len(steps) > 10
        assert plans(database.path) == 500 + len(steps)
    assert plans(home / "backup.db") == 500
    with closing(apsw.Connection(str(home / "backup.db"))) as db:
        assert list(db.execute("PRAGMA integrity_check")) == [("ok",)]
    assert (home / "backup.db").stat().st_mode & 0o777 == 0o600
    assert lode("db", "check", "--set", f"store.url=sqlite://{home}/backup.db").code == 0


def test_a_backup_replaces_a_file_by_force_alone_and_never_the_database(lode, database, home):
    (home / "backup.db").write_text("mine")
    refused = lode("db", "backup", "backup.db")
    assert (refused.code, (home / "backup.db").read_text()) == (6, "mine")
    assert "exists; nothing was written" in refused.err
    assert lode("db", "backup", "backup.db", "--force").code == 0
    assert plans(home / "backup.db") == 500
    itself = lode("db", "backup", "lode-data/lode.db", "--force")
    assert (itself.code, "is the database itself" in itself.err) == (6, True)
    assert plans(database.path) == 500


def test_an_interrupted_backup_leaves_nothing(lode, database, home, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(backup.os, "fsync", interrupt)
    (home / "older.db").write_text("older")
    before = sorted(path.name for path in home.iterdir())
    for words in (["backup.db"], ["older.db", "--force"]):
        assert lode("db", "backup", *words).code == 130
    assert sorted(path.name for path in home.iterdir()) == before
    assert (home / "older.db").read_text() == "older"


def test_a_backup_that_does_not_fit_leaves_nothing(lode, database, home, monkeypatch):
    """With a disk that is full, as a limit of the size of files stands for it."""
    limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, most))
    try:
        result = lode("db", "backup", "backup.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
        signal.signal(signal.SIGXFSZ, before)
    assert (result.code, "The backup cannot be written to" in result.err) == (5, True), result.err
    assert [path.name for path in home.iterdir()] == ["lode-data"]


def test_a_backup_of_nothing_is_none(lode, home):
    result = lode("db", "backup", "backup.db")
    assert (result.code, "lode.db is not there" in result.err) == (5, True)
    assert list(home.iterdir()) == []


def test_postgresql_is_backed_up_by_its_own_program(lode, home):
    (home / "lode.toml").write_text(
        f'[store]\nurl = "postgresql://lode:{SECRET}@db.example.org:5433/jobs?sslmode=require"\n'
    )
    (home / "lode.toml").chmod(0o600)
    result = lode("db", "backup", "my backup.dump")
    assert result.code == 1
    assert result.out.startswith("pg_dump --format=custom '--file=my backup.dump' ")
    for part in ("user=lode", "host=db.example.org", "port=5433", "dbname=jobs", "sslmode=require"):
        assert part in result.out
    assert SECRET not in result.out + result.err
    assert "Nothing was written" in result.err
    answer = lode("db", "backup", "b.dump", "--json")
    assert (answer.code, answer.json["file"]) == (1, None)


# --- migrate


@pytest.fixture
def older(home):
    """A database as an older program left it."""
    return restore(SqliteDatabase(home / "lode-data" / "lode.db"))


def test_missing_migrations_are_listed_and_then_applied(lode, older):
    names = [script.name for script in load_scripts()]
    before = older.path.read_bytes()
    with closing(older.writer(migrates=False)):  # a dry run may be beside a server
        dry = lode("db", "migrate", "--dry-run")
        assert (dry.code, dry.out.split()) == (0, names)
        assert lode("db", "migrate").code == 6
    assert older.path.read_bytes() == before
    wet = lode("db", "migrate")
    assert (wet.code, wet.out.split()) == (0, names)
    assert "2 migrations applied" in wet.err
    for words in (["--dry-run"], []):
        again = lode("db", "migrate", *words)
        assert (again.code, again.out) == (0, "")
        assert "No migration is missing" in again.err
    assert lode("db", "migrate", "--json").json == {"migrations": [], "applied": True}


def test_an_older_database_has_to_be_migrated_before_it_is_copied(lode, older):
    result = lode("db", "copy", "lode-data/lode.db", "copy.db")
    assert (result.code, "Migrations are missing in" in result.err) == (5, True)
    assert "lode db migrate" in result.err


def test_a_database_of_before_is_backed_up_as_it_is(lode, older, home):
    assert lode("db", "backup", "kept.db").code == 0
    with closing(SqliteDatabase(home / "kept.db").reader()) as db:
        assert db.only("SELECT max(number) FROM migration") == (42,)


def test_what_is_too_old_is_said_and_left_alone(lode, older):
    with closing(older.writer(migrates=False)) as db:
        db.change("DELETE FROM migration WHERE number > 30")
    before = older.path.read_bytes()
    for words in (["--dry-run"], []):
        result = lode("db", "migrate", *words)
        assert (result.code, result.out) == (5, "")
        assert (
            "lode.db is too old: its last migration is 30; the oldest that this program opens" in result.err
        )
        assert "lode db migrate of commit 7f956eda" in result.err
    assert older.path.read_bytes() == before


def test_there_is_nothing_to_migrate(lode, home):
    for words in (["--dry-run"], []):
        result = lode("db", "migrate", *words)
        assert (result.code, "lode.db is not there" in result.err) == (5, True)
    assert json.dumps([path.name for path in home.iterdir()]) == "[]"
