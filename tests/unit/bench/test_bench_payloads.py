"""The rows of whole jobs through pilots: what they submit, count and compare; that of HyperQueue is played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench import hq
from bench.context import QUICK, Context
from bench.floors import Floors
from bench.generator import LoadFault
from bench.machine import process_cpu
from bench.payloads import Fleet, Run, Work, least_makespan, mixed
from bench.rows import payloads
from bench.rows.payloads import HYPERQUEUE, KINDS, OURS, makespan, rated

CPU = {"hot": 1.5, "background": 1.0, "pilot": 3.0, "children": 2.0}
TASKS = """
import json, sys
assert sys.argv[1:] == ["500", "8", "1", "/bin/sleep", "0.01"], sys.argv
print("| Server | its own words |")
print(json.dumps({"seconds": 2.0, "own_cpu": 0.5, "tasks_cpu": 1.0}))
"""


def run(seconds, *, jobs=1_000, **cpu):
    return Run(jobs=jobs, seconds=seconds, cpu_seconds=CPU | cpu)


def figures(runs):
    return {one.row: one for one in rated(KINDS["payloads"], runs, 1_000.0)}


@pytest.fixture
def context(tmp_path):
    floors = Floors(fdatasync=1.0, sqlite_commits=1.0, spawns=500.0, http=None)
    return Context(home=tmp_path, part=QUICK, samples=2, floors=floors, say=lambda text: None)


def test_an_array_of_jobs_alike_is_one_description():
    (job,) = json.loads(Work(jobs=5_000).body())["jobs"]
    assert (job["Executable"], job["Parameters"]) == ("/bin/true", 5_000)
    assert "Arguments" not in job


def test_jobs_of_different_lengths_are_the_values_of_an_array():
    (job,) = json.loads(Work(jobs=2, program="/bin/sleep", arguments="%s", values=["1", "2"]).body())["jobs"]
    assert (job["Arguments"], job["Parameters"]) == ("%s", ["1", "2"])


def test_a_single_job_is_no_array():
    assert "Parameters" not in json.loads(Work(jobs=1).body())["jobs"][0]


def test_the_best_of_ours_counts_with_the_least_cpu_time_of_each_process():
    found = figures({OURS: [run(4.0, hot=0.25), run(2.0)]})
    assert (found["payloads"].value, found["payloads"].ratio) == (500.0, 0.5)
    assert found["payloads"].what.endswith("HyperQueue was not given")
    assert found["payloads-cpu-hot"].value == 0.25
    assert found["payloads-cpu-children"].value == 2.0
    # Both processes of one run: not the least of each.
    server = found["payloads-cpu-server"]
    assert (server.value, server.target, server.met) == (1.25, 0.5, False)
    assert "payloads-hyperqueue" not in found


def test_time_of_the_server_for_longer_jobs_has_no_target():
    found = {one.row: one for one in rated(KINDS["payloads-1s"], {OURS: [run(2.0)]}, 1_000.0)}
    assert found["payloads-1s-cpu-server"].target is None


def test_the_ratio_is_that_of_runs_that_followed_one_another():
    theirs = [Run(jobs=1_000, seconds=seconds, cpu_seconds={}) for seconds in (1.0, 4.0, 2.0)]
    found = figures({OURS: [run(2.0), run(2.0), run(2.0)], HYPERQUEUE: theirs})
    ratio = found["payloads-hyperqueue"]
    assert (list(ratio.samples), ratio.value, ratio.target) == ([0.5, 2.0, 1.0], 1.0, 0.9)
    assert "1,000 jobs/s" in ratio.what
    assert "not given" not in found["payloads"].what


def test_each_side_runs_in_turn(context, monkeypatch):
    sides = []

    class Site:
        @classmethod
        def started(cls, _context, fleet):
            sides.append("ours")
            return cls()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def run(self, work):
            assert work.jobs == 500
            return run(1.0, jobs=work.jobs)

    monkeypatch.setattr(payloads, "Site", Site)
    monkeypatch.setattr(hq, "run", lambda *_: sides.append("hq") or run(1.0))
    context.hyperqueue = context.home / "python"
    KINDS["payloads"].measure(context)
    assert sides == ["ours", "hq"] * 2


def test_hyperqueue_runs_the_same_jobs_on_a_worker_for_each_pilot(context, monkeypatch):
    monkeypatch.setattr(hq, "PROGRAM", context.home / "tasks.py")
    hq.PROGRAM.write_text(TASKS)
    work = Work(jobs=500, program="/bin/sleep", arguments="0.01")
    found = hq.run(Path(sys.executable), context.home, Fleet(pilots=8, slots=1), work)
    assert (found.rate, found.cpu_ms()) == (250.0, {"hyperqueue": 1.0, "children": 2.0})
    assert [one.name for one in context.home.iterdir()] == ["tasks.py"]


@pytest.mark.parametrize("output", ["", "words", "{}", '{"seconds": null, "own_cpu": 1, "tasks_cpu": 1}'])
def test_what_is_no_result_of_hyperqueue_is_refused(output):
    with pytest.raises(LoadFault, match="printed no result"):
        hq.read(output, 5)


def test_lengths_are_spread_over_the_orders_of_magnitude():
    found = mixed(3_000, 1, shortest=0.1, longest=100.0)
    assert 0.1 <= min(found) <= max(found) <= 100.0
    for low in (0.1, 1.0, 10.0):
        assert sum(low <= one < 10 * low for one in found) == pytest.approx(1_000, rel=0.1)
    assert found == mixed(3_000, 1, shortest=0.1, longest=100.0)


def test_the_least_makespan_fills_the_first_free_slot():
    assert least_makespan([3.0, 1.0, 1.0, 2.0], 2) == 4.0
    assert least_makespan([5.0, 1.0, 1.0], 8) == 5.0


def test_makespans_are_held_against_no_loss():
    own = makespan([run(12.0), run(11.0)], 10.0)
    assert (own.value, own.less) == (1.1, True)


def test_cpu_of_children_counts_once_they_are_waited_for():
    before = process_cpu(os.getpid(), waited=True)
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert process_cpu(os.getpid(), waited=True) > before
