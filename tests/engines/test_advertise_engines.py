"""`lode site advertise --once --print` beside real batch systems: the counts of `squeue`, `qstat` and `condor_q`."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import threading
from collections import Counter
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.e2e.conftest import wait_until
from tests.kits.arc_kit import QUEUE as ARC_QUEUE
from tests.kits.arc_kit import arc_backend, started_arc
from tests.kits.arc_kit import run_service as run_arc
from tests.kits.gridengine_kit import ACCOUNT, gridengine_backend, the_gridengine
from tests.kits.gridengine_kit import QUEUE as GRIDENGINE_QUEUE
from tests.kits.htcondor_kit import htcondor_kit, runner, service
from tests.kits.shell_pilots import shell_spec
from tests.kits.slurm_kit import environment, slurm_of_this_session
from tests.unit.pilot.test_python39 import oldest_python

from lodesman.decide.resources import QueueId
from lodesman.languages.classad import evaluate, parse_ad
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.run.here import Here
from lodesman.server.engines.slurm import SlurmBackend
from lodesman.server.engines.zipapp import build_zipapp

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough]
PATIENCE_S = 60.0
OURS = f"ad{secrets.token_hex(6)}"
SLEEP = "exec sleep 300"
# Goes on for a while when it is ordered to end.
STUBBORN = "trap '' TERM; sleep 300 & while :; do wait; done"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """What a site without Lodesman has: one file, and an old Python."""
    file = tmp_path_factory.mktemp("site") / "lode-advertise"
    build_zipapp(file, "advertise")

    def run(source, *words, **environ):
        done = subprocess.run(
            [oldest_python(), "-I", str(file), "--site", "X", "--from", source, "--once", "--print", "--", *words],
            env={"PATH": os.environ["PATH"], **environ}, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return parse_ad(done.stdout)

    return run


def numbers(ad):
    names = ("CurrentJobs", "CurrentSubmittingJobs", "CurrentPendingJobs")
    return tuple(evaluate(name, ad) for name in names)


def stamps(ad):
    return set(evaluate("PilotStamps", ad))


def agreed(plain, ask, is_there):
    """The ad of a moment at which the batch system says the same before and after it, and has all that is wanted."""
    for _ in range(int(PATIENCE_S / 0.3)):
        before = plain()
        if is_there(before):
            ad = ask()
            if plain() == before:
                return before, ad
        threading.Event().wait(0.3)
    raise AssertionError(f"it never came to that: {before}")


def done(run, *words, **more):
    found = run(words, **more)
    assert not found.code, found.err
    return found.out


# --- Slurm ----------------------------------------------------------------------------------------------------------------


@contextmanager
def stopped(daemon):
    """A node that does not answer: nothing ends for the controller."""
    process = int((slurm_of_this_session() / "run" / f"{daemon}.pid").read_text())
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_slurm(program, tmp_path):
    slurm = partial(done, Here(environment=environment(slurm_of_this_session())).run)
    batch = ("sbatch", "--parsable", "--partition=pilots", "--output=/dev/null")
    stubborn = slurm(*batch, f"--wrap={STUBBORN}").strip()
    backend = SlurmBackend(Here(environment=environment(slurm_of_this_session())), folder=str(tmp_path))
    queue = QueueId("X", "slurm", "pilots")
    backend.submit(shell_spec(queue, OURS, SLEEP, count=4))
    slurm(*batch, "--hold", f"--wrap={SLEEP}")

    def plain():
        return Counter(slurm("squeue", "--noheader", "--array", "--format=%T").split())

    ask = partial(program, "slurm", **environment(slurm_of_this_session()))
    states, ad = agreed(plain, ask, lambda now: now["RUNNING"] == 2)
    assert numbers(ad) == (2, 0, states["PENDING"]) == (2, 0, 4)
    with stopped("slurmd"):
        slurm("scancel", stubborn)
        states, ad = agreed(plain, ask, lambda now: now["COMPLETING"] == 1)
    assert numbers(ad) == (states["RUNNING"] + 1, 0, states["PENDING"])
    assert sum(numbers(ad)) == sum(states.values()) == 6
    assert stamps(ad) == {f"{OURS}-{number}" for number in range(1, 5)}
    assert numbers(ask("--partition=wide")) == (0, 0, 0)


# --- Grid Engine ----------------------------------------------------------------------------------------------------------


def test_grid_engine(program):
    found = dict(the_gridengine())
    run = partial(done, Here(account=found[ACCOUNT], environment=found).run)
    backend = gridengine_backend(found)
    words = ("qsub", "-terse", "-o", "/dev/null", "-e", "/dev/null", "-b", "y", "-shell", "n")
    backend.submit(shell_spec(GRIDENGINE_QUEUE, OURS, SLEEP, count=12))
    run(*words, "-h", "/bin/sleep", "300")
    run(*words, "-q", "all.q", "/bin/sleep", "300")
    broken = run(*words, "-wd", "/no/such/folder", "-p", "0", "-now", "n", "/bin/sleep", "300").strip()

    def plain():
        """By the lines that people see: the last column has the tasks that a line stands for."""
        lines = [line.split() for line in run("qstat", "-u", "*").splitlines()[2:]]
        return Counter(
            {state: sum(size(one) for one in lines if one[4] == state) for state in {one[4] for one in lines}}
        )

    ask = partial(program, "gridengine", **{name: value for name, value in found.items() if name != ACCOUNT})
    states, ad = agreed(plain, ask, lambda now: now["r"] and now["hqw"] and now["qw"])
    assert states.keys() <= {
        "r",
        "t",
        "hqw",
        "qw",
        "Eqw",
    }  # t: it is on its way to a slot that is its own
    assert numbers(ad) == (states["r"] + states["t"], 0, states["hqw"] + states["qw"] + states["Eqw"])
    assert sum(numbers(ad)) == 15
    assert stamps(ad) == {f"{OURS}-{number}" for number in range(1, 13)}
    assert broken.isdigit()


def size(line):
    last = re.fullmatch(r"(\d+)-(\d+):(\d+)", line[-1])
    return (int(last[2]) - int(last[1])) // int(last[3]) + 1 if last else line[-1].count(",") + 1


# --- HTCondor -------------------------------------------------------------------------------------------------------------

KEPT = """universe = vanilla
executable = /bin/sleep
arguments = {seconds}
transfer_executable = false
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
{more}
queue 1
"""


@pytest.fixture
def kit(tmp_path):
    yield from htcondor_kit(tmp_path)


def test_htcondor(kit, program):
    run = partial(done, runner().run)

    def submit(**more):
        return run("condor_submit", "-terse", "-", stdin=KEPT.format(**more).encode()).split()[0]

    kept = submit(seconds=0, more="leave_in_queue = JobStatus == 4")
    wait_until(
        lambda: run("condor_q", kept, "-af", "JobStatus") == "4\n", "the end of a job", patience=kit.patience
    )
    assert len(kit.backend.submit(shell_spec(kit.queue, OURS, SLEEP, count=4)).accepted) == 4
    held = submit(seconds=300, more="hold = true")

    def plain():
        line = re.search(r"Total for query: (.*)", run("condor_q", "-allusers", "-totals"))[1]
        return Counter({word: int(number) for number, word in re.findall(r"(\d+) (\w+)", line)})

    ask = partial(program, "htcondor", PATH=f"{service()}/bin:{os.environ['PATH']}", ACCOUNT="lode")
    states, ad = agreed(plain, ask, lambda now: now["running"] == 2)
    assert (states["jobs"], states["completed"], states["held"], states["idle"]) == (6, 1, 1, 2)
    assert numbers(ad) == (states["running"], 0, states["idle"] + states["held"])
    assert stamps(ad) == {f"{OURS}-{number}" for number in range(1, 5)}
    assert numbers(ask("-constraint", f"ClusterId == {held.partition('.')[0]}")) == (0, 0, 1)


# --- ARC ------------------------------------------------------------------------------------------------------------------


def test_arc(program):
    with started_arc() as found:
        backend = arc_backend(found)
        pilots = backend.submit(shell_spec(ARC_QUEUE, OURS, SLEEP, count=4)).accepted
        control = Path(found["LODE_TEST_ARC_CA"]).parent / "control"

        def plain():
            run_arc(found, "refresh")
            return Counter(one.state for one in backend.status(pilots).values())

        states, ad = agreed(
            plain, partial(program, "arc", str(control)), lambda now: now[NativeState.RUNNING] == 2
        )
        running, submitting, pending = numbers(ad)
        assert (running, submitting + pending) == (2, states[NativeState.WAITING]) == (2, 2)
        assert stamps(ad) == set(pilots)
