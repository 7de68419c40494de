"""Jobs packed into pilots that run several at once: what a claim says, and what it gets."""

import pytest

LONG = 101  # the first id of the second task queue


@pytest.fixture
def pilot(house):
    """Two task queues of one owner, and a pilot that serves both."""
    for seconds in (100, 900):
        house.submitted({"CPUTime": seconds, "Parameters": 100})
    return house.pilot()


def long_ones(house, pilot, **free):
    """How many of the claims got a job of the second task queue."""
    found = 0
    for _ in range(80):
        (job,) = house.claim(pilot, resource={"cores": 3, "memory_mb": 2_000, "norm_cpu_seconds": 0, **free})
        house.report(pilot, job)
        found += job["id"] >= LONG
    return found


@pytest.mark.slow
def test_a_pilot_gets_jobs_that_end_with_what_it_runs(house, pilot):
    """Seven of eight draws are packed, and the eighth is drawn."""
    assert long_ones(house, pilot, last_end_s=900) >= 65


def test_short_ones_where_long_ones_would_keep_it(house, pilot):
    assert long_ones(house, pilot, last_end_s=90) <= 15


@pytest.mark.slow
@pytest.mark.parametrize("free", [{}, {"last_end_s": None}, {"last_end_s": 0}])
def test_pilots_that_do_not_say_what_they_run_draw(house, pilot, free):
    assert 20 <= long_ones(house, pilot, **free) <= 60


def test_it_can_be_switched_off(house, pilot):
    house.core.live.queues.packs = False
    assert 20 <= long_ones(house, pilot, last_end_s=900) <= 60


@pytest.mark.parametrize("wrong", [-1, "soon", 1e400])
def test_ends_that_are_none(house, pilot, wrong):
    free = {"cores": 3, "memory_mb": 2_000, "norm_cpu_seconds": 0, "last_end_s": wrong}
    body = house.claim_body(resource=free)
    assert house.call("POST", "/v1/pilots/claim", body, token=pilot).status == 400
