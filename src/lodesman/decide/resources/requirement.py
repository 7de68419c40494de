"""Requirements compiled under a type table, and judged against one resource. All spellings of one compile to equal
criteria (seed rfc7-job-requirements).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from msgspec import Struct

from lodesman.base.errors import InvalidJob, SyntaxFault
from lodesman.decide.resources import kinds
from lodesman.decide.resources.expression import (
    Expression,
    expression_of,
    names_of_clauses,
    read_expression,
    refusal_of,
)
from lodesman.decide.resources.inherit import ACCESS, EffectiveParam
from lodesman.decide.resources.kinds import TypeTable, spelled_number
from lodesman.decide.resources.model import (
    ANY,
    BadValue,
    Scalar,
    Value,
    as_scalars,
    as_text,
    fold,
    split_list,
)
from lodesman.languages.classad import Ad
from lodesman.wire.vocabulary import Kind

_TEXT_KINDS = (Kind.STRING, Kind.LIST)  # tuples: hashing an enum member is slower than comparing two
_PLAIN_KINDS = (Kind.STRING, Kind.LIST, Kind.DEDUCED)  # a text stays what it is
_NUMBER_KINDS = (Kind.NUMBER, Kind.DEDUCED)

_RIGHT: Mapping[Kind, str] = {
    Kind.NUMBER: "a number",
    Kind.STRING: "a text",
    Kind.LIST: "a text",
    Kind.VERSION: 'a version, as in "6.32/04"',
    Kind.BOOLEAN: "true or false",
    Kind.DEDUCED: "a text, a number or a truth value",
}

CONSTRAINT = "constraint"  # the folded name of what is no parameter: a ClassAd expression
_MAX_REQUIREMENTS = 1000
_MAX_VALUES = 10_000
_MAX_TEXT = 1024


class Mismatch(Struct, frozen=True):
    """Why a node cannot take a job."""

    parameter: str
    text: str  # a sentence without a full stop

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One requirement: any of `wanted`."""

    parameter: str = field(compare=False)  # a spelling for people
    folded: str
    kind: Kind
    operator: str
    unit: str  # of an expression the ad of what it asks of the job
    # sorted, without duplicates, as `kinds.scalar_of` gives them; of an expression its text
    wanted: tuple[Scalar, ...]


def compile_requirements(
    requirements: Mapping[str, object], types: TypeTable, request: Ad | None = None
) -> tuple[Requirement, ...]:
    """Sorted by folded name. `request`: what an expression may ask of the job; None: requirements were stored, with
    what they asked.

    Raises InvalidJob, with `attribute` (`Requirements.<name>`) in its data: a value that its type cannot read, is
    negative, nested or empty; a name given twice; too much; an expression that cannot be read.
    """
    if len(requirements) > _MAX_REQUIREMENTS:
        raise InvalidJob(
            f"Requirements: {len(requirements)} entries.",
            hint=f"Give at most {_MAX_REQUIREMENTS}.",
            attribute="Requirements",
        )
    criteria: dict[str, Requirement] = {}
    for name, value in requirements.items():
        folded = fold(name)
        if not folded or len(folded) > _MAX_TEXT:
            raise InvalidJob(
                f"Requirements: {name[:40]!r} is not a name of a requirement.",
                hint=f"Give a name of 1 to {_MAX_TEXT} characters.",
                attribute="Requirements",
            )
        if folded in criteria:
            raise _invalid(
                name, f"it is given twice, also as {criteria[folded].parameter}", "Give it only once."
            )
        if folded == CONSTRAINT:
            criteria[folded] = _expression(name, value, request)
        else:
            criteria[folded] = _compiled(name.strip(), folded, value, types.get_folded(folded))
    return tuple(criteria[folded] for folded in sorted(criteria))


def _expression(name: str, value: object, request: Ad | None) -> Requirement:
    items = value if isinstance(value, list | tuple) else [value]
    texts = [item for item in items if isinstance(item, str)]
    stored = request is None and len(texts) == 2
    if len(texts) != len(items) or len(texts) != 1 + stored:
        right = 'Give one expression as a text, as in "Memory >= 4000 && member(\\"gpu\\", Tag)".'
        raise _invalid(name, "it is not a text", right)
    try:
        read = expression_of(*texts) if request is None else read_expression(texts[0], request)
    except SyntaxFault as fault:
        where = {"expression_line": fault.data["line"], "expression_column": fault.data["column"]}
        hint = fault.hint or "docs/how-to/users.md says what an expression may have."
        raise _invalid(name, fault.message.removesuffix("."), hint, **where) from None
    return _of_text(name.strip(), read.text, read.request)


def _of_text(name: str, text: str, request: str) -> Requirement:
    return Requirement(
        parameter=name, folded=CONSTRAINT, kind=Kind.EXPRESSION, operator="", unit=request, wanted=(text,)
    )


def expression(requirement: Requirement) -> Expression:
    """The expression of a requirement."""
    return expression_of(str(requirement.wanted[0]), requirement.unit)


def by_clause(criteria: Iterable[Requirement]) -> Iterator[Requirement]:
    """Each clause of an expression is a criterion."""
    for criterion in criteria:
        if criterion.kind is not Kind.EXPRESSION:
            yield criterion
            continue
        whole = expression(criterion)
        for name, clause in zip(names_of_clauses(whole), whole.clauses, strict=True):
            yield _of_text(f"{criterion.parameter} ({name})", clause.text, whole.request)


def without_clause(criterion: str) -> str:
    """The name of the whole, if a criterion is a clause."""
    whole, mark, _ = criterion.partition(" (")
    return whole if mark and fold(whole.rpartition(".")[2]) == CONSTRAINT else criterion


def _compiled(name: str, folded: str, value: object, declared: kinds.ParameterType | None) -> Requirement:
    kind, unit = (declared.kind, declared.unit) if declared else (Kind.DEDUCED, "")
    try:
        written = _given_scalars(value, kind)
        plain = kind in _PLAIN_KINDS
        scalars = [
            item.strip() if plain and isinstance(item, str) else kinds.scalar_of(item, kind, unit)
            for item in written
        ]
    except BadValue as fault:
        expected = "something plain" if kind is Kind.DEDUCED else f"a {kind.value}"
        raise _invalid(name, f"{expected} is expected: {fault}", _right(kind, unit)) from fault
    if not scalars:
        raise _invalid(name, "it is an empty list, which nothing can fulfil", _right(kind, unit))
    if kind in _NUMBER_KINDS and _any_negative(scalars):
        raise _invalid(name, "it is negative", _right(kind, unit))
    if len(scalars) > 1 and len({*map(type, scalars)}) == 1:
        scalars = sorted({*scalars})
    elif len(scalars) > 1:
        # 1 and True are equal in Python and two values here: truth values first, texts last.
        unique = {(isinstance(item, str), not isinstance(item, bool), item): item for item in scalars}
        scalars = [unique[key] for key in sorted(unique)]
    return Requirement(
        parameter=declared.name if declared else name,
        folded=folded,
        kind=kind,
        operator=declared.operator if declared else kinds.OPERATORS[kind][0],
        unit=unit,
        wanted=tuple(scalars),
    )


def _any_negative(scalars: list[Scalar]) -> bool:
    """Unless the parameter is a text, a text that spells a number counts, too."""
    for item in scalars:
        if not isinstance(item, str):
            if item < 0:
                return True
        elif item[:1] == "-" and (spelled_number(item) or 0) < 0:
            return True
    return False


def _given_scalars(value: object, kind: Kind) -> Sequence[Scalar]:
    """Raises BadValue."""
    if isinstance(value, str):
        if len(value) > _MAX_TEXT:
            raise BadValue(f"the text is longer than {_MAX_TEXT} characters")
        separated = kind is Kind.LIST and ("," in value or not value.strip())
        return split_list(value) if separated else (value,)
    if isinstance(value, int | float):
        return (value,)
    if not isinstance(value, list | tuple):
        raise BadValue("it is neither text, number, truth value nor a list of these")
    out: list[Scalar] = []
    for item in value:
        if isinstance(item, list | tuple):
            raise BadValue("a list inside a list")
        if isinstance(item, str) and item.strip() and len(item) <= _MAX_TEXT and "," not in item:
            out.append(item)
        else:
            out.extend(_given_scalars(item, kind))
        if len(out) > _MAX_VALUES:
            raise BadValue(f"the list has more than {_MAX_VALUES} values")
    return out


def _invalid(name: str, message: str, hint: str, **data: object) -> InvalidJob:
    return InvalidJob(
        f"Requirement {name!r}: {message}.", hint=hint, attribute=f"Requirements.{name}", **data
    )


def _right(kind: Kind, unit: str) -> str:
    in_unit = f" ({unit} if it names no unit)" if unit else ""
    return f"Give {_RIGHT[kind]}{in_unit}, or a list of which any will do."


def offers(value: Value, kind: Kind, unit: str) -> tuple[Scalar, ...] | None:
    """What a resource value offers; None: ANY. Raises BadValue."""
    scalars = as_scalars(value)
    if ANY in scalars:
        return None
    if kind is Kind.LIST:
        texts = [part for item in scalars for part in (split_list(item) if isinstance(item, str) else [item])]
        return tuple(kinds.scalar_of(item, kind) for item in texts)
    return tuple(kinds.scalar_of(item, kind, unit) for item in scalars)


def capacity_order(requirement: Requirement) -> Callable[[Any], Any]:
    """Orders offers of which as much or more will do."""
    is_version = requirement.kind is Kind.VERSION
    return lambda offer: kinds.version_key(str(offer)) if is_version else offer


def capacities(requirement: Requirement, offered: Sequence[tuple[Scalar, ...]]) -> list[Scalar | None]:
    """The most that each resource offers; None where it must be equal. A wanted number of an undeclared parameter is
    compared with numbers and texts that spell one.
    """
    if requirement.kind is not Kind.DEDUCED:
        order = capacity_order(requirement)
        return [
            max(values, key=order) if requirement.operator == kinds.AT_LEAST else None for values in offered
        ]
    wants_numbers = not any(isinstance(item, str | bool) for item in requirement.wanted)
    if not wants_numbers and any(isinstance(item, str | bool) for values in offered for item in values):
        return [None] * len(offered)
    return [
        max((number for item in values if (number := spelled_number(item)) is not None), default=None)
        for values in offered
    ]


def judge(requirement: Requirement, effective: EffectiveParam | None) -> Mismatch | None:
    """Why the value does not fulfil the requirement; None if it does. Raises BadValue if it is not of its declared
    type.
    """
    parameter = requirement.parameter
    if effective is None:
        return Mismatch(parameter, f"{parameter} is not declared (wanted {_listed(requirement.wanted)})")
    offered = offers(effective.value, requirement.kind, requirement.unit)
    if offered is None or _fulfilled(requirement, offered):
        return None
    wanted, have = _compared(requirement, offered)
    text = f"{parameter}: wanted {wanted}, the {effective.level} offers {have or 'nothing'}"
    return Mismatch(parameter, text)


def _fulfilled(requirement: Requirement, offered: tuple[Scalar, ...]) -> bool:
    if requirement.kind in _TEXT_KINDS:  # what `admits` says of texts, in one step
        return not set(requirement.wanted).isdisjoint(offered)
    return any(
        kinds.admits(requirement.kind, requirement.operator, wanted, item)
        for wanted, item in product(requirement.wanted, offered)
    )


def _compared(requirement: Requirement, offered: tuple[Scalar, ...]) -> tuple[str, str]:
    if requirement.kind is Kind.VERSION and requirement.operator == kinds.AT_LEAST:
        least = min(map(str, requirement.wanted), key=kinds.version_key)
        return f"at least {least}", max(map(str, offered), key=kinds.version_key, default="")
    if requirement.kind not in _NUMBER_KINDS or requirement.operator == kinds.EQUAL:
        return _listed(requirement.wanted), _listed(offered)
    wanted = [number for item in requirement.wanted if (number := spelled_number(item)) is not None]
    have = [number for item in offered if (number := spelled_number(item)) is not None]
    if requirement.kind is Kind.DEDUCED:
        all_numbers = len(wanted) == len(requirement.wanted) and len(have) == len(offered)
        all_texts = all(isinstance(item, str) for item in (*requirement.wanted, *offered))
        if not (all_numbers and have) or all_texts:
            return _listed(requirement.wanted), _listed(offered)
    unit = f" {requirement.unit}" if requirement.unit else ""
    return f"at least {as_text(min(wanted))}{unit}", as_text(max(have)) if have else ""


def _listed(values: Iterable[Scalar]) -> str:
    return " or ".join(map(as_text, values))


def access_refusal(access: EffectiveParam | None, vo: str) -> Mismatch | None:
    """Why a VO may not use a node with this access list; None if it may. An empty list admits every VO; VO "" is not
    checked.
    """
    if access is None or not vo:
        return None
    allowed = offers(access.value, Kind.LIST, "")
    if not allowed or vo in allowed:
        return None
    return Mismatch("VO", f"VO {vo} has no access: the {access.level} admits {_listed(allowed)}")


def mismatches(
    criteria: Iterable[Requirement], params: Mapping[str, EffectiveParam], *, vo: str = ""
) -> tuple[Mismatch, ...]:
    """All that speaks against a node with these values."""
    all_found = [access_refusal(params.get(ACCESS), vo)]
    for criterion in criteria:
        if criterion.kind is Kind.EXPRESSION:
            texts = (refusal_of(clause, params, vo) for clause in expression(criterion).clauses)
            all_found += [Mismatch(criterion.parameter, text) for text in texts if text]
        else:
            all_found.append(judge(criterion, params.get(criterion.folded)))
    return tuple(mismatch for mismatch in all_found if mismatch is not None)
