"""Files of the database that are gone, locked, or never were a database: one clear sentence each."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import threading

import apsw
import pytest

from lodesman.base.errors import LodesmanError, Unavailable
from lodesman.server.store import SqliteDatabase
from lodesman.server.store.database import DatabaseGone
from lodesman.server.store.files import DatabaseFiles
from lodesman.server.store.journal import Change, Journal
from lodesman.server.store.sqlite import refusal_of
from lodesman.server.store.statement import Statement

pytestmark = pytest.mark.sqlite

LOCK = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "lode.db"


def leave_database(path, rows=2_000):
    writer = SqliteDatabase(path).writer()
    writer.execute("CREATE TABLE note (text TEXT)")
    with writer:
        writer.change_each("INSERT INTO note VALUES (?)", [("x" * 200,)] * rows)
    writer.close()


def cut(path):
    leave_database(path)
    os.truncate(path, path.stat().st_size // 2)


def foreign(path):
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE x (a)")
    db.close()


UNUSABLE = {
    "garbage": (lambda path: path.write_bytes(os.urandom(9_000)), "is not a database. Move it away"),
    "cut short": (cut, "is damaged or cut short. Move it away"),
    "a folder": (lambda path: path.mkdir(), "is a folder, not a database. Move it away"),
    "foreign": (foreign, "has tables of another program. Give Lodesman a database of its own"),
    "a file as folder": (
        lambda path: (path.parent.rmdir(), path.parent.write_text("")), "cannot be used: File exists. Check its disk"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_is_no_database_is_refused_in_one_sentence_and_left_alone(path, kind):
    spoil, words = UNUSABLE[kind]
    spoil(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(Unavailable) as refused, SqliteDatabase(path).usable():
        SqliteDatabase(path).writer()
    assert words in str(refused.value)
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("kind", [apsw.FullError, apsw.ReadOnlyError, apsw.IOError, apsw.BusyError])
def test_each_fault_at_the_start_says_what_to_do(path, kind):
    with pytest.raises(Unavailable) as refused, SqliteDatabase(path).usable():
        raise kind
    assert refused.value.hint
    assert str(path) in refused.value.message


def test_a_log_that_has_the_pages_makes_a_short_file_whole(path):
    leave_database(path, rows=1)
    writer = SqliteDatabase(path).writer()
    writer.change_each("INSERT INTO note VALUES (?)", [("x" * 200,)] * 2_000)
    shutil.copytree(path.parent, path.parent.with_name("crashed"))
    SqliteDatabase(path.parent.with_name("crashed") / "lode.db").writer().close()
    writer.close()


# --- while the server runs -------------------------------------------------------------------------------


@contextlib.contextmanager
def journal_of(path):
    writer, died = SqliteDatabase(path).writer(), threading.Event()
    journal = Journal(writer, died=died.set)
    journal.ended = died
    journal.start()
    yield journal
    journal.close()
    writer.close()


def nothing(_tx):
    """A change of nothing."""


def delete_folder(path):
    shutil.rmtree(path.parent)


def move_folder(path):
    path.parent.rename(path.parent.with_name("moved"))


def replace(path):
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)


def delete_log(path):
    path.with_name("lode.db-wal").unlink()


@pytest.mark.parametrize("spoil", [delete_folder, move_folder, replace, delete_log])
def test_without_its_files_the_writer_refuses_and_ends_by_itself(path, spoil):
    with journal_of(path) as journal:
        journal.call(Change(nothing))
        spoil(path)
        assert journal.ended.wait(30), "an idle writer has to find out, too"
        assert "while the server ran" in journal.fault.message
        assert "backup" in journal.fault.hint
        with pytest.raises(Unavailable, match="while the server ran"):
            journal.call(Change(nothing))


def test_a_writer_in_use_finds_out_within_a_second_or_two(path):
    answers = []
    with journal_of(path) as journal:
        path.unlink()
        with contextlib.suppress(LodesmanError):
            while len(answers) < 10_000_000:
                answers.append(journal.call(Change(nothing)))
        assert journal.ended.wait(30)


def test_a_locked_database_is_answered_in_time_with_what_holds_it(path):
    with journal_of(path) as journal:
        other = subprocess.Popen([sys.executable, "-c", LOCK, path], stdin=-1, stdout=-1)
        other.stdout.readline()
        refusals, done = [], threading.Event()
        for number in range(1_200):  # more than a batch, and no replay
            journal.post(Change(nothing), lambda r, n=number: (refusals.append(r), n == 1_199 and done.set()))
        assert done.wait(5)
        assert {type(refusal) for refusal in refusals} == {Unavailable}
        assert f"locked by process {other.pid} (python" in str(refusals[0])
        assert "locked" in journal.trouble
        other.communicate()
        journal.call(Change(nothing))
        assert journal.trouble == ""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (apsw.FullError(), "The disk of the server is full."),
        (apsw.ReadOnlyError(), "The disk of the server is read-only; nothing was stored."),
        (apsw.CorruptError(), "The database refused the change; nothing was stored."),
        (OSError(errno.ENOSPC, "x"), "The disk of the server is full."),
        (OSError(errno.EROFS, "x"), "The disk of the server is read-only; nothing was stored."),
    ],
)
def test_what_a_command_is_answered_with(path, fault, words):
    assert refusal_of(fault, path).message == words
    assert refusal_of(ValueError(), path) is refusal_of(FileNotFoundError(2, "x"), path) is None


def test_a_disk_that_became_read_only_is_named_whatever_the_fault_is_called(path, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result((0,) * 8 + (os.ST_RDONLY, 0)))
    assert "read-only" in refusal_of(apsw.IOError(), path).message


def test_a_full_disk_refuses_and_recovers(path):
    leave_database(path, rows=1)
    with journal_of(path) as journal:
        db = journal._writer
        pages = db.only("PRAGMA page_count")[0]
        list(db.execute(f"PRAGMA max_page_count={pages}"))

        def big(tx):
            tx.later(Statement(sql="INSERT INTO note VALUES (?)"), ("x" * 5_000_000,))

        with pytest.raises(Unavailable, match="disk"):
            journal.call(Change(big))
        list(db.execute("PRAGMA max_page_count=1000000000"))
        journal.call(Change(big))


def test_a_database_that_is_written_over_is_gone(path):
    leave_database(path)
    writer = SqliteDatabase(path).writer()
    files = DatabaseFiles(path)
    files.check()
    os.truncate(path, path.stat().st_size // 2)
    files._due = 0.0
    with pytest.raises(DatabaseGone, match="overwritten"):
        files.check()
    writer.close()
