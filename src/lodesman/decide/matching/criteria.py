"""Who may run what: each criterion once, for reasons and for tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter, le
from typing import Any, Final, NamedTuple

from msgspec import Struct

from lodesman.decide.masks.table import AtLeast, AtMost, HasAll, HasAny, HasNone, HasOnly, MaskColumn, Values
from lodesman.decide.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.decide.resources.settings import processor_tags
from lodesman.languages.gridengine.jclist import ANY_JC, NO_JC

_SHOWN: Final = 5


class Reason(NamedTuple):
    """Why a task queue and a resource do not fit."""

    criterion: str
    text: str  # a sentence for people with both values

    def __str__(self) -> str:
        return self.text


class _Relation(Struct, frozen=True, kw_only=True):
    """Between what a key asks and a resource offers; None on either side always holds."""

    holds: Callable[[Any, Any], bool]
    of_keys: Callable[[], MaskColumn]  # a column whose members are keys
    of_requests: Callable[[], MaskColumn]  # a column whose members are resources


def _overlap(values: Collection[str], offered: Values) -> bool:
    if len(offered) == 1:
        return offered[0] in values
    if len(values) == 1:  # one SubmitPool, of which a queue may serve hundreds
        (value,) = values
        return value in offered
    return any(value in values for value in offered)


def _disjoint(values: Collection[str], offered: Values) -> bool:
    return not values or not _overlap(values, offered)


def _within(values: Collection[str], offered: Values) -> bool:
    return not values or all(value in offered for value in values)


def _contains(values: Collection[str], offered: Values) -> bool:
    return not offered or all(value in values for value in offered)


OVERLAP: Final = _Relation(holds=_overlap, of_keys=HasAny, of_requests=HasAny)
DISJOINT: Final = _Relation(holds=_disjoint, of_keys=HasNone, of_requests=HasNone)
WITHIN: Final = _Relation(holds=_within, of_keys=HasOnly, of_requests=HasAll)
CONTAINS: Final = _Relation(holds=_contains, of_keys=HasAll, of_requests=HasOnly)
AT_MOST: Final = _Relation(holds=le, of_keys=AtMost, of_requests=AtLeast)


class MatchCriterion(Struct, frozen=True, kw_only=True):
    """One condition. Values are tuples (None: anything goes) or, for AT_MOST, integers of 0 or more."""

    name: str
    relation: _Relation = OVERLAP
    of_key: Callable[[TaskQueueKey], Any]
    of_request: Callable[[ResourceRequest], Any]
    sentence: Callable[[TaskQueueKey, ResourceRequest], str]

    def holds(self, key: TaskQueueKey, request: ResourceRequest) -> bool:
        """Whether this pair passes."""
        values = self.of_key(key)
        offered = self.of_request(request)
        return values is None or offered is None or self.relation.holds(values, offered)


def _one(value: str) -> Values:
    return (value,) if value else ()


def _one_or_any(value: str) -> Values | None:
    return None if value == ANY else _one(value)


def _many_or_any(values: Values | None) -> Values | None:
    return None if values is None or ANY in values else values


def _groups(request: ResourceRequest) -> Values | None:
    if request.groups is None and request.pilot_type == PRIVATE:
        return ()
    return request.groups


def _platform_text(key: TaskQueueKey, request: ResourceRequest) -> str:
    text = f"the job needs platform {_some(key.platforms)}"
    if not request.platforms:
        return f"{text} and the resource declares none"
    return f"{text}, the resource has {_some(request.platforms)}"


def _memory_text(key: TaskQueueKey, request: ResourceRequest) -> str:
    has = f"has {request.memory_mb}" if request.memory_mb else "declares none"
    return f"the job needs {key.memory_mb} MB of memory, the resource {has}"


def _some(values: Sequence[str] | None) -> str:
    if not values:
        return "nothing"
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(values[:_SHOWN]) + more


def _classes_of(key: TaskQueueKey) -> Values:
    if not key.job_class:
        return (NO_JC,)
    return (ANY_JC, key.job_class, f"{key.job_class}.{key.variant}")


def entering(name: str) -> tuple[str, str]:
    """The class and variant of a key that this name in a jc_list lets in."""
    job_class, _, variant = name.partition(".")
    return ("", "") if name == NO_JC else (job_class, variant)


def _class_text(key: TaskQueueKey, request: ResourceRequest) -> str:
    jobs = f"jobs of class {key.job_class}.{key.variant}" if key.job_class else "jobs without a class"
    if not request.job_classes:
        return f"jc_list of the queue is empty or ambiguous here: it takes no {jobs}"
    return f"jc_list of the queue has {_some(request.job_classes)}: it takes no {jobs}"


def _tags_of(key: TaskQueueKey) -> Values:
    added = processor_tags(key.cores)
    return key.tags if not added else tuple(dict.fromkeys((*key.tags, *added)))


def _lacking(values: Values, offered: Values) -> list[str]:
    return [value for value in values if value not in offered]


# Whose the job is. The index keeps the task queues of each VO and group apart: it needs no masks for these.
WHOSE: Final = (
    MatchCriterion(
        name="vo",
        of_key=lambda k: (k.vo,),
        of_request=lambda r: (r.vo,),
        sentence=lambda k, r: f"the resource serves VO {r.vo}, not {k.vo}",
    ),
    MatchCriterion(
        name="group",
        of_key=lambda k: (k.group,),
        of_request=_groups,
        sentence=lambda k, r: f"the resource takes jobs of {_some(r.groups)}, not of group {k.group}",
    ),
)

# What a resource is for as long as it lives; what refuses most comes first.
WHERE: Final = (
    MatchCriterion(
        name="job_class",
        of_key=_classes_of,
        of_request=lambda r: r.job_classes,
        sentence=_class_text,
    ),
    MatchCriterion(
        name="site",
        of_key=lambda k: k.sites or None,
        of_request=lambda r: _one_or_any(r.site),
        sentence=lambda k, r: f"the job runs only at {_some(k.sites)}, not at {r.site or 'an unnamed site'}",
    ),
    MatchCriterion(
        name="platform",
        of_key=lambda k: k.platforms or None,
        of_request=lambda r: _many_or_any(r.platforms),
        sentence=_platform_text,
    ),
    MatchCriterion(
        name="tag",
        relation=WITHIN,
        of_key=lambda k: k.tags,
        of_request=lambda r: _many_or_any(r.tags),
        sentence=lambda k, r: f"the resource lacks tag {_some(_lacking(k.tags, r.tags))}",
    ),
    MatchCriterion(
        name="submit_pool",
        of_key=lambda k: _one(k.submit_pool) or None,
        of_request=lambda r: r.submit_pools,
        sentence=lambda k, _: (
            f"the queue does not meet the job's Requirements (SubmitPool {k.submit_pool[:12]})"
        ),
    ),
    MatchCriterion(
        name="banned_site",
        relation=DISJOINT,
        of_key=lambda k: k.banned_sites,
        of_request=lambda r: () if r.site == ANY else _one(r.site),
        sentence=lambda _, r: f"the job bans site {r.site}",
    ),
    MatchCriterion(
        name="ce",
        of_key=lambda k: k.grid_ces or None,
        of_request=lambda r: _one_or_any(r.ce),
        sentence=lambda k, r: (
            f"the job runs only on CE {_some(k.grid_ces)}, not on {r.ce or 'an unnamed CE'}"
        ),
    ),
    MatchCriterion(
        name="owner",
        of_key=lambda k: (k.owner,),
        of_request=lambda r: _one(r.owner) or None,
        sentence=lambda k, r: f"the pilot runs only jobs of {r.owner}, not of {k.owner}",
    ),
    MatchCriterion(
        name="pilot_type",
        of_key=lambda k: _one(k.pilot_type) or None,
        of_request=lambda r: _one(r.pilot_type),
        sentence=lambda k, r: (
            f"the job needs a {k.pilot_type} pilot, this one is {r.pilot_type or 'generic'}"
        ),
    ),
    MatchCriterion(
        name="submission_pool",
        of_key=lambda k: k.submission_pools or None,
        of_request=lambda r: _one(r.submission_pool),
        sentence=lambda k, r: (
            f"the job wants a pilot of submission pool {_some(k.submission_pools)}, "
            f"this one came through {r.submission_pool or 'none'}"
        ),
    ),
    MatchCriterion(
        name="job_type",
        of_key=lambda k: (k.job_type,),
        of_request=lambda r: _many_or_any(r.job_types),
        sentence=lambda k, r: f"the resource takes jobs of type {_some(r.job_types)}, not {k.job_type}",
    ),
    MatchCriterion(
        name="required_tag",
        relation=CONTAINS,
        of_key=_tags_of,
        of_request=lambda r: r.required_tags,
        sentence=lambda k, r: (
            f"the resource takes only jobs with tag {_some(_lacking(r.required_tags, _tags_of(k)))}"
        ),
    ),
)

# How much of it is left now; asked anew at each claim.
HOW_MUCH: Final = (
    MatchCriterion(
        name="cores",
        relation=AT_MOST,
        of_key=attrgetter("cores"),
        of_request=attrgetter("cores"),
        sentence=lambda k, r: f"the job needs {k.cores} cores, the resource has {r.cores}",
    ),
    MatchCriterion(
        name="memory",
        relation=AT_MOST,
        of_key=attrgetter("memory_mb"),
        of_request=attrgetter("memory_mb"),
        sentence=_memory_text,
    ),
    MatchCriterion(
        name="cpu_time",
        relation=AT_MOST,
        of_key=attrgetter("norm_cpu_seconds"),
        of_request=attrgetter("norm_cpu_seconds"),
        sentence=lambda k, r: (
            f"the job needs {k.norm_cpu_seconds} s of normalised CPU time, "
            f"the resource has {r.norm_cpu_seconds}"
        ),
    ),
)

CRITERIA: Final[tuple[MatchCriterion, ...]] = (*WHOSE, *WHERE, *HOW_MUCH)


def explain(key: TaskQueueKey, request: ResourceRequest) -> tuple[Reason, ...]:
    """All reasons why the resource may not run the task queue's jobs."""
    return tuple(
        Reason(criterion.name, criterion.sentence(key, request))
        for criterion in CRITERIA
        if not criterion.holds(key, request)
    )


def wanted_of(key: TaskQueueKey, criteria: Sequence[MatchCriterion] = CRITERIA) -> tuple[Any, ...]:
    """A key's questions, by criterion."""
    return tuple([criterion.of_key(key) for criterion in criteria])


def offered_of(request: ResourceRequest, criteria: Sequence[MatchCriterion] = CRITERIA) -> tuple[Any, ...]:
    """A resource's offers, by criterion."""
    return tuple([criterion.of_request(request) for criterion in criteria])
