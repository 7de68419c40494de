"""POST /v1/plan/shares: parts of the starts before and after, held against the lottery that gives them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lodesman.decide.director.options import read_options
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.reads import plans
from lodesman.server.store.statement import ANY


def plan(house, shares, token="admin", status=200):
    answer = house.call("POST", "/v1/plan/shares", {"shares": shares}, token=token)
    assert answer.status == status, answer.body
    return answer.json if status == 200 else answer.json["error"]


def parts(found, when="after"):
    return {row["group"]: row["part"][when] for row in found["groups"]}


@pytest.fixture
def crowd(house):
    """Waiting jobs of physics anywhere, of bio in the South only; cleo's of open in the North only."""
    house.user("cleo", "open")
    house.submitted({"Parameters": 50})
    house.submitted({"Parameters": 30, "Site": "South"}, token="bob")
    house.submitted({"Parameters": 20, "Site": "North"}, token="cleo")
    return house


def test_parts_of_all_groups_with_waiting_jobs_before_and_after(crowd):
    found = plan(crowd, {"bio": 6_000})
    assert parts(found, "before") == {"physics": 0.6, "bio": 0.2, "open": 0.2}
    assert parts(found) == {"physics": 0.3, "bio": 0.6, "open": 0.1}
    assert found["changed"] == [{"group": "bio", "before": 1_000.0, "after": 6_000.0}]
    rows = {row["group"]: row for row in found["groups"]}
    assert rows["bio"]["share"] == {"before": 1_000.0, "after": 6_000.0}
    assert rows["physics"]["share"] == {"before": 3_000.0, "after": 3_000.0}
    assert {name: row["waiting"] for name, row in rows.items()} == {"physics": 50, "bio": 30, "open": 20}
    assert (found["notices"], found["without_waiting_jobs"]) == ([], [])


def test_groups_that_gain_most_come_first(crowd):
    assert [row["group"] for row in plan(crowd, {"bio": 6_000})["groups"]] == ["bio", "open", "physics"]
    assert plan(crowd, {"physics": 100_000})["groups"][0]["group"] == "physics"


def test_where_the_same_groups_compete(crowd):
    places = {tuple(place["sites"]): place for place in plan(crowd, {"physics": 1_000})["places"]}
    assert set(places) == {("North",), ("South",)}
    assert places["North",]["groups"] == {
        "open": {"before": 0.25, "after": 0.5}, "physics": {"before": 0.75, "after": 0.5},
    }  # fmt: skip
    assert set(places["South",]["groups"]) == {"bio", "physics"}
    assert [place["queues"] for place in places.values()] == [1, 1]


def test_a_share_of_nothing_is_the_least_that_the_configuration_knows(crowd):
    found = plan(crowd, {"physics": 0})
    assert found["changed"][0]["after"] == 0.001
    assert parts(found)["physics"] == pytest.approx(0.001 / 2_000.001)
    assert "counts as" in found["notices"][0]["message"]
    assert found["notices"][0]["section"] == "group physics"


def test_a_group_without_waiting_jobs_changes_nothing(house):
    house.submitted()
    found = plan(house, {"bio": 5})
    assert found["without_waiting_jobs"] == ["bio"]
    assert parts(found) == parts(found, "before") == {"physics": 1.0}
    house.control("kill", 1)
    assert plan(house, {"bio": 5})["groups"] == []


def test_a_group_that_only_its_jobs_make_known(house):
    house.user("lone", "strays")
    house.submitted(token="lone")
    house.submitted()
    found = plan(house, {"strays": 3_000})
    assert found["changed"] == [{"group": "strays", "before": 1_000.0, "after": 3_000.0}]
    assert parts(found) == {"strays": 0.5, "physics": 0.5}


def test_vos_do_not_compete(crowd):
    crowd.user("far", "guests", vo="other")
    crowd.submitted(token="far")
    found = plan(crowd, {"bio": 6_000})
    assert {row["vo"] for row in found["groups"]} == {"lab", "other"}
    assert parts(found)["guests"] == 1.0
    assert parts(found)["bio"] == 0.6


def test_an_unknown_group_gets_a_suggestion(crowd):
    told = plan(crowd, {"phisics": 5}, status=404)
    assert (told["code"], told["data"]["group"], told["hint"]) == (
        "not-found",
        "phisics",
        "Did you mean physics?",
    )
    assert "bio" in plan(crowd, {"xyz": 5}, status=404)["hint"]


def test_how_many_starts_an_hour_that_is(crowd):
    assert plan(crowd, {"bio": 6_000})["groups"][0]["starts_an_hour"] is None
    pilot = crowd.pilot(cores=10, node={"cores": 10})
    ten = {"cores": 10, "memory_mb": 2_000, "norm_cpu_seconds": 0}
    assert len(crowd.claim(pilot, 10, resource=ten)) == 10
    rows = {row["group"]: row["starts_an_hour"] for row in plan(crowd, {"bio": 6_000})["groups"]}
    assert rows["bio"] == {"before": pytest.approx(2.0), "after": pytest.approx(6.0)}
    crowd.now += 3_601
    assert plan(crowd, {"bio": 6_000})["groups"][0]["starts_an_hour"] is None


def test_starts_by_private_pilots_are_no_part_of_what_shares_give(crowd):
    for group in ("", "physics", "physics"):
        pilot = crowd.pilot(cores=10, node={"cores": 10}, group=group)
        assert len(crowd.claim(pilot, 1)) == 1
    found = plan(crowd, {"bio": 6_000})
    assert found["private_starts_an_hour"] == {"lab": pytest.approx(2.0)}
    assert sum(row["starts_an_hour"]["before"] for row in found["groups"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("section", "warning"),
    [
        ({}, []),
        ({"PrivatePilotFraction": 0.3}, ["30 % of the pilots of submission pool Local are private"]),
        (
            {"PrivatePilotFraction": 0.3, "LegacyPrivatePilotFraction": "yes"},
            ["70 % of the pilots of submission pool Local are private"],
        ),
    ],
)
def test_a_part_of_the_pilots_outside_the_shares_is_a_warning(crowd, backend, section, warning):
    crowd.side.director = crowd.director(backend)
    crowd.side.director.options = read_options(section)
    messages = [one["message"].split(" (")[0] for one in plan(crowd, {"bio": 6_000})["notices"]]
    assert messages == warning


class Gap:
    """Numbers that are missing, as a batch leaves them that was rolled back."""

    def apply(self, tx):
        tx.write("UPDATE attempt SET id = id + 1000 WHERE id > 3", rows=ANY)


def test_starts_are_counted_over_less_than_an_hour_when_there_were_many(crowd, monkeypatch):
    """Numbers of attempts have gaps: what counts is how many there are, not how far their numbers reach."""
    monkeypatch.setattr(plans, "_MOST_STARTS", 5)
    pilot = crowd.pilot(cores=10, node={"cores": 10})
    assert len(crowd.claim(pilot, 3)) == 3
    crowd.now += 600
    assert len(crowd.claim(pilot, 3)) == 3
    crowd.now += 600
    crowd.do(Gap())
    rows = {row["group"]: row["starts_an_hour"] for row in plan(crowd, {"bio": 6_000})["groups"]}
    total = sum(row["before"] for row in rows.values())
    assert total == pytest.approx(5 * 3_600 / 1_200)


def test_the_director_s_weights_follow(crowd):
    found = {row["group"]: row["director"] for row in plan(crowd, {"bio": 6_000})["groups"]}
    assert found == {
        "physics": {"before": pytest.approx(0.6), "after": pytest.approx(0.3)},
        "bio": {"before": pytest.approx(0.2), "after": pytest.approx(0.6)},
        "open": {"before": pytest.approx(0.2), "after": pytest.approx(0.1)},
    }


def test_nothing_is_changed(crowd):
    plan(crowd, {"bio": 6_000})
    assert crowd.core.policy.share_of("bio") == crowd.side.policy.share_of("bio") == 1_000
    assert crowd.core.live.queues.matcher.lottery.shares["bio"].share == 1_000


@pytest.mark.parametrize("share", [0, 1, 500, 20_000])
@pytest.mark.parametrize("where", ["North", "South"])
def test_the_parts_are_those_of_the_draws(crowd, share, where):
    """Drawn by the matcher with the shares that the configuration would have."""
    found = plan(crowd, {"physics": share})
    (place,) = [place for place in found["places"] if place["sites"] == [where]]
    text = (
        f'[group.physics]\nvo = "lab"\nshare = {share}\n[group.bio]\nvo = "lab"\n[group.open]\nvo = "lab"\n'
    )
    shares = Policy(load_resources([("g.toml", text)])).shares()
    drawn, rng, draws = Counter(), random.Random(11), 400
    matcher = Matcher()
    matcher.lottery.set_shares(shares)
    for tq_id, key, waiting in crowd.side.keeper.snapshot.waiting:
        matcher.index.put(tq_id, key, waiting, now=0.0)
    offer = next(one for one in crowd.side.policy.vo_config("lab").offers if one.queue.site == where)
    for _ in range(draws):
        undo = []
        (tq_id,) = matcher.choose(offer.request, 1, now=0.0, rng=rng, undo=undo)
        drawn[matcher.index.key(tq_id).group] += 1
        for step in reversed(undo):
            step()
    for group, part in place["groups"].items():
        expected = part["after"]
        assert (
            abs(drawn[group] / draws - expected) <= 4 * (max(expected * (1 - expected), 1e-3) / draws) ** 0.5
        )


@pytest.mark.parametrize(
    "body", [{}, {"shares": {}}, {"shares": {"bio": -1}}, {"shares": {"bio": "much"}}, {"shares": []}, b"{"]
)
def test_a_body_that_is_none_is_refused(house, body):
    answer = house.call("POST", "/v1/plan/shares", body, token="admin")
    assert (answer.status, answer.code) == (400, "invalid-request")


def test_administrators_only(house):
    for token, status in (("", 401), ("ann", 403), ("admin", 200), ("service", 401)):
        body = {"shares": {"bio": 5}}
        assert house.call("POST", "/v1/plan/shares", body, token=token).status == status
