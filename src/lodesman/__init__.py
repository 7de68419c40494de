"""Lodesman: a pilot-based workload manager."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
# The Python API, with the types of __init__.pyi.
_API = frozenset(
    {"AsyncClient", "Client", "Job", "JobExecutor", "JobFailed", "JobState", "Jobs", "SubmissionWarning"}
)


def __getattr__(name: str) -> Any:
    """The Python API is loaded when it is used: pilots and commands need none of it."""
    if name not in _API:
        raise AttributeError(f"module 'lodesman' has no attribute {name!r}")
    return getattr(import_module("lodesman.user.python"), name)


def __dir__() -> list[str]:
    return sorted({*_API, "__version__"})
