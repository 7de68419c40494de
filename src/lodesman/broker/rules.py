"""What an ad of a site says about when its gate is open, made ready once for each ad.

The limits are those of SAM-Grid. An ad with limits and without Requirements has the Requirements of SAM-Grid's text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lodesman.answers.vocabulary import GateMode
from lodesman.broker.questions import LIVE, SiteQuestion, clause_of, question_of
from lodesman.classad import UNDEFINED, Ad, Node, Value, evaluate, parse_expression, write_expression
from lodesman.classad.ads import AdAttribute
from lodesman.classad.fast import MatchSide
from lodesman.classad.nodes import Binary, Constant, Logic, clauses
from lodesman.classad.partial import references
from lodesman.classad.values import lower

GATE_NAMES: Final = (
    "MaxJobs",
    "MaxSubmittingJobs",
    "CurrentJobs",
    "CurrentSubmittingJobs",
    "CurrentPendingJobs",
    "CurMatches",
    "JobsMatchedSinceLastAdvertisement",
)
"""The attributes that a gate knows. Only the site gives them: one that it lacks is never sought in a request."""
_LIMITS: Final = {
    "maxjobs": parse_expression("CurMatches < MaxJobs"),
    "maxsubmittingjobs": parse_expression(
        "JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """The clauses of a gate: all (None: the ad has none), its own, and those that ask something of a request.

    `whole`, `own`: the site's side of matches by these; `own` has only the attributes that its clauses need. `counts`: what
    the ad says, by GATE_NAMES in small letters; `published`: those that it has. `grows`: once an own clause is false it
    stays so, however many more are matched.
    """

    requirements: Node | None
    own_clauses: tuple[Node, ...]
    request_clauses: tuple[SiteQuestion, ...]
    whole: MatchSide
    own: MatchSide
    counts: dict[str, Value]
    published: frozenset[str]
    grows: bool


def rules_of(ad: Ad, mode: GateMode) -> GateRules:
    """The rules of an ad. In ledger mode its limits hold, whatever its Requirements say."""
    requirements = _requirements(ad, mode)
    counts = {lower(name): evaluate(name, ad) for name in GATE_NAMES}
    entries = dict(ad.entries)
    for name in GATE_NAMES:
        key = lower(name)
        if key not in entries or key in LIVE:
            entries[key] = AdAttribute(name, Constant(value=UNDEFINED))
    base = Ad(entries)
    parts = () if requirements is None else tuple(clauses(requirements))
    asked = [clause_of(base, one) for one in parts]
    other = tuple(one for one in asked if one.others or one.asks_ad)
    own = tuple(node for node, one in zip(parts, asked, strict=True) if not (one.others or one.asks_ad))
    return GateRules(
        requirements=requirements,
        own_clauses=own,
        request_clauses=other,
        whole=side_with(entries, parts),
        own=MatchSide(question_of(side_with(entries, own).ad, "requirements").ad),
        counts=counts,
        published=frozenset(counts.keys() & ad.entries.keys()),
        grows=all(_grows(one, base) for one in own),
    )


def _requirements(ad: Ad, mode: GateMode) -> Node | None:
    limits = [node for key, node in _LIMITS.items() if key in ad.entries]
    given = ad.node("Requirements")
    if given is None:
        return _both(*_LIMITS.values()) if limits else None
    if mode is GateMode.STRICT:
        return given
    said = {write_expression(one) for one in clauses(given)}
    return _both(*clauses(given), *[one for one in limits if write_expression(one) not in said])


def _both(*parts: Node) -> Node:
    return parts[0] if len(parts) == 1 else Logic(operator="&&", operands=parts)


def side_with(entries: Mapping[str, AdAttribute], parts: Sequence[Node]) -> MatchSide:
    """A side of matches with these attributes and these clauses as its Requirements."""
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
                getattr(one, "key", "") in LIVE or not references(one, base).own & LIVE
                for one in _summands(low)
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
