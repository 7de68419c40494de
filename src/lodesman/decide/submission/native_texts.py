"""Grid Engine's values with one text for each meaning: `h_rt=1:0:0` and `WallTime = 3600` are both `3600`, so that the
access check can compare texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

from msgspec.structs import replace

from lodesman.base.errors import InvalidConfig
from lodesman.decide.submission.native_table import (
    FIELDS,
    FILES,
    FORMS,
    FREE_MEMORY,
    MEMORY,
    SLOTS,
    amount_text,
    canonical_tasks,
    path_of,
    smallest_slots,
)
from lodesman.languages.gridengine.complexes import Complex, Complexes, Consumable, Requestable
from lodesman.languages.gridengine.values import ComplexType, Value
from lodesman.languages.jobclass import CanonicalKey, ClassSnapshot, JobValue, JobValues, entries_of
from lodesman.languages.jobclass.attributes import BOOLEAN_DEFAULTS, AttributeKind, kind_of, truth
from lodesman.languages.jobclass.specifiers import ClassEntry, ClassList, ClassScalar, ClassValue, join_grants
from lodesman.languages.jobs.record import shown
from lodesman.wire.job_classes import AttributeEdit
from lodesman.wire.jobs import Notice

_ONE_NUMBER: Final = re.compile(r"[+-]?(\d{1,18})(?:-\1)?", re.ASCII)
Said = tuple[JobValues, tuple[Notice, ...]]  # values, and what there is to say about them
Path = tuple[str, str | None]  # an attribute of Grid Engine, and a key of its list


def key_names(complexes: Complexes) -> CanonicalKey:
    """A name and its shortcut are one key."""

    def canonical_key(attribute: str, key: str) -> str:
        return complexes.canonical(key) or key if attribute.startswith("l_") else key

    return canonical_key


def request_problem(complexes: Complexes, name: str, amount: str | None) -> str:
    """Why no job can ask for this amount, in whole sentences."""
    resource = complexes.get(name)
    if resource is None:
        near = complexes.near(name) or "lode quota resources lists them."
        return "" if name in (*FIELDS, SLOTS) else f"there is no resource {shown(name)!r}. {near}"
    if resource.requestable is Requestable.NO:
        return f"jobs cannot ask for {resource.name}. Leave it out."
    if "%" in (amount or "") or (amount is None and resource.kind is ComplexType.BOOL):
        return ""  # each member of an array has an amount of its own
    try:
        value = resource.value(amount or "")
    except InvalidConfig as wrong:
        return f"{wrong.message} {wrong.hint}".rstrip()
    return _amount_problem(resource, amount or "", value)


def _amount_problem(resource: Complex, amount: str, value: Value) -> str:
    is_used_up = resource.is_consumable and resource.name not in FIELDS
    if isinstance(value, str) or not (is_used_up or resource.name in (*FIELDS, *FREE_MEMORY)):
        return ""
    least = 1 if resource.name in (SLOTS, "h_cpu") else 0
    if least <= value and not (is_used_up and value == inf):
        return ""
    return f"no job can use {amount} of {resource.name}. Give an amount from {least}."


def cores_of_memory(pe_range: object, complexes: Complexes) -> int:
    """For how many cores memory is asked: the job's, or 1 if its complex is one of JOB."""
    if not isinstance(pe_range, str):
        return 1
    resources = filter(None, map(complexes.get, (MEMORY, *FREE_MEMORY)))
    used_up = next((resource.consumable for resource in resources if resource.is_consumable), Consumable.YES)
    return (smallest_slots(pe_range) if used_up is Consumable.YES else None) or 1


def canonical(values: JobValues, complexes: Complexes) -> Said:
    """One text for each meaning. Notices name what is lost."""
    notices: list[Notice] = []
    values_by_name: dict[str, JobValue] = {}
    for name, value in values.items():
        if not value:
            continue
        if name.startswith("l_"):
            values_by_name[name] = _requests(name, entries_of(name, value), complexes)
        elif name in FILES:
            values_by_name[name] = _one_file(name, entries_of(name, value), notices)
        elif kind_of(name) is AttributeKind.SCALAR:
            values_by_name[name] = _scalar(
                name, value if isinstance(value, str) else ",".join(value), notices
            )
        elif kind_of(name) is AttributeKind.POSITIONAL:
            values_by_name[name] = tuple(text or "" for text in entries_of(name, value).values())
        else:
            values_by_name[name] = _entries(name, entries_of(name, value))
    _move_slots(values_by_name, notices)
    return {name: value for name, value in values_by_name.items() if value}, tuple(notices)


def _entries(name: str, entries: dict[str, str | None]) -> JobValue:
    """Variables without a value are empty; queues have none."""
    if name in ("ac", "v"):
        return {key: text or "" for key, text in entries.items()}
    return dict.fromkeys(entries) if name == "q_hard" else entries


def _requests(
    attribute: str, entries: Mapping[str, str | None], complexes: Complexes
) -> dict[str, str | None]:
    requests: dict[str, str | None] = {}
    for key, text in entries.items():
        name = key_names(complexes)(attribute, key)
        form = FORMS.get(name) if attribute == "l_hard" else None
        before = requests.get(name)
        if form is None:
            requests[name] = amount_text(complexes.get(name), text)
        elif before is None:
            requests[name] = form.canonical(text or "")
        else:
            requests[name] = form.largest(before, form.canonical(text or ""))
    return requests


def _move_slots(values: dict[str, JobValue], notices: list[Notice]) -> None:
    """`l_hard slots` is the number of cores."""
    requests = values.get("l_hard")
    if isinstance(requests, dict) and SLOTS in requests:
        text = requests.pop(SLOTS) or ""
        if "pe_range" not in values:
            values["pe_range"] = _scalar("pe_range", text, notices)


def _scalar(name: str, text: str, notices: list[Notice]) -> str:
    text = text.strip()
    if name in BOOLEAN_DEFAULTS:
        text = truth(text)
    form = FORMS.get(name)
    if name == "pe_range" and smallest_slots(text) is not None and not _ONE_NUMBER.fullmatch(text):
        notices.append(
            _notice(name, f"{shown(text)} is a range: the smallest number, {smallest_slots(text)}, counts.")
        )
    return form.canonical(text) if form else canonical_tasks(text) if name == "t" else text


def _one_file(name: str, entries: Mapping[str, str | None], notices: list[Notice]) -> JobValue:
    """One path, without host: of several the first that has none."""
    paths = [key if value is None else f"{key}={value}" for key, value in entries.items()]
    if not paths:
        return {}
    plain = [path for path in paths if ":" not in path or path.startswith(":")]
    path = plain[0].removeprefix(":") if plain else paths[0].partition(":")[2]
    if len(paths) > 1 or not plain:
        notices.append(_notice(name, f"a path for a host has no meaning: {shown(path)} is taken for all."))
    return {file_entry(path): None} if path else {}


def file_entry(path: str) -> str:
    """As an entry of a list by host."""
    return f":{path}" if ":" in path else path


def _notice(name: str, message: str) -> Notice:
    return Notice(path_of(name, None), f"{name}: {message}")


def canonical_snapshot(snapshot: ClassSnapshot, complexes: Complexes) -> ClassSnapshot:
    """A class with canonical values. Names of one resource become one entry with the letters that all have; a list of
    paths becomes one path.
    """
    class_values: dict[str, ClassValue] = {}
    for name, held in snapshot.attributes.items():
        if isinstance(held, ClassScalar):
            class_values[name] = replace(held, text=_text_of({name: held.text or ""}, name, complexes))
        elif name in FILES:
            text = _text_of({name: {entry.key: entry.value for entry in held.entries or ()}}, name, complexes)
            letters = join_grants(held.grants, "".join(entry.grants for entry in held.entries or ()))
            class_values[name] = ClassScalar(
                text=text, grants=letters if text is None else letters.replace("+", "")
            )
        else:
            class_values[name] = _canonical_list(name, held, complexes)
    requests, cores = snapshot.attributes.get("l_hard"), class_values.get("pe_range")
    if isinstance(requests, ClassList) and not (isinstance(cores, ClassScalar) and cores.text):
        for entry in requests.entries or ():
            if entry.value and complexes.canonical(entry.key) == SLOTS:
                letters = join_grants(entry.grants, requests.grants).replace("+", "")
                class_values["pe_range"] = ClassScalar(
                    text=FORMS["pe_range"].canonical(entry.value), grants=letters
                )
    return replace(snapshot, attributes=class_values)


def _text_of(values: JobValues, name: str, complexes: Complexes) -> str | None:
    text = canonical(values, complexes)[0].get(name)
    return text if isinstance(text, str) else next(iter(text), None) if text else None


def _canonical_list(name: str, held: ClassList, complexes: Complexes) -> ClassList:
    if not held.entries or kind_of(name) is AttributeKind.POSITIONAL:
        return held
    entries = {entry.key: entry.value for entry in held.entries}
    whole = entries_of(name, canonical({name: entries}, complexes)[0].get(name))
    by_key: dict[str, ClassEntry] = {}
    for entry in held.entries:
        key = key_names(complexes)(name, entry.key)
        if key in whole:  # slots are not
            # Letters of the list are in each entry: one of two that are joined may have fewer.
            letters = join_grants(entry.grants, held.grants).replace("+", "")
            if key in by_key:
                letters = "".join(letter for letter in letters if letter in by_key[key].grants)
            by_key[key] = ClassEntry(key=key, value=whole[key], grants=letters)
    return ClassList(entries=tuple(by_key.values()), grants="+" if "+" in held.grants else "")


# --- values beside each other --------------------------------------------------------------------------


def flat(values: JobValues) -> dict[Path, str | None]:
    """By attribute and key; a file has one path and no key."""
    by_path: dict[Path, str | None] = {}
    for name, value in values.items():
        entries = entries_of(name, value) if kind_of(name) is not AttributeKind.SCALAR else {}
        if name in FILES:
            by_path[name, None] = ",".join(entries)
        elif isinstance(value, str):
            by_path[name, None] = value
        else:
            by_path |= {(name, key): text for key, text in entries.items()}
    return by_path


def changed_paths(before: JobValues, after: JobValues) -> Iterator[Path]:
    """Differences by attribute and key."""
    old, new = flat(before), flat(after)
    missing = object()
    return (path for path in {**old, **new} if old.get(path, missing) != new.get(path, missing))


def beside_edits(
    said: JobValues,
    edits: Sequence[AttributeEdit],
    before: JobValues,
    after: JobValues,
    canonical_key: CanonicalKey,
) -> tuple[JobValues, list[AttributeEdit]]:
    """A client's values and edits, so that the server comes to what its JSV made of both."""
    values, left, new = dict(said), list(edits), flat(after)
    for name, key in changed_paths(before, after):
        if key is None or kind_of(name) is not AttributeKind.KEYED:
            left = [edit for edit in left if edit.attribute != name]
            values[name] = after.get(name, "")
            continue
        left = [edit for edit in left if edit.attribute != name or canonical_key(name, edit.key) != key]
        entries = entries_of(name, values.get(name))
        entries.pop(key, None)
        if (name, key) in new:
            entries[key] = new[name, key]
            if any(edit.verb == "clearp" and edit.attribute == name for edit in left):
                left.append(AttributeEdit("adds", name, key, entries[key]))
        values[name] = entries
    return values, left
