"""What choices would have lost: on the reference workload, and on logs of accounting."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace

import pytest
from bench.rows.vacate import LOSSES
from bench.vacate_world import CORES, HOUR, NOW, node

from lodesman.site.jobstatus.simulate_command import _LINES
from lodesman.site.jobstatus.vacate.candidates import SIGMA, Candidate, Confidence, Terms
from lodesman.site.jobstatus.vacate.simulation import (
    Assumptions,
    LoggedJob,
    SimulatedJob,
    compare,
    learn_errors,
    moments,
    read_swf,
    simulate_job,
)
from lodesman.site.jobstatus.vacate_command import main
from lodesman.site.jobstatus.waste import RunningPayload

LOG = """\
; Version: 2.2
; UnixStartTime: 0
1 100 50 3600 4 -1 -1 4 7200 -1 1 7 1 1 1 3 -1 -1
2 100 -1 1800 -1 -1 -1 2 -1 -1 1 8 1 1 1 3 -1 -1
3 100 0 -1 4 -1 -1 4 7200 -1 0 7 1 1 1 3 -1 -1
odd line
4 x 0 10 4 -1 -1 4 7200 -1 0 7 1 1 1 3 -1 -1
5 3000 0 60 1 -1 -1 1 30 -1 1 7 1 1 1 4 -1 -1
"""


def losses(seed, nodes, error, terms):
    rng = random.Random(seed)
    found = [compare(node(rng, error), 16, NOW, terms) for _ in range(nodes)]
    return {name: sum(getattr(one, name) for one in found) / nodes / HOUR for name in LOSSES}


@pytest.mark.slow
def test_the_reference_workload_loses_half_of_youngest_first_and_drains_a_fifth_less():
    found = losses(1, 150, 0.3, Terms(within=4 * HOUR))
    assert found["kills"] <= 0.5 * found["youngest"]
    assert found["kills"] <= 1.001 * found["best_kills"]
    assert found["mixed"] <= 0.8 * found["kills"]
    assert found["best_mixed"] <= found["mixed"]
    # With ends that are known, each that is in time is drained: as good as can be, but for payloads that outlive a drain.
    sure = losses(1, 150, 0.0, Terms(4 * HOUR, Confidence("expected")))
    assert sure["mixed"] <= 1.1 * sure["best_mixed"]


@pytest.mark.slow
def test_a_risk_that_was_learned_loses_less_than_one_that_is_assumed():
    """Ends of four owners are known to 0.2 to 0.8; each has ended a hundred jobs."""
    assumed = Assumptions(error=0.6, spread=1.0)
    ended = [LoggedJob(f"{n}", f"u{n % 4}", "n", 1, 0, 1) for n in range(400)]
    sigmas = learn_errors(ended, assumed, random.Random(2), NOW)
    assert [sigmas[f"u{n}"] for n in range(4)] == [
        pytest.approx(assumed.error_of(f"u{n}"), rel=0.35) for n in range(4)
    ]

    def lost(terms):
        rng = random.Random(1)
        nodes = [node(rng, assumed.error, assumed.spread) for _ in range(150)]
        return sum(compare(one, 16, NOW, terms).risk for one in nodes)

    terms = Terms(4 * HOUR)
    assert lost(replace(terms, sigmas=sigmas)) < 0.96 * lost(terms)


def test_what_was_learned_of_a_log_is_of_the_jobs_that_have_ended():
    log, assumed = list(read_swf(LOG.splitlines())), Assumptions(error=1.0, spread=0.0)
    assert learn_errors(log, assumed, random.Random(1), 1000) == {"": SIGMA}
    assert set(learn_errors(log, assumed, random.Random(1), 2000)) == {"", "8"}
    assert set(learn_errors(log, assumed, random.Random(1), 4000)) == {"", "7", "8"}


def test_owners_differ_and_always_by_the_same():
    found = {Assumptions().error_of(f"{owner}") for owner in range(50)}
    assert len(found) == 50
    assert Assumptions().error_of("7") == Assumptions().error_of("7")
    assert {Assumptions(spread=0).error_of(f"{owner}") for owner in range(50)} == {0.3}


def test_nodes_are_full():
    for seed in range(20):
        assert sum(one.candidate.cores for one in node(random.Random(seed), 0.3)) == CORES


def test_what_kills_and_drains_really_lose():
    payloads = [RunningPayload(2, 0, 400, 1300), RunningPayload(1, 0, 900, 1600)]
    job = SimulatedJob(Candidate("a", "u", ("n",), 4, 0), payloads, [1300, 1600])
    assert job.killed(1000) == 2 * 600 + 100
    # Four cores until 1600; what the payloads use of them is no waste.
    assert job.drained(1000, 600) == 4 * 600 - 2 * 300 - 600
    # Killed at 1200: both lose all since their commits, and a core was idle.
    assert job.drained(1000, 200) == 200 + 2 * 800 + 300


def test_a_log_in_the_standard_format():
    first, second, last = read_swf(LOG.splitlines())
    assert first == LoggedJob("1", "7", "3", 4, 150, 3750, 7200)
    assert (second.cores, second.started, second.ended, second.limit) == (2, 100, 1900, None)
    assert last.limit == 60  # it ran longer than it had asked for


def test_moments_have_the_jobs_that_run_there():
    log = list(read_swf(LOG.splitlines()))
    seen = set()
    for now, running in moments(log, 200, random.Random(1)):
        assert running == [one for one in running if one.started < now < one.ended]
        assert len({one.place for one in running}) == 1
        seen |= {one.job for one in running}
    assert {"1", "2"} <= seen
    assert list(moments([], 5, random.Random(1))) == []


def test_jobs_are_what_is_assumed_of_them():
    logged, rng = LoggedJob("1", "7", "3", 8, 0, 100_000, 200_000), random.Random(1)
    plain = simulate_job(logged, Assumptions(pilots=0, commits=0, error=0), rng, 50_000)
    assert plain.killed(50_000) == plain.candidate.estimate.kill_waste == 8 * 50_000
    assert plain.candidate.estimate.remaining_expected == 50_000
    saves = simulate_job(logged, Assumptions(pilots=0, commits=1), rng, 50_000)
    assert saves.killed(50_000) == 8 * (50_000 % 3600)
    pilot = simulate_job(logged, Assumptions(pilots=1, error=0), rng, 50_000)
    assert sum(one.cores for one in pilot.payloads) == 8
    assert pilot.killed(50_000) < plain.killed(50_000)
    assert pilot.candidate.estimate.kill_waste == pytest.approx(pilot.killed(50_000), abs=16)
    assert simulate_job(logged, Assumptions(silent=1), rng, 50_000).candidate.is_silent


def test_too_few_cores_are_no_comparison():
    assert compare([], 1, 0, Terms()) is None


def run(capsys, *words):
    code = main(["simulate", *map(str, words)])
    return code, capsys.readouterr()


def test_it_says_what_it_assumes(tmp_path, capsys):
    file = tmp_path / "log.swf"
    file.write_text(LOG)
    code, said = run(capsys, "--swf", file, "--moments", 20, "--silent", 0.25)
    assert code == 0
    assert "3 jobs; 20 moments" in said.out
    for name, value in {**{name: getattr(Assumptions(), name) for name in _LINES}, "silent": 0.25}.items():
        assert _LINES[name].format(value) in said.out


@pytest.mark.slow
def test_a_packed_log_as_json_and_the_same_seed_twice(tmp_path, capsys):
    file = tmp_path / "log.swf.gz"
    file.write_bytes(gzip.compress(LOG.encode()))
    first, second, other = (
        json.loads(run(capsys, "--swf", file, "--json", "--seed", seed)[1].out) for seed in (3, 3, 4)
    )
    assert first == second != other
    assert first["core_hours"]["kills"] <= first["core_hours"]["youngest"]
    assert first["core_hours"]["best_kills"] == pytest.approx(first["core_hours"]["kills"], rel=0.01)


def test_logs_that_cannot_be_used(tmp_path, capsys):
    code, said = run(capsys, "--swf", tmp_path / "none")
    assert (code, said.out) == (1, "")
    assert "cannot be read" in said.err
    file = tmp_path / "empty.swf"
    file.write_text("; nothing\n")
    assert run(capsys, "--swf", file)[0] == 1
    broken = tmp_path / "log.gz"
    broken.write_bytes(gzip.compress(LOG.encode())[:40])
    assert run(capsys, "--swf", broken)[0] == 1
