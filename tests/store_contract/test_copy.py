"""A copy of a database: every row of every table, there and back, also after an interruption."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager

import apsw
import pytest
from tests.kits.old_database import restore

from lodesman.base.errors import Conflict, Unavailable
from lodesman.server.store import SqliteDatabase, copy, incarnation
from lodesman.server.store.copy import tables
from lodesman.server.store.database import ConnectionLost
from lodesman.server.store.migrate import load_schema, load_scripts, migrate

TEXTS = ("plain", 'quo"te', "back\\slash, {brace}", "NULL", "é\n\t\u2028", "", "\\u0000", "x" * 3_000)
NUMBERS = (0, 1, -1, 2**62, -(2**53) - 1)
MEASURES = (0.0, 1.0, -2.5, 1e300, 0.1, 1_700_000_000.123456)
COLUMNS = 'SELECT name, type, "notnull" OR pk > 0, pk FROM pragma_table_xinfo(?) WHERE hidden = 0'


@pytest.fixture(scope="module")
def described():
    """The columns of each table: name, type, whether they need a value, place in the key."""
    with closing(apsw.Connection(":memory:")) as db:
        db.execute(load_schema().text)
        return {table.name: list(db.execute(COLUMNS, (table.name,))) for table in tables()}


def value(kind, needed, number, place):
    """A value of a column, no two alike in the texts, numbers and bytes that need one."""
    if not needed and (number + place) % 3 == 0:
        return None
    if kind == "REAL":
        return MEASURES[(number + place) % len(MEASURES)]
    if kind == "INTEGER":
        return NUMBERS[number] if number < len(NUMBERS) and not needed else number + 10
    text = f"{TEXTS[(number + place) % len(TEXTS)]}{number}"
    return text.encode() if kind == "BLOB" else text


def fill(db, described, count=40):
    """Rows in every table."""
    with db:
        for table in tables():
            columns = described[table.name]
            names = [name for name, *_ in columns]
            rows = [
                [value(kind, needed, n, place) for place, (_, kind, needed, _) in enumerate(columns)]
                for n in range(1 if names[0] == "one" else count)
            ]
            for n, row in enumerate(rows):
                if names[0] == "one":
                    row[0] = 1
                if table.name == "task_queue":
                    row[names.index("key")] = json.dumps({"n": n, "submit_pool": f"p{n}"})
            db.change(f"DELETE FROM {table.name}")
            db.change_each(
                f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({','.join('?' * len(names))})", rows
            )


def everything(database):
    """All rows of all tables with all their columns, also those that are computed."""
    with closing(database.reader()) as db:
        return {
            table.name: [
                list(map(repr, row)) for row in db.execute(f"SELECT * FROM {table.name} ORDER BY {table.key}")
            ]
            for table in tables()
        }


@contextmanager
def both(source, target):
    with closing(source.writer(migrates=False)) as reads, closing(target.writer(migrates=False)) as writes:
        yield reads, writes


def copied(source, target):
    with both(source, target) as (reads, writes):
        copy.check_source(reads)
        copy.begin_copy(reads, writes)
        return copy.copy_rows(reads, writes, lambda _: None)


@pytest.fixture
def full(database, described):
    """A database that is copied."""
    with closing(database.writer()) as db:
        fill(db, described)
    return database


@pytest.fixture
def empty(maker, tmp_path):
    """One of the same kind, with nothing in it."""
    (tmp_path / "copy").mkdir()
    found = maker.empty(tmp_path / "copy")
    yield found
    maker.drop(found)


@pytest.fixture
def file(tmp_path):
    """A database of SQLite that is not there yet."""
    return SqliteDatabase(tmp_path / "file" / "lode.db")


def test_every_table_is_described_and_filled(full, described):
    assert len(tables()) > 20
    assert all(0 < table.keys <= len(table.columns) for table in tables())
    with closing(full.reader()) as db:
        there = db.tables() - {"migration"}
    assert there == {table.name for table in tables()}
    assert all(everything(full).values())


@pytest.mark.slow
@pytest.mark.stores
def test_a_copy_there_and_back_is_equal_row_by_row(full, file, empty):
    """From SQLite to the other kind and back, or from one file by way of another."""
    before = everything(full)
    there = copied(full, file)
    assert everything(file) == before
    back = copied(file, empty)
    assert everything(empty) == before
    assert there == back
    assert {one.table: one.rows for one in there} == {name: len(rows) for name, rows in before.items()}
    assert not any(one.replaced for one in there)


def test_the_database_goes_on_with_the_ids(full, empty):
    copied(full, empty)
    insert = "INSERT INTO {} VALUES (1, 1, 'x') RETURNING id"
    with closing(empty.writer()) as db, db:
        last = db.only("SELECT max(id) FROM director_iteration")[0]
        found = db.only(insert.format("director_iteration (at, bytes, plan)"))
    assert found == (last + 1,)


def test_a_copy_is_a_whole_database_of_another_incarnation(full, empty):
    copied(full, empty)
    with closing(empty.writer()) as db:
        assert migrate(db) == []
        (before,) = db.only("SELECT incarnation FROM leadership")
        assert incarnation.begin(db)
        assert db.only("SELECT incarnation FROM leadership") != (before,)


def test_an_empty_database_is_copied(database, empty):
    copied(database, empty)
    assert everything(empty) == everything(database)
    assert everything(empty)["leadership"]


class InterruptedCopy(Exception):
    pass


def interrupted(source, target, *, after):
    """A copy that ends in the middle."""
    done = 0

    def advance(count):
        nonlocal done
        done += count
        if done >= after:
            raise InterruptedCopy

    with both(source, target) as (reads, writes):
        copy.begin_copy(reads, writes)
        copy.copy_rows(reads, writes, advance)


@pytest.mark.slow
@pytest.mark.stores
@pytest.mark.parametrize("after", [1, 300, 700, 1_100])
def test_an_interrupted_copy_goes_on_where_it_stopped(full, empty, after, monkeypatch):
    with pytest.raises(InterruptedCopy):
        interrupted(full, empty, after=after)
    with pytest.raises(Unavailable, match="unfinished copy"):
        empty.writer()
    before = sum(map(len, everything(empty).values()))
    written = []
    with both(full, empty) as (reads, writes):
        rows = copy.begin_copy(reads, writes)
        change_each = type(writes).change_each

        def counted(self, sql, rows):
            written.append(len(rows))
            return change_each(self, sql, rows)

        monkeypatch.setattr(type(writes), "change_each", counted)
        seen = []
        copy.copy_rows(reads, writes, seen.append)
    assert sum(written) == rows - before
    assert sum(seen) == 2 * rows
    assert everything(empty) == everything(full)


def test_an_interrupted_copy_of_what_has_changed_since_is_refused(full, empty):
    with pytest.raises(InterruptedCopy):
        interrupted(full, empty, after=300)
    with closing(full.writer()) as db:
        db.change("UPDATE leadership SET batch = batch + 1")
    with pytest.raises(Conflict, match="of another database, or of what this one was before"):
        copied(full, empty)


def test_an_interrupted_copy_of_an_older_program_is_refused(full, empty):
    with pytest.raises(InterruptedCopy):
        interrupted(full, empty, after=300)
    with closing(empty.writer(migrates=False)) as db:
        db.change("DELETE FROM migration WHERE number = ?", (load_scripts()[-1].number,))
    with pytest.raises(Conflict, match="of another database, or of what this one was before"):
        copied(full, empty)


def test_nothing_is_copied_over_other_rows(full, empty):
    with closing(empty.writer()) as db:
        db.change("INSERT INTO account (name, vo, groups, created_at) VALUES ('ann', 'lab', '[]', 0)")
    before = everything(empty)
    with pytest.raises(Conflict, match=r"There are rows in account of .*; a copy needs an empty database"):
        copied(full, empty)
    assert everything(empty) == before


def test_a_copy_with_another_row_is_no_copy(full, empty, monkeypatch):
    compare = copy._compare_table

    def changes(source, target, table, advance):
        if table.name == "job":
            target.change("UPDATE job SET reason = 'other' WHERE id = 17")
        return compare(source, target, table, advance)

    monkeypatch.setattr(copy, "_compare_table", changes)
    with pytest.raises(Conflict, match="The copy differs: in job, at 17"):
        copied(full, empty)
    with pytest.raises(Unavailable, match="unfinished copy"):
        empty.writer()


@pytest.mark.parametrize("change", ["DELETE FROM event WHERE id = 49", "DELETE FROM event"])
def test_a_copy_without_a_row_is_no_copy(full, empty, change):
    with both(full, empty) as (reads, writes):
        copy.begin_copy(reads, writes)
        for table in tables():
            copy._copy_table(reads, writes, table, lambda _: None)
        writes.change(change)
        (event,) = (table for table in tables() if table.name == "event")
        with pytest.raises(Conflict, match="The copy differs: in event, at"):
            copy._compare_table(reads, writes, event, lambda _: None)


@pytest.mark.parametrize("first", [0, 1])
def test_an_older_database_is_not_copied_and_not_changed(database, empty, first):
    lacking = load_scripts()[first:]
    with closing(database.writer()) as db:
        db.change("DELETE FROM migration WHERE number >= ?", (lacking[0].number,))
        before = db.only("SELECT max(number) FROM migration")
    names = ", ".join(script.name for script in lacking)
    with pytest.raises(Unavailable, match=rf"Migrations are missing in .*: {names}\. .*lode db migrate"):
        copied(database, empty)
    with closing(database.reader()) as db:
        assert db.only("SELECT max(number) FROM migration") == before


def test_an_older_database_is_copied_once_it_was_migrated(empty, file):
    with closing(restore(empty).writer()):
        before = everything(empty)
    copied(empty, file)
    assert everything(file) == before


def test_a_newer_database_is_not_copied(database, empty):
    with closing(database.writer()) as db:
        db.change("INSERT INTO migration VALUES (9999, 'later', 'x')")
    with pytest.raises(Unavailable, match="newer Lodesman"):
        copied(database, empty)


def test_nothing_and_an_unfinished_copy_are_not_copied(full, file, empty):
    with pytest.raises(Unavailable, match="There is nothing in"):
        copied(empty, file)
    with pytest.raises(InterruptedCopy):
        interrupted(full, empty, after=300)
    with pytest.raises(Unavailable, match="unfinished copy"):
        copied(empty, SqliteDatabase(file.path.with_name("other.db")))


@pytest.mark.slow
@pytest.mark.stores
def test_memory_is_bounded_whatever_the_rows_hold(database):
    """Small rows, then large ones, and one that is larger than a portion may be."""
    with closing(database.writer()) as db, db:
        insert = "INSERT INTO director_iteration (id, at, bytes, plan) VALUES (?, 0, 0, ?)"
        db.change_each(insert, [(n, "x" * (10 if n < 3_000 else 500_000)) for n in range(1, 3_050)])
        db.change(insert, (3_050, "x" * 5_000_000))
    (table,) = (table for table in tables() if table.name == "director_iteration")
    with closing(database.reader()) as db:
        sizes = [(len(rows), sum(len(row[-1]) for row in rows)) for rows in copy._portions(db, table)]
    assert sum(rows for rows, _ in sizes) == 3_050
    assert max(rows for rows, _ in sizes) <= 2_000
    assert sizes.pop() == (1, 5_000_000)
    assert max(size for _, size in sizes) <= 4 << 20


@pytest.mark.postgresql
def test_a_nul_is_replaced_and_counted(file, empty, described):
    with closing(file.writer()) as db:
        fill(db, described)
        db.change("UPDATE attempt SET tail = ?, message = ? WHERE id IN (12, 13)", ("a\0b\0", "c\0"))
        db.change("UPDATE attempt SET tail = '\\u0000' WHERE id = 14")
    found = {one.table: one.replaced for one in copied(file, empty) if one.replaced}
    assert found == {"attempt": 4}
    with closing(empty.reader()) as db:
        texts = list(db.execute("SELECT tail, message FROM attempt WHERE id IN (12, 14) ORDER BY id"))
    assert texts[0] == ("a\ufffdb\ufffd", "c\ufffd")
    assert texts[1][0] == "\\u0000"


@pytest.mark.postgresql
@pytest.mark.parametrize("ended", ["source", "target"])
def test_a_connection_that_ends_loses_nothing(maker, full, empty, ended, monkeypatch):
    """The command ends, and the next one goes on."""
    of = {"source": full, "target": empty}[ended]
    ends = iter([lambda: maker.end_sessions(of)])
    copies = copy._copy_table

    def copy_table(source, target, table, advance):
        if table.name == "event":
            next(ends, lambda: None)()
        copies(source, target, table, advance)

    monkeypatch.setattr(copy, "_copy_table", copy_table)
    with pytest.raises(ConnectionLost):
        copied(full, empty)
    copied(full, empty)
    assert everything(empty) == everything(full)
