"""What is odd in quota sets and does not stop them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.quota.rules import FilterTag, QuotaFilter, QuotaRule, QuotaSet

_ALL: Final = "*"
_SHOWN: Final = 5
_ALWAYS_THERE = frozenset({FilterTag.USERS, FilterTag.QUEUES, FilterTag.HOSTS})


class NoticeKind(StrEnum):
    """What is odd."""

    SHADOWED = "shadowed"
    NOT_CONSUMABLE = "not-consumable"
    NEVER_MATCHES = "never-matches"
    DISABLED = "disabled"
    VOLUNTARY = "voluntary"
    UNKNOWN_NAME = "unknown-name"


class QuotaNotice(Struct, frozen=True, kw_only=True):
    """Something odd in a quota set."""

    kind: NoticeKind
    rule: str  # `set/rule`, or the set.
    line: int
    name: str  # What it is about: names, or another rule.
    message: str


def find_notices(
    sets: Iterable[QuotaSet],
    vocabulary: Vocabulary,
    known_names: Mapping[FilterTag, Collection[str]] | None = None,
) -> list[QuotaNotice]:
    """In the order of the text.

    `known_names`: users, PEs, queues, hosts, job classes; kinds that are left out are not judged. Projects, user lists
    and host groups are the vocabulary's.
    """
    names = {FilterTag.PROJECTS: vocabulary.projects.keys(), **(known_names or {})}
    return [
        notice
        for quota_set in sets
        for notice in [
            *_find_disabled(quota_set),
            *_find_shadowed(quota_set),
            *_find_not_consumable(quota_set, vocabulary),
            *_check_filters(quota_set, vocabulary, names),
            *_find_voluntary(quota_set, vocabulary),
        ]
    ]


def _notice(kind: NoticeKind, rule: QuotaRule, name: str, message: str) -> QuotaNotice:
    text = f"Rule {rule.label}: {message}."
    return QuotaNotice(kind=kind, rule=rule.label, line=rule.line, name=name, message=text)


def _find_disabled(quota_set: QuotaSet) -> Iterator[QuotaNotice]:
    if not quota_set.says_enabled:
        message = (
            f"Set {quota_set.name}: it has no line 'enabled', so it limits nothing. Write: enabled TRUE."
        )
        yield QuotaNotice(
            kind=NoticeKind.DISABLED,
            rule=quota_set.name,
            line=quota_set.line,
            name=quota_set.name,
            message=message,
        )


def _find_voluntary(quota_set: QuotaSet, vocabulary: Vocabulary) -> Iterator[QuotaNotice]:
    """Filters that a job escapes by silence, where no other rule of the set is about it; one of each kind."""
    if not vocabulary.projects:
        without = "no project is configured, so JobGroup is free and the filter projects binds who writes such a name"
        remedy = "put projects into the files of [gridengine]"
    else:
        without = "jobs that name no project are not under projects"
        remedy = "enforce_project = true in [gridengine] makes each job name one"
    several = "jobs with several cores that name no PE are not under pes", "pes * is about these, too"
    texts = {FilterTag.PROJECTS: (without, remedy), FilterTag.PES: several}
    if vocabulary.projects and vocabulary.enforce_project:
        del texts[FilterTag.PROJECTS]
    for tag, (message, remedy) in texts.items():
        of_tag = [rule.filters.get(tag) for rule in quota_set.rules]
        naming = [
            rule
            for rule, quota_filter in zip(quota_set.rules, of_tag, strict=True)
            if quota_filter and _names_some(quota_filter)
        ]
        if naming and not any(
            quota_filter is None or _takes_unnamed(tag, quota_filter) for quota_filter in of_tag
        ):
            yield _notice(NoticeKind.VOLUNTARY, naming[0], str(tag), f"{message}; {remedy}")


def _names_some(quota_filter: QuotaFilter) -> bool:
    return bool(quota_filter.names) and _ALL not in quota_filter.excluded


def _takes_unnamed(tag: FilterTag, quota_filter: QuotaFilter) -> bool:
    """Whether it is about jobs without a project, or with several cores in no named PE."""
    if tag is FilterTag.PES:
        return (_ALL in quota_filter.names or not quota_filter.names) and _ALL not in quota_filter.excluded
    return not quota_filter.names


def _find_shadowed(quota_set: QuotaSet) -> Iterator[QuotaNotice]:
    before: QuotaRule | None = None
    for rule in quota_set.rules:
        if before is not None:
            message = f"it never counts, because rule {before.label} before it is about all jobs"
            yield _notice(NoticeKind.SHADOWED, rule, before.label, message)
        elif all(_takes_all(tag, quota_filter) for tag, quota_filter in rule.filters.items()):
            before = rule


def _takes_all(tag: FilterTag, quota_filter: QuotaFilter) -> bool:
    return tag in _ALWAYS_THERE and _ALL in quota_filter.names and not quota_filter.excluded


def _find_not_consumable(quota_set: QuotaSet, vocabulary: Vocabulary) -> Iterator[QuotaNotice]:
    for rule in quota_set.rules:
        for name in dict.fromkeys(limit.resource for limit in rule.limits):
            entry = vocabulary.complexes.get(name)
            if entry is not None and not entry.is_consumable:
                message = (
                    f"{name} is not consumable, so the limit is on each job's request and not on their sum"
                )
                yield _notice(NoticeKind.NOT_CONSUMABLE, rule, name, message)


def _check_filters(
    quota_set: QuotaSet, vocabulary: Vocabulary, names_of_tag: Mapping[FilterTag, Collection[str]]
) -> Iterator[QuotaNotice]:
    for rule in quota_set.rules:
        for tag, quota_filter in rule.filters.items():
            if (
                tag is not FilterTag.JCS
                and _ALL in quota_filter.excluded
                and (quota_filter.names or tag in _ALWAYS_THERE)
            ):
                message = f"it can never match, because !* in {tag} excludes every name"
                yield _notice(NoticeKind.NEVER_MATCHES, rule, str(quota_filter), message)
            if tag is FilterTag.PROJECTS and not names_of_tag[tag]:
                continue
            unknown = [
                name
                for name in dict.fromkeys((*quota_filter.names, *quota_filter.excluded))
                if not any(mark in name for mark in "*?[")
                and not _is_known(tag, name, vocabulary, names_of_tag)
            ]
            if unknown:
                more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
                message = f"{tag} names {', '.join(unknown[:_SHOWN])}{more}, not known here"
                yield _notice(NoticeKind.UNKNOWN_NAME, rule, ", ".join(unknown), message)


def _is_known(
    tag: FilterTag, name: str, vocabulary: Vocabulary, names: Mapping[FilterTag, Collection[str]]
) -> bool:
    if name.startswith("@") and tag is FilterTag.USERS:
        return name[1:] in vocabulary.user_lists or name in names.get(tag, ())
    if name.startswith("@") and tag is FilterTag.HOSTS:
        return name in vocabulary.host_groups
    if tag not in names:
        return True
    if tag is FilterTag.HOSTS:
        return name.lower() in {host.lower() for host in names[tag]}
    return name in names[tag]
