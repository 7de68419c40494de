"""Lists of SubmitPools, as users and administrators see them."""

import pytest
from tests.api.test_api_refresh import MOVED, configure, keep

pytestmark = pytest.mark.stores


def pools(house, token="ann", query=""):
    return house.get(f"/v1/submit-pools{query}", token)


def test_the_answer_about_a_pool(house):
    wanted = {"Requirements": {"Software": ["root", "gate"], "Memory": "1 GB"}}
    house.submitted(wanted, wanted, {**wanted, "OwnerGroup": "physics"})
    held = house.submitted(wanted)
    array = house.submitted({**wanted, "Parameters": 5})
    house.control("hold", held)
    house.control("hold", array, array + 1)
    (running,) = house.claim(house.pilot("North"))
    house.now += 50
    keep(house)
    told = pools(house)
    assert (told["total"], told["last_pass"]["cause"], told["last_pass"]["at"]) == (1, "start", house.now)
    (row,) = told["pools"]
    assert row["requirements"] == {
        "Software": {"kind": "list", "unit": "", "wanted": ["gate", "root"]},
        "Memory": {"kind": "number", "unit": "MB", "wanted": [1024]},
    }
    assert (row["vo"], row["queues"], row["unused_since"]) == ("lab", 1, None)
    assert row["jobs"] == {"waiting": 5, "held": 3, "running": 1}
    assert (row["created_at"], row["refreshed_at"]) == (house.now - 50, house.now)
    shown = house.get(f"/v1/submit-pools/{row['id'][:12]}")
    assert {name: shown[name] for name in row} == row
    assert shown["served_by"] == [{"site": "North", "ce": "ce.north", "queue": "short"}]
    assert [one["id"] for one in shown["passes"]] == [1]
    house.report("pilot1", running)


def test_jobs_that_nothing_can_run_count_as_held(house):
    house.submitted(*[{"Requirements": {"Software": "root"}}] * 3)
    configure(house, MOVED.replace('Software = ["root", "geant"]', ""))
    (row,) = pools(house)["pools"]
    assert (row["jobs"], row["queues"]) == ({"waiting": 0, "held": 3, "running": 0}, 0)


def test_pools_with_most_jobs_come_first_up_to_a_limit(house):
    for number in (1, 3, 2):
        house.submitted(*[{"Requirements": {"Memory": 100 * number}}] * number)
    told = pools(house, query="?limit=2")
    assert [row["jobs"]["waiting"] for row in told["pools"]] == [3, 2]
    assert told["total"] == 3


def test_users_see_the_pools_of_their_vo(house):
    house.user("olaf", "guests", vo="other")
    house.submitted({"Requirements": {"Memory": 100}})
    house.submitted({"CPUTime": 100, "Requirements": {"CPUTime": 100}}, token="olaf")
    mine, his = (pools(house, who)["pools"] for who in ("ann", "olaf"))
    assert (mine[0]["vo"], his[0]["vo"], len(mine), len(his)) == ("lab", "other", 1, 1)
    assert house.call("GET", "/v1/submit-pools?vo=other", token="ann").code == "not-found"
    assert house.call("GET", f"/v1/submit-pools/{his[0]['id']}", token="ann").code == "not-found"
    assert {row["vo"] for row in pools(house, "admin")["pools"]} == {"lab", "other"}
    assert {row["vo"] for row in pools(house, "admin", "?vo=other")["pools"]} == {"other"}
    assert house.get(f"/v1/submit-pools/{his[0]['id']}", "admin")["id"] == his[0]["id"]


@pytest.mark.parametrize("name", ["req2:ffff", "%", "_", "x' OR 1=1 --", "*"])
def test_a_pool_that_is_not_there(house, name):
    house.submitted({"Requirements": {"Memory": 100}})
    assert house.call("GET", f"/v1/submit-pools/{name}", token="ann").code == "not-found"


def test_a_beginning_that_several_pools_have(house):
    house.submitted({"Requirements": {"Memory": 100}}, {"Requirements": {"Memory": 200}})
    assert house.call("GET", "/v1/submit-pools/req2:", token="ann").code == "conflict"


@pytest.mark.parametrize("limit", ["-1", "x", "10001", "1e3"])
def test_a_limit_that_makes_no_sense(house, limit):
    assert house.call("GET", f"/v1/submit-pools?limit={limit}", token="ann").code == "invalid-request"


def test_sites_that_a_description_names(house):
    """They are computed when it is read, from the last refresh; none is stored."""
    job = house.submitted({"Requirements": {"Memory": 1_000}})
    assert house.get(f"/v1/jobs/{job}")["sites"] == []
    house.side.policy.add_eligible_sites = True
    assert house.get(f"/v1/jobs/{job}")["sites"] == ["North", "South"]
    for more, sites in (
        ({"Site": ["North", "South"], "BannedSite": "South"}, ["North"]),
        ({"Site": "South"}, ["South"]),
    ):
        other = house.submitted({"Requirements": {"Memory": 1_000}, **more})
        assert house.get(f"/v1/jobs/{other}")["sites"] == sites
    assert house.get(f"/v1/jobs/{house.submitted()}")["sites"] == []
    assert all("sites" not in one for one in house.claim(house.pilot("North"), 2))
