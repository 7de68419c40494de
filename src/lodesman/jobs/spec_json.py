"""JobSpec and ParametricMembers as JSON values, for storage: what is not the default, exact both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodesman.errors import InvalidRequest
from lodesman.jobs.spec import JobSpec, NamedSequence, ParametricMembers

_EMPTY = JobSpec(executable="")
_DEFAULTS = tuple((name, getattr(_EMPTY, name)) for name in JobSpec.__struct_fields__)
_TUPLES = frozenset(name for name, default in _DEFAULTS if isinstance(default, tuple))
_NAMES = frozenset(name for name, _default in _DEFAULTS)


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """The fields that differ from their defaults; tuples stay tuples, which every encoder writes as lists."""
    return {name: value for name, default in _DEFAULTS if (value := getattr(spec, name)) != default}


def spec_from_json(values: Mapping[str, Any]) -> JobSpec:
    """The spec that `spec_to_json` gave. Raises InvalidRequest for what it never gives."""
    if not _NAMES.issuperset(values) or "executable" not in values:
        raise InvalidRequest("These values are no stored job.")
    fields: dict[str, Any] = dict(values)
    for name in _TUPLES.intersection(values):
        fields[name] = tuple(values[name])
    wanted = fields.get("requirements")
    if wanted:
        fields["requirements"] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in wanted.items()
        }
    return JobSpec(**fields)


def members_to_json(members: ParametricMembers) -> dict[str, Any]:
    """The members of a parametric description, not expanded."""
    found: dict[str, Any] = {"count": members.count, **_sequence_to_json(members)}
    if members.named:
        found["named"] = {name: _sequence_to_json(sequence) for name, sequence in members.named.items()}
    if not members.unnamed:
        found["unnamed"] = False
    return found


def members_from_json(values: Mapping[str, Any]) -> ParametricMembers:
    """The members that `members_to_json` gave."""
    named = {name: NamedSequence(**_listed(parts)) for name, parts in values.get("named", {}).items()}
    return ParametricMembers(**{**_listed(values), "named": named})


def _sequence_to_json(sequence: NamedSequence | ParametricMembers) -> dict[str, Any]:
    if sequence.values is not None:
        return {"values": sequence.values}
    numbers = {"start": (sequence.start, 1), "step": (sequence.step, 0), "factor": (sequence.factor, 1)}
    # The type counts too: a factor of 1.0 makes fractions.
    return {
        name: value
        for name, (value, default) in numbers.items()
        if value != default or isinstance(value, float)
    }


def _listed(values: Mapping[str, Any]) -> dict[str, Any]:
    if values.get("values") is None:
        return dict(values)
    return {**values, "values": tuple(values["values"])}
