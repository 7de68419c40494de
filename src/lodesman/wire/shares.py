"""Shares that are corrected by usage: the options, what is known of usage, and what becomes of each share."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

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
