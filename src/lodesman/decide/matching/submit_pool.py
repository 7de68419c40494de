"""The SubmitPool of a set of requirements (seed rfc7-job-requirements, ADR 0016). Its identifier hashes the canonical
set, with kind, operator and unit of each parameter, and the VO; `req2:` is the version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from lodesman.decide.resources import Requirement, TypeTable, compile_requirements, fold
from lodesman.decide.resources.model import BadValue
from lodesman.decide.resources.requirement import CONSTRAINT, expression
from lodesman.decide.resources.units import number_in
from lodesman.languages.classad import Ad, Node, parse_expression, write_expression, write_value
from lodesman.languages.classad.nodes import FunctionCall, Logic, clauses, constant_of
from lodesman.wire.vocabulary import Kind

_PREFIX = "req2:"


class Requirements(Struct, frozen=True, kw_only=True):
    """Compiled for the VO. All are empty if there are none."""

    criteria: tuple[Requirement, ...] = ()
    text: str = ""  # as it is stored
    pool: str = ""  # the id of the SubmitPool


NO_REQUIREMENTS = Requirements()


def requirements_of(
    values: Mapping[str, object], types: TypeTable, vo: str, request: Ad | None = None
) -> Requirements:
    """`request`: of the job, None if `values` was stored. Raises InvalidJob."""
    criteria = compile_requirements(values, types, request)
    return Requirements(
        criteria=criteria, text=spelled_requirements(criteria), pool=submit_pool_id(criteria, vo)
    )


def canonical_requirements(criteria: Iterable[Requirement]) -> str:
    """Canonical JSON: {"folded name": [kind, operator, unit, [values]]}, sorted. Sets have one form exactly if they
    ask for the same: by the parameter's type "4000", 4000.0 and "4000 MB" are one. An expression is its clauses, with
    the request's values put in.
    """
    rows = {item.folded: _canonical_row(item) for item in criteria}
    return json.dumps(rows, sort_keys=True, separators=(",", ":"), allow_nan=False)


def spelled_requirements(criteria: Iterable[Requirement]) -> str:
    """`canonical_requirements` with names and units as written: what is stored."""
    rows = {item.parameter: _row(item, item.unit) for item in criteria}
    return json.dumps(rows, separators=(",", ":"), allow_nan=False)


def _canonical_row(item: Requirement) -> list[object]:
    if item.kind is Kind.EXPRESSION:
        return [item.kind.value, "", "", [expression(item).canonical]]
    return _row(item, item.unit.lower())


def _row(item: Requirement, unit: str) -> list[object]:
    return [item.kind.value, item.operator, unit, list(item.wanted)]


def submit_pool_id(criteria: tuple[Requirement, ...], vo: str = "") -> str:
    """`req2:` and 64 hexadecimal digits; "" for an empty set."""
    if not criteria:
        return ""
    text = f"{json.dumps(vo)}\n{canonical_requirements(criteria)}"
    return _PREFIX + hashlib.sha256(text.encode("ascii")).hexdigest()


def wanted_of(requirements: str) -> dict[str, list[Any]]:
    """The Requirements of a stored text, for compiling under current types. Raises ValueError if it is no set of
    requirements.
    """
    rows = json.loads(requirements or "{}")
    return {name: wanted_values(row) for name, row in rows.items()}


def given_of(requirements: str) -> dict[str, Any]:
    """As in a description: a list of one is its value."""
    as_given: dict[str, Any] = {}
    for name, values in wanted_of(requirements).items():
        alone = len(values) == 1 or fold(name) == CONSTRAINT
        as_given[name] = values[0] if alone else values
    return as_given


# --- stations ----------------------------------------------------------------------------------------------


def with_stations(requirements: Mapping[str, Any], stations: Iterable[str]) -> dict[str, Any]:
    """Add a job's SAM stations to its constraint: the site's ad must have one (seed samgrid-minimal-brokering)."""
    name = next((attribute for attribute in requirements if fold(attribute) == CONSTRAINT), "Constraint")
    clause, own = _clause_of(stations), requirements.get(name)
    return {**requirements, name: clause if own is None else f"({own}) && ({clause})"}


def without_stations(requirements: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Requirements without the stations that their constraint names, and these."""
    left = dict(requirements)
    name = next((attribute for attribute in requirements if fold(attribute) == CONSTRAINT), None)
    if name is None:
        return left, ()
    others = list(clauses(parse_expression(left[name])))
    clause = next((part for part in others if _stations_in(part)), None)
    if clause is None:
        return left, ()
    others.remove(clause)
    del left[name]
    if others:
        both = Logic(operator="&&", operands=tuple(others))
        left[name] = write_expression(both if len(others) > 1 else others[0])
    return left, _stations_in(clause)


def _clause_of(stations: Iterable[str]) -> str:
    names = tuple(
        station for _, station in sorted({station.lower(): station for station in stations}.items())
    )
    each = [f"member({write_value(station)}, StationNames)" for station in names]
    return " || ".join([f"member(StationName, {write_value(names)})", *each])


def _stations_in(clause: Node) -> tuple[str, ...]:
    """() if the clause is no list of stations."""
    match clause:
        case Logic(operator="||", operands=(FunctionCall(arguments=(_, listed)), *_)):
            names = constant_of(listed)
        case _:
            return ()
    if not isinstance(names, tuple) or not all(isinstance(station, str) for station in names):
        return ()
    same = write_expression(parse_expression(_clause_of(map(str, names))))
    return tuple(map(str, names)) if names and write_expression(clause) == same else ()


def wanted_values(row: Sequence[Any]) -> list[Any]:
    """[kind, operator, unit, values] of one parameter. Numbers name their stored unit, unless it is today's. An
    expression is followed by the ad of what it asks of the job.
    """
    kind, _, unit, values = row
    if kind == Kind.EXPRESSION and unit:
        return [*values, unit]
    if kind != Kind.NUMBER or not unit:
        return list(values)
    read_values: list[Any] = []
    for value in values:
        text = f"{value} {unit}"
        try:
            number_in(text, unit)
        except BadValue:  # a number of hundreds of digits
            read_values.append(value)
        else:
            read_values.append(text)
    return read_values


def read_again(requirements: str, types: TypeTable, vo: str) -> tuple[str, str]:
    """(identifier, text to store) of a stored set under current types. Raises InvalidJob, or ValueError if it is no
    set.
    """
    again = requirements_of(wanted_of(requirements), types, vo)
    return again.pool, again.text
