"""Texts of SQLite whose bytes are no UTF-8, as a disk or a hand leaves them."""

from __future__ import annotations

import gc
from contextlib import closing

import pytest

from lodesman.server.store.sqlite import SqliteDatabase

DAMAGED = b"a\xffb\0c"


@pytest.fixture
def db(tmp_path):
    with closing(SqliteDatabase(tmp_path / "d.db").writer()) as found:
        found.execute("CREATE TABLE thing (id INTEGER PRIMARY KEY, name TEXT, data BLOB)")
        for number, name in enumerate((b"one", DAMAGED, b"three", DAMAGED), start=1):
            found.change("INSERT INTO thing VALUES (?, CAST(? AS TEXT), ?)", (number, name, DAMAGED))
        yield found


@pytest.mark.parametrize("most", [1, 2, 3, 4])
@pytest.mark.parametrize("way", ["ASC", "DESC"])
def test_a_text_that_is_none_has_its_bytes_in_words_and_all_other_rows_are_there(db, most, way):
    found = list(
        db.execute(f"SELECT id, name, data FROM thing WHERE id > ? ORDER BY id {way} LIMIT ?", (0, most))
    )
    rows = [
        (1, "one", DAMAGED), (2, "a\\xffb\0c", DAMAGED), (3, "three", DAMAGED), (4, "a\\xffb\0c", DAMAGED),
    ]  # fmt: skip
    assert found == (rows if way == "ASC" else rows[::-1])[:most]


def test_values_of_any_kind_are_asked_with_again(db):
    sql = "SELECT name FROM thing WHERE id = 2 AND ? = 'it''s' AND data = ? AND ? IS NULL AND ? < 1"
    assert db.only(sql, ("it's", DAMAGED, None, 0.1)) == ("a\\xffb\0c",)
    assert list(
        db.execute("WITH t AS (SELECT name FROM thing) SELECT name FROM t WHERE name > ? LIMIT 1", ("b",))
    )


def test_rows_that_are_left_are_there_after_the_first_was_taken(db):
    rows = db.execute("SELECT id FROM thing ORDER BY id")
    assert rows.fetchone() == (1,)
    assert next(iter(rows)) == (2,)
    assert list(rows) == [(3,), (4,)]


def test_a_change_that_answers_is_not_made_twice(db):
    with pytest.raises(UnicodeDecodeError):
        list(db.execute("UPDATE thing SET data = NULL RETURNING name"))


@pytest.fixture
def uncollected():
    """Nothing is freed for being in a circle."""
    gc.disable()
    yield
    gc.enable()


def count(reader):
    return reader.only("SELECT count(*) FROM thing")[0]


def test_a_query_that_is_given_up_at_a_damaged_text_shows_no_past(db, tmp_path, uncollected):
    with closing(SqliteDatabase(tmp_path / "d.db").reader()) as reader:
        assert count(reader) == 4
        rows = iter(reader.execute("SELECT name FROM thing ORDER BY id"))
        assert [next(rows), next(rows)] == [("one",), ("a\\xffb\0c",)]
        del rows
        db.change("INSERT INTO thing VALUES (5, 'five', NULL)")
        assert count(reader) == 5


def test_a_fault_that_is_kept_keeps_no_query_half_read(db, tmp_path, uncollected):
    """A future keeps its fault in a circle, and the fault the frames that it went through."""
    reader = SqliteDatabase(tmp_path / "d.db").reader()

    def fail():
        rows = reader.execute("SELECT id FROM thing")
        assert rows.fetchone() == (1,)
        raise RuntimeError("planted")

    with closing(reader):
        assert count(reader) == 4
        with pytest.raises(RuntimeError) as kept, reader:
            fail()
        db.change("INSERT INTO thing VALUES (5, 'five', NULL)")
        assert count(reader) == 5
        assert str(kept.value) == "planted"
