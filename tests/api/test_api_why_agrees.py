"""A pilot, a queue and a limit say of the same moment what the job says."""

from __future__ import annotations

import pytest

JOB = {"CPUTime": 500, "Site": "North"}
QUEUE = "/v1/queues/why?path=North/ce.north/short"
ONE_EACH = "{\n name each\n enabled true\n limit users {*} to slots=1\n}\n"
WHERE = "North is to be closed from 1970-01-12 13:51 UTC, says admin: power"


@pytest.fixture
def admin(house):
    house.user("eva", "physics", admin=True)
    return house


def announce(house, seconds):
    body = {"site": "North", "reason": "power", "begins": house.now + seconds}
    assert house.call("POST", "/v1/sites/close", body, token="admin").status == 200


def limited(house):
    answer = house.call("POST", "/v1/quotas", {"text": ONE_EACH, "how": "add"}, token="eva")
    assert answer.status == 200


def why(house, path):
    house.side.keeper.refresh(house.now, rest=0.0)
    return house.get(path, "eva")


def pilot_why(house):
    told = why(house, "/v1/pilots/1/why")
    (step,) = (one for one in told["chain"] if one["step"] == "limits")
    return told, step


# --- an announced closing --------------------------------------------------------------------------------------------


def test_a_pilot_with_too_little_time_names_the_closing(admin):
    pilot = admin.pilot()
    admin.claim(pilot)
    announce(admin, 300.0)
    admin.submitted(JOB)
    told = why(admin, "/v1/pilots/1/why")
    assert told["verdict"] == "nothing fits"
    assert told["summary"] == (
        f"No task queue of 1 fits what it has free: CPUTime excludes 1; {WHERE}; "
        "until then jobs that ask for at most 5 min of CPUTime still start."
    )
    assert told["who"] == (
        "admin or another administrator: lode site open North; or users, by asking for less CPUTime"
    )
    assert told["task_queues"]["nearest"] == []


def test_a_job_that_is_too_long_for_the_pilot_anyway_is_not_blamed_on_a_closing(admin):
    admin.claim(admin.pilot())
    announce(admin, 300.0)
    admin.submitted({"CPUTime": 5_000})
    told = why(admin, "/v1/pilots/1/why")
    assert (told["verdict"], "closed" in told["summary"]) == ("nothing fits", False)


def test_a_queue_says_once_that_it_is_to_be_closed(admin):
    announce(admin, 300.0)
    (step,) = (one for one in why(admin, QUEUE)["chain"] if one["step"] == "site_mask")
    assert step["text"] == f"{WHERE}; until then jobs that ask for at most 5 min of CPUTime still start"


# --- jobs that wait for jobs -----------------------------------------------------------------------------------------


@pytest.fixture
def child(admin):
    """A job that waits for a held one, beside a pilot that has asked."""
    parent = admin.submitted({**JOB})
    assert admin.control("hold", parent, parent).status == 200
    child = admin.submitted({**JOB, "After": str(parent)})
    admin.claim(admin.pilot())
    return child


def test_a_pilot_says_what_the_jobs_wait_for(admin, child):
    told, step = pilot_why(admin)
    assert (told["verdict"], told["summary"]) == ("jobs wait for jobs", "All that fits waits for other jobs.")
    job = why(admin, f"/v1/jobs/{child}/why")
    assert told["who"] == job["who"] == "you, or another user who may control the job: lode release 1"
    assert step["holds"] is False


def test_they_are_not_behind_a_limit(admin, child):
    other = admin.submitted(JOB, JOB)
    limited(admin)
    assert len(admin.claim("pilot1", 4)) == 1
    (row,) = admin.get("/v1/quotas/use")["uses"]
    assert (other, row["full"], row["jobs"], row["task_queues"]) == (3, True, 1, 1)


def test_a_queue_has_no_room_for_a_job_behind_a_full_limit(admin, backend):
    admin.submitted(JOB)
    limited(admin)
    assert len(admin.claim(admin.pilot())) == 1
    job = admin.submitted(JOB)
    admin.director(backend).tick(admin.now)
    told = why(admin, f"/v1/jobs/{job}/why?queue=North/ce.north/short")
    text = next(step["text"] for step in told["chain"] if step["step"] == "limits")
    assert (told["queue"]["room"], told["queue"]["gate"][:10]) == (0, "quota each")
    assert told["queue"]["gate"] in text


# --- AtMost ----------------------------------------------------------------------------------------------------------


def test_a_member_behind_a_full_limit_says_so(admin):
    runs = admin.submitted(JOB)
    limited(admin)
    pilot = admin.pilot()
    assert [one["id"] for one in admin.claim(pilot)] == [runs]
    first = admin.submitted({**JOB, "Parameters": 3, "AtMost": 1})
    told = why(admin, f"/v1/jobs/{first + 1}/why")
    (step,) = (one for one in told["chain"] if one["step"] == "limits")
    assert step["text"].startswith(
        "it waits behind 1 job of its submission: AtMost = 1, of which none is under way; "
        "the reason of the first is limited; "
    )
    assert [one["rule"] for one in step["full"]] == ["each/1"]
    assert told["main_reason"] == "limited"


def test_a_pilot_that_only_at_most_keeps_from_work_names_it(admin):
    pilot = admin.pilot()
    admin.submitted({**JOB, "Parameters": 3, "AtMost": 1})
    assert len(admin.claim(pilot, 3)) == 1
    told, _ = pilot_why(admin)
    assert told["verdict"] == "limited"
    assert told["who"] == (
        "time, as jobs of these submissions end; or their users: lode change JOBS AtMost=N"
    )
