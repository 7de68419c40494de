"""The nine keys that a job publishes, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

KEYS = (
    "used_CPU",
    "last_job_start",
    "first_exp_job_end",
    "last_exp_job_end",
    "last_max_job_end",
    "add_uncom_time",
    "add_final_exp_waste",
    "can_postpone_last_job",
    "priority_factor",
)
"""The names of the files (requirements 3.1 to 3.9 of the seed), in its order."""


@dataclass(frozen=True)
class Status:
    """What one job publishes, a field for each of KEYS in their order. None: not published, which is never zero.

    used_cpu: cores that payloads use. last_job_start, first_exp_job_end, last_exp_job_end, last_max_job_end: UNIX seconds
    (last start or commit; earliest and latest expected end; latest enforced end). add_uncom_time, add_final_exp_waste:
    core-seconds of the allocation (decision 6). can_postpone_last_job: whether payloads may still start.
    """

    used_cpu: int | None = None
    last_job_start: int | None = None
    first_exp_job_end: int | None = None
    last_exp_job_end: int | None = None
    last_max_job_end: int | None = None
    add_uncom_time: int | None = None
    add_final_exp_waste: int | None = None
    can_postpone_last_job: bool | None = None
    priority_factor: int | None = None
