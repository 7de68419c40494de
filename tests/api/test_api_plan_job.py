"""POST /v1/plan/job: held against what a submission does and what `why` says right after it."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most

from lodesman.decide.resources import load_resources
from lodesman.server.http import explain
from lodesman.server.loops.refresh import PoolKeeper

HELLO = '[ Executable = "/bin/echo"; CPUTime = 500; ]'
ARRAY = '[ Executable = "/bin/true"; CPUTime = "%(cpu)s"; Parameters.cpu = {100, 9999999, 200, 100}; ]'


def plan(house, body, token="ann", status=200):
    answer = house.call("POST", "/v1/plan/job", body, token=token)
    assert answer.status == status, answer.body
    return answer.json if status == 200 else answer.json["error"]


def plan_of(house, *jobs, token="ann", **body):
    records = [{"Executable": "/bin/true", "CPUTime": 500, **job} for job in jobs or ({},)]
    return plan(house, {"jobs": records, **body}, token)


def stored(house):
    """Everything that a submission could leave behind."""
    tables = (
        "job",
        "submission",
        "cohort",
        "task_queue",
        "submit_pool_bits",
        "sandbox",
        "event",
        "task_queue_hold",
    )
    return [next(house.side.db.execute(f"SELECT count(*) FROM {table}"))[0] for table in tables]


# --- the same as why ------------------------------------------------------------------------------------

WORLDS = st.lists(
    st.fixed_dictionaries(
        {"Platform": st.sampled_from(["el8", "el9"]), "CPUTime": st.sampled_from([500, 1_000, 100_000])},
        optional={
            "Memory": st.sampled_from([1_000, 2_000, 8_000]),
            "NumberOfProcessors": st.sampled_from([1, 2, 4]),
            "Tag": st.sampled_from([["SSD"], ["GPU", "SSD"]]),
            "RequiredTag": st.just(["GPU"]),
            "Software": st.sampled_from([["root"], ["root", "fluka"]]),
            "Slots": st.sampled_from([1, 2]),
            "VO": st.sampled_from([["lab"], ["other"]]),
        },
    ).map(lambda queue: queue | {"Tag": ["GPU", "SSD"]} if "RequiredTag" in queue else queue),
    min_size=2,
    max_size=4,
)
JOBS = st.fixed_dictionaries(
    {"CPUTime": st.sampled_from([1, 1_000, 1_001, 100_001])},
    optional={
        "Memory": st.sampled_from([1_000, 2_001, 8_001]),
        "NumberOfProcessors": st.sampled_from([2, 5]),
        "Platform": st.lists(st.sampled_from(["el8", "el9", "vax"]), min_size=1, max_size=2),
        "Site": st.sampled_from(["North", "South"]),
        "BannedSite": st.sampled_from(["North", "South"]),
        "GridCE": st.sampled_from(["ce.north", "ce.moon"]),
        "Tag": st.sampled_from(["SSD", "GPU"]),
        "OwnerGroup": st.sampled_from(["physics", "bio"]),
        "Requirements": st.fixed_dictionaries(
            {},
            optional={
                "Software": st.sampled_from(["root", "fluka", "x"]),
                "Slots": st.sampled_from([1, 2, 3]),
            },
        ),
        "Parameters": st.integers(2, 4),
    },
)
PILOTS = st.lists(st.sampled_from(["North", "South"]), max_size=1)
NAMES = [
    ("North", "ce.north", "short"),
    ("South", "ce.south", "long"),
    ("East", "c", "q"),
    ("West", "c", "q"),
]


def configure(house, world, share=1_000):
    """Another configuration everywhere, as after a reload."""
    text = '[job_description]\nSoftware = "list"\n'
    for (site, ce, queue), params in zip(NAMES, world, strict=False):
        values = "".join(
            f"{name} = {json.dumps(value)}\n" for name, value in {"VO": ["lab"], **params}.items()
        )
        text += f'[site.{site}.ce."{ce}".queue.{queue}]\n{values}'
    text += f'[group.physics]\nvo = "lab"\nshare = {share}\n[group.bio]\nvo = "lab"\n'
    house.core.policy = house.side.policy = house.policy(load_resources([("sites.toml", text)]))
    keeper = PoolKeeper(house.side.db, house.post, refresh_seconds=900.0, grace_seconds=900.0)
    keeper.tick(house.side.policy, house.now)


def without_ages(told):
    """`why` and the plan without what only one of them can know."""
    told = {
        name: value
        for name, value in told.items()
        if name not in ("id", "state", "reason", "members", "jobs")
    }
    told.pop("more_members", None)
    queue = told["task_queue"]
    return {**told, "task_queue": {name: queue[name] for name in ("waiting", "ahead", "more_ahead")}}


def test_a_plan_agrees_with_why_when_no_queue_fulfils_the_requirements(house):
    job = {"CPUTime": 500, "Requirements": {"Software": "none"}}
    plan = house.call(
        "POST",
        "/v1/plan/job",
        {"jobs": [{"Executable": "x", **job}], "hold_if_impossible": True},
        token="ann",
    )
    (cohort,) = plan.json["cohorts"]
    made = house.submit(job, token="ann", hold_if_impossible=True)
    told = house.get(f"/v1/jobs/{made.json['first']}/why", "ann")
    assert without_ages(cohort) == without_ages(told)


@pytest.mark.slow
@at_most(100)
@given(
    world=WORLDS,
    job=JOBS,
    pilots=PILOTS,
    share=st.sampled_from([0, 1, 3_000]),
    load=st.sampled_from([None, 0, 0, 10**4]),
)
def test_a_plan_agrees_with_why_right_after_the_submission(house, backend, world, job, pilots, share, load):
    """Over random worlds, pilots and states of the batch systems: verdict, eligible queues, and all the rest."""
    if "cleo" not in house.tokens:
        house.user("cleo", "physics", "bio")
    house.call("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[1, 10**6]]}, token="admin")
    house.now += 1
    for site in pilots:
        house.pilot(site)
    configure(house, world, share)
    backend.waiting = backend.running = load
    house.director(backend).tick(house.now)
    before = stored(house)
    answer = house.call(
        "POST",
        "/v1/plan/job",
        {"jobs": [{"Executable": "x", **job}], "hold_if_impossible": True},
        token="cleo",
    )
    assert stored(house) == before
    made = house.submit(job, token="cleo", hold_if_impossible=True)
    assert answer.status == made.status, answer.body
    if made.status != 200:  # a site that is not configured now, or is wanted and banned
        assert answer.json == made.json
        return
    (cohort,) = answer.json["cohorts"]
    told = house.get(f"/v1/jobs/{made.json['first']}/why", "cleo")
    assert without_ages(cohort) == without_ages(told)
    assert cohort["verdict"] in ("never", "not now", "now")
    assert answer.json["verdicts"] == {
        "never": 0,
        "not now": 0,
        "now": 0,
        cohort["verdict"]: made.json["count"],
    }
    assert (
        answer.json["held"]
        == made.json["held"]
        == (made.json["count"] if cohort["verdict"] == "never" else 0)
    )
    again = house.call(
        "POST",
        "/v1/plan/job",
        {"jobs": [{"Executable": "x", **job}], "hold_if_impossible": True},
        token="cleo",
    )
    queue = again.json["cohorts"][0]["task_queue"]
    assert (queue["new"], queue["id"]) == (False, told["task_queue"]["id"])
    assert queue["waiting_before"] == told["task_queue"]["waiting"]


@at_most(60)
@given(job=JOBS)
def test_a_plan_is_refused_with_the_words_of_the_submission(house, job):
    wanted = {"jobs": [{"Executable": "x", **job}]}
    made = house.call("POST", "/v1/jobs", {**wanted, "dry_run": True}, token="ann")
    answer = house.call("POST", "/v1/plan/job", wanted, token="ann")
    if made.status == 422:
        assert answer.json["refusal"] == made.json["error"]
        assert answer.json["cohorts"][0]["verdict"] == "never"
        assert answer.json["held"] == 0
    elif made.status == 200:
        assert answer.json["refusal"] is None
        assert answer.json["verdicts"]["never"] == 0
    else:
        assert (answer.status, answer.json) == (made.status, made.json)


# --- cohorts --------------------------------------------------------------------------------------------


def test_an_array_is_planned_by_cohort_the_worst_first(house):
    told = plan(house, {"text": ARRAY})
    assert [(one["members"], one["jobs"], one["verdict"]) for one in told["cohorts"]] == [
        ([[1, 1]], 1, "never"), ([[0, 0], [3, 3]], 2, "not now"), ([[2, 2]], 1, "not now"),
    ]  # fmt: skip
    assert told["verdicts"] == {"never": 1, "not now": 3, "now": 0}
    assert told["refusal"]["message"].startswith(
        "Member 1 (1 of 4) can never run: no queue of VO lab can run it: CPUTime"
    )
    assert told["refusal"]["data"]["queues"]["nearest"][0]["text"] == "CPUTime 9999999 -> 1000"
    held = plan(house, {"text": ARRAY, "hold_if_impossible": True})
    assert (held["refusal"], held["held"], held["count"]) == (None, 1, 4)


def test_jobs_of_a_batch_that_join_one_task_queue_are_one_cohort(house):
    told = plan_of(house, {}, {"CPUTime": 600}, {}, {})
    assert [(one["members"], one["jobs"]) for one in told["cohorts"]] == [
        ([[0, 0], [2, 3]], 3),
        ([[1, 1]], 1),
    ]
    assert told["cohorts"][0]["task_queue"]["waiting"] == 3
    refused = plan_of(house, {}, {"CPUTime": 10**8}, {})
    assert refused["refusal"]["message"].startswith("Job 1 of the batch: The job can never run")
    assert refused["refusal"]["data"]["job"] == 1
    texts = plan(house, {"texts": [HELLO, HELLO]})
    assert texts["cohorts"][0]["members"] == [[0, 1]]


def test_the_task_queue_is_new_or_not_and_has_its_key(house):
    told = plan_of(house)["cohorts"][0]["task_queue"]
    assert (told["new"], told["id"], told["waiting_before"], told["waiting"], told["ahead"]) == (
        True,
        None,
        0,
        1,
        0,
    )
    assert (told["key"]["owner"], told["key"]["norm_cpu_seconds"]) == ("ann", 500)
    house.submitted({}, {}, {})
    told = plan_of(house, {"Parameters": 10})["cohorts"][0]["task_queue"]
    assert (told["new"], told["waiting_before"], told["waiting"], told["ahead"]) == (False, 3, 13, 3)


@pytest.mark.slow
def test_many_cohorts_are_all_counted_and_some_listed(house):
    text = '[ Executable = "x"; CPUTime = "%s"; Parameters = 300; ParameterStart = 1; ParameterStep = 400; ]'
    told = plan(house, {"text": text})
    assert len(told["cohorts"]) == 100
    assert told["more_cohorts"] == 200
    assert sum(told["verdicts"].values()) == 300
    assert told["verdicts"]["never"] == 50  # above 100,000
    assert [one["verdict"] for one in told["cohorts"]] == ["never"] * 50 + ["not now"] * 50


def test_members_that_alternate_are_cut(house):
    text = json.dumps({"Executable": "x", "CPUTime": "%s", "Parameters": [100, 200] * 30})
    told = plan(house, {"text": text})
    assert [(len(one["members"]), one["more_members"], one["jobs"]) for one in told["cohorts"]] == [
        (20, 10, 30)
    ] * 2


def test_a_million_members_are_planned_as_one(house):
    told = plan(house, {"text": '[ Executable = "x"; Arguments = "%n"; CPUTime = 5; Parameters = 1000000; ]'})
    assert (told["count"], told["cohorts"][0]["members"]) == (1_000_000, [[0, 999_999]])


# --- what it is held against ----------------------------------------------------------------------------


def test_files_need_not_be_uploaded_and_none_is(house):
    told = plan_of(house, {"InputSandbox": ["data.txt"]})
    assert told["refusal"] is None
    assert list((house.shelf.input_path("ann", "0" * 64).parent.parent).glob("*/*")) == []
    told = plan(
        house, {"text": '[ Executable = "x"; InputSandbox = "part%n"; Parameters = 10001; ]'}, status=400
    )
    assert told["data"]["attribute"] == "InputSandbox"


def test_pilots_and_shares_are_those_of_now(house):
    house.submitted(token="bob")
    told = plan_of(house)["cohorts"][0]
    assert told["share"] == {
        "group": "physics",
        "share": 3_000.0,
        "of": 4_000.0,
        "part": 0.75,
        "in_its_queues": False,
        "groups_waiting": 2,
    }
    house.pilot()
    told = plan_of(house)["cohorts"][0]
    assert (told["verdict"], told["main_reason"], told["pilots"]["usable_idle"]) == ("now", "next", 1)
    assert plan_of(house)["limits"] == []
    assert [step["step"] for step in told["chain"] if step["step"] == "limits"] == ["limits"]


def test_the_group_and_notices_are_those_of_a_submission(house):
    house.user("cleo", "physics", "bio")
    assert plan_of(house, token="cleo", group="bio")["group"] == "bio"
    assert house.call("POST", "/v1/plan/job", {"text": HELLO, "group": "bio"}, token="ann").status == 403
    told = plan(house, {"text": '[ Executable = "x";\n Colour = "red"; ]'})
    assert [(one["attribute"], one["line"]) for one in told["notices"]] == [("Colour", 2)]


def test_requirements_of_a_pool_that_others_brought(house):
    job = {"Requirements": {"Software": "root"}}
    new = plan_of(house, job)["cohorts"][0]
    house.submitted(job, token="bob")
    known = plan_of(house, job)["cohorts"][0]
    assert new["queues"] == known["queues"]
    assert [step["text"] for step in new["chain"] if step["step"] == "submit_pool"] == [
        step["text"] for step in known["chain"] if step["step"] == "submit_pool"
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid-request"), ({"text": HELLO, "jobs": []}, "invalid-request"), ({"jobs": []}, "invalid-request"),
        ({"text": "[ A = "}, "syntax"), ({"jobs": [{}]}, "invalid-job"), ({"text": 5}, "invalid-request"),
        ([], "invalid-request"), ({"text": HELLO, "form": "xml"}, "invalid-request"),
        ({"jobs": [{"Executable": "x", "Site": "Nroth"}]}, "invalid-job"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_as_a_submission_is(house, body, code):
    assert plan(house, body, status=400)["code"] == code


def test_permission_to_plan_jobs(house):
    assert house.call("POST", "/v1/plan/job", {"text": HELLO}).status == 401
    assert house.call("POST", "/v1/plan/job", {"text": HELLO}, token=house.pilot()).status == 403
    house.user("seer", "physics", scopes=("pilots:read",))
    assert house.call("POST", "/v1/plan/job", {"text": HELLO}, token="seer").status == 403
    assert house.call("GET", "/v1/plan/job", token="ann").status == 405


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(house):
    answer = house.call("POST", "/v1/plan/job", b"x", token="ann", headers={"content-length": str(33 << 20)})
    assert (answer.status, answer.code) == (413, "too-large")


def test_a_client_that_goes_away_costs_nothing(house):
    task, connection = house.open("POST", "/v1/plan/job", {"text": HELLO}, token="ann", chunks=[b"{", b"}"])
    connection.break_off_after(1)
    house.run(task)
    assert connection.sent == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("job", {"text": HELLO}),
        ("shares", {"shares": {"bio": 5}}),
        ("resources", {"files": [{"name": "a", "text": ""}]}),
    ],
)
def test_a_plan_that_takes_too_long_is_given_up(house, monkeypatch, kind, body):
    house.submitted()
    monkeypatch.setattr(explain, "_PLAN_SECONDS", -1.0)
    answer = house.call("POST", f"/v1/plan/{kind}", body, token="admin")
    assert (answer.status, answer.code) == (413, "too-large")
    assert "to work out" in answer.json["error"]["message"]
    monkeypatch.setattr(explain, "_PLAN_SECONDS", 60.0)
    assert house.call("POST", f"/v1/plan/{kind}", body, token="admin").status == 200


def test_a_plan_waits_for_those_before_it_and_not_for_long(house, monkeypatch):
    begun, go = threading.Event(), threading.Event()

    def slow(*_):
        begun.set()
        assert go.wait(60)
        return {}

    monkeypatch.setattr(explain, "plan_shares", slow)
    body = {"shares": {"bio": 5}}
    first, connection = house.open("POST", "/v1/plan/shares", body, token="admin")
    house.run(asyncio.to_thread(begun.wait, 60))
    monkeypatch.setattr(explain, "_WAIT_SECONDS", 0.01)
    refused = house.call("POST", "/v1/plan/shares", body, token="admin")
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "unavailable", "1")
    assert plan(house, {"text": HELLO})["count"] == 1  # jobs have room of their own
    assert house.get("/v1/me")["name"] == "ann"
    go.set()
    house.run(first)
    assert connection.answer().status == 200


def test_the_binding_limits_are_reported_even_where_no_pilot_was_wanted(house, backend):
    """The director considered the queue; no task queue wanted pilots there, and it was full."""
    house.submitted({"Site": "North"})
    backend.waiting = 25
    house.director(backend).tick(house.now)
    house.now += 4.0
    (cohort,) = plan_of(house, {"Site": "South"})["cohorts"]
    (closed,) = cohort["chain"][-1]["closed"]
    assert (closed["gate"], closed["text"]) == ("max-waiting", "MaxWaitingJobs 10 - 25 waiting")
    assert (closed["example"], closed["load_source"]) == ("South/ce.south/long", "local")
    assert (cohort["verdict"], cohort["main_reason"]) == ("not now", "no-room-for-pilots")
    assert cohort["ages"]["load"] == closed["load_seconds_ago"] == 4.0
