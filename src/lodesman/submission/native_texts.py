"""Values of Grid Engine with one text for each meaning: `h_rt=1:0:0` and `WallTime = 3600` are both `3600`.

The access check compares texts: jobs and their classes come through here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lodesman.answers.jobs import Notice
from lodesman.gridengine.complexes import Complexes
from lodesman.jobclass import CanonicalKey, ClassSnapshot, JobValue, JobValues, entries_of
from lodesman.jobclass.attributes import BOOLEAN_DEFAULTS, AttributeKind, kind_of, truth
from lodesman.jobclass.specifiers import ClassEntry, ClassList, ClassScalar, ClassValue, together
from lodesman.jobs.record import shown
from lodesman.submission.native_forms import FORMS, amount_text, canonical_tasks, number_in, smallest_slots
from lodesman.submission.native_table import FILES, MEMORY, SLOTS, path_of

_ONE_RESOURCE: Final = {"mem_free": MEMORY, "virtual_free": MEMORY}

Said = tuple[JobValues, tuple[Notice, ...]]
"""Values, and what there is to say about them."""


def key_names(complexes: Complexes) -> CanonicalKey:
    """By which name the keys of lists are compared: the names of memory are one, and so are a name and its shortcut."""

    def canonical_key(attribute: str, key: str) -> str:
        if not attribute.startswith("l_"):
            return key
        name = complexes.canonical(key) or key
        return _ONE_RESOURCE.get(name, name)

    return canonical_key


def canonical(values: JobValues, complexes: Complexes) -> Said:
    """The values with one text for each meaning; unset ones are left out. Notices name what is lost."""
    notices: list[Notice] = []
    found: dict[str, JobValue] = {}
    for name, value in values.items():
        if not value:
            continue
        if name.startswith("l_"):
            found[name] = _requests(entries_of(name, value), complexes, hard=name == "l_hard")
        elif name in FILES:
            found[name] = _one_file(name, entries_of(name, value), notices)
        elif kind_of(name) is AttributeKind.SCALAR:
            found[name] = _scalar(name, value if isinstance(value, str) else ",".join(value), notices)
        elif kind_of(name) is AttributeKind.POSITIONAL:
            found[name] = tuple(text or "" for text in entries_of(name, value).values())
        else:
            filled = name in ("ac", "v")
            entries = entries_of(name, value)
            found[name] = {key: text or "" for key, text in entries.items()} if filled else entries
    _move_slots(found, notices)
    return {name: value for name, value in found.items() if value}, tuple(notices)


def _requests(
    entries: Mapping[str, str | None], complexes: Complexes, *, hard: bool
) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for key, text in entries.items():
        name = complexes.canonical(key) or key
        if hard:
            name = _ONE_RESOURCE.get(name, name)
        form = FORMS.get(name) if hard else None
        mine = form.canonical(text or "") if form else amount_text(complexes.get(name), text)
        before = found.get(name)
        if form and before is not None and mine is not None:
            mine = form.largest(before, mine)
        found[name] = mine
    return found


def _move_slots(found: dict[str, JobValue], notices: list[Notice]) -> None:
    """`l_hard slots` is the number of cores, as `pe_range` is."""
    requests = found.get("l_hard")
    if isinstance(requests, dict) and SLOTS in requests:
        text = requests.pop(SLOTS) or ""
        if "pe_range" not in found:
            found["pe_range"] = _scalar("pe_range", text, notices)


def _scalar(name: str, text: str, notices: list[Notice]) -> str:
    text = text.strip()
    if name in BOOLEAN_DEFAULTS:
        text = truth(text)
    form = FORMS.get(name)
    if name == "pe_range" and smallest_slots(text) is not None and number_in(text) is None:
        notices.append(
            _notice(name, f"{shown(text)} is a range: the smallest number, {smallest_slots(text)}, counts.")
        )
    return form.canonical(text) if form else canonical_tasks(text) if name == "t" else text


def _one_file(name: str, entries: Mapping[str, str | None], notices: list[Notice]) -> JobValue:
    """One path, without host: of several the first that has none."""
    paths = [key if value is None else f"{key}={value}" for key, value in entries.items()]
    plain = [path for path in paths if ":" not in path or path.startswith(":")]
    path = plain[0].removeprefix(":") if plain else paths[0].partition(":")[2]
    if len(paths) > 1 or not plain:
        notices.append(_notice(name, f"a path for a host has no meaning: {shown(path)} is taken for all."))
    return {file_entry(path): None} if path else {}


def file_entry(path: str) -> str:
    """A path as an entry of a list by host; a colon of its own stands behind the one of no host."""
    return f":{path}" if ":" in path else path


def _notice(name: str, message: str) -> Notice:
    return Notice(path_of(name, None), f"{name}: {message}")


def canonical_snapshot(snapshot: ClassSnapshot, complexes: Complexes) -> ClassSnapshot:
    """A class whose values are canonical, so that a job can be checked against it.

    Names of memory become one entry with those letters that all have. A list of paths has one, and is a scalar.
    """
    found: dict[str, ClassValue] = {}
    for name, held in snapshot.attributes.items():
        if isinstance(held, ClassScalar):
            found[name] = replace(held, text=_text_of({name: held.text or ""}, name, complexes))
        elif name in FILES:
            entries = held.entries or ()
            letters = "".join(entry.grants for entry in entries) + held.grants
            text = _text_of({name: {entry.key: entry.value for entry in entries}}, name, complexes)
            found[name] = ClassScalar(
                text=text,
                grants=together(letters, "") if text is None else together(letters.replace("+", ""), ""),
            )
        else:
            found[name] = _canonical_list(name, held, complexes)
    held_requests = snapshot.attributes.get("l_hard")
    entries = held_requests.entries or () if isinstance(held_requests, ClassList) else ()
    for entry in entries:
        cores = found.get("pe_range")
        if complexes.canonical(entry.key) == SLOTS and (
            not isinstance(cores, ClassScalar) or cores.text is None
        ):
            letters = together(entry.grants, held_requests.grants if held_requests else "").replace("+", "")
            found["pe_range"] = ClassScalar(
                text=FORMS["pe_range"].canonical(entry.value or ""), grants=letters
            )
    return replace(snapshot, attributes=found)


def _text_of(values: JobValues, name: str, complexes: Complexes) -> str | None:
    found = canonical(values, complexes)[0].get(name)
    return found if isinstance(found, str) else next(iter(found), None) if found else None


def _canonical_list(name: str, held: ClassList, complexes: Complexes) -> ClassList:
    if not held.entries or kind_of(name) is AttributeKind.POSITIONAL:
        return held
    values = canonical({name: {entry.key: entry.value for entry in held.entries}}, complexes)[0].get(name)
    whole = entries_of(name, values)
    found: dict[str, ClassEntry] = {}
    for entry in held.entries:
        key = key_names(complexes)(name, entry.key) if name == "l_hard" else entry.key
        if name == "l_soft":
            key = complexes.canonical(entry.key) or entry.key
        if key not in whole:
            continue  # slots
        letters = together(entry.grants, held.grants).replace("+", "")
        if key in found:
            letters = "".join(letter for letter in found[key].grants if letter in letters)
        found[key] = ClassEntry(key=key, value=whole[key], grants=letters)
    # Letters of the list are in each entry: one that was joined may have fewer.
    return ClassList(entries=tuple(found.values()), grants="+" if "+" in held.grants else "")
