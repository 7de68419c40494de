"""Groups: their members, and shares, which come from files or commands and may be corrected by usage."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from lodesman.wire.requests import LAST_SECOND, KnownName

GroupChangeKind = Literal["share-set", "share-reset", "user-added", "user-removed"]
_Reason = Annotated[str, Meta(min_length=1, max_length=1_000)]


class GroupAt(Struct, frozen=True, omit_defaults=True):
    """A group by its name."""

    group: str


class GroupShareBody(Struct, frozen=True, omit_defaults=True):
    """The share of a group from now on."""

    group: KnownName
    share: Annotated[float, Meta(ge=0, le=1e12)] | None  # null: that of the files again.
    reason: _Reason
    until: Annotated[float, Meta(ge=0, le=LAST_SECOND)] | None = None  # It ends then, UNIX seconds.


class GroupUsersBody(Struct, frozen=True, omit_defaults=True):
    """Users who join a group or leave it."""

    group: KnownName
    users: Annotated[list[KnownName], Meta(min_length=1, max_length=1_000)]
    how: Literal["add", "remove"] = "add"
    reason: Annotated[str, Meta(max_length=1_000)] = ""


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group."""

    group: str
    vo: str  # '': of any.
    share: float  # The share in use.
    file_share: float | None  # The share by the files; null of a group that is not there.
    job_sharing: bool
    set_by: str = ""  # Who set the share by command; '': it is that of the files.
    set_at: float | None = None  # UNIX seconds.
    reason: str = ""  # Why it was set.
    users: list[str]  # Its members, of whom users see themselves alone.
    until: float | UnsetType = UNSET  # The share that was set ends then, UNIX seconds.


class GroupRows(Struct, frozen=True):
    """All groups that the caller may know, by name."""

    groups: list[GroupRow]


class GroupChange(Struct, frozen=True):
    """What was done to a group by command."""

    at: float  # UNIX seconds.
    change: GroupChangeKind
    share: float | None  # Given where a share was set.
    user: str
    by: str
    reason: str
    until: float | UnsetType = UNSET  # When a share ends that ends by itself, UNIX seconds.


class GroupInFull(GroupRow, frozen=True, kw_only=True):
    """A group with what was done to it, the newest first."""

    changes: list[GroupChange]


Currency = Literal["starts", "core-seconds"]
_Factor = Annotated[float, Meta(ge=1, le=1e6)]


class TimeSlice(Struct, forbid_unknown_fields=True, frozen=True):
    """A time up to now over which usage is held against shares."""

    # In seconds.
    time_span: Annotated[float, Meta(ge=900, le=31_622_400)] = field(name="TimeSpan", default=604_800.0)
    weight: Annotated[float, Meta(gt=0, le=1e6)] = field(name="Weight", default=1.0)
    max_correction: _Factor = field(name="MaxCorrection", default=3.0)  # It corrects by this factor at most.


class ShareSection(Struct, forbid_unknown_fields=True, frozen=True):
    """Whether and how shares are corrected by usage."""

    corrector: Literal["none", "usage"] = "none"
    currency: Currency = "starts"  # What usage counts.
    slices: Annotated[tuple[TimeSlice, ...], Meta(min_length=1, max_length=8)] = (TimeSlice(),)
    # The greatest factor of all slices together; its inverse is the least.
    most: _Factor = field(name="MaxGlobalCorrectionFactor", default=5.0)


class SliceUsage(Struct, frozen=True):
    """The usage in a time slice; whoever used nothing is not there."""

    time_slice: TimeSlice
    groups: dict[str, float]
    owners: dict[str, dict[str, float]]  # By group.


class Arena(Struct, frozen=True):
    """Groups that are compared: those of a VO, or of several VOs that have a group in common."""

    vos: list[str]
    groups: list[str]


class KnownUsage(Struct, frozen=True, kw_only=True):
    """The usage that is known at a time."""

    at: float  # UNIX seconds.
    currency: Currency
    most: float
    slices: list[SliceUsage]
    arenas: list[Arena]  # Of groups that used something or have waiting jobs.
    owners: dict[str, list[str]]  # By group: who used something or has waiting jobs.


class CorrectionUsage(Struct, frozen=True):
    """What the shares are corrected by from now on."""

    usage: KnownUsage | None  # None: they are not corrected.
    seconds: float  # For how long at most.


class CorrectedOwner(Struct, frozen=True):
    """An owner in a group."""

    owner: str
    used: list[float]  # In each time slice.
    factor: float
    weight: float  # The mean of those of all owners is 1.


class CorrectedShare(Struct, frozen=True):
    """A group whose share is corrected."""

    group: str
    used: list[float]  # In each time slice.
    share: float  # As configured.
    factor: float
    # The share that is drawn by. Those of groups that are compared have the sum of the configured ones.
    corrected: float
    # Those with most usage first, 1,000 at most in an answer; none with job sharing.
    owners: list[CorrectedOwner]


class ShareCorrection(Struct, frozen=True):
    """The correction of shares by usage."""

    at: float  # When usage was read, UNIX seconds.
    currency: Currency
    slices: list[TimeSlice]
    most: float
    groups: list[CorrectedShare]
