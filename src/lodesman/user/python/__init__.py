"""The Python API: `from lodesman import Client`. Commands, descriptions and functions become jobs; results come back.

`client`, `asynchronous` and `executor` stand on `core` and on one `watcher` (docs/how-to/python.md, ADR 0071).
"""

from lodesman.user.python.asynchronous import AsyncClient
from lodesman.user.python.client import Client
from lodesman.user.python.core import JobFailed
from lodesman.user.python.executor import JobExecutor
from lodesman.user.python.jobs import Job, Jobs, SubmissionWarning
from lodesman.wire.vocabulary import JobState

__all__ = [
    "AsyncClient",
    "Client",
    "Job",
    "JobExecutor",
    "JobFailed",
    "JobState",
    "Jobs",
    "SubmissionWarning",
]
