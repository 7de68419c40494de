"""A test finds the batch systems empty that it shares: nothing of others, in no state, is left in their own lists."""

from __future__ import annotations

from functools import partial

import pytest
from tests.conftest import pytest_runtest_setup
from tests.e2e.conftest import wait_until
from tests.kits.gridengine_kit import ACCOUNT, the_gridengine
from tests.kits.htcondor_kit import runner, service
from tests.kits.slurm_kit import environment, slurm_of_this_session

from lodesman.server.engines.run.here import Here

pytestmark = [pytest.mark.e2e, pytest.mark.engines, pytest.mark.thorough]
until = partial(wait_until, patience=120.0)
# Does not end by the signal that asks it to.
STUBBORN = "trap '' TERM; sleep 300 & while :; do wait; done"
KEPT = """universe = vanilla
executable = /bin/sh
arguments = "-c '{script}'"
transfer_executable = false
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
{more}
queue 1
"""


def output_of(run, *words, **more):
    done = run(words, **more)
    assert not done.code, done.err
    return done.out


def test_htcondor(request):
    service()
    lode, other = (partial(output_of, runner(account).run) for account in ("lode", "other"))

    def submit(run, script, more=""):
        run("condor_submit", "-terse", "-", stdin=KEPT.format(script=script, more=more).encode())

    def states():
        return sorted(lode("condor_q", "-allusers", "-af", "Owner", "JobStatus").splitlines())

    submit(other, "exit 0", "leave_in_queue = JobStatus == 4")
    until(lambda: states() == ["other 4"], "a job that has completed")
    submit(lode, "sleep 300", "hold = true")
    submit(other, STUBBORN.replace("'", "''"))
    submit(lode, "sleep 300", "request_cpus = 64")
    until(lambda: states() == ["lode 1", "lode 5", "other 2", "other 4"], "all states")
    pytest_runtest_setup(request.node)
    assert states() == []
    assert "Claimed" not in lode("condor_status", "-af", "State")


@pytest.mark.parametrize("options", [(), ("accounting",)], ids=["slurm", "slurm+accounting"])
def test_slurm(request, options):
    run = partial(output_of, Here(environment=environment(slurm_of_this_session(*options))).run)

    def submit(script, *more):
        run("sbatch", "--partition=pilots", "--output=/dev/null", f"--wrap={script}", *more)

    def states():
        return sorted(run("squeue", "--all", "--noheader", "--array", "--format=%T").split())

    submit(STUBBORN)
    submit("sleep 300", "--hold")
    submit("sleep 300", "--partition=down", "--array=1-2")
    until(lambda: states() == ["PENDING", "PENDING", "PENDING", "RUNNING"], "all states")
    pytest_runtest_setup(request.node)
    assert states() == []


def test_grid_engine(request):
    found = the_gridengine()
    account, root = (
        partial(output_of, Here(account=name, environment=found).run) for name in (found[ACCOUNT], "")
    )

    def submit(run, script, *more):
        run("qsub", "-o", "/dev/null", "-e", "/dev/null", "-cwd", *more, stdin=script.encode())

    def states():
        return sorted(line.split()[4] for line in root("qstat", "-u", "*").splitlines()[2:])

    submit(account, "true", "-wd", "/no/such/folder")
    until(lambda: states() == ["Eqw"], "a job in error")
    submit(root, "sleep 300", "-t", "1-3", "-h")
    submit(account, STUBBORN)
    until(lambda: states() == ["Eqw", "hqw", "r"], "all states")
    pytest_runtest_setup(request.node)
    assert states() == []
