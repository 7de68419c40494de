"""Texts of SQLite whose bytes are no UTF-8, as a disk or a hand leaves them."""

from __future__ import annotations

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
