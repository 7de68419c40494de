"""Input files of users: recorded when they were uploaded, needed when jobs name them."""

from __future__ import annotations

from collections.abc import Sequence

from lodesman.errors import InvalidJob, TooLarge
from lodesman.store import sandboxes
from lodesman.store.journal import Transaction
from lodesman.store.sandboxes import InputUsage, taken, used_by

_DELETE = "Delete jobs that you need no more (lode delete JOB): files that no job names go a day later."


def register_input(
    tx: Transaction, owner: str, sha256: str, size: int, *, quota: int = 0, most_files: int = 0
) -> None:
    """Record that an owner has uploaded a file; idempotent. Raises TooLarge as `need_room`."""
    if not sandboxes.renew_input(tx, owner, sha256):
        need_room(owner, used_by(tx.reader(), owner), size, quota=quota, most_files=most_files)
        sandboxes.insert_input(tx, owner, sha256, size)


def need_room(owner: str, used: InputUsage, size: int, *, quota: int, most_files: int = 0) -> None:
    """Raises TooLarge if a file of this size does not fit into the owner's quota of bytes, or is a file too many (0: there
    is no such limit).
    """
    would, there = used.bytes + used.outputs + taken(size), used.bytes + used.outputs
    if quota and would > quota:
        raise TooLarge(
            f"The input files and outputs of user {owner} would take {_mb(would)}: {_mb(there)} are there, "
            f"{_mb(quota)} allowed.",
            hint=f"{_DELETE} Or ask an administrator for a larger sandbox_quota_mb.",
            limit=quota,
            used=there,
            size=size,
        )
    if most_files and used.files >= most_files:
        raise TooLarge(
            f"User {owner} has {used.files:,} input files, and may have no more.",
            hint=f"{_DELETE} Administrators set input_files in [limits].",
            limit=most_files,
        )


def _mb(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MB"


def need_all(tx: Transaction, owner: str, inputs: Sequence[str]) -> None:
    """Raises InvalidJob unless all these files are there: one may have been removed since they were asked for."""
    if inputs and not sandboxes.known_inputs(tx.reader(), owner, inputs).issuperset(inputs):
        raise InvalidJob(
            "InputSandbox: a file that was uploaded long ago is not there any more.",
            hint="Submit again: it is uploaded anew.",
            attribute="InputSandbox",
        )
