"""Cohorts: the members of a description that share one value of everything that decides where they run.

If nothing of that kind varies there is one cohort, found without looking at the members. Else the members
are sorted by the values that their key attributes use, and each distinct set is checked once (DESIGN 3.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from lodesman.errors import InvalidJob
from lodesman.jobs.attributes import BY_SPELLING, KEY_FIELDS, Attribute
from lodesman.jobs.faults import NO_POSITIONS, PositionMap, invalid
from lodesman.jobs.placeholders import Compiled, Member, Scope
from lodesman.jobs.sequences import value_at
from lodesman.jobs.spec import Description, JobSpec, ParametricMembers
from lodesman.jobs.values import Mistake

MAX_COHORTS = 10_000

Runs = tuple[tuple[int, int], ...]


class Cohort(Struct, frozen=True, kw_only=True, gc=False):
    """Members [start, stop) of each run share `spec`, whose key fields are final; text may still vary."""

    spec: JobSpec
    runs: Runs


def cohorts(
    description: Description, max_cohorts: int = MAX_COHORTS, *, positions: PositionMap | None = None
) -> list[Cohort]:
    """The cohorts of a description, by their first members. Raises InvalidJob, also for too many."""
    spec, members = description.spec, description.members
    if members is None:
        return [Cohort(spec=spec, runs=((0, 1),))]
    places = NO_POSITIONS if positions is None else positions
    scope = Scope(members)
    keys = _compiled_keys(spec, scope)
    if not keys:
        return [Cohort(spec=spec, runs=((0, members.count),))]
    names = [attribute.name for attribute, _value in keys]
    tokens = sorted(frozenset[str]().union(*(value.tokens for _attribute, value in keys)))
    groups = _grouped(_columns(tokens, members), max_cohorts) if tokens else {(): [(0, members.count)]}
    if groups is None:
        raise InvalidJob(
            f"{', '.join(names)} split the members into more than {max_cohorts} kinds of job.",
            hint="Let fewer values decide where members run, or submit several descriptions.",
            attribute=names[0],
            limit=max_cohorts,
        )
    found = []
    for runs in groups.values():
        try:
            resolved = _resolve(spec, keys, scope.member(runs[0][0], 0, tokens))
        except _KeyMistake as fault:
            wrong, first = fault.attribute, runs[0][0]
            raise invalid(wrong.name, fault.mistake, places, right=wrong.right, member=first) from None
        found.append((resolved, runs))
    return _merged(found)


def _compiled_keys(spec: JobSpec, scope: Scope) -> list[tuple[Attribute, Compiled]]:
    keys = []
    for name, raw in spec.deferred.items():
        attribute = BY_SPELLING[name]
        if attribute.key:
            compiled = scope.compile(raw, keep_type=attribute.field == "requirements")
            if compiled:
                keys.append((attribute, compiled))
    return keys


def _columns(tokens: list[str], members: ParametricMembers) -> Iterator[tuple[Any, ...]]:
    """For each member what tells its cohort: the values of the tokens, types told apart."""
    return zip(*(_column(token, members) for token in tokens), strict=True)


def _column(token: str, members: ParametricMembers) -> Iterable[Any]:
    if token == "n":
        return range(members.count)
    sequence = Scope(members).sequence(token)
    if sequence is None or sequence.values is None:
        return (value_at(sequence or members, index) for index in range(members.count))
    values = sequence.values
    alike = len(set(map(type, values))) == 1
    return values if alike else [(type(value), value) for value in values]


def _grouped(
    columns: Iterator[tuple[Any, ...]], most: int
) -> dict[tuple[Any, ...], list[tuple[int, int]]] | None:
    """Runs of members by what tells their cohort; None as soon as there are more than `most`."""
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    start, last = 0, None
    index = -1
    for index, values in enumerate(columns):
        if values == last:
            continue
        if last is not None:
            groups.setdefault(last, []).append((start, index))
            if len(groups) > most:
                return None
        start, last = index, values
    if last is not None:
        groups.setdefault(last, []).append((start, index + 1))
    return groups if len(groups) <= most else None


class _KeyMistake(Exception):
    """A key attribute of one cohort is wrong."""

    def __init__(self, attribute: Attribute, mistake: Mistake) -> None:
        super().__init__(attribute.name)
        self.attribute = attribute
        self.mistake = mistake


def _resolve(spec: JobSpec, keys: list[tuple[Attribute, Compiled]], member: Member) -> JobSpec:
    """The template with its key fields read for one member, and so for all of its cohort."""
    changed: dict[str, Any] = {}
    for attribute, value in keys:
        try:
            changed[attribute.field] = attribute.read(value.fill(member))
        except Mistake as mistake:
            raise _KeyMistake(attribute, mistake) from None
    done = {attribute.name for attribute, _value in keys}
    left = {name: raw for name, raw in spec.deferred.items() if name not in done}
    return replace(spec, **changed, deferred=left)


def _merged(found: list[tuple[JobSpec, list[tuple[int, int]]]]) -> list[Cohort]:
    """Different values can read as one key ("1" and 1): such cohorts become one."""
    by_key: dict[bytes, tuple[JobSpec, list[tuple[int, int]]]] = {}
    for spec, runs in found:
        key = msgspec.json.encode({field: _plain(getattr(spec, field)) for field in sorted(KEY_FIELDS)})
        by_key.setdefault(key, (spec, []))[1].extend(runs)
    return [Cohort(spec=spec, runs=_joined(sorted(runs))) for spec, runs in by_key.values()]


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _joined(runs: list[tuple[int, int]]) -> Runs:
    joined = [runs[0]]
    for start, stop in runs[1:]:
        if start == joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return tuple(joined)
