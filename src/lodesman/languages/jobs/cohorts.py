"""Cohorts: members of a description that agree in all that decides where they run. Each distinct set of key values is
checked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import InvalidJob
from lodesman.languages.jobs.attributes import BY_SPELLING, KEY_FIELDS, invalid
from lodesman.languages.jobs.members import Scope, read_filled, value_at
from lodesman.languages.jobs.record import NO_POSITIONS, PositionMap
from lodesman.languages.jobs.spec import Description, JobSpec, ParametricMembers

_MAX_COHORTS = 10_000
# Of the keys of all cohorts together.
_MAX_KEY_BYTES = 32 << 20

Runs = tuple[tuple[int, int], ...]


class CohortSpec(Struct, frozen=True, kw_only=True, gc=False):
    """Members with one spec, whose key fields are final; text may still vary."""

    spec: JobSpec
    runs: Runs  # [start, stop) of each.


def cohorts(description: Description, *, places: PositionMap = NO_POSITIONS) -> list[CohortSpec]:
    """By their first members. Raises InvalidJob, also for too many."""
    spec, members = description.spec, description.members
    if members is None:
        _check_together(spec, places)
        return [CohortSpec(spec=spec, runs=((0, 1),))]
    scope = Scope(members)
    keys = [(attribute, value) for attribute, value in scope.deferred(spec) if attribute.use == "key"]
    if not keys:
        _check_together(spec, places)
        return [CohortSpec(spec=spec, runs=((0, members.count),))]
    tokens = sorted(frozenset[str]().union(*(value.tokens for _attribute, value in keys)))
    # For each member the values of the tokens decide its cohort.
    columns = zip(*(_column(token, members) for token in tokens), strict=True)
    groups = _group_runs(columns) if tokens else {(): [(0, members.count)]}
    if groups is None:
        names = [attribute.name for attribute, _value in keys]
        raise InvalidJob(
            f"{', '.join(names)} split the members into more than {_MAX_COHORTS} kinds of job.",
            hint="Let fewer values decide where members run, or submit several descriptions.",
            attribute=names[0],
            limit=_MAX_COHORTS,
        )
    deferred = {name: raw for name, raw in spec.deferred.items() if BY_SPELLING[name].use != "key"}
    size = 0
    by_key: dict[bytes, tuple[JobSpec, list[tuple[int, int]]]] = {}
    for runs in groups.values():
        first = runs[0][0]  # all members of a cohort have the key of its first one
        read = {
            attribute.field: read_filled(
                attribute, value.fill(scope.member(first, 0, value.tokens)), first, places
            )
            for attribute, value in keys
        }
        filled = replace(spec, **read, deferred=deferred)
        _check_together(filled, places, member=first)
        # Different values can read as one key ("1" and 1): such cohorts become one.
        key = msgspec.json.encode({field: getattr(filled, field) for field in sorted(KEY_FIELDS)})
        cohort = by_key.setdefault(key, (filled, []))
        cohort[1].extend(runs)
        size += len(key) if cohort[0] is filled else 0
        if size > _MAX_KEY_BYTES:
            raise _too_large([attribute.name for attribute, _ in keys])
    return [CohortSpec(spec=filled, runs=_join_runs(sorted(runs))) for filled, runs in by_key.values()]


def _check_together(spec: JobSpec, places: PositionMap, **data: int) -> None:
    """Raise InvalidJob if attributes contradict each other; `data`: which member it is."""
    if spec.force_generic and spec.pilot_type:
        text = f"asks for generic pilots, PilotType = {spec.pilot_type} for the others"
        raise invalid("ForceGeneric", text, places, right="one of the two", **data)


def _too_large(names: list[str]) -> InvalidJob:
    most = f"{_MAX_KEY_BYTES >> 20} MB"
    return InvalidJob(
        f"{', '.join(names)} split the members into kinds of job whose conditions have more than {most} in all.",
        hint="Name fewer places or values, or let fewer values decide where members run.",
        attribute=names[0],
        limit=_MAX_KEY_BYTES,
    )


def _column(token: str, members: ParametricMembers) -> Iterable[Any]:
    """Types are kept apart."""
    if token == "n":
        return range(members.count)
    sequence = Scope(members).sequence(token) or members
    if sequence.values is None:
        return (value_at(sequence, index) for index in range(members.count))
    values = sequence.values
    of_one_type = len(set(map(type, values))) == 1
    return values if of_one_type else [(type(value), value) for value in values]


def _group_runs(columns: Iterator[tuple[Any, ...]]) -> dict[tuple[Any, ...], list[tuple[int, int]]] | None:
    """Runs of members by what decides their cohort; None for too many cohorts."""
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    start, last = 0, None
    for index, values in enumerate(chain(columns, (None,))):
        if values == last:
            continue
        if last is not None:
            groups.setdefault(last, []).append((start, index))
            if len(groups) > _MAX_COHORTS:
                return None
        start, last = index, values
    return groups


def _join_runs(runs: list[tuple[int, int]]) -> Runs:
    joined = [runs[0]]
    for start, stop in runs[1:]:
        if start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
