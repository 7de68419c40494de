"""The attributes of a job description, as data: spelling, field of JobSpec, check, and what would be right.

`key`: the value decides where the job can run, so it is part of the task-queue key (DESIGN 3.3).
`plain`: an unquoted CFG value is text as it stands, commas and digits included.
`typed`: no key, and no text either. Placeholders in keys and in these wait in `JobSpec.deferred`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NoReturn

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute. `right` completes "Give ...", the hint of every error."""

    name: str
    field: str
    read: Reader
    right: str
    aliases: tuple[str, ...] = ()
    key: bool = False
    plain: bool = False
    typed: bool = False


def _from_token(_value: Any) -> NoReturn:
    raise Mistake("comes from the token, never from the description")


def _submission_pools(value: Any) -> tuple[str, ...]:
    """Without identifiers of SubmitPools (RFC #7): a description that was read back names one, and its Requirements
    tell it anyway.
    """
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
    Attribute(
        name="Executable",
        field="executable",
        read=text,
        right="a program's name or path",
        plain=True,
    ),
    Attribute(
        name="Arguments",
        field="arguments",
        read=arguments,
        right='a text that is split as a shell does, or a list of texts, as in {"-n", "a b"}',
        plain=True,
    ),
    Attribute(name="JobName", field="name", read=name(), right=_A_NAME, plain=True),
    Attribute(
        name="StdInput",
        field="std_input",
        read=file_name(absolute=True),
        right="a file name without '..'",
        plain=True,
    ),
    Attribute(name="StdOutput", field="std_output", read=file_name("std.out"), right=_FILE, plain=True),
    Attribute(name="StdError", field="std_error", read=file_name("std.err"), right=_FILE, plain=True),
    Attribute(
        name="InputSandbox",
        field="input_sandbox",
        read=files(absolute=True),
        right="files without '..' in their paths, each with its own name",
    ),
    Attribute(
        name="OutputSandbox",
        field="output_sandbox",
        read=files(absolute=False),
        right="file names or patterns relative to the job's directory, without '..'",
    ),
    Attribute(
        name="Environment",
        field="environment",
        read=environment,
        right='a record, [ A = "b"; ], or a list, {"A=b"}',
        plain=True,
    ),
    # Whose it is and what it counts as.
    Attribute(name="JobType", field="job_type", read=name("User"), right=_A_NAME, key=True, plain=True),
    Attribute(
        name="Priority",
        field="user_priority",
        read=whole(0, 10),
        right="a whole number from 0 (background) to 10",
        aliases=("UserPriority",),
        key=True,
    ),
    Attribute(
        name="JobGroup",
        field="project",
        read=name(),
        right=_A_NAME,
        aliases=("Project",),
        key=True,
        plain=True,
    ),
    Attribute(name="JobClass", field="job_class", read=name(), right=_A_NAME, key=True, plain=True),
    Attribute(name="Variant", field="variant", read=name(), right=_A_NAME, key=True, plain=True),
    Attribute(name="OwnerGroup", field="group", read=name(), right="one of your groups", plain=True),
    Attribute(
        name="Owner",
        field="owner",
        read=_from_token,
        right=_NOTHING,
        aliases=("OwnerDN", "OwnerName"),
    ),
    Attribute(
        name="VO",
        field="vo",
        read=_from_token,
        right=_NOTHING,
        aliases=("VirtualOrganization", "VirtualOrganisation"),
    ),
    # Where it can run.
    Attribute(name="Site", field="sites", read=places("ANY"), right=_PLACES, aliases=("Sites",), key=True),
    Attribute(
        name="BannedSite",
        field="banned_sites",
        read=places(),
        right=_PLACES,
        aliases=("BannedSites",),
        key=True,
    ),
    Attribute(
        name="GridCE",
        field="grid_ces",
        read=places("ANY"),
        right=_PLACES,
        aliases=("GridCEs",),
        key=True,
    ),
    Attribute(
        name="Platform",
        field="platforms",
        read=names("ANY"),
        right=_NAMES,
        aliases=("Platforms",),
        key=True,
    ),
    Attribute(name="Tag", field="tags", read=names(), right=_NAMES, aliases=("Tags",), key=True),
    Attribute(
        name="PilotType",
        field="pilot_type",
        read=one_of("private"),
        right='"private", or leave it out',
        aliases=("PilotTypes",),
        key=True,
    ),
    Attribute(
        name="SubmitPool",
        field="submission_pools",
        read=_submission_pools,
        right="names of submission pools",
        aliases=("SubmitPools",),
        key=True,
    ),
    # How much it needs.
    Attribute(
        name="CPUTime",
        field="norm_cpu_seconds",
        read=whole(1, 10**9),
        right="whole seconds on the reference machine, from 1 to 1000000000",
        key=True,
    ),
    Attribute(
        name="NumberOfProcessors",
        field="cores",
        read=whole(1, 4096),
        right="a whole number of cores from 1 to 4096",
        key=True,
    ),
    Attribute(
        name="Memory",
        field="memory_mb",
        read=whole(0, 2**30),
        right="whole megabytes (2^20 bytes) from 0 to 1073741824",
        aliases=("MaxRAM",),
        key=True,
    ),
    Attribute(
        name="Requirements",
        field="requirements",
        read=requirements,
        right='a record of values, [ Memory = 4000; SoftwareTag = {"A", "B"}; ]; an expression is none',
        key=True,
    ),
    Attribute(
        name="WallTime",
        field="wall_seconds",
        read=whole(0, 10**9),
        right="whole seconds from 0 (no limit) to 1000000000",
        typed=True,
    ),
    Attribute(
        name="MaxOutput",
        field="max_output_mb",
        read=whole(0, 10**6),
        right="whole megabytes (2^20 bytes) from 0 (no limit) to 1000000",
        typed=True,
    ),
    Attribute(
        name="MaxAttempts",
        field="max_attempts",
        read=whole(1, 100),
        right="a whole number from 1 to 100, the same for all members",
    ),
    Attribute(name="Exclusive", field="exclusive", read=flag, right="true or false", typed=True),
)

PARAMETERS: Final = ("Parameters", "ParameterStart", "ParameterStep", "ParameterFactor")

# Every spelling, as listed and in lower case; parametric names are looked up elsewhere.
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
