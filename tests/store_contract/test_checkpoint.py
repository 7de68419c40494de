"""The log of the database is moved in pieces, by a thread and, to its end, by the writer; no answer is lost meanwhile."""

import sqlite3
from itertools import pairwise

import apsw
import pytest

from lodesman.server.store import SqliteDatabase, sqlite_checkpoints
from lodesman.server.store.sqlite_checkpoints import (
    CHECKPOINT_PAGES,
    LOG_PAGES,
    MOST_PAGES,
    REST_PAGES,
    Checkpointer,
)

pytestmark = pytest.mark.sqlite


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lode.db"


@pytest.fixture
def writer(path):
    db = SqliteDatabase(path).writer()
    db.execute("CREATE TABLE note (text TEXT NOT NULL)")
    yield db
    db.close()


class Watched(Checkpointer):
    """Records who moved, and moves nothing."""

    def __init__(self, db, path):
        super().__init__(db, path)
        self.by_writer = 0

    def _move(self, db):
        self.by_writer += 1

    def commit(self, pages, *, moved):
        """Who is asked to move after a commit that leaves a log of this number of pages."""
        self._moved, self.by_writer = moved, 0
        self._wanted.clear()
        self._committed(None, "main", pages)
        return "writer" if self.by_writer else "thread" if self._wanted.is_set() else None


@pytest.mark.parametrize(
    ("pages", "moved", "who"),
    [
        (1, 0, None),
        (CHECKPOINT_PAGES, 0, None),
        (CHECKPOINT_PAGES + 1, 0, "thread"),
        # What was moved is not moved again: else each commit would be followed by a checkpoint.
        (CHECKPOINT_PAGES + 2, CHECKPOINT_PAGES + 1, None),
        (2 * CHECKPOINT_PAGES + 2, CHECKPOINT_PAGES + 1, "thread"),
        (LOG_PAGES, LOG_PAGES - 1, None),
        (LOG_PAGES + 1, LOG_PAGES - REST_PAGES, "thread"),
        (LOG_PAGES + 1, LOG_PAGES + 1 - REST_PAGES, "writer"),
        (MOST_PAGES, 0, "thread"),
        (MOST_PAGES + 1, 0, "writer"),
        # A log that is shorter than what was moved of it is a new one.
        (10, LOG_PAGES, None),
        (CHECKPOINT_PAGES + 1, LOG_PAGES, "thread"),
    ],
)
def test_the_thread_that_moves_the_log(writer, path, pages, moved, who):
    assert Watched(writer, path).commit(pages, moved=moved) == who


def test_small_commits_are_not_followed_by_checkpoints(writer, path, monkeypatch):
    monkeypatch.setattr(sqlite_checkpoints, "CHECKPOINT_PAGES", 20)
    checkpointer = Checkpointer(writer, path)
    moves = []
    for number in range(200):
        writer.execute("INSERT INTO note VALUES (?)", (f"{number}",))
        if checkpointer._wanted.is_set():
            checkpointer._wanted.clear()
            checkpointer._move(writer.connection)
            moves.append(number)
    assert 2 <= len(moves) <= 20


def test_under_load_the_log_begins_anew(writer, path, monkeypatch):
    monkeypatch.setattr(sqlite_checkpoints, "CHECKPOINT_PAGES", 10)
    monkeypatch.setattr(sqlite_checkpoints, "LOG_PAGES", 60)
    monkeypatch.setattr(sqlite_checkpoints, "REST_PAGES", 30)
    checkpointer = Checkpointer(writer, path)
    sizes = []
    seen = checkpointer._committed

    def committed(db, name, pages):
        sizes.append(pages)
        return seen(db, name, pages)

    writer.connection.set_wal_hook(committed)
    checkpointer.start()
    written = 0
    while written < 20_000 and not any(after < before for before, after in pairwise(sizes)):
        writer.execute("INSERT INTO note VALUES (?)", ("x" * 2_000,))
        written += 1
    checkpointer.close()
    assert any(after < before for before, after in pairwise(sizes)), max(sizes)
    assert max(sizes) > 60
    (count,) = sqlite3.connect(path).execute("SELECT count(*) FROM note").fetchone()
    assert count == written


def test_what_a_reader_still_reads_stays(writer, path, monkeypatch):
    monkeypatch.setattr(sqlite_checkpoints, "LOG_PAGES", 5)
    checkpointer = Checkpointer(writer, path)
    writer.execute("INSERT INTO note VALUES ('before')")
    reader = SqliteDatabase(path).reader()
    reader.execute("BEGIN")
    assert reader.execute("SELECT text FROM note").fetchall() == [("before",)]
    checkpointer.start()
    for _ in range(50):
        writer.execute("INSERT INTO note VALUES (?)", ("x" * 2_000,))
    assert reader.execute("SELECT text FROM note").fetchall() == [("before",)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*) FROM note").fetchall() == [(51,)]
    reader.close()
    checkpointer.close()
    assert path.stat().st_size > 100_000


def test_a_checkpoint_that_fails_ends_no_commit(writer, path, monkeypatch, caplog):
    class Faulty:
        def wal_checkpoint(self, mode):
            raise apsw.FullError("disk full")

    checkpointer = Checkpointer(writer, path)
    checkpointer._moved = LOG_PAGES
    assert checkpointer._committed(Faulty(), "main", LOG_PAGES + 1) == apsw.SQLITE_OK
    assert "a checkpoint failed" in caplog.text

    class Busy:
        def wal_checkpoint(self, mode):
            raise apsw.BusyError("somebody else")

    caplog.clear()
    assert checkpointer._committed(Busy(), "main", LOG_PAGES + 1) == apsw.SQLITE_OK
    assert caplog.text == ""
    assert checkpointer._moved == LOG_PAGES


def test_the_checkpointer_moves_the_log_into_the_database(writer, path):
    checkpointer = Checkpointer(writer, path)
    checkpointer.start()
    writer.execute("INSERT INTO note VALUES (?)", ("x" * 100_000,))
    checkpointer.close()
    assert path.stat().st_size > 100_000
