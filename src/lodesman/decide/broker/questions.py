"""Expressions apart from the rest of their ad, so that ads which say the same share one answer."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from lodesman.languages.classad import Ad, Node, write_ad
from lodesman.languages.classad.ads import AdAttribute, Asked
from lodesman.languages.classad.partial import asked_by, dependents, references

CUR_MATCHES: Final = "curmatches"
SINCE_AD: Final = "jobsmatchedsincelastadvertisement"
LIVE: Final = frozenset({CUR_MATCHES, SINCE_AD})
"""Attributes of a site that each match changes."""
_REQUIREMENTS: Final = "requirements"


class SiteQuestion(Struct, frozen=True, kw_only=True):
    """Attributes of an ad with all that they need of it. Those with equal texts (`key`) have equal answers.

    `own`, `others`: what they ask for, of their ad and of the other one. `unsettled`: attributes in it that only the other
    ad or the time decides. `asks_ad`: an ad as a whole is asked for. `asks_clock`: the answer changes with the time.
    """

    key: str
    ad: Ad
    own: frozenset[str]
    others: frozenset[str]
    unsettled: frozenset[str]
    asks_ad: bool
    asks_clock: bool

    def is_settled_by(self, unsettled: frozenset[str]) -> bool:
        """Whether the answer is known as long as an ad does not change that has these attributes unsettled."""
        return not (self.asks_ad or self.asks_clock or self.others & unsettled)


def question_of(ad: Ad, *names: str) -> SiteQuestion:
    """The question that attributes of an ad are, by their names in small letters; those that it lacks are left out."""
    asked = {name for name in names if name in ad.entries}
    own, others = set[str](), set[str]()
    for name in asked:
        if name not in ad.constants:
            found = references(ad.entries[name].node, ad)
            own |= found.own
            others |= found.other
    part = ad.part(sorted((asked | own) & ad.entries.keys()))
    return _question(part, own, others, key=write_ad(part))


def clause_of(ad: Ad, clause: Node) -> SiteQuestion:
    """The question that one clause of the Requirements of an ad is; it has no key."""
    asked = references(clause, ad)
    part = ad.part((asked.own & ad.entries.keys()) - {_REQUIREMENTS})
    part.entries[_REQUIREMENTS] = AdAttribute("Requirements", clause)
    return _question(part, asked.own, asked.other)


def _question(part: Ad, own: AbstractSet[str], others: AbstractSet[str], key: str = "") -> SiteQuestion:
    asked = [asked_by(entry) for name, entry in part.entries.items() if name not in part.constants]
    return SiteQuestion(
        key=key,
        ad=part,
        own=frozenset(own),
        others=frozenset(others),
        unsettled=unsettled(part),
        asks_ad=any(one.whole for one in asked),
        asks_clock=any(one.clock for one in asked),
    )


def unsettled(ad: Ad) -> frozenset[str]:
    """The attributes of an ad, in small letters, whose values may change while the ad does not."""
    there = ad.entries.keys()

    def is_open(asked: Asked) -> bool:
        return (
            asked.clock
            or asked.whole
            or bool(asked.target or asked.bare - there or (asked.bare | asked.my) & LIVE)
        )

    return frozenset(dependents(ad, is_open) | LIVE & there)
