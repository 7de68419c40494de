"""docs/how-to/jobstatus.md, what a site installs: its lines are run as they stand, on nodes that have nothing of it yet."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from tests.docs.test_docs_console import pieces
from tests.e2e.conftest import wait_until
from tests.kits import gridengine_kit, slurm_kit
from tests.kits.backend_kit import missing
from tests.kits.htcondor_kit import started

from lodesman.server.engines.zipapp import build_zipapp

pytestmark = [
    pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough, pytest.mark.vacate,
    pytest.mark.skipif(os.getuid() != 0, reason="prologs run as root"),
]  # fmt: skip
ROOT = Path(__file__).parents[2]
MANUAL = ROOT / "docs" / "how-to" / "jobstatus.md"
until = partial(wait_until, patience=120.0)


def lines_of(engine: str) -> list[str]:
    """The commands of the first block below this heading."""
    below = MANUAL.read_text(encoding="utf-8").partition(f"\n### {engine}\n")[2]
    block = next(pieces(below))
    assert block.kind == "sh"
    return [line for line in block.text.splitlines() if not line.startswith("#")]


@dataclass(frozen=True)
class Node:
    """A machine by its namespaces, those of a process. enter: words for nsenter; checkout: where the source is there."""

    process: int
    enter: Sequence[str] = ("--mount",)
    environ: dict[str, str] = field(default_factory=dict)
    checkout: str = str(ROOT)

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        words = [
            "nsenter",
            f"--target={self.process}",
            *self.enter,
            "--",
            "sh",
            "-c",
            f"cd {self.checkout}\n{line}",
        ]
        environ = {**os.environ, "LC_ALL": "C", **self.environ}
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=300, check=False)

    def done(self, line: str) -> str:
        """What it prints. Daemons take up their configuration when they can, so it may have to be asked again."""
        tries: list[subprocess.CompletedProcess[str]] = []

        def succeeds() -> bool:
            tries.append(self.run(line))
            return not tries[-1].returncode

        try:
            until(succeeds, line)
        except AssertionError:
            raise AssertionError(f"{line}\n{tries[-1].stdout}{tries[-1].stderr}") from None
        return tries[-1].stdout


@contextmanager
def a_node(*empty: str) -> Iterator[Node]:
    """This machine, on which these directories are empty."""
    mounts = "".join(f"mount -t tmpfs tmpfs {shlex.quote(one)} && " for one in empty)
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"{mounts}echo; exec sleep infinity"], stdout=subprocess.PIPE
    ) as keeper:
        try:
            assert keeper.stdout is not None
            assert keeper.stdout.readline(), "it has its namespace"
            path = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
            yield Node(keeper.pid, environ={"PATH": path})
        finally:
            keeper.kill()


@contextmanager
def engine_on(node: Node, service: Path, there: Sequence[str] = ("there",)) -> Iterator[Path]:
    """What tests/services starts, on this node: its folder."""
    found = subprocess.run([service, *there], capture_output=True, text=True, timeout=300, check=False)
    if found.returncode:
        missing(service.name, found.stderr.strip())
    place = Path(tempfile.mkdtemp(prefix="lode-manual-"))
    place.chmod(0o755)
    try:
        start = node.run(f"{service} start {place}/engine >{place}/log 2>&1")
        assert not start.returncode, (place / "log").read_text()
        yield place / "engine"
    finally:
        node.run(f"{service} purge {place}/engine >{place}/log 2>&1")
        shutil.rmtree(place)


def check_plan(node: Node, line: str) -> None:
    """Of a job with 16 cores, there is one to be vacated."""
    assert line.startswith("lode vacate --free 16 ")
    assert "Vacate 1 job of 1: 16 cores" in node.done(line)


def test_slurm():
    *install, srun, vacate = lines_of("Slurm")
    with a_node("/run", "/etc/slurm") as node, engine_on(node, slurm_kit.SCRIPT) as folder:
        conf = folder / "etc" / "slurm.conf"
        node.environ["SLURM_CONF"] = str(conf)
        node.done(f"ln -s {conf} /etc/slurm/slurm.conf")
        for line in install:
            node.done(line)
        where, cores = node.done(srun).splitlines()
        assert where.startswith("drwx------")
        assert where.split()[-1].startswith("/run/jobstatus/")
        assert cores == "1"
        node.done("sbatch --partition=wide --cpus-per-task=16 --output=/dev/null --wrap='sleep 300'")
        until(lambda: node.done("squeue --noheader --states=RUNNING"), "a job")
        check_plan(node, vacate)


def test_grid_engine():
    *install, qsub, vacate = lines_of("Grid Engine")
    with a_node("/run", "/opt") as node:
        node.environ["LODE_SGE_SLOTS"] = "20"
        with engine_on(node, gridengine_kit.SERVICE) as folder:
            said = node.done(f"{gridengine_kit.SERVICE} env {folder}")
            found = dict(one.split("=", 1) for one in said.splitlines())
            node.environ.update(found)
            out = folder / "out"
            out.mkdir()
            # Without it the answer is in HOME.
            (Path(found["SGE_ROOT"]) / "default" / "common" / "sge_request").write_text(f"-wd {out}\n")
            for line in install:
                node.done(line)
            node.done(qsub)
            answers = until(
                lambda: [one for one in out.glob("STDIN.o*") if one.read_text().count("\n") > 1], "it"
            )
            where, cores = answers[0].read_text().splitlines()
            assert where.startswith("drwx------")
            assert where.split()[-1].startswith("/run/jobstatus/")
            assert cores == "1"
            node.done("qsub -pe smp 16 -b y -o /dev/null -j y sleep 300")
            # Without the one before it.
            until(lambda: [row.split()[4] for row in node.done("qstat").splitlines()[2:]] == ["r"], "one job")
            check_plan(node, vacate)


# What the host of the pool lacks: systemd, and a whole Lodesman.
TMPFILES = """\
#!/bin/sh
while read -r kind path mode user group age; do
    [ "$kind" != d ] || install -d -m "$mode" -o "$user" -g "$group" "$path"
done <"/etc/tmpfiles.d/$2"
"""
LODE = """\
#!/bin/sh
case $1 in
    jobstatus) cp /opt/jobstatus.pyz "$3" ;;
    *) exec /opt/jobstatus.pyz "$@" ;;
esac
"""


def test_htcondor():
    *install, status, vacate = lines_of("HTCondor")
    pool = started()
    with (pool / "config").open("a") as file:
        file.write("NUM_CPUS = 20\nMEMORY = 16384\nSTARTD_CRON_JOBSTATUS_PERIOD = 5s\n")
    first = int((pool / "first").read_text())
    root = Path(f"/proc/{first}/root").readlink()
    outside = Node(first)
    # The root is that of all pools: of what is changed there, this one gets its own.
    for place in ("usr/local", "opt", "mnt"):
        outside.done(f"mount -t tmpfs tmpfs {root}/{place}")
    for place in ("etc/tmpfiles.d", "etc/condor/config.d"):
        copy = f"{root}/opt/{place}"
        outside.done(
            f"mkdir -p {root}/{place} {copy} && cp -r {root}/{place}/. {copy} && mount --bind {copy} {root}/{place}"
        )
    outside.done(f"mkdir {root}/usr/local/bin && mount --bind {ROOT} {root}/mnt")
    build_zipapp(pool / "place" / "jobstatus.pyz", "jobstatus")
    outside.done(f"install {pool}/place/jobstatus.pyz {root}/opt/jobstatus.pyz")
    for name, text in (("systemd-tmpfiles", TMPFILES), ("lode", LODE)):
        (pool / "place" / name).write_text(text)
        outside.done(f"install -D {pool}/place/{name} {root}/opt/bin/{name}")
    inside = Node(
        first,
        ("--mount", "--pid", "--root", "--wd"),
        {"PATH": "/opt/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
        "/mnt",
    )
    inside.done("condor_restart -startd")
    until(lambda: inside.done("condor_status -af TotalCpus").startswith("20"), "twenty cores")
    for line in install:
        inside.done(line)
    text = "executable=/bin/sleep\narguments=300\ntransfer_executable=false\nrequest_cpus=16\nrequest_memory=100\nqueue\n"
    submitted = subprocess.run(
        [pool / "bin" / "condor_submit", "-terse", "-"],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    job = submitted.stdout.split()[0]
    until(lambda: job in inside.done(status), "a job")
    check_plan(inside, vacate)
    until(
        lambda: not inside.run(f"grep -x 16 /run/jobfeatures/{job}/allocated_cpu").returncode,
        "its Job Features",
    )
    assert "lode" in inside.done(f"ls -ld /run/jobstatus/{job}")
