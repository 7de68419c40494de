"""Collected statements: their order, what they say of themselves, and the rows that they must change."""

from __future__ import annotations

import importlib
import pkgutil
import re
from contextlib import closing
from unittest.mock import patch

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.store_contract.test_nouns import add_jobs, add_queue, claim

from lodesman.base.errors import Conflict, ServerFault
from lodesman.server import store as package
from lodesman.server.store.journal import Change
from lodesman.server.store.statement import (
    ANY,
    AT_MOST_ONE,
    ONE,
    Collection,
    RowBounds,
    Statement,
    WrongRows,
    exactly,
)
from lodesman.server.store.transaction import Transaction
from lodesman.server.store.write import attempts

# --- order ------------------------------------------------------------------------------------------------------

PUT = "INSERT INTO {0} (id, v) VALUES (?,?) ON CONFLICT (id) DO UPDATE SET v = 2 * {0}.v + excluded.v"
MADE_UP = [
    Statement(sql=PUT.format("a"), key=(0,), rows=ANY),
    Statement(sql="UPDATE a SET v = 3 * v + ? WHERE id = ?", key=(-1,), rows=ANY),
    Statement(sql="UPDATE a SET v = 5 - v + ? WHERE id = ?", key=(-1,), rows=ANY),
    Statement(sql="DELETE FROM a WHERE id = ? AND v % 2 = ?", key=(0,), rows=ANY),
    Statement(sql="UPDATE a SET v = 7 * v + ? WHERE id > ?", rows=ANY),
    Statement(sql="UPDATE a SET v = ? WHERE id = ?", key=(-1,), rows=ANY, newest=True),
    Statement(sql=PUT.format("b"), key=(0,), rows=ANY),
    Statement(
        sql="INSERT INTO b (id, v) SELECT 100 * ? + ? + count(*), 1 FROM a WHERE true ON CONFLICT DO NOTHING",
        reads=("a",), rows=ANY,
    ),
    Statement(sql="INSERT INTO c (v, w) VALUES (?,?)"),
    Statement(sql="UPDATE c SET v = ? + 10 * ? WHERE w = 1", rows=ANY, newest=True),
]  # fmt: skip


def made_up():
    db = apsw.Connection(":memory:")
    for name in "ab":
        db.execute(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, v INTEGER)")
    db.execute("CREATE TABLE c (id INTEGER PRIMARY KEY, v INTEGER, w INTEGER)")
    return db


def told(db):
    return [list(db.execute(f"SELECT * FROM {name} ORDER BY id")) for name in "abc"]


def groups_of(rows):
    collection = Collection()
    transaction = Transaction.__new__(Transaction)
    transaction.changed, transaction._collected, transaction._apart = 0, collection, collection.apart
    for statement, row in rows:
        transaction.later(statement, row)
    return collection.take()


ROW = st.tuples(st.sampled_from(MADE_UP), st.tuples(st.integers(0, 4), st.integers(0, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 8])
@at_most(1_000)
@given(rows=st.lists(ROW, max_size=60))
def test_groups_have_the_effect_that_their_rows_have_one_by_one(few, rows):
    """But for those of which only the newest counts: what is between them touches other rows, or comes before or after."""
    one_by_one, grouped = made_up(), made_up()
    for statement, row in without_older(rows):
        one_by_one.execute(statement.sql, row)
    with patch("lodesman.server.store.statement._FEW", few):
        groups = groups_of(rows)
    for statement, some in groups:
        grouped.executemany(statement.sql, some)
    assert told(grouped) == told(one_by_one)
    assert sum(len(some) for _, some in groups) <= len(rows)


def without_older(rows):
    """The rows without those that a newer one of the same statement and key replaces while nothing else touches the same."""
    kept = []
    for n, (statement, row) in enumerate(rows):
        replaced = False
        for other, later in rows[n + 1 :] if statement.newest else ():
            if other is statement and statement.key_of(later) == statement.key_of(row):
                replaced = True
            if other.table == statement.table:
                break
        if not replaced:
            kept.append((statement, row))
    return kept


def test_rows_of_many_claims_stay_together():
    """Rows and members, each with an attempt: four groups at the end, after a few small ones."""
    rows = []
    for n in range(60):
        rows.append((attempts.INSERT_EVENT, (n, 0, n, None, None, "Matched", "")))
        rows.append((attempts._INSERT_ATTEMPT, (n, n)))
        rows.append((attempts._CLAIM_ROW, (1, n)) if n % 3 else (attempts._CLAIM_MEMBER, (n,)))
    groups = groups_of(rows)
    assert len(groups) < 20
    assert sorted(len(some) for _, some in groups)[-4:] > [15, 30, 40, 40]


@pytest.mark.parametrize("few", [0, 8])
def test_a_job_is_claimed_after_it_was_stored_whatever_was_claimed_before(few):
    stored = Statement(sql="INSERT INTO job (id) VALUES (?)", key=(0,))
    with patch("lodesman.server.store.statement._FEW", few):
        groups = groups_of([
            (attempts._CLAIM_ROW, (1, 7)), (stored, (8,)), (attempts._CLAIM_ROW, (1, 8)), (stored, (9,)),
        ])  # fmt: skip
    order = [(statement is stored, row[-1]) for statement, rows in groups for row in rows]
    assert sorted(order) == [(False, 7), (False, 8), (True, 8), (True, 9)]
    assert order.index((True, 8)) < order.index((False, 8))


def test_what_is_read_past_claims_waits_for_all_else():
    """Also for what was collected in an earlier segment."""
    collection = Collection()
    stored = Statement(sql="INSERT INTO job (id) VALUES (?)", key=(0,))
    for statement, row in [(stored, (7,)), (attempts._CLAIM_ROW, (1, 7))]:
        collection.add(statement, row)
    assert not collection.is_of(attempts.CLAIM_STATEMENTS)
    collection.take()
    collection.add(attempts._CLAIM_ROW, (1, 7))
    assert collection.is_of(attempts.CLAIM_STATEMENTS)


# --- what they say of themselves ---------------------------------------------------------------------------------


def declared():
    """All statements of the store that rows are collected for, by name."""
    found = {}
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        names = vars(importlib.import_module(module.name))
        found |= {f"{module.name}.{name}": one for name, one in names.items() if isinstance(one, Statement)}
    return {
        name: one
        for name, one in found.items()
        if name.split(".")[-1] != "SET_ROW_CURSOR" or "task_q" in name
    }


DECLARED = declared()
ALL = pytest.mark.parametrize("statement", DECLARED.values(), ids=DECLARED.keys())


class Access:
    """What the database says that a statement touches: columns that it reads or changes, and which rows there are."""

    def __init__(self, db, statement):
        self.read, self.changed, self.made, self.by_triggers = set(), set(), set(), set()
        db.set_authorizer(self.note)
        db.execute(f"EXPLAIN {statement.sql}", (1,) * statement.sql.count("?"))
        db.set_authorizer(None)

    def note(self, code, table, column, _database, trigger):
        if code == apsw.SQLITE_READ:
            self.read.add((table, column))
        elif code in (apsw.SQLITE_INSERT, apsw.SQLITE_DELETE, apsw.SQLITE_UPDATE):
            (self.by_triggers if trigger else self.changed).add((table, column))
            if code != apsw.SQLITE_UPDATE and not trigger:
                self.made.add(table)
        return apsw.SQLITE_OK


@pytest.fixture
def schema(database):
    with closing(database.writer()) as writer:
        yield writer.connection


@pytest.mark.sqlite
def test_the_statements_of_the_store_are_found(schema):
    assert len(DECLARED) > 40
    assert {"job", "attempt", "event", "token", "leadership"} <= {one.table for one in DECLARED.values()}


@pytest.mark.sqlite
@ALL
def test_a_statement_touches_what_it_says(schema, statement):
    access = Access(schema, statement)
    assert {table for table, _ in access.changed} == {statement.table}
    assert {table for table, _ in access.by_triggers} == {*filter(None, [statement.fires])}
    others = {
        (table, column) for table, column in access.read if table not in (statement.table, statement.fires)
    }
    assert {table for table, _ in others} <= {*statement.reads}
    changed = {one for other in DECLARED.values() for one in Access(schema, other).changed if one[1]}
    assert not others & changed, "what it reads there is never changed by a collected statement"


@pytest.mark.sqlite
@ALL
def test_the_key_of_a_statement_is_the_key_of_its_table(schema, statement):
    columns = list(schema.execute("SELECT name, pk FROM pragma_table_info(?)", (statement.table,)))
    key = [name for name, pk in sorted(columns, key=lambda one: one[1]) if pk]
    if not statement.key:
        return
    values = statement.sql.count("?")
    places = [place % values for place in statement.key]
    if statement.sql.startswith("INSERT"):
        names = re.search(r"\(([^)]*)\)\s*VALUES", statement.sql)[1].replace("\n", " ").split(",")
        given_names = [
            name.strip() for name, value in zip(names, inserted(statement), strict=True) if value == "?"
        ]
        assert [given_names[place] for place in places] == key
    else:
        before, _, where = statement.sql.rpartition("WHERE ")
        named = re.findall(r"(\w+) = \?", where)
        first = before.count("?")
        assert [named[place - first] if place >= first else "" for place in places] == key
    assert not {(statement.table, name) for name in key} & {
        one for one in Access(schema, statement).changed if one[1]
    }


def inserted(statement):
    return [one.strip() for one in re.search(r"VALUES\s*\(([^)]*)\)", statement.sql)[1].split(",")]


@pytest.mark.sqlite
def test_what_is_unique_beside_the_key_is_changed_and_deleted_by_no_collected_statement(schema):
    """Else a row that is brought forward might find a value taken that is free when its turn comes."""
    unique = {
        (table, column)
        for (table,) in list(schema.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"))
        for name, origin in list(
            schema.execute('SELECT name, origin FROM pragma_index_list(?) WHERE "unique"', (table,))
        )
        if origin != "pk"
        for (column,) in list(schema.execute("SELECT name FROM pragma_index_info(?)", (name,)))
    }
    assert unique
    changed = {one for statement in DECLARED.values() for one in Access(schema, statement).changed if one[1]}
    deleted = {one.table for one in DECLARED.values() if one.sql.startswith("DELETE")}
    assert not unique & changed
    assert not {table for table, _ in unique} & deleted


# --- how many rows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "fine", "wrong"),
    [(ONE, [(1, 1), (7, 7)], [(0, 1), (2, 1), (6, 7), (8, 7)]), (AT_MOST_ONE, [(0, 1), (3, 7)], [(2, 1), (8, 7)]),
     (ANY, [(0, 1), (9, 1)], []), (exactly(3), [(3, 1)], [(2, 1), (4, 1)]), (RowBounds(1, None), [(9, 1)], [(0, 1)])],
)  # fmt: skip
def test_another_number_of_rows_is_a_fault(rows, fine, wrong):
    for changed, runs in fine:
        assert rows.check("UPDATE x", changed, runs) == changed
    for changed, runs in wrong:
        with pytest.raises(WrongRows, match=rf"{changed} rows .* UPDATE x"):
            rows.check("UPDATE x", changed, runs)


@pytest.mark.parametrize("count", [1, 3, 20])
@pytest.mark.parametrize(
    "statement",
    [attempts._CLAIM_ROW, attempts._HAND_OUT, attempts._ORDER_STOP],
    ids=["claim", "hand out", "order"],
)
def test_a_row_that_is_not_there_fails_its_whole_batch(store, statement, count):
    given_rows = {
        attempts._CLAIM_ROW: [(1, 2, 5.0, 3, 4, 100 + n) for n in range(count)],
        attempts._HAND_OUT: [("token", 100 + n) for n in range(count)],
        attempts._ORDER_STOP: [("why", 100 + n) for n in range(count)],
    }[statement]
    entry = Statement(
        sql="INSERT INTO audit (at, action, subject, by, origin, count, detail) VALUES (?,?,?,?,?,?,?)"
    )

    def change(tx):
        tx.later(entry, (1.0, "x", "", "", "", 1, ""))
        tx.later_many(statement, given_rows)

    with pytest.raises(ServerFault):
        store.do(change)
    assert store.db.only("SELECT count(*) FROM audit")[0] == 0
    assert store.journal.faults == 1


@pytest.mark.parametrize(
    "sql", ["UPDATE leadership SET batch = batch WHERE one = 2", "DELETE FROM job WHERE id = 7"]
)
def test_a_single_write_that_changes_nothing_fails(store, sql):
    with pytest.raises(ServerFault):
        store.do(lambda tx: tx.write(sql, rows=ONE))
    assert store.do(lambda tx: tx.write(sql, rows=AT_MOST_ONE)) == 0


def test_rows_that_triggers_change_are_not_counted(store):
    """Each end changes two rows more, by a trigger; one that is missing is missed all the same."""
    queue = add_queue(store)
    add_jobs(store, queue, 4)
    for _ in range(4):
        claim(store, queue)

    def end(tx, ids):
        for number in ids:
            content = b"x" * 5_000
            report = attempts.AttemptReport(
                id=number, attempt=1, state="Done", cause="ok", output_sha256="f" * 64, output=content
            )
            attempts.end_attempt(tx, number, report)

    store.do(end, [1, 2])
    with pytest.raises(ServerFault):
        store.do(end, [3, 77, 4])
    store.do(end, [3, 4])
    assert store.db.only("SELECT sum(outputs) FROM sandbox_usage")[0] == 20_000


def test_a_command_that_refuses_after_a_change_is_a_fault(store):
    """Whatever it changed: what was collected, what was written, memory."""
    memory = {}
    ways = [
        lambda tx: tx.later(Statement(sql="INSERT INTO usage_open (attempt_id) VALUES (?)", key=(0,)), (7,)),
        lambda tx: tx.write("INSERT INTO usage_open (attempt_id) VALUES (7)", rows=ONE),
        lambda tx: tx.read(
            "INSERT INTO usage_open (attempt_id) VALUES (7) RETURNING attempt_id", changes=True
        ),
        lambda tx: tx.put(memory, "a", 1),
    ]
    for number, way in enumerate(ways, 1):

        def change(tx, way=way):
            way(tx)
            raise Conflict("too late")

        with pytest.raises(ServerFault) as fault:
            store.journal.call(Change(change))
        assert fault.value.data == {"fault": "RefusedTooLate"}
        assert store.journal.faults == number
        assert (memory, list(store.db.execute("SELECT * FROM usage_open"))) == ({}, [])

    def refuse(tx):
        assert tx.write("DELETE FROM job WHERE id = 7", rows=ANY) == 0
        raise Conflict("in time")

    with pytest.raises(Conflict, match="in time"):
        store.journal.call(Change(refuse))
    assert store.journal.faults == len(ways)
