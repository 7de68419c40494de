"""Input files that no job names any more: marked, and removed a time of grace later.

A client asks whether a file is there, and submits a job that names it later, maybe after uploading others for hours. So
a file that nothing names is marked first: from then on it is not there for those who ask (they upload it again, which
takes the mark off), and it is removed when those who asked before have had their time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lodesman.answers.service import FileKey, Untidy
from lodesman.store import inputs
from lodesman.store.engine import Reader
from lodesman.store.forget import keys_of
from lodesman.store.journal import Transaction

PORTION = 500


@dataclass(slots=True)
class Tidy:
    """Mark and remove files, each checked again; the files themselves go after the commit."""

    found: Untidy

    def apply(self, tx: Transaction) -> list[FileKey]:
        """Returns the files that are not known any more."""
        found = self.found
        if found.done:
            tx.write(inputs.DROP, (keys_of(found.done), PORTION))
        for submission, files in found.some:
            tx.write(inputs.DROP_SOME, (submission, keys_of(files)))
        if found.mark:
            tx.write(inputs.MARK, (tx.now, keys_of(found.mark), found.before))
        if found.unmark:
            tx.write(inputs.UNMARK, (keys_of(found.unmark),))
        gone = tx.read(inputs.REMOVE, (keys_of(found.remove), found.before)) if found.remove else []
        for owner, _, size in gone:
            tx.later(inputs.LESS_USED, (size, owner))
        return [(owner, sha256) for owner, sha256, _ in gone]


def look_for_untidy(db: Reader, before: float) -> Iterator[Untidy]:
    """Go through all files in portions. `before`: a time of grace ago (UNIX seconds)."""
    last: Sequence[str] = ("", "")
    while True:
        rows: list[Any] = list(db.execute(inputs.FILES, (*last, PORTION)))
        found = _sorted_out(rows, before)
        if found.mark or found.unmark or found.remove:
            yield found
        if len(rows) < PORTION:
            return
        last = rows[-1][:2]


def _sorted_out(rows: Sequence[tuple[str, str, float, float | None, int]], before: float) -> Untidy:
    found = Untidy(before=before)
    for owner, sha256, created, unused, named in rows:
        if named:
            wrong = found.unmark if unused is not None else None
        elif unused is None:
            wrong = found.mark if created < before else None
        else:
            wrong = found.remove if unused < before else None
        if wrong is not None:
            wrong.append((owner, sha256))
    return found
