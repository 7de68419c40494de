"""What a request changes in the values of a class: the switches of a submission, and -adds, -mods, -clears, -clearp.

A list behind a switch is merged by key: a key that is there is changed, a new one is added, none is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from lodesman.answers.job_classes import AttributeEdit
from lodesman.errors import InvalidRequest
from lodesman.jobclass.attributes import (
    KINDS,
    AttributeKind,
    CanonicalKey,
    JobValue,
    JobValues,
    entries_of,
    kind_of,
)
from lodesman.jobs.record import shown


class EntryVerb(StrEnum):
    """What is done to one entry of a list."""

    ADD = "-adds"
    MODIFY = "-mods"
    CLEAR = "-clears"


class Give(Struct, frozen=True, kw_only=True):
    """A switch such as -N or -l: a scalar replaces, a list is merged by key."""

    attribute: str
    value: JobValue


class EditEntry(Struct, frozen=True, kw_only=True):
    """Add an entry (or change it, if it is there), change one that is there, or remove one."""

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
    """The edits of a submission, in their order."""
    return [
        ClearAttribute(attribute=one.attribute)
        if one.verb == "clearp"
        else EditEntry(verb=_VERBS[one.verb], attribute=one.attribute, key=one.key, value=one.value)
        for one in edits
    ]


class Merged(Struct, frozen=True, kw_only=True):
    """The values that came about, and the changes that could not be made."""

    values: JobValues
    faults: tuple[InvalidRequest, ...] = ()


def merge(values: JobValues, changes: Iterable[RequestChange], canonical: CanonicalKey) -> Merged:
    """Values with changes made to them, one after the other. Whether a class allows them is not asked here."""
    found = dict(values)
    faults: list[InvalidRequest] = []
    for change in changes:
        name = change.attribute
        if isinstance(change, ClearAttribute):
            found.pop(name, None)
        elif kind_of(name) is AttributeKind.SCALAR:
            if isinstance(change, Give):
                found[name] = change.value
            else:
                faults.append(_fault(change, "is no list" if name in KINDS else "is unknown"))
        else:
            entries = _Entries(name, found.get(name), canonical)
            if isinstance(change, Give):
                entries.give(change.value)
            elif problem := entries.edit(change):
                faults.append(_fault(change, problem))
            found[name] = entries.value
    return Merged(values={name: value for name, value in found.items() if value}, faults=tuple(faults))


def _fault(change: EditEntry, problem: str) -> InvalidRequest:
    message = (
        f"{change.verb} {shown(change.attribute)} {shown(change.key)}: {shown(change.attribute)} {problem}."
    )
    return InvalidRequest(message, attribute=change.attribute, key=change.key)


class _Entries:
    """The entries of one list while changes are made."""

    __slots__ = ("canonical", "found", "name", "positional")

    def __init__(self, name: str, value: JobValue | None, canonical: CanonicalKey) -> None:
        self.name = name
        self.canonical = canonical
        self.positional = kind_of(name) is AttributeKind.POSITIONAL
        self.found = entries_of(name, value)

    @property
    def value(self) -> JobValue:
        return tuple(text or "" for text in self.found.values()) if self.positional else dict(self.found)

    def key(self, wanted: str) -> str | None:
        """The key under which an entry is there."""
        if self.positional:
            return wanted if wanted in self.found else None
        name = self.canonical(self.name, wanted)
        return next((key for key in self.found if self.canonical(self.name, key) == name), None)

    def give(self, value: JobValue) -> None:
        for key, text in entries_of(self.name, value).items():
            self.found[self.key(key) or key] = text

    def edit(self, change: EditEntry) -> str:
        """What is wrong with the change, or "" if it is made."""
        key = self.key(change.key)
        if change.verb is EntryVerb.ADD:
            if key is None and self.positional and change.key != str(len(self.found)):
                return f"goes on with position {len(self.found)}"
            self.found[key or change.key] = change.value
        elif key is None:
            return "has no such entry"
        elif change.verb is EntryVerb.MODIFY:
            self.found[key] = change.value
        else:
            del self.found[key]
        return ""
