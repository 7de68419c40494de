"""Jobs that wait for jobs, as users ask for them and as they are shown."""

from __future__ import annotations

import pytest

from lodesman.server.loops.reasons import MainReasons

pytestmark = pytest.mark.stores

JOB = 'Executable = "/bin/true"; Site = "North"; CPUTime = 60; '


@pytest.fixture(autouse=True)
def right_counts(house):
    yield
    assert not any(house.reconcile().values())


def submit(house, more="", status=200, **body):
    answer = house.call("POST", "/v1/jobs", {"text": f"[ {JOB} {more} ]", **body}, token="ann")
    assert answer.status == status, answer.json
    return answer.json


def job(house, number):
    return house.get(f"/v1/jobs/{number}")


def test_a_job_waits_and_why_names_the_jobs(house):
    first = submit(house)["first"]
    array = submit(house, "Parameters = 3;")["first"]
    child = submit(house, f'AfterOk = {{{first}}}; After = "{array}-{array + 2}";')["first"]
    found = house.get(f"/v1/jobs/{child}/why")
    assert (found["verdict"], found["main_reason"]) == ("not now", "waits-for-jobs")
    assert found["summary"].endswith(
        f"and it waits for job {first} (it is Waiting) to be Done, jobs {array}-{array + 2} to end."
    )
    assert found["who"] == "time, as the jobs that it waits for end"
    queues = house.get("/v1/task-queues")["task_queues"]
    assert [(one["waiting"], one["waits_for_jobs"]) for one in queues] == [(4, False), (1, True)]
    pilot = house.pilot()
    for claimed in house.claim(pilot, 4):
        house.report(pilot, claimed)
    assert [one["id"] for one in house.claim(pilot, 4)] == [child]


def test_who_holds_what_a_job_waits_for_is_named(house):
    array = submit(house, "Parameters = 3;")["first"]
    child = submit(house, f'After = "{array}-{array + 2}";')["first"]
    assert house.control("hold", array + 1, array + 1).status == 200
    found = house.get(f"/v1/jobs/{child}/why")
    assert (found["main_reason"], found["verdict"]) == ("waits-for-jobs", "not now")
    assert found["who"] == f"you, or another user who may control the job: lode release {array + 1}"


def test_who_holds_what_its_parents_wait_for_is_named(house):
    """Waiting never helps it, however far above the held one is."""
    held = job = submit(house)["first"]
    for _ in range(3):
        job = submit(house, f'After = "{job}";')["first"]
    assert house.control("hold", held, held).status == 200
    found = house.get(f"/v1/jobs/{job}/why")
    assert found["who"] == f"you, or another user who may control the job: lode release {held}"


def test_members_wait_by_index_and_why_names_the_one(house):
    array = submit(house, "Parameters = 4;")["first"]
    child = submit(house, f'Parameters = 4; AfterOk = "{array}-{array + 3}:index";')["first"]
    found = house.get(f"/v1/jobs/{child + 2}/why")
    assert f"waits for job {array + 2} (it is Waiting) to be Done." in found["summary"]
    pilot = house.pilot()
    third = house.claim(pilot, 4)[2]
    house.report(pilot, third)
    assert [one["id"] for one in house.claim(pilot, 4)] == [child + 2]


def test_a_failed_parent_cancels_or_holds(house):
    first = submit(house)["first"]
    held = submit(house, f"AfterOk = {first};")["first"]
    killed = submit(house, f'AfterOk = {first}; OnParentFailure = "Cancel";')["first"]
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause="exit", exit_code=3)
    why = f"job {first}, which it waited for, is Failed: exit code 3"
    assert [(job(house, n)["state"], job(house, n)["reason"]) for n in (held, killed)] == [
        ("Held", why), ("Killed", why)
    ]  # fmt: skip
    said = house.get(f"/v1/jobs/{held}/why")["summary"]
    assert said == f"It is held: {why}. Release it to let it run."
    assert house.control("release", held).json["changed"] == 1
    assert [one["id"] for one in house.claim(pilot)] == [held]


def test_only_own_jobs_that_exist_can_be_waited_for(house):
    first = submit(house)["first"]
    others = house.submitted({}, token="bob")
    for wrong in (others, first + 50, f'"{first}-{others}"'):
        error = submit(house, f"AfterOk = {wrong};", status=400)["error"]
        assert error["data"]["attribute"] == "AfterOk"
        assert "not found, or you may not see" in error["message"]
    assert submit(house, 'AfterOk = "1:index-2";', status=400)["error"]["data"]["attribute"] == "AfterOk"
    assert (
        submit(house, f'Parameters = 2; After = "{first}:index";', status=400)["error"]["data"]["attribute"]
        == "After"
    )
    assert (
        submit(house, 'OnParentFailure = "run";', status=400)["error"]["data"]["attribute"]
        == "OnParentFailure"
    )


def test_a_batch_waits_job_by_job(house):
    first = house.submitted({}, {})
    children = house.submitted({"AfterOk": first}, {"AfterOk": first + 1}, {})
    pilot = house.pilot()
    one, two = sorted(house.claim(pilot, 2), key=lambda claimed: claimed["id"])
    assert [claimed["id"] for claimed in house.claim(pilot, 4)] == [children + 2]
    house.report(pilot, two)
    assert [claimed["id"] for claimed in house.claim(pilot, 4)] == [children + 1]
    house.report(pilot, one)
    assert [claimed["id"] for claimed in house.claim(pilot, 4)] == [children]


def test_what_is_changed_meanwhile_waits_on(house):
    first = submit(house)["first"]
    child = submit(house, f"AfterOk = {first};")["first"]
    body = {"ranges": [[child, child]], "attributes": {"Priority": 3}}
    assert house.call("POST", "/v1/jobs/change", body, token="ann").json["changed"] == 1
    pilot = house.pilot()
    (claimed,) = house.claim(pilot, 4)
    assert claimed["id"] == first
    house.report(pilot, claimed)
    assert [one["id"] for one in house.claim(pilot)] == [child]
    body = {"ranges": [[child, child]], "attributes": {"AfterOk": 1}}
    refused = house.call("POST", "/v1/jobs/change", body, token="ann")
    assert "what a job waits for is said when it is submitted" in refused.json["error"]["message"]


def test_a_repeated_submission_waits_once(house):
    first = submit(house)["first"]
    child = submit(house, f"AfterOk = {first};", request_id="again")["first"]
    assert submit(house, f"AfterOk = {first};", request_id="again")["first"] == child
    assert len(house.core.live.order) == 1


def test_no_pilot_is_sent_for_what_waits_and_lists_say_why(house):
    first = submit(house)["first"]
    child = submit(house, f"AfterOk = {first};")["first"]
    keeper, found = house.side.keeper, MainReasons(house.side.db, house.side.keeper)
    keeper.refresh(house.now)
    changed = found.judge(house.side.policy, house.now)
    assert changed[job(house, child)["task_queue"]].reason == "waits-for-jobs"
    assert changed[job(house, first)["task_queue"]].reason != "waits-for-jobs"
    assert [key.waits_for_jobs for _, key, _ in keeper.snapshot.waiting] == [False, True]
    assert keeper.task_queues.table.full.bit_count() == 1
