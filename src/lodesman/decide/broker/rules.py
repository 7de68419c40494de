"""When the gate of a site's ad is open, and its questions, prepared once for each ad."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from lodesman.languages.classad import (
    EMPTY,
    UNDEFINED,
    Ad,
    Node,
    Run,
    Value,
    evaluate,
    parse_expression,
    write_ad,
    write_expression,
)
from lodesman.languages.classad.ads import AdAttribute, Asked
from lodesman.languages.classad.fast import MatchSide
from lodesman.languages.classad.nodes import Binary, Constant, Logic, clauses, walk
from lodesman.languages.classad.partial import asked_by, dependents, references
from lodesman.languages.classad.values import STRICT, lower
from lodesman.wire.vocabulary import GateMode

CUR_MATCHES: Final = "curmatches"
SINCE_AD: Final = "jobsmatchedsincelastadvertisement"
LIVE: Final = frozenset({CUR_MATCHES, SINCE_AD})  # attributes of a site that each match changes

_REQUIREMENTS: Final = "requirements"

GATE_NAMES: Final = (
    "MaxJobs",
    "MaxSubmittingJobs",
    "CurrentJobs",
    "CurrentSubmittingJobs",
    "CurrentPendingJobs",
    "CurMatches",
    "JobsMatchedSinceLastAdvertisement",
)  # attributes that only the site gives: one that it lacks is never sought in a request

_LIMITS: Final = {
    "maxjobs": parse_expression("CurMatches < MaxJobs"),
    "maxsubmittingjobs": parse_expression(
        "JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
    ),
    "maxpendingjobs": parse_expression(
        "JobsMatchedSinceLastAdvertisement + CurrentPendingJobs < MaxPendingJobs"
    ),
}
_MOST_MATCHES: Final = 1 << 30
_NOTHING: Final = MatchSide(EMPTY)


class SiteQuestion(Struct, frozen=True, kw_only=True):
    """Attributes of an ad with all that they need of it."""

    key: str  # its text: equal questions share one answer
    ad: Ad
    own: frozenset[str]  # what they ask for of their ad
    others: frozenset[str]  # what they ask for of the other ad
    unsettled: frozenset[str]  # attributes in it that only the other ad or the time decides
    asks_ad: bool  # for an ad as a whole
    asks_clock: bool  # the answer changes with the time

    def is_settled_by(self, unsettled: frozenset[str]) -> bool:
        """Whether its answer holds while the ad does not change. `unsettled`: attributes that may change meanwhile."""
        return not (self.asks_ad or self.asks_clock or self.others & unsettled)


def question_of(ad: Ad, *names: str) -> SiteQuestion:
    """`names`: attributes, in small letters."""
    keys = {name for name in names if name in ad.entries}
    own, others = set[str](), set[str]()
    for name in keys:
        if name not in ad.constants:
            needs = references(ad.entries[name].node, ad)
            own |= needs.own
            others |= needs.other
    part = ad.part(sorted((keys | own) & ad.entries.keys()))
    return _question(part, own, others, key=write_ad(part))


def clause_of(ad: Ad, clause: Node) -> SiteQuestion:
    """The question of one clause, without key."""
    needs = references(clause, ad)
    part = ad.part((needs.own & ad.entries.keys()) - {_REQUIREMENTS})
    part.entries[_REQUIREMENTS] = AdAttribute("Requirements", clause)
    return _question(part, needs.own, needs.other)


def _question(part: Ad, own: AbstractSet[str], others: AbstractSet[str], key: str = "") -> SiteQuestion:
    all_needs = [asked_by(entry) for name, entry in part.entries.items() if name not in part.constants]
    return SiteQuestion(
        key=key,
        ad=part,
        own=frozenset(own),
        others=frozenset(others),
        unsettled=unsettled(part),
        asks_ad=any(needs.whole for needs in all_needs),
        asks_clock=any(needs.clock for needs in all_needs),
    )


def unsettled(ad: Ad) -> frozenset[str]:
    """The attributes, in small letters, that may change while the ad does not."""
    own = ad.entries.keys()

    def is_open(needs: Asked) -> bool:
        return (
            needs.clock
            or needs.whole
            or bool(needs.target or needs.bare - own or (needs.bare | needs.my) & LIVE)
        )

    return frozenset(dependents(ad, is_open) | LIVE & own)


class GateRules(Struct, frozen=True, kw_only=True):
    """The clauses of a gate."""

    mode: GateMode

    requirements: Node | None  # all clauses; None: the ad has none
    own_clauses: tuple[Node, ...]  # ask nothing of a request
    request_clauses: tuple[SiteQuestion, ...]
    whole: MatchSide  # the site's side of matches by all clauses
    own: MatchSide  # by its own clauses, with the attributes that these need
    counts: dict[str, Value]  # what the ad says, by GATE_NAMES in small letters
    published: frozenset[str]  # those of GATE_NAMES that the ad has
    first: Value  # CurMatches before any match that the ad does not show
    # so many matches shut the gate for good; None: more of them, or the time, may open it again
    shut_at: int | None = None
    own_steps: int  # how large its own clauses are

    def write(self, side: MatchSide, matched: int) -> None:
        """Put the values after `matched` matches into the site's side."""
        cur_matches = STRICT["+"](self.first, matched)
        since: Value = matched
        if self.mode is GateMode.STRICT:
            since = STRICT["-"](cur_matches, self.counts["currentjobs"])
        side.set(CUR_MATCHES, cur_matches)
        side.set(SINCE_AD, since)


def rules_of(ad: Ad, mode: GateMode) -> GateRules:
    """In ledger mode the ad's limits hold whatever its Requirements say; without Requirements it has SAM-Grid's
    clauses.
    """
    requirements = _requirements(ad, mode)
    run = Run()
    counts = {lower(name): evaluate(name, ad, run=run) for name in GATE_NAMES}
    entries = dict(ad.entries)
    for name in GATE_NAMES:
        key = lower(name)
        if key not in entries or key in LIVE:
            entries[key] = AdAttribute(name, Constant(value=UNDEFINED))
    base = Ad(entries)
    parts = () if requirements is None else tuple(clauses(requirements))
    questions = [clause_of(base, node) for node in parts]
    other = tuple(question for question in questions if question.others or question.asks_ad)
    own = tuple(
        node
        for node, question in zip(parts, questions, strict=True)
        if not (question.others or question.asks_ad)
    )
    published = frozenset(counts.keys() & ad.entries.keys())
    rules = GateRules(
        mode=mode,
        requirements=requirements,
        own_clauses=own,
        request_clauses=other,
        whole=side_with(entries, parts),
        own=MatchSide(question_of(side_with(entries, own).ad, "requirements").ad),
        counts=counts,
        published=published,
        first=_first_value(counts, published, mode),
        own_steps=sum(1 for one in own for _ in walk(one)),
    )
    grows = all(_grows(node, base) for node in own) and not any(question.asks_clock for question in questions)
    return replace(rules, shut_at=_shut_at(rules)) if grows else rules


def _first_value(counts: Mapping[str, Value], published: frozenset[str], mode: GateMode) -> Value:
    """Strict: what the site published, at least CurrentJobs. Ledger: all jobs that it counts."""
    total = counts["currentjobs"]
    if mode is GateMode.STRICT:
        current = counts[CUR_MATCHES]
        return total if current is UNDEFINED or is_less(current, total) else current
    for key in ("currentsubmittingjobs", "currentpendingjobs"):
        if key in published:
            total = STRICT["+"](total, counts[key])
    return total


def is_less(left: Value, right: Value) -> bool:
    """Whether one number is less than another."""
    return STRICT["<"](left, right) is True


def _shut_at(rules: GateRules) -> int | None:
    """None, too, if that takes too many steps."""
    side, run = rules.own.copy(), Run(now=0.0)

    def is_shut(matched: int) -> bool:
        rules.write(side, matched)
        return not side.accepts(_NOTHING, run)

    most = 1
    while most < _MOST_MATCHES and not is_shut(most):
        most *= 2
    shut_at = bisect_left(range(most), True, key=is_shut)
    return None if run.is_spent else shut_at


def _requirements(ad: Ad, mode: GateMode) -> Node | None:
    limits = [node for key, node in _LIMITS.items() if key in ad.entries]
    written = ad.node("Requirements")
    if written is None:
        return _both(*limits) if limits else None
    if mode is GateMode.STRICT:
        return written
    texts = {write_expression(clause) for clause in clauses(written)}
    return _both(*clauses(written), *[clause for clause in limits if write_expression(clause) not in texts])


def _both(*parts: Node) -> Node:
    return parts[0] if len(parts) == 1 else Logic(operator="&&", operands=parts)


def side_with(entries: Mapping[str, AdAttribute], parts: Sequence[Node]) -> MatchSide:
    """`parts`: the clauses of its Requirements."""
    node = _both(*parts) if parts else Constant(value=True)
    return MatchSide(Ad({**entries, "requirements": AdAttribute("Requirements", node)}))


def _grows(clause: Node, base: Ad) -> bool:
    """Whether it compares a sum that only matches change with what they do not change."""
    if not references(clause, base).own & LIVE:
        return True
    match clause:
        case (
            Binary(operator="<" | "<=", left=low, right=high)
            | Binary(operator=">" | ">=", left=high, right=low)
        ):
            return not references(high, base).own & LIVE and all(
                getattr(part, "key", "") in LIVE or not references(part, base).own & LIVE
                for part in _summands(low)
            )
        case _:
            return False


def _summands(node: Node) -> Iterator[Node]:
    match node:
        case Binary(operator="+", left=left, right=right):
            yield from _summands(left)
            yield from _summands(right)
        case _:
            yield node
