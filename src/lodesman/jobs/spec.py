"""JobSpec: one job as the rest of the program sees it, whatever language it was written in.

A `Record` is a description as read: attribute name -> value, order and spelling kept. `JobSpec` is
the checked, typed form. Attributes that the program does not know are kept in `extra`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

# Values are text, numbers, truth values, lists of values and nested records.
Record = dict[str, Any]


class JobSpec(Struct, frozen=True, kw_only=True):
    """One job, checked. Sizes: `memory_mb` in 2^20 bytes, times in seconds.

    `norm_cpu_seconds` is CPU time on the reference machine for all cores together. (A Struct: a batch makes
    thousands of these, and a frozen dataclass of thirty fields costs as much as reading its description.)
    """

    executable: str
    arguments: tuple[str, ...] = ()
    name: str = ""
    std_input: str = ""
    std_output: str = "std.out"
    std_error: str = "std.err"
    input_sandbox: tuple[str, ...] = ()
    output_sandbox: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}

    # What decides the task queue, with owner, group and VO, which come from the token.
    job_class: str = ""
    variant: str = ""
    project: str = ""
    job_type: str = "User"
    user_priority: int = 1
    sites: tuple[str, ...] = ()
    banned_sites: tuple[str, ...] = ()
    grid_ces: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pilot_type: str = ""
    submission_pools: tuple[str, ...] = ()
    cores: int = 1
    memory_mb: int = 0
    norm_cpu_seconds: int = 86_400
    requirements: Mapping[str, Any] = {}

    # Limits and habits of the payload that do not decide where it can run.
    wall_seconds: int = 0
    max_output_mb: int = 0
    max_attempts: int = 3
    exclusive: bool = False

    extra: Mapping[str, Any] = {}

    # Of a parametric template only: attribute name -> value as written, with placeholders that a typed field
    # cannot hold (`CPUTime = "%(cpu)s"`). The field keeps its default until `expand` or `cohorts` fills it.
    deferred: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something odd in a description that does not stop the job."""

    attribute: str
    message: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A whole description: the template and, if parametric, its members.

    `record` is what was read (for lossless conversion), `spec` the template with placeholders still in
    place, `members` None for a single job. `group` is the group asked for (`OwnerGroup`), empty if none:
    a request, which the token may refuse.
    """

    record: Record
    spec: JobSpec
    members: ParametricMembers | None = None
    warnings: Sequence[Notice] = ()
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParametricMembers:
    """The members of a parametric description, not expanded (DIRAC `Parameters*`).

    count: how many. Either `start`, `step` and `factor` give the value of member k by
    v0 = start, v(k+1) = v(k) * factor + step, or `values` lists them. `named` maps each named sequence
    to its own values (a list) or its own (start, step, factor). `unnamed` is False if there is no plain
    `Parameters`: then `%s` has no meaning and stays as it is.
    """

    count: int
    start: float | int = 1
    step: float | int = 0
    factor: float | int = 1
    values: tuple[Any, ...] | None = None
    named: Mapping[str, NamedSequence] = field(default_factory=dict)
    unnamed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSequence:
    """One named parameter `Parameters.X`: listed values, or start, step and factor."""

    values: tuple[Any, ...] | None = None
    start: float | int = 1
    step: float | int = 0
    factor: float | int = 1
