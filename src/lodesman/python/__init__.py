"""The Python API: `from lodesman import Client`. Commands, descriptions and functions become jobs; results come back.

`client` has one core, which `asynchronous` and `executor` stand on: typed calls, and a `watcher` that waits for all jobs
in one request (docs/how-to/python.md, ADR 0071).
"""

from lodesman.python.asynchronous import AsyncClient
from lodesman.python.client import Client
from lodesman.python.executor import JobExecutor
from lodesman.python.jobs import Job, JobFailed, Jobs

__all__ = ["AsyncClient", "Client", "Job", "JobExecutor", "JobFailed", "Jobs"]
