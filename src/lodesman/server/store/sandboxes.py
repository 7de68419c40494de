"""Input files and outputs of jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.database import Writer
from lodesman.server.store.dialect import GIVEN, GIVEN_TEXT_PAIRS, GIVEN_TEXTS, greatest, holds_text, keys
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.statement import ANY, AT_MOST_ONE, ONE, Statement
from lodesman.server.store.transaction import Transaction
from lodesman.wire.service import FileKey, UnusedInputs

_OWNER_OF_INPUT = f"""SELECT s.owner FROM attempt a JOIN job j ON j.id = a.job_id
JOIN template t ON t.id = j.template_id JOIN submission s ON s.id = j.submission_id
WHERE a.pilot_id = ? AND a.ended_at IS NULL AND {holds_text("t.body")} LIMIT 1"""
# Live, or lost but able to succeed late (`writer.report`).
_OPEN_ATTEMPT = """SELECT a.id FROM job j JOIN attempt a ON a.id = j.last_attempt
WHERE j.id = ? AND j.attempt = ? AND a.pilot_id = ? AND (a.ended_at IS NULL OR a.outcome = 'Released'
AND a.cause IN ('pilot-lost', 'lease-expired', 'not-named') AND a.stop_reason IS NULL
AND j.state IN ('Waiting', 'Held', 'Failed'))"""
_NOT_NOTED = "SELECT id, job_id, number FROM attempt WHERE ended_at IS NULL AND output_sha256 IS NULL"
_NOTE = "UPDATE attempt SET output_sha256 = ?, output_size = ? WHERE id = ?"
_USED = "SELECT files, bytes, outputs FROM sandbox_usage WHERE owner = ?"
_USAGES = "SELECT owner, files, bytes, outputs FROM sandbox_usage"
_OWNER_OF_JOB = "SELECT s.owner FROM job j JOIN submission s ON s.id = j.submission_id WHERE j.id = ?"
_UPLOADED = """SELECT job_id, number, output_size FROM attempt a WHERE output_size IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM small_output o WHERE o.attempt_id = a.id)"""
_OUTPUTS = """SELECT a.id, a.job_id, a.number, s.owner, a.output_size,
a.ended_at IS NOT NULL AND NOT EXISTS (SELECT 1 FROM small_output o WHERE o.attempt_id = a.id)
FROM attempt a JOIN job j ON j.id = a.job_id JOIN submission s ON s.id = j.submission_id
WHERE a.id > ? AND a.id <= ? AND a.output_size IS NOT NULL"""
_BLOCK_BYTES = 4_096
_INPUT_SUMS = (
    f"SELECT owner, count(*), sum({greatest('size', str(_BLOCK_BYTES))}) FROM sandbox GROUP BY owner"
)
_SIZE = "SELECT size, unused_since FROM sandbox WHERE owner = ? AND sha256 = ?"
_FILES = """SELECT s.owner, s.sha256, s.created_at, s.unused_since,
EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = s.owner AND u.sha256 = s.sha256)
FROM sandbox s WHERE (s.owner, s.sha256) > (?, ?) ORDER BY s.owner, s.sha256 LIMIT ?"""
_KNOWN = f"SELECT sha256 FROM sandbox WHERE owner = ? AND sha256 IN {GIVEN_TEXTS}"
_NAMED_BY = "SELECT sha256 FROM sandbox_use WHERE submission_id = ?"
_BODIES = """SELECT t.body FROM submission s JOIN template t ON t.id BETWEEN s.first_template AND s.last_template
WHERE s.id = ?"""


class InputUsage(NamedTuple):
    """What an owner's files take; an input file counts at least 4 kB."""

    files: int
    bytes: int
    outputs: int = 0  # bytes


class InputFacts(NamedTuple):
    """An input file."""

    owner: str
    sha256: str
    created_at: float
    unused_since: float | None  # since when no job names it
    is_named: int  # a job names it


class _OutputFacts(NamedTuple):
    attempt_id: int
    job_id: int
    number: int
    owner: str
    size: int  # as stored
    is_file: int  # it is on the shelf, and no other comes


def counted_size(size: int) -> int:
    """The bytes that a file counts for: at least a block."""
    return max(size, _BLOCK_BYTES)


def owner_of_job(db: Reader, job_id: int) -> str:
    """The owner, '' without a job."""
    return db.find(str, _OWNER_OF_JOB, (job_id,)) or ""


def stored_outputs(db: Reader) -> Iterator[tuple[int, int, int | None]]:
    """(job, number of the attempt, bytes) of every uploaded archive."""
    yield from db.execute(_UPLOADED)


def outputs_of_portion(db: Reader, after: int, last: int) -> list[_OutputFacts]:
    """Outputs of attempts with after < id <= last."""
    return [_OutputFacts(*row) for row in db.execute(_OUTPUTS, (after, last))]


def input_sums(db: Reader) -> dict[str, tuple[int, int]]:
    """Sums (files, bytes) by owner."""
    return {owner: (files, int(size)) for owner, files, size in db.execute(_INPUT_SUMS)}


def usage_by_owner(db: Reader) -> dict[str, InputUsage]:
    """What counts as used, by owner."""
    return {owner: InputUsage(*row) for owner, *row in db.execute(_USAGES)}


def small_output(db: Reader, attempt_id: int | None) -> bytes | None:
    """The archive that came with an attempt's report."""
    return db.find(bytes, "SELECT content FROM small_output WHERE attempt_id = ?", (attempt_id,))


def stored_inputs(db: Reader) -> Iterator[tuple[str, str, int]]:
    """(owner, sha256, bytes) of every input file."""
    yield from db.execute("SELECT owner, sha256, size FROM sandbox")


def usage_of(db: Reader, owner: str) -> InputUsage:
    """What counts as used."""
    return db.find(InputUsage, _USED, (owner,)) or InputUsage(0, 0)


def uploaded_size(db: Reader, owner: str, sha256: str, *, to_stay: bool = False) -> int | None:
    """None without such a file. `to_stay`: or if it is about to be removed."""
    size, unused_since = db.execute(_SIZE, (owner, sha256)).fetchone() or (None, None)
    return None if to_stay and unused_since is not None else size


def owner_of_input(db: Reader, pilot_id: int, sha256: str) -> str | None:
    """None if no job of the pilot names the file."""
    return db.find(str, _OWNER_OF_INPUT, (pilot_id, sha256))


def may_hand_in(db: Reader, pilot_id: int, job_id: int, attempt: int) -> int | None:
    """The id of an attempt whose result still counts; None otherwise."""
    return db.find(int, _OPEN_ATTEMPT, (job_id, attempt, pilot_id))


def note_uploads(db: Writer, shelf: Shelf) -> int:
    """At a start, note outputs on the shelf that a killed server left unnoted; returns how many."""
    lost = [(number, shelf.output_path(job, n)) for number, job, n in db.execute(_NOT_NOTED)]
    outputs = [(number, path) for number, path in lost if path.is_file()]
    with db:
        for number, path in outputs:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            ONE.check(_NOTE, db.change(_NOTE, (digest, path.stat().st_size, number)))
    return len(outputs)


def input_files(db: Reader, portion: int) -> Iterator[list[InputFacts]]:
    """All input files, in portions."""
    last = ("", "")
    while rows := [InputFacts(*row) for row in db.execute(_FILES, (*last, portion))]:
        yield rows
        last = rows[-1][:2]


def owners_of_inputs(db: Reader) -> list[str]:
    """All owners of inputs."""
    return [row[0] for row in db.execute("SELECT owner FROM sandbox_usage")]


def known_inputs(db: Reader, owner: str, files: Iterable[str]) -> set[str]:
    """Those of the files that the owner has uploaded."""
    return {row[0] for row in db.execute(_KNOWN, (owner, keys(files)))}


def inputs_of_submission(db: Reader, submission: int) -> set[str]:
    """The files that it names."""
    return {row[0] for row in db.execute(_NAMED_BY, (submission,))}


def bodies_of_submission(db: Reader, submission: int) -> Iterator[str]:
    """Its templates as JSON."""
    return (row[0] for row in db.execute(_BODIES, (submission,)))


_RENEW = "UPDATE sandbox SET created_at = ?, unused_since = NULL WHERE owner = ? AND sha256 = ?"
_INSERT = "INSERT INTO sandbox (owner, sha256, size, created_at) VALUES (?,?,?,?)"
_ADD_USED = Statement(
    sql="""INSERT INTO sandbox_usage (owner, files, bytes) VALUES (?,?,?) ON CONFLICT (owner) DO UPDATE
    SET files = sandbox_usage.files + excluded.files, bytes = sandbox_usage.bytes + excluded.bytes""",
    key=(0,),
)
# Several jobs of a submission may name one file.
_USE = Statement(
    sql="INSERT INTO sandbox_use (owner, sha256, submission_id) VALUES (?,?,?) ON CONFLICT DO NOTHING",
    key=(0, 1, 2),
    rows=AT_MOST_ONE,
)
_THESE = f"(owner, sha256) IN {GIVEN_TEXT_PAIRS}"
_NAMED = "EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = sandbox.owner AND u.sha256 = sandbox.sha256)"
_MARK = f"UPDATE sandbox SET unused_since = ? WHERE {_THESE} AND unused_since IS NULL AND created_at < ? AND NOT {_NAMED}"
_REMOVE = (
    f"DELETE FROM sandbox WHERE {_THESE} AND unused_since < ? AND NOT {_NAMED} RETURNING owner, sha256, size"
)
_CORRECT_USAGE = """UPDATE sandbox_usage SET files = ?, bytes = ?, outputs = ?
WHERE owner = ? AND files = ? AND bytes = ? AND outputs = ?"""
# Rows that one command deletes.
_MOST_ROWS = 500
_DROP_USES = f"""DELETE FROM sandbox_use WHERE (owner, sha256, submission_id) IN (SELECT owner, sha256, submission_id
FROM sandbox_use WHERE submission_id IN {GIVEN} LIMIT ?)"""
_DROP_SOME = f"DELETE FROM sandbox_use WHERE submission_id = ? AND sha256 IN {GIVEN_TEXTS}"


def correct_usage(tx: Transaction, owner: str, before: Sequence[int], counted: Sequence[int]) -> bool:
    """Store counted files, bytes and outputs, if they are still as `before`."""
    return bool(tx.write(_CORRECT_USAGE, (*counted, owner, *before), rows=AT_MOST_ONE))


def renew_input(tx: Transaction, owner: str, sha256: str) -> bool:
    """Note that a file was uploaded again; false if it is not there."""
    return bool(tx.write(_RENEW, (tx.now, owner, sha256), rows=AT_MOST_ONE))


def insert_input(tx: Transaction, owner: str, sha256: str, size: int) -> None:
    """Store a new upload."""
    tx.write(_INSERT, (owner, sha256, size, tx.now), rows=ONE)
    tx.later(_ADD_USED, (owner, 1, counted_size(size)))


def use_inputs(tx: Transaction, owner: str, files: Iterable[str], submission: int) -> None:
    """Keep these files as long as the submission."""
    tx.later_many(_USE, [(owner, sha256, submission) for sha256 in files])


def tidy_inputs(tx: Transaction, unused: UnusedInputs) -> list[FileKey]:
    """Mark and remove input files that no job names; returns the removed ones.

    A client asks for a file before it submits, so removal follows some time after the mark. A marked file does not
    count as there; uploading it again takes the mark off.
    """
    tx.write(_DROP_USES, (keys(unused.done), _MOST_ROWS), rows=ANY)
    for submission, files in unused.some:
        tx.write(_DROP_SOME, (submission, keys(files)), rows=ANY)
    tx.write(_MARK, (tx.now, keys(unused.mark), unused.before), rows=ANY)
    tx.write(
        f"UPDATE sandbox SET unused_since = NULL WHERE {_THESE} AND {_NAMED}",
        (keys(unused.unmark),),
        rows=ANY,
    )
    gone = tx.read(_REMOVE, (keys(unused.remove), unused.before), changes=True)
    for owner, _, size in gone:
        tx.later(_ADD_USED, (owner, -1, -counted_size(size)))
    return [(owner, sha256) for owner, sha256, _ in gone]
