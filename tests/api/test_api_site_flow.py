"""Sites regulate the flow towards themselves: ads come by HTTP, the director places pilots, their rows are the ledger."""

from __future__ import annotations

import pytest
from tests.api.test_api_site_ads import ad, gate, send, taken

from lodesman.decide.broker.ad import LIFETIME_S
from lodesman.decide.resources import load_resources
from lodesman.server.loops.site_matching import GateOptions
from lodesman.wire.vocabulary import Waking

SITES = """
[site.North.ce.c.queue.q]
CPUTime = 1000
Slots = 50
MaxWaitingJobs = 50
MaxTotalJobs = 50
{more}
[group.physics]
vo = "lab"
"""


class Flow:
    """A house with one site of 50 slots, and many jobs. What the director places is stored, as if it was submitted."""

    def __init__(self, house, backend, more="") -> None:
        self.house, self.north = house, house.site("North")
        house.core.policy = house.side.policy = house.policy(
            load_resources([("s.toml", SITES.format(more=more))])
        )
        self.backend = backend
        self.director = house.director(backend)
        house.side.director = self.director
        self.director.launch = self._launch
        house.submitted(*[{"CPUTime": 500}] * 40)
        self.stamps: list[str] = []

    def _launch(self, decision, _offers):
        offer = {"ce": "c", "queue": "q", "norm_cpu_seconds": 1000, "platforms": []}
        for one in decision.placement.placements:
            for _ in range(one.count):
                token = self.house.prepare_pilot(one.queue_id.site, **offer)
                self.stamps.append(token.removeprefix("join-"))

    def iterate(self):
        """How many pilots the director sends now."""
        before = len(self.stamps)
        self.house.now += 20.0
        self.backend.now = self.house.now
        self.director.tick(self.house.now)
        return len(self.stamps) - before

    def advertise(self, number, **attributes):
        return taken(self.house, self.north, ad(number, CurrentPendingJobs=0, **attributes))

    def end(self, count):
        """Some of the pilots start, find nothing that they can do, and leave."""
        for stamp in self.stamps[:count]:
            body = {"join_token": f"join-{stamp}", "nonce": "n", "node": {"cores": 1}}
            joined = self.house.call("POST", "/v1/pilots/join", body).json
            left = self.house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=joined["token"])
            assert left.status == 200
        del self.stamps[:count]

    def many(self):
        """What iterations send until they send no more."""
        return sum(self.iterate() for _ in range(12))


@pytest.fixture
def flow(house, backend):
    return Flow(house, backend)


def shown(stamps):
    return "{" + ", ".join(f'"{one}"' for one in stamps) + "}"


def test_a_site_that_never_advertised_has_its_configured_caps_only(flow):
    assert flow.many() > 10


def test_no_more_are_sent_than_the_ad_says_and_the_next_ad_takes_no_more_than_its_own(flow):
    flow.advertise(1, MaxJobs=10, CurrentJobs=4, CurrentSubmittingJobs=0)
    # MaxSubmittingJobs = 5 bites first, though six more would fit.
    assert flow.many() == 5
    assert gate(flow.house)["shut"].startswith(
        "JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < Max"
    )
    # The site shows three of them as running: two are on their way still.
    flow.advertise(2, MaxJobs=10, CurrentJobs=7, CurrentSubmittingJobs=0, PilotStamps=shown(flow.stamps[:3]))
    assert flow.many() == 1
    assert gate(flow.house)["shut"] == "CurMatches < MaxJobs is false: CurMatches = 10, MaxJobs = 10"
    flow.end(3)  # by our records; the site has them in its ad
    assert flow.many() == 0
    flow.advertise(3, MaxJobs=10, CurrentJobs=4, CurrentSubmittingJobs=0, PilotStamps="{}")
    assert flow.many() == 2  # five are on their way at most
    assert gate(flow.house)["matched"] == 5


def test_a_site_that_is_cut_off_gets_nothing_until_its_next_ad_and_nothing_is_lost(flow):
    house = flow.house
    flow.advertise(1, MaxJobs=20, MaxSubmittingJobs=3, CurrentJobs=0, CurrentSubmittingJobs=0)
    assert flow.many() == 3
    house.now += LIFETIME_S
    flow.end(3)
    assert flow.many() == 0
    assert gate(house)["shut"].startswith("its ad is")
    assert house.get("/v1/jobs/counts", "ann")["counts"][0]["jobs"] == 40
    assert {one["state"] for one in house.get("/v1/jobs?limit=100", "ann")["jobs"]} == {"Waiting"}
    flow.advertise(2, MaxJobs=20, MaxSubmittingJobs=3, CurrentJobs=0, CurrentSubmittingJobs=0)
    assert flow.many() == 3


@pytest.mark.stores
def test_a_strict_gate_counts_what_was_matched_since_the_ad_also_if_it_ended(house, backend):
    flow = Flow(house, backend, more='[site.North]\nGateMode = "strict"')
    requirements = "CurMatches < MaxJobs && JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
    more = {"MaxJobs": 20, "MaxSubmittingJobs": 3, "CurrentJobs": 5, "Requirements": requirements}
    flow.advertise(1, CurrentSubmittingJobs=1, **more)
    assert flow.many() == 2
    flow.end(2)
    assert flow.many() == 0
    assert (gate(house)["mode"], gate(house)["matched"]) == ("strict", 2)
    flow.advertise(2, CurrentSubmittingJobs=1, **more)
    assert flow.many() == 2


def test_options_of_the_broker_hold_for_ads_and_gates(flow):
    house = flow.house
    house.core.gates = house.side.gates = flow.director.sites.options = GateOptions(
        ledger_s=60.0, lifetime_s=100.0
    )
    assert flow.advertise(1)["good_until"] == house.now + 100.0
    pilot = house.prepare_pilot("North", ce="c", queue="q")
    assert (bool(pilot), gate(house)["matched"]) == (True, 1)
    house.now += 61.0
    flow.advertise(2)
    assert gate(house)["matched"] == 0  # the site lists no stamps, or it is lost
    house.now += 101.0
    assert gate(house)["ad"]["is_too_old"]
    assert gate(house)["shut"] == "its ad is 101 s old, older than 100 s"


def test_an_ad_wakes_the_director_and_a_refused_one_does_not(flow):
    said = []
    flow.house.core.announce = said.append
    flow.advertise(7)
    assert said == [Waking.AD]
    assert send(flow.house, flow.north, ad(6)).status == 409
    assert said == [Waking.AD]
