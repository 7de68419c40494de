"""Attributes that are said beside a description, and win over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodesman.languages.jobs.attributes import PARAMETERS, by_name
from lodesman.languages.jobs.record import Record
from lodesman.languages.jobs.values import Mistake, environment

Given = Mapping[str, Any]


class AddedVariables(dict[str, str]):
    """As the value of an Environment: it keeps what was said before of other variables."""


def overlaid(record: Record, attributes: Given) -> Record:
    """The description with these attributes, and without others for the same."""
    if not attributes:
        return record
    hidden = same(record, attributes)
    kept = {name: value for name, value in record.items() if name not in hidden}
    before = {_canonical(name): record[name] for name in hidden}
    return {
        **kept,
        **{name: _joined(before.get(_canonical(name)), value) for name, value in attributes.items()},
    }


def _joined(before: Any, value: Any) -> Any:
    if not isinstance(value, AddedVariables) or before is None:
        return value
    try:
        joined = {**environment(before), **value}
    except Mistake:  # the description is refused for it
        return before
    return AddedVariables(joined) if isinstance(before, AddedVariables) else joined


def same(record: Given, others: Given) -> list[str]:
    """The names in a record that stand for one of the others."""
    others_of = {_canonical(name) for name in others}
    if "parameters" in others_of:
        others_of |= {name.lower() for name in PARAMETERS}
    return [name for name in record if _canonical(name) in others_of]


def _canonical(name: str) -> str:
    attribute = by_name(name)
    return (attribute.name if attribute else name).lower()
