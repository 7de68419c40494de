"""Users who come in numbers, and users who leave: what is asked, and what is answered."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.wire.requests import AccountBody, Sent, Text

MOST_IMPORTED: Final = 1_000


class ImportUsersBody(Sent, frozen=True):
    """Users to make, all or none. `update`: those who are there otherwise are changed. `dry_run`: nothing is changed."""

    users: Annotated[list[AccountBody], Meta(min_length=1, max_length=MOST_IMPORTED)]
    update: bool = False
    dry_run: bool = False


class RemoveUserBody(Sent, frozen=True):
    """A user to remove. `dry_run`: nothing is changed."""

    name: Text
    dry_run: bool = False


class UserRemoved(Struct, frozen=True, kw_only=True):
    """A user who was removed, or would be: the `tokens` that end, the jobs that have not ended by state, if these refuse it,
    and what stays: jobs that ended, and input files.
    """

    name: str
    tokens: int
    live: dict[str, int]
    jobs: int
    files: int
    dry_run: bool


class ImportedUser(Struct, frozen=True):
    """A user of a list: made, changed, or there already as the list says."""

    name: str
    change: Literal["new", "changed", "same"]


class ImportedUsers(Struct, frozen=True):
    """The users of a list, in its order."""

    users: list[ImportedUser]
    dry_run: bool
