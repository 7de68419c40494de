"""What jobs used by day, to one caller: own VO, names of those whose jobs the caller may see, days, and sums that stay."""

import pytest

from lodesman.server.loops.accounting import UsageAdder

pytestmark = pytest.mark.stores

DAY = 86_400


@pytest.fixture
def used(house):
    """ann: a job of 2 cores that ran 100 s with 100 s of CPU, and a failure of 10 s; bob: 50 s. All on one day."""
    house.user("olaf", "guests", vo="other")
    house.adder = UsageAdder(house.side.db.database.reader(), house.post)
    house.submitted({"NumberOfProcessors": 2})
    run(house, 100.0, cpu=100.0)
    house.submitted()
    run(house, 10.0, "Failed", "exit")
    house.submitted(token="bob")
    run(house, 50.0)
    return house


def run(house, seconds, state="Done", cause="ok", *, cpu=None):
    pilot = house.pilot(cores=4)
    (job,) = house.claim(pilot)
    started, house.now = house.now, house.now + seconds
    how = {"cpu_seconds": seconds if cpu is None else cpu, "wall_seconds": seconds}
    house.report(pilot, job, state, cause=cause, started=started, ended=house.now, **how)


@pytest.mark.parametrize("off", [0.0, 10_800.0, -10_800.0])
@pytest.mark.parametrize("in_two", [False, True])
def test_a_job_ran_as_long_as_it_did_whatever_the_clock_of_its_node_says(house, off, in_two):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.now += 2.0
    started = house.now + off
    if in_two:
        house.report(pilot, job, "Running", started=started)
    house.now += 3.0
    house.report(pilot, job, "Done", started=started, ended=started + 3.0, wall_seconds=3.0, cpu_seconds=1.0)
    (attempt,) = house.get("/v1/jobs/1")["attempts"]
    assert attempt["ended_at"] - attempt["started_at"] == 3.0
    assert attempt["claimed_at"] <= attempt["started_at"]
    assert attempt["ended_at"] <= house.now


def rows(house, by="group", token="admin", query=""):
    found = house.get(f"/v1/usage/days?by={by}{query}", token)["rows"]
    return {row["name"]: row for row in found}


@pytest.mark.parametrize("is_stored", [False, True])
def test_the_sums_of_a_user(used, is_stored):
    if is_stored:
        used.adder.tick(used.now)
    ann = rows(used, "user")["ann"]
    assert ann == {
        "name": "ann", "vo": "lab", "jobs": 2, "attempts": 2, "failures": 1, "wall_seconds": 110.0, "core_seconds": 210.0,
        "cpu_seconds": 110.0, "cpu_efficiency": pytest.approx(110 / 210), "wasted_core_seconds": 10.0,
        "waste": {"exit": 10.0},
    }  # fmt: skip
    assert list(rows(used, "user")) == ["ann", "bob"]


def test_users_see_their_vo_and_of_others_no_names(used):
    assert set(rows(used, "user", "ann")) == {"ann", ""}
    assert rows(used, "user", "ann")[""]["wall_seconds"] == 50.0
    assert set(rows(used, "group", "ann")) == {"physics", "bio"}
    assert rows(used, "user", "olaf") == rows(used, "vo", "olaf") == {}
    assert rows(used, "vo")["lab"]["jobs"] == 3
    assert rows(used, "site")["North"]["vo"] == ""


def test_days_are_whole_and_of_utc(used):
    day = int(used.now // DAY)
    found = used.get(f"/v1/usage/days?since={day * DAY + 5}&until={day * DAY + 6}", "admin")
    assert (found["since"], found["until"]) == (day * DAY, (day + 1) * DAY)
    assert len(found["rows"]) == 2
    usual = used.get("/v1/usage/days", "admin")
    assert (usual["since"], usual["until"]) == ((day - 6) * DAY, (day + 1) * DAY)
    assert rows(used, query=f"&until={day * DAY - 1}") == {}
    wrong = used.call("GET", f"/v1/usage/days?since={day * DAY + DAY}&until={day * DAY}", token="ann")
    assert (wrong.status, wrong.code) == (400, "invalid-request")
    assert used.call("GET", "/v1/usage/days?by=planet", token="ann").status == 400


def test_what_is_sent_twice_is_refused(used):
    sent = []
    used.adder.post = lambda call, body: sent.append((call, body))
    used.adder.tick(used.now)
    ((call, body),) = sent
    used.post(call, body)
    before = rows(used)
    with pytest.raises(Exception, match="in between"):
        used.post(call, body)
    assert rows(used) == before
