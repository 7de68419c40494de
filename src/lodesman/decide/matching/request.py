"""What a pilot asks with: its resource, in the words of the task-queue key."""

from __future__ import annotations

from dataclasses import dataclass, field

ANY = "ANY"
GENERIC = ""
PRIVATE = "private"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """A resource that asks for work. What it does not present it does not have; only ANY is a wildcard."""

    vo: str
    groups: tuple[str, ...] | None = None  # None: every group of the VO; a private pilot has exactly one
    owner: str = ""  # of a private pilot; empty when its group shares jobs
    pilot_type: str = GENERIC
    site: str = ""
    ce: str = ""
    queue: str = ""
    platforms: tuple[str, ...] = ()  # all that its nodes can run jobs for
    tags: tuple[str, ...] = ()
    required_tags: tuple[str, ...] = ()
    job_types: tuple[str, ...] | None = None
    # what the jc_list names, sorted; None: jobs of every class and of none
    job_classes: tuple[str, ...] | None = None
    submit_pools: tuple[str, ...] = ()  # the RFC #7 pools that the queue serves
    # stands for `submit_pools`: equal versions are equal pools
    pools_version: int | None = field(default=None, compare=False)
    submission_pool: str = ""  # the director's pool through which the pilot came
    cores: int = 1
    memory_mb: int = 0
    norm_cpu_seconds: int = 0  # what is left of the pilot's life, normalised
