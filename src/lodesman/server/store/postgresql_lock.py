"""Who writes to a database of PostgreSQL: one session of the server's role (ADR 0041).

The writer holds an advisory lock and names its session. Any role can take both: only sessions of the same role
count, and the name stands where a stranger has the lock.
"""

from __future__ import annotations

import logging
from typing import Any, Final

import psycopg
from psycopg import errors

log = logging.getLogger(__name__)

_KEY: Final = 0x6C6F6465736D616E  # "lodesman"
_LOCK: Final = "SELECT pg_advisory_lock($1)"
_LOCK_WAIT: Final = "SELECT set_config('lock_timeout', $1, false)"
_HOLDS: Final = """l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
AND (l.classid::bigint << 32 | l.objid::bigint) = $1"""
_NAME: Final = "SET application_name = 'lodesman writer'"
# The oldest first: after a lost connection that is the session of before, while it lives.
_OTHER: Final = f"""SELECT pid, coalesce(host(client_addr), 'the machine of the database') FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()
AND (application_name = 'lodesman writer' OR pid IN (SELECT l.pid FROM pg_locks l WHERE {_HOLDS}))
ORDER BY backend_start LIMIT 1"""
_STRANGER: Final = (
    f"SELECT a.usename FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE {_HOLDS} LIMIT 1"
)
# A session that ends lets go of its lock a moment before it is seen no more.
_PAUSE: Final = "SELECT pg_sleep(0.05)"
_PAUSES_A_SECOND: Final = 20
_IS_OPEN: Final = "SELECT has_database_privilege('public', current_database(), 'CONNECT'), current_database()"


def become_writer(connection: psycopg.Connection[Any], seconds: int) -> tuple[int, str] | None:
    """None if earlier writers are gone within `seconds`; else backend and host of one: the caller must close the
    connection. Of two that begin at once without the lock both may be refused.
    """
    connection.execute(_LOCK_WAIT, (f"{seconds}s",))
    try:
        connection.execute(_LOCK, (_KEY,))
    except errors.LockNotAvailable:
        if other := _other(connection):
            return other
        (stranger,) = connection.execute(_STRANGER, (_KEY,)).fetchone() or ("",)
        log.warning(
            "another role has the lock of the server, which goes on without it", extra={"role": stranger}
        )
    connection.execute("RESET lock_timeout")
    # First the name, then the look: of two sessions one at least sees the other.
    connection.execute(_NAME)
    for _ in range(seconds * _PAUSES_A_SECOND):
        other = _other(connection)
        if other is None:
            break
        connection.execute(_PAUSE)
    return other


def _other(connection: psycopg.Connection[Any]) -> tuple[int, str] | None:
    session: tuple[int, str] | None = connection.execute(_OTHER, (_KEY,)).fetchone()
    return session


def openness(connection: psycopg.Connection[Any]) -> str:
    """A sentence if every role of the cluster may connect."""
    is_open, name = connection.execute(_IS_OPEN).fetchone() or (False, "")
    if not is_open:
        return ""
    return f"Every role of PostgreSQL may connect to the database: REVOKE CONNECT ON DATABASE {name} FROM PUBLIC."
