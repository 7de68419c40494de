"""What sites advertise, what is said of their gates, and tokens of sites."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from lodesman.wire.call import Page
from lodesman.wire.classads import AttributeValue, ClauseRow
from lodesman.wire.requests import LONGEST_TOKEN, Name, Rows, Text
from lodesman.wire.vocabulary import GateMode

MOST_AD = 1 << 16
"""Bytes of an ad."""
_Attributes = Annotated[
    dict[Name, Annotated[str, Meta(max_length=4_096)]], Meta(min_length=1, max_length=100)
]


class SiteTokenBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A token for a site that advertises itself."""

    site: Name
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_TOKEN)] = 0.0  # 0: it does not expire.
    note: Text = ""


class SiteAdBody(Struct, frozen=True, forbid_unknown_fields=True):
    """An ad of a site."""

    ad: str  # Its text, in either form of ClassAds.


class SiteAt(Struct, frozen=True, omit_defaults=True):
    """A site by its name."""

    site: str = ""


class AdTaken(Struct, frozen=True):
    """An ad that was stored."""

    site: str
    sequence: int
    received_at: float
    good_until: float  # Until when it counts.
    shut: str  # Why the gate is shut with it; '': it is open.


class PlanGatesBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What sites would advertise."""

    # Attributes as expressions, by site and name.
    gates: Annotated[dict[Name, _Attributes], Meta(min_length=1, max_length=1_000)]
    limit: Rows = 100  # Rows of each list.


_Counted = int | float | None


class AdNumbers(Struct, frozen=True, omit_defaults=True):
    """The limits and counts of an ad; null for what it does not publish as a number."""

    max_jobs: _Counted = None
    max_submitting_jobs: _Counted = None
    max_pending_jobs: _Counted = None
    current_jobs: _Counted = None
    current_submitting_jobs: _Counted = None
    current_pending_jobs: _Counted = None


class AdEntry(Struct, frozen=True, kw_only=True):
    """An ad as it is remembered for a day."""

    received_at: float
    sequence: int
    incarnation: str
    stamps: int  # How many of our pilots the site counted.
    numbers: AdNumbers
    others: int | None = None  # Jobs of others, if it has no PilotStamps.


class SiteAdRow(AdEntry, frozen=True, kw_only=True):
    """The newest ad of a site."""

    site: str
    lifetime_seconds: float
    is_too_old: bool  # It counts no more, and the gate is shut.


class SiteAds(Page, frozen=True):
    """The newest ad of each site that has advertised, by site."""

    ads: list[SiteAdRow]


class GateInFull(Struct, frozen=True, kw_only=True):
    """The gate of a site."""

    site: str
    mode: GateMode
    at: float
    ad: SiteAdRow | None  # None: the gate is open, and only the configured limits hold.
    text: str
    shut: str  # Why it takes nothing now; '' if it does.
    notice: str
    room: int  # How many more pilots it takes, at most 10,000.
    matched: int  # Pilots that the ad does not show.
    pilots: int  # All that live.
    values: list[AttributeValue]  # Its attributes with what was matched since the ad.
    clauses: list[ClauseRow]
    day: list[AdEntry]  # Its ads of the last day, the newest first, at most 1,000.
