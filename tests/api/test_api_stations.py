"""Jobs that ask for something in the ad of a site, judged when pilots are placed: a SAM station, or its numbers."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.api.test_api_site_ads import ad, taken

from lodesman.background.site_matching import matches_of
from lodesman.resources import load_resources
from lodesman.store.read.pilots import pilots_in_short
from lodesman.store.site_ads import live_matches

SITES = "".join(
    f"""
[site.{name}.ce.c.queue.q]
CPUTime = 1000
Slots = 50
MaxWaitingJobs = 50
MaxTotalJobs = 50
Memory = {memory}
"""
    for name, memory in (("North", 2000), ("South", 2000), ("Far", 500))
)
GROUP = '[group.physics]\nvo = "lab"\n'
OPEN = {
    "MaxJobs": 100,
    "MaxSubmittingJobs": 100,
    "CurrentJobs": 0,
    "CurrentSubmittingJobs": 0,
    "CurrentPendingJobs": 0,
}


class Grid:
    """Three sites, of which North and South may advertise; what iterations place by task queue and site."""

    def __init__(self, house, backend):
        self.house = house
        house.core.policy = house.side.policy = house.policy(load_resources([("s.toml", SITES + GROUP)]))
        self.tokens = {name: house.site(name) for name in ("North", "South")}
        self.backend, self.director = backend, house.director(backend)
        house.side.director = self.director
        self.placed: Counter[tuple[int, str]] = Counter()
        self.director.launch = self._launch

    def _launch(self, decision, _offers):
        for one in decision.placement.placements:
            self.placed[one.order.tq_id, one.queue_id.site] += one.count

    def advertise(self, site, number=1, **attributes):
        taken(self.house, self.tokens[site], ad(number, site=site, **{**OPEN, **attributes}))

    def job(self, constraint, **more):
        """Many such jobs; the number of the first one."""
        job = {"CPUTime": 500, "Requirements": {"Constraint": constraint, **more}}
        return self.house.submitted(*[job] * 30)

    def sites_of(self, job):
        """Where pilots for it go, of some iterations that all begin alike."""
        self.placed.clear()
        for _ in range(5):
            self.house.now += 20.0
            self.backend.now = self.house.now
            self.director.tick(self.house.now)
        tq_id = self.house.get(f"/v1/jobs/{job}")["task_queue"]
        return {site for (number, site), count in self.placed.items() if number == tq_id and count}


@pytest.fixture
def grid(house, backend):
    return Grid(house, backend)


def test_pilots_go_to_the_sites_that_advertise_a_station_of_the_list(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    grid.advertise("South", StationName='"lyon"')
    job = grid.job('member(StationName, {"fnal-farm", "cern"})')
    assert grid.sites_of(job) == {"North"}
    grid.advertise("South", 2, StationName='"cern"')
    assert grid.sites_of(job) == {"North", "South"}


def test_without_any_ad_such_a_job_gets_no_pilots_and_why_says_what_is_missing(grid):
    job = grid.job('StationName == "fnal-farm"')
    assert grid.sites_of(job) == set()
    grid.house.side.keeper.refresh(grid.house.now, rest=0.0)
    found = grid.house.get(f"/v1/jobs/{job}/why")
    assert found["main_reason"] == "site-gate"
    assert 'StationName == "fnal-farm" is not true: the site has not advertised' in found["summary"]


def test_other_jobs_go_anywhere_at_the_same_time(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    choosy, plain = grid.job('StationName == "fnal-farm"'), grid.house.submitted(*[{"CPUTime": 500}] * 30)
    assert grid.sites_of(choosy) == {"North"}
    assert grid.sites_of(plain) == {"North", "South", "Far"}


def test_numbers_of_a_gate_and_parameters_of_queues_stand_in_one_expression(grid):
    grid.advertise("North", CurrentJobs=60)
    grid.advertise("South", CurrentJobs=10)
    job = grid.job("CurMatches < 50 || Memory < 1000")
    assert grid.sites_of(job) == {"South", "Far"}


def test_any_attribute_of_an_ad_may_be_asked_for(grid):
    grid.advertise("North", Load=0.9)
    grid.advertise("South", Load=0.1)
    assert grid.sites_of(grid.job("SiteAd.Load < 0.5")) == {"South"}


def test_pilots_that_are_read_already_are_the_matches_that_the_store_has(grid):
    house = grid.house
    grid.advertise("North", CurrentJobs=60)
    for site in ("North", "South"):
        house.prepare_pilot(site, ce="c", queue="q")
        house.pilot(site, ce="c", queue="q")
    assert matches_of(pilots_in_short(house.side.db)) == live_matches(house.side.db)
    policy, pools, matcher = house.side.policy, grid.director.options.pools, grid.director.sites
    read, given = (
        matcher.look(house.side.db, policy, pools, house.now, pilots).sites["North"].matched
        for pilots in (None, pilots_in_short(house.side.db))
    )
    assert read == given == 2
