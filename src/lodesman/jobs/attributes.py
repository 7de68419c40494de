"""The attributes of a job description, as data: spelling, field of JobSpec, check, and what would be right.

A wrong value becomes an InvalidJob here, which names the attribute, its position and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

from lodesman.errors import InvalidJob, LodesmanError
from lodesman.jobs.record import PositionMap, shown
from lodesman.jobs.values import (
    Mistake,
    Reader,
    arguments,
    environment,
    file_name,
    files,
    flag,
    name,
    names,
    one_of,
    places,
    requirements,
    text,
    whole,
)


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute. `right` completes "Give ...", the hint of every error.

    `key`: the value decides where the job can run, so it is part of the task-queue key. `plain`: an unquoted CFG value
    is text as it stands. `typed`: neither a key nor text. Placeholders in keys and in these wait in `JobSpec.deferred`.
    """

    name: str
    field: str
    read: Reader
    right: str
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    key: bool = False
    plain: bool = False
    typed: bool = False


def _from_token(_value: Any) -> NoReturn:
    raise Mistake("comes from the token, never from the description")


def _submission_pools(value: Any) -> tuple[str, ...]:
    """Without identifiers of SubmitPools (RFC #7), which follow from the Requirements: a stored description names one."""
    return tuple([one for one in _NAMES_GIVEN(value) if not _POOL_ID.match(one)])


_NAMES_GIVEN = names()
_POOL_ID = re.compile(r"req[0-9]+:[0-9a-f]{64}\Z")
_A_NAME = "a name of at most 255 printable ASCII characters"
_NAMES = 'names of at most 255 printable ASCII characters, as in "A" or {"A", "B"}'
_PLACES = (
    'names of at most 255 printable characters, as in "A" or {"A", "B"}; one with a comma stands in a list'
)
_NOTHING = "no such attribute; `lode whoami` shows who you are"
_FILE = "a file name relative to the job's directory, without '..'"

ATTRIBUTES: Final = (
    # What runs.
    Attribute("Executable", "executable", text, "a program's name or path", plain=True),
    Attribute(
        "Arguments",
        "arguments",
        arguments,
        'a text that is split as a shell does, or a list of texts, as in {"-n", "a b"}',
        plain=True,
    ),
    Attribute("JobName", "name", name(), _A_NAME, plain=True),
    Attribute("StdInput", "std_input", file_name(absolute=True), "a file name without '..'", plain=True),
    Attribute("StdOutput", "std_output", file_name("std.out"), _FILE, plain=True),
    Attribute("StdError", "std_error", file_name("std.err"), _FILE, plain=True),
    Attribute(
        "InputSandbox",
        "input_sandbox",
        files(absolute=True),
        "files without '..' in their paths, each with its own name",
    ),
    Attribute(
        "OutputSandbox",
        "output_sandbox",
        files(absolute=False),
        "file names or patterns relative to the job's directory, without '..'",
    ),
    Attribute(
        "Environment", "environment", environment, 'a record, [ A = "b"; ], or a list, {"A=b"}', plain=True
    ),
    # Whose it is and what it counts as.
    Attribute("JobType", "job_type", name("User"), _A_NAME, key=True, plain=True),
    Attribute(
        "Priority",
        "user_priority",
        whole(0, 10),
        "a whole number from 0 (background) to 10",
        aliases=("UserPriority",),
        key=True,
    ),
    Attribute("JobGroup", "project", name(), _A_NAME, aliases=("Project",), key=True, plain=True),
    Attribute("JobClass", "job_class", name(), _A_NAME, key=True, plain=True),
    Attribute("Variant", "variant", name(), _A_NAME, key=True, plain=True),
    Attribute("OwnerGroup", "group", name(), "one of your groups", plain=True),
    Attribute("Owner", "owner", _from_token, _NOTHING, aliases=("OwnerDN", "OwnerName")),
    Attribute("VO", "vo", _from_token, _NOTHING, aliases=("VirtualOrganization", "VirtualOrganisation")),
    # Where it can run.
    Attribute("Site", "sites", places("ANY"), _PLACES, aliases=("Sites",), key=True),
    Attribute("BannedSite", "banned_sites", places(), _PLACES, aliases=("BannedSites",), key=True),
    Attribute("GridCE", "grid_ces", places("ANY"), _PLACES, aliases=("GridCEs",), key=True),
    Attribute("Platform", "platforms", names("ANY"), _NAMES, aliases=("Platforms",), key=True),
    Attribute("Tag", "tags", names(), _NAMES, aliases=("Tags",), key=True),
    Attribute(
        "PilotType",
        "pilot_type",
        one_of("private"),
        '"private", or leave it out',
        aliases=("PilotTypes",),
        key=True,
    ),
    Attribute(
        "SubmitPool",
        "submission_pools",
        _submission_pools,
        "names of submission pools",
        aliases=("SubmitPools",),
        key=True,
    ),
    # How much it needs.
    Attribute(
        "CPUTime",
        "norm_cpu_seconds",
        whole(1, 10**9),
        "whole seconds on the reference machine, from 1 to 1000000000",
        key=True,
    ),
    Attribute(
        "NumberOfProcessors", "cores", whole(1, 4096), "a whole number of cores from 1 to 4096", key=True
    ),
    Attribute(
        "Memory",
        "memory_mb",
        whole(0, 2**30),
        "whole megabytes (2^20 bytes) from 0 to 1073741824",
        aliases=("MaxRAM",),
        key=True,
    ),
    Attribute(
        "Requirements",
        "requirements",
        requirements,
        'a record of values, [ Memory = 4000; SoftwareTag = {"A", "B"}; ], not an expression',
        key=True,
    ),
    Attribute(
        "WallTime",
        "wall_seconds",
        whole(0, 10**9),
        "whole seconds from 0 (no limit) to 1000000000",
        typed=True,
    ),
    Attribute(
        "MaxOutput",
        "max_output_mb",
        whole(0, 10**6),
        "whole megabytes (2^20 bytes) from 0 (no limit) to 1000000",
        typed=True,
    ),
    Attribute(
        "MaxAttempts", "max_attempts", whole(1, 100), "a whole number from 1 to 100, the same for all members"
    ),
    Attribute("Exclusive", "exclusive", flag, "true or false", typed=True),
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
KEY_FIELDS: Final = frozenset(attribute.field for attribute in ATTRIBUTES if attribute.key)
# Lower-case names whose unquoted CFG values are plain text.
PLAIN_TEXT: Final = frozenset(
    spelling.lower()
    for attribute in ATTRIBUTES
    if attribute.plain
    for spelling in (attribute.name, *attribute.aliases)
)


def by_name(spelling: str) -> Attribute | None:
    """The attribute of that name or alias, whatever its case."""
    return BY_SPELLING.get(spelling) or BY_SPELLING.get(spelling.lower())


def invalid(
    name: str, mistake: Mistake | str, places: PositionMap, *, right: str = "", **data: Any
) -> InvalidJob:
    """The error for the attribute that the text calls `name`; `right` completes "Give ..."."""
    label = shown(name)
    below = mistake.below if isinstance(mistake, Mistake) else ""
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
    """Add the line and column of its `attribute` to an error that was found where no positions are known.

    The sentence of an InvalidJob has them too; that of a refusal (Impossible) stays what `lode why` says.
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
    """The position of an attribute, however the text spells it (case, aliases); else of what it is part of, or None.

    A part is named as in errors (`Requirements.Memory`) or as in positions (`Requirements/Memory`).
    """
    found = places.get(attribute)
    if found is not None or not places:
        return found
    wanted = _canonical(attribute)
    found = next((places[path] for path in places if _canonical(path) == wanted), None)
    above = attribute.partition("/")[0] if "/" in attribute else _holder(attribute)
    return found or (place_of(above, places) if above else None)


def _canonical(path: str) -> str:
    holder = _holder(path)
    if holder:
        path = f"{holder}/{path[len(holder) + 1 :]}"
    name, slash, below = path.partition("/")
    attribute = BY_SPELLING.get(name.casefold())
    return f"{attribute.name if attribute else name.casefold()}{slash}{below.strip().casefold()}"


def _holder(attribute: str) -> str:
    """`Requirements` of `Requirements.Memory`, else '' (`Parameters.x` is a name)."""
    name, dot, _ = attribute.partition(".")
    return name if dot and name.casefold() == "requirements" else ""
