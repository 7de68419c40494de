"""A PostgreSQL that keeps its connections and does not answer: nothing waits for it for long, nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.store.database import ConnectionLost
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.statement import Statement

pytestmark = pytest.mark.postgresql

COUNT = "SELECT count(*) FROM note"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    for name in ("WRITE", "LOOP", "THERE", "PAUSE"):
        seconds = 0.0 if name == "PAUSE" else 0.5
        monkeypatch.setattr(f"lodesman.server.store.postgresql_connection._{name}_SECONDS", seconds)


@pytest.fixture
def journal(database):
    db = database.writer()
    db.execute("CREATE TABLE note (text TEXT NOT NULL UNIQUE)")
    journal = Journal(db, clock=lambda: 100.0)
    journal.start()
    yield journal
    journal.close()
    db.close()


INSERT = Statement(sql="INSERT INTO note (text) VALUES (?)", key=(0,))


def note(tx, text, then=lambda: None):
    tx.later(INSERT, (text,))
    tx.flush()
    then()
    return text


def notes(database):
    with closing(database.reader()) as db:
        return sorted(text for (text,) in db.execute("SELECT text FROM note"))


def is_back(journal):
    """Once in a while a connection is tried."""
    for _ in range(10_000_000):
        try:
            return journal.call(Change(note, "back"))
        except Unavailable:
            continue
    raise AssertionError


def test_what_waits_for_a_writer_that_hangs_is_refused_in_time(maker, database, journal):
    journal.call(Change(note, "before"))
    with maker.hanging(database):
        for _ in range(3):
            with pytest.raises(ConnectionLost, match="is lost"):
                journal.call(Change(note, "meanwhile"), 5.0)
        assert "lost" in journal.trouble
    is_back(journal)
    assert notes(database) == ["back", "before"]


def test_what_hangs_in_the_middle_of_a_batch_is_not_stored(maker, database, journal):
    hanging = maker.hanging(database)
    with pytest.raises(ConnectionLost):
        journal.call(Change(note, "first", hanging.__enter__), 10.0)
    hanging.__exit__(None, None, None)
    is_back(journal)
    assert notes(database) == ["back"]


def test_a_commit_that_hangs_is_answered_as_it_turned_out(maker, database, journal, monkeypatch):
    writer_class = type(journal._writer)
    commit, hanging, began = writer_class.commit, maker.hanging(database), threading.Event()
    answers, done = [], threading.Event()

    def hangs(self):
        monkeypatch.setattr(writer_class, "commit", commit)
        hanging.__enter__()
        began.set()
        commit(self)

    monkeypatch.setattr(writer_class, "commit", hangs)
    journal.post(Change(note, "doubt"), lambda answer: (answers.append(answer), done.set()))
    assert began.wait(30)
    with pytest.raises(Unavailable, match="is lost"):
        journal.call(Change(note, "behind"), 5.0)
    assert answers == []
    hanging.__exit__(None, None, None)
    assert done.wait(30)
    assert notes(database) == [one for one in answers if isinstance(one, str)]
    is_back(journal)


def test_a_thread_that_reads_does_not_wait_for_what_hangs(maker, database, journal):
    with closing(database.reader()) as db:
        assert db.only(COUNT) == (0,)
        with maker.hanging(database), pytest.raises(ConnectionLost):
            db.only(COUNT)
        with db:
            assert db.only(COUNT) == (0,)


def test_an_event_loop_does_not_wait_for_a_statement_that_hangs(maker, database, journal):
    """Other threads read for as long as it takes."""

    async def read(db):
        return db.only("SELECT count(*) FROM pg_sleep(1)")

    with closing(database.reader()) as db:
        with pytest.raises(ConnectionLost):
            asyncio.run(read(db))
        assert db.only("SELECT count(*) FROM pg_sleep(1)") == (1,)
