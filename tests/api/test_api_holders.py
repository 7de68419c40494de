"""Who holds a job: `lode why` names the person, its events too."""

from __future__ import annotations

import pytest

from lodesman.server.writer.control import Control

pytestmark = pytest.mark.stores


def held(house, job):
    told = house.get(f"/v1/jobs/{job}/why")
    (found,) = [one for one in told["chain"] if one["step"] == "limits"]
    return found["text"].partition(": ")[2], found["limits"][0]["by"], found["limits"][0]["name"]


def hold(house, token, first, last=None):
    body = {"action": "hold", "ranges": [[first, last or first]], "reason": "look at it"}
    assert house.call("POST", "/v1/jobs/control", body, token=token).json["changed"]


@pytest.fixture
def house_with_root(house):
    house.user("root", "physics", admin=True)
    return house


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_the_holder_of_a_job_is_named(house_with_root, array):
    house = house_with_root
    job = house.submitted({"Parameters": 3} if array else {})
    hold(house, "root", job)
    assert held(house, job) == ("root holds it", "admin", "root")
    told = house.get(f"/v1/jobs/{job}/why")
    assert told["summary"] == "root holds it: look at it. Only an administrator releases it."
    assert told["who"] == f"an administrator: lode release {job}"
    house.control("release", job, token="root")
    hold(house, "ann", job)
    assert held(house, job) == ("ann holds it", "user", "ann")
    summary = house.get(f"/v1/jobs/{job}/why")["summary"]
    assert summary == "ann holds it: look at it. Release it to let it run."
    events = [
        (one["event"], one["by"], one["name"])
        for one in house.get(f"/v1/jobs/{job}")["events"]
        if "by" in one
    ]
    assert events[0] == ("Held", "user", "root")
    assert events[-1] == ("Held", "user", "ann")


def test_of_neighbours_each_has_its_own_holder(house_with_root):
    house = house_with_root
    job = house.submitted({"Parameters": 9})
    hold(house, "root", job, job + 5)
    house.now += 5
    house.control("release", job + 2, job + 3, token="root")
    house.now += 5
    hold(house, "ann", job + 3, job + 7)
    names = [held(house, job + k)[2] for k in (0, 1, 3, 4, 5, 6, 7)]
    assert names == ["root", "root", "ann", "root", "root", "ann", "ann"]


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_before_names_were_kept_a_user_held_it(house, array):
    job = house.submitted({"Parameters": 3} if array else {})
    house.do(Control(house.core.live, "hold", (range(job, job + 1),), "", lambda *_: True))
    assert held(house, job) == ("a user holds it", "user", None)
    assert house.get(f"/v1/jobs/{job}/why")["summary"] == "A user holds it. Release it to let it run."


def test_an_impossible_job_has_no_holder(house):
    house.submit({"Memory": 9_000}, hold_if_impossible=True)
    assert held(house, 1) == ("no queue could run it", "impossible", None)


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_what_an_administrator_holds_only_an_administrator_lets_run(house_with_root, array):
    house = house_with_root
    job = house.submitted({"Parameters": 3} if array else {})

    def state():
        found = house.get(f"/v1/jobs/{job}")
        return found["state"], found["held_by"]

    hold(house, "root", job)
    refused = house.control("release", job).json
    assert (refused["changed"], refused["examples"][0]["reason"]) == (
        0, "an administrator held it, and only an administrator lets it run",
    )  # fmt: skip
    assert state() == ("Held", "admin")
    assert house.get(f"/v1/jobs?first={job}&last={job}")["jobs"][0]["held_by"] == "admin"
    # Nor by the long way.
    assert house.control("kill", job).json["changed"] == 1
    assert house.control("reschedule", job).json["changed"] == 0
    assert house.control("reschedule", job, token="root").json["changed"] == 1
    assert state() == ("Waiting", None)
    hold(house, "ann", job)
    assert (state(), house.control("release", job).json["changed"]) == (("Held", "user"), 1)


@pytest.mark.parametrize("array", [False, True], ids=["row", "member"])
def test_an_administrator_holds_what_its_user_holds_already(house_with_root, array):
    house = house_with_root
    job = house.submitted({"Parameters": 3} if array else {})
    hold(house, "ann", job)
    hold(house, "root", job)
    assert held(house, job) == ("root holds it", "admin", "root")
    assert house.control("release", job).json["changed"] == 0
    assert house.control("hold", job, token="root").json["changed"] == 0
    assert house.control("delete", job).json["changed"] == 1
