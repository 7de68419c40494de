"""Expressions apart from the rest of their ad, so that ads which say the same share one answer."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from lodesman.classad import Ad, Node, write_ad
from lodesman.classad.ads import AdAttribute
from lodesman.classad.nodes import Name, Select, children
from lodesman.classad.partial import asks_clock, references

CUR_MATCHES: Final = "curmatches"
SINCE_AD: Final = "jobsmatchedsincelastadvertisement"
LIVE: Final = frozenset({CUR_MATCHES, SINCE_AD})
"""Attributes of a site that each match changes."""
_WHOLE: Final = frozenset({"my", "target", "parent"})


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
    own: set[str] = set()
    others: set[str] = set()
    asked = [name for name in names if name in ad.entries]
    for name in asked:
        if name not in ad.constants:
            found = references(ad.entries[name].node, ad)
            own |= found.own
            others |= found.other
    kept = {name: ad.entries[name] for name in sorted({*asked, *own} & ad.entries.keys())}
    part = Ad(kept)
    nodes = [entry.node for name, entry in kept.items() if name not in part.constants]
    return SiteQuestion(
        key=write_ad(part),
        ad=part,
        own=frozenset(own),
        others=frozenset(others),
        unsettled=unsettled(part),
        asks_ad=any(map(_asks_ad, nodes)),
        asks_clock=any(asks_clock(node, part) for node in nodes),
    )


def clause_of(ad: Ad, clause: Node) -> SiteQuestion:
    """The question that one clause of the Requirements of an ad is."""
    return question_of(
        Ad({**ad.entries, "requirements": AdAttribute("Requirements", clause)}), "requirements"
    )


def unsettled(ad: Ad) -> frozenset[str]:
    """The attributes of an ad, in small letters, whose values may change while the ad does not."""
    found = set()
    for key, entry in ad.entries.items():
        if key in ad.constants:
            continue
        asked = references(entry.node, ad)
        if asked.other or asked.own & LIVE or _asks_ad(entry.node) or asks_clock(entry.node, ad):
            found.add(key)
    return frozenset(found) | LIVE & ad.entries.keys()


def _asks_ad(node: Node) -> bool:
    """Whether it asks for MY, TARGET or PARENT as such, and not for an attribute of one by its name."""
    todo = [node]
    while todo:
        one = todo.pop()
        if isinstance(one, Name) and one.key in _WHOLE:
            return True
        if not (isinstance(one, Select) and isinstance(one.base, Name) and one.base.key in {"my", "target"}):
            todo.extend(children(one))
    return False
