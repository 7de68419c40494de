"""The attributes of a job description: spelling, field of JobSpec, check, and what would be right."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Literal

from msgspec import Struct

from lodesman.base.errors import InvalidJob, LodesmanError
from lodesman.languages.jobs import values
from lodesman.languages.jobs.parents import read_on_failure, read_parents
from lodesman.languages.jobs.record import PositionMap, Record, shown
from lodesman.languages.jobs.retries import read_retry_causes
from lodesman.languages.jobs.values import Mistake, Reader, environment, whole

_CLOCK = re.compile(r"(?:([0-9]{1,5})-)?([0-9]{1,5}):([0-5][0-9]):([0-5][0-9])\Z")
_PARTS = re.compile(r"(?:[0-9]{1,15}(?:\.[0-9]{1,9})?[ ]?[A-Za-z]+[ ]?)+\Z")
_PART = re.compile(r"([0-9.]+) ?([A-Za-z]+)")
_TIMES: Final = {
    word: seconds
    for seconds, words in (
        (1, "s sec second seconds"), (60, "m min minute minutes"), (3600, "h hour hours"),
        (86_400, "d day days"), (604_800, "w week weeks"),
    )
    for word in words.split()
}  # fmt: skip
_SIZES: Final = {
    f"{letter}{rest}": Fraction(1024) ** power
    for power, letter in enumerate("kmgtp", -1)
    for rest in ("", "b", "ib")
}


def seconds(least: int, most: int) -> Reader:
    """Whole seconds within bounds, also with units or as [DAYS-]HOURS:MINUTES:SECONDS."""
    return _read_measure(least, most, _TIMES)


def megabytes(least: int, most: int) -> Reader:
    """Whole MB within bounds, also with a unit."""
    return _read_measure(least, most, _SIZES)


def _read_measure(least: int, most: int, units: Mapping[str, int | Fraction]) -> Reader:
    plain = whole(least, most)

    def read(value: Any) -> int:
        amount = _amount(value.strip(), units) if isinstance(value, str) else None
        number: int = plain(value if amount is None else amount)
        return number

    return read


def _amount(text: str, units: Mapping[str, int | Fraction]) -> int | None:
    """Of a text with units; None for other texts."""
    if units is _TIMES and (clock := _CLOCK.match(text)):
        days, hours, minutes, rest = (int(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + rest
    if not _PARTS.match(text):
        return None
    parts = [(Fraction(number), units.get(unit.lower())) for number, unit in _PART.findall(text)]
    amounts = [number * factor for number, factor in parts if factor is not None]
    is_one = len(parts) == 1 or units is _TIMES
    return math.ceil(sum(amounts)) if is_one and len(amounts) == len(parts) else None


_Use = Literal["text", "key", "limit", "fixed"]


class Attribute(Struct, frozen=True):
    """One attribute of a description."""

    name: str
    field: str
    # A text keeps placeholders in place. A key is part of the task-queue key and waits in `JobSpec.deferred`, and so
    # does a limit. What is fixed has no placeholders.
    use: _Use
    read: values.Reader
    right: str  # Completes "Give ...", the hint of every error.
    aliases: tuple[str, ...] = ()
    plain: bool = False  # An unquoted CFG value is text as it stands.


def _submission_pools(value: Any) -> tuple[str, ...]:
    """Without identifiers of SubmitPools (RFC #7), which stored descriptions name and the Requirements imply."""
    return tuple([name for name in _NAMES_GIVEN(value) if not _POOL_ID.match(name)])


def _stations(value: Any) -> tuple[str, ...]:
    """Few SAM stations, since they become one expression."""
    names: tuple[str, ...] = _NAMES_OR_ANY(value)
    if len(names) > _STATIONS_MAX:
        raise values.Mistake(f"has {len(names)} names; at most {_STATIONS_MAX}")
    return names


_STATIONS_MAX = 50
_NAMES_GIVEN, _NAMES_OR_ANY = values.names(), values.names("ANY")
_IN_REQUIREMENTS = re.compile(r"\A(?i:requirements)\.")  # `Parameters.x` is a name
_POOL_ID = re.compile(r"req[0-9]+:[0-9a-f]{64}\Z")
_A_NAME = "a name of at most 255 printable ASCII characters"
_NAMES = 'names of at most 255 printable ASCII characters, as in "A" or {"A", "B"}'
_PLACES = (
    'names of at most 255 printable characters, as in "A" or {"A", "B"}; one with a comma stands in a list'
)
_STATIONS = f'names of at most {_STATIONS_MAX} SAM stations, as in "A" or {{"A", "B"}}'
_PRIVATE = '"private", or leave it out'
_POOLS = "names of submission pools"
_YOURS = "what `lode whoami` shows, or leave it out"
_ARGUMENTS = 'a text that is split as a shell does, or a list of texts, as in {"-n", "a b"}'
_ANY_FILE = "a file name without '..'"
_FILE = "a file name relative to the job's directory, without '..'"
_INPUTS = 'files, each with its own name; a folder as "data/"'
_OUTPUTS = "file names or patterns relative to the job's directory, without '..'"
_ENVIRONMENT = 'a record, [ A = "b"; ], or a list, {"A=b"}'
_REQUIREMENTS = 'a record of values, [ Memory = 4000; SoftwareTag = {"A", "B"}; ]'
_CPU_SECONDS = 'whole seconds on the reference machine, from 1 to 1000000000, or a time as "2h"'
_CORES = "a whole number of cores from 1 to 4096"
_MEMORY = 'whole megabytes (2^20 bytes) from 0 to 1073741824, or a size as "4 GB"'
_CONSUMABLES = 'amounts of resources, as in "matlab=1, scratch=20G" or {"matlab=1", "scratch=20G"}'
_OUTPUT = 'whole megabytes (2^20 bytes) from 0 (no limit) to 1000000, or a size as "4 GB"'
_WALL_SECONDS = 'whole seconds from 0 (no limit) to 1000000000, or a time as "2h"'
_EXPECTED = 'whole seconds from 0 (unknown) to 1000000000, or a time as "2h"'
_PRIORITY = "a whole number from 0 (background) to 10"
_VACATE = "a whole number from -1000000000 to 1000000000; higher is kept longer"
_ATTEMPTS = "a whole number from 1 to 100, the same for all members"
_RETRY_ON = (
    'causes, exit codes or ranges of them, as in {75, "100-110", "memory-limit"}, the same for all members'
)
_PARENTS = (
    'ids of jobs and ranges of them, as in {12, "100-199"} or "100-199:index", the same for all members'
)
_AT_MOST = "a whole number from 1 to 1000000, the same for all members"
_FACTOR = "a number from 1 to 10, the same for all members"

KEPT: Final = "GridEngine"
"""Keeps what has no meaning here."""

ATTRIBUTES: Final = (
    # What runs.
    Attribute("Executable", "executable", "text", values.text, "a program's name or path", plain=True),
    Attribute("Arguments", "arguments", "text", values.arguments, _ARGUMENTS, plain=True),
    Attribute("JobName", "name", "text", values.name(), _A_NAME, plain=True),
    Attribute("StdInput", "std_input", "text", values.file_name(absolute=True), _ANY_FILE, plain=True),
    Attribute("StdOutput", "std_output", "text", values.file_name("std.out"), _FILE, plain=True),
    Attribute("StdError", "std_error", "text", values.file_name("std.err"), _FILE, plain=True),
    Attribute("InputSandbox", "input_sandbox", "text", values.files(absolute=True), _INPUTS),
    Attribute("OutputSandbox", "output_sandbox", "text", values.files(absolute=False), _OUTPUTS),
    Attribute("Environment", "environment", "text", values.environment, _ENVIRONMENT, plain=True),
    # Whose it is and what it counts as.
    Attribute("JobType", "job_type", "key", values.name("User"), _A_NAME, plain=True),
    Attribute("Priority", "user_priority", "key", values.whole(0, 10), _PRIORITY, ("UserPriority",)),
    Attribute("JobGroup", "project", "key", values.name(), _A_NAME, ("Project",), plain=True),
    Attribute("JobClass", "job_class", "key", values.name(), _A_NAME, plain=True),
    Attribute("Variant", "variant", "key", values.name(), _A_NAME, plain=True),
    Attribute("OwnerGroup", "group", "fixed", values.name(), "one of your groups", plain=True),
    Attribute("Owner", "owner", "fixed", values.name(), _YOURS, ("OwnerName",), plain=True),
    Attribute(
        "VO", "vo", "fixed", values.name(), _YOURS, ("VirtualOrganization", "VirtualOrganisation"), plain=True
    ),
    # Where it can run.
    Attribute("Site", "sites", "key", values.names("ANY", of_places=True), _PLACES, ("Sites",)),
    Attribute("BannedSite", "banned_sites", "key", values.names(of_places=True), _PLACES, ("BannedSites",)),
    Attribute("GridCE", "grid_ces", "key", values.names("ANY", of_places=True), _PLACES, ("GridCEs",)),
    Attribute("Stations", "stations", "key", _stations, _STATIONS),
    Attribute("Platform", "platforms", "key", values.names("ANY"), _NAMES, ("Platforms",)),
    Attribute("Tag", "tags", "key", values.names(), _NAMES, ("Tags",)),
    Attribute("PilotType", "pilot_type", "key", values.private, _PRIVATE, ("PilotTypes",)),
    Attribute("ForceGeneric", "force_generic", "key", values.flag, "true or false"),
    Attribute("SubmitPool", "submission_pools", "key", _submission_pools, _POOLS, ("SubmitPools",)),
    # How much it needs.
    Attribute("CPUTime", "norm_cpu_seconds", "key", seconds(1, 10**9), _CPU_SECONDS),
    Attribute("NumberOfProcessors", "cores", "key", values.whole(1, 4096), _CORES),
    Attribute("Memory", "memory_mb", "key", megabytes(0, 2**30), _MEMORY, ("MaxRAM",)),
    Attribute("Requirements", "requirements", "key", values.requirements, _REQUIREMENTS),
    Attribute("PE", "pe", "key", values.name(), _A_NAME, ("ParallelEnvironment",), plain=True),
    Attribute("Consumables", "consumables", "key", values.amounts, _CONSUMABLES),
    Attribute("ExpectedTime", "expected_seconds", "key", seconds(0, 10**9), _EXPECTED),
    Attribute("WallTime", "wall_seconds", "limit", seconds(0, 10**9), _WALL_SECONDS),
    Attribute("MaxOutput", "max_output_mb", "limit", megabytes(0, 10**6), _OUTPUT),
    Attribute("MaxAttempts", "max_attempts", "fixed", values.whole(1, 100), _ATTEMPTS),
    Attribute("RetryOn", "retry_on", "fixed", read_retry_causes, _RETRY_ON),
    Attribute("RetryMemoryFactor", "retry_memory_factor", "fixed", values.real(1, 10), _FACTOR),
    # What it waits for.
    Attribute("After", "after", "fixed", read_parents, _PARENTS),
    Attribute("AfterOk", "after_ok", "fixed", read_parents, _PARENTS),
    Attribute(
        "OnParentFailure", "on_parent_failure", "fixed", read_on_failure, '"hold" or "cancel"', plain=True
    ),
    Attribute("AtMost", "at_most", "fixed", values.whole(1, 10**6), _AT_MOST),
    Attribute("Exclusive", "exclusive", "limit", values.flag, "true or false"),
    Attribute("VacatePriority", "vacate_priority", "limit", values.whole(-(10**9), 10**9), _VACATE),
)

PARAMETERS: Final = ("Parameters", "ParameterStart", "ParameterStep", "ParameterFactor")

# Every spelling, as listed and in lower case; those of Parameters are in `PARAMETERS`.
BY_SPELLING: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        spelling: attribute
        for attribute in ATTRIBUTES
        for listed in (attribute.name, *attribute.aliases)
        for spelling in (listed, listed.lower())
    }
)
KEY_FIELDS: Final = frozenset(attribute.field for attribute in ATTRIBUTES if attribute.use == "key")
TEXT_FIELDS: Final = tuple(attribute.field for attribute in ATTRIBUTES if attribute.use == "text")
# Lower-case names whose unquoted CFG values are plain text.
PLAIN_TEXT: Final = frozenset(
    spelling for spelling, attribute in BY_SPELLING.items() if attribute.plain and spelling.islower()
)


def by_name(spelling: str) -> Attribute | None:
    """The attribute of that name or alias, in any case."""
    return BY_SPELLING.get(spelling) or BY_SPELLING.get(spelling.lower())


def invalid(
    name: str, mistake: values.Mistake | str, places: PositionMap, *, right: str = "", **data: Any
) -> InvalidJob:
    """`name`: the attribute in the text; `right` completes "Give ..."."""
    label = shown(name)
    below = mistake.below if isinstance(mistake, values.Mistake) else ""
    place = place_of(f"{name}/{below}" if below else name, places)
    where = ""
    if place is not None:
        line, column = place
        data = {"line": line, "column": column, **data}
        where = f" (line {line}, column {column})"
    of_member = f" of member {data['member']}" if "member" in data else ""
    hint = f"Give {right}." if right else ""
    return InvalidJob(f"{label}{of_member} {mistake}{where}.", hint=hint, attribute=label, **data)


def locate(wrong: LodesmanError, places: PositionMap) -> None:
    """Add line and column to an error found without positions.

    The sentence of an InvalidJob gets them, too; that of a refusal (Impossible) stays what `lode why` says.
    """
    attribute = wrong.data.get("attribute")
    place = place_of(attribute, places) if attribute and "line" not in wrong.data else None
    if place is None:
        return
    line, column = place
    wrong.data = {**wrong.data, "line": line, "column": column}
    if isinstance(wrong, InvalidJob):
        wrong.message = f"{wrong.message.removesuffix('.')} (line {line}, column {column})."


def place_of(attribute: str, places: PositionMap) -> tuple[int, int] | None:
    """The position of an attribute, in any spelling; else of what contains it.

    A part is named as in errors (`Requirements.Memory`) or positions (`Requirements/Memory`).
    """
    place = places.get(attribute)
    if place is not None or not places:
        return place
    canonical = _canonical(attribute)
    place = next((places[path] for path in places if _canonical(path) == canonical), None)
    above, slash, _ = canonical.partition("/")
    return place or (place_of(above, places) if slash else None)


def find_spelling(attribute: str, words: Iterable[str]) -> str:
    """The attribute as one of these words spells it; unchanged if none does."""
    return next((word for word in words if _canonical(word) == attribute), attribute)


def _canonical(path: str) -> str:
    name, slash, below = _IN_REQUIREMENTS.sub("requirements/", path).partition("/")
    attribute = BY_SPELLING.get(name.casefold())
    return f"{attribute.name if attribute else name.casefold()}{slash}{below.strip().casefold()}"


class AddedVariables(dict[str, str]):
    """An Environment that keeps other variables of the one before."""


def overlay(record: Record, attributes: Mapping[str, Any]) -> Record:
    """The description with these attributes instead of its own."""
    if not attributes:
        return record
    hidden = _find_same(record, attributes)
    kept = {name: value for name, value in record.items() if name not in hidden}
    before = {_folded_name(name): record[name] for name in hidden}
    return {
        **kept,
        **{
            name: _join_variables(before.get(_folded_name(name)), value) for name, value in attributes.items()
        },
    }


def _join_variables(before: Any, value: Any) -> Any:
    if not isinstance(value, AddedVariables) or before is None:
        return value
    try:
        joined = {**environment(before), **value}
    except Mistake:  # the description is refused for it
        return before
    return AddedVariables(joined) if isinstance(before, AddedVariables) else joined


def _find_same(record: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    others_of = {_folded_name(name) for name in others}
    if "parameters" in others_of:
        others_of |= {name.lower() for name in PARAMETERS}
    return [name for name in record if _folded_name(name) in others_of]


def _folded_name(name: str) -> str:
    attribute = by_name(name)
    return (attribute.name if attribute else name).lower()
