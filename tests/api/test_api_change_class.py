"""Waiting jobs that get another job class: what they keep, what the class gives and forbids, and what is refused."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from tests.api.test_api_change_jobs import change, changed

from lodesman.wire.jsv import JsvSection

BARE = 'Executable = "/bin/true"; Site = "North"; '
JOB = BARE + "CPUTime = 100; "
CLASSES = """jcname app
variant_list default,large
N {~}greeting
l_hard {+}h_rt=3600,{~}h_cpu=60,[{~+}large=h_rt=7200]
P physics
v {~+}{~}MODE=fast
jcname light
N light
l_hard {~+}h_cpu=50
pe_range {~}2
jcname strict
CMDNAME /bin/echo
l_hard {~+}h_cpu=50
jcname closed
user_lists %eva
jcname wide
variant_list default,more
jcname many
t 1-10
"""


@pytest.fixture(autouse=True)
def right_counts(house):
    """Counters, task queues and fronts agree with the jobs at the end of each test."""
    house.user("eva", "physics", admin=True)
    assert house.call("POST", "/v1/job-classes", {"text": CLASSES}, token="eva").status == 200
    yield
    assert not any(house.reconcile().values())


def submit(house, text, token="ann", **more):
    body = {"text": text, **more} if isinstance(text, str) else {"jobs": text, **more}
    answer = house.call("POST", "/v1/jobs", body, token=token)
    assert answer.status == 200, answer.json
    return answer.json["first"]


def resolution(house, job):
    found = house.get(f"/v1/jobs/{job}/description?form=json")
    return found["resolution"], found["values"]


def test_a_job_without_a_class_gets_one(house):
    job = submit(house, JOB + 'NumberOfProcessors = 1; Environment = [ A = "b" ];')
    assert changed(house, job, JobClass="app") == (1, 0)
    made, values = resolution(house, job)
    assert made["job_class"] == "app.default"
    wanted = {"JobName": "greeting", "WallTime": "3600", "CPUTime": "100", "JobGroup": "physics"}
    assert wanted.items() <= values.items()
    assert {
        "Environment.A": "b",
        "Environment.MODE": "fast",
        "Executable": "/bin/true",
    }.items() <= values.items()
    names = (
        "JobClass",
        "JobName",
        "WallTime",
        "CPUTime",
        "Environment.A",
        "Environment.MODE",
        "NumberOfProcessors",
    )
    said = {name: made["origins"].get(name) for name in names}
    assert said == {
        "JobClass": "change by ann", "JobName": "class", "WallTime": "class", "CPUTime": "command line",
        "Environment.A": "command line", "Environment.MODE": "class", "NumberOfProcessors": "command line",
    }  # fmt: skip
    # From now on the new class counts.
    answer = change(house, job, WallTime=60)
    assert (answer.status, 'job class "app.default"' in answer.json["error"]["message"]) == (400, True)
    assert changed(house, job, JobName="mine", CPUTime=60) == (1, 0)
    made, _ = resolution(house, job)
    assert [made["origins"][name] for name in ("JobName", "CPUTime", "WallTime")] == ["change by ann"] * 2 + [
        "class"
    ]
    (got,) = house.claim(house.pilot(), 1)
    assert (got["spec"]["name"], got["limits"]["wall_seconds"]) == ("mine", 3600)


def test_what_the_class_before_gave_goes_and_what_is_the_jobs_own_stays(house):
    job = submit(house, JOB + 'JobClass = "app"; NumberOfProcessors = 1; Environment = [ A = "b" ];')
    assert changed(house, job, VacatePriority=5) == (1, 0)
    assert changed(house, job, JobClass="app.large") == (1, 0)
    made, values = resolution(house, job)
    assert (made["job_class"], values["WallTime"], values["CPUTime"]) == ("app.large", "7200", "100")
    assert changed(house, job, JobClass="light") == (1, 0)
    made, values = resolution(house, job)
    assert (values["JobName"], values["CPUTime"], values["Environment.A"]) == ("light", "100", "b")
    assert not {"WallTime", "JobGroup", "Environment.MODE", "NumberOfProcessors"} & values.keys()
    assert (values["VacatePriority"], made["origins"]["JobClass"]) == ("5", "change by ann")
    assert changed(house, job, JobClass="NONE", VacatePriority=None) == (1, 0)
    text = house.get(f"/v1/jobs/{job}/description?form=json")["text"]
    assert not [name for name in ("JobClass", "JobName", "VacatePriority") if name in text], text


def test_the_class_that_a_job_has_already_is_no_change_of_it(house):
    job = submit(house, JOB + 'JobClass = "app.large";')
    for named in ({"JobClass": "app.large"}, {"JobClass": "app", "Variant": "large"}, {"Variant": "large"}):
        assert changed(house, job, **named) == (1, 0)
        made, values = resolution(house, job)
        assert (made["job_class"], values["WallTime"], made["origins"]["WallTime"]) == (
            "app.large",
            "7200",
            "class",
        )
    assert changed(house, job, JobClass="app") == (1, 0)
    assert resolution(house, job)[1]["WallTime"] == "3600"
    assert changed(house, job, Variant="large") == (1, 0)
    assert resolution(house, job)[1]["WallTime"] == "7200"


@pytest.mark.parametrize(
    ("attributes", "status", "words"),
    [
        ({"JobClass": "nothing"}, 400, 'Unable to change job: No job class or job class variant "nothing"'),
        ({"JobClass": "app.small"}, 400, 'No job class or job class variant "app.small"'),
        ({"JobClass": "closed"}, 403, 'may not use the job class "closed"'),
        ({"JobClass": "strict"}, 400, "CMDNAME may not be changed"),
        ({"JobClass": "app", "JobGroup": "other"}, 400, "P may not be changed"),
        ({"JobClass": "app", "Variant": "small"}, 400, 'No job class or job class variant "app.small"'),
        ({"Variant": "large"}, 400, "there is no JobClass"),
        ({"JobClass": "many"}, 400, "Parameters: waiting jobs have no such attribute"),
        ({"JobClass": "app", "Memory": 10**6}, 422, "can never run"),
        ({"JobClass": 5}, 400, "JobClass"),
    ],
)
def test_a_class_that_a_job_cannot_have(house, attributes, status, words):
    job, other = submit(house, JOB), submit(house, 'JobClass = "strict"; Site = "North";')
    before = [house.get(f"/v1/jobs/{one}/description?form=json") for one in (job, other)]
    answer = change(house, job, other, **attributes)
    assert answer.status == status, answer.json
    assert words in answer.json["error"]["message"]
    assert [house.get(f"/v1/jobs/{one}/description?form=json") for one in (job, other)] == before


def test_the_owner_of_a_job_must_be_one_who_may_use_the_class(house):
    job = submit(house, JOB)
    assert change(house, job, token="eva", JobClass="closed").status == 403
    job = submit(house, JOB, token="eva")
    assert changed(house, job, token="eva", JobClass="closed") == (1, 0)


def test_a_job_that_runs_keeps_its_class(house):
    job = submit(house, JOB)
    house.claim(house.pilot(), 1)
    assert changed(house, job, JobClass="app") == (0, 1)


@pytest.mark.stores
def test_members_of_an_array_get_another_class(house):
    first = submit(house, BARE + 'JobClass = "light"; Parameters = 10; Arguments = "%n";')
    assert changed(house, first + 2, first + 5, JobClass="app") == (4, 0)
    assert changed(house, first + 3, JobClass="light") == (1, 0)
    classes = [resolution(house, first + n)[0]["job_class"] for n in range(6)]
    assert classes == ["light.default"] * 2 + ["app.default", "light.default"] + ["app.default"] * 2
    assert change(house, first + 2, first + 3, WallTime=60).status == 400
    got = [one for _ in range(3) for one in house.claim(house.pilot(), 4)]
    assert {one["id"] - first: (one["spec"]["name"], one["spec"]["arguments"]) for one in got} == {
        n: ("greeting" if n in (2, 4, 5) else "light", [f"{n:02}"]) for n in range(10)
    }


@pytest.mark.stores
def test_the_jobs_of_a_batch_each_keep_their_own(house):
    same = {"Executable": "/bin/true", "Site": "North"}
    plain = {**same, "CPUTime": 40}
    first = submit(
        house, [plain, {**same, "JobClass": "light"}, {**same, "JobClass": "light", "CPUTime": 45}]
    )
    assert changed(house, first, first + 2, JobClass="app") == (3, 0)
    assert [resolution(house, first + n)[1]["CPUTime"] for n in range(3)] == ["40", "60", "45"]
    # Two that are alike, but for whose the value is.
    first = submit(house, [{**same, "JobClass": "light"}, {**same, "JobClass": "light", "CPUTime": 50}])
    answer = change(house, first, JobClass="app")
    assert (answer.status, "some say CPUTime themselves" in answer.json["error"]["message"]) == (400, True)
    assert changed(house, first, first + 1, JobClass="app", CPUTime=50) == (2, 0)
    assert [resolution(house, first + n)[1]["CPUTime"] for n in range(2)] == ["50", "50"]


def test_a_verifier_of_the_server_has_to_allow_the_class_and_all_that_it_changes(house):
    job = submit(house, JOB)
    for allowed, status in (("N,P", 403), ("jc,N", 403), ("jc,N,P,l_hard,v", 200)):
        house.core.jsv = JsvSection(server="/nowhere/jsv.sh", allowed_modifications=allowed)
        assert change(house, job, JobClass="app").status == status


def test_a_job_that_names_no_class_any_more_gets_the_usual_one(house):
    job = submit(house, JOB + 'JobClass = "light";')
    house.core.job_classes.now = replace(house.core.job_classes.now, default_jc="app", enforce_jc=True)
    assert changed(house, job, JobClass=None) == (1, 0)
    assert resolution(house, job)[0]["job_class"] == "app.default"
    answer = change(house, job, JobClass="none")
    assert (answer.status, "Every job needs a job class here" in answer.json["error"]["message"]) == (
        400,
        True,
    )


def test_the_usual_name_of_a_command_is_not_the_jobs_own(house):
    wide = 'JobClass = "wide"; JobName = "true";'
    job = submit(house, JOB + wide, usual_name=True)
    assert changed(house, job, JobClass="light") == (1, 0)
    assert resolution(house, job)[1]["JobName"] == "light"
    job = submit(house, JOB + wide, usual_name=True)
    assert changed(house, job, JobClass="wide.more") == (1, 0)
    assert resolution(house, job)[1]["JobName"] == "true"


def test_what_no_class_speaks_of_stays(house):
    parent = submit(house, JOB)
    rich = (
        'Tag = {"a"}; Requirements = [ Disk = 1 ]; RetryOn = {75}; MaxAttempts = 5; Priority = 3; BannedSite = "South"; '
        f'OutputSandbox = {{"*.txt"}}; StdOutput = "o"; AtMost = 2; AfterOk = {{{parent}}}; OnParentFailure = "cancel"; '
        'Exclusive = true; ExpectedTime = 5; Arguments = {"%s", "x y"}; '
    )
    text = BARE + rich + 'Parameters = {"50", "60"}; CPUTime = "%s";'
    first = submit(house, text, hold_if_impossible=True)

    def record(job):
        return json.loads(house.get(f"/v1/jobs/{job}/description?form=json")["text"])

    assert changed(house, first, first + 1, VacatePriority=1, hold_if_impossible=True) == (2, 0)
    before = [record(first + n) for n in range(2)]
    assert changed(house, first, first + 1, JobClass="app", hold_if_impossible=True) == (2, 0)
    added = {"JobClass", "Variant", "JobName", "WallTime", "JobGroup", "Environment"}
    for n in range(2):
        after = record(first + n)
        assert added <= after.keys()
        assert {name: after[name] for name in after.keys() - added} == before[n]
