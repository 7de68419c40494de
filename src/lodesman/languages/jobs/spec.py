"""JobSpec, one job for the rest of the program; how it is stored; and the moves between states of a job.

The states are those of DIRAC's table that exist here (ADR 0026).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobs.record import Record
from lodesman.wire.jobs import Notice
from lodesman.wire.vocabulary import JobState

Scalar = str | int | float | bool


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One checked job. A struct: a frozen dataclass of thirty fields costs as much as reading its description."""

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
    stations: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    pilot_type: str = ""
    force_generic: bool = False
    submission_pools: tuple[str, ...] = ()
    cores: int = 1
    memory_mb: int = 0  # MB of 2^20 bytes.
    norm_cpu_seconds: int = 86_400  # On the reference machine, for all cores together.
    requirements: Mapping[str, Scalar | tuple[Scalar, ...]] = {}
    pe: str = ""
    consumables: tuple[str, ...] = ()
    expected_seconds: int = 0

    # Limits and settings of the payload that do not decide where it can run.
    wall_seconds: int = 0
    max_output_mb: int = 0
    max_attempts: int = 3
    retry_on: tuple[str, ...] = ()
    retry_memory_factor: float = 1.0
    after: tuple[str, ...] = ()
    after_ok: tuple[str, ...] = ()
    on_parent_failure: str = "hold"
    at_most: int = 0
    exclusive: bool = False
    vacate_priority: int = 0

    extra: Mapping[str, Any] = {}  # Unknown attributes.

    # Of a parametric template only: attribute name -> value as written, with placeholders that a typed field
    # cannot hold (`CPUTime = "%(cpu)s"`). The field keeps its default until `expand` or `cohorts` fills it.
    deferred: Mapping[str, Any] = {}


class ValueSequence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A list, or v0 = `start`, v(k+1) = v(k) * `factor` + `step`."""

    values: tuple[Any, ...] | None = None
    start: float | int = 1
    step: float | int = 0
    factor: float | int = 1


class ParametricMembers(ValueSequence, frozen=True, kw_only=True, omit_defaults=True):
    """The values of `Parameters`, not expanded. Its JSON is stored."""

    count: int
    named: Mapping[str, ValueSequence] = {}  # The values of each `Parameters.X`.
    unnamed: bool = True  # False: without a plain `Parameters` `%s` stays as it is.


class Description(Struct, frozen=True, kw_only=True):
    """A whole description."""

    record: Record  # What was read, for lossless conversion.
    spec: JobSpec  # The template; placeholders are not filled.
    members: ParametricMembers | None = None  # None for a single job.
    warnings: Sequence[Notice] = ()
    group: str = ""  # The group asked for (`OwnerGroup`), '' if none; the token may refuse it.
    owner: str = ""  # Whom it says that it is for, '' if it does not say; the token decides. `vo` likewise.
    vo: str = ""


_EMPTY = JobSpec(executable="")
_DEFAULTS = tuple((name, getattr(_EMPTY, name)) for name in JobSpec.__struct_fields__)


def spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Without default values."""
    return {name: value for name, default in _DEFAULTS if (value := getattr(spec, name)) != default}


def spec_from_json(values: Mapping[str, Any]) -> JobSpec:
    """Inverse of `spec_to_json`. Raises InvalidRequest."""
    try:
        return msgspec.convert(values, JobSpec)
    except msgspec.ValidationError:
        raise InvalidRequest("These values are not a stored job.") from None


_S = JobState

# One more move is made: to Done, when a lost attempt turns out to have succeeded (`commands.report`).
_MOVES: Mapping[JobState, frozenset[JobState]] = MappingProxyType(
    {
        _S.HELD: frozenset({_S.WAITING, _S.KILLED, _S.DELETED}),
        _S.WAITING: frozenset({_S.MATCHED, _S.HELD, _S.DELETED, _S.KILLED}),
        _S.MATCHED: frozenset({_S.RUNNING, _S.WAITING, _S.DONE, _S.FAILED, _S.KILLED}),
        _S.RUNNING: frozenset({_S.STALLED, _S.COMPLETING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.STALLED: frozenset({_S.RUNNING, _S.COMPLETING, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.COMPLETING: frozenset({_S.STALLED, _S.DONE, _S.FAILED, _S.KILLED, _S.WAITING}),
        _S.DONE: frozenset({_S.DELETED}),
        _S.FAILED: frozenset({_S.WAITING, _S.DELETED}),
        _S.KILLED: frozenset({_S.WAITING, _S.DELETED}),
        _S.DELETED: frozenset(),
    }
)

TERMINAL = frozenset({_S.DONE, _S.FAILED, _S.KILLED, _S.DELETED})
# A pilot has it: there is a live attempt.
ACTIVE = frozenset({_S.MATCHED, _S.RUNNING, _S.STALLED, _S.COMPLETING})
# States of jobs that no pilot has.
IDLE = frozenset(_S) - TERMINAL - ACTIVE


def may_move(old: JobState, new: JobState) -> bool:
    """Whether the table has the move; no state moves to itself."""
    return new in _MOVES[old]
