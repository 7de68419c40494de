"""Faults of PostgreSQL in words, never with a password."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors

from lodesman.base.errors import Unavailable

_FULL: Final = "Free some space there; nothing is lost."
# While a server runs: what a command is answered with.
_REFUSALS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (errors.DiskFull, "The disk of the database is full.", "Nothing was stored; try again later."),
    (errors.ReadOnlySqlTransaction, "The database takes no changes.", "Is it a standby? The server goes on by itself."),
)  # fmt: skip
# At the start, by what the server says; the first that is found counts.
_SAYINGS: Final = (
    ("password", "refuses the password", "Check it in [store] url, or in the file that PGPASSFILE names."),
    ("no pg_hba.conf entry", "does not let this user in from here", "Add a line to its pg_hba.conf."),
    ("authentication failed", "does not let this user in", "Check the user in [store] url, and pg_hba.conf."),
    ("certificate", "has no certificate that [store] url accepts", "Check its sslmode and sslrootcert."),
    ("ssl", "does not speak TLS as [store] url asks", "Switch TLS on in PostgreSQL, or check sslmode."),
    (
        "does not exist",
        "does not exist, or its user does not",
        "Make both: see the manual for administrators.",
    ),
    ("too many", "has no connection left", "Raise its max_connections."),
    ("starting up", "is starting", "Try again in a moment."),
    ("recovery mode", "recovers from a fault", "Try again in a moment."),
    ("not yet accepting", "recovers from a fault", "Try again in a moment."),
    ("shutting down", "is ending", "Start it again."),
)
_AWAY: Final = ("cannot be reached", "Is PostgreSQL running, and are host and port in [store] url right?")
_KINDS: Final[tuple[tuple[type[Exception], str, str], ...]] = (
    (errors.InsufficientPrivilege, "does not let this user make tables", "GRANT CREATE ON SCHEMA public TO that user."),
    (errors.DiskFull, "cannot be changed: its disk is full", _FULL),
    (errors.ReadOnlySqlTransaction, "takes no changes", "Is it a standby? Name the primary."),
    (psycopg.DataError, "refuses a value that is copied to it", "Check the other database: lode db check."),
    (psycopg.ProgrammingError, "is not what this program made, or its url is wrong", "Check [store] url."),
)  # fmt: skip


def refusal_of(fault: Exception) -> Unavailable | None:
    """The answer to a command if the database failed; None for other faults."""
    if not isinstance(fault, psycopg.Error):
        return None
    for kind, words, hint in _REFUSALS:
        if isinstance(fault, kind):
            return Unavailable(words, hint=hint)
    return Unavailable("The database refused the change; nothing was stored.", fault=type(fault).__name__)


def refused_start(fault: psycopg.Error, name: str) -> Unavailable:
    """Why a database cannot be used at a start."""
    predicate, hint = _AWAY
    text = str(fault).lower()
    for kind, words, advice in _KINDS:
        if isinstance(fault, kind):
            return Unavailable(
                f"{name[0].upper()}{name[1:]} {words}.", hint=advice, fault=type(fault).__name__
            )
    for part, words, advice in _SAYINGS:
        if part in text:
            predicate, hint = words, advice
            break
    return Unavailable(f"{name[0].upper()}{name[1:]} {predicate}.", hint=hint, fault=type(fault).__name__)
