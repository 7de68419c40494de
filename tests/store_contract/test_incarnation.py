"""A database that was restored, copied or is older than the last one here is another incarnation."""

from __future__ import annotations

import secrets
import shutil
from contextlib import closing

import msgspec
import pytest

from lodesman.base import kernel
from lodesman.server.store import SqliteDatabase, incarnation
from lodesman.server.store.ids import Ids
from lodesman.server.store.shelf import Shelf

pytestmark = pytest.mark.sqlite


class Run:
    """A database as a server uses it: started, changed, noted, and stopped."""

    def __init__(self, path):
        self.path = path
        self.is_other = None

    def start(self, **more):
        self.db = SqliteDatabase(self.path).writer()
        self.is_other = incarnation.begin(self.db, **more)
        self.ids = Ids(self.db)
        return self

    def commit(self, jobs=1):
        with self.db:
            self.db.change("UPDATE leadership SET batch = batch + 1, next_job = next_job + ?", (jobs,))
            mark = secrets.token_hex(4)
            row = "INSERT INTO token (hash, kind, pilot_id, created_at) VALUES (?, ?, 1, 0)"
            for kind in ("user", "join", "joined", "pilot"):
                self.db.change(row, (f"{kind}{mark}".encode(), kind))
        incarnation.note(self.db)
        return self

    def tokens(self):
        return sorted({kind for (kind,) in self.db.execute("SELECT kind FROM token")})

    def stop(self):
        self.db.close()
        return self

    def backup(self, name="backup"):
        self.db.execute("VACUUM INTO ?", (str(self.path.with_name(name)),))
        return self.path.with_name(name)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "data").mkdir()
    return Run(tmp_path / "data" / "lode.db").start().commit()


def test_a_copy_that_got_the_inode_of_the_file_it_replaces_is_another_database(run):
    """As after `rm lode.db*` and a copy of the backup of all of them: file systems give the number again at once."""
    run.stop()
    if not kernel.birth_of(str(run.path)):
        pytest.skip("this file system does not say when a file was made")
    (note,) = incarnation._files(run.db.database)
    shutil.copy(run.path, run.path.with_name("copy"))
    run.path.with_name("copy").replace(run.path)
    seen = msgspec.structs.replace(incarnation._read(note), inode=run.path.stat().st_ino)
    note.write_bytes(msgspec.json.encode(seen))
    assert run.start().is_other
    # A note from before this was noted says nothing of it.
    run.stop()
    (note,) = incarnation._files(run.db.database)
    note.write_bytes(msgspec.json.encode(msgspec.structs.replace(incarnation._read(note), made=0)))
    assert not run.start().is_other


def test_the_same_database_stays_what_it_is(run):
    first = run.ids.incarnation
    assert run.is_other is False
    assert len(first) == 8
    for _ in range(3):
        run.stop().start().commit()
        assert (run.is_other, run.ids.incarnation) == (False, first)
    assert run.tokens() == ["join", "joined", "pilot", "user"]
    assert len(list(run.path.parent.glob("lode.seen-*"))) == 1


def restore_by_copy(run, backup):
    shutil.copy(backup, run.path)  # the same inode


def restore_by_move(run, backup):
    backup.replace(run.path)


@pytest.mark.parametrize("restore", [restore_by_copy, restore_by_move])
def test_after_a_restore_pilots_are_refused_and_ids_are_new(run, restore):
    before, backup = run.ids.incarnation, run.backup()
    for _ in range(5):
        run.commit(jobs=10)
    last_job = Ids(run.db).next_job
    run.stop()
    restore(run, backup)
    for end in ("-wal", "-shm"):
        run.path.with_name(f"lode.db{end}").unlink(missing_ok=True)
    run.start()
    assert run.is_other
    assert run.ids.incarnation != before
    assert run.ids.next_job == last_job
    assert run.tokens() == ["user"]
    again = run.stop().start()
    assert not again.is_other, "only once"


def test_a_whole_folder_laid_over_the_newer_one_is_noticed(run, tmp_path):
    run.stop()
    shutil.copytree(run.path.parent, tmp_path / "older")
    run.start().commit(jobs=50).stop()
    shutil.copytree(tmp_path / "older", run.path.parent, dirs_exist_ok=True)  # all inodes stay
    assert run.start().is_other
    assert run.ids.next_job == 52


def test_a_copy_is_another_and_the_original_is_not(run, tmp_path):
    run.stop()
    shutil.copytree(run.path.parent, tmp_path / "copy")
    assert Run(tmp_path / "copy" / "lode.db").start().is_other
    assert not run.start().is_other


def test_a_new_database_beside_old_notes_goes_on_with_the_ids(run):
    run.commit(jobs=7).stop()
    run.path.unlink()
    assert run.start().is_other
    assert run.ids.next_job == 9


def delete(path):
    path.unlink()


def delete_but_its_log(path):
    path.with_name("lode.db-wal").write_bytes(b"what was committed last")
    path.unlink()


def empty(path):
    path.write_bytes(b"")


def make_anew(path):
    path.unlink()
    SqliteDatabase(path).writer().close()  # a start that was broken off


def leave_notes_alone(path):
    notes = {note: note.read_bytes() for note in path.parent.glob("lode.seen-*")}
    shutil.rmtree(path.parent)
    path.parent.mkdir()
    for note, content in notes.items():
        note.write_bytes(content)


def spoil_its_note(path):
    path.unlink()
    for note in path.parent.glob("lode.seen-*"):
        note.write_bytes(b"")


@pytest.mark.parametrize(
    "lose", [delete, delete_but_its_log, empty, make_anew, leave_notes_alone, spoil_its_note]
)
def test_a_database_that_is_missing_is_refused_and_nothing_is_changed(run, lose):
    database = SqliteDatabase(run.path)
    run.stop()
    incarnation.refuse_new(database)
    lose(run.path)
    before = {file: file.read_bytes() for file in run.path.parent.iterdir()}
    with pytest.raises(incarnation.DatabaseLost, match=r"nothing in .*lode.db, and .*/lode.seen-0+2 is of"):
        incarnation.refuse_new(database)
    assert {file: file.read_bytes() for file in before} == before
    assert run.path.exists() == (run.path in before)
    # Once accepted it is as any other.
    run.start().stop()
    incarnation.refuse_new(database)


def test_a_first_start_and_a_database_that_was_restored_are_not_refused(run, tmp_path):
    incarnation.refuse_new(SqliteDatabase(tmp_path / "lode.db"))
    backup = run.backup()
    run.commit().stop()
    restore_by_move(run, backup)
    incarnation.refuse_new(run.db.database)
    # One of before there were incarnations, and notes.
    with closing(SqliteDatabase(run.path).writer()) as db:
        db.change("UPDATE leadership SET incarnation = '', batch = 0, epoch = 1")
    incarnation.refuse_new(run.db.database)


def test_a_database_alone_counts_outputs_that_lie_beside_it(run, tmp_path):
    shelf = Shelf(tmp_path / "sandboxes", limit_bytes=1)
    assert shelf.next_job() == 1
    for job in (7, 999, 2_041):
        shelf.output_path(job, 1).parent.mkdir(parents=True, exist_ok=True)
        shelf.output_path(job, 1).touch()
    shelf.output_path(2_041, 1).with_name(".5000.1.tar.gz.part").touch()
    assert shelf.next_job() == 2_042
    (tmp_path / "new").mkdir()
    found = run.backup().replace(tmp_path / "new" / "lode.db")
    alone = Run(found).start(next_job=shelf.next_job())
    assert alone.is_other
    assert alone.ids.next_job == 2_042


def test_a_note_that_is_broken_says_nothing(run):
    run.path.with_name("lode.seen-999999999999999").write_text("{")
    assert not run.stop().start().is_other


def test_the_mark_of_submissions_is_that_of_the_incarnation(run, tmp_path):
    mark = incarnation.mark_of(run.db)
    assert (len(mark), set(mark) <= set("0123456789abcdef")) == (6, True)
    copy = Run(run.backup())
    run.stop().start()
    assert incarnation.mark_of(run.db) == mark  # it outlives the process
    (tmp_path / "data" / "lode.db").unlink()
    shutil.move(copy.path, run.path)
    assert run.stop().start().is_other
    assert incarnation.mark_of(run.db) != mark
