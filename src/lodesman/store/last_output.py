"""The last output of a job, and whose it is."""

from __future__ import annotations

from typing import NamedTuple

from lodesman.store.engine import Reader

LAST = """SELECT j.state, j.attempt, s.owner, s.grp, s.vo, a.pilot_id, a.tail, a.ended_at IS NOT NULL FROM job j
JOIN submission s ON s.id = j.submission_id LEFT JOIN attempt a ON a.id = j.last_attempt WHERE j.id = ?"""


class LastOutput(NamedTuple):
    """How a job stands, and what its last attempt wrote before it `ended`; no attempt: no pilot, None for the tail."""

    state: str
    attempt: int
    owner: str
    group: str
    vo: str
    pilot: int | None
    tail: str | None
    ended: bool


def last_output(db: Reader, job_id: int) -> LastOutput | None:
    """Of a job with a row; None for a member of an array that nobody took yet, and for no job."""
    row = db.execute(LAST, (job_id,)).fetchone()
    if row is None:
        return None
    state, attempt, owner, group, vo, pilot, tail, ended = row
    return LastOutput(state, attempt, owner, group, vo, pilot, tail, bool(ended))
