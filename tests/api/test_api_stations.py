"""Jobs that ask for something in the ad of a site, judged when pilots are placed: a SAM station, or its numbers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest
from tests.api.test_api_change_jobs import changed
from tests.api.test_api_plan_job import plan_of
from tests.api.test_api_refresh import keep
from tests.api.test_api_site_ads import ad, taken

from lodesman.decide.resources import load_resources
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.site_matching import matches_of
from lodesman.server.store.read.pilots import pilots_in_short
from lodesman.server.store.site_ads import live_matches
from lodesman.wire.nodes import QueueId

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
        self.keeper = keep(house)
        self.placed: Counter[tuple[int, str]] = Counter()
        self.director.launch = self._launch

    def _launch(self, decision, _offers):
        for one in decision.placement.placements:
            self.placed[one.order.tq_id, one.queue_id.site] += one.count

    def advertise(self, site, number=1, **attributes):
        taken(self.house, self.tokens[site], ad(number, site=site, **{**OPEN, **attributes}))

    def refresh(self):
        """The cause of the refresh that is due, '' if there is none."""
        return self.keeper.tick(self.house.side.policy, self.house.now)

    def pilot(self, site):
        return self.house.pilot(site, ce="c", queue="q")

    def why(self, job, queue="North/c/q"):
        self.house.side.keeper.refresh(self.house.now, rest=0.0)
        return self.house.get(f"/v1/jobs/{job}/why?queue={queue}")

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


def test_sites_that_cannot_take_it_have_no_slots_for_it_and_time_does_not_help(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    grid.advertise("South", StationName='"lyon"')
    job, other = (grid.house.submitted({"CPUTime": 500, "Stations": [name]}) for name in ("cern", "lyon"))
    grid.sites_of(job)
    nowhere, somewhere = grid.why(job), grid.why(other)
    assert (nowhere["main_reason"], nowhere["turn"]["slots"], somewhere["turn"]["slots"]) == (
        "site-gate",
        0,
        50,
    )
    assert nowhere["who"].startswith("a site that can run it, by advertising what it asks for; or you, ")
    assert "time" not in nowhere["who"]


TEXTS = [
    'Executable = "/bin/true"; CPUTime = 500; Stations = {"fnal-farm", "cern"};',
    "Executable = /bin/true\nCPUTime = 500\nstations = cern, FNAL-farm\n",
    '{"Executable": "/bin/true", "CPUTime": 500, "Stations": ["cern", "fnal-farm"]}',
]


def test_a_list_of_stations_is_an_attribute_in_each_language(grid):
    """The seed: users add a list of station names to the description, and it is translated into a constraint."""
    house = grid.house
    jobs = [house.call("POST", "/v1/jobs", {"text": text}, token="ann").json["first"] for text in TEXTS]
    assert len({house.get(f"/v1/jobs/{job}")["task_queue"] for job in (jobs[0], jobs[2])}) == 1
    grid.advertise("North", StationName='"lyon"')
    grid.advertise("South", StationNames='{"lyon", "CERN"}')
    for job in jobs:
        assert grid.sites_of(job) == {"South"}
        assert house.get(f"/v1/jobs/{job}")["state"] == "Waiting"
    grid.refresh()
    words = '(StationName, {"cern", "fnal-farm"}) || member("cern", StationNames)'
    (step,) = [one for one in grid.why(jobs[0])["chain"] if one["step"] == "submit_pool"]
    assert (step["holds"], step["queues"], words in step["text"]) == (True, 1, True), step["text"]
    for station, queues in (("cern", 1), ("nowhere", 0)):
        (cohort,) = plan_of(house, {"Stations": station})["cohorts"]
        (step,) = [one for one in cohort["chain"] if one["step"] == "submit_pool"]
        assert step["queues"] == queues, step["text"]


def test_stations_stay_what_a_description_of_a_batch_says_and_can_be_changed(grid):
    house = grid.house
    more = {"CPUTime": 500, "Requirements": {"Constraint": 'CE != "x"', "Memory": "1000 MB"}}
    job = house.submitted(*[{**more, "Stations": ["cern"], "JobName": name} for name in "ab"])

    def describe():
        return json.loads(house.get(f"/v1/jobs/{job}/description?form=json")["text"])

    assert describe()["Stations"] == ["cern"]
    assert describe()["Requirements"] == more["Requirements"]
    grid.advertise("North", StationName='"lyon"')
    assert changed(house, job, Stations=["Lyon", "fnal-farm"]) == (1, 0)
    assert describe()["Stations"] == ["fnal-farm", "Lyon"]
    assert describe()["Requirements"] == more["Requirements"]
    assert grid.sites_of(job) == {"North"}
    assert changed(house, job, Stations=None) == (1, 0)
    assert "Stations" not in describe()
    assert describe()["Requirements"] == more["Requirements"]


def test_each_member_of_an_array_may_name_another_station(grid):
    text = 'Executable = "/bin/true"; CPUTime = 500; Parameters = {"cern", "lyon"}; Stations = "%s";'
    job = grid.house.call("POST", "/v1/jobs", {"text": text}, token="ann").json["first"]
    grid.advertise("North", StationName='"lyon"')
    grid.advertise("South", StationName='"cern"')
    assert (grid.sites_of(job), grid.sites_of(job + 1)) == ({"South"}, {"North"})


def test_without_any_ad_such_a_job_gets_no_pilots_and_why_says_what_is_missing(grid):
    job = grid.job('StationName == "fnal-farm"')
    assert grid.sites_of(job) == set()
    grid.house.side.keeper.refresh(grid.house.now, rest=0.0)
    found = grid.house.get(f"/v1/jobs/{job}/why")
    assert found["main_reason"] == "site-gate"
    assert 'North: StationName == "fnal-farm" is unknown: the site has not advertised' in found["summary"]


def test_other_jobs_go_anywhere_at_the_same_time(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    choosy, plain = grid.job('StationName == "fnal-farm"'), grid.house.submitted(*[{"CPUTime": 500}] * 30)
    assert grid.sites_of(choosy) == {"North"}
    assert grid.sites_of(plain) == {"North", "South", "Far"}


def test_numbers_of_a_gate_and_parameters_of_queues_stand_in_one_expression(grid):
    grid.advertise("North", CurrentJobs=60)
    grid.advertise("South", CurrentJobs=10)
    job = grid.job("CurMatches < 50 || Memory < 1000")
    grid.refresh()
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


# --- pilots that are there already --------------------------------------------------------------------------

FNAL = 'StationName == "fnal-farm"'


def test_a_pilot_at_a_site_that_does_not_advertise_the_station_gets_no_job_that_names_it(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    grid.advertise("South", StationName='"lyon"')
    job = grid.job(FNAL)
    pilots = {site: grid.pilot(site) for site in ("North", "South", "Far")}
    assert grid.house.claim(pilots["North"]) == [], "no refresh has found out yet where it may run"
    assert grid.refresh() == "ads of sites"
    assert [grid.house.claim(pilots[site]) for site in ("South", "Far")] == [[], []]
    assert [one["id"] for one in grid.house.claim(pilots["North"])] == [job]


def test_another_ad_moves_them_and_refreshes_the_pools_that_ask_for_it_alone(grid):
    grid.house.submitted({"CPUTime": 500, "Requirements": {"Memory": 400}, "Site": "Far"})
    grid.advertise("North", StationName='"fnal-farm"')
    job = grid.job(FNAL)
    grid.refresh()
    north, south = grid.pilot("North"), grid.pilot("South")
    assert [one["id"] for one in grid.house.claim(north)] == [job]
    grid.advertise("North", 2, StationName='"fnal-farm"', CurrentJobs=50)
    assert grid.refresh() == "", "what it asks for is as it was"
    grid.advertise("North", 3, StationName='"lyon"')
    grid.advertise("South", 1, StationName='"FNAL-farm"')
    assert grid.refresh() == "ads of sites"
    assert grid.house.claim(north, 40) == []
    assert grid.house.claim(south) != []
    pool = grid.house.get("/v1/submit-pools")["pools"][0]["id"]
    (last, *_) = grid.house.get(f"/v1/submit-pools/{pool}")["passes"]
    assert (last["cause"], last["pools"], last["changed"]) == ("ads of sites", 1, 1)


def test_an_ad_that_is_too_old_says_nothing(grid):
    grid.advertise("North", StationName='"fnal-farm"')
    grid.job(FNAL)
    grid.refresh()
    pilot = grid.pilot("North")
    assert len(grid.house.claim(pilot)) == 1
    grid.house.now += 901.0
    grid.refresh()
    assert grid.house.claim(pilot) == []
    grid.advertise("North", 2, StationName='"fnal-farm"')
    assert grid.refresh() == "ads of sites"
    assert len(grid.house.claim(pilot)) == 1


def test_more_such_jobs_open_no_queue_that_the_ads_exclude(grid):
    grid.advertise("North", StationName='"lyon"')
    grid.job(FNAL)
    grid.refresh()
    grid.job(FNAL)
    pilot = grid.pilot("North")
    assert grid.house.claim(pilot) == []
    assert grid.refresh() == ""
    assert grid.house.claim(pilot) == []


def test_a_pilot_that_waits_is_answered_when_its_site_advertises_the_station(grid):
    house = grid.house
    job = grid.job(FNAL)
    grid.refresh()
    task, connection = house.open(
        "POST", "/v1/pilots/claim", house.claim_body(wait_s=30), token=grid.pilot("North")
    )
    house.run(asyncio.sleep(0))
    grid.advertise("North", StationName='"fnal-farm"')
    grid.refresh()
    house.run(task)
    assert [one["id"] for one in connection.answer().json["jobs"]] == [job]


def test_counters_keep_no_job_from_a_pilot_that_is_there_if_the_site_has_an_ad(grid):
    grid.advertise("North", CurrentJobs=60)
    job = grid.job("CurMatches < 50")
    grid.refresh()
    assert grid.house.claim(grid.pilot("South")) == []
    assert [one["id"] for one in grid.house.claim(grid.pilot("North"))] == [job]


def test_jobs_are_not_held_while_no_site_says_what_they_ask_for(grid):
    job = grid.job(FNAL)
    keep(grid.house)
    assert grid.house.get(f"/v1/jobs/{job}")["state"] == "Waiting"


def test_why_says_the_clause_and_what_the_site_has(grid):
    grid.advertise("North", StationName='"lyon"')
    grid.advertise("South", StationName='"fnal-farm"')
    job = grid.job(FNAL)
    (before,) = [one for one in grid.why(job)["chain"] if one["step"] == "submit_pool"]
    assert (before["holds"], before["queues"]) == (None, None)
    grid.refresh()
    found = grid.why(job)
    (step,) = [one for one in found["chain"] if one["step"] == "submit_pool"]
    assert (step["holds"], step["queues"]) == (True, 1)
    assert step["text"].endswith(
        f'is served by 1 queue; what their sites advertise excludes 2 queues: North: {FNAL} is false: StationName = "lyon"; '
        f"Far: {FNAL} is unknown: the site has not advertised"
    )
    assert (found["queue"]["room"], found["queue"]["gate"]) == (
        0, f'North: {FNAL} is false: StationName = "lyon"',
    )  # fmt: skip
    assert grid.why(job, "South/c/q")["queue"]["gate"] != found["queue"]["gate"]


def test_a_plan_says_where_it_could_run(grid):
    grid.advertise("South", StationName='"fnal-farm"')
    plan = plan_of(grid.house, {"Requirements": {"Constraint": FNAL}, "CPUTime": 500})
    (step,) = [one for one in plan["cohorts"][0]["chain"] if one["step"] == "submit_pool"]
    assert step["queues"] == 1


def test_pilots_elsewhere_are_no_supply_for_such_jobs(grid):
    """A director that took them for usable would send none where the jobs can run."""
    grid.advertise("North", StationName='"fnal-farm"')
    for _ in range(30):
        grid.pilot("South")
    job = grid.job(FNAL)
    grid.refresh()
    assert grid.sites_of(job) == {"North"}


def test_the_pending_reason_counts_no_idle_pilot_at_a_site_that_does_not_advertise_the_station(grid):
    grid.advertise("South", StationName='"lyon"')
    grid.pilot("South")
    job = grid.job(FNAL)
    grid.refresh()
    assert grid.sites_of(job) == set()
    house = grid.house
    house.side.keeper.refresh(house.now, rest=0.0)
    judged = MainReasons(house.side.db, house.side.keeper, unfit=lambda: grid.keeper.unfit)
    (found,) = judged.judge(house.side.policy, house.now).values()
    assert found.reason == house.get(f"/v1/jobs/{job}/why")["main_reason"] == "site-gate"


def test_sites_are_not_blamed_where_the_batch_system_refuses(grid):
    """One of three sites would take the pilots, and there they do not start."""
    house = grid.house
    house.side.keeper.ask_director = grid.director.now
    grid.advertise("North", StationName='"cern"')
    grid.advertise(
        "South", Requirements='CurMatches < MaxJobs && TARGET.JobOwner == "bob"', StationName='"cern"'
    )
    job = grid.job('member(StationName, {"cern"})')
    for _ in range(6):
        grid.director.note_outcome(
            QueueId("North", "c", "q"), accepted=False, reason="sbatch: not found", now=house.now
        )
        grid.sites_of(job)
    told = grid.why(job)
    assert told["main_reason"] == "pilots-do-not-start"
    assert "sbatch: not found" in told["summary"]
    (step,) = [one for one in told["chain"] if one["step"] == "site_gates"]
    assert (step["holds"], step["queues"]) == (True, 2)
    assert step["text"].startswith("2 of 3 eligible queues shut by the gates of their sites: ")
    keeper = house.side.keeper
    judged = MainReasons(house.side.db, keeper).judge(house.side.policy, house.now)
    assert [one.reason for one in judged.values()] == ["pilots-do-not-start"]
