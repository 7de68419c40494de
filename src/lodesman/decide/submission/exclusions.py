"""What stands between a job and each queue of its VO: for `never` and `lode why`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lodesman.base.errors import InvalidJob, counted
from lodesman.decide.masks.bits import Plane, near_misses, passing, refused
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import VOConfig
from lodesman.decide.resources import Requirement, compile_requirements
from lodesman.decide.resources.requirement import by_clause
from lodesman.decide.submission.job_changes import JobDemand, job_changes
from lodesman.languages.jobclass.classes import UsableClass, every_class
from lodesman.wire.nodes import QueuesExcluded
from lodesman.wire.why_jobs import JobChange, QueuesForJob

ATTRIBUTES: Final[Mapping[str, str]] = {
    "site": "Site",
    "platform": "Platform",
    "tag": "Tag",
    "submit_pool": "SubmitPool",
    "banned_site": "BannedSite",
    "ce": "GridCE",
    "job_type": "JobType",
    "job_class": "JobClass",
    "required_tag": "RequiredTag",
    "cores": "NumberOfProcessors",
    "memory": "Memory",
    "cpu_time": "CPUTime",
}  # criterion of the matcher -> the attribute (RequiredTag: the queue's parameter) that people know it by
REQUIREMENTS: Final = "Requirements"
_SUBMISSION_POOL: Final = "SubmitPool"  # of a description: the submission pools that may carry its pilots
FEW: Final = 3
_MOST_CHANGES: Final = 5
UNKNOWN: Final = "its Requirements are not known any more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions(JobDemand):
    """All queues of the VO against one key and its Requirements."""

    planes: tuple[Plane, ...]
    # by the number asked for
    _made: dict[int, list[JobChange]] = field(init=False, repr=False, compare=False, default_factory=dict)

    @property
    def full(self) -> int:
        """The queues that were asked."""
        return self.config.table.open_to_vo

    @property
    def total(self) -> int:
        """How many queues were asked."""
        return self.full.bit_count()

    @property
    def eligible(self) -> int:
        """Queues that nothing excludes."""
        return passing(self.planes, self.full)

    def counts(self) -> list[tuple[str, int]]:
        """Excluded queues by criterion; worst first."""
        return refused(self.planes)

    def job_changes(self, most: int = _MOST_CHANGES) -> list[JobChange]:
        """The smallest changes that make it run: fewest criteria over single queues, then most queues gained."""
        for number, changes in self._made.items():
            if number >= most:
                return changes[:most]
        misses = near_misses(self.planes, self.full & ~self.config.hopeless)
        made = self._made[most] = job_changes(self, misses, most=most)
        return made

    def not_carried(self, bit: int) -> list[str]:
        """What the job's submission pools have against a queue."""
        named = self.key.submission_pools
        if self.config.carried(named) >> bit & 1:
            return []
        configured = [name for name in named if name in (self.config.pools or ())]
        if configured:
            return [f"submission pool {' or '.join(configured)} does not serve it"]
        return [f"there is no submission pool {' or '.join(named)}"]

    def summary(self) -> QueuesForJob:
        """Queues asked and eligible, what excludes them, and the smallest changes if none is left."""
        eligible = self.eligible.bit_count()
        return QueuesForJob(
            total=self.total,
            eligible=eligible,
            ruled_out_by=[QueuesExcluded(criterion=name, queues=n) for name, n in self.counts()],
            nearest=[] if eligible else self.job_changes(),
        )


def find_exclusions(
    key: TaskQueueKey, requirements: tuple[Requirement, ...] | Mapping[str, Any] | None, config: VOConfig,
    usable: UsableClass = every_class,
) -> Exclusions:  # fmt: skip
    """Unreadable or unknown (None) Requirements rule out every queue; so does what keeps all pilots away
    (`VOConfig.without_pilots`).
    """
    full = config.table.open_to_vo
    place = replace(key, submit_pool="") if key.submit_pool else key
    planes = [(ATTRIBUTES[name], mask) for name, mask in config.places.lost(full, place)]
    criteria, unread = (requirements, {}) if isinstance(requirements, tuple) else _read(requirements, config)
    criteria = tuple(by_clause(criteria))
    planes += [
        (f"{REQUIREMENTS}.{criterion.parameter}", mask & full)
        for criterion, mask in zip(criteria, config.table.failing(criteria), strict=True)
    ]
    planes += [(name, full) for name in unread]
    planes += config.without_pilots(key)
    planes.append((_SUBMISSION_POOL, full & ~config.carried(key.submission_pools)))
    return Exclusions(
        key=key,
        criteria=criteria,
        unread=unread,
        config=config,
        usable=usable,
        planes=tuple(plane for plane in planes if plane[1]),
    )


def _read(
    requirements: Mapping[str, Any] | None, config: VOConfig
) -> tuple[tuple[Requirement, ...], Mapping[str, str]]:
    """The criteria; and by name, why one cannot be read."""
    if requirements is None:
        return (), {REQUIREMENTS: UNKNOWN}
    criteria: list[Requirement] = []
    unread: dict[str, str] = {}
    for name, value in requirements.items():
        try:
            criteria += compile_requirements({name: value}, config.table.types)
        except InvalidJob as fault:
            unread[f"{REQUIREMENTS}.{name}"] = fault.message.rstrip(".")
    return tuple(sorted(criteria, key=lambda criterion: criterion.folded)), unread


def never_text(exclusions: Exclusions) -> str:
    """Why no queue can run it, without a full stop; '' if one can."""
    if exclusions.eligible:
        return ""
    if not exclusions.total:
        return f"no queue is configured for VO {exclusions.config.vo}"
    lost = ", ".join(f"{name} excludes {n} of {exclusions.total}" for name, n in exclusions.counts()[:FEW])
    best = exclusions.job_changes(1)
    nearest = (
        f"; suggestion: {best[0].text} ({best[0].queues} of {counted(exclusions.total, 'queue')})"
        if best
        else ""
    )
    return f"no queue of VO {exclusions.config.vo} can run it: {lost}{nearest}"
