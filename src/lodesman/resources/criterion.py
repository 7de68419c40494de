"""Criteria: a set of requirements compiled under a type table, and the judgement of one against one resource.

A criterion is canonical: the spellings of one requirement ("4000", 4000.0, "4000 MB"; order and repetition in
lists; letter case of the name) compile to equal criteria. `matching.submit_pool` makes the identifier of
them. Source: seed rfc7-job-requirements, DESIGN 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from lodesman.answers.vocabulary import Kind
from lodesman.errors import InvalidJob
from lodesman.resources.inherit import ACCESS, Effective
from lodesman.resources.kinds import (
    AT_LEAST,
    EQUAL,
    OPERATORS,
    ParameterType,
    TypeTable,
    admits,
    scalar_of,
    spelled_number,
)
from lodesman.resources.model import ANY, BadValue, Scalar, Value, as_scalars, as_text, fold
from lodesman.resources.reasons import (
    AccessDenied,
    MissingParameter,
    NotAmong,
    NotEqual,
    Reason,
    TooSmall,
    VersionTooOld,
)
from lodesman.resources.versions import version_key

TEXT_KINDS = (Kind.STRING, Kind.LIST)  # tuples: hashing an enum member is slower than comparing two
PLAIN_KINDS = (Kind.STRING, Kind.LIST, Kind.DEDUCED)  # a text stays what it is
NUMBER_KINDS = (Kind.NUMBER, Kind.DEDUCED)

RIGHT: Mapping[Kind, str] = {
    Kind.NUMBER: "a number",
    Kind.STRING: "a text",
    Kind.LIST: "a text",
    Kind.VERSION: 'a version, as in "6.32/04"',
    Kind.BOOLEAN: "true or false",
    Kind.DEDUCED: "a text, a number or a truth value",
}

RESERVED = "constraint"
"""The folded name kept for ClassAd expressions (DESIGN: `requirements` and `constraint`)."""
MAX_REQUIREMENTS = 1000
MAX_VALUES = 10_000
MAX_TEXT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One requirement: any of `wanted`, sorted, without duplicates, each as `kinds.scalar_of` gives it.

    `parameter` is a spelling for people; `folded` is the name that counts.
    """

    parameter: str = field(compare=False)
    folded: str
    kind: Kind
    operator: str
    unit: str
    wanted: tuple[Scalar, ...]


def compile_requirements(requirements: Mapping[str, object], types: TypeTable) -> tuple[Criterion, ...]:
    """The criteria of a set of requirements, sorted by folded name.

    Raises InvalidJob, with the `attribute` (`Requirements.<name>`) in its data: a value that its declared
    type cannot read, a negative number, a nested record, an empty list or name, one name twice in different letter
    case, too much; `Constraint`, which is reserved for expressions.
    """
    if len(requirements) > MAX_REQUIREMENTS:
        raise InvalidJob(
            f"Requirements: {len(requirements)} entries.",
            hint=f"Give at most {MAX_REQUIREMENTS}.",
            attribute="Requirements",
        )
    criteria: dict[str, Criterion] = {}
    for name, value in requirements.items():
        folded = fold(name)
        if not folded or len(folded) > MAX_TEXT:
            raise InvalidJob(
                f"Requirements: {name[:40]!r} is no name of a requirement.",
                hint=f"Give a name of 1 to {MAX_TEXT} characters.",
                attribute="Requirements",
            )
        if folded == RESERVED:
            raise _invalid(name, "expressions are not understood yet", "Give each requirement by its name.")
        if folded in criteria:
            raise _invalid(
                name, f"it is given twice, also as {criteria[folded].parameter}", "Give it only once."
            )
        criteria[folded] = _compiled(name.strip(), folded, value, types.get_folded(folded))
    return tuple(criteria[folded] for folded in sorted(criteria))


def _compiled(name: str, folded: str, value: object, declared: ParameterType | None) -> Criterion:
    kind, unit = (declared.kind, declared.unit) if declared else (Kind.DEDUCED, "")
    try:
        given = _given_scalars(value, kind)
        plain = kind in PLAIN_KINDS
        scalars = [
            item.strip() if plain and isinstance(item, str) else scalar_of(item, kind, unit) for item in given
        ]
    except BadValue as fault:
        expected = "something plain" if kind is Kind.DEDUCED else f"a {kind.value}"
        raise _invalid(name, f"{expected} is expected: {fault}", _right(kind, unit)) from fault
    if not scalars:
        raise _invalid(name, "it is an empty list, which nothing can fulfil", _right(kind, unit))
    if kind in NUMBER_KINDS and _any_negative(scalars):
        raise _invalid(name, "it is negative", _right(kind, unit))
    return Criterion(
        parameter=declared.name if declared else name,
        folded=folded,
        kind=kind,
        operator=declared.operator if declared else OPERATORS[kind][0],
        unit=unit,
        wanted=_sorted_once(scalars) if len(scalars) > 1 else (scalars[0],),
    )


def _any_negative(scalars: list[Scalar]) -> bool:
    """Of a parameter that is declared as no text, a text that spells a number counts as one."""
    for item in scalars:
        if not isinstance(item, str):
            if item < 0:
                return True
        elif item[:1] == "-" and (spelled_number(item) or 0) < 0:
            return True
    return False


def _given_scalars(value: object, kind: Kind) -> Sequence[Scalar]:
    """The scalars of a requirement as written; raises BadValue for what is neither scalar nor list."""
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise BadValue(f"the text is longer than {MAX_TEXT} characters")
        separated = kind is Kind.LIST and ("," in value or not value.strip())
        return split_list(value) if separated else (value,)
    if isinstance(value, int | float):
        return (value,)
    if not isinstance(value, list | tuple):
        raise BadValue("it is neither text, number, truth value nor a list of these")
    if len(value) > MAX_VALUES:
        raise BadValue(f"the list has more than {MAX_VALUES} values")
    out: list[Scalar] = []
    for item in value:
        if isinstance(item, list | tuple):
            raise BadValue("a list inside a list")
        if isinstance(item, str) and item.strip() and len(item) <= MAX_TEXT and "," not in item:
            out.append(item)
        else:
            out.extend(_given_scalars(item, kind))
    return out


def split_list(text: str) -> list[str]:
    """The items of a comma-separated text, as DIRAC writes lists; empty ones are dropped."""
    return [item for part in text.split(",") if (item := part.strip())]


def _sorted_once(scalars: list[Scalar]) -> tuple[Scalar, ...]:
    if len(set(map(type, scalars))) == 1:
        return tuple(sorted(set(scalars)))
    # 1 and True are equal in Python and two values here, so the rank belongs to the identity.
    unique = {(_rank(item), item): item for item in scalars}
    return tuple(unique[key] for key in sorted(unique))


def _rank(scalar: Scalar) -> int:
    if isinstance(scalar, bool):
        return 0
    return 2 if isinstance(scalar, str) else 1


def _invalid(name: str, message: str, hint: str) -> InvalidJob:
    return InvalidJob(f"Requirement {name!r}: {message}.", hint=hint, attribute=f"Requirements.{name}")


def _right(kind: Kind, unit: str) -> str:
    """What would be right, for people."""
    in_unit = f" ({unit} if it names no unit)" if unit else ""
    return f"Give {RIGHT[kind]}{in_unit}, or a list of which any will do."


def offers(value: Value, criterion_kind: Kind, unit: str) -> tuple[Scalar, ...] | None:
    """What a resource value offers under a kind; None is the wildcard. Raises BadValue."""
    scalars = as_scalars(value)
    if ANY in scalars:
        return None
    if criterion_kind is Kind.LIST:
        texts = [part for item in scalars for part in (split_list(item) if isinstance(item, str) else [item])]
        return tuple(scalar_of(item, criterion_kind) for item in texts)
    return tuple(scalar_of(item, criterion_kind, unit) for item in scalars)


def capacity_order(criterion: Criterion) -> Callable[[Any], Any]:
    """What orders offers of which as much or more will do."""
    is_version = criterion.kind is Kind.VERSION
    return lambda offer: version_key(str(offer)) if is_version else offer


def capacities(criterion: Criterion, offered: Sequence[tuple[Scalar, ...]]) -> list[Scalar | None]:
    """Of each resource the most that it offers, if a wish for as much or less would do; None where it must be equal.

    Of an undeclared parameter a wanted number is held against numbers and against texts that spell one.
    """
    if criterion.kind is not Kind.DEDUCED:
        order = capacity_order(criterion)
        return [max(values, key=order) if criterion.operator == AT_LEAST else None for values in offered]
    wants_numbers = not any(isinstance(item, str | bool) for item in criterion.wanted)
    if not wants_numbers and any(isinstance(item, str | bool) for values in offered for item in values):
        return [None] * len(offered)
    return [
        max((number for item in values if (number := spelled_number(item)) is not None), default=None)
        for values in offered
    ]


def judge(criterion: Criterion, effective: Effective | None) -> Reason | None:
    """Why the resource value does not fulfil the criterion; None if it does.

    Raises BadValue if the resource value is not of its declared type (a loaded tree has none such).
    """
    if effective is None:
        return MissingParameter(parameter=criterion.parameter, wanted=criterion.wanted)
    offered = offers(effective.value, criterion.kind, criterion.unit)
    if offered is None or _fulfilled(criterion, offered):
        return None
    return _refusal(criterion, offered, effective)


def _fulfilled(criterion: Criterion, offered: tuple[Scalar, ...]) -> bool:
    if criterion.kind in TEXT_KINDS:  # what `admits` says of texts, in one step
        return not set(criterion.wanted).isdisjoint(offered)
    return any(
        admits(criterion.kind, criterion.operator, wanted, item)
        for wanted, item in product(criterion.wanted, offered)
    )


def _refusal(criterion: Criterion, offered: tuple[Scalar, ...], effective: Effective) -> Reason:
    level = effective.level
    if criterion.kind is Kind.VERSION and criterion.operator == AT_LEAST:
        return VersionTooOld(
            parameter=criterion.parameter,
            wanted=min(map(str, criterion.wanted), key=version_key),
            offered=max(map(str, offered), key=version_key, default=None),
            level=level,
        )
    if (numbers := _capacities(criterion, offered)) is not None:
        wanted, have = numbers
        return TooSmall(
            parameter=criterion.parameter,
            wanted=min(wanted),
            offered=max(have, default=None),
            unit=criterion.unit,
            level=level,
        )
    if len(criterion.wanted) == 1 and len(offered) == 1:
        wanted_one, offered_one = criterion.wanted[0], offered[0]
        return NotEqual(parameter=criterion.parameter, wanted=wanted_one, offered=offered_one, level=level)
    return NotAmong(parameter=criterion.parameter, wanted=criterion.wanted, offered=offered, level=level)


Numbers = list[int | float]


def _capacities(criterion: Criterion, offered: tuple[Scalar, ...]) -> tuple[Numbers, Numbers] | None:
    """Both sides as numbers if they were compared as capacities, else None."""
    if criterion.operator == EQUAL or criterion.kind not in NUMBER_KINDS:
        return None
    wanted = [number for item in criterion.wanted if (number := spelled_number(item)) is not None]
    have = [number for item in offered if (number := spelled_number(item)) is not None]
    if criterion.kind is Kind.NUMBER:
        return wanted, have
    all_numbers = len(wanted) == len(criterion.wanted) and len(have) == len(offered)
    all_texts = all(isinstance(item, str) for item in (*criterion.wanted, *offered))
    return (wanted, have) if all_numbers and have and not all_texts else None


def access_refusal(access: Effective | None, vo: str) -> AccessDenied | None:
    """Why a VO may not use a node with this access list (parameter VO); None if it may.

    No list and an empty list admit every VO. Without a VO ("") nothing is checked.
    """
    if access is None or not vo:
        return None
    allowed = offers(access.value, Kind.LIST, "")
    if not allowed or vo in allowed:
        return None
    return AccessDenied(vo=vo, allowed=tuple(as_text(item) for item in allowed), level=access.level)


def refusals(
    criteria: Iterable[Criterion], params: Mapping[str, Effective], *, vo: str = ""
) -> tuple[Reason, ...]:
    """All that speaks against a node with these effective values; empty if it is eligible."""
    denied = access_refusal(params.get(ACCESS), vo)
    judged = (judge(criterion, params.get(criterion.folded)) for criterion in criteria)
    return (*([denied] if denied else ()), *(reason for reason in judged if reason is not None))
