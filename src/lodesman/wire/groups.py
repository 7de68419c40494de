"""Groups: their shares, by file or by command, their members, and what was done to them by command."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from lodesman.wire.requests import LAST_SECOND, Given

GroupChangeKind = Literal["share-set", "share-reset", "user-added", "user-removed"]
_Reason = Annotated[str, Meta(min_length=1, max_length=1_000)]


class GroupAt(Struct, frozen=True, omit_defaults=True):
    """A group by its name."""

    group: str


class GroupShareBody(Struct, frozen=True, omit_defaults=True):
    """The share of a group from now on; null: that of the files again. `until`: it ends then, UNIX seconds."""

    group: Given
    share: Annotated[float, Meta(ge=0, le=1e12)] | None
    reason: _Reason
    until: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None


class GroupUsersBody(Struct, frozen=True, omit_defaults=True):
    """Users who join a group or leave it."""

    group: Given
    users: Annotated[list[Given], Meta(min_length=1, max_length=1_000)]
    how: Literal["add", "remove"] = "add"
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group. `vo` '': of any. `share`: that is in use; `file_share`: that of the files, null of a group that is not there.

    `set_by` '': the share is that of the files; else who set it by command, when (UNIX seconds), and why; `until`: that
    share ends then. `users`: its members, of whom users see themselves alone.
    """

    group: str
    vo: str
    share: float
    file_share: float | None
    job_sharing: bool
    set_by: str = ""
    set_at: float | None = None
    reason: str = ""
    users: list[str]
    until: float | UnsetType = UNSET


class GroupRows(Struct, frozen=True):
    """All groups that the caller may know, by name."""

    groups: list[GroupRow]


class GroupChange(Struct, frozen=True):
    """What was done to a group by command: when (UNIX seconds), what, by whom and why; `share` of shares that were set, and
    `until` when, if they end by themselves.
    """

    at: float
    change: GroupChangeKind
    share: float | None
    user: str
    by: str
    reason: str
    until: float | UnsetType = UNSET


class GroupInFull(GroupRow, frozen=True, kw_only=True):
    """A group with what was done to it, the newest first."""

    changes: list[GroupChange]
