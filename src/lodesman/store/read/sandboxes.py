"""Files of users and pilots: what was uploaded, who may read it, what nothing names any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lodesman.store import Reader
from lodesman.store.dialect import GIVEN, holds_text, keys

_OWNER_OF_INPUT = f"""SELECT s.owner FROM attempt a JOIN job j ON j.id = a.job_id
JOIN template t ON t.id = j.template_id JOIN submission s ON s.id = j.submission_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND {holds_text("t.body")} LIMIT 1"""
# Live, or lost and such that its success would still count (`commands.report`).
_OPEN_ATTEMPT = """SELECT 1 FROM job j JOIN attempt a ON a.id = j.last_attempt
WHERE j.id = ? AND j.attempt = ? AND a.pilot_id = ? AND (a.ended_at IS NULL OR a.outcome = 'Released'
AND a.cause IN ('pilot-lost', 'lease-expired') AND a.stop_reason IS NULL AND j.state IN ('Waiting', 'Held', 'Failed'))"""
_USED = "SELECT files, bytes FROM sandbox_usage WHERE owner = ?"
_SIZE = "SELECT size, unused_since FROM sandbox WHERE owner = ? AND sha256 = ?"
_FILES = """SELECT s.owner, s.sha256, s.created_at, s.unused_since,
EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = s.owner AND u.sha256 = s.sha256)
FROM sandbox s WHERE (s.owner, s.sha256) > (?, ?) ORDER BY s.owner, s.sha256 LIMIT ?"""
_KNOWN = f"SELECT sha256 FROM sandbox WHERE owner = ? AND sha256 IN {GIVEN}"
_NAMED_BY = "SELECT sha256 FROM sandbox_use WHERE submission_id = ?"
_BODIES = """SELECT t.body FROM submission s JOIN template t ON t.id BETWEEN s.first_template AND s.last_template
WHERE s.id = ?"""


class InputUsage(NamedTuple):
    """What the input files of an owner take."""

    files: int
    bytes: int


class InputFacts(NamedTuple):
    """An input file. `unused_since`: no job names it since then; `is_named`: one does."""

    owner: str
    sha256: str
    created_at: float
    unused_since: float | None
    is_named: int


def used_by(db: Reader, owner: str) -> InputUsage:
    """What the input files of an owner take."""
    return InputUsage(*(db.execute(_USED, (owner,)).fetchone() or (0, 0)))


def uploaded_size(db: Reader, owner: str, sha256: str, *, to_stay: bool = False) -> int | None:
    """The size of a file that the owner uploaded, None if there is none.

    `to_stay`: a file that is about to be removed, since no job names it, does not count.
    """
    size, unused_since = db.execute(_SIZE, (owner, sha256)).fetchone() or (None, None)
    return None if to_stay and unused_since is not None else size


def owner_of_input(db: Reader, pilot_id: int, sha256: str) -> str | None:
    """The owner of a file that a pilot may read, since a job that it has names it; None if there is none."""
    row = db.execute(_OWNER_OF_INPUT, (pilot_id, sha256)).fetchone()
    return None if row is None else row[0]


def may_hand_in(db: Reader, pilot_id: int, job_id: int, attempt: int) -> bool:
    """Whether a pilot has this attempt, and its result can still count."""
    return bool(db.execute(_OPEN_ATTEMPT, (job_id, attempt, pilot_id)).fetchone())


def input_files(db: Reader, portion: int) -> Iterator[list[InputFacts]]:
    """All input files, in portions."""
    last = ("", "")
    while rows := [InputFacts(*row) for row in db.execute(_FILES, (*last, portion))]:
        yield rows
        last = rows[-1][:2]


def owners_of_inputs(db: Reader) -> list[str]:
    """All owners of input files."""
    return [row[0] for row in db.execute("SELECT owner FROM sandbox_usage")]


def known_inputs(db: Reader, owner: str, files: Iterable[str]) -> set[str]:
    """Those of the files that the owner has uploaded."""
    return {row[0] for row in db.execute(_KNOWN, (owner, keys(files)))}


def inputs_of_submission(db: Reader, submission: int) -> set[str]:
    """The files that a submission names."""
    return {row[0] for row in db.execute(_NAMED_BY, (submission,))}


def bodies_of_submission(db: Reader, submission: int) -> Iterator[str]:
    """The templates of a submission, as JSON."""
    return (row[0] for row in db.execute(_BODIES, (submission,)))
