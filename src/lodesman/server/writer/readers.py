"""Sharing of submissions: their owners say who may read them."""

from __future__ import annotations

from collections.abc import Sequence

from lodesman.base.errors import InvalidRequest, NotFound
from lodesman.server.store import Reader, accounts, readers
from lodesman.server.store.transaction import Transaction
from lodesman.wire.job_queries import MOST_READERS


def own_submission(db: Reader, submission: int, user: str | None) -> tuple[str, str]:
    """Owner and VO; `user` None: anybody's. Raises NotFound."""
    ownership = readers.ownership_of(db, submission)
    if ownership is None or user not in (None, ownership[0]):
        words = "you may see" if user is None else "is yours"
        raise NotFound(f"There is no submission {submission} that {words}.", hint="See: lode status")
    return ownership[0], ownership[2]


def add_readers(tx: Transaction, submission: int, names: Sequence[str], user: str | None, *, by: str) -> None:
    """Users and groups of its VO, all or none. Raises NotFound, InvalidRequest for its owner, or too many."""
    owner, vo = own_submission(tx.reader(), submission, user)
    before = {reader.reader for reader in readers.readers_of(tx.reader(), submission)}
    new = [name for name in dict.fromkeys(names) if name not in before]
    if owner in new:
        raise InvalidRequest(
            f"Submission {submission} is {owner}'s own.", hint="Name others: a user, or @GROUP."
        )
    _check_known(tx.reader(), [name for name in new if not name.startswith("@")], vo)
    if len(before) + len(new) > MOST_READERS:
        raise InvalidRequest(
            f"Submission {submission} would have more than {MOST_READERS} readers.",
            hint="Name a group: @GROUP.",
        )
    readers.insert_readers(tx, submission, new, by=by)


def remove_readers(tx: Transaction, submission: int, names: Sequence[str], user: str | None) -> None:
    """All or none. Raises NotFound, also for one who does not read it."""
    own_submission(tx.reader(), submission, user)
    before = [reader.reader for reader in readers.readers_of(tx.reader(), submission)]
    for name in names:
        if name not in before:
            now = f"It is shared with {', '.join(before)}." if before else "It is not shared."
            raise NotFound(f"Submission {submission} is not shared with {name}.", hint=now)
    readers.delete_readers(tx, submission, dict.fromkeys(names))


def _check_known(db: Reader, names: Sequence[str], vo: str) -> None:
    """Says the same of unknown users and those of other VOs."""
    for name in names:
        user = accounts.user_named(db, name)
        if user is None or user.vo != vo:
            hint = "Submissions are shared within a VO, with users (ann) and groups (@physics)."
            raise NotFound(f"There is no user {name} in VO {vo}.", hint=hint)
