"""Input files of users: recorded when they were uploaded, needed when jobs name them."""

from __future__ import annotations

from collections.abc import Sequence

from lodesman.errors import InvalidJob, TooLarge
from lodesman.store import sandboxes
from lodesman.store.journal import Transaction
from lodesman.store.sandboxes import InputUsage, used_by


def register_input(tx: Transaction, owner: str, sha256: str, size: int, quota: int = 0) -> None:
    """Record that an owner has uploaded a file; idempotent. `quota`: bytes of all its files together, 0 for none.

    Raises TooLarge beyond the quota.
    """
    if not sandboxes.renew_input(tx, owner, sha256):
        need_room(used_by(tx.reader(), owner), size, quota)
        sandboxes.insert_input(tx, owner, sha256, size)


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
    if inputs and not sandboxes.known_inputs(tx.reader(), owner, inputs).issuperset(inputs):
        raise InvalidJob(
            "InputSandbox: a file that was uploaded long ago is not there any more.",
            hint="Submit again: it is uploaded anew.",
            attribute="InputSandbox",
        )
