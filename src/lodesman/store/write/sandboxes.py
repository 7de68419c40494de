"""Input files: which there are, which of them submissions name, what they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lodesman.answers.service import FileKey
from lodesman.store.dialect import GIVEN, GIVEN_PAIRS, keys
from lodesman.store.journal import Transaction

_RENEW = "UPDATE sandbox SET created_at = ?, unused_since = NULL WHERE owner = ? AND sha256 = ?"
_INSERT = "INSERT INTO sandbox (owner, sha256, size, created_at) VALUES (?,?,?,?)"
_ADD_USED = """INSERT INTO sandbox_usage (owner, files, bytes) VALUES (?,?,?) ON CONFLICT (owner) DO UPDATE
SET files = sandbox_usage.files + excluded.files, bytes = sandbox_usage.bytes + excluded.bytes"""
_THERE = f"SELECT count(*) FROM sandbox WHERE owner = ? AND sha256 IN {GIVEN}"
_USE = "INSERT INTO sandbox_use (owner, sha256, submission_id) VALUES (?,?,?) ON CONFLICT DO NOTHING"
_THESE = f"(owner, sha256) IN {GIVEN_PAIRS}"
_NAMED = "EXISTS (SELECT 1 FROM sandbox_use u WHERE u.owner = sandbox.owner AND u.sha256 = sandbox.sha256)"
_MARK = f"UPDATE sandbox SET unused_since = ? WHERE {_THESE} AND unused_since IS NULL AND created_at < ? AND NOT {_NAMED}"
_UNMARK = f"UPDATE sandbox SET unused_since = NULL WHERE {_THESE} AND {_NAMED}"
_REMOVE = (
    f"DELETE FROM sandbox WHERE {_THESE} AND unused_since < ? AND NOT {_NAMED} RETURNING owner, sha256, size"
)
_DROP_USES = f"""DELETE FROM sandbox_use WHERE (owner, sha256, submission_id) IN (SELECT owner, sha256, submission_id
FROM sandbox_use WHERE submission_id IN {GIVEN} LIMIT ?)"""
_DROP_SOME = f"DELETE FROM sandbox_use WHERE submission_id = ? AND sha256 IN {GIVEN}"


def renew_input(tx: Transaction, owner: str, sha256: str) -> bool:
    """A file was uploaded once more; false if it is not there."""
    return bool(tx.write(_RENEW, (tx.now, owner, sha256)))


def insert_input(tx: Transaction, owner: str, sha256: str, size: int) -> None:
    """Store that an owner has uploaded a file."""
    tx.write(_INSERT, (owner, sha256, size, tx.now))
    tx.write(_ADD_USED, (owner, 1, size))


def are_all_there(tx: Transaction, owner: str, files: Sequence[str]) -> bool:
    """Whether the owner has uploaded all these files, each named once."""
    return bool(tx.read(_THERE, (owner, keys(files)))[0][0] == len(files))


def use_inputs(tx: Transaction, owner: str, files: Iterable[str], submission: int) -> None:
    """A submission names these files: they stay as long as it does."""
    tx.later_many(_USE, [(owner, sha256, submission) for sha256 in files])


def drop_uses(tx: Transaction, submissions: Sequence[int], most: int) -> None:
    """The jobs of these submissions need their files no more. Deletes at most `most` rows."""
    tx.write(_DROP_USES, (keys(submissions), most))


def drop_some_uses(tx: Transaction, submission: int, files: Sequence[str]) -> None:
    """A submission needs these files no more."""
    tx.write(_DROP_SOME, (submission, keys(files)))


def mark_unused(tx: Transaction, files: Sequence[FileKey], before: float) -> None:
    """Mark those of the files that nothing names and that were uploaded before that time."""
    tx.write(_MARK, (tx.now, keys(files), before))


def mark_used(tx: Transaction, files: Sequence[FileKey]) -> None:
    """Take the mark off those of the files that a submission names again."""
    tx.write(_UNMARK, (keys(files),))


def remove_unused(tx: Transaction, files: Sequence[FileKey], before: float) -> list[FileKey]:
    """Delete those of the files that were marked before that time and that nothing names; returns them."""
    gone = tx.read(_REMOVE, (keys(files), before))
    for owner, _, size in gone:
        tx.later(_ADD_USED, (owner, -1, -size))
    return [(owner, sha256) for owner, sha256, _ in gone]
