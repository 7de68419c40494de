"""Records with the same names become the same job of a class but for their own values, if the class leaves these values
open and each of them is a plain one. What else there is to say of a record is said by the six steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from lodesman.decide.submission.native_table import FILES, FREE_MEMORY, HERE, MEMORY, SLOTS
from lodesman.decide.submission.resolution import ResolvedRecord
from lodesman.languages.jobclass import ClassSnapshot, JobValues, entries_of
from lodesman.languages.jobclass.specifiers import ClassScalar, join_grants
from lodesman.languages.jobs.attributes import by_name
from lodesman.languages.jobs.record import Record

Shape = tuple[str, ...]
"""The names of a record in their order, and what its JobClass and Variant are."""

# Letters of a text and texts of a list that are plain: all that can be read has fewer in all.
_LONGEST, _MOST_TEXTS = 1_000, 100
_MOST: Final = 1 << 31
_CLASS: Final = ("JobClass", "Variant")
_CORES: Final = "NumberOfProcessors"


def _is_text(value: Any) -> bool:
    return type(value) is str and 0 < len(value) <= _LONGEST and not value.isspace() and value.isprintable()


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 < value < _MOST


def _is_list(value: Any) -> bool:
    return type(value) is list and 0 < len(value) <= _MOST_TEXTS and all(map(_is_text, value))


# Plain values by attribute of a description: none is empty, and none depends on another one.
_PLAIN: Final[Mapping[str, tuple[str, str | None, Callable[[Any], bool]]]] = {
    **{HERE[name]: (name, None, _is_text) for name in ("CMDNAME", "N", "P", "pe_name", *FILES)},
    **{HERE[name]: (name, None, _is_number) for name in ("p", "r", "pe_range")},
    **{HERE[f"l_hard {key}"]: ("l_hard", key, _is_number) for key in ("h_rt", "h_cpu", MEMORY)},
    HERE["CMDARG"]: ("CMDARG", None, _is_list),
}
# All that mean something in Grid Engine.
_NATIVE: Final = frozenset(name.partition(".")[0] for here in HERE.values() for name in here.split(", "))


class ShapePlan(Struct, frozen=True, kw_only=True):
    """What a class makes of the records of a shape."""

    result: ResolvedRecord  # of the first one
    own: tuple[str, ...]  # names whose values are those of the record
    plain: tuple[tuple[str, Callable[[Any], bool]], ...]  # those that must be plain

    def resolve(self, record: Record) -> ResolvedRecord | None:
        """None: not all of its values are plain."""
        for name, is_plain in self.plain:
            if not is_plain(record[name]):
                return None
        return replace(
            self.result, record={**self.result.record, **{name: record[name] for name in self.own}}
        )


def shape_of(record: Record) -> Shape:
    """The shape of a record; equal ones are changed by a class in the same way."""
    of_class = [
        f"{name}={value!r}" for name, value in record.items() if name[:1] in "jJvV" and _is_class(name)
    ]
    return (*record, *of_class)


def _is_class(name: str) -> bool:
    attribute = by_name(name)
    return attribute is not None and attribute.name in _CLASS


def plan_of(
    record: Record, result: ResolvedRecord, held: ClassSnapshot, given: JobValues
) -> ShapePlan | None:
    """The plan for the shape of a record that came out of the six steps so, without JSV and edits; None: its values
    count. `given`: what class and system say.
    """
    names: dict[str, str] = {}
    for name in record:
        attribute = by_name(name)
        if attribute is None or attribute.name in names:
            return None
        names[attribute.name] = name
    own = tuple(written for name, written in names.items() if name not in _CLASS)
    native = [name for name in names if name in _NATIVE and name not in _CLASS]
    plan = ShapePlan(
        result=result,
        own=own,
        plain=tuple((names[name], _PLAIN[name][2]) for name in native if name in _PLAIN),
    )
    is_open = len(plan.plain) == len(native) and all(_is_open(held, given, name) for name in native)
    is_same = is_open and not _are_joined(given, names) and plan.resolve(record) == result
    return plan if is_same else None


def _is_open(held: ClassSnapshot, given: JobValues, name: str) -> bool:
    """Whether the class allows every value."""
    attribute, key, _ = _PLAIN[name]
    if attribute == "CMDARG" and attribute in given:
        return False  # the two are joined
    value = held.attributes.get(attribute)
    if value is None:
        return True
    if isinstance(value, ClassScalar):
        return "~" in value.grants or (value.text is None and "+" in value.grants)
    entry = next((entry for entry in value.entries or () if entry.key == key), None)
    return "+" in value.grants if entry is None else "~" in join_grants(entry.grants, value.grants)


def _are_joined(given: JobValues, names: Mapping[str, str]) -> bool:
    """Whether memory that is given for each core meets cores of another writer."""
    requests = entries_of("l_hard", given.get("l_hard"))
    gives_memory = not requests.keys().isdisjoint((MEMORY, *FREE_MEMORY))
    gives_cores = "pe_range" in given or SLOTS in requests
    return (gives_memory and _CORES in names) or (gives_cores and HERE[f"l_hard {MEMORY}"] in names)
