"""Site ads: what a site publishes about itself every few minutes, as a ClassAd.

    Name                    the site, as it is configured
    UpdateSequenceNumber    grows with each ad; seconds since 1970 will do
    Incarnation             (if any) a text; another one says that the numbers begin again
    ClassAdLifetime         (if any) seconds that the ad counts
    MaxJobs, MaxSubmittingJobs                  limits, of jobs in any state and of jobs that are being submitted
    CurrentJobs, CurrentSubmittingJobs, CurrentPendingJobs
                            jobs that run, that are handed to the batch system, that wait in it: no job in two of them
    PilotStamps             stamps of our pilots among these jobs; those that came in the last half hour are enough
    StationName, StationNames                   the SAM stations that a user may name
    Requirements            which jobs it takes, and when

CurMatches and JobsMatchedSinceLastAdvertisement may stand in it, too; the gate replaces them. So may any other attribute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from lodesman.base.errors import Forbidden, InvalidRequest, fault_at
from lodesman.decide.broker.rules import GateRules
from lodesman.languages.classad import Ad, Node, Run, Value, evaluate, parse_ad
from lodesman.languages.classad.ads import Asked, TooDear
from lodesman.languages.classad.functions import policy_mistakes
from lodesman.languages.classad.nodes import clauses, constant_of
from lodesman.languages.classad.partial import asked_by, references
from lodesman.languages.classad.values import lower
from lodesman.wire.vocabulary import GateMode

LIFETIME_S: Final = 900.0  # of an ad that does not say so itself
MOST_LIFETIME_S: Final = 86_400.0  # a site that is silent for a day says nothing any more
MOST_WORDS: Final = 5_000  # of the ad of a site: read in less than 50 ms
AD_STEPS: Final = 20_000  # to evaluate all that the ad of a site says
MOST_ASKED: Final = 5_000  # attributes that clauses ask for, each with all that these ask for
# For texts without space at their end: there it would be looked through again from each of its characters. So would what
# follows a quote that is never closed: it is one word.
_WORD: Final = re.compile(r'\s*+("(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|\w++|[^\w\s])', re.DOTALL)

_CLOCK_S: Final = 60.0
_FAR: Final = 2  # times the present: a number beyond that is no milliseconds of any clock that goes
MOST_SHOWN: Final = 8  # names of a cycle in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class AdVersion:
    """Which ad of a site it is, and how long it counts."""

    sequence: int
    incarnation: str
    lifetime_s: float
    received_at: float  # by the clock of the server

    def is_too_old(self, now: float) -> bool:
        """Whether it is out of date."""
        return now > self.good_until

    @property
    def good_until(self) -> float:
        """When it ends (UNIX seconds)."""
        return self.received_at + min(self.lifetime_s, MOST_LIFETIME_S)

    def ahead_s(self, newer: AdVersion) -> float:
        """Seconds that its number is ahead of the time of a newer ad, by a wrong clock; 0 if numbers are no times."""
        now = newer.received_at
        unit = next(
            (factor for factor in (1, 1_000) if abs(newer.sequence / factor - now) < MOST_LIFETIME_S), None
        )
        if unit is None:
            unit = 1_000 if self.sequence > _FAR * 1_000 * now else 0
        ahead = self.sequence / unit - now if unit else 0.0
        return ahead if ahead > _CLOCK_S else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAd(AdVersion):
    """What a site published."""

    site: str
    ad: Ad = field(compare=False, repr=False)
    stamps: frozenset[str]  # pilots of ours that the site counted
    stations: frozenset[str]  # of SAM, in small letters
    # jobs of others, if it lists no stamps (`SiteGate.others`)
    others: int | None = field(default=None, compare=False)
    # what gates made of it, when they first needed it
    rules: dict[GateMode, GateRules] = field(default_factory=dict, compare=False, repr=False)

    @property
    def lists_stamps(self) -> bool:
        """Whether it lists our pilots that it counts, be it none."""
        return "pilotstamps" in self.ad.entries


def read_site_ad(text: str, *, site: str, now: float, lifetime_s: float = LIFETIME_S) -> SiteAd:
    """Read an ad that may advertise as `site`. Raises SyntaxFault, Forbidden for another site's ad, InvalidRequest if
    something is missing.
    """
    _check_text(text)
    ad = parse_ad(text)
    reader = _Attributes(text, ad)
    name = reader.text("Name")
    if name is None:
        raise InvalidRequest("The ad has no Name.", hint=f'Name = "{site}"', attribute="Name")
    if name != site:
        raise Forbidden(f"This token advertises for {site}, and the ad is of {name}.", site=site)
    sequence = reader.sequence("UpdateSequenceNumber")
    if sequence is None:
        raise InvalidRequest(
            "The ad has no UpdateSequenceNumber, so it cannot be known for newer than another one.",
            hint="The seconds since 1970 will do.",
            attribute="UpdateSequenceNumber",
        )
    _check_calls(ad, text)
    _check_cycles(ad)
    _check_steps(ad, now)
    lifetime = reader.seconds("ClassAdLifetime")
    return SiteAd(
        site=site,
        sequence=sequence,
        incarnation=reader.text("Incarnation") or "",
        lifetime_s=lifetime_s if lifetime is None else lifetime,
        received_at=now,
        ad=ad,
        stamps=frozenset(reader.texts("PilotStamps")),
        stations=frozenset(
            lower(station) for station in (*reader.texts("StationName"), *reader.texts("StationNames"))
        ),
    )


def _check_text(text: str) -> None:
    """Raises SyntaxFault for what no database stores, or takes long to read."""
    if "\0" in text:
        raise fault_at(text, text.index("\0"), "a character that no text may have")
    word = next(islice(_WORD.finditer(text.rstrip()), MOST_WORDS, None), None)
    if word is not None:
        raise fault_at(text, word.start(1), f"the ad of a site has at most {MOST_WORDS:,} words and marks")


def _check_calls(ad: Ad, text: str) -> None:
    """Raises SyntaxFault at a call that is an error with any arguments."""
    run = Run(most=AD_STEPS)
    try:
        for entry in ad:
            for call, why in policy_mistakes(entry.node, run):
                hint = "Leave it out, or write what docs/how-to/classads.md lists."
                raise fault_at(text, call.start, f"in {entry.name}: {why}", hint=hint)
    except TooDear:
        raise _too_dear(f"reading its patterns needs more than {AD_STEPS:,} steps") from None


def replaces(new: AdVersion, old: AdVersion | None) -> bool:
    """Whether `new` takes the place of `old`."""
    return (
        old is None
        or new.incarnation != old.incarnation
        or new.sequence > old.sequence
        or old.is_too_old(new.received_at)
    )


class _Attributes:
    """The attributes that must be values. Raises SyntaxFault."""

    def __init__(self, text: str, ad: Ad) -> None:
        self._text = text
        self._ad = ad

    def text(self, name: str) -> str | None:
        value, node = self._value(name)
        if node is None or (isinstance(value, str) and value):
            return str(value) if node else None
        raise fault_at(self._text, node.start, f"{name} must be a text that is not empty")

    def sequence(self, name: str) -> int | None:
        value, node = self._value(name)
        if node is None or (type(value) is int and value >= 0):
            return value if isinstance(value, int) else None
        raise fault_at(self._text, node.start, f"{name} must be a whole number, not negative")

    def seconds(self, name: str) -> float | None:
        value, node = self._value(name)
        if node is None:
            return None
        if isinstance(value, (int, float)) and value is not True and value > 0 and math.isfinite(value):
            if value > MOST_LIFETIME_S:
                raise fault_at(
                    self._text, node.start, f"{name} must be at most {MOST_LIFETIME_S:,.0f} (a day)"
                )
            return value
        raise fault_at(self._text, node.start, f"{name} must be a number of seconds, more than zero")

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, or one text; () without such an attribute."""
        value, node = self._value(name)
        if node is None:
            return ()
        items = value if isinstance(value, tuple) else (value,)
        texts = tuple(item for item in items if isinstance(item, str))
        if len(texts) < len(items):
            raise fault_at(self._text, node.start, f"{name} must be a list of texts")
        return texts

    def _value(self, name: str) -> tuple[Value | None, Node | None]:
        node = self._ad.node(name)
        return (None, None) if node is None else (constant_of(node), node)


def _check_steps(ad: Ad, now: float) -> None:
    """Raises InvalidRequest for an ad that takes too many steps."""
    requirements = ad.node("Requirements")
    parts = () if requirements is None else clauses(requirements)
    run, names = Run(now=now, most=AD_STEPS), 0
    for clause in parts:
        names += len(references(clause, ad).own)
        if names > MOST_ASKED:
            raise _too_dear(
                f"its clauses ask for more than {MOST_ASKED:,} attributes, each with all that these ask for"
            )
        evaluate(clause, ad, run=run)
    _check_run(run, "Requirements")
    for key, entry in ad.entries.items():
        if key not in ad.constants and key != "requirements":
            evaluate(key, ad, run=run)
            _check_run(run, entry.name)


def _check_run(run: Run, last: str) -> None:
    if run.is_spent:
        raise _too_dear(f"its values, up to {last}, need more than {AD_STEPS:,} steps")


def _too_dear(why: str) -> InvalidRequest:
    hint = "Take shorter texts, lists and patterns, or fewer of them. See: docs/how-to/classads.md."
    return InvalidRequest(f"The ad is too dear: {why}.", hint=hint)


def _own(references: Asked, ad: Ad) -> AbstractSet[str]:
    return (references.bare & ad.entries.keys()) | references.my


def _check_cycles(ad: Ad) -> None:
    """Raises InvalidRequest."""
    references = {key: _own(asked_by(entry), ad) for key, entry in ad.entries.items()}
    done: set[str] = set()
    for start in references:
        path: dict[str, None] = {}
        todo = [(start, True)]
        while todo:
            key, enters = todo.pop()
            if not enters:
                done.add(path.popitem()[0])
            elif key in path:
                circle = [*path, key][list(path).index(key) :]
                names = [ad.entries[other].name for other in circle]
                shown = names if len(names) <= MOST_SHOWN else [*names[:MOST_SHOWN], "..."]
                raise InvalidRequest(f"Attributes ask for each other: {' -> '.join(shown)}.", cycle=shown)
            elif key in references and key not in done:
                path[key] = None
                todo.append((key, False))
                todo.extend((other, True) for other in sorted(references[key]))
