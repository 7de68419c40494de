"""From a record to a checked job: every attribute by the table, every error with its place and its remedy.

Nothing is corrected silently. What is unknown is kept in `extra` with a warning and, where a known name is
near, a suggestion; what is wrong is an InvalidJob with `attribute`, `line` and `column`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lodesman.errors import InvalidJob
from lodesman.jobs.attributes import BY_SPELLING, PARAMETERS, Attribute
from lodesman.jobs.faults import NO_POSITIONS, PositionMap, invalid
from lodesman.jobs.parametric import Given, split_fields
from lodesman.jobs.parsed import NAME_LENGTH, find_problem, shown
from lodesman.jobs.sequences import read_members
from lodesman.jobs.spec import Description, JobSpec, Notice, ParametricMembers, Record
from lodesman.jobs.values import Mistake

MAX_UNKNOWN = 256
MAX_SUGGESTED = 16
REMEMBERED = 256
_LOWER = {spelling.lower(): spelling for spelling in (*BY_SPELLING, *PARAMETERS) if not spelling.islower()}
_PARAMETERS = frozenset(name.lower() for name in PARAMETERS)
_REQUIRED = "Executable"


# Name of an attribute -> value -> what was read from it; lists as tuples.
Memory = dict[str, dict[Any, Any]]


def read_jobs(records: Iterable[Record]) -> Iterator[Description]:
    """Check the records of a batch, each when it is asked for. Raises InvalidJob."""
    memory: Memory = {}
    for record in records:
        fields = _read_alike(record, memory)
        if fields is None:
            yield read_job(record)
        else:
            group = fields.pop("group", "")
            yield Description(record=record, spec=JobSpec(**fields), group=group)


def _read_alike(record: Record, memory: Memory) -> dict[str, Any] | None:
    """The fields of a job that is nothing but known attributes; None for any other, and for a wrong one.

    Jobs of a batch have most values in common, and what was read from an attribute is remembered.
    """
    fields: dict[str, Any] = {}
    for name, value in record.items():
        attribute = BY_SPELLING.get(name)
        if attribute is None or attribute.field in fields:
            return None
        known = memory.get(name)
        if known is None:
            known = memory[name] = {}
        try:
            if len(known) >= REMEMBERED:  # it varies: looking up would cost more than reading
                read = attribute.read(value)
            else:
                kind = type(value)
                key = value if kind is str or kind is int else tuple(value) if kind is list else None
                read = known.get(key)
                if read is None:
                    read = attribute.read(value)
                    if _can_be_compared(key):
                        known[key] = read
        except (Mistake, TypeError):  # a list of records cannot be looked up
            return None
        fields[attribute.field] = read
    return fields if "executable" in fields else None


def _can_be_compared(key: Any) -> bool:
    """Whether what equals it is the same to a reader (1, 1.0 and true are equal)."""
    return key is not None and (type(key) is not tuple or all(type(item) is str for item in key))


def read_job(record: Record, positions: PositionMap | None = None) -> Description:
    """Check a record. `positions` (path -> line, column) make errors tell where. Raises InvalidJob."""
    places = NO_POSITIONS if positions is None else positions
    given, unknown, parameters = _sort_out(record, places)
    members: ParametricMembers | None = None
    warnings: Sequence[Notice] = ()
    if parameters:
        members = read_members(parameters, places)
        fields, warnings = split_fields(given, members, places)
    else:
        fields = _read_fields(given, places)
    if "executable" not in fields:
        raise InvalidJob(
            f"{_REQUIRED} is missing.", hint="Give a program's name or path.", attribute=_REQUIRED
        )
    if unknown:
        fields["extra"] = unknown
        warnings = (*warnings, *_warnings(unknown, places))
    group = fields.pop("group", "")
    return Description(record=record, spec=JobSpec(**fields), members=members, warnings=warnings, group=group)


def _sort_out(
    record: Record, places: PositionMap
) -> tuple[dict[str, Given], dict[str, Any], dict[str, tuple[str, Any]]]:
    """Known attributes by field, unknown ones by name, and those of `Parameters` by lower-case name."""
    given: dict[str, Given] = {}
    unknown: dict[str, Any] = {}
    parameters: dict[str, tuple[str, Any]] = {}
    for name, value in record.items():
        attribute = BY_SPELLING.get(name) or _by_lower_case(name)
        if attribute is not None:
            field = attribute.field
            if field in given:
                _refuse_second(name, given[field][1], places)
            given[field] = (attribute, name, value)
        elif name[:9].lower() == "parameter" and _is_parameter(name):
            lower = name.lower()
            if lower in parameters:
                _refuse_second(name, parameters[lower][0], places)
            parameters[lower] = (name, value)
        else:
            unknown[name] = value
    if unknown:
        _check_unknown(unknown, places)
    return given, unknown, parameters


def _by_lower_case(name: Any) -> Attribute | None:
    if not isinstance(name, str):
        raise InvalidJob(f"An attribute name is {type(name).__name__} and no text.")
    return BY_SPELLING.get(name.lower())


def _is_parameter(name: str) -> bool:
    return name.partition(".")[0].lower() in _PARAMETERS


def _read_fields(given: Mapping[str, Given], places: PositionMap) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field, (attribute, name, value) in given.items():
        try:
            fields[field] = attribute.read(value)
        except Mistake as mistake:
            raise invalid(name, mistake, places, right=attribute.right) from None
    return fields


def _refuse_second(name: str, first: str, places: PositionMap) -> None:
    same = "the same attribute as" if name.lower() != first.lower() else "given twice, first as"
    raise invalid(name, Mistake(f"is {same} {shown(first)}"), places, right="only one of them")


def _check_unknown(unknown: Mapping[str, Any], places: PositionMap) -> None:
    if len(unknown) > MAX_UNKNOWN:
        mistake = Mistake(f"is one of {len(unknown)} unknown attributes")
        raise invalid(next(iter(unknown)), mistake, places, right=f"at most {MAX_UNKNOWN} of your own")
    problem = find_problem(dict(unknown))
    if problem:
        name = problem.path.partition("/")[0].partition("[")[0]
        raise invalid(name, Mistake(f"cannot be kept: {problem.message}"), places, right="plain values")


def _warnings(unknown: Mapping[str, Any], places: PositionMap) -> list[Notice]:
    notices = []
    for index, name in enumerate(unknown):
        near = _suggestion(name) if index < MAX_SUGGESTED else ""
        what = f"{shown(name)} is no attribute that the program knows; it is kept"
        line, column = places.get(name, (0, 0))
        message = f"{what}. Did you mean {near}?" if near else f"{what}."
        notices.append(Notice(attribute=name[:NAME_LENGTH], message=message, line=line, column=column))
    return notices


def _suggestion(name: str) -> str:
    found = difflib.get_close_matches(name.lower(), _LOWER, n=1, cutoff=0.8)
    return _LOWER[found[0]] if found else ""
