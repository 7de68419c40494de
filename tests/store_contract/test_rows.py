"""Many rows in few statements: the same rows, in the same order, or none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.server.store.sqlite import WIDTHS

INSERT = "INSERT INTO note (id, text) VALUES (?,?)"
UPDATE = "UPDATE note SET text = ? WHERE id = ?"


@pytest.fixture(scope="module")
def db(new_database, tmp_path_factory):
    found = new_database(tmp_path_factory.mktemp("rows")).writer()
    found.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT UNIQUE)")
    yield found
    found.close()


def stored(db):
    return list(db.execute("SELECT id, text FROM note ORDER BY id"))


@at_most(60)
@given(st.integers(0, 3 * WIDTHS[0] + 5))
def test_every_number_of_rows_is_written(db, count):
    db.execute("DELETE FROM note")
    rows = [(n, f"text {n}") for n in range(count)]
    db.change_each(INSERT, rows)
    assert stored(db) == rows


def test_a_statement_that_is_no_insert_runs_for_each_row(db):
    db.execute("DELETE FROM note")
    db.change_each(INSERT, [(n, str(n)) for n in range(50)])
    db.change_each(UPDATE, [(f"new {n}", n) for n in range(50)])
    assert stored(db) == [(n, f"new {n}") for n in range(50)]


def test_an_insert_with_more_than_its_values_is_left_as_it_is(db):
    db.execute("DELETE FROM note")
    sql = f"{INSERT} ON CONFLICT (id) DO UPDATE SET text = note.text || excluded.text"
    db.change_each(sql, [(1, f"{n},") for n in range(10)])
    assert stored(db) == [(1, "0,1,2,3,4,5,6,7,8,9,")]


@pytest.mark.sqlite
def test_later_rows_of_one_key_win_as_they_would_alone(db):
    db.execute("DELETE FROM note")
    db.change_each("INSERT OR REPLACE INTO note (id, text) VALUES (?,?)", [(1, str(n)) for n in range(100)])
    assert stored(db) == [(1, "99")]


@pytest.mark.parametrize("place", [0, 3, 63, 64, 99])
def test_a_row_that_breaks_a_rule_fails_the_whole(db, place):
    db.execute("DELETE FROM note")
    rows = [(n, str(n)) for n in range(100)]
    rows.insert(place + 1, (1000, str(place)))
    with pytest.raises(Exception, match=r"(?i)unique"), db:
        db.change_each(INSERT, rows)
    assert stored(db) == []
