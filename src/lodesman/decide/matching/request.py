"""What a pilot asks with: the resource it woke up on, in the words of the task-queue key.

What the resource does not present it does not have. Only the explicit value ANY is a wildcard.
"""

from __future__ import annotations

from dataclasses import dataclass, field

ANY = "ANY"
GENERIC = ""
PRIVATE = "private"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """One resource asking for work. `groups` None means every group of the VO.

    A private pilot carries `owner` (empty when its group shares jobs) and exactly one group.
    `job_classes`: what the jc_list there names, sorted as it offers it; None: jobs of every class and of none.
    `platforms` are all that its nodes can run jobs for. `submit_pools` are the RFC #7 pools that the queue serves,
    `pools_version` stands for them (equal ones are equal pools);
    `submission_pool` is the director's pool through which the pilot came. `norm_cpu_seconds` is what is left of the
    pilot's life, normalised.
    """

    vo: str
    groups: tuple[str, ...] | None = None
    owner: str = ""
    pilot_type: str = GENERIC
    site: str = ""
    ce: str = ""
    queue: str = ""
    platforms: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    job_types: tuple[str, ...] | None = None
    job_classes: tuple[str, ...] | None = None
    submit_pools: tuple[str, ...] = ()
    pools_version: int | None = field(default=None, compare=False)
    submission_pool: str = ""
    cores: int = 1
    memory_mb: int = 0
    norm_cpu_seconds: int = 0
