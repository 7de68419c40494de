"""POST /v1/jobs/control: single jobs, slices and whole arrays, and what may not be done."""

from __future__ import annotations

import pytest

from lodesman.server.store.transaction import Transaction


def states(house, first=1, last=1 << 53):
    found = house.get(f"/v1/jobs?first={first}&last={last}&limit=1000&all=true", "admin")["jobs"]
    return [job["state"] for job in found]


def counts(house):
    return {row["state"]: row["jobs"] for row in house.get("/v1/jobs/counts", "ann")["counts"]}


def in_order(house):
    """The reconciler finds nothing to mend."""
    return set(house.reconcile().values()) == {0}


@pytest.mark.parametrize(
    ("actions", "state"),
    [
        (["kill"], "Killed"),
        (["hold"], "Held"),
        (["hold", "release"], "Waiting"),
        (["hold", "kill"], "Killed"),
        (["hold", "delete"], "Deleted"),
        (["kill", "reschedule"], "Waiting"),
        (["kill", "delete"], "Deleted"),
        (["delete"], "Deleted"),
    ],
)
@pytest.mark.parametrize("array", [False, True], ids=["rows", "members"])
def test_actions_on_waiting_jobs(house, actions, state, array):
    if array:
        house.submitted({"Parameters": 3})
    else:
        house.submitted({}, {}, {})
    for action in actions:
        assert house.control(action, 1, 3, reason="because").json == {
            "changed": 3, "refused": 0, "examples": []
        }  # fmt: skip
    assert states(house) == [state] * 3
    assert in_order(house)
    waiting = 3 if state == "Waiting" else 0
    assert len(house.claim(house.pilot(), 10)) == waiting


@pytest.mark.parametrize("array", [False, True], ids=["rows", "members"])
@pytest.mark.parametrize("action", ["release", "reschedule"])
def test_what_does_not_apply_is_refused_with_the_reason(house, action, array):
    if array:
        house.submitted({"Parameters": 3})
    else:
        house.submitted({}, {}, {})
    answer = house.control(action, 1, 3).json
    assert (answer["changed"], answer["refused"]) == (0, 3)
    assert answer["examples"][0] == {"id": 1, "reason": "it is Waiting"}


def test_a_slice_of_an_array(house):
    house.submitted({"Parameters": 10})
    assert house.control("hold", 4, 6).json["changed"] == 3
    assert states(house) == ["Waiting"] * 3 + ["Held"] * 3 + ["Waiting"] * 4
    assert house.control("kill", 5, 8).json["changed"] == 4
    assert states(house) == ["Waiting"] * 3 + ["Held"] + ["Killed"] * 4 + ["Waiting"] * 2
    assert in_order(house)
    assert [job["id"] for job in house.claim(house.pilot(), 20)] == [1, 2, 3, 9, 10]


def test_a_million_members_are_held_and_released_in_one_go(house):
    house.submitted({"Parameters": 1_000_000})
    assert house.control("hold", 1, 1_000_000).json["changed"] == 1_000_000
    assert counts(house) == {"Held": 1_000_000}
    assert house.control("release", 2, 999_999).json["changed"] == 999_998
    assert counts(house) == {"Held": 2, "Waiting": 999_998}
    assert in_order(house)


def test_running_jobs_end_when_they_are_killed_and_go_back_when_they_are_rescheduled(house):
    house.submitted({}, {})
    pilot = house.pilot()
    first, second = house.claim(pilot, 2)
    house.report(pilot, first, "Running")
    assert house.control("kill", 1).json["changed"] == 1
    assert house.control("reschedule", 2).json["changed"] == 1
    assert states(house) == ["Killed", "Matched"]
    house.report(pilot, first, "Failed", cause="killed")
    house.report(pilot, second, "Failed", cause="killed")
    assert states(house) == ["Killed", "Waiting"]
    (again,) = house.claim(pilot, 5)
    assert (again["id"], again["attempt"]) == (2, 2)
    assert in_order(house)


def test_a_killed_job_waits_for_its_pilot_before_it_may_run_again(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.control("kill", 1)
    answer = house.control("reschedule", 1).json
    assert (answer["changed"], "still being stopped" in answer["examples"][0]["reason"]) == (0, True)
    house.report(pilot, job, "Failed", cause="killed")
    assert house.control("reschedule", 1).json["changed"] == 1


def test_ended_jobs(house):
    house.submitted({}, {})
    pilot = house.pilot()
    done, failed = house.claim(pilot, 2)
    house.report(pilot, done)
    house.report(pilot, failed, "Failed", cause="exit", exit_code=1)
    for action in ("kill", "hold", "release"):
        assert house.control(action, 1, 2).json["changed"] == 0
    assert house.control("reschedule", 1).json["changed"] == 0
    assert house.control("reschedule", 2).json["changed"] == 1
    assert house.control("delete", 1).json["changed"] == 1
    assert states(house) == ["Deleted", "Waiting"]
    assert house.control("delete", 1).json["refused"] == 1


def test_a_held_job_must_be_released_and_cannot_be_rescheduled(house):
    house.submitted()
    house.control("hold", 1, reason="look first")
    assert house.control("reschedule", 1).json["refused"] == 1
    assert house.get("/v1/jobs/1")["reason"] == "look first"


def test_the_reason_is_written_into_the_job_s_events(house):
    house.submitted()
    house.control("kill", 1, reason="a typing error")
    event = house.get("/v1/jobs/1")["events"][-1]
    assert (event["event"], event["reason"], event["by"]) == ("Killed", "a typing error", "user")


def test_several_ranges_at_once_overlapping_ones_too(house):
    house.submitted({"Parameters": 10})
    body = {"action": "kill", "ranges": [[1, 3], [2, 5], [9, 9]]}
    answer = house.call("POST", "/v1/jobs/control", body, token="ann").json
    assert (answer["changed"], answer["refused"]) == (6, 0)
    assert answer["ranges"] == [{"first": 1, "last": 5, "changed": 5}, {"first": 9, "last": 9, "changed": 1}]


def test_what_became_of_each_range_is_answered(house):
    house.submitted({"Parameters": 5})
    house.claim(house.pilot())
    body = {"action": "hold", "ranges": [[1, 1], [2, 2], [4, 5], [70, 80]]}
    answer = house.call("POST", "/v1/jobs/control", body, token="ann")
    assert answer.status == 200
    assert answer.json["ranges"] == [
        {"first": 1, "last": 1, "refused": 1, "reason": "it is Matched"},
        {"first": 2, "last": 2, "changed": 1},
        {"first": 4, "last": 5, "changed": 2},
        {"first": 70, "last": 80, "reason": "Jobs 70-80 were not found, or you may not see them."},
    ]
    none = house.call(
        "POST", "/v1/jobs/control", {"action": "kill", "ranges": [[70, 80], [90, 90]]}, token="ann"
    )
    assert (none.status, "70-80" in none.json["error"]["message"]) == (404, True)


def test_one_action_at_a_time_for_each_user(house):
    house.submitted(*[{}] * 3)
    house.submitted(*[{}] * 3, token="bob")
    running, most, real = {"ann": 0, "bob": 0}, {"ann": 0, "bob": 0}, house.core.commands.run

    async def command(one):
        running[one.name] += 1
        most[one.name] = max(most[one.name], running[one.name])
        done = await real(one)
        running[one.name] -= 1
        return done

    house.core.commands.run = command
    tasks = [
        house.open("POST", "/v1/jobs/control", {"action": "hold", "ranges": [[n, n]]}, token=who)[0]
        for who, first in (("ann", 1), ("bob", 4))
        for n in range(first, first + 3)
    ]
    for task in tasks:
        house.run(task)
    assert most == {"ann": 1, "bob": 1}
    assert not house.core.turns._of


@pytest.mark.parametrize("before", ["", "hold"])
def test_a_range_that_runs_backwards_is_refused_and_breaks_nothing(house, before):
    house.submitted({"Parameters": 10})
    if before:
        house.control(before, 1, 10)
    answer = house.control("kill", 6, 3)
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert in_order(house)
    assert sum(counts(house).values()) == 10


@pytest.mark.parametrize(
    "body",
    [
        {"action": "fly", "ranges": [[1, 1]]},
        {"action": "kill\n", "ranges": [[1, 1]]},
        {"action": "kill", "ranges": []},
        {"action": "kill", "ranges": [[1]]},
        {"action": "kill", "ranges": [[1, 2, 3]]},
        {"action": "kill", "ranges": [["1", "2"]]},
        {"action": "kill", "ranges": [[0, 1]]},
        {"action": "kill", "ranges": [[-5, 1]]},
        {"action": "kill", "ranges": [[1, 10**30]]},
        {"action": "kill", "ranges": [[1, 1]] * 1_001},
        {"action": "kill", "ranges": [[1, 1]], "reason": "x" * 1_001},
        {"action": "kill"},
        {"ranges": [[1, 1]]},
    ],
)
def test_an_action_that_is_malformed(house, body):
    house.submitted()
    answer = house.call("POST", "/v1/jobs/control", body, token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert states(house) == ["Waiting"]


def test_the_widest_range_of_all(house):
    house.submitted({"Parameters": 3})
    house.submitted(token="bob")
    assert house.control("kill", 1, 1 << 53).json["changed"] == 3
    assert house.control("delete", 1, 1 << 53, token="admin").json["changed"] == 4


def select(house, action, token="ann", **selection):
    answer = house.call("POST", "/v1/jobs/control", {"action": action, "selection": selection}, token=token)
    assert answer.status == 200, answer.body
    return answer.json["changed"], answer.json["refused"]


def test_jobs_are_chosen_by_state_name_and_submission(house):
    house.user("bob", "physics")
    house.submitted({"JobName": "fit_%n", "Parameters": 20})
    pilot = house.pilot()
    failed, *running = house.claim(pilot, 3)
    house.report(pilot, failed, "Failed", cause="exit")
    house.submitted({"JobName": "plot"})
    house.submitted({"JobName": "fit"}, token="bob")
    assert select(house, "hold", states=["Waiting"], name="fit*") == (19 - len(running), 0)
    assert select(house, "release", states=["Held"], submissions=[2]) == (0, 0)
    assert select(house, "kill", states=["Held", "Waiting"], name="pl?t") == (1, 0)
    assert select(house, "kill", owner="bob") == (0, 0)
    assert select(house, "kill", "admin", owner="bob") == (1, 0)
    assert select(house, "reschedule", states=["Failed"]) == (1, 0)
    assert states(house, 1, 1) == ["Waiting"]
    assert in_order(house)


def test_an_action_on_nothing_is_refused(house):
    answer = house.call("POST", "/v1/jobs/control", {"action": "kill"}, token="ann")
    assert (answer.status, answer.code) == (400, "invalid-request")
    body = {"action": "kill", "selection": {"name": "a[b]"}}
    answer = house.call("POST", "/v1/jobs/control", body, token="ann")
    assert "write ? for a bracket" in answer.json["error"]["hint"]
    assert select(house, "kill") == (0, 0)


def test_what_takes_long_is_left_for_the_next_request(house, monkeypatch):
    monkeypatch.setattr("lodesman.server.writer.control.MOST_ROWS", 3)
    monkeypatch.setattr("lodesman.server.http.jobs._CONTROL_SECONDS", 0.0)
    house.submitted(*[{} for _ in range(8)])
    body = {"action": "kill", "ranges": [[1, 8]]}
    done, rest = 0, [[1, 8]]
    while rest:
        answer = house.call("POST", "/v1/jobs/control", {**body, "ranges": rest}, token="ann").json
        assert 0 < answer["changed"] <= 3
        done, rest = done + answer["changed"], answer.get("rest")
    assert done == 8
    assert states(house) == ["Killed"] * 8


def control_each(house, action, ids, token="ann"):
    """Each job is named by itself; what became of it."""
    body = {"action": action, "ranges": [[job, job] for job in ids]}
    answer = house.call("POST", "/v1/jobs/control", body, token=token)
    assert answer.status == 200, answer.json
    return answer.json["changed"], answer.json["refused"]


@pytest.mark.slow
@pytest.mark.parametrize("array", [False, True], ids=["rows", "members"])
def test_single_jobs_are_read_together(house, monkeypatch, array):
    house.submitted(*([{"Parameters": 400}] if array else [{}] * 400))
    reads = []
    read, flush = Transaction.read, Transaction.flush
    monkeypatch.setattr(
        Transaction, "read", lambda tx, *args, **more: reads.append(args) or read(tx, *args, **more)
    )
    monkeypatch.setattr(Transaction, "flush", lambda tx: reads.append("flush") or flush(tx))
    for action, state in (("hold", "Held"), ("release", "Waiting"), ("kill", "Killed")):
        reads.clear()
        assert control_each(house, action, range(2, 401, 2)) == (200, 0)
        assert len(reads) < 30
        assert states(house) == ["Waiting", state] * 200
    assert in_order(house)
    assert control_each(house, "reschedule", range(2, 401, 2)) == (200, 0)
    assert in_order(house)
    assert sorted(job["id"] for job in house.claim(house.pilot(), 5)) == [1, 2, 3, 4, 5]


def test_single_members_that_were_held_together(house):
    house.submitted({"Parameters": 10})
    house.control("hold", 2, 8)
    assert control_each(house, "release", [3, 5, 6, 8]) == (4, 0)
    assert (
        states(house)
        == ["Waiting", "Held", "Waiting", "Held", "Waiting", "Waiting", "Held", "Waiting"] + ["Waiting"] * 2
    )
    assert control_each(house, "kill", [1, 2, 3, 4, 9]) == (5, 0)
    assert control_each(house, "release", [2, 4, 7, 10]) == (1, 3)
    assert states(house) == ["Killed"] * 4 + ["Waiting"] * 4 + ["Killed", "Waiting"]
    assert in_order(house)
    assert len(house.claim(house.pilot(), 20)) == 5


def test_single_jobs_of_several_kinds_and_some_that_are_not_there(house):
    for job in ({}, {"Parameters": 5}, {}):
        house.submitted(job)
    house.submitted({}, token="bob")
    house.claim(house.pilot(), 3)
    named = [2, 4, 7, 8, 99]
    assert control_each(house, "hold", named) == (2, 1)
    body = {"action": "release", "ranges": [[job, job] for job in named] + [[1, 1], [5, 6]]}
    answer = house.call("POST", "/v1/jobs/control", body, token="ann").json
    done = [one["first"] for one in answer["ranges"] if one.get("changed")]
    assert (answer["changed"], done) == (2, [4, 7])
    assert in_order(house)


@pytest.mark.stores
def test_a_dry_run_counts_as_the_action_does_and_changes_nothing(house):
    house.submitted({"Parameters": 6})
    house.submitted({}, {}, {}, {})
    for action, first, last in (("kill", 2, 3), ("hold", 4, 4), ("kill", 7, 7), ("hold", 8, 8)):
        house.control(action, first, last)
    house.claim(house.pilot(), 1)

    def tried(action, *ranges):
        body = {"action": action, "ranges": ranges}
        return house.call("POST", "/v1/jobs/control?dry_run=true", body, token="ann")

    for action in ("hold", "release", "reschedule", "kill", "delete"):
        before = states(house)
        trial = tried(action, [1, 999])
        assert states(house) == before
        assert trial.json == house.control(action, 1, 999).json
    assert tried("kill", [5000, 6000]).status == 404
    (one, none) = tried("kill", [1, 10], [5000, 6000]).json["ranges"]
    assert (one["refused"], "5000-6000" in none["reason"]) == (10, True)
    assert in_order(house)
