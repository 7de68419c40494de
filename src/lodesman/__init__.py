"""Lodesman: a pilot-based workload manager."""

from __future__ import annotations

__version__ = "0.1.0"
# The Python API, with the types of __init__.pyi.
_API = frozenset(
    {"AsyncClient", "Client", "Job", "JobExecutor", "JobFailed", "JobState", "Jobs", "SubmissionWarning"}
)


def __getattr__(name: str) -> object:
    """The Python API is loaded when it is used: pilots and commands need none of it. Nothing else is imported here: until
    the command line begins, Ctrl-C prints a traceback.
    """
    if name not in _API:
        raise AttributeError(f"module 'lodesman' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # it is slow, too

    return getattr(import_module("lodesman.user.python"), name)


def __dir__() -> list[str]:
    return sorted({*_API, "__version__"})
