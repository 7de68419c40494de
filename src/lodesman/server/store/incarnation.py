"""Whether a database is the one that ran here last (ADR 0037).

`lode.seen-N` notes what was given out after N commits. A restored database has made fewer, or is another file: it
loses the tokens of pilots, and gives out identifiers beyond those noted.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from lodesman.base.durable import sync_directory
from lodesman.base.errors import Unavailable
from lodesman.server.store.database import Database, Reader, Writer
from lodesman.server.store.ids import given_ids, raise_marks
from lodesman.server.store.statement import ONE

log = logging.getLogger(__name__)

_STATE: Final = "SELECT incarnation, batch, next_job FROM leadership"
_MARK: Final = 6
_HOME: Final = "SELECT home FROM leadership"
_RENEW: Final = "UPDATE leadership SET incarnation = ?, batch = ?, next_job = ?, home = ?"
# Both counters begin with the first start of a server.
_USES: Final = "SELECT epoch + batch FROM leadership"
_DELETE_TOKENS: Final = "DELETE FROM token WHERE kind IN ('join', 'joined', 'pilot')"


class DatabaseLost(Unavailable, code="database-lost"):
    """A server has worked here, and its database is empty."""


class DatabaseNote(Struct, frozen=True, kw_only=True):
    """What a file beside the database says of it."""

    incarnation: str
    inode: int
    made: int = (
        0  # when its file was made (ns), 0 if unknown: a copy often gets the inode of what it replaces
    )
    commits: int
    next_job: int
    given: Mapping[str, int]  # the last identifier of each table


_SEEN = msgspec.json.Decoder(DatabaseNote)


def mark_of(db: Reader) -> str:
    """The prefix of this server's submissions."""
    incarnation, *_ = db.only(_STATE)
    return hashlib.sha256(str(incarnation).encode()).hexdigest()[:_MARK]


def refuse_new(database: Database) -> None:
    """Raises DatabaseLost if a note exists and the database was never used."""
    noted = _files(database)
    if not noted or _is_used(database):
        return
    words = f"The database is missing: there is nothing in {database}, and {noted[-1]} is of one that a server has used."
    hint = "Put a backup in its place, or check [store] url. To begin with nothing: lode server --accept-new-database."
    raise DatabaseLost(words, hint=hint)


def _is_used(database: Database) -> bool:
    if database.is_empty():
        return False
    with closing(database.reader()) as db:
        return "leadership" in db.tables() and db.only(_USES)[0] > 0


def begin(db: Writer, *, next_job: int = 1) -> bool:
    """Called before anything is given out: true if it is not the database that ran here last. `next_job`: the first
    job of which no file knows.
    """
    notes = [seen for seen in map(_read, _files(db.database)) if seen is not None]
    newest = max(notes, key=lambda seen: seen.commits, default=None)
    incarnation, commits, own_next = db.only(_STATE)
    home = db.database.home(db)
    if newest is not None:
        is_known = newest.incarnation == incarnation and newest.commits <= commits and _is_of(db, newest)
    else:  # a server on another machine takes over
        is_known = bool(incarnation) and home != 0 and db.only(_HOME)[0] == home
    if is_known:
        return False
    is_other = bool(incarnation or newest)
    with db:
        if newest is not None:
            commits, own_next = max(commits, newest.commits), max(own_next, newest.next_job)
            raise_marks(db, newest.given)
        renewed = db.change(_RENEW, (secrets.token_hex(4), commits + 1, max(own_next, next_job), home))
        ONE.check(_RENEW, renewed)
        if is_other:
            db.change(_DELETE_TOKENS)
    note(db)
    if is_other:
        log.warning(
            "this database was restored, copied or is older than the last one here: its pilots are refused",
            extra={"before": incarnation, "last_here": newest.incarnation if newest else ""},
        )
    return is_other


def note(db: Reader) -> None:
    """Write a note, and remove older ones. Raises OSError."""
    database = db.database
    with db:
        incarnation, commits, next_job = db.only(_STATE)
        last_ids = given_ids(db)
    seen = DatabaseNote(
        incarnation=incarnation, inode=database.identity(db), made=database.made(), commits=commits,
        next_job=next_job, given=last_ids,
    )  # fmt: skip
    # Its name is new, so the newest note survives a restore over the folder.
    file = database.beside(f"seen-{commits:015}")
    part = database.beside("noting")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
        target.write(msgspec.json.encode(seen))
        target.flush()
        os.fsync(target.fileno())
    part.replace(file)
    sync_directory(file.parent)
    for other in _files(database):
        if other.name < file.name:
            other.unlink(missing_ok=True)


def _is_of(db: Writer, seen: DatabaseNote) -> bool:
    made = db.database.made()
    return db.database.identity(db) == seen.inode and (made == seen.made or 0 in (made, seen.made))


def _files(database: Database) -> list[Path]:
    pattern = database.beside("seen-*")
    return sorted(pattern.parent.glob(pattern.name))


def _read(file: Path) -> DatabaseNote | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return _SEEN.decode(file.read_bytes())
    return None
