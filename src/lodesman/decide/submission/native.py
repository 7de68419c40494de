"""Both ways between a description's record and its values for Grid Engine. What has no own attribute is in GridEngine,
as in `{"m=be", "hold_jid=12"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

from lodesman.decide.submission.native_record import (
    LOW_KEPT,
    OWN_NAME,
    QUEUE,
    NativeRecord,
    unsaid_queues,
    write_values,
)
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
    tasks_of,
)
from lodesman.decide.submission.native_texts import Said, canonical, cores_of_memory, file_entry, key_names
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.jobclass import JobValue, JobValues, entries_of
from lodesman.languages.jobclass.attributes import (
    BOOLEAN_DEFAULTS,
    KINDS,
    AttributeKind,
    kind_of,
    truth,
)
from lodesman.languages.jobs.attributes import KEPT
from lodesman.languages.jobs.record import Record, shown, text_of
from lodesman.wire.jobs import Notice

_CONSUMABLES: Final = "consumables"
# Attributes of Grid Engine and what they are in a description, in the order in which values are read.
_SCALARS_HERE: Final = tuple((name, HERE[name]) for name in SCALARS)
_LISTS_HERE: Final = (("CMDARG", HERE["CMDARG"]), ("v", HERE["v"]))
_FILES_HERE: Final = tuple((name, HERE[name]) for name in FILES)
_FIELDS_HERE: Final = tuple((key, HERE[f"l_hard {key}"]) for key in FIELDS)
_MEMORY_HERE: Final = HERE[f"l_hard {MEMORY}"]

# --- record -> values -----------------------------------------------------------------------------


def values_of(record: Record, complexes: Complexes, usual_range: object = None) -> Said:
    """What a record says. `usual_range`: `pe_range` of a record without cores; its Memory is for all of them."""
    said = SaidRecord(record, complexes)
    return said.beside(usual_range), said.notices


class SaidRecord:
    """A record, and the values of Grid Engine that it says: `values` in their canonical texts."""

    __slots__ = ("_at", "_complexes", "notices", "values")

    def __init__(self, record: Record, complexes: Complexes) -> None:
        self._at, self._complexes = NativeRecord(record), complexes
        notices: list[Notice] = []
        kept = dict(_kept_values(self._at, notices)) if KEPT in self._at.known else {}
        self.notices = tuple(notices)
        self.values = self._read(kept, None)

    def beside(self, usual_range: object) -> JobValues:
        """The values if its cores are these unless it says how many: its Memory is for all of them."""
        if not usual_range or _MEMORY_HERE not in self._at.known:
            return self.values
        return self._read(dict(_kept_values(self._at, [])), usual_range)

    def _read(self, values: dict[str, JobValue], usual_range: object) -> JobValues:
        at, complexes = self._at, self._complexes
        for name, here in _SCALARS_HERE:
            if here in at.known and (value := at.get(here)) is not None:
                values[name] = FORMS[name].to_native(value)
        for name, here in _LISTS_HERE:
            if here in at.known:
                values[name] = at.read(here) or ()
        for name, here in _FILES_HERE:
            if here in at.known:
                path = at.get(here)
                values[name] = {file_entry(path): None} if path and isinstance(path, str) else {}
        requests = at.consumables()
        by_request = (text for key, text in requests if complexes.canonical(key) == SLOTS)
        pe_range = values.get("pe_range") or next(by_request, None) or usual_range
        values["l_hard"] = _said_requests(at, requests, cores_of_memory(pe_range, complexes))
        queues = _said_queues(at)
        if queues:
            values["q_hard"] = dict.fromkeys(queues)
        tasks = (
            tasks_of({low: at.record[name] for low, name in at.parameters.items()}) if at.parameters else ""
        )
        if tasks:
            values["t"] = tasks
        own = {name: text_of(at.record[name]) for name in at.own if _is_context(name, at.record[name])}
        if own:
            values["ac"] = {**entries_of("ac", values.get("ac")), **own}
        # Of what a job has already nothing can be lost: what `canonical` says is said where it came in.
        return canonical(values, complexes)[0]

    def changed(self, after: JobValues) -> tuple[Record, tuple[Notice, ...]]:
        """The record that says these values, which are canonical, and what is lost: as `record_of`."""
        complexes, before = self._complexes, dict(self.values)
        cores = cores_of_memory(after.get("pe_range"), complexes)
        if cores != cores_of_memory(
            before.get("pe_range"), complexes
        ):  # as much for each as before is another Memory
            requests = entries_of("l_hard", before.get("l_hard"))
            before["l_hard"] = {key: "" if key == MEMORY else text for key, text in requests.items()}
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if not changed:
            return self._at.record, ()
        at = self._at.copy()
        write_values(at, changed, before, after, complexes)
        new = _kept_notices({name: after[name] for name in changed if name in after})
        return at.record, (*new, *unsaid_queues(after, changed))


def _is_context(name: str, value: Any) -> bool:
    return isinstance(value, (str, int, float)) and OWN_NAME.fullmatch(name) is not None


def _said_requests(
    at: NativeRecord, entries: Iterable[tuple[str, str | None]], cores: int
) -> dict[str, str | None]:
    requests: dict[str, str | None] = {}
    for key, here in _FIELDS_HERE:
        if here in at.known and (value := at.get(here)) is not None:
            requests[key] = FORMS[key].share(value, cores if key == MEMORY else 1)
    for key, amount in entries:
        before = requests.get(key) if key in FIELDS else None
        requests[key] = amount if before is None else FORMS[key].largest(before, amount or "")
    return requests


def _said_queues(at: NativeRecord) -> list[str]:
    requirements = at.get("Requirements")
    names = (
        next((name for name in requirements if name.lower() == QUEUE), None)
        if isinstance(requirements, dict)
        else None
    )
    if names is None:
        return []
    value = requirements[names]
    return [text_of(queue) for queue in value] if isinstance(value, (list, tuple)) else [text_of(value)]


def _kept_values(at: NativeRecord, notices: list[Notice]) -> Iterator[tuple[str, JobValue]]:
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
    if LOW_KEPT not in map(str.lower, record):
        return ""
    letters = str(dict(_kept_values(NativeRecord(record), [])).get("h", ""))
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
    after, notices = canonical(values, complexes)
    changed, lost = SaidRecord(record, complexes).changed(after)
    return changed, (*notices, *lost)


def with_attributes(record: Record, complexes: Complexes) -> Record:
    """Add attributes for resources that only the Consumables name: `h_rt=60` is WallTime 60."""
    if _CONSUMABLES not in map(str.lower, record):
        return record
    at, names = NativeRecord(dict(record)), key_names(complexes)
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
    at, cores = NativeRecord(dict(record)), cores_of_memory(values.get("pe_range"), complexes)
    at.put("Memory", FORMS[MEMORY].times(amount, cores))
    return at.record


def free_memory(requests: Mapping[str, str | None], names: Iterable[str]) -> str | None:
    """The largest of these requests, as a text of `h_vmem`."""
    form = FORMS[MEMORY]
    amounts = [form.canonical(requests[name] or "") for name in names if name in requests]
    return reduce(form.largest, amounts) if amounts else None
