"""Lodesman: a pilot-based workload manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lodesman.python import AsyncClient as AsyncClient
    from lodesman.python import Client as Client
    from lodesman.python import Job as Job
    from lodesman.python import JobExecutor as JobExecutor
    from lodesman.python import JobFailed as JobFailed
    from lodesman.python import Jobs as Jobs

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The Python API is loaded when it is used: pilots and commands need none of it."""
    if name not in {"AsyncClient", "Client", "Job", "JobExecutor", "JobFailed", "Jobs"}:
        raise AttributeError(f"module 'lodesman' has no attribute {name!r}")
    from lodesman import python  # noqa: PLC0415

    return getattr(python, name)
