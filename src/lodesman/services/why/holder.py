"""Who holds a job: the name that the event keeps by which it was Held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lodesman.store.engine import Reader, only_row

EVENT: Final = "SELECT data FROM event WHERE id = ?"
# Members without a row: the hole that they are in is as old as the event. Nearest first: ranges are seldom long.
RANGE_EVENT: Final = """SELECT data FROM event WHERE last_job IS NOT NULL AND job_id BETWEEN ? AND ? AND last_job >= ?
AND kind = 'Held' AND at = ? ORDER BY job_id DESC, id DESC LIMIT 1"""


def name_of_holder(db: Reader, job: Mapping[str, Any]) -> str | None:
    """The user who holds a job; None if nobody does, or the name was not kept."""
    if job["held_by"] != "user":
        return None
    if job["last_event"] is not None:
        data = only_row(db, EVENT, (job["last_event"],))[0]
    else:
        ids = job["base"], job["id"], job["id"]
        data = next(iter(db.execute(RANGE_EVENT, (*ids, job["since"]))), (None,))[0]
    name = msgspec.json.decode(data).get("name") if data else None
    return None if name is None else str(name)
