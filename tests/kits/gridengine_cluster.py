"""A Grid Engine of four hosts that its master only simulates: it decides what starts where, and nothing runs.

It lives in a mount namespace with an /etc of its own: hosts and users are made up there, and this machine stays as it is.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.kits.backend_kit import missing
from tests.kits.gridengine_kit import SERVICE, with_programs

QUEUES: Final = ("all.q", "gpu.q")
_PES: Final = ("smp", "mpi", "make")
_UID: Final = 39_000
# Jobs may take of each consumable what quotas leave.
_AMPLE: Final = "mc=900T,mdef=900T,perjob=900000,virtual_free=900T"
_UNLIMITED: Final = "load_scaling user_lists xuser_lists projects xprojects usage_scaling report_variables"
_WEIGHTS: Final = re.compile(r"^(weight_urgency|weight_ticket) .*", re.MULTILINE)


class Submission(NamedTuple):
    """A job of a user, in the words of qsub."""

    user: str
    words: Sequence[str]


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """Commands reach it through the namespace of the process that keeps it."""

    folder: Path
    keeper: int
    environment: Mapping[str, str]

    def run(self, *words: str | Path, given: str | None = None) -> str:
        """What a command prints there."""
        command = ["nsenter", f"--target={self.keeper}", "--mount", *words]
        done = subprocess.run(
            command, input=given, env={**os.environ, **self.environment}, cwd="/", capture_output=True,
            text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def qconf(self, option: str, text: str) -> None:
        """Give it a text."""
        file = self.folder / "given"
        file.write_text(text, encoding="utf-8")
        self.run("qconf", option, file)

    def decide(self, quotas: str, jobs: Iterable[Submission]) -> list[bool]:
        """Whether each job starts by these quota sets, which are asked in this order. Nothing is left of the jobs."""
        # They are submitted side by side; the priority is their order.
        lines = [
            f"(setpriv --reuid={one.user} --regid=$(id -g {one.user}) --clear-groups "
            f"qsub -terse -h -p -{turn} -b y -o /dev/null -e /dev/null {' '.join(one.words)} /bin/sleep 1000000 "
            f">{self.folder}/job{turn}) &\n"
            for turn, one in enumerate(jobs)
        ]
        files = " ".join(f"{self.folder}/job{turn}" for turn in range(len(lines)))
        numbers = self.run("sh", "-s", given=f"set -f\n{''.join(lines)}wait\ncat {files}\n").split()
        assert len(numbers) == len(lines)
        self.qconf("-Mrqs", quotas)
        self.run("qalter", "-h", "U", *numbers)
        # The second run begins when the orders of the first were carried out.
        self._schedule()
        self._schedule()
        rows = [line.split() for line in self.run("qstat", "-u", "*").splitlines()[2:]]
        states = {number: state for number, _, _, _, state, *_ in rows}
        assert states.keys() == set(numbers)
        self.run("qdel", "-f", "-u", "*")
        return [states[number] in ("t", "r") for number in numbers]

    def _schedule(self) -> None:
        """Wait for a run of the scheduler that begins now."""
        log = self.folder / "engine/root/default/common/schedd_runlog"
        before = log.stat() if log.exists() else None
        self.run("qconf", "-tsm")
        for _ in range(3_000):
            now = log.stat() if log.exists() else None
            if now and (
                before is None or (now.st_mtime_ns, now.st_size) != (before.st_mtime_ns, before.st_size)
            ):
                *_, last = log.read_text().splitlines() or [""]
                if "STOP-SCHEDULER-RUN" in last:
                    return
            threading.Event().wait(0.01)
        raise AssertionError("the scheduler does not run")


@contextmanager
def simulated_cluster(
    processors: Mapping[str, int | None],
    accounts: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
    complexes: str,
) -> Iterator[SimulatedCluster]:
    """Hosts with their numbers of processors; users with the number of their group; and by option of `qconf` the texts of
    host groups, user lists and projects.
    """
    there = subprocess.run([SERVICE, "there"], capture_output=True, text=True, timeout=120, check=False)
    if there.returncode:
        missing("gridengine", there.stderr.strip())
    folder = Path(tempfile.mkdtemp(prefix="lode-simulated-"))
    folder.chmod(0o755)  # for its administrator
    keeper = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE
    )
    try:
        assert keeper.stdout is not None
        keeper.stdout.readline()  # it has its namespace
        shutil.copytree("/etc", folder / "etc", symlinks=True)
        place_names(folder / "etc", processors, accounts)
        cluster = SimulatedCluster(folder, keeper.pid, {"LODE_SGE_SLOTS": "9999"})
        cluster.run("mount", "--bind", folder / "etc", "/etc")
        try:
            cluster.run(SERVICE, "start", folder / "engine")
            said = cluster.run(SERVICE, "env", folder / "engine")
            cluster = SimulatedCluster(folder, keeper.pid, with_programs(said))
            configure(cluster, processors, names, complexes)
            yield cluster
        finally:
            cluster.run(SERVICE, "purge", folder / "engine")
    finally:
        keeper.kill()
        keeper.communicate()
        shutil.rmtree(folder)


def place_names(etc: Path, hosts: Iterable[str], accounts: Mapping[str, int]) -> None:
    """Make up hosts, users and their groups."""
    for file, lines in {
        "hosts": [f"127.0.9.{number} {host}" for number, host in enumerate(hosts, 1)],
        "passwd": [
            f"{user}:x:{_UID + n}:{group}::/:/bin/sh" for n, (user, group) in enumerate(accounts.items())
        ],
    }.items():
        with (etc / file).open("a", encoding="utf-8") as stream:
            stream.writelines(f"{line}\n" for line in lines)


def configure(
    cluster: SimulatedCluster,
    processors: Mapping[str, int | None],
    names: Mapping[str, Sequence[str]],
    complexes: str,
) -> None:
    """Hosts, queues, parallel environments, resources; jobs are asked in the order of their priorities."""
    conf = re.sub(
        r"(?m)^qmaster_params .*", "qmaster_params SIMULATE_EXECDS=TRUE", cluster.run("qconf", "-sconf")
    )
    (cluster.folder / "global").write_text(conf, encoding="utf-8")
    cluster.run("qconf", "-Mconf", cluster.folder / "global")
    order = _WEIGHTS.sub(r"\1 0", cluster.run("qconf", "-ssconf"))
    cluster.qconf("-Msconf", re.sub(r"(?m)^weight_priority .*", "weight_priority 1", order))
    cluster.qconf(
        "-Mc", cluster.run("qconf", "-sc") + complexes + "load_report_host lrh STRING == YES NO NONE 0\n"
    )
    real = cluster.run("qconf", "-sel").strip()
    nothing = "".join(f"{name} NONE\n" for name in _UNLIMITED.split())
    for host, count in processors.items():
        known = "" if count is None else f",num_proc={count}"
        cluster.qconf("-Ae", f"hostname {host}\ncomplex_values load_report_host={real}{known}\n{nothing}")
    cluster.run("qconf", "-mattr", "exechost", "complex_values", _AMPLE, "global")
    for name in _PES:
        text = re.sub("smp", name, cluster.run("qconf", "-sp", "smp"))
        cluster.qconf("-Mp" if name == "smp" else "-Ap", re.sub(r"(?m)^slots .*", "slots 99999", text))
    for option, texts in names.items():
        for text in texts:
            cluster.qconf(option, text)
    hosts = f"hostlist {' '.join(processors)}\npe_list {' '.join(_PES)}\n"
    text = re.sub(r"(?m)^(hostlist|pe_list) .*\n", "", cluster.run("qconf", "-sq", "all.q")) + hosts
    cluster.qconf("-Mq", text)
    for name in QUEUES[1:]:
        cluster.qconf("-Aq", re.sub(r"(?m)^qname .*", f"qname {name}", text))
    for _ in range(3_000):
        if len(re.findall(r"(?m)^\S+@\S+ +\S+ +\S+ +[\d.]+ +\S+ *$", cluster.run("qstat", "-f"))) == len(
            QUEUES
        ) * len(processors):
            return
        threading.Event().wait(0.05)
    raise AssertionError(cluster.run("qstat", "-f"))
