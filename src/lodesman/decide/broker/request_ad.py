"""What a pilot asks of a site, as a ClassAd: the TARGET of the site's Requirements, and MY of a submission pool's Rank.

Owner, Group, VO        as whom the pilot runs; a pilot for all groups runs as the pool's GenericPilotDN, GenericPilotGroup
JobOwner, JobGroup      for whose jobs it is sent, Project and JobClass of these, if they have any
PilotType               "private" or "generic"
JobType, UserPriority   of these jobs
Cpus, Memory, CPUTime   what one of them needs: cores, MB (2^20 bytes; 0: not said), normalised CPU seconds
Platforms, Tags         lists of texts, what they ask for
SubmissionPool          through which it comes
"""

from __future__ import annotations

from typing import Protocol

from lodesman.decide.matching.request import GENERIC
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.classad import Ad, Value
from lodesman.languages.classad.ads import ad_of


class RunsAs(Protocol):
    """The identity of pilots (`director.orders.PilotIdentity`)."""

    @property
    def private(self) -> bool:
        """Whether they serve one user or group."""

    @property
    def owner(self) -> str:
        """As whom they run."""

    @property
    def group(self) -> str:
        """In which group."""


def request_ad(key: TaskQueueKey, who: RunsAs, *, submission_pool: str) -> Ad:
    """The ad of pilots for a task queue."""
    values: dict[str, Value] = {
        "Owner": who.owner,
        "Group": who.group,
        "VO": key.vo,
        "JobOwner": key.owner,
        "JobGroup": key.group,
        "PilotType": "private" if who.private or key.pilot_type != GENERIC else "generic",
        "JobType": key.job_type,
        "UserPriority": key.user_priority,
        "Cpus": key.cores,
        "Memory": key.memory_mb,
        "CPUTime": key.norm_cpu_seconds,
        "Platforms": key.platforms,
        "Tags": key.tags,
        "SubmissionPool": submission_pool,
    }
    some = {"Project": key.project, "JobClass": key.job_class}
    return ad_of(values | {name: text for name, text in some.items() if text})
