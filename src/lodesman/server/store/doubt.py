"""Whether a transaction was committed whose connection ended meanwhile: the database says it (ADR 0041)."""

from __future__ import annotations

from collections.abc import Callable

from lodesman.base.errors import Unavailable
from lodesman.server.store.database import DatabaseGone, Writer

STATE = "SELECT epoch, batch FROM leadership"


def was_committed(db: Writer, epoch: int, batch: int, wait: Callable[[Unavailable], None]) -> bool:
    """Whether batch number `batch` is stored; asked until the database answers, with `wait` in between.

    A new connection has the lock of the writer, so the old session is over, whichever way. Raises DatabaseGone if another
    server has begun: then it is not known.
    """
    while True:
        try:
            db.begin()
            now, stored = db.only(STATE)
            db.roll_back()
        except DatabaseGone:
            raise
        except Unavailable as away:
            wait(away)
            continue
        if now != epoch:
            raise DatabaseGone("Another server took over this database.", hint="Stop one of the two.")
        return bool(stored >= batch)
