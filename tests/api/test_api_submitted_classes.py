"""Submissions with job classes: what they become, what they may change, and who wrote what."""

from __future__ import annotations

import asyncio

import pytest

from lodesman.decide.submission import resolve

APP = """jcname app
variant_list default,large
CMDNAME /bin/echo
CMDARG hello
N {~}greeting
l_hard {~+}h_rt=3600,vf=1G,h_cpu=500,[{~+}large=h_rt=7200,vf=1500M,h_cpu=500]
P physics
"""


@pytest.fixture
def admin(house):
    house.user("eva", "physics", admin=True)
    answer = house.call("POST", "/v1/job-classes", {"text": APP}, token="eva")
    assert answer.status == 200, answer.json
    return house


def submit(house, text, **more):
    return house.call("POST", "/v1/jobs", {"text": text, **more}, token="ann")


def spec(house):
    """What a pilot is given."""
    (job,) = house.claim(house.pilot())
    return job["spec"]


def task_queue(house):
    (found,) = house.get("/v1/task-queues")["task_queues"]
    return found


def test_a_job_gets_what_its_class_says(admin):
    assert submit(admin, 'JobClass = "app";').status == 200
    key = task_queue(admin)
    assert (key["job_class"], key["variant"], key["memory_mb"], key["project"]) == (
        "app",
        "default",
        1024,
        "physics",
    )
    found = spec(admin)
    assert (found["executable"], found["arguments"], found["name"]) == ("/bin/echo", ["hello"], "greeting")
    made = admin.get("/v1/jobs/1/description")["resolution"]
    assert (made["job_class"], made["origins"]["Executable"], made["origins"]["Memory"]) == (
        "app.default", "class", "class",
    )  # fmt: skip


def test_a_class_that_fixes_the_name_takes_commands(admin):
    text = "jcname fix\nN Fix\nl_hard {+}h_cpu=500\n"
    assert admin.call("POST", "/v1/job-classes", {"text": text}, token="eva").status == 200
    command = 'JobName = "true"; Executable = "/bin/true"; JobClass = "fix";'
    assert submit(admin, command).status == 400
    assert submit(admin, command, usual_name=True).status == 200
    assert spec(admin)["name"] == "Fix"


def test_a_class_may_not_allow_a_hold_and_a_hold_is_no_other_word_of_the_description(admin):
    text = "jcname now\nCMDNAME /bin/true\nl_hard {+}h_cpu=500\nh UNSPECIFIED\n"
    assert admin.call("POST", "/v1/job-classes", {"text": text}, token="eva").status == 200
    answer = submit(admin, 'JobClass = "now";', hold=True)
    assert (answer.status, "h may not be set" in answer.json["error"]["message"]) == (400, True)
    made = submit(admin, 'JobClass = "app";', hold=True)
    assert (made.status, made.json["notices"]) == (200, [])
    found = admin.get("/v1/jobs/1")
    assert (found["state"], found["reason"]) == ("Held", "submitted on hold")


def test_a_variant_and_what_the_user_may_change(admin):
    assert submit(admin, 'JobClass = "app.large"; JobName = "mine"; Memory = 1000;').status == 200
    key = task_queue(admin)
    assert (key["variant"], key["memory_mb"]) == ("large", 1000)
    assert spec(admin)["name"] == "mine"
    origins = admin.get("/v1/jobs/1/description")["resolution"]["origins"]
    assert (origins["JobName"], origins["WallTime"]) == ("command line", "class")


def test_all_that_a_class_does_not_allow_is_said_at_once_and_nothing_is_stored(admin):
    answer = submit(admin, 'JobClass = "app"; Executable = "/bin/rm"; JobGroup = "other";')
    assert answer.status == 400
    error = answer.json["error"]
    assert {one["attribute"] for one in error["data"]["violations"]} == {"CMDNAME", "P"}
    assert "CMDNAME may not be changed" in error["message"]
    assert admin.get("/v1/jobs")["jobs"] == []


@pytest.mark.parametrize(("name", "words"), [("nothing", "No job class"), ("app.small", "No job class")])
def test_a_class_that_is_not_there(admin, name, words):
    answer = submit(admin, f'JobClass = "{name}"; Executable = "/bin/true";')
    assert (answer.status, answer.json["error"]["data"]["attribute"]) == (400, "JobClass")
    assert words in answer.json["error"]["message"]


def test_a_disabled_class_takes_no_new_jobs(admin):
    assert submit(admin, 'JobClass = "app";').status == 200
    admin.call("POST", "/v1/job-classes/switch", {"names": ["app"], "switch": "disable"}, token="eva")
    assert submit(admin, 'JobClass = "app";').status == 400
    assert len(admin.claim(admin.pilot())) == 1


def test_the_description_that_is_kept_is_what_the_user_wrote(admin):
    assert submit(admin, '[ JobClass = "app.large"; JobName = "mine"; ]').status == 200
    text = admin.get("/v1/jobs/1/description?form=json")["text"]
    assert "app.large" in text
    assert "/bin/echo" not in text


def test_a_batch_keeps_what_became_of_each(admin):
    jobs = [{"Executable": "/bin/true"}, {"JobClass": "app"}]
    assert admin.call("POST", "/v1/jobs", {"jobs": jobs}, token="ann").status == 200
    assert admin.get("/v1/jobs/1/description")["resolution"] is None
    assert admin.get("/v1/jobs/2/description")["resolution"]["job_class"] == "app.default"


def test_an_array_is_resolved_once(admin):
    text = 'JobClass = "app"; Parameters = 1000; JobName = "n%n";'
    assert submit(admin, text).json["count"] == 1000
    assert admin.get("/v1/jobs/1000/description")["resolution"]["job_class"] == "app.default"


def test_a_plan_says_what_a_submission_would_be_refused_with(admin):
    answer = admin.call("POST", "/v1/plan/job", {"text": 'JobClass = "app"; JobGroup = "x";'}, token="ann")
    assert (answer.status, answer.code) == (400, "invalid-job")
    answer = admin.call("POST", "/v1/plan/job", {"text": 'JobClass = "app";'}, token="ann")
    assert answer.json["refusal"] is None


HELD = "jcname held\nCMDNAME /bin/echo\nl_hard h_cpu=500\nh {~}u\n"


@pytest.mark.parametrize("more", ["", "Parameters = 5;"])
def test_jobs_of_a_class_that_holds_them_wait_for_their_release(admin, more):
    assert admin.call("POST", "/v1/job-classes", {"text": HELD}, token="eva").status == 200
    answer = submit(admin, f'JobClass = "held"; {more}')
    count = answer.json["count"]
    words = "submitted with h u (class)"
    assert [one["message"] for one in answer.json["notices"]] == [
        f"It is Held until it is released: {words}."
    ]
    assert answer.json["held"] == 0  # by no lack of queues
    jobs = admin.get("/v1/jobs")["jobs"]
    assert [(job["state"], job["held_by"], job["reason"]) for job in jobs] == [
        ("Held", "user", words)
    ] * count
    assert admin.claim(admin.pilot(), 10) == []
    body = {"action": "release", "ranges": [[1, count]]}
    assert admin.call("POST", "/v1/jobs/control", body, token="ann").json["changed"] == count
    assert len(admin.claim(admin.pilot(), 10)) == count


def test_a_job_that_says_h_n_is_not_held_and_one_without_class_may_be(admin):
    assert admin.call("POST", "/v1/job-classes", {"text": HELD}, token="eva").status == 200
    assert submit(admin, 'JobClass = "held"; GridEngine = {"h=n"};').json["notices"] == []
    assert submit(admin, 'Executable = "/bin/true"; CPUTime = 500; GridEngine = {"h=s"};').status == 200
    states = {job["id"]: job["state"] for job in admin.get("/v1/jobs")["jobs"]}
    assert states == {1: "Waiting", 2: "Held"}
    assert "(command line)" in admin.get("/v1/jobs/2")["reason"]


def test_jobs_of_a_batch_are_held_one_by_one(admin):
    jobs = [
        {"Executable": "/bin/true", "CPUTime": 500, **({"GridEngine": ["h=u"]} if at % 2 else {})}
        for at in range(6)
    ]
    assert admin.call("POST", "/v1/jobs", {"jobs": jobs}, token="ann").status == 200
    assert {job["id"] for job in admin.claim(admin.pilot(), 10)} == {1, 3, 5}


@pytest.mark.parametrize("more", ["", "Parameters = 5;"])
def test_a_pilot_that_waits_gets_no_job_that_is_submitted_held(admin, more):
    text = f'Executable = "/bin/true"; CPUTime = 500; GridEngine = {{"h=u"}}; {more}'
    pilot = admin.pilot()
    task, connection = admin.open("POST", "/v1/pilots/claim", admin.claim_body(9, wait_s=60.0), token=pilot)
    admin.run(asyncio.sleep(0))
    assert submit(admin, text).status == 200
    assert submit(admin, 'Executable = "/bin/true"; CPUTime = 500;').status == 200
    admin.run(task)
    states = {job["id"]: job["state"] for job in admin.get("/v1/jobs")["jobs"]}
    given = [job["id"] for job in connection.answer().json["jobs"]]
    assert given == [max(states)]
    assert {state for number, state in states.items() if number not in given} == {"Held"}


def test_a_flood_through_a_class_goes_through_the_six_steps_once_for_each_version_of_the_class(
    admin, monkeypatch
):
    """They are long, and hold the event loop, on which pilots claim."""
    steps, run = [], resolve._Steps.run
    monkeypatch.setattr(resolve._Steps, "run", lambda *args, **more: steps.append(1) or run(*args, **more))

    def flood(last):
        for number in range(20):
            body = {"jobs": [{"JobClass": "app", "JobName": f"n{number}", "WallTime": 60 + number}]}
            assert admin.call("POST", "/v1/jobs", body, token="ann").status == 200
        return admin.get(f"/v1/jobs/{last}/description")["resolution"]["revision"]

    assert (flood(20), len(steps)) == (1, 1)
    body = {"text": APP.replace("hello", "hallo"), "how": "change"}
    assert admin.call("POST", "/v1/job-classes", body, token="eva").status == 200
    assert (flood(40), len(steps)) == (2, 2)
