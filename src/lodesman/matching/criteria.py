"""Who may run what: the criteria, each stated once and used four ways.

A criterion says what the task-queue key asks, what the resource offers, and the rule between the two. From these come the
reason for one pair (`why`, dry run), the tables of the index (task queues asked by a resource) and those of parked requests
(resources asked by a task queue).

Strict: a resource does not have what it does not declare. Only an explicit ANY is a wildcard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from lodesman.masks.table import AtLeast, AtMost, Column, HasAll, HasAny, HasNone, HasOnly, Values
from lodesman.matching import reasons
from lodesman.matching.reasons import Reason
from lodesman.matching.request import ANY, PRIVATE, ResourceRequest
from lodesman.matching.task_queue import TaskQueueKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A relation between what a key asks and what a resource offers.

    `holds` judges one pair; neither value is None (which always holds). `of_keys` makes a column whose members are keys,
    `of_requests` one whose members are resources.
    """

    holds: Callable[[Any, Any], bool]
    of_keys: Callable[[], Column]
    of_requests: Callable[[], Column]


def _overlap(wanted: Collection[str], offered: Values) -> bool:
    if len(offered) == 1:
        return offered[0] in wanted
    if len(wanted) == 1:  # one SubmitPool, of which a queue may serve hundreds
        (value,) = wanted
        return value in offered
    return any(value in wanted for value in offered)


def _disjoint(wanted: Collection[str], offered: Values) -> bool:
    return not wanted or not _overlap(wanted, offered)


def _within(wanted: Collection[str], offered: Values) -> bool:
    return not wanted or all(value in offered for value in wanted)


def _contains(wanted: Collection[str], offered: Values) -> bool:
    return not offered or all(value in wanted for value in offered)


def _at_most(wanted: int, offered: int) -> bool:
    return wanted <= offered


OVERLAP: Final = Rule(holds=_overlap, of_keys=HasAny, of_requests=HasAny)
DISJOINT: Final = Rule(holds=_disjoint, of_keys=HasNone, of_requests=HasNone)
WITHIN: Final = Rule(holds=_within, of_keys=HasOnly, of_requests=HasAll)
CONTAINS: Final = Rule(holds=_contains, of_keys=HasAll, of_requests=HasOnly)
AT_MOST: Final = Rule(holds=_at_most, of_keys=AtMost, of_requests=AtLeast)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One condition. Values are tuples (None: anything goes) or, for AT_MOST, integers of 0 or more."""

    name: str
    rule: Rule
    of_key: Callable[[TaskQueueKey], Any]
    of_request: Callable[[ResourceRequest], Any]
    unfit: Callable[[TaskQueueKey, ResourceRequest], Reason]

    def reason(self, key: TaskQueueKey, request: ResourceRequest) -> Reason | None:
        """Why this pair does not fit, None if it does."""
        wanted = self.of_key(key)
        offered = self.of_request(request)
        if wanted is None or offered is None or self.rule.holds(wanted, offered):
            return None
        return self.unfit(key, request)


def _asked(values: Values) -> Values | None:
    """What a key lists; an empty list asks for nothing."""
    return values or None


def _one(value: str) -> Values:
    """What a resource declares of one attribute; "" is not declared."""
    return (value,) if value else ()


def _one_or_any(value: str) -> Values | None:
    return None if value == ANY else _one(value)


def _many_or_any(values: Values | None) -> Values | None:
    return None if values is None or ANY in values else values


def _groups(request: ResourceRequest) -> Values | None:
    if request.groups is None and request.pilot_type == PRIVATE:
        return ()
    return request.groups


def _banned_for(request: ResourceRequest) -> Values:
    return () if request.site == ANY else _one(request.site)


def _platform_reason(key: TaskQueueKey, request: ResourceRequest) -> Reason:
    if not request.platforms:
        return reasons.PlatformMissing(wanted=key.platforms)
    return reasons.PlatformUnfit(wanted=key.platforms, offered=request.platforms)


def _tag_reason(key: TaskQueueKey, request: ResourceRequest) -> Reason:
    return reasons.TagMissing(missing=tuple(tag for tag in key.tags if tag not in request.tags))


def _required_tag_reason(key: TaskQueueKey, request: ResourceRequest) -> Reason:
    return reasons.RequiredTagMissing(
        missing=tuple(tag for tag in request.required_tags if tag not in key.tags)
    )


# Whose the job is. The index keeps the task queues of each VO and group apart: it needs no masks for these.
WHOSE: Final = (
    Criterion(
        name="vo",
        rule=OVERLAP,
        of_key=lambda k: (k.vo,),
        of_request=lambda r: (r.vo,),
        unfit=lambda k, r: reasons.WrongVO(wanted=k.vo, offered=r.vo),
    ),
    Criterion(
        name="group",
        rule=OVERLAP,
        of_key=lambda k: (k.group,),
        of_request=_groups,
        unfit=lambda k, r: reasons.WrongGroup(wanted=k.group, offered=r.groups or ()),
    ),
)

# What a resource is for as long as it lives; what refuses most comes first.
WHERE: Final = (
    Criterion(
        name="site",
        rule=OVERLAP,
        of_key=lambda k: _asked(k.sites),
        of_request=lambda r: _one_or_any(r.site),
        unfit=lambda k, r: reasons.SiteNotListed(wanted=k.sites, offered=r.site),
    ),
    Criterion(
        name="platform",
        rule=OVERLAP,
        of_key=lambda k: _asked(k.platforms),
        of_request=lambda r: _many_or_any(r.platforms),
        unfit=_platform_reason,
    ),
    Criterion(
        name="tag",
        rule=WITHIN,
        of_key=lambda k: k.tags,
        of_request=lambda r: _many_or_any(r.tags),
        unfit=_tag_reason,
    ),
    Criterion(
        name="submit_pool",
        rule=OVERLAP,
        of_key=lambda k: _asked(_one(k.submit_pool)),
        of_request=lambda r: r.submit_pools,
        unfit=lambda k, _: reasons.SubmitPoolNotServed(pool=k.submit_pool),
    ),
    Criterion(
        name="banned_site",
        rule=DISJOINT,
        of_key=lambda k: k.banned_sites,
        of_request=_banned_for,
        unfit=lambda _, r: reasons.SiteBanned(site=r.site),
    ),
    Criterion(
        name="ce",
        rule=OVERLAP,
        of_key=lambda k: _asked(k.grid_ces),
        of_request=lambda r: _one_or_any(r.ce),
        unfit=lambda k, r: reasons.CENotListed(wanted=k.grid_ces, offered=r.ce),
    ),
    Criterion(
        name="owner",
        rule=OVERLAP,
        of_key=lambda k: (k.owner,),
        of_request=lambda r: _asked(_one(r.owner)),
        unfit=lambda k, r: reasons.WrongOwner(wanted=k.owner, offered=r.owner),
    ),
    Criterion(
        name="pilot_type",
        rule=OVERLAP,
        of_key=lambda k: _asked(_one(k.pilot_type)),
        of_request=lambda r: _one(r.pilot_type),
        unfit=lambda k, r: reasons.PilotTypePrivate(wanted=k.pilot_type, offered=r.pilot_type),
    ),
    Criterion(
        name="submission_pool",
        rule=OVERLAP,
        of_key=lambda k: _asked(k.submission_pools),
        of_request=lambda r: _one(r.submission_pool),
        unfit=lambda k, r: reasons.SubmissionPoolMismatch(
            wanted=k.submission_pools, offered=r.submission_pool
        ),
    ),
    Criterion(
        name="job_type",
        rule=OVERLAP,
        of_key=lambda k: (k.job_type,),
        of_request=lambda r: _many_or_any(r.job_types),
        unfit=lambda k, r: reasons.JobTypeNotOffered(wanted=k.job_type, offered=r.job_types or ()),
    ),
    Criterion(
        name="required_tag",
        rule=CONTAINS,
        of_key=lambda k: k.tags,
        of_request=lambda r: r.required_tags,
        unfit=_required_tag_reason,
    ),
)

# How much of it is left now; asked anew at each claim.
HOW_MUCH: Final = (
    Criterion(
        name="cores",
        rule=AT_MOST,
        of_key=attrgetter("cores"),
        of_request=attrgetter("cores"),
        unfit=lambda k, r: reasons.TooFewCores(wanted=k.cores, offered=r.cores),
    ),
    Criterion(
        name="memory",
        rule=AT_MOST,
        of_key=attrgetter("memory_mb"),
        of_request=attrgetter("memory_mb"),
        unfit=lambda k, r: reasons.TooLittleMemory(wanted=k.memory_mb, offered=r.memory_mb),
    ),
    Criterion(
        name="cpu_time",
        rule=AT_MOST,
        of_key=attrgetter("norm_cpu_seconds"),
        of_request=attrgetter("norm_cpu_seconds"),
        unfit=lambda k, r: reasons.TooLittleCPUTime(wanted=k.norm_cpu_seconds, offered=r.norm_cpu_seconds),
    ),
)

CRITERIA: Final[tuple[Criterion, ...]] = (*WHOSE, *WHERE, *HOW_MUCH)


def explain(key: TaskQueueKey, request: ResourceRequest) -> tuple[Reason, ...]:
    """Every reason why the resource may not run jobs of the task queue; () if it may."""
    found = (criterion.reason(key, request) for criterion in CRITERIA)
    return tuple(reason for reason in found if reason is not None)


def fits(key: TaskQueueKey, request: ResourceRequest) -> bool:
    """True if `explain` would find nothing; stops at the first reason."""
    return not any(criterion.reason(key, request) for criterion in CRITERIA)


def wanted_of(key: TaskQueueKey, criteria: Sequence[Criterion] = CRITERIA) -> tuple[Any, ...]:
    """What a key asks, by criterion."""
    return tuple([criterion.of_key(key) for criterion in criteria])


def offered_of(request: ResourceRequest, criteria: Sequence[Criterion] = CRITERIA) -> tuple[Any, ...]:
    """What a resource offers, by criterion."""
    return tuple([criterion.of_request(request) for criterion in criteria])
