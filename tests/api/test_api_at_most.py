"""`AtMost` as users give and see it: its values, why a member waits, how it is changed, which pilots are sent."""

from __future__ import annotations

import pytest

from lodesman.server.loops.reasons import MainReasons

JOB = 'Executable = "/bin/true"; Site = "North"; CPUTime = 60; '


@pytest.fixture(autouse=True)
def right_counts(house):
    yield
    assert not any(house.reconcile().values())


def submit(house, more="Parameters = 9; AtMost = 2;", status=200, **body):
    answer = house.call("POST", "/v1/jobs", {"text": f"[ {JOB} {more} ]", **body}, token="ann")
    assert answer.status == status, answer.json
    return answer.json


def change(house, first, last, value, **more):
    body = {"ranges": [[first, last]], "attributes": {"AtMost": value}, **more}
    return house.call("POST", "/v1/jobs/change", body, token="ann")


def why(house, number):
    return house.get(f"/v1/jobs/{number}/why")


def test_why_says_what_a_member_waits_for_and_who_changes_it(house):
    first = submit(house)["first"]
    assert why(house, first)["main_reason"] != "at-most"
    behind = why(house, first + 4)
    assert (behind["verdict"], behind["main_reason"]) == ("not now", "at-most")
    assert behind["summary"].endswith(
        "and it waits behind 4 jobs of its submission: AtMost = 2, of which none is under way; the reason of the first is "
        "director-has-not-decided."
    )
    house.claim(house.pilot(), 4)
    assert why(house, first + 2)["summary"].endswith(
        "and it waits until one of the 2 under way ends: AtMost = 2."
    )
    found = why(house, first + 8)
    assert found["summary"].endswith("until one of the 2 under way ends, and 6 jobs before it: AtMost = 2.")
    assert found["who"] == "time, as jobs of its submission end; or you: lode change 9 AtMost=N"
    (step,) = (one for one in found["chain"] if one["step"] == "limits")
    assert (step["holds"], step["text"]) == (
        False,
        "it waits until one of the 2 under way ends, and 6 jobs before it: AtMost = 2",
    )
    (queue,) = house.get("/v1/task-queues")["task_queues"]
    assert (queue["at_most"], queue["submission"], queue["waiting"]) == (2, 1, 7)
    found = house.get("/v1/queues/why?path=North/ce.north/short")
    assert (found["verdict"], found["main_reason"]) == ("not now", "at-most")
    assert found["summary"].endswith("AtMost of their submissions keeps it from starting there now.")


def test_a_pilot_says_why_it_gets_none(house):
    submit(house)
    house.claim(house.pilot(), 4)
    idle = house.pilot()
    assert house.claim(idle, 4) == []
    said = house.get(f"/v1/pilots/{idle.removeprefix('pilot')}/why")
    assert "waiting until one of their submission ends (AtMost)" in said["summary"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", "is too small"),
        ("-1", "is negative"),
        ('"ten"', "is the text 'ten', not a number"),
        ("2.5", "is 2.5, not a whole number"),
        ("true", "is a truth value, not a number"),
        ('"%s"', "is the same for all members"),
    ],
)
def test_only_a_positive_whole_number_is_taken(house, value, words):
    error = submit(house, f"Parameters = 2; AtMost = {value};", status=400)["error"]
    assert words in error["message"]
    assert (error["data"]["attribute"], error["hint"][:32]) == ("AtMost", "Give a whole number from 1 to 10")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("json", '{"Executable": "/bin/true", "CPUTime": 60, "Parameters": 5, "AtMost": 1}'),
        ("cfg", "Executable = /bin/true\nCPUTime = 60\nParameters = 5\nAtMost = 1\n"),
    ],
)
def test_all_languages_say_it(house, form, text):
    assert house.call("POST", "/v1/jobs", {"text": text, "form": form}, token="ann").status == 200
    assert len(house.claim(house.pilot(), 4)) == 1


def test_a_single_job_may_say_it_and_runs(house):
    first = submit(house, "AtMost = 1;")["first"]
    assert why(house, first)["main_reason"] != "at-most"
    assert [one["id"] for one in house.claim(house.pilot(), 4)] == [first]


def test_jobs_of_a_batch_that_say_it_count_together(house):
    first = house.submitted({"AtMost": 1}, {"AtMost": 1, "CPUTime": 300}, {})
    pilot = house.pilot()
    claimed = house.claim(pilot, 4)
    assert (len(claimed), max(one["id"] for one in claimed)) == (2, first + 2)
    house.report(pilot, min(claimed, key=lambda one: one["id"]))
    assert [one["id"] for one in house.claim(pilot, 4)] in ([first], [first + 1])


def test_many_alike_jobs_of_a_batch_share_a_task_queue(house):
    house.submitted(*[{"AtMost": 3}] * 50)
    (queue,) = house.get("/v1/task-queues")["task_queues"]
    assert queue["waiting"] == 50


def test_it_is_changed_while_jobs_run(house):
    first = submit(house)["first"]
    pilot = house.pilot()
    running = house.claim(pilot, 4)
    assert change(house, first, first + 8, 3).json["changed"] == 7
    assert (len(house.claim(pilot, 4)), len(house.claim(pilot, 4))) == (1, 0)
    assert change(house, first, first + 8, 1).json["changed"] == 6
    for one in running:
        house.report(pilot, one)
        assert house.claim(pilot, 4) == []
    assert why(house, first + 8)["summary"].endswith(
        "the 1 under way ends, and 5 jobs before it: AtMost = 1."
    )
    assert change(house, first, first + 8, None).json["changed"] == 6
    assert len(house.claim(pilot, 4)) == 4


def test_what_was_submitted_without_it_cannot_get_it(house):
    first = submit(house, "Parameters = 3;")["first"]
    error = change(house, first, first + 2, 2).json["error"]
    assert "it was not given when these jobs were submitted" in error["message"]
    assert error["data"]["attribute"] == "AtMost"


def test_another_change_keeps_it(house):
    first = submit(house)["first"]
    body = {"ranges": [[first, first + 8]], "attributes": {"Priority": 3}}
    assert house.call("POST", "/v1/jobs/change", body, token="ann").json["changed"] == 9
    assert len(house.claim(house.pilot(), 4)) == 2


def test_a_plan_says_what_would_run_at_once(house):
    answer = house.call(
        "POST", "/v1/plan/job", {"text": f"[ {JOB} Parameters = 9; AtMost = 2; ]"}, token="ann"
    )
    (cohort,) = answer.json["cohorts"]
    assert (cohort["task_queue"]["key"]["at_most"], answer.json["verdicts"]["never"]) == (2, 0)
    assert answer.json["verdicts"]["now"] <= 2


def test_lists_and_the_director_see_only_what_may_start(house):
    keeper, side = house.side.keeper, house.side
    first = submit(house)["first"]
    reasons = MainReasons(side.db, keeper)
    keeper.refresh(house.now)
    judged = reasons.judge(side.policy, house.now)[house.get(f"/v1/jobs/{first}")["task_queue"]]
    assert (judged.reason, judged.next_jobs, judged.next_before) == ("at-most", 2, first + 2)
    assert judged.next_reason != "at-most"
    assert [jobs for _, _, jobs in keeper.startable] == [2]
    house.claim(house.pilot(), 4)
    house.now += 600.0
    keeper.refresh(house.now)
    judged = reasons.judge(side.policy, house.now)[house.get(f"/v1/jobs/{first}")["task_queue"]]
    assert (judged.reason, judged.next_reason) == ("at-most", None)
    assert keeper.startable == []


@pytest.mark.slow
def test_thirty_two_pilots_at_once_never_get_more(house):
    """All ask at the same moment, again and again; each end is followed by one start."""
    first = submit(house, "Parameters = 60; AtMost = 5;")["first"]
    pilots = [house.pilot() for _ in range(32)]
    live, ended = {}, 0
    while ended < 60:
        asked = [
            (pilot, *house.open("POST", "/v1/pilots/claim", house.claim_body(2), token=pilot))
            for pilot in pilots
        ]
        for pilot, task, connection in asked:
            house.run(task)
            for one in connection.answer().json["jobs"]:
                live[one["id"]] = pilot, one
        assert len(live) == min(5, 60 - ended)
        assert house.core.live.queues.index.caps.taken(1) == len(live)
        for number in sorted(live)[:3]:
            house.report(*live.pop(number))
            ended += 1
    assert house.get(f"/v1/jobs/{first + 59}")["state"] == "Done"
