"""`lode db`, on the machine of the database."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lodesman.base.errors import InvalidRequest
from lodesman.user.cli.arguments import FILE
from lodesman.user.cli.configured import NamedConfig, check_data, configured, no_server
from lodesman.user.cli.faults import FAILED
from lodesman.user.cli.progress import progress
from lodesman.user.cli.session import Session, with_session
from lodesman.user.cli.tables import note, say, show_table
from lodesman.user.cli.words import counted

if TYPE_CHECKING:
    from lodesman.server.store import Database, Writer
    from lodesman.server.store.copy import CopiedTable

db = click.Group("db", help="Copy, check, back up or migrate the database of a server, beside it.")
_HASH_SHOWN = 16


@db.command("copy")
@click.argument("origin", metavar="FROM")
@click.argument("copy", metavar="TO")
@with_session
def _copy(session: Session, /, *, origin: str, copy: str) -> None:
    """Copy a whole database into another one, which is empty, and compare all rows.

    FROM and TO are sqlite:///FILE, postgresql://USER@HOST/NAME, the file of a SQLite database, or a configuration (*.toml):
    then its [store] url is meant, which may have a password. No server may run on either.

    A copy that was interrupted goes on where it stopped when the same command is given again; a server does not start on it
    before it is whole. NUL characters, which PostgreSQL does not store, become U+FFFD; their number is printed.

    Only the database is copied. What else an administrator moves: the configuration, and from the data directory sandboxes
    and admin.token; not lode.seen-*, which belong to the database that was there. At its first start the server takes a copy
    for a new incarnation: the jobs that ran are run again.
    """
    from lodesman.server.store import copy as copying

    source, target = _database(origin), _database(copy)
    if source == target:
        raise InvalidRequest(f"FROM and TO are both {source}.", hint="Name another database as TO.")
    with _owned(source, is_there=True) as reads:
        copying.check_source(reads)
        with _owned(target) as writes:
            tables = _copied(reads, writes, silent=session.as_json)
    rows = sum(table.rows for table in tables)
    session.exit_if_json({"from": str(source), "to": str(target), "rows": rows, "tables": tables})
    filled = [table for table in tables if table.rows]
    show_table(
        ("table", ">rows", "sha256"),
        ((table.table, table.rows, table.sha256[:_HASH_SHOWN]) for table in filled),
    )
    if replaced := sum(table.replaced for table in tables):
        note(f"{counted(replaced, 'text')} had NUL characters, which are U+FFFD in the copy.")
    note(f"{counted(rows, 'row')} of {source} are in {target}; both were compared row by row.")


def _copied(source: Writer, target: Writer, *, silent: bool) -> list[CopiedTable]:
    from lodesman.server.store import copy as copying
    from lodesman.server.store.database import ConnectionLost

    with source.database.usable(), target.database.usable():
        rows = copying.begin_copy(source, target)
    with progress("copying and comparing rows", 2 * rows, shown=True, silent=silent) as advance:
        try:
            return copying.copy_rows(source, target, advance)
        except ConnectionLost as lost:
            lost.hint = "Give the same command again when it is back: what was copied stays."
            raise


def _database(word: str) -> Database:
    from lodesman.server.config import load_config
    from lodesman.server.store import SqliteDatabase

    if word.endswith(".toml"):
        return load_config(Path(word)).database
    if "://" not in word:
        return SqliteDatabase(Path(word).resolve())
    # As any other address of the command line: no password, and known.
    return load_config(None, overrides={"store": {"url": word}}).database


@contextmanager
def _owned(database: Database, *, is_there: bool = False, migrates: bool = False) -> Iterator[Writer]:
    """No server has the database; `is_there`: none is made."""
    from lodesman.server.store.incarnation import refuse_new

    with database.usable():
        if is_there:
            refuse_new(database)
            database.reader().close()
        with no_server():
            writer = database.writer(migrates=migrates)
    with closing(writer):
        yield writer


@db.command("check")
@configured
def _check(*, chosen: NamedConfig) -> int:
    """Check pages, counters and files of the data; exit code 1 if something is wrong.

    The server must not run. It reads the whole database and no content of sandboxes. The pages of a PostgreSQL are checked
    by its own pg_amcheck.
    """
    return check_data(chosen.load())


@db.command("backup")
@click.argument("file", type=FILE)
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@configured
@with_session
def _backup(session: Session, /, *, file: Path, force: bool, chosen: NamedConfig) -> int:
    """Write a backup of the database to FILE, also while the server runs.

    SQLite: FILE has the database of one moment, is readable by you alone, and is there only when it is whole. PostgreSQL:
    the command prints the line of pg_dump that makes the backup, without a password, and ends with code 1: nothing was
    written.

    Take the database first, then the folder sandboxes of the data directory, and keep the configuration. To restore it, put
    FILE in the place of lode.db while no server runs.
    """
    from lodesman.server.store import SqliteDatabase
    from lodesman.server.store.backup import back_up

    database = chosen.load().database
    if not isinstance(database, SqliteDatabase):
        line = shlex.join(database.backup_command(file))
        session.exit_if_json({"file": None, "command": line}, FAILED)
        say(line)
        note(f"Nothing was written: run this line to back up {database}.")
        return FAILED
    size = database.path.stat().st_size if database.path.is_file() else 0
    with progress("writing", size, shown=True, of_bytes=True, silent=session.as_json) as advance:
        back_up(database, file, replaces=force, advance=advance)
    session.exit_if_json({"file": str(file), "command": None})
    note(f"The backup is in {file}.")
    return 0


@db.command("migrate")
@click.option("--dry-run", is_flag=True, help="List the missing migrations and change nothing.")
@configured
@with_session
def _migrate(session: Session, /, *, dry_run: bool, chosen: NamedConfig) -> None:
    """Bring the database to the schema of this program, as the start of the server does.

    Prints the names of the migrations, in their order. The server must not run, but for --dry-run. Make a backup first:
    there is no way back.
    """
    from lodesman.server.store.migrate import migrate, missing

    database = chosen.load().database
    if dry_run:
        with database.usable(), closing(database.reader()) as reader:
            names = [migration.name for migration in missing(reader)]
    else:
        with _owned(database, is_there=True) as writer, database.usable():
            names = migrate(writer)
    session.exit_if_json({"migrations": names, "applied": not dry_run})
    for name in names:
        say(name)
    state = "missing" if dry_run else "applied"
    note(
        f"{counted(len(names), 'migration')} {state}." if names else f"No migration is missing in {database}."
    )
