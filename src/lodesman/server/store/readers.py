"""Who else may read a submission. Asked before each answer: a change holds at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lodesman.server.store import Reader
from lodesman.server.store.statement import ANY, ONE
from lodesman.server.store.transaction import Transaction
from lodesman.wire.job_queries import SubmissionReader

_READERS = "SELECT reader, at, by FROM submission_reader WHERE submission_id = ?"
_OWNED = "SELECT owner, grp, vo FROM submission WHERE id = ?"
_SHARED = """SELECT r.submission_id, r.by FROM submission_reader r JOIN submission s ON s.id = r.submission_id
WHERE s.vo = ? AND r.reader IN ({}) ORDER BY r.at DESC, r.by"""
_INSERT = "INSERT INTO submission_reader (submission_id, reader, at, by) VALUES (?,?,?,?)"
_DELETE = "DELETE FROM submission_reader WHERE submission_id = ? AND reader = ?"
_FORGET = "DELETE FROM submission_reader WHERE reader = ?"


class ReadsAs(NamedTuple):
    """Names by which a user reads: the own one, and `@` and each group."""

    vo: str = ""
    names: tuple[str, ...] = ()  # none: the user reads nothing of others

    @property
    def condition(self) -> tuple[str, tuple[str, ...]]:
        """SQL for submissions `s` shared so, and its values."""
        if not self.names:
            return "1 = 0", ()
        marks = ", ".join("?" * len(self.names))
        within = f"SELECT r.submission_id FROM submission_reader r WHERE r.reader IN ({marks})"
        return f"(s.vo = ? AND s.id IN ({within}))", (self.vo, *self.names)


def shared_with(db: Reader, reads: ReadsAs) -> dict[int, str]:
    """Submissions shared with a user, and by whom."""
    if not reads.names:
        return {}
    sql = _SHARED.format(", ".join("?" * len(reads.names)))
    return dict(db.execute(sql, (reads.vo, *reads.names)))


def is_shared_with(db: Reader, submission: int, reads: ReadsAs) -> bool:
    """Whether they may read this submission."""
    if not reads.names:
        return False
    words, values = reads.condition
    sql = f"SELECT 1 FROM submission s WHERE s.id = ? AND {words}"
    return db.execute(sql, (submission, *values)).fetchone() is not None


def readers_of(db: Reader, submission: int) -> list[SubmissionReader]:
    """Readers by name."""
    readers = [SubmissionReader(*row) for row in db.execute(_READERS, (submission,))]
    return sorted(readers, key=lambda reader: reader.reader)


def ownership_of(db: Reader, submission: int) -> tuple[str, str, str] | None:
    """Owner, group and VO; None without a submission."""
    return db.execute(_OWNED, (submission,)).fetchone()


def insert_readers(tx: Transaction, submission: int, names: Iterable[str], *, by: str) -> None:
    """None of them may be a reader yet."""
    for name in names:
        tx.write(_INSERT, (submission, name, tx.now, by), rows=ONE)


def forget_reader(tx: Transaction, name: str) -> None:
    """A removed user's name may be given again."""
    tx.write(_FORGET, (name,), rows=ANY)


def delete_readers(tx: Transaction, submission: int, names: Iterable[str]) -> None:
    """All of them must be readers."""
    for name in names:
        tx.write(_DELETE, (submission, name), rows=ONE)
