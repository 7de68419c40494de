"""A site whose name has commas and letters beyond ASCII: named, waited at, read back and submitted again."""

from __future__ import annotations

import pytest

from lodesman.decide.resources import load_resources
from lodesman.languages.jobs import read_description

ODD = "S/ one, é"
SITES = f"""
[site."{ODD}"]
VO = ["lab"]
Room = 5
[site."{ODD}".ce."c,1".queue.q]
Slots = 2
CPUTime = 1000
[group.physics]
vo = "lab"
"""


@pytest.fixture
def odd_house(house):
    policy = house.policy(load_resources([("s.toml", SITES)]), add_eligible_sites=True)
    house.core.policy = house.side.policy = policy
    return house


def described(house, job, form):
    told = house.get(f"/v1/jobs/{job}/description?form={form}")
    return told["text"], read_description(told["text"], form=form).record


@pytest.mark.parametrize("attribute", ["Site", "GridCE"])
def test_a_place_can_be_named_whatever_its_name(odd_house, attribute):
    name = ODD if attribute == "Site" else "c,1"
    job = odd_house.submitted({attribute: [name]})
    told = odd_house.get(f"/v1/jobs/{job}/why")
    assert (told["verdict"], told["queues"]["eligible"]) != ("never", 0)
    refused = odd_house.submit({attribute: name})  # two names: a text is parted at commas
    assert refused.code == ("invalid-job" if attribute == "Site" else "impossible")


@pytest.mark.parametrize("form", ["jdl", "cfg", "json"])
def test_what_is_read_can_be_submitted_again(odd_house, form):
    job = odd_house.submitted({"Requirements": {"Room": 5}})
    text, record = described(odd_house, job, form)
    assert record["Site"] == [ODD]
    again = odd_house.submitted(text=text, form=form)
    assert described(odd_house, again, form)[1]["Site"] == [ODD]


@pytest.mark.parametrize("form", ["jdl", "cfg", "json"])
def test_so_can_the_rebuilt_description_of_a_batch(odd_house, form):
    job = odd_house.submitted({"Site": [ODD], "BannedSite": []}, {"Site": [ODD], "GridCE": ["c,1"]})
    text, record = described(odd_house, job + 1, form)
    assert (record["Site"], record["GridCE"]) == ([ODD], ["c,1"])
    again = odd_house.submitted(text=text, form=form)
    assert (
        odd_house.get(f"/v1/jobs/{again}")["task_queue"] == odd_house.get(f"/v1/jobs/{job + 1}")["task_queue"]
    )


def test_the_smallest_change_names_what_can_be_named(odd_house):
    job = odd_house.submitted({"Site": ["Later"]}, hold_if_impossible=True)
    (best, *_) = odd_house.get(f"/v1/jobs/{job}/why")["queues"]["nearest"]
    instead = best["steps"][0]["instead"]
    assert instead == [ODD]
    assert odd_house.submitted({"Site": instead}) > job
