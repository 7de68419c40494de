"""Waiting and held jobs that are changed: what they become, what their class allows, and that all counts stay right."""

from __future__ import annotations

import pytest

JOB = 'Executable = "/bin/true"; Site = "North"; CPUTime = 60; '
ARRAY = JOB + 'Parameters = 10; Arguments = "%n"; '
APP = """jcname app
variant_list default,large
CMDNAME /bin/echo
CMDARG hello
N {~}greeting
l_hard {+}h_rt=3600,{~}vf=1G,[{~+}large=h_rt=7200]
P physics
"""


@pytest.fixture(autouse=True)
def right_counts(house):
    """Counters, task queues and fronts agree with the jobs at the end of each test."""
    yield
    assert not any(house.reconcile().values())


def submit(house, text, token="ann", **more):
    answer = house.call("POST", "/v1/jobs", {"text": text, **more}, token=token)
    assert answer.status == 200, answer.json
    return answer.json["first"]


def change(house, first, last=None, token="ann", **more):
    """Attributes in `attributes`, or as keywords that begin with a capital."""
    attributes = {name: more.pop(name) for name in list(more) if name[0].isupper()}
    body = {"ranges": [[first, last or first]], "attributes": attributes, **more}
    return house.call("POST", "/v1/jobs/change", body, token=token)


def changed(house, *args, **more):
    answer = change(house, *args, **more)
    assert answer.status == 200, answer.json
    return answer.json["changed"], answer.json["refused"]


def claim_all(house):
    """What pilots get until nothing is left for them."""
    found = []
    while more := house.claim(house.pilot(), 4):
        found += more
    return found


def queues(house):
    found = house.get("/v1/task-queues")["task_queues"]
    return {(one["memory_mb"], one["project"]): one["waiting"] for one in found if one["waiting"]}


def described(house, job):
    found = house.get(f"/v1/jobs/{job}/description?form=json")
    return found["text"], found["jobs"]


def history(house, job):
    return [one["event"] for one in house.get(f"/v1/jobs/{job}")["events"]]


def test_a_waiting_job_moves_to_another_task_queue_and_stays_the_same_job(house):
    job, other = submit(house, JOB), submit(house, JOB)
    before = house.get(f"/v1/jobs/{job}")
    assert changed(house, job, Memory=500, Arguments="-n 5", reason="too small") == (1, 0)
    assert queues(house) == {(500, ""): 1, (0, ""): 1}
    after = house.get(f"/v1/jobs/{job}")
    assert (after["id"], after["state"], after["attempt"]) == (job, "Waiting", 0)
    assert after["task_queue"] != before["task_queue"]
    last = after["events"][-1]
    assert (last["event"], last["name"], last["reason"], last["attributes"]) == (
        "Changed", "ann", "too small", ["Arguments", "Memory"],
    )  # fmt: skip
    assert '"Memory": 500' in described(house, job)[0]
    assert '"Memory"' not in described(house, other)[0]
    specs = {one["id"]: one["spec"]["arguments"] for one in house.claim(house.pilot(), 5)}
    assert specs == {job: ["-n", "5"], other: []}


def test_a_job_can_be_changed_again_and_back(house):
    job = submit(house, JOB + "Memory = 100;")
    first = house.get(f"/v1/jobs/{job}")["task_queue"]
    assert changed(house, job, Memory=500) == (1, 0)
    assert changed(house, job, Memory=None, Tag=["gpu"], hold_if_impossible=True) == (1, 0)
    assert house.get(f"/v1/jobs/{job}")["state"] == "Held"
    assert changed(house, job, Memory=100, Tag=None) == (1, 0)
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], found["task_queue"]) == ("Waiting", first)
    assert len(house.claim(house.pilot(), 5)) == 1


def test_a_held_job_stays_held_and_waits_as_what_it_is_now_when_it_is_released(house):
    job = submit(house, JOB)
    house.call(
        "POST", "/v1/jobs/control", {"action": "hold", "ranges": [[job, job]], "reason": "mine"}, token="ann"
    )
    assert changed(house, job, Memory=500) == (1, 0)
    found = house.get(f"/v1/jobs/{job}")
    assert (found["state"], found["reason"]) == ("Held", "mine")
    assert queues(house) == {}
    house.call("POST", "/v1/jobs/control", {"action": "release", "ranges": [[job, job]]}, token="ann")
    assert queues(house) == {(500, ""): 1}


def test_a_member_is_split_off_its_run(house):
    first = submit(house, ARRAY)
    assert changed(house, first + 3, Memory=500) == (1, 0)
    assert queues(house) == {(500, ""): 1, (0, ""): 9}
    assert changed(house, first + 2, first + 4, JobGroup="thesis") == (3, 0)
    assert queues(house) == {(500, "thesis"): 1, (0, "thesis"): 2, (0, ""): 7}
    assert described(house, first + 3)[1] == 1
    assert '"03"' in described(house, first + 3)[0]
    assert described(house, first + 5)[1] == 10
    assert history(house, first + 3)[-2:] == ["Changed", "Changed"]
    specs = {one["id"] - first: one["spec"]["arguments"] for one in claim_all(house)}
    assert specs == {at: [f"0{at}"] for at in range(10)}


def test_held_members_are_changed_as_they_are(house):
    first = submit(house, ARRAY)
    hold = {"action": "hold", "ranges": [[first + 2, first + 5]], "reason": "mine"}
    house.call("POST", "/v1/jobs/control", hold, token="ann")
    assert changed(house, first, first + 3, Memory=500) == (4, 0)
    states = [house.get(f"/v1/jobs/{first + at}")["state"] for at in range(7)]
    assert states == ["Waiting"] * 2 + ["Held"] * 4 + ["Waiting"]
    assert queues(house) == {(500, ""): 2, (0, ""): 4}
    house.call("POST", "/v1/jobs/control", {**hold, "action": "release", "reason": ""}, token="ann")
    assert queues(house) == {(500, ""): 4, (0, ""): 6}
    assert len(claim_all(house)) == 10


def test_what_is_wrong_names_the_submission(house):
    first = submit(house, ARRAY)
    assert changed(house, first + 3, Memory=500) == (1, 0)
    answer = change(house, first, first + 3, NumberOfProcessors=4000)
    assert answer.json["error"]["message"].startswith("Jobs of submission 1: The job can never run")


@pytest.mark.parametrize("held", [False, True], ids=["waiting", "held"])
def test_a_member_is_judged_as_what_it_is_and_not_as_what_it_left(house, held):
    first = submit(house, JOB + 'Tag = "gpu"; Parameters = 4;', hold_if_impossible=True)
    if held:
        hold = {"action": "hold", "ranges": [[first, first + 3]], "reason": "mine"}
        house.call("POST", "/v1/jobs/control", hold, token="ann")
    assert changed(house, first + 1, first + 2, Tag=None) == (2, 0)
    answer = change(house, first + 1, NumberOfProcessors=4000)
    assert answer.json["error"]["message"].startswith("The job can never run")
    assert "Tag" not in answer.json["error"]["message"]
    # What the others are would refuse it.
    assert changed(house, first + 2, Memory=100) == (1, 0)
    assert changed(house, first + 1, first + 2, Memory=200) == (2, 0)
    answer = change(house, first, first + 2, Memory=300)
    assert "Jobs of submission" in answer.json["error"]["message"]


def test_a_whole_array_stays_a_run(house):
    first = submit(house, JOB + 'Parameters = 100000; Arguments = "%n";')
    assert changed(house, first, first + 99_999, Memory=500) == (100_000, 0)
    assert queues(house) == {(500, ""): 100_000}
    assert house.side.db.only("SELECT count(*) FROM job") == (0,)


@pytest.mark.parametrize("ended", [False, True])
def test_a_job_that_was_claimed_is_refused_by_name(house, ended):
    first = submit(house, ARRAY)
    pilot = house.pilot()
    (taken,) = house.claim(pilot, 1)
    assert taken["id"] == first
    answer = change(house, first, Memory=500)
    assert (answer.status, answer.json["changed"]) == (200, 0)
    assert answer.json["examples"] == [{"id": first, "reason": "it is Matched"}]
    assert changed(house, first, first + 9, Memory=500) == (9, 1)


@pytest.mark.stores
def test_the_name_of_a_changed_job(house):
    job, first = submit(house, JOB + 'JobName = "old";'), submit(house, ARRAY + 'JobName = "render_%n";')
    assert changed(house, job, JobName="new") == (1, 0)
    assert changed(house, first + 1, JobName="one") == (1, 0)
    names = {one["id"]: one["name"] for one in house.get("/v1/jobs")["jobs"]}
    assert [names[at] for at in (job, first, first + 1, first + 2)] == [
        "new",
        "render_00",
        "one",
        "render_02",
    ]


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "status", "words"),
    [
        ({"Memory": "much"}, 400, "Memory"),
        ({"Memroy": 5}, 400, "Memroy: waiting jobs have no such attribute"),
        ({"Parameters": 5}, 400, "Parameters"),
        ({"InputSandbox": ["a"]}, 400, "InputSandbox cannot be changed"),
        ({"OwnerGroup": "astro"}, 400, "OwnerGroup cannot be changed"),
        ({"JobClass": "app"}, 400, 'No job class or job class variant "app"'),
        ({"Executable": None}, 400, "Executable is missing"),
        ({"Executable": None, "Memory": 5}, 400, "Executable is missing"),
        ({"Site": "Nowhere"}, 400, "there is no site 'Nowhere'"),
        ({"Memory": 10**6}, 422, "can never run"),
        ({}, 400, ""),
    ],
)
def test_what_cannot_be_changed(house, attributes, status, words):
    job = submit(house, JOB)
    before = house.get(f"/v1/jobs/{job}")
    answer = change(house, job, **attributes)
    assert answer.status == status, answer.json
    assert words in answer.json["error"]["message"]
    assert house.get(f"/v1/jobs/{job}") == before


def test_jobs_of_others_and_jobs_that_are_not_there(house):
    job = submit(house, JOB)
    house.user("eve", "astro", vo="other")
    for who, asked in (("eve", job), ("ann", 77)):
        assert change(house, asked, token=who, Memory=5).status == 404


def test_all_that_the_class_does_not_allow_is_said_at_once(house):
    house.user("eva", "physics", admin=True)
    assert house.call("POST", "/v1/job-classes", {"text": APP}, token="eva").status == 200
    job, large = submit(house, 'JobClass = "app";'), submit(house, 'JobClass = "app.large";')
    answer = change(house, job, Executable="/bin/rm", JobGroup="other", WallTime=60, JobName="mine")
    assert answer.status == 400
    found = answer.json["error"]["data"]["violations"]
    assert {(one["attribute"], one["key"], one["given"], one["allowed"]) for one in found} == {
        ("CMDNAME", None, "/bin/rm", "/bin/echo"),
        ("P", None, "other", "physics"),
        ("l_hard", "h_rt", "60", "3600"),
    }
    # What the class was then counts, and an administrator is bound by it, too.
    text = APP.replace("P physics", "P {~}physics")
    assert house.call("POST", "/v1/job-classes", {"text": text, "how": "change"}, token="eva").status == 200
    assert change(house, job, token="eva", JobGroup="other").status == 400
    assert changed(house, job, JobName="mine", Memory=600, CPUTime=50) == (1, 0)
    assert changed(house, large, WallTime=60) == (1, 0)
    assert {(one["memory_mb"], one["variant"]) for one in house.get("/v1/task-queues")["task_queues"] if one["waiting"]} == {
        (600, "default"), (0, "large"),
    }  # fmt: skip
    origins = house.get(f"/v1/jobs/{job}/description")["resolution"]["origins"]
    assert (origins["JobName"], origins["Executable"]) == ("change by ann", "class")
    names = {one["spec"]["name"] for one in house.claim(house.pilot(norm_cpu_seconds=100_000), 5)}
    assert names == {"mine", "greeting"}


def test_what_sites_and_pilots_hear_of_a_job_changes_with_it(house):
    """VacatePriority leaves the task queue as it is; by ExpectedTime jobs are packed, so it is part of the key."""
    first = submit(house, ARRAY + "ExpectedTime = 50; VacatePriority = -1;")
    (before,) = house.get("/v1/task-queues")["task_queues"]
    assert before["expected_seconds"] == 50
    assert changed(house, first, first + 2, VacatePriority=7) == (3, 0)
    assert [one["id"] for one in house.get("/v1/task-queues")["task_queues"]] == [before["id"]]
    assert changed(house, first, ExpectedTime=None) == (1, 0)
    found = {one["id"] - first: one["spec"] for one in house.claim(house.pilot(), 10)}
    assert [found[n].get("vacate_priority", 0) for n in (0, 2, 3)] == [7, 7, -1]
    assert [found[n].get("expected_seconds", 0) for n in (0, 2, 3)] == [0, 50, 50]


def test_a_dry_run_changes_nothing(house):
    first = submit(house, ARRAY)
    answer = change(house, first, first + 3, Memory=500, dry_run=True)
    assert (answer.json["changed"], answer.json["dry_run"]) == (4, True)
    assert queues(house) == {(0, ""): 10}
    assert change(house, first, Memory=10**6, dry_run=True).status == 422


def test_a_batch_in_which_jobs_differ(house):
    jobs = [
        {"Executable": "/bin/true", "Site": "North", "CPUTime": 60, "Arguments": str(at)} for at in range(5)
    ]
    first = house.call("POST", "/v1/jobs", {"jobs": jobs}, token="ann").json["first"]
    assert changed(house, first, first + 4, Memory=500) == (5, 0)
    specs = [one["spec"]["arguments"] for one in house.claim(house.pilot(), 9)]
    assert sorted(specs) == [[str(at)] for at in range(5)]
    many = [{**jobs[0], "Arguments": str(at)} for at in range(101)]
    first = house.call("POST", "/v1/jobs", {"jobs": many}, token="ann").json["first"]
    answer = change(house, first, first + 100, Memory=500)
    assert (answer.status, "more than 100 descriptions" in answer.json["error"]["message"]) == (413, True)


def test_a_pilot_that_waits_gets_the_job_that_fits_it_now(house):
    job = submit(house, JOB + "Memory = 2000;")
    pilot = house.pilot(memory_mb=1000)
    assert house.claim(pilot) == []
    assert changed(house, job, Memory=500) == (1, 0)
    assert [one["id"] for one in house.claim(pilot)] == [job]
