"""Attributes that are said beside a description, and win over it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lodesman.jobs.attributes import PARAMETERS, by_name
from lodesman.jobs.record import Record

Given = Mapping[str, Any]


def overlaid(record: Record, attributes: Given) -> Record:
    """The description with these attributes, and without others for the same."""
    if not attributes:
        return record
    hidden = same(record, attributes)
    return {**{name: value for name, value in record.items() if name not in hidden}, **attributes}


def same(record: Given, others: Given) -> list[str]:
    """The names in a record that stand for one of the others."""
    others_of = {_canonical(name) for name in others}
    if "parameters" in others_of:
        others_of |= {name.lower() for name in PARAMETERS}
    return [name for name in record if _canonical(name) in others_of]


def _canonical(name: str) -> str:
    attribute = by_name(name)
    return (attribute.name if attribute else name).lower()
