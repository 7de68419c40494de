"""Expressions in Requirements (`Constraint`): ClassAd expressions about a queue, judged clause by clause.

MY is a job's request, TARGET a queue with all its effective parameters, and `Site`, `CE`, `Queue`, `VO`. A queue is
eligible if every clause is true, or asks for a parameter that is ANY. What only the site's ad says (CHANGING,
`SiteAd.name`, `time()`) is known at placement: the broker judges the rest of such a clause (`holds_at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import float_info
from typing import Final

from msgspec.structs import replace

from lodesman.base.errors import fault_at
from lodesman.decide.resources.inherit import EffectiveParam
from lodesman.decide.resources.model import ANY, Scalar, as_scalars, fold
from lodesman.languages.classad import (
    EMPTY,
    ERROR,
    UNDEFINED,
    Ad,
    Node,
    Run,
    Value,
    evaluate,
    parse_ad,
    parse_expression,
)
from lodesman.languages.classad.ads import Closure, Frame
from lodesman.languages.classad.closures import compile_node, worth
from lodesman.languages.classad.contexts import CONTEXTS
from lodesman.languages.classad.functions import CLOCKS, FUNCTIONS, mistake_of, options_of
from lodesman.languages.classad.nodes import (
    AdLiteral,
    Constant,
    FunctionCall,
    Logic,
    Name,
    Select,
    children,
    clauses,
    constant_of,
    rewrite,
    walk,
)
from lodesman.languages.classad.partial import can_be, flatten
from lodesman.languages.classad.regexp import read_regexp
from lodesman.languages.classad.searches import SEARCHES
from lodesman.languages.classad.values import INT_MAX, INT_MIN, is_true, lower, truth
from lodesman.languages.classad.write import write_expression, write_name, write_value

MOST_CHARACTERS: Final = 4_096
_MOST_PARTS: Final = 250
MOST_ASKED: Final = 250  # values of a list of the job
_MOST_OF_PATTERNS: Final = 100  # steps of all regular expressions: about their characters
_MOST_SHOWN: Final = 80
# functions whose value is no matter of the queue alone, or of what one may cost
_NOT_FOR_JOBS: Final = frozenset({"join", "random", *CONTEXTS})

CHANGING: Final[Mapping[str, str]] = {
    lower(name): name
    for name in (
        "MaxJobs",
        "MaxSubmittingJobs",
        "CurrentJobs",
        "CurrentSubmittingJobs",
        "CurrentPendingJobs",
        "CurMatches",
        "JobsMatchedSinceLastAdvertisement",
        "StationName",
        "StationNames",
        "PilotStamps",
        "Incarnation",
        "UpdateSequenceNumber",
        "ClassAdLifetime",
    )
}  # attributes, in small letters, that are always those of the site's ad
_SITE_AD: Final = "sitead"  # `SiteAd.name` is any attribute of the site's ad
_SIDES: Final = frozenset({"my", "target", _SITE_AD})
_TARGET: Final = Name(name="TARGET", key="target")
# folded names that an expression knows by another name
_PARAMETERS: Final[Mapping[str, str]] = {"ce": "cename", "queue": "queuename"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExpressionClause:
    """A part that must be true."""

    text: str  # as it is written
    node: Node  # with the values of the request, and folded names of the queue alone
    key: str  # the text of `node`
    asks: tuple[str, ...]  # the names of the queue, in order
    names: Mapping[str, str]  # these as they are written
    given: Mapping[str, Value]  # attributes of the request with their values
    changes: bool  # it asks for what only the site's ad says
    of_site: Node  # names that as attributes of the ad
    closure: Closure


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expression:
    """An expression that was read."""

    text: str
    request: str  # the ad of what it asks of the job, "" if that is nothing
    clauses: tuple[ExpressionClause, ...]
    canonical: str  # one text for all expressions with the same clauses


@lru_cache(maxsize=1_024)
def expression_of(text: str, request: str = "") -> Expression:
    """`text` as stored. Raises SyntaxFault."""
    return _read(parse_expression(text, stored=True), text, parse_ad(request) if request else EMPTY)


def read_expression(text: str, request: Ad) -> Expression:
    """Raises SyntaxFault with its place."""
    if len(text) > MOST_CHARACTERS:
        message = f"an expression of {len(text):,} characters; at most {MOST_CHARACTERS:,}"
        raise fault_at(text, MOST_CHARACTERS, message)
    node = parse_expression(text)
    _check(node, text)
    return _read(node, text, request)


def _read(node: Node, text: str, request: Ad) -> Expression:
    by_key: dict[str, ExpressionClause] = {}
    for part in clauses(node):
        clause = _clause(part, request)
        by_key.setdefault(clause.key, clause)
    parts = tuple(by_key[key].node for key in sorted(by_key))
    given_values = {name: value for part in by_key.values() for name, value in part.given.items()}
    for name, value in given_values.items():
        if isinstance(value, tuple) and len(value) > MOST_ASKED:
            raise fault_at(text, 0, f"{name} of the job has {len(value):,} values; at most {MOST_ASKED}")
    inner = "; ".join(
        f"{write_name(name)} = {write_value(given_values[name])}" for name in sorted(given_values)
    )
    return Expression(
        text=write_expression(node),
        request=f"[{inner}]" if inner else "",
        clauses=tuple(by_key.values()),
        canonical=write_expression(Logic(operator="&&", operands=parts) if len(parts) > 1 else parts[0]),
    )


def _check(node: Node, text: str) -> None:
    """Refuse what could take long to judge, or means nothing. Raises SyntaxFault."""
    count = states = 0
    todo = [node]
    while todo:
        part = todo.pop()
        count += 1
        if count > _MOST_PARTS:
            raise fault_at(text, part.start, f"an expression of more than {_MOST_PARTS} parts")
        match part:
            case Select(base=Name(key=key)) if key in _SIDES:
                continue
            case Name(key=key, name=name) if key in _SIDES or key == "parent":
                hint = "MY.name is of the job, TARGET.name of the queue, SiteAd.name of the site's ad."
                raise fault_at(text, part.start, f"{name} alone", hint=hint)
            case AdLiteral():
                raise fault_at(text, part.start, "an ad inside an expression of a job")
            case FunctionCall():
                states += _check_call(part, text)
                if states > _MOST_OF_PATTERNS:
                    message = f"regular expressions of more than {_MOST_OF_PATTERNS} characters"
                    raise fault_at(text, part.start, message)
            case _:
                pass
        todo.extend(reversed(children(part)))


def _check_call(call: FunctionCall, text: str) -> int:
    """The steps of its regular expression. Raises SyntaxFault."""
    hint = "docs/how-to/classads.md lists the functions, and those that are none for jobs."
    if call.key in _NOT_FOR_JOBS:
        raise fault_at(text, call.start, f"there is no function {call.name} here", hint=hint)
    why = mistake_of(call)
    if why:
        raise fault_at(text, call.start, why, hint=hint if call.key not in FUNCTIONS else "")
    if call.key not in SEARCHES:
        return 0
    pattern, options = constant_of(call.arguments[0]), options_of(call)
    if not isinstance(pattern, str) or options is None:
        raise fault_at(text, call.start, "a regular expression that is not written as a text")
    return read_regexp(pattern, options).size


class _Binder:
    """Puts a request's values in, and notes what is asked of queues."""

    def __init__(self, request: Ad) -> None:
        self._request = request
        self.names: dict[str, str] = {}
        self.given: dict[str, Value] = {}

    def bind(self, node: Node) -> Node:
        return rewrite(node, self._bound)

    def _bound(self, node: Node) -> Node | None:
        match node:
            case Select(base=Name(key="my"), key=key):
                return self._of_request(key)
            case Name(key=key) if key in self._request.entries:
                return self._of_request(key)
            case Select(base=Name(key="sitead"), key=key):
                return Select(base=Name(name=_SITE_AD, key=_SITE_AD), name=key, key=key)
            case Select(base=Name(key="target"), name=name, key=key) | Name(name=name, key=key):
                if key not in CHANGING:
                    key = _PARAMETERS.get(fold(key), fold(key))
                    self.names.setdefault(key, name)
                return Name(name=key, key=key)
            case FunctionCall(key=key, arguments=arguments):
                return FunctionCall(name=key, key=key, arguments=tuple(map(self.bind, arguments)))
            case _:
                return None

    def _of_request(self, key: str) -> Constant:
        entry = self._request.entries.get(key)
        if entry is None:
            return Constant(value=UNDEFINED)
        value = self.given[entry.name] = self._request.constants.get(key, UNDEFINED)
        return Constant(value=value)


def _clause(node: Node, request: Ad) -> ExpressionClause:
    binder = _Binder(request)
    bound = binder.bind(node)
    return ExpressionClause(
        text=write_expression(node),
        node=bound,
        key=write_expression(bound),
        asks=tuple(sorted(binder.names)),
        names=binder.names,
        given=binder.given,
        changes=any(map(_is_changing, walk(bound))),
        of_site=rewrite(bound, _of_site),
        closure=compile_node(bound),
    )


def _of_site(node: Node) -> Node | None:
    match node:
        case Select(base=Name(key="sitead"), key=key):
            return Select(base=_TARGET, name=key, key=key)
        case Name(key=key) if key in CHANGING:
            return Select(base=_TARGET, name=CHANGING[key], key=key)
        case _:
            return None


def _is_changing(node: Node) -> bool:
    match node:
        case Name(key=key):
            return key in CHANGING or key == _SITE_AD
        case FunctionCall(key=key) if key in CLOCKS:
            return True
        case _:
            return False


# --- queues ----------------------------------------------------------------------------------------------


def value_of(folded: str, params: Mapping[str, EffectiveParam], vo: str) -> Value | None:
    """A queue's value of a name; None is ANY."""
    if folded == "vo":
        return vo or UNDEFINED
    effective = params.get(folded)
    if effective is None:
        return UNDEFINED
    value = effective.value
    if ANY in as_scalars(value):
        return None
    return tuple(map(_plain, value)) if isinstance(value, tuple) else _plain(value)


def _plain(scalar: Scalar) -> Value:
    """Numbers beyond 64 bits are real ones here."""
    if isinstance(scalar, str) or INT_MIN <= scalar <= INT_MAX:
        return scalar
    return float(scalar) if scalar < float_info.max else ERROR


def left_at(clause: ExpressionClause, values: Sequence[Value | None]) -> bool | Node:
    """Whether a clause is true at a queue with these values; if the site's ad decides, the rest, an expression about
    that ad.
    """
    if None in values:
        return True
    if not clause.changes:
        return is_true(_value(clause, values))
    left = _left(clause, values)
    constant = constant_of(left)
    if constant is not None:
        return is_true(constant)
    return can_be(left)[0] and left


def _value(clause: ExpressionClause, values: Sequence[Value | None]) -> Value:
    ad = Ad({})
    ad.constants = dict(zip(clause.asks, values, strict=True))  # type: ignore[arg-type]  # none is ANY
    return worth(clause.closure, Frame(ad, ad, None, Run()))


def _left(clause: ExpressionClause, values: Sequence[Value | None]) -> Node:
    ad = Ad({})
    ad.constants = dict(zip(clause.asks, values, strict=True))  # type: ignore[arg-type]  # none is ANY
    return flatten(clause.of_site, ad)


def holds_at(left: Node, ad: Ad | None, *, request: Ad | None = None, now: float) -> bool:
    """Whether the rest of a clause is true for a site with this ad. `request`: what the ad may ask of the job; `now`:
    UNIX seconds.
    """
    return is_true(evaluate(left, request or EMPTY, ad, run=Run(now=now)))


def without_target(left: Node) -> Node:
    """The rest, as a user would write it."""

    def spelled(node: Node) -> Node | None:
        match node:
            case Select(base=Name(key="target"), name=name, key=key):
                plain = Name(name=name, key=key)
                return plain if key in CHANGING else replace(node, base=Name(name="SiteAd", key=_SITE_AD))
            case _:
                return None

    return rewrite(left, spelled)


def refusal_of(clause: ExpressionClause, params: Mapping[str, EffectiveParam], vo: str) -> str:
    """Why a clause is not true at a queue; "" if it is, or the site's ad decides."""
    values = [value_of(name, params, vo) for name in clause.asks]
    if left_at(clause, values) is not False:
        return ""
    result = constant_of(_left(clause, values)) if clause.changes else _value(clause, values)
    word = "never true" if result is None else _word(result)
    told = [f"{name} = {_short(write_value(value))}" for name, value in clause.given.items()]
    missing = []
    for name, value in zip(clause.asks, values, strict=True):
        spelled = clause.names[name]
        if value is UNDEFINED:
            missing.append(spelled)
        elif value is not None:
            told.append(f"{spelled} = {_short(write_value(value))}")
    if missing:
        told.append(f"the queue declares no {' and no '.join(missing)}")
    about = f" ({', '.join(told)})" if told else ""
    return f"{_short(clause.text)} is {word}{about}"


def _word(value: Value) -> str:
    condition = truth(value)
    return "false" if condition is False else "undefined" if condition is UNDEFINED else "an error"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 3]}..."


def names_of_clauses(expression: Expression) -> list[str]:
    """A short name for each clause."""
    return [
        clause.text if len(clause.text) <= _MOST_SHOWN else f"{at}: {_short(clause.text)}"
        for at, clause in enumerate(expression.clauses, 1)
    ]
