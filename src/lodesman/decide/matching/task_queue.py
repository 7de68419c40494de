"""The key of a task queue: what decides where a job can run and whose it is."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from typing import Any

from lodesman.languages.classad import Ad, Value
from lodesman.languages.classad.ads import ad_of
from lodesman.languages.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class TaskQueueKey:
    """What a task queue's jobs share; tuples are sorted, without duplicates."""

    owner: str
    group: str
    vo: str
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
    force_generic: bool = False
    submission_pools: tuple[str, ...] = ()
    submit_pool: str = ""
    cores: int = 1
    memory_mb: int = 0
    norm_cpu_seconds: int = 86_400
    pe: str = ""
    consumables: tuple[str, ...] = ()
    expected_seconds: int = 0
    waits_for_jobs: bool = False  # none of them may start before others have ended
    at_most: int = 0  # how many jobs of the `submission` may be taken at once; 0: any number
    submission: int = 0  # 0 without `at_most`


@cache
def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((field.name, field.default) for field in fields(kind))


_SAID = [
    field_default
    for field_default in _defaults(TaskQueueKey)
    if field_default[0] in JobSpec.__struct_fields__
]
_OF_SPEC = tuple(name for name, default in _SAID if default != ())
_LISTS = tuple(name for name, default in _SAID if default == ())
_VALUES = attrgetter(*_OF_SPEC)


def key_of(spec: JobSpec, *, owner: str, group: str, vo: str, submit_pool: str = "") -> TaskQueueKey:
    """Owner, group and VO come from the token."""
    of_spec: dict[str, Any] = dict(zip(_OF_SPEC, _VALUES(spec), strict=True))
    for name in _LISTS:
        value = getattr(spec, name)
        if value:
            of_spec[name] = value if len(value) == 1 else tuple(sorted(set(value)))
    return TaskQueueKey(owner=owner, group=group, vo=vo, submit_pool=submit_pool, **of_spec)


def job_ad(key: TaskQueueKey) -> Ad:
    """What a job asks for, for sites and its own expression (docs/how-to/users.md, Expressions)."""
    values: dict[str, Value] = {
        "Owner": key.owner,
        "OwnerGroup": key.group,
        "VO": key.vo,
        "JobClass": key.job_class,
        "Variant": key.variant,
        "Project": key.project,
        "JobType": key.job_type,
        "UserPriority": key.user_priority,
        "RequestCpus": key.cores,
        "RequestMemory": key.memory_mb,
        "RequestCPUTime": key.norm_cpu_seconds,
        "RequestPlatform": key.platforms,
        "RequestTag": key.tags,
        "RequestSite": key.sites,
    }
    return ad_of(values)


def key_to_json(key: TaskQueueKey) -> str:
    """Canonical text. Defaults are left out, so a new field changes no stored key; a default never changes."""
    kind: Any = type(key)
    values = {name: value for name, default in _defaults(kind) if (value := getattr(key, name)) != default}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def key_from_json(text: str) -> TaskQueueKey:
    """Interns names. Raises ValueError if the text is no key."""
    try:
        values: dict[str, Any] = json.loads(text)
        return TaskQueueKey(**{name: _interned(value) for name, value in values.items()})
    except (TypeError, AttributeError, ValueError) as fault:
        raise ValueError(f"not a task-queue key: {text[:100]!r}") from fault


def _interned(value: Any) -> Any:
    if isinstance(value, str):
        return sys.intern(value)
    return value if isinstance(value, int) else tuple(map(sys.intern, value))
