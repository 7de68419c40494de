"""Shares corrected by usage: read from the attempts, drawn by, stored with each draw, shown, and forgotten when too old."""

import json

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.live.rules import forget_old_usage
from lodesman.server.loops import usage_watch
from lodesman.server.loops.usage_watch import UsageWatch
from lodesman.server.reads import usage
from lodesman.wire.groups import ShareSection, TimeSlice

pytestmark = pytest.mark.stores

ON = ShareSection(corrector="usage")


@pytest.fixture
def crowd(house):
    """Much waits of bio and of physics, of which cleo is a second owner; bio alone had 4 starts."""
    house.user("cleo", "physics")
    house.submitted({"Parameters": 4}, token="bob")
    house.early = house.pilot(cores=4)
    assert len(house.claim(house.early, 4)) == 4
    house.submitted({"Parameters": 500})
    house.submitted({"Parameters": 500}, token="cleo")
    house.submitted({"Parameters": 500}, token="bob")
    house.watch = UsageWatch(house.side.db.database.reader(), house.post, house.side.keeper, ON)
    return house


def tick(house, times=3):
    house.side.keeper.refresh(house.now, rest=0.0)
    for _ in range(times):
        house.watch.tick(house.side.policy, house.now)


def drawn(house):
    """The shares that the next claim draws by."""
    return {name: one.share for name, one in house.core.live.queues.matcher.lottery.shares.items()}


# bio used all: 1/4 over 1; physics nothing: 3. 3000 x 3 and 1000 x 1/3 (its least), scaled to 4000.
CORRECTED = {"physics": 3857.0, "bio": 142.9}


def test_nothing_is_read_while_no_corrector_is_configured(crowd, monkeypatch):
    monkeypatch.setattr(usage_watch, "last_attempt_before", lambda *_: pytest.fail("read"))
    crowd.watch.options = ShareSection()
    tick(crowd)
    assert crowd.side.policy.usage is None
    assert drawn(crowd) == {"physics": 3000, "bio": 1000, "open": 1000, "guests": 1000}
    assert crowd.get("/v1/usage", "admin")["correction"] is None


def test_claims_are_drawn_by_corrected_shares_which_are_stored_with_them(crowd):
    tick(crowd)
    assert drawn(crowd) == CORRECTED | {"open": 1000, "guests": 1000}
    pilot = crowd.pilot("South", cores=1)
    for _ in range(30):
        (job,) = crowd.claim(pilot, resource={"cores": 1, "memory_mb": 8_000, "norm_cpu_seconds": 90_000})
        crowd.report(pilot, job)
    claims = crowd.get("/v1/usage", "admin")["claims"]
    later = [one for one in claims if one["shares"] == CORRECTED]
    assert sum(one["count"] for one in later) == 30
    groups = {row["group"]: row for row in crowd.get("/v1/usage", "admin")["groups"]}
    assert groups["physics"]["share"] == 3000
    # What 30 starts are worth by the corrected shares, beside the 4 for which bio was alone.
    assert groups["physics"]["target"] == pytest.approx(30 * 3857.0 / 3999.9)
    assert sum(one["count"] for one in later if one["group"] == "bio") <= 5


def test_usage_says_what_was_used_and_what_became_of_each_share(crowd):
    tick(crowd)
    found = crowd.get("/v1/usage", "admin")["correction"]
    assert (found["at"], found["currency"], found["most"]) == (crowd.now, "starts", 5.0)
    assert found["slices"] == [{"TimeSpan": 604_800.0, "Weight": 1.0, "MaxCorrection": 3.0}]
    bio, physics = found["groups"]
    assert (bio["group"], bio["used"], bio["share"], bio["corrected"]) == ("bio", [4.0], 1000, 142.9)
    assert bio["factor"] == pytest.approx(1 / 3)
    assert bio["owners"] == [{"owner": "bob", "used": [4.0], "factor": 1.0, "weight": 1.0}]
    assert (physics["used"], physics["factor"], physics["corrected"]) == ([0.0], 3.0, 3857.0)
    assert [one["owner"] for one in physics["owners"]] == ["ann", "cleo"]


def test_of_many_owners_those_with_most_usage_are_named(crowd, monkeypatch):
    monkeypatch.setattr(usage, "_MOST_OWNERS", 2)
    crowd.user("dora", "bio")
    crowd.user("aaron", "bio")
    crowd.submitted(token="dora")
    crowd.submitted(token="aaron")
    tick(crowd)
    bio, _ = crowd.get("/v1/usage", "admin")["correction"]["groups"]
    assert [one["owner"] for one in bio["owners"]] == ["bob", "aaron"]


def test_users_see_the_groups_of_their_vo_and_themselves(crowd):
    crowd.user("far", "guests", vo="other")
    crowd.submitted(token="far")
    tick(crowd)
    bob = crowd.get("/v1/usage", "bob")["correction"]
    assert [(one["group"], [who["owner"] for who in one["owners"]]) for one in bob["groups"]] == [
        ("bio", ["bob"]), ("physics", []),
    ]  # fmt: skip
    far = crowd.get("/v1/usage", "far")["correction"]
    assert [one["group"] for one in far["groups"]] == ["guests"]
    assert len(crowd.get("/v1/usage", "admin")["correction"]["groups"]) == 3


def test_owners_of_a_group_are_corrected_against_each_other(crowd):
    ann = crowd.pilot("South", cores=1)
    for _ in range(40):
        (job,) = crowd.claim(ann, resource={"cores": 1, "memory_mb": 8_000, "norm_cpu_seconds": 90_000})
        crowd.report(ann, job)
    tick(crowd)
    lottery = crowd.core.live.queues.matcher.lottery
    weights = lottery.shares["physics"].owner_weights
    found = next(
        one for one in crowd.get("/v1/usage", "admin")["correction"]["groups"] if one["group"] == "physics"
    )
    used = {one["owner"]: one["used"][0] for one in found["owners"]}
    assert used["ann"] > 0
    assert (weights["ann"] < weights["cleo"]) == (used["ann"] > used["cleo"])
    assert sum(weights.values()) == pytest.approx(2.0, rel=1e-3)


def test_usage_is_read_at_most_every_15_minutes_and_who_waits_is_seen_soon(crowd, monkeypatch):
    begun = []
    first = usage_watch.last_attempt_before
    monkeypatch.setattr(usage_watch, "last_attempt_before", lambda *given: begun.append(1) or first(*given))
    tick(crowd)
    crowd.submitted(token="ann", group="physics")
    crowd.user("dora", "open")
    crowd.submitted(token="dora")
    crowd.now += 9
    tick(crowd)
    assert drawn(crowd)["open"] == 1000
    crowd.now += 2
    tick(crowd)
    assert drawn(crowd)["open"] > 1000
    crowd.now += 888
    tick(crowd)
    assert len(begun) == 2  # where it begins, and where it ends
    crowd.now += 2
    tick(crowd)
    assert len(begun) == 4


def test_what_was_not_read_for_long_corrects_nothing(crowd, monkeypatch):
    tick(crowd)
    monkeypatch.setattr(usage_watch, "last_of_portion", lambda *_: 1 / 0)
    crowd.now += 2_700
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            tick(crowd, 1)
    # The hot process does not need to be told.
    crowd.ticks += 2_699
    crowd.run(forget_old_usage(crowd.core))
    assert drawn(crowd)["bio"] == CORRECTED["bio"]
    crowd.ticks += 1
    crowd.run(forget_old_usage(crowd.core))
    assert drawn(crowd) == {"physics": 3000, "bio": 1000, "open": 1000, "guests": 1000}
    assert crowd.core.policy.usage is None


def test_what_cannot_be_forgotten_is_forgotten_later(crowd, monkeypatch):
    tick(crowd)
    crowd.ticks += 2_700

    async def fails(_command):
        raise Unavailable("no")

    with monkeypatch.context() as broken:
        broken.setattr(crowd.core.commands, "run", fails)
        with pytest.raises(Unavailable):
            crowd.run(forget_old_usage(crowd.core))
    crowd.run(forget_old_usage(crowd.core))
    assert drawn(crowd)["bio"] == 1000


def test_a_corrector_that_is_taken_out_corrects_nothing(crowd):
    tick(crowd)
    crowd.watch.options = ShareSection()
    tick(crowd, 1)
    assert drawn(crowd)["bio"] == 1000
    assert crowd.side.policy.usage is None


def test_what_could_not_be_sent_is_sent_again(crowd, monkeypatch):
    def fails(*_given):
        raise Unavailable("no")

    with monkeypatch.context() as broken:
        broken.setattr(crowd.watch, "post", fails)
        with pytest.raises(Unavailable):
            tick(crowd)
        assert crowd.side.policy.usage is None
    tick(crowd, 1)
    assert drawn(crowd)["bio"] == CORRECTED["bio"]


def test_core_seconds_count_what_runs_and_only_what_is_in_the_slice(crowd):
    crowd.watch.options = ShareSection(corrector="usage", currency="core-seconds", slices=(
        TimeSlice(time_span=3_600.0), TimeSlice(time_span=900.0),
    ))  # fmt: skip
    begun = crowd.now
    crowd.now += 10
    for number in (1, 2):
        crowd.report(crowd.early, {"id": number, "attempt": 1}, "Running")
    crowd.now += 1_490
    crowd.report(crowd.early, {"id": 1, "attempt": 1}, started=begun + 10, ended=begun + 1_000)
    tick(crowd)
    bio = crowd.get("/v1/usage", "admin")["correction"]["groups"][0]
    # One ran for 990 s, 400 of them in the last 900; one for 1,490 s and goes on; two have not started.
    assert (bio["group"], bio["used"]) == ("bio", [2_480.0, 1_300.0])


def test_a_job_that_began_before_the_time_slices_and_still_runs_is_counted(crowd, monkeypatch):
    monkeypatch.setattr(usage_watch, "_LONG_JOB_SECONDS", 0.0)
    crowd.watch.options = ShareSection(corrector="usage", currency="core-seconds", slices=(
        TimeSlice(time_span=3_600.0),
    ))  # fmt: skip
    crowd.report(crowd.early, {"id": 1, "attempt": 1}, "Running", started=crowd.now)
    crowd.now += 10_000
    tick(crowd)
    assert crowd.get("/v1/usage", "admin")["correction"]["groups"][0]["used"] == [3_600.0]


def test_a_job_s_cores_count(house):
    house.submitted({"NumberOfProcessors": 3})
    house.watch = UsageWatch(
        house.side.db.database.reader(), house.post, house.side.keeper,
        ShareSection(corrector="usage", currency="core-seconds"),
    )  # fmt: skip
    pilot = house.pilot(cores=4)
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running", started=house.now)
    house.now += 50
    tick(house)
    assert house.get("/v1/usage", "admin")["correction"]["groups"][0]["used"] == [150.0]


def test_usage_is_read_in_portions(crowd, monkeypatch):
    monkeypatch.setattr(usage_watch, "_AT_ONCE", 3)
    tick(crowd, 2)
    assert crowd.side.policy.usage is None
    tick(crowd, 1)
    assert crowd.get("/v1/usage", "admin")["correction"]["groups"][0]["used"] == [4.0]


def test_a_reading_ends_while_jobs_go_on_to_start(crowd, monkeypatch):
    monkeypatch.setattr(usage_watch, "_AT_ONCE", 3)
    pilot = crowd.pilot("South", cores=1)
    for _ in range(3):
        tick(crowd, 1)
        (job,) = crowd.claim(pilot, resource={"cores": 1, "memory_mb": 8_000, "norm_cpu_seconds": 90_000})
        crowd.report(pilot, job)
    found = crowd.get("/v1/usage", "admin")["correction"]["groups"]
    assert sum(one["used"][0] for one in found) == 4


def test_a_plan_of_shares_corrects_both_sides_and_says_so(crowd):
    tick(crowd)
    answer = crowd.call("POST", "/v1/plan/shares", {"shares": {"bio": 9_000}}, token="admin").json
    rows = {row["group"]: row for row in answer["groups"]}
    # bio: 3/4 over 1. 9000 x 3/4 and 3000 x 3, scaled to 12000.
    assert rows["bio"]["share"] == {"before": 142.9, "after": 5143.0}
    assert rows["physics"]["share"] == {"before": 3857.0, "after": 6857.0}
    assert answer["changed"] == [{"group": "bio", "before": 1000.0, "after": 9000.0}]
    assert any("corrected by usage" in one["message"] for one in answer["notices"])
    assert drawn(crowd)["bio"] == CORRECTED["bio"]


def test_why_goes_by_the_corrected_share_and_says_so(crowd):
    tick(crowd)
    found = crowd.get("/v1/jobs/1010/why", "bob")
    assert found["share"]["share"] == 142.9
    assert found["share"]["part"] == pytest.approx(142.9 / 3999.9)
    assert "group bio (its share corrected by usage) has 4% of the starts" in json.dumps(found)
