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
    """A token for a site that advertises itself. `seconds` 0 means that it does not expire."""

    site: Name
    seconds: Annotated[float, Meta(ge=0, le=LONGEST_TOKEN)] = 0.0
    note: Text = ""


class SiteAdBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The text of an ad, in either form of ClassAds."""

    ad: str


class SiteAt(Struct, frozen=True, omit_defaults=True):
    """A site by its name."""

    site: str = ""


class AdTaken(Struct, frozen=True):
    """An ad that was stored, until when it counts, and why the gate is shut with it ('': it is open)."""

    site: str
    sequence: int
    received_at: float
    good_until: float
    shut: str


class PlanGatesBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Attributes that sites would advertise, as expressions, by site and name. `limit`: rows of each list."""

    gates: Annotated[dict[Name, _Attributes], Meta(min_length=1, max_length=1_000)]
    limit: Rows = 100


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
    """An ad as it is remembered for a day. `stamps`: how many of our pilots the site counted; `others`: jobs of others, if
    it has no PilotStamps.
    """

    received_at: float
    sequence: int
    incarnation: str
    stamps: int
    numbers: AdNumbers
    others: int | None = None


class SiteAdRow(AdEntry, frozen=True, kw_only=True):
    """The newest ad of a site. `is_too_old`: it counts no more, and the gate is shut."""

    site: str
    lifetime_seconds: float
    is_too_old: bool


class SiteAds(Page, frozen=True):
    """The newest ad of each site that has advertised, by site."""

    ads: list[SiteAdRow]


class GateInFull(Struct, frozen=True, kw_only=True):
    """The gate of a site. Without an `ad` it is open, and only the configured limits hold. `shut`: why it takes nothing
    now, '' if it does. `values`: its attributes with what was matched since the ad. `matched`: pilots that the ad does not
    show; `pilots`: all that live. `room`: how many more it takes, at most 10,000. `day`: its ads of the last day, the newest
    first, at most 1,000.
    """

    site: str
    mode: GateMode
    at: float
    ad: SiteAdRow | None
    text: str
    shut: str
    notice: str
    room: int
    matched: int
    pilots: int
    values: list[AttributeValue]
    clauses: list[ClauseRow]
    day: list[AdEntry]
