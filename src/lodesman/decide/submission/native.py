"""Both ways between a description's record and its values for Grid Engine. What has no own attribute is in GridEngine,
as in `{"m=be", "hold_jid=12"}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

from lodesman.decide.submission.native_table import (
    FIELDS,
    FILES,
    FORMS,
    HERE,
    IS_KEPT,
    MEMORY,
    PARTLY_KEPT,
    REMARKS,
    SCALARS,
    SLOTS,
    task_numbers,
    tasks_of,
)
from lodesman.decide.submission.native_texts import Said, canonical, cores_of_memory, file_entry, key_names
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.jobclass import JobValue, JobValues, entries_of
from lodesman.languages.jobclass.attributes import (
    BOOLEAN_DEFAULTS,
    KINDS,
    AttributeKind,
    key_and_value,
    kind_of,
    truth,
)
from lodesman.languages.jobs.attributes import KEPT, PARAMETERS, by_name
from lodesman.languages.jobs.foreign import instead_of
from lodesman.languages.jobs.record import Record, name_problem, shown, text_of
from lodesman.languages.jobs.values import Mistake
from lodesman.wire.jobs import Notice

_QUEUE: Final = "queuename"
_PLAIN_QUEUE: Final = re.compile(r"[^@*?\[\]|&!,=\s]+")
# A name that a context can have; all other attributes of a user's own are left alone.
_OWN_NAME: Final = re.compile(r"[^=,\s\[\]]+")
_KEPT: Final = KEPT.lower()
_CONSUMABLES: Final = "consumables"
_PARAMETER_BASES: Final = tuple(name.lower() for name in PARAMETERS)

# --- record -> values -----------------------------------------------------------------------------


class _Record:
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
            elif low == _KEPT:
                self.known[KEPT] = name
            else:
                self.own.append(name)

    def get(self, name: str) -> Any:
        written = self.known.get(name)
        return None if written is None else self.record[written]

    def put(self, name: str, value: Any) -> None:
        """None removes the attribute."""
        if value is None:
            self.record.pop(self.known.pop(name, name), None)
        else:
            self.record[self.known.setdefault(name, name)] = value

    def consumables(self) -> list[tuple[str, str | None]]:
        value = self.get("Consumables")
        texts = (
            value.split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
        )
        return [key_and_value(text) for text in texts if isinstance(text, str) and text.strip(" =")]

    def read(self, name: str) -> Any:
        value, attribute = self.get(name), by_name(name)
        try:
            return None if value is None or attribute is None else attribute.read(value)
        except Mistake:
            return None


def values_of(record: Record, complexes: Complexes, usual_range: object = None) -> Said:
    """What a record says. `usual_range`: `pe_range` of a record without cores; its Memory is for all of them."""
    at = _Record(record)
    notices: list[Notice] = []
    values: dict[str, JobValue] = dict(_kept_values(at, notices))
    for name in SCALARS:
        value = at.get(HERE[name])
        if value is not None:
            values[name] = FORMS[name].to_native(value)
    values["CMDARG"] = at.read("Arguments") or ()
    values["v"] = at.read("Environment") or {}
    for name in FILES:
        path = at.get(HERE[name])
        values[name] = {file_entry(path): None} if path and isinstance(path, str) else {}
    requests = at.consumables()
    by_request = (text for key, text in requests if complexes.canonical(key) == SLOTS)
    pe_range = values.get("pe_range") or next(by_request, None) or usual_range
    values["l_hard"] = _said_requests(at, requests, cores_of_memory(pe_range, complexes))
    queues = _said_queues(at)
    if queues:
        values["q_hard"] = dict.fromkeys(queues)
    tasks = tasks_of({low: record[name] for low, name in at.parameters.items()})
    if tasks:
        values["t"] = tasks
    own = {name: text_of(record[name]) for name in at.own if _is_context(name, record[name])}
    if own:
        values["ac"] = {**entries_of("ac", values.get("ac")), **own}
    # Of what a job has already nothing can be lost: what `canonical` says is said where it came in.
    return canonical(values, complexes)[0], tuple(notices)


def _is_context(name: str, value: Any) -> bool:
    return isinstance(value, (str, int, float)) and _OWN_NAME.fullmatch(name) is not None


def _said_requests(
    at: _Record, entries: Iterable[tuple[str, str | None]], cores: int
) -> dict[str, str | None]:
    requests: dict[str, str | None] = {}
    for key in FIELDS:
        value = at.get(HERE[f"l_hard {key}"])
        if value is not None:
            requests[key] = FORMS[key].share(value, cores if key == MEMORY else 1)
    for key, amount in entries:
        before = requests.get(key) if key in FIELDS else None
        requests[key] = amount if before is None else FORMS[key].largest(before, amount or "")
    return requests


def _said_queues(at: _Record) -> list[str]:
    requirements = at.get("Requirements")
    names = (
        next((name for name in requirements if name.lower() == _QUEUE), None)
        if isinstance(requirements, dict)
        else None
    )
    if names is None:
        return []
    value = requirements[names]
    return [text_of(queue) for queue in value] if isinstance(value, (list, tuple)) else [text_of(value)]


def _kept_values(at: _Record, notices: list[Notice]) -> Iterator[tuple[str, JobValue]]:
    kept = at.get(KEPT)
    texts = kept if isinstance(kept, (list, tuple)) else () if kept is None else (kept,)
    values: dict[str, JobValue] = {}
    for text in texts:
        name, equals, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        if not equals or not (name in PARTLY_KEPT or name not in HERE):
            say = f"say {HERE[name]} instead" if name in HERE else 'write attribute=value, as in "m=be"'
            notices.append(Notice(KEPT, f"{shown(str(text))} counts for nothing: {say}."))
        elif kind_of(name) is AttributeKind.SCALAR:
            values[name] = value
        else:
            key, more, amount = value.partition("=")
            values[name] = {**entries_of(name, values.get(name)), key: amount if more else None}
    notices += _kept_notices(values)
    yield from values.items()


def hold_of(record: Record) -> str:
    """The letters of `h`, by which a job is Held from its submission on."""
    if _KEPT not in map(str.lower, record):
        return ""
    letters = str(dict(_kept_values(_Record(record), [])).get("h", ""))
    return "" if letters.strip().lower() == "n" else letters.strip()


def _kept_notices(values: JobValues) -> Iterator[Notice]:
    """For each value without meaning here, but for truth values at their defaults."""
    for name, value in values.items():
        if name in KINDS and name not in IS_KEPT:
            continue
        if name not in BOOLEAN_DEFAULTS or truth(str(value)) != BOOLEAN_DEFAULTS[name]:
            remark = REMARKS.get(name, "")
            yield Notice(KEPT, f"{shown(name)} has no meaning here; it is kept. {remark}".rstrip())


# --- values -> record -----------------------------------------------------------------------------


def record_of(record: Record, values: JobValues, complexes: Complexes) -> tuple[Record, tuple[Notice, ...]]:
    """The record that says these values, and what is lost. What says the same, or cannot be read, stays as written."""
    # Canonical again: a record that no job can have may say what has no canonical text.
    before = dict(canonical(values_of(record, complexes)[0], complexes)[0])
    after, notices = canonical(values, complexes)
    cores = cores_of_memory(after.get("pe_range"), complexes)
    if cores != cores_of_memory(
        before.get("pe_range"), complexes
    ):  # as much for each as before is another Memory
        requests = entries_of("l_hard", before.get("l_hard"))
        before["l_hard"] = {key: "" if key == MEMORY else text for key, text in requests.items()}
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    if not changed:
        return record, notices
    at = _Record(dict(record))
    for name in changed:
        if name not in ("l_hard", "pe_range"):
            _write(at, name, before.get(name), after.get(name))
    _write_requests(at, before, after, complexes)
    _write_kept(at, {name: after[name] for name in after if name not in HERE or name in PARTLY_KEPT})
    new = _kept_notices({name: after[name] for name in changed if name in after})
    return at.record, (*notices, *new, *_unsaid_queues(after, changed))


def with_attributes(record: Record, complexes: Complexes) -> Record:
    """Add attributes for resources that only the Consumables name: `h_rt=60` is WallTime 60."""
    if _CONSUMABLES not in map(str.lower, record):
        return record
    at, names = _Record(dict(record)), key_names(complexes)
    keys = {names("l_hard", key) for key, _ in at.consumables()}
    missing = [key for key in (*FIELDS, SLOTS) if key in keys and at.get(HERE[f"l_hard {key}"]) is None]
    values = values_of(record, complexes)[0] if missing else {}
    texts = {**entries_of("l_hard", values.get("l_hard")), SLOTS: values.get("pe_range")}
    cores = cores_of_memory(values.get("pe_range"), complexes)
    for key in missing:
        form, text = FORMS["pe_range" if key == SLOTS else key], str(texts[key])
        if form.number is not None and form.number(text) is not None:
            at.put(HERE[f"l_hard {key}"], form.times(text, cores if key == MEMORY else 1))
    return at.record if len(at.record) > len(record) else record


def with_free_memory(record: Record, values: JobValues, names: Iterable[str], complexes: Complexes) -> Record:
    """Set Memory to these requests of free memory, unless there is a limit of memory."""
    requests = entries_of("l_hard", values.get("l_hard"))
    amount = None if MEMORY in requests else free_memory(requests, names)
    if amount is None:
        return record
    at, cores = _Record(dict(record)), cores_of_memory(values.get("pe_range"), complexes)
    at.put("Memory", FORMS[MEMORY].times(amount, cores))
    return at.record


def free_memory(requests: Mapping[str, str | None], names: Iterable[str]) -> str | None:
    """The largest of these requests, as a text of `h_vmem`."""
    form = FORMS[MEMORY]
    amounts = [form.canonical(requests[name] or "") for name in names if name in requests]
    return reduce(form.largest, amounts) if amounts else None


def _unsaid_queues(after: JobValues, changed: Iterable[str]) -> Iterator[Notice]:
    if "q_hard" in changed and any(
        not _PLAIN_QUEUE.fullmatch(queue) for queue in entries_of("q_hard", after.get("q_hard"))
    ):
        yield Notice(KEPT, "q_hard names hosts or patterns, which have no meaning here; it is kept.")


def _write(at: _Record, name: str, before: JobValue | None, after: JobValue | None) -> None:
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


def _write_requests(at: _Record, before: JobValues, after: JobValues, complexes: Complexes) -> None:
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


def _write_queues(at: _Record, queues: list[str]) -> None:
    requirements = at.get("Requirements")
    if requirements is not None and not isinstance(requirements, dict):
        return  # reading the job refuses it
    others = {name: value for name, value in (requirements or {}).items() if name.lower() != _QUEUE}
    if queues and all(_PLAIN_QUEUE.fullmatch(queue) for queue in queues):
        others["QueueName"] = queues
    at.put("Requirements", others or None)


def _write_tasks(at: _Record, text: str) -> None:
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


def _write_own(at: _Record, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> None:
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
        is_taken = by_name(key) or low == _KEPT or low.partition(".")[0] in _PARAMETER_BASES
        double = self._by_low.get(low, set()) - {key}
        return not (
            is_taken or double or instead_of(key) or name_problem(key) or not _OWN_NAME.fullmatch(key)
        )


def _write_kept(at: _Record, values: JobValues) -> None:
    texts: list[str] = []
    spelled = _SpelledNames(at.record)
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
