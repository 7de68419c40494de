"""What is odd in quota sets and does not stop them: rules that never count, limits that add nothing up, unknown names, and
filters that jobs need not fall under.
"""

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
    """One of them: in which rule (`set/rule`, or the set), at which line, and which names or other rule it is about."""

    kind: NoticeKind
    rule: str
    line: int
    name: str
    message: str


def notices(
    sets: Iterable[QuotaSet],
    vocabulary: Vocabulary,
    known: Mapping[FilterTag, Collection[str]] | None = None,
) -> list[QuotaNotice]:
    """All notices, in the order of the text.

    `known` are the names that are there: users, PEs, queues, hosts, job classes; of what is left out no name is judged.
    Projects, user lists and host groups are those of the vocabulary.
    """
    there = {FilterTag.PROJECTS: vocabulary.projects.keys(), **(known or {})}
    return [
        found
        for one in sets
        for found in [
            *_disabled(one),
            *_shadowed(one),
            *_not_consumable(one, vocabulary),
            *_filters(one, vocabulary, there),
            *_voluntary(one, vocabulary),
        ]
    ]


def _notice(kind: NoticeKind, rule: QuotaRule, name: str, message: str) -> QuotaNotice:
    text = f"Rule {rule.label}: {message}."
    return QuotaNotice(kind=kind, rule=rule.label, line=rule.line, name=name, message=text)


def _disabled(one: QuotaSet) -> Iterator[QuotaNotice]:
    if not one.says_enabled:
        message = f"Set {one.name}: it has no line 'enabled', so it limits nothing. Write: enabled TRUE."
        yield QuotaNotice(
            kind=NoticeKind.DISABLED, rule=one.name, line=one.line, name=one.name, message=message
        )


def _voluntary(one: QuotaSet, vocabulary: Vocabulary) -> Iterator[QuotaNotice]:
    """Filters that a job leaves by what it does not say, if no rule of the set is about it then; one notice of each kind."""
    if not vocabulary.projects:
        without = "no project is configured, so JobGroup is free and the filter projects binds who writes such a name"
        remedy = "put projects into the files of [gridengine]"
    else:
        without = "jobs that name no project are not under projects"
        remedy = "enforce_project = true in [gridengine] makes each job name one"
    several = "jobs with several cores that name no PE are not under pes", "pes * is about these, too"
    asked = {FilterTag.PROJECTS: (without, remedy), FilterTag.PES: several}
    if vocabulary.projects and vocabulary.enforce_project:
        del asked[FilterTag.PROJECTS]
    for tag, (message, remedy) in asked.items():
        held = [rule.filters.get(tag) for rule in one.rules]
        naming = [rule for rule, found in zip(one.rules, held, strict=True) if found and _names_some(found)]
        if naming and not any(found is None or _takes_unnamed(tag, found) for found in held):
            yield _notice(NoticeKind.VOLUNTARY, naming[0], str(tag), f"{message}; {remedy}")


def _names_some(found: QuotaFilter) -> bool:
    return bool(found.names) and _ALL not in found.excluded


def _takes_unnamed(tag: FilterTag, found: QuotaFilter) -> bool:
    """Whether it is about jobs without a project, or with several cores in no PE that they name."""
    if tag is FilterTag.PES:
        return (_ALL in found.names or not found.names) and _ALL not in found.excluded
    return not found.names


def _shadowed(one: QuotaSet) -> Iterator[QuotaNotice]:
    before: QuotaRule | None = None
    for rule in one.rules:
        if before is not None:
            message = f"it never counts, because rule {before.label} before it is about all jobs"
            yield _notice(NoticeKind.SHADOWED, rule, before.label, message)
        elif all(_takes_all(tag, found) for tag, found in rule.filters.items()):
            before = rule


def _takes_all(tag: FilterTag, found: QuotaFilter) -> bool:
    return tag in _ALWAYS_THERE and _ALL in found.names and not found.excluded


def _not_consumable(one: QuotaSet, vocabulary: Vocabulary) -> Iterator[QuotaNotice]:
    for rule in one.rules:
        for name in dict.fromkeys(limit.resource for limit in rule.limits):
            entry = vocabulary.complexes.get(name)
            if entry is not None and not entry.is_consumable:
                message = (
                    f"{name} is not consumable, so the limit is on each job's request and not on their sum"
                )
                yield _notice(NoticeKind.NOT_CONSUMABLE, rule, name, message)


def _filters(
    one: QuotaSet, vocabulary: Vocabulary, there: Mapping[FilterTag, Collection[str]]
) -> Iterator[QuotaNotice]:
    for rule in one.rules:
        for tag, found in rule.filters.items():
            if tag is not FilterTag.JCS and _ALL in found.excluded and (found.names or tag in _ALWAYS_THERE):
                message = f"it can never match, because !* in {tag} excludes every name"
                yield _notice(NoticeKind.NEVER_MATCHES, rule, str(found), message)
            if tag is FilterTag.PROJECTS and not there[tag]:
                continue
            unknown = [
                name
                for name in dict.fromkeys((*found.names, *found.excluded))
                if not any(mark in name for mark in "*?[") and not _is_known(tag, name, vocabulary, there)
            ]
            if unknown:
                more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
                message = f"{tag} names {', '.join(unknown[:_SHOWN])}{more}, not known here"
                yield _notice(NoticeKind.UNKNOWN_NAME, rule, ", ".join(unknown), message)


def _is_known(
    tag: FilterTag, name: str, vocabulary: Vocabulary, there: Mapping[FilterTag, Collection[str]]
) -> bool:
    if name.startswith("@") and tag is FilterTag.USERS:
        return name[1:] in vocabulary.user_lists or name in there.get(tag, ())
    if name.startswith("@") and tag is FilterTag.HOSTS:
        return name in vocabulary.host_groups
    if tag not in there:
        return True
    if tag is FilterTag.HOSTS:
        return name.lower() in {host.lower() for host in there[tag]}
    return name in there[tag]
