"""Changes of class values: the switches of a submission, and -adds, -mods, -clears, -clearp.

A switch's list is merged by key: keys are changed or added, none removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobclass.attributes import (
    KINDS,
    AttributeKind,
    CanonicalKey,
    JobValue,
    JobValues,
    entries_of,
    kind_of,
)
from lodesman.languages.jobs.record import shown
from lodesman.wire.job_classes import AttributeEdit


class EntryVerb(StrEnum):
    """What happens to an entry."""

    ADD = "-adds"
    MODIFY = "-mods"
    CLEAR = "-clears"


class Give(Struct, frozen=True, kw_only=True):
    """A switch such as -N or -l: a scalar replaces, a list is merged by key."""

    attribute: str
    value: JobValue


class EditEntry(Struct, frozen=True, kw_only=True):
    """Add or change an entry, change an existing one, or remove one."""

    verb: EntryVerb
    attribute: str
    key: str
    value: str | None = None


class ClearAttribute(Struct, frozen=True, kw_only=True):
    """-clearp: unset an attribute."""

    attribute: str


RequestChange = Give | EditEntry | ClearAttribute


_VERBS = {"adds": EntryVerb.ADD, "mods": EntryVerb.MODIFY, "clears": EntryVerb.CLEAR}


def changes_of(edits: Iterable[AttributeEdit]) -> list[RequestChange]:
    """A submission's edits, in order."""
    return [
        ClearAttribute(attribute=edit.attribute)
        if edit.verb == "clearp"
        else EditEntry(verb=_VERBS[edit.verb], attribute=edit.attribute, key=edit.key, value=edit.value)
        for edit in edits
    ]


class MergeResult(Struct, frozen=True, kw_only=True):
    """The new values, and the changes that failed."""

    values: JobValues
    faults: tuple[InvalidRequest, ...] = ()


def merge(values: JobValues, changes: Iterable[RequestChange], canonical: CanonicalKey) -> MergeResult:
    """Make changes in order, whether a class allows them or not."""
    merged = dict(values)
    lists: dict[str, _Entries | _Positions] = {}
    faults: list[InvalidRequest] = []
    for change in changes:
        name, kind = change.attribute, kind_of(change.attribute)
        if isinstance(change, ClearAttribute):
            merged.pop(name, None)
            lists.pop(name, None)
        elif kind is AttributeKind.SCALAR:
            if isinstance(change, Give):
                merged[name] = change.value
            else:
                faults.append(_fault(change, "is no list" if name in KINDS else "is unknown"))
        else:
            if name not in lists:
                made = _Positions if kind is AttributeKind.POSITIONAL else _Entries
                lists[name] = made(name, merged.get(name), canonical)
                merged.setdefault(name, "")  # its place among the others
            if isinstance(change, Give):
                lists[name].give(change.value)
            elif problem := lists[name].edit(change):
                faults.append(_fault(change, problem))
    merged |= {name: entries.value for name, entries in lists.items()}
    return MergeResult(values={name: value for name, value in merged.items() if value}, faults=tuple(faults))


def _fault(change: EditEntry, problem: str) -> InvalidRequest:
    message = (
        f"{change.verb} {shown(change.attribute)} {shown(change.key)}: {shown(change.attribute)} {problem}."
    )
    return InvalidRequest(message, attribute=change.attribute, key=change.key)


class _Entries:
    __slots__ = ("_canonical", "_found", "_name", "_names")

    def __init__(self, name: str, value: JobValue | None, canonical: CanonicalKey) -> None:
        self._name = name
        self._canonical = canonical
        self._found: dict[str, str | None] = {}
        # By its canonical name the keys under which an entry is there, of which the first counts.
        self._names: dict[str, list[str]] = {}
        for key, text in entries_of(name, value).items():
            self._put(key, text)

    @property
    def value(self) -> JobValue:
        return dict(self._found)

    def _key(self, name: str) -> str | None:
        return next(iter(self._names.get(self._canonical(self._name, name), ())), None)

    def _put(self, key: str, text: str | None) -> None:
        if key not in self._found:
            self._names.setdefault(self._canonical(self._name, key), []).append(key)
        self._found[key] = text

    def give(self, value: JobValue) -> None:
        for key, text in entries_of(self._name, value).items():
            self._put(self._key(key) or key, text)

    def edit(self, change: EditEntry) -> str:
        """What is wrong with the change, or ""."""
        key = self._key(change.key)
        if change.verb is EntryVerb.ADD:
            self._put(key or change.key, change.value)
        elif key is None:
            return "has no such entry"
        elif change.verb is EntryVerb.MODIFY:
            self._found[key] = change.value
        else:
            del self._found[key]
            self._names[self._canonical(self._name, key)].remove(key)
        return ""


class _Positions:
    __slots__ = ("_found", "_name")

    def __init__(self, name: str, value: JobValue | None, _canonical: CanonicalKey) -> None:
        self._name = name
        self._found = list(entries_of(name, value).values())

    @property
    def value(self) -> JobValue:
        return tuple(text or "" for text in self._found)

    def give(self, value: JobValue) -> None:
        texts = list(entries_of(self._name, value).values())
        self._found[: len(texts)] = texts

    def edit(self, change: EditEntry) -> str:
        """What is wrong with the change, or ""."""
        end = len(self._found)
        is_there = change.key.isascii() and change.key.isdigit() and len(change.key) <= len(str(end))
        at = int(change.key) if is_there and change.key == str(int(change.key)) else -1
        if not 0 <= at < end:
            if change.verb is not EntryVerb.ADD:
                return "has no such entry"
            if at != end:
                return f"goes on with position {end}"
            self._found.append(change.value)
        elif change.verb is EntryVerb.CLEAR:
            del self._found[at]
        else:
            self._found[at] = change.value
        return ""
