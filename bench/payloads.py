"""A server with real pilots on this machine: arrays run to their end, with the CPU time that each process took."""

from __future__ import annotations

import heapq
import json
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.context import Context
from bench.generator import Connection, LoadFault, encode
from bench.machine import children, process_cpu
from bench.server import Server

PATIENCE_SECONDS: Final = 3_600.0
PILOTS_SECONDS: Final = 120.0
PROCESSES: Final = ("hot", "background", "pilot", "children")
CONFIGURATION: Final = """
[site.here]
VO = ["bench"]
[site.here.ce.ce]
Backend = "local"
[site.here.ce.ce.queue.default]
Slots = {pilots}
NumberOfProcessors = {cores}
MaxWaitingJobs = {pilots}
MaxTotalJobs = {pilots}
CPUTime = "10 d"
[group.users]
vo = "bench"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Pilots of this machine, and the slots of each."""

    pilots: int = 1
    slots: int = 2

    def __str__(self) -> str:
        """For people."""
        return f"{self.pilots} pilot{'s' * (self.pilots > 1)} of {self.slots} slot{'s' * (self.slots > 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """An array of jobs: a program and the arguments, one value for each job or the same for all `jobs`."""

    jobs: int
    program: str = "/bin/true"
    arguments: str = ""
    values: Sequence[str] = ()

    def body(self) -> bytes:
        """Its submission."""
        job: dict[str, Any] = {"Executable": self.program, "CPUTime": 3_600}
        job |= {"Arguments": self.arguments} if self.arguments else {}
        job |= {"Parameters": list(self.values) or self.jobs} if self.jobs > 1 else {}
        return json.dumps({"jobs": [job]}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One array that ran to its end: `seconds` from before the POST until a client that waits has the answer, and the CPU
    seconds of each process.
    """

    jobs: int
    seconds: float
    cpu_seconds: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    def cpu_ms(self) -> dict[str, float]:
        """Milliseconds of CPU for each job, by process."""
        return {name: 1e3 * seconds / self.jobs for name, seconds in self.cpu_seconds.items()}


class Site:
    """A server whose pilots all wait for work."""

    def __init__(self, server: Server, token: str) -> None:
        self._server = server
        self._token = token

    @classmethod
    @contextmanager
    def started(cls, context: Context, fleet: Fleet) -> Iterator[Site]:
        """In a folder of its own."""
        folder = context.home / "site"
        (folder / "data").mkdir(parents=True)
        file = folder / "site.toml"
        file.write_text(CONFIGURATION.format(pilots=fleet.pilots, cores=fleet.slots))
        settings = {
            "director.PollingTime": 120, "director.pilotsPerIteration": 2 * fleet.pilots,
            "director.PrivatePilotFraction": 0, "pilots.idle_seconds": 600, "pilots.stop_at_exit": True,
            "pilots.python": sys.executable,
        }  # fmt: skip
        server = Server(folder / "data", resources=file, settings=settings, prelude=context.prelude)
        try:
            with server:
                site = cls(server, (folder / "data" / "admin.token").read_text().strip())
                site._bring(fleet)
                yield site
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(self, work: Work) -> Run:
        """Submit it, and wait as a client does. Raises LoadFault unless each job is Done."""
        connection = Connection(self._server.port)
        before, begun = self.cpu_seconds(), time.perf_counter()
        status, body = connection.ask(encode("POST", "/v1/jobs", self._token, work.body()))
        if status != 200:
            raise LoadFault(f"{status} {body!r}")
        self._wait(connection, json.loads(body)["first"], work.jobs, begun)
        seconds, after = time.perf_counter() - begun, self.cpu_seconds()
        connection.close()
        used = {name: after[name] - before[name] for name in PROCESSES}
        return Run(jobs=work.jobs, seconds=seconds, cpu_seconds=used)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU seconds so far: of both processes of the server, of the pilots, and of all that pilots started."""
        background = self._server.background()
        pilots = self._pilots()
        return {
            "hot": process_cpu(self._server.pid),
            "background": process_cpu(background) if background else 0.0,
            "pilot": sum(map(process_cpu, pilots)),
            "children": sum(_below(pilot) for pilot in pilots),
        }

    def _wait(self, connection: Connection, first: int, jobs: int, begun: float) -> None:
        ask = encode("GET", f"/v1/jobs/wait?jobs={first}-{first + jobs - 1}&limit=0", self._token)
        while True:
            status, body = connection.ask(ask)
            if status != 200:
                raise LoadFault(f"{status} {body!r}")
            found = json.loads(body)
            if found["over"]:
                break
            if time.perf_counter() - begun > PATIENCE_SECONDS:
                raise LoadFault(f"{found['left']} of {jobs} jobs did not end")
        if found["states"] != {"Done": jobs}:
            raise LoadFault(f"not all jobs are Done: {found['states']}")

    def _bring(self, fleet: Fleet) -> None:
        """Bring all pilots with some work, and warm them up."""
        end = time.monotonic() + PILOTS_SECONDS
        while len(self._pilots()) < fleet.pilots:
            if time.monotonic() > end:
                raise LoadFault(f"{len(self._pilots())} of {fleet.pilots} pilots came")
            self.run(Work(jobs=20 * fleet.pilots, program="/bin/sleep", arguments="0.2"))
        self.run(Work(jobs=50 * fleet.pilots))
        self._server.wait_for_calm()

    def _pilots(self) -> list[int]:
        background = self._server.background()
        return [pid for pid in _tree(background) if _is_pilot(pid)] if background else []


def _is_pilot(pid: int) -> bool:
    """Whether it is the pilot itself: the first of its family that runs the pilot's program."""
    return _runs_pilot(pid) and not _runs_pilot(_parent(pid))


def _runs_pilot(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(b".pyz") for word in words[1:])


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _tree(pid: int) -> Iterator[int]:
    """All processes below this one."""
    try:
        own = children(pid)
    except OSError:  # it has ended
        return
    for child in own:
        yield child
        yield from _tree(child)


def _below(pid: int) -> float:
    """CPU seconds of what a process started: what it has waited for, and what lives."""
    return process_cpu(pid, waited=True) + sum(
        process_cpu(one) + process_cpu(one, waited=True) for one in _tree(pid)
    )


def mixed(jobs: int, seed: int, *, shortest: float, longest: float) -> list[float]:
    """Durations of jobs from `shortest` to `longest` seconds: each order of magnitude has the same number."""
    rng = random.Random(seed)
    return [round(shortest * (longest / shortest) ** rng.random(), 3) for _ in range(jobs)]


def least_makespan(durations: Sequence[float], slots: int) -> float:
    """The makespan of jobs that start in this order, each in the first free slot, without any loss."""
    free = [0.0] * slots
    for seconds in durations:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)
