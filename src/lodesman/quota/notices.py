"""What is odd in quota sets and does not stop them: rules that never count, limits that add nothing up, unknown names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum

from msgspec import Struct

from lodesman.gridengine.vocabulary import Vocabulary
from lodesman.quota.rules import FilterTag, QuotaFilter, QuotaRule, QuotaSet

_ALWAYS_THERE = frozenset({FilterTag.USERS, FilterTag.QUEUES, FilterTag.HOSTS})


class NoticeKind(StrEnum):
    """What is odd."""

    SHADOWED = "shadowed"
    NOT_CONSUMABLE = "not-consumable"
    NEVER_MATCHES = "never-matches"
    UNKNOWN_NAME = "unknown-name"


class QuotaNotice(Struct, frozen=True, kw_only=True):
    """One of them: in which rule (`set/rule`), at which line, and which name or other rule it is about."""

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
        for found in [*_shadowed(one), *_not_consumable(one, vocabulary), *_filters(one, vocabulary, there)]
    ]


def _notice(kind: NoticeKind, rule: QuotaRule, name: str, message: str) -> QuotaNotice:
    text = f"Rule {rule.label}: {message}."
    return QuotaNotice(kind=kind, rule=rule.label, line=rule.line, name=name, message=text)


def _shadowed(one: QuotaSet) -> Iterator[QuotaNotice]:
    before: QuotaRule | None = None
    for rule in one.rules:
        if before is not None:
            message = f"it never counts, because rule {before.label} before it is about all jobs"
            yield _notice(NoticeKind.SHADOWED, rule, before.label, message)
        elif all(_takes_all(tag, found) for tag, found in rule.filters.items()):
            before = rule


def _takes_all(tag: FilterTag, found: QuotaFilter) -> bool:
    return tag in _ALWAYS_THERE and "*" in found.names and not found.excluded


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
            if tag is not FilterTag.JCS and "*" in found.excluded and (found.names or tag in _ALWAYS_THERE):
                message = f"it can never match, because !* in {tag} excludes every name"
                yield _notice(NoticeKind.NEVER_MATCHES, rule, str(found), message)
            for name in dict.fromkeys((*found.names, *found.excluded)):
                if not any(mark in name for mark in "*?[") and not _is_known(tag, name, vocabulary, there):
                    yield _notice(
                        NoticeKind.UNKNOWN_NAME, rule, name, f"{tag} names {name}, which is not known"
                    )


def _is_known(
    tag: FilterTag, name: str, vocabulary: Vocabulary, there: Mapping[FilterTag, Collection[str]]
) -> bool:
    if name.startswith("@") and tag is FilterTag.USERS:
        return name[1:] in vocabulary.user_lists
    if name.startswith("@") and tag is FilterTag.HOSTS:
        return name in vocabulary.host_groups
    if tag not in there:
        return True
    if tag is FilterTag.HOSTS:
        return name.lower() in {host.lower() for host in there[tag]}
    return name in there[tag]
