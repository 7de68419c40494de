"""Input files of users: recorded when they were uploaded, needed when jobs name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lodesman.answers.service import FileKey, UnusedInputs
from lodesman.errors import InvalidJob, TooLarge
from lodesman.store import sandboxes
from lodesman.store.journal import Transaction
from lodesman.store.sandboxes import InputUsage, used_by

# Rows that one command deletes.
_MOST_ROWS = 500


@dataclass(slots=True)
class RegisterSandbox:
    """Record that an owner has uploaded a file. `quota` in bytes of all its files together, 0 for none."""

    owner: str
    sha256: str
    size: int
    quota: int = 0

    def apply(self, tx: Transaction) -> None:
        """Idempotent. Raises TooLarge beyond the quota."""
        if sandboxes.renew_input(tx, self.owner, self.sha256):
            return
        need_room(used_by(tx.reader(), self.owner), self.size, self.quota)
        sandboxes.insert_input(tx, self.owner, self.sha256, self.size)


def need_room(used: InputUsage, size: int, quota: int) -> None:
    """Raises TooLarge if a file of this size does not fit into the owner's quota (bytes; 0: there is none)."""
    if quota and used.bytes + size > quota:
        raise TooLarge(
            f"Your input files would take {_mb(used.bytes + size)}: {_mb(used.bytes)} are there, {_mb(quota)} allowed.",
            hint="Delete jobs that you need no more (lode delete JOB): files that no job names go a day later. "
            "Or ask an administrator for a larger sandbox_quota_mb.",
            limit=quota,
            used=used.bytes,
            size=size,
        )


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


def need_all(tx: Transaction, owner: str, inputs: Sequence[str]) -> None:
    """Raises InvalidJob unless all these files are there: one may have been removed since they were asked for."""
    if inputs and not sandboxes.are_all_there(tx, owner, inputs):
        raise InvalidJob(
            "InputSandbox: a file that was uploaded long ago is not there any more.",
            hint="Submit again: it is uploaded anew.",
            attribute="InputSandbox",
        )


@dataclass(slots=True)
class TidyInputs:
    """Mark and remove input files that no job names, each checked again; the files themselves go after the commit.

    They are removed some time after the mark: a client asks whether a file is there, and submits a job that names it
    later. A marked file is not there for who asks; uploading it again takes the mark off.
    """

    found: UnusedInputs

    def apply(self, tx: Transaction) -> list[FileKey]:
        """Returns the files that are not known any more."""
        found = self.found
        if found.done:
            sandboxes.drop_uses(tx, found.done, _MOST_ROWS)
        for submission, files in found.some:
            sandboxes.drop_some_uses(tx, submission, files)
        if found.mark:
            sandboxes.mark_unused(tx, found.mark, found.before)
        if found.unmark:
            sandboxes.mark_used(tx, found.unmark)
        return sandboxes.remove_unused(tx, found.remove, found.before) if found.remove else []
