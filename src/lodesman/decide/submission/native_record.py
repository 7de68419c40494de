"""The attributes of a record as they are written in it, and how values of Grid Engine are written into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from lodesman.decide.submission.native_table import (
    FIELDS,
    FILES,
    FORMS,
    HERE,
    MEMORY,
    PARTLY_KEPT,
    SCALARS,
    SLOTS,
    task_numbers,
)
from lodesman.decide.submission.native_texts import cores_of_memory, key_names
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.jobclass import JobValue, JobValues, entries_of
from lodesman.languages.jobclass.attributes import key_and_value
from lodesman.languages.jobs.attributes import KEPT, PARAMETERS, by_name
from lodesman.languages.jobs.foreign import instead_of
from lodesman.languages.jobs.record import Record, name_problem
from lodesman.languages.jobs.values import Mistake
from lodesman.wire.jobs import Notice

QUEUE: Final = "queuename"
_PLAIN_QUEUE: Final = re.compile(r"[^@*?\[\]|&!,=\s]+")
# A name that a context can have; all other attributes of a user's own are left alone.
OWN_NAME: Final = re.compile(r"[^=,\s\[\]]+")
LOW_KEPT: Final = KEPT.lower()
_PARAMETER_BASES: Final = tuple(name.lower() for name in PARAMETERS)


class NativeRecord:
    """The attributes of a record, whatever their spelling."""

    __slots__ = ("known", "own", "parameters", "record")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.known: dict[str, str] = {}  # canonical name -> as written
        self.own: list[str] = []
        self.parameters: dict[str, str] = {}
        for name in record:
            attribute = by_name(name)
            low = name.lower()
            if attribute is not None:
                self.known[attribute.name] = name
            elif low.partition(".")[0] in _PARAMETER_BASES:
                self.parameters[low] = name
            elif low == LOW_KEPT:
                self.known[KEPT] = name
            else:
                self.own.append(name)

    def copy(self) -> NativeRecord:
        """The same, to be written into."""
        other = NativeRecord({})
        other.record, other.known = dict(self.record), dict(self.known)
        other.own, other.parameters = self.own, self.parameters
        return other

    def get(self, name: str) -> Any:
        """The value as written."""
        written = self.known.get(name)
        return None if written is None else self.record[written]

    def put(self, name: str, value: Any) -> None:
        """None removes the attribute."""
        if value is None:
            self.record.pop(self.known.pop(name, name), None)
        else:
            self.record[self.known.setdefault(name, name)] = value

    def consumables(self) -> list[tuple[str, str | None]]:
        """Resources and amounts, in order."""
        value = self.get("Consumables")
        texts = (
            value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
        )
        return [key_and_value(text) for text in texts if isinstance(text, str) and text.strip(" =")]

    def read(self, name: str) -> Any:
        """The value as a job has it."""
        value, attribute = self.get(name), by_name(name)
        try:
            return None if value is None or attribute is None else attribute.read(value)
        except Mistake:
            return None


def unsaid_queues(after: JobValues, changed: Iterable[str]) -> Iterator[Notice]:
    """A notice if queues changed that a description cannot name."""
    if "q_hard" in changed and any(
        not _PLAIN_QUEUE.fullmatch(queue) for queue in entries_of("q_hard", after.get("q_hard"))
    ):
        yield Notice(KEPT, "q_hard names hosts or patterns, which have no meaning here; it is kept.")


def write_values(
    at: NativeRecord, changed: Iterable[str], before: JobValues, after: JobValues, complexes: Complexes
) -> None:
    """Write values that are not as before into the record, which then says `after`."""
    for name in changed:
        if name not in ("l_hard", "pe_range"):
            _write(at, name, before.get(name), after.get(name))
    _write_requests(at, before, after, complexes)
    _write_kept(at, {name: after[name] for name in after if name not in HERE or name in PARTLY_KEPT})


def _write(at: NativeRecord, name: str, before: JobValue | None, after: JobValue | None) -> None:
    if name in SCALARS:
        at.put(HERE[name], FORMS[name].to_record(str(after)) if after else None)
    elif name == "CMDARG":
        at.put("Arguments", list(after) if after else None)
    elif name == "v":
        at.put("Environment", dict(entries_of(name, after)) if after else None)
    elif name in FILES:
        path = next(iter(entries_of(name, after)), "")
        at.put(HERE[name], path.removeprefix(":") or None)
    elif name == "q_hard":
        _write_queues(at, list(entries_of(name, after)))
    elif name == "t":
        _write_tasks(at, str(after) if after else "")
    elif name == "ac":
        _write_own(at, entries_of(name, before), entries_of(name, after))


def _write_requests(at: NativeRecord, before: JobValues, after: JobValues, complexes: Complexes) -> None:
    """What has its own attribute stays among the Consumables only if unchanged."""
    old, new = (entries_of("l_hard", values.get("l_hard")) for values in (before, after))
    cores = cores_of_memory(after.get("pe_range"), complexes)
    same = {key for key in FIELDS if old.get(key) == new.get(key)}
    for key in FIELDS:
        if key not in same:
            text, count = new.get(key), cores if key == MEMORY else 1
            at.put(HERE[f"l_hard {key}"], None if text is None else FORMS[key].times(text, count))
    if before.get("pe_range") == after.get("pe_range"):
        same.add(SLOTS)
    else:
        _write(at, "pe_range", None, after.get("pe_range"))
    names = key_names(complexes)
    kept = [(key, text) for key, text in at.consumables() if names("l_hard", key) in same]
    rest = [(key, text) for key, text in new.items() if key not in FIELDS]
    entries = [key if text is None else f"{key}={text}" for key, text in (*kept, *rest)]
    if old != new or len(kept) + len(rest) != len(at.consumables()):
        at.put("Consumables", entries or None)


def _write_queues(at: NativeRecord, queues: list[str]) -> None:
    requirements = at.get("Requirements")
    if requirements is not None and not isinstance(requirements, dict):
        return  # reading the job refuses it
    others = {name: value for name, value in (requirements or {}).items() if name.lower() != QUEUE}
    if queues and all(_PLAIN_QUEUE.fullmatch(queue) for queue in queues):
        others["QueueName"] = queues
    at.put("Requirements", others or None)


def _write_tasks(at: NativeRecord, text: str) -> None:
    tasks = task_numbers(text)
    for low, name in at.parameters.items():
        if "." not in low or not text:
            at.record.pop(name)
    if tasks:
        first, last, step = tasks
        count = (last - first) // step + 1
        at.record |= {"Parameters": count, "ParameterStart": first, "ParameterStep": step}
    elif text:
        at.record["Parameters"] = text


def _write_own(at: NativeRecord, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> None:
    own, spelled = set(at.own), _SpelledNames(at.record)
    for key in {**before, **after}:
        if key in own and key not in after:
            del at.record[key]
            spelled.remove(key)
        elif (before.get(key) != after.get(key) or key not in at.record) and spelled.has_room_for(key):
            at.record[key] = after[key] or ""
            spelled.add(key)


class _SpelledNames:
    __slots__ = ("_by_low",)

    def __init__(self, names: Iterable[str]) -> None:
        self._by_low: dict[str, set[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        self._by_low.setdefault(name.lower(), set()).add(name)

    def remove(self, name: str) -> None:
        self._by_low[name.lower()].discard(name)

    def has_room_for(self, key: str) -> bool:
        """Whether a description may have this attribute without meaning."""
        low = key.lower()
        is_taken = by_name(key) or low == LOW_KEPT or low.partition(".")[0] in _PARAMETER_BASES
        double = self._by_low.get(low, set()) - {key}
        return not (is_taken or double or instead_of(key) or name_problem(key) or not OWN_NAME.fullmatch(key))


def _write_kept(at: NativeRecord, values: JobValues) -> None:
    texts: list[str] = []
    spelled = _SpelledNames(at.record if "ac" in values else ())
    for name, value in values.items():
        if isinstance(value, str):
            texts.append(f"{name}={value}")
            continue
        if name == "q_hard" and all(_PLAIN_QUEUE.fullmatch(queue) for queue in value):
            continue
        for key, text in entries_of(name, value).items():
            if name != "ac" or not spelled.has_room_for(key):
                texts.append(f"{name}={key}" if text is None else f"{name}={key}={text}")
    at.put(KEPT, texts or None)
