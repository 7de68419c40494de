"""Run by a Python that has hyperqueue: no-op tasks in one job, on the server and the workers of its own wheel.

`hq_tasks.py JOBS WORKERS CORES COMMAND...` in an empty folder prints JSON: seconds from the submission to the end
of the last task, and the CPU seconds of its process (server and workers) and of the tasks. Its own wait looks once a second,
so a last task of the lowest priority opens a pipe.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import time
from pathlib import Path

from hyperqueue.cluster import LocalCluster, WorkerConfig
from hyperqueue.job import Job

PIPE = Path("ended.pipe").absolute()


def _tasks(count: int, command: list[str]) -> Job:
    job = Job(max_fails=0)
    for _ in range(count):
        job.program(command, stdout=None, stderr=None)
    job.program(["/bin/sh", "-c", f"echo > {PIPE}"], stdout=None, stderr=None, priority=-10)
    return job


def _cpu() -> tuple[float, float]:
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, tasks = (one.ru_utime + one.ru_stime for one in found)
    return own, tasks


def main() -> None:
    jobs, workers, cores = map(int, sys.argv[1:4])
    os.mkfifo(PIPE)
    with contextlib.redirect_stderr(io.StringIO()), LocalCluster(str(Path.cwd())) as cluster:
        for _ in range(workers):
            cluster.start_worker(WorkerConfig(cores=cores))
        client = cluster.client()
        for count in (50 * workers, jobs):  # the first warms it up
            job = _tasks(count, sys.argv[4:])
            before, begun = _cpu(), time.perf_counter()
            client.submit(job)
            PIPE.read_bytes()
            seconds, after = time.perf_counter() - begun, _cpu()
        own, tasks = (end - start for end, start in zip(after, before, strict=True))
        print(json.dumps({"seconds": seconds, "own_cpu": own, "tasks_cpu": tasks}), flush=True)
        os._exit(0)  # its own end takes seconds


if __name__ == "__main__":
    main()
