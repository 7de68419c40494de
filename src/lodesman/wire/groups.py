"""Groups: their members, and their shares, which come from files or commands and may be corrected by usage."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

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


Currency = Literal["starts", "core-seconds"]
_Factor = Annotated[float, Meta(ge=1, le=1e6)]


class TimeSlice(Struct, forbid_unknown_fields=True, frozen=True):
    """A time up to now, in seconds, over which usage is held against shares; it corrects by its `max_correction` at most."""

    time_span: Annotated[float, Meta(ge=900, le=31_622_400)] = field(name="TimeSpan", default=604_800.0)
    weight: Annotated[float, Meta(gt=0, le=1e6)] = field(name="Weight", default=1.0)
    max_correction: _Factor = field(name="MaxCorrection", default=3.0)


class ShareSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Whether shares are corrected by usage, counted in job starts or in core-seconds. `most`: the greatest factor of all
    slices together; its inverse is the least.
    """

    corrector: Literal["none", "usage"] = "none"
    currency: Currency = "starts"
    slices: Annotated[tuple[TimeSlice, ...], Meta(min_length=1, max_length=8)] = (TimeSlice(),)
    most: _Factor = field(name="MaxGlobalCorrectionFactor", default=5.0)


class SliceUsage(Struct, frozen=True):
    """The usage in a time slice by group, and by owner in each group; whoever used nothing is not there."""

    time_slice: TimeSlice
    groups: dict[str, float]
    owners: dict[str, dict[str, float]]


class Arena(Struct, frozen=True):
    """Groups that are compared: those of a VO, or of several VOs that have a group in common."""

    vos: list[str]
    groups: list[str]


class KnownUsage(Struct, frozen=True, kw_only=True):
    """The usage as of `at`, UNIX seconds. `arenas`, and `owners` by group: whoever used something or has waiting jobs."""

    at: float
    currency: Currency
    most: float
    slices: list[SliceUsage]
    arenas: list[Arena]
    owners: dict[str, list[str]]


class UsageFound(Struct, frozen=True):
    """What the shares are corrected by from now on, for this number of seconds at most; None: they are not corrected."""

    usage: KnownUsage | None
    seconds: float


class CorrectedOwner(Struct, frozen=True):
    """An owner in a group: what it used in each time slice, and its weight; the mean of those of all owners is 1."""

    owner: str
    used: list[float]
    factor: float
    weight: float


class CorrectedShare(Struct, frozen=True):
    """A group: what it used in each time slice, its share as configured, the factor, and the share that is drawn by.

    Corrected shares of groups that are compared have the sum of the configured ones. `owners`: not with job sharing; those
    with most usage come first in an answer, which has 1,000 at most.
    """

    group: str
    used: list[float]
    share: float
    factor: float
    corrected: float
    owners: list[CorrectedOwner]


class ShareCorrection(Struct, frozen=True):
    """The correction of shares by usage, which was read `at`, UNIX seconds."""

    at: float
    currency: Currency
    slices: list[TimeSlice]
    most: float
    groups: list[CorrectedShare]
