"""The schema of a new database, and migrations of older ones: applied once, in order, and never edited."""

import re
from contextlib import closing

import pytest
from tests.contract.conftest import House
from tests.kits.old_database import restore

from lodesman.base.errors import Unavailable
from lodesman.server.store import copy
from lodesman.server.store.migrate import Script, load_schema, load_scripts, migrate, missing
from lodesman.server.store.spelling import translate_schema


@pytest.fixture
def db(database):
    with closing(database.writer()) as writer:
        yield writer


@pytest.fixture
def empty(maker, tmp_path):
    """A database with nothing in it."""
    (tmp_path / "empty").mkdir()
    found = maker.empty(tmp_path / "empty")
    yield found
    maker.drop(found)


@pytest.fixture
def old(empty):
    """A database as the oldest program left it of which one opens."""
    return restore(empty)


@pytest.fixture
def old_db(old):
    """Its writer; nothing is migrated yet."""
    with closing(old.writer(migrates=False)) as writer:
        yield writer


def later(number=8_888, text="CREATE TABLE a (x TEXT);"):
    return Script(number, f"{number}_later.sql", text)


def with_later(monkeypatch, *more):
    scripts = load_scripts
    monkeypatch.setattr(
        "lodesman.server.store.migrate.load_scripts", lambda *dialect: [*scripts(*dialect), *more]
    )


# --- what is applied


def test_a_new_database_is_made_in_one_step_and_has_every_migration(empty):
    with closing(empty.writer(migrates=False)) as db:
        assert [one.name for one in missing(db)] == ["schema.sql"]
        assert migrate(db) == ["schema.sql"]
        names = [name for (name,) in db.execute("SELECT name FROM migration ORDER BY number")]
        assert names == ["schema.sql", *(name for _, name, _ in load_scripts())]
        assert missing(db) == []
        assert migrate(db) == []


def test_numbers_are_unique_and_ascending():
    numbers = [load_schema().number, *(number for number, _, _ in load_scripts())]
    assert numbers == sorted(set(numbers))


def test_an_edited_migration_is_refused(db):
    db.change("UPDATE migration SET sha256 = 'other' WHERE number = 45")
    with pytest.raises(Unavailable, match=r"0045_usage_by_job_group\.sql was changed after"):
        migrate(db)


@pytest.mark.parametrize("number", [9_999, 43])
def test_a_newer_database_is_refused(db, number):
    db.change("INSERT INTO migration VALUES (?, 'later', 'x')", (number,))
    with pytest.raises(Unavailable, match=f"has migration {number}, which this program does not know"):
        migrate(db)


def test_a_failing_migration_leaves_nothing_behind(db, monkeypatch):
    with_later(monkeypatch, later(), later(8_889, "CREATE TABLE b (x TEXT); CREATE TABLE a (x TEXT);"))
    with pytest.raises(Exception, match="already exists"):
        migrate(db)
    assert db.tables() >= {"a"}
    assert "b" not in db.tables()
    assert db.only("SELECT max(number) FROM migration") == (8_888,)


def test_a_schema_that_fails_leaves_nothing_behind(empty, monkeypatch):
    broken = load_schema()._replace(text="CREATE TABLE migration (number INTEGER); CREATE VIEW v AS SELECT x FROM gone;"
                                         "CREATE TABLE migration (x TEXT)")  # fmt: skip
    monkeypatch.setattr("lodesman.server.store.migrate.load_schema", lambda _: broken)
    with closing(empty.writer(migrates=False)) as db:
        with pytest.raises(Exception, match=r"exist"):
            migrate(db)
        assert db.tables() == set()


# --- what a database of before becomes


def rows(db):
    """All rows of each table, in the columns that a database of before has."""
    columns = {table.name: [name for name in table.columns if name != "job_group"] for table in copy.tables()}
    return {
        table: sorted(map(repr, db.execute(f"SELECT {', '.join(names)} FROM {table}")))
        for table, names in columns.items()
    }


def test_a_database_of_before_keeps_its_rows_and_gets_the_schema(old, old_db, database):
    before = rows(old_db)
    assert sum(map(len, before.values())) > 40
    names = [one.name for one in load_scripts()]
    assert [one.name for one in missing(old_db)] == names
    assert migrate(old_db) == names
    assert migrate(old_db) == []
    assert rows(old_db) == before
    assert set(old_db.execute("SELECT job_group FROM usage_day")) == {("(unknown)",)}
    with closing(database.reader()) as new:
        assert described(old_db) == described(new)


def test_a_database_of_before_goes_on_with_its_jobs(old):
    house = House(old)
    house.clock, house.pilots = 20_000 * 86_400.0 + 100, 2
    states = (
        "Matched Waiting Waiting Waiting Held Held Held Waiting Killed Waiting Done Failed Waiting".split()
    )
    assert [house.state(job) for job in range(1, 14)] == states
    (claimed,) = house.claim(house.pilot())
    assert claimed.job_id == 2
    house.report(house.pilots, claimed)
    assert house.events(2)[-1] == "Done"
    assert house.submit().first == 14
    house.close()


COMMENT, SPACE, SIGN = re.compile(r"--.*"), re.compile(r"\s+"), re.compile(r" ?([(),]) ?")
OF_POSTGRESQL = (
    """SELECT table_name, ordinal_position, column_name, data_type, collation_name, is_nullable, column_default,
    identity_generation, generation_expression FROM information_schema.columns WHERE table_schema = 'public'""",
    """SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace""",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT viewname, definition FROM pg_views WHERE schemaname = 'public'",
    "SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace",
    "SELECT sequencename, data_type::text FROM pg_sequences WHERE schemaname = 'public'",
)


def plain(sql):
    """The same in one line, without comments and what else means nothing."""
    return SIGN.sub(r"\1", SPACE.sub(" ", COMMENT.sub("", sql).replace('"', ""))).strip()


def described(db):
    """All that a schema says."""
    if db.dialect == "postgresql":
        return [sorted(map(repr, db.execute(sql))) for sql in OF_POSTGRESQL]
    found = db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema")
    return sorted((kind, name, table, plain(sql)) for kind, name, table, sql in found)


# --- what is refused


def test_a_database_that_is_too_old_is_refused_as_it_is(old, old_db):
    old_db.change("DELETE FROM migration WHERE number >= 40")
    for call in (missing, migrate):
        with pytest.raises(Unavailable) as found:
            call(old_db)
        assert "is too old: its last migration is 35; the oldest that this program opens is that" in str(
            found.value
        )
        assert "of commit 7f956eda (2026-11-30), with migration 42" in str(found.value)
        assert "lode db migrate of commit 7f956eda" in found.value.hint
    assert old_db.only("SELECT max(number) FROM migration") == (35,)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE migration SET sha256 = 'other' WHERE number = 16",
        "DELETE FROM migration WHERE number = 16",
        "INSERT INTO migration VALUES (27, 'other', 'x')",
        "DELETE FROM migration WHERE number < 42",
        "INSERT INTO migration VALUES (45, 'x', 'x'); DELETE FROM migration WHERE number = 42",
    ],
)
def test_a_database_with_other_migrations_is_refused(old_db, change):
    old_db.run_script(change)
    with pytest.raises(Unavailable, match=r"but not those of this program; the oldest .* 7f956eda"):
        migrate(old_db)


def test_a_new_database_without_its_record_of_the_schema_is_refused(db):
    db.change("DELETE FROM migration WHERE number = 42")
    last = load_scripts()[-1].number
    with pytest.raises(Unavailable, match=f"has migrations up to {last}, but not those of this program"):
        migrate(db)


# --- the texts

TABLE = re.compile(r"^CREATE TABLE.*?^\)[^;]*;", re.DOTALL | re.MULTILINE)
TAIL = re.compile(r"^CREATE (?:UNIQUE )?INDEX .*?;|^INSERT .*?;", re.DOTALL | re.MULTILINE)


def parts(text):
    """The tables with their comments, the indexes and the first rows."""
    return [SPACE.sub(" ", one) for pattern in (TABLE, TAIL) for one in pattern.findall(text)]


def test_both_schemas_say_the_same():
    """But for what is computed, views and triggers, which each database says in its own words."""
    texts = [load_schema(dialect).text for dialect in ("", "postgresql")]
    ours = [part for part in parts(translate_schema(texts[0])) if " VIRTUAL" not in part]
    theirs = [part for part in parts(texts[1]) if "task_queue (" not in part or "TABLE" not in part]
    assert ours == theirs
    assert len(ours) > 70


def test_what_is_written_for_postgresql_stays_as_it_is():
    text = load_schema("postgresql").text
    assert translate_schema(text) == text


# --- a database


@pytest.mark.sqlite
def test_the_database_is_durable_and_private(database, db):
    assert db.only("PRAGMA journal_mode") == ("wal",)
    assert db.only("PRAGMA synchronous") == (2,)
    assert database.path.stat().st_mode & 0o777 == 0o600
    assert database.path.parent.stat().st_mode & 0o077 == 0


def test_readers_cannot_write(database):
    db = database.reader()
    with pytest.raises(Exception, match=r"read-?only"):
        list(db.execute("UPDATE leadership SET epoch = 9"))
    db.close()
