"""Quota sets as values, and their native text (sge_resource_quota(5))."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from msgspec import Struct

from lodesman.languages.gridengine.values import Number, Value


class FilterTag(StrEnum):
    """What a filter is about, in the order of writing. `jcs` is Univa's."""

    USERS = "users"
    PROJECTS = "projects"
    PES = "pes"
    QUEUES = "queues"
    HOSTS = "hosts"
    JCS = "jcs"


class QuotaFilter(Struct, frozen=True, kw_only=True):
    """Shell patterns, of users also `@list`, of hosts also `@group`."""

    names: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # Written with `!`.
    braced: bool = False  # Each value that comes is counted by itself.

    def __str__(self) -> str:
        text = ",".join([*self.names, *(f"!{name}" for name in self.excluded)])
        return f"{{{text}}}" if self.braced else text


class LoadTerm(Struct, frozen=True, kw_only=True):
    """A part of a dynamic limit: `weight` times a host's load value."""

    weight: Number
    name: str = ""  # Of the load value; '': the weight is a plain number.


class QuotaLimit(Struct, frozen=True, kw_only=True):
    """At most this much of a resource."""

    resource: str
    text: str  # As it is written.
    value: Value = 0
    terms: tuple[LoadTerm, ...] = ()  # Of a dynamic limit, which has no `value`.


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRule:
    """One line `limit`; about all jobs without filters."""

    label: str  # `set/rule`: its name, or its number from 1 in the set.
    name: str = ""
    filters: Mapping[FilterTag, QuotaFilter] = field(default_factory=dict)
    limits: tuple[QuotaLimit, ...] = ()
    line: int = field(default=0, compare=False)

    def __str__(self) -> str:
        words = ["name", self.name] if self.name else []
        for tag in FilterTag:
            if tag in self.filters:
                words += [tag, str(self.filters[tag])]
        return " ".join([*words, "to", ",".join(f"{limit.resource}={limit.text}" for limit in self.limits)])


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSet:
    """Rules of which the first that fits counts."""

    name: str
    description: str = "NONE"  # As written, with its quotes if it has any.
    enabled: bool = False
    rules: tuple[QuotaRule, ...] = ()
    # Its text had the line `enabled`, without which it is not enabled.
    says_enabled: bool = field(default=True, compare=False)
    line: int = field(default=0, compare=False)


def write_quota_sets(sets: Iterable[QuotaSet]) -> str:
    """Canonical; `qconf` reads it too (where it knows the filters)."""
    return "".join(f"{line}\n" for quota_set in sets for line in _lines(quota_set))


def _lines(quota_set: QuotaSet) -> Iterator[str]:
    yield "{"
    yield f"   name         {quota_set.name}"
    yield f"   description  {quota_set.description}"
    yield f"   enabled      {'TRUE' if quota_set.enabled else 'FALSE'}"
    for rule in quota_set.rules:
        yield f"   limit        {rule}"
    yield "}"
