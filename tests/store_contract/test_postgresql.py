"""What only PostgreSQL has: connections that end, a second server, values that it stores in its own way, faults."""

from __future__ import annotations

import math
import os
import pickle
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store import SqliteDatabase, database_at, incarnation
from lodesman.server.store.database import CommitInDoubt, ConnectionLost
from lodesman.server.store.ids import Ids
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.statement import Statement

pytestmark = pytest.mark.postgresql

NOTE = Statement(sql="INSERT INTO note (text) VALUES (?)", key=(0,))


@pytest.fixture
def writer(database):
    db = database.writer()
    db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE, n BIGINT, x DOUBLE PRECISION, b BYTEA)")
    yield db
    db.close()


@pytest.fixture
def journal(writer):
    journal = Journal(writer, clock=lambda: 100.0)
    journal.start()
    yield journal
    journal.close()


def note(tx, text, then=lambda: None):
    tx.later(NOTE, (text,))
    then()
    tx.flush()
    return text


def notes(database):
    with closing(database.reader()) as db:
        return sorted(text for (text,) in db.execute("SELECT text FROM note"))


def test_it_has_the_indexes_of_sqlite(writer, tmp_path):
    names = "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    with closing(SqliteDatabase(tmp_path / "lode.db").writer()) as db:
        there = {name for (name,) in db.execute(names)}
    here = {name for (name,) in writer.execute("SELECT indexname FROM pg_indexes")}
    assert there
    assert there - here == set()


# --- values ----------------------------------------------------------------------------------------------

ROWS = [
    ("plain", 1, 1.5, b"\x00\xff"),
    ('quo"te', None, None, None),
    ("back\\slash, {brace}", -(2**62), -0.0, b""),
    ("NULL", 0, 1e300, b"\\"),
    ("é\n\t", True, 2, b"x"),
]


@pytest.mark.parametrize("rows", [ROWS, *([row] for row in ROWS)], ids=lambda rows: str(len(rows)))
def test_values_come_back_as_they_were(writer, rows):
    writer.change_each("INSERT INTO note (text, n, x, b) VALUES (?,?,?,?)", rows)
    assert sorted(writer.execute("SELECT text, n, x, b FROM note")) == sorted(rows)


def test_what_sqlite_stores_otherwise_is_stored_as_there(writer):
    rows = [("a\0b", 1, math.nan, b""), ("c\0", 2, math.nan, b"")]
    for some in (rows[:1], [("d\0", 3, math.nan, b""), ("e\0", 4, math.nan, b"")]):
        writer.change_each("INSERT INTO note (text, n, x, b) VALUES (?,?,?,?)", some)
    found = list(writer.execute("SELECT text, x FROM note ORDER BY n"))
    assert found == [("a\ufffdb", None), ("d\ufffd", None), ("e\ufffd", None)]


def test_sums_and_conditions_are_numbers(writer):
    writer.change_each("INSERT INTO note (text, n) VALUES (?,?)", [("a", 2**40), ("b", 1)])
    assert writer.only("SELECT sum(n), n > 1, sum(x) FROM note GROUP BY n ORDER BY n LIMIT 1") == (1, 0, None)
    assert type(writer.only("SELECT sum(n) FROM note")[0]) is int


def test_a_key_that_comes_twice_is_changed_twice(writer):
    writer.change_each("INSERT INTO note (text, n) VALUES (?,?)", [("a", 0), ("b", 0)])
    writer.change_each("UPDATE note SET n = n + ? WHERE text = ?", [(1, "a"), (10, "b"), (100, "a")])
    assert list(writer.execute("SELECT text, n FROM note ORDER BY text")) == [("a", 101), ("b", 10)]


# --- connections that end ----------------------------------------------------------------------------------


def test_a_read_connection_comes_back_by_itself(maker, database, writer):
    with closing(database.reader()) as db:
        maker.end_sessions(database)
        assert db.only("SELECT count(*) FROM note") == (0,)
        with db:
            maker.end_sessions(database)
            with pytest.raises(ConnectionLost):
                db.only("SELECT count(*) FROM note")
        with db:
            assert db.only("SELECT count(*) FROM note") == (0,)


def test_reads_together_see_one_moment(database, journal):
    with closing(database.reader()) as db:
        with db:
            assert db.only("SELECT count(*) FROM note") == (0,)
            journal.call(Change(note, "later"))
            with db:
                assert db.only("SELECT count(*) FROM note") == (0,)
            assert db.only("SELECT count(*) FROM note") == (0,)
        assert db.only("SELECT count(*) FROM note") == (1,)


def test_nothing_is_answered_as_stored_whose_connection_ended_before_the_commit(maker, database, journal):
    """Of one batch: what was written before, what the end interrupts, and what comes after."""
    gate, results, done = threading.Event(), {}, threading.Event()
    ends = iter([lambda: maker.end_sessions(database)])

    def answer(text, result):
        results[text] = result
        if len(results) == 3:
            done.set()

    journal.post(Change(lambda _tx: gate.wait(30)), lambda _: None)
    for text, then in (("a", None), ("b", lambda: next(ends, lambda: None)()), ("c", None)):
        journal.post(Change(note, text, then or (lambda: None)), partial(answer, text))
    gate.set()
    assert done.wait(30)
    assert notes(database) == [text for text, result in sorted(results.items()) if result == text]
    assert journal.call(Change(note, "next")) == "next"


@pytest.mark.parametrize("was_committed", [True, False])
def test_a_commit_in_doubt_is_asked_for(maker, database, journal, writer, was_committed, monkeypatch):
    commit, batches = type(writer).commit, []

    def breaks(self):
        if not batches:
            batches.append(1)
            if was_committed:
                commit(self)
            maker.end_sessions(database)
            self.connection.close()
            raise CommitInDoubt("in doubt")
        batches.append(1)
        commit(self)

    monkeypatch.setattr(type(writer), "commit", breaks)
    results, done = [], threading.Event()
    for text in ("a", "b"):
        journal.post(Change(note, text), lambda r: (results.append(r), len(results) == 2 and done.set()))
    assert done.wait(30)
    if was_committed:
        assert results == ["a", "b"]
    assert [str(one) for one in results if one not in ("a", "b")] in ([], ["in doubt"])
    assert notes(database) == sorted(one for one in results if isinstance(one, str))


def test_while_the_database_is_away_all_is_refused_in_time(maker, database, journal):
    journal.call(Change(note, "before"))
    with maker.away(database):
        for _ in range(3):
            with pytest.raises(Unavailable, match="is lost"):
                journal.call(Change(note, "away"), 5.0)
        assert "lost" in journal.trouble
    writer_is_back(journal)
    assert journal.trouble == ""
    assert notes(database) == ["before", "then"]


def test_what_waits_behind_a_commit_in_doubt_is_refused_in_time(
    maker, database, journal, writer, monkeypatch
):
    """And the batch in doubt is answered as it turned out."""
    commit, answers, done, began = type(writer).commit, [], threading.Event(), threading.Event()
    gone = maker.away(database)

    def breaks(self):
        monkeypatch.undo()
        commit(self)
        gone.__enter__()
        self.connection.close()
        began.set()
        raise CommitInDoubt("in doubt")

    monkeypatch.setattr(type(writer), "commit", breaks)
    journal.post(Change(note, "doubt"), lambda answer: (answers.append(answer), done.set()))
    assert began.wait(30)
    with pytest.raises(Unavailable, match="is lost"):
        journal.call(Change(note, "behind"), 5.0)
    assert answers == []
    gone.__exit__(None, None, None)
    assert done.wait(30)
    assert answers == ["doubt"]
    assert notes(database) == ["doubt"]


def writer_is_back(journal):
    """Once a second a connection is tried."""
    for _ in range(10_000_000):
        try:
            return journal.call(Change(note, "then"))
        except Unavailable:
            continue
    raise AssertionError


# --- one writer --------------------------------------------------------------------------------------------


def test_a_server_that_was_replaced_ends_and_writes_nothing(maker, database, journal):
    maker.end_sessions(database)
    with closing(database.writer()) as other:
        with other:
            other.change("UPDATE leadership SET epoch = epoch + 1")
        with pytest.raises(Unavailable):
            journal.call(Change(note, "stale"))
        assert "took over" in journal.fault.message
    assert notes(database) == []


def test_a_second_server_is_refused_with_the_place_of_the_first(database, writer):
    with pytest.raises(Conflict, match=r"Another server, at .*, already owns the database test_"):
        database.writer()


def test_another_server_that_began_and_ended_meanwhile_is_noticed(maker, database, journal):
    maker.end_sessions(database)
    with closing(database.writer()) as other, other:
        other.change("UPDATE leadership SET epoch = epoch + 1")
    with pytest.raises(Unavailable):
        journal.call(Change(note, "stale"))
    assert "took over" in journal.fault.message


# --- strangers ---------------------------------------------------------------------------------------------

LOCK = "SELECT pg_advisory_lock{}(7813574265402122606)"


@pytest.fixture
def stranger(maker, database):
    """Connects to the database as another role, which may do nothing there."""
    maker.make_user("mallory")
    connections = []

    def connect():
        url = maker.url_of(user="mallory", dbname=maker.name_of(database))
        connections.append(psycopg.connect(url, autocommit=True, application_name="lodesman writer"))
        return connections[-1]

    yield connect
    for one in connections:
        one.close()


@pytest.mark.parametrize("kind", ["", "_shared"])
def test_a_stranger_with_the_lock_keeps_no_server_from_its_start(database, stranger, caplog, kind):
    stranger().execute(LOCK.format(kind))
    with closing(database.writer()), pytest.raises(Conflict, match="already owns"):
        database.writer()
    database.writer().close()
    assert "another role has the lock" in caplog.text
    assert {record.role for record in caplog.records if hasattr(record, "role")} == {"mallory"}


def test_a_stranger_who_waits_for_the_lock_ends_no_server(maker, database, journal, stranger):
    """She has it as soon as the session of the server ends."""
    mallory = stranger()
    waits = threading.Thread(target=mallory.execute, args=(LOCK.format(""),))
    waits.start()
    wait_for(database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    journal.call(Change(note, "before"))
    with closing(psycopg.connect(database.url, autocommit=True)) as admin:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> 'mallory' AND "
                      "application_name = 'lodesman writer' AND datname = current_database()")  # fmt: skip
    waits.join(30)
    assert writer_is_back(journal) == "then"
    assert (journal.fault, notes(database)) == (None, ["before", "then"])
    # A second server is still noticed, also when the stranger has gone and the lock is free.
    mallory.close()
    with pytest.raises(Conflict, match="already owns"):
        database.writer()
    assert journal.call(Change(note, "last")) == "last"


def test_without_the_lock_a_server_that_was_replaced_ends(maker, database, journal, stranger):
    maker.end_sessions(database)
    stranger().execute(LOCK.format(""))
    with closing(database.writer()) as other:
        with other:
            other.change("UPDATE leadership SET epoch = epoch + 1")
        for _ in range(10_000_000):  # a connection is tried from time to time
            with pytest.raises(Unavailable):
                journal.call(Change(note, "stale"))
            if journal.fault is not None:
                break
        assert "took over" in journal.fault.message
    assert notes(database) == []


def test_a_database_that_every_role_may_enter_is_named(maker, database):
    name = maker.name_of(database)
    with closing(database.writer()) as db:
        assert f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC" in db.openness()
        db.run_script(f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
        assert db.openness() == ""
        db.run_script(f"GRANT CONNECT ON DATABASE {name} TO PUBLIC")


def wait_for(database, query):
    with closing(database.reader()) as db:
        for _ in range(10_000_000):
            if db.only(query)[0]:
                return
    raise AssertionError(query)


# --- which database it is ----------------------------------------------------------------------------------


def begun(database):
    with closing(database.writer()) as db:
        is_other = incarnation.begin(db)
        return is_other, Ids(db).incarnation


def test_the_same_database_stays_what_it_is_also_for_a_server_elsewhere(database, tmp_path):
    assert begun(database)[0] is False
    _, first = begun(database)
    elsewhere = database_at(database.url, tmp_path / "elsewhere")
    assert begun(elsewhere) == (False, first)
    assert begun(database) == (False, first)


def test_a_copy_is_another(maker, database, tmp_path):
    begun(database)
    copy = maker.copy(database, tmp_path / "copy")
    assert begun(copy)[0] is True
    maker.drop(copy)


def test_an_older_state_is_another_where_the_newer_one_was_seen(database):
    with closing(database.writer()) as db:
        incarnation.begin(db)
        with db:
            db.change("UPDATE leadership SET batch = batch + 5, next_job = 77")
        incarnation.note(db)
        with db:  # as a dump of before does
            db.change("UPDATE leadership SET batch = batch - 5, next_job = 1")
    assert begun(database)[0] is True
    with closing(database.reader()) as db:
        assert db.only("SELECT next_job FROM leadership") == (77,)


def test_a_database_that_is_empty_where_another_one_was_seen_is_refused(maker, database, tmp_path):
    incarnation.refuse_new(database)  # nothing was seen yet
    begun(database)
    incarnation.refuse_new(database)
    empty = maker.empty(database.folder)
    with pytest.raises(incarnation.DatabaseLost, match="there is nothing in the database test_"):
        incarnation.refuse_new(empty)
    with closing(empty.reader()) as db:
        assert not db.tables()
    assert begun(empty)[0] is True, "accepted"
    incarnation.refuse_new(empty)
    maker.drop(empty)


# --- faults at the start -----------------------------------------------------------------------------------


def refused(database):
    with pytest.raises(Unavailable) as found, database.usable():
        database.writer()
    assert found.value.hint
    return found.value.message


def other(maker, tmp_path, **changes):
    return database_at(maker.url_of(**changes), tmp_path)


def test_a_server_that_is_missing(maker, tmp_path):
    found = refused(other(maker, tmp_path, host=str(tmp_path), dbname="x"))
    assert found == f"The database x at {tmp_path} cannot be reached."


def test_a_database_that_is_missing(maker, tmp_path):
    assert "does not exist" in refused(other(maker, tmp_path, dbname="no_such_database"))


def test_a_user_that_is_missing(maker, tmp_path):
    assert "does not exist" in refused(other(maker, tmp_path, user="no_such_user"))


def test_a_user_without_rights(maker, tmp_path):
    maker.make_user("stranger")
    database = maker.empty(tmp_path)
    found = refused(other(maker, tmp_path, user="stranger", dbname=maker.name_of(database)))
    assert "does not let this user make tables" in found


def test_a_database_that_takes_no_changes(maker, database):
    maker.configure(database, "default_transaction_read_only = on")
    assert "takes no changes" in refused(database)


def test_a_database_of_another_program(maker, tmp_path):
    database = maker.empty(tmp_path)
    with closing(database.connect()) as db:
        db.execute("CREATE TABLE x (a int)")
    assert "has tables of another program" in refused(database)


def test_an_old_server_is_refused(database, monkeypatch):
    monkeypatch.setattr("lodesman.server.store.postgresql._OLDEST", 990_000)
    assert "14 or newer is needed" in refused(database)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('FATAL:  password authentication failed for user "x"', "refuses the password"),
        ("fe_sendauth: no password supplied", "refuses the password"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4"', "does not let this user in from here"),
        ("server does not support SSL, but SSL was required", "does not speak TLS"),
        ('root certificate file "/home/ann/.postgresql/root.crt" does not exist', "no certificate"),
        ("FATAL:  sorry, too many clients already", "has no connection left"),
        ("FATAL:  the database system is starting up", "is starting"),
        ("FATAL:  the database system is in recovery mode", "recovers from a fault"),
        ("FATAL:  the database system is not yet accepting connections", "recovers from a fault"),
    ],
)
def test_what_the_server_says_is_put_in_words(database, said, words):
    from psycopg import OperationalError  # noqa: PLC0415 - not there without PostgreSQL

    with pytest.raises(Unavailable, match=words), database.usable():
        raise OperationalError(said)


def test_no_password_is_shown(tmp_path, caplog):
    url = f"postgresql://ann:s3cret@/x?host={tmp_path}"
    database = database_at(url, tmp_path)
    with pytest.raises(Unavailable) as found, database.usable():
        database.writer()
    assert "s3cret" not in f"{found.value!r} {found.value.data} {database!r} {database} {caplog.text}"
    assert pickle.loads(pickle.dumps(database)) == database


# --- the schema --------------------------------------------------------------------------------------------

COLUMNS = """SELECT table_name, column_name, is_nullable FROM information_schema.columns
WHERE table_schema = 'public'"""
INDEXES = """SELECT indexname FROM pg_indexes WHERE schemaname = 'public'
AND indexname NOT LIKE '%_key' AND indexname NOT LIKE '%_pkey'"""
OF_SQLITE = "SELECT name FROM sqlite_schema WHERE type = ? AND name NOT LIKE 'sqlite_%'"


def test_both_databases_have_the_same_tables_columns_and_indexes(database, tmp_path):
    """Some migrations have a text for each."""
    with closing(SqliteDatabase(tmp_path / "lode.db").writer()) as lite:
        tables = [name for kind in ("table", "view") for (name,) in lite.execute(OF_SQLITE, (kind,))]
        columns = {(name, row[1]) for name in tables for row in lite.execute(f"PRAGMA table_xinfo({name})")}
        needed = {(t, row[1]) for t in tables for row in lite.execute(f"PRAGMA table_xinfo({t})") if row[3]}
        indexes = {name for (name,) in lite.execute(OF_SQLITE, ("index",))}
    with closing(database.reader()) as db:
        found = list(db.execute(COLUMNS))
        assert {(table, column) for table, column, _ in found} == columns
        assert needed <= {(table, column) for table, column, nullable in found if nullable == "NO"}
        assert {name for (name,) in db.execute(INDEXES)} == indexes


@pytest.mark.parametrize(
    ("url", "places"),
    [
        ("postgresql://ann@/lode?host=/var/lib/pg", {"/var/lib/pg", "~/.pgpass", "~/.postgresql"}),
        ("postgresql:///lode", {"/var/run/postgresql", "/tmp/.s.PGSQL.5432"}),
        ("postgresql://db.lab/lode?passfile=/etc/pass&sslkey=/etc/key", {"/etc/pass", "/etc/key"}),
        ("postgresql:///lode?host=/tmp&port=6000", {"/tmp/.s.PGSQL.6000"}),
    ],
)
def test_what_leads_into_the_database_of_an_account(tmp_path, monkeypatch, url, places):
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    found = database_at(url, tmp_path).ways_in()
    assert {Path(place).expanduser() for place in places} <= set(found)
    assert Path("/tmp") not in found
