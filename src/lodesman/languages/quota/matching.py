"""Whether a rule is about a job, and about a place: two halves, decided apart.

A rule matches if neither half is None; the values of both are the bucket.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct, field

from lodesman.base.errors import TooLarge
from lodesman.languages.gridengine.values import Number, Value
from lodesman.languages.quota.rules import FilterTag, QuotaFilter, QuotaRule, QuotaSet

_MOST: Final = {"rules": 5_000, "limits": 10_000, "names": 50_000, "patterns": 2_000}
_NO_FILTER = QuotaFilter()
_MAGIC = re.compile(r"[*?[]")
_ANY: Final = "*"
OF_JOBS: Final = (FilterTag.USERS, FilterTag.PROJECTS, FilterTag.PES, FilterTag.JCS)
"""Filters about jobs; the others are about places."""


@lru_cache(maxsize=10_000)
def _pattern(text: str) -> Callable[[str], object]:
    """There are more patterns than `fnmatch` remembers."""
    return re.compile(translate(text)).match


def _like(name: str, pattern: str) -> bool:
    return bool(_pattern(pattern)(name)) if _MAGIC.search(pattern) else name == pattern


def check_size(sets: Collection[QuotaSet]) -> None:
    """Raise TooLarge for more than a new user or host can be compared with while others wait."""
    rules = [rule for quota_set in sets for rule in quota_set.rules]
    filters = [held for rule in rules for held in rule.filters.values()]
    counts = {
        "rules": len(rules),
        "limits": sum(len(rule.limits) for rule in rules),
        "names": sum(len(held.names) + len(held.excluded) for held in filters),
        "patterns": len(_patterns(sets)),
    }
    for kind, most in _MOST.items():
        if counts[kind] > most:
            raise TooLarge(
                f"All quota sets together have at most {most:,} {kind}; with these they have {counts[kind]:,}.",
                hint="Put users on user lists and hosts in host groups, and count each by itself with braces.",
                limit=most, size=counts[kind],
            )  # fmt: skip


def prepare_patterns(sets: Iterable[QuotaSet]) -> None:
    """Prepare patterns in advance: it takes much longer than to compare a name with them."""
    for pattern in _patterns(sets):
        _pattern(pattern)


def _patterns(sets: Iterable[QuotaSet]) -> set[str]:
    return {
        name.lower() if tag is FilterTag.HOSTS and not name.startswith("@") else name
        for quota_set in sets
        for rule in quota_set.rules
        for tag, held in rule.filters.items()
        for name in (*held.names, *held.excluded)
        if _MAGIC.search(name)
    }


class QuotaJob(Struct, frozen=True, kw_only=True):
    """What rules ask of a job; "": none."""

    user: str
    user_lists: frozenset[str] = frozenset()  # With its user (`Vocabulary.lists_of`).
    project: str = ""
    job_class: str = ""
    variant: str = "default"
    pe: str = ""  # May be a pattern.
    slots: int = 1  # Several without a `pe` are in an environment, too, which has no name.
    requests: Mapping[str, Value] = field(default_factory=dict)  # By full name of the complex.


class QuotaPlace(Struct, frozen=True, kw_only=True):
    """What rules ask of a place."""

    queue: str
    host: str
    host_groups: frozenset[str] = frozenset()  # Those the host is in (`Vocabulary.groups_of`), nested or not.
    # By full name of the complex; what is missing is unknown.
    load: Mapping[str, Number] = field(default_factory=dict)


class JobValues(NamedTuple):
    """A job's values for filters in braces; "" without a value or such a filter."""

    user: str
    project: str
    pe: str
    job_class: str


class PlaceValues(NamedTuple):
    """A place's values for filters in braces; "" without such a filter."""

    queue: str
    host: str


def job_side(rule: QuotaRule, job: QuotaJob) -> JobValues | None:
    """The job's counted values; None if a filter excludes it."""
    if all(fits(tag, quota_filter, job) for tag, quota_filter in rule.filters.items() if tag in OF_JOBS):
        return job_values(rule, job)
    return None


def job_values(rule: QuotaRule, job: QuotaJob) -> JobValues:
    """The job's counted values, where the rule is about it."""
    braced = {tag for tag, quota_filter in rule.filters.items() if quota_filter.braced}
    return JobValues(
        job.user if FilterTag.USERS in braced else "",
        job.project if FilterTag.PROJECTS in braced else "",
        job.pe if FilterTag.PES in braced else "",
        job.job_class if FilterTag.JCS in braced else "",
    )


def fits(tag: FilterTag, quota_filter: QuotaFilter, job: QuotaJob) -> bool:
    """Whether a filter in OF_JOBS passes a job."""
    match tag:
        case FilterTag.USERS:
            return _by_name_or_group(quota_filter, job.user, job.user_lists, "@")
        case FilterTag.JCS:
            return _of_class(quota_filter, job.job_class, job.variant)
        case FilterTag.PES if job.slots > 1 and not job.pe:
            return _judge(quota_filter, _ANY in quota_filter.excluded, _ANY in quota_filter.names)
        case _:
            return _both_ways(quota_filter, job.project if tag is FilterTag.PROJECTS else job.pe)


def may_charge(rule: QuotaRule, job: QuotaJob, of: Collection[str]) -> bool:
    """Whether a bucket with the values `of` is about a job's user and class; "" is any."""
    values = {
        tag: value for tag, value in ((FilterTag.USERS, job.user), (FilterTag.JCS, job.job_class)) if value
    }
    return all(
        fits(tag, quota_filter, job) and (not quota_filter.braced or values[tag] in of)
        for tag, quota_filter in rule.filters.items()
        if tag in values
    )


def place_side(rule: QuotaRule, place: QuotaPlace) -> PlaceValues | None:
    """The place's counted values; None if a filter excludes it."""
    if all(
        admits(tag, quota_filter, place) for tag, quota_filter in rule.filters.items() if tag not in OF_JOBS
    ):
        return place_values(rule, place)
    return None


def place_values(rule: QuotaRule, place: QuotaPlace) -> PlaceValues:
    """The place's counted values, where the rule is about it."""
    queues, hosts = (rule.filters.get(tag, _NO_FILTER) for tag in (FilterTag.QUEUES, FilterTag.HOSTS))
    return PlaceValues(place.queue if queues.braced else "", place.host.lower() if hosts.braced else "")


def admits(tag: FilterTag, quota_filter: QuotaFilter, place: QuotaPlace) -> bool:
    """Whether a filter of queues or hosts lets a place pass."""
    if tag is FilterTag.QUEUES:
        return _both_ways(quota_filter, place.queue)
    return _by_name_or_group(quota_filter, place.host.lower(), place.host_groups, "")


def _judge(quota_filter: QuotaFilter, excluded: bool, named: bool) -> bool:
    """What `!` names always excludes; if there are other names, one must fit."""
    return not excluded and (named or not quota_filter.names)


def _by_name_or_group(quota_filter: QuotaFilter, name: str, groups: Iterable[str], mark: str) -> bool:
    """Users and hosts. `mark`: what names of groups lack; without one they have it, and case does not count."""

    def fits(pattern: str) -> bool:
        if pattern.startswith("@"):
            return any(_like(f"{mark}{group}", pattern) for group in groups)
        return _like(name, pattern if mark else pattern.lower())

    return _judge(quota_filter, any(map(fits, quota_filter.excluded)), any(map(fits, quota_filter.names)))


def _both_ways(quota_filter: QuotaFilter, value: str) -> bool:
    """Projects, PEs and queues: either name may be the pattern. What is absent fits no name, not even `*`."""
    is_pattern = bool(_MAGIC.search(value))  # else it only is like itself

    def fits(pattern: str) -> bool:
        return bool(value) and (_like(value, pattern) or (is_pattern and _like(pattern, value)))

    return _judge(quota_filter, any(map(fits, quota_filter.excluded)), any(map(fits, quota_filter.names)))


def _of_class(quota_filter: QuotaFilter, name: str, variant: str) -> bool:
    """Job classes: here `!*` means "no job class" (Univa: `{other_app, !*}`) and excludes nothing by itself."""

    def fits(pattern: str) -> bool:
        return _like(name, pattern) or _like(f"{name}.{variant or 'default'}", pattern)

    none_fits = "*" in quota_filter.excluded
    excluded = [pattern for pattern in quota_filter.excluded if pattern != "*"]
    if not name:
        return none_fits or not quota_filter.names
    if any(map(fits, excluded)):
        return False
    return any(map(fits, quota_filter.names)) if quota_filter.names else not none_fits
