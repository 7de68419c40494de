"""What pilots ask: join, claim, long poll, heartbeat, report, leave."""

from __future__ import annotations

import asyncio
import logging

import pytest


def start(house, pilot, *, wait=30.0, count=1, **more):
    """A claim that waits: (task, connection); it has parked when this returns."""
    body = house.claim_body(count, wait_s=wait, **more)
    asked = house.open("POST", "/v1/pilots/claim", body, token=pilot)
    # The writer works in order: once a command after the claim is answered, the claim was tried.
    house.run(asyncio.sleep(0))
    house.call("POST", "/v1/service/forget-idle", {}, token="service")
    return asked


def jobs(house, asked):
    task, connection = asked
    house.run(task)
    return [job["id"] for job in connection.answer().json["jobs"]]


# --- join -----------------------------------------------------------------------------------------------


def test_a_join_answers_with_the_terms_of_the_pilot(house):
    answer = house.call(
        "POST", "/v1/pilots/join", {"join_token": house.prepare_pilot(), "nonce": "n", "node": {"cores": 4}}
    )
    told = answer.json
    assert told.pop("token")
    assert told == {
        "pilot": 1, "stamp": "stamp1", "lease_s": 1_800.0, "heartbeat_s": 60.0, "idle_s": 120.0,
        "sandbox_mb": 7,
        "server_time": house.now, "place": {"site": "North", "ce": "ce.north", "queue": "short"}, "pools_pass": 0,
        "bound_job": None,
    }  # fmt: skip
    (row,) = house.get("/v1/pilots")["pilots"]
    assert (row["state"], row["site"], row["native_id"]) == ("Running", "North", "native-stamp1")


@pytest.mark.parametrize(
    "node",
    [
        {"cores": "many"},
        {"cores": [1]},
        {"cores": -3},
        {"cores": 1e300},
        {"cores": None, "memory_mb": {}},
        {"memory_mb": "lots"},
        {"memory_mb": 10**30},
        {"memory_mb": True},
        {"platform": {"a": 1}},
        {"platform": ["x"]},
        {"platform": 5},
        {"python": "\N{SNOWMAN}" * 1_000},
        {"a": {"b": [{}] * 1_000}},
    ],
)
def test_a_node_that_describes_itself_wrongly_stops_neither_claims_nor_the_next_start(house, node):
    """What a pilot says of its node is stored, and read again at each start of the server."""
    pilot = house.pilot(node=node, cores=None, memory_mb=None, platforms=None)
    house.submitted()
    assert house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot).status == 200
    from lodesman.server.writer.sessions import load_sessions  # noqa: PLC0415 - what a start does

    (session,) = load_sessions(house.side.db, now=0.0).values()
    assert session.offer.cores >= 1
    assert all(isinstance(one, str) for one in session.offer.platforms)
    assert house.get("/v1/jobs/1/why")["verdict"] in ("now", None)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"join_token": "short", "node": {}},
        {"join_token": "x" * 300, "node": {}},
        {"join_token": 12345678, "node": {}},
        {"join_token": "long enough", "node": []},
        {"join_token": "long enough", "node": {}, "protocol": "one"},
        {"join_token": "long enough", "node": {}, "nonce": "n" * 300},
        b'{"join_token": "long enough", "node": ' + b'{"a":' * 3_000,
        b"",
        b"null",
    ],
)
def test_a_join_that_is_malformed(house, body):
    answer = house.call("POST", "/v1/pilots/join", body)
    assert (answer.status, answer.code) == (400, "invalid-request")


def test_a_node_of_two_megabytes_is_refused(house):
    body = {"join_token": house.prepare_pilot(), "node": {"x": "y" * 2_000_000}}
    assert house.call("POST", "/v1/pilots/join", body).status == 413


# --- claim ----------------------------------------------------------------------------------------------


def test_a_claim_that_finds_nothing_and_does_not_wait(house):
    answer = house.call("POST", "/v1/pilots/claim", house.claim_body(), token=house.pilot())
    assert answer.json == {"jobs": [], "drain": False}


def test_one_request_takes_several_jobs(house):
    house.submitted(*[{}] * 5)
    pilot = house.pilot()
    assert [job["id"] for job in house.claim(pilot, 3)] == [1, 2, 3]
    assert [job["id"] for job in house.claim(pilot, 1_000)] == [4, 5]


def test_a_job_is_given_with_all_that_its_pilot_needs(house):
    house.submitted(
        {
            "Executable": "run.sh", "Arguments": ["a b"], "JobName": "n", "Memory": 100, "CPUTime": 60,
            "WallTime": 90, "MaxOutput": 3, "Exclusive": True, "OutputSandbox": ["*.root"],
            "Environment": {"A": "b"}, "StdOutput": "out", "StdError": "err", "NumberOfProcessors": 2,
            "ExpectedTime": 70, "VacatePriority": -2,
        }
    )  # fmt: skip
    (job,) = house.claim(house.pilot())
    assert job == {
        "id": 1, "attempt": 1, "input": [], "exclusive": True,
        "spec": {
            "name": "n", "executable": "run.sh", "arguments": ["a b"], "environment": {"A": "b"},
            "std_input": "", "std_output": "out", "std_error": "err", "output_sandbox": ["*.root"],
            "cores": 2, "memory_mb": 100, "expected_seconds": 70, "vacate_priority": -2,
        },
        "limits": {
            "norm_cpu_seconds": 60, "cpu_seconds": 0, "wall_seconds": 90, "memory_mb": 100, "output_mb": 3
        },
    }  # fmt: skip


def test_what_is_free_now_decides(house):
    house.submitted({"NumberOfProcessors": 3})
    pilot = house.pilot()
    small = {"cores": 2, "memory_mb": 2000, "norm_cpu_seconds": 0}
    assert house.claim(pilot, resource=small) == []
    short = {"cores": 4, "memory_mb": 2000, "norm_cpu_seconds": 400}
    assert house.claim(pilot, resource=short) == []
    assert len(house.claim(pilot)) == 1


def test_a_pilot_cannot_claim_more_than_its_queue_has(house):
    house.submitted({"NumberOfProcessors": 4, "Memory": 2_000})
    house.submitted({"CPUTime": 5_000})
    boast = {"cores": 65_536, "memory_mb": 1 << 53, "norm_cpu_seconds": 1 << 53}
    assert [job["id"] for job in house.claim(house.pilot(), 5, resource=boast)] == [1]


def test_the_same_claim_token_brings_the_same_jobs(house):
    house.submitted(*[{}] * 3)
    pilot = house.pilot()
    first = house.claim(pilot, 2, claim_token="the-same-token")
    assert house.claim(pilot, 2, claim_token="the-same-token") == first
    assert [job["id"] for job in house.claim(pilot, 2)] == [3]


@pytest.mark.parametrize(
    "change",
    [
        {"count": 10**9},
        {"count": 0},
        {"count": -1},
        {"count": 1.5},
        {"count": 10**40},
        {"wait_s": -1},
        {"wait_s": 1e9},
        {"wait_s": "long"},
        {"claim_token": "short"},
        {"claim_token": None},
        {"resource": None},
        {"resource": {"cores": -1}},
        {"resource": {"cores": 10**9}},
        {"resource": {"memory_mb": -5}},
        {"resource": {"norm_cpu_seconds": 10**30}},
        {"resource": {"norm_cpu_seconds": 1.5}},
    ],
)
def test_a_claim_that_no_pilot_would_make_is_refused_and_takes_nothing(house, change):
    house.submitted(*[{}] * 3)
    pilot = house.pilot()
    answer = house.call("POST", "/v1/pilots/claim", {**house.claim_body(), **change}, token=pilot)
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert {job["state"] for job in house.get("/v1/jobs")["jobs"]} == {"Waiting"}


# --- long poll ------------------------------------------------------------------------------------------


def test_a_claim_that_waits_is_answered_by_the_submission_before_its_patience_ends(house):
    asked = start(house, house.pilot())
    assert not asked[0].done()
    house.submitted()
    assert jobs(house, asked) == [1]
    assert house.get("/v1/jobs/1")["state"] == "Matched"


def test_a_claim_that_waits_is_answered_before_the_submitter_is_asked_again(house):
    """The claim rides in the same commit as the submission: one read after the answer shows it."""
    asked = start(house, house.pilot())
    submission = house.open(
        "POST", "/v1/jobs", {"jobs": [{"Executable": "/bin/true", "CPUTime": 5}]}, token="ann"
    )
    done, _ = house.run(asyncio.wait({asked[0], submission[0]}, return_when=asyncio.ALL_COMPLETED))
    assert len(done) == 2
    assert house.core.journal.commits == house.core.journal.commits
    found = house.get("/v1/jobs/1")
    assert [event["event"] for event in found["events"]] == ["Waiting", "Matched"]
    assert found["claimed_at"] == found["submitted_at"]


def test_patience_ends_with_nothing(house):
    asked = start(house, house.pilot(), wait=0.05)
    assert jobs(house, asked) == []
    house.submitted()
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


def test_only_as_many_pilots_wake_as_there_are_jobs_the_longest_waiting_first(house):
    asked = []
    for _ in range(3):
        house.now += 1
        asked.append(start(house, house.pilot()))
    house.submitted()
    assert jobs(house, asked[0]) == [1]
    assert [task.done() for task, _ in asked] == [True, False, False]
    house.submitted({}, {})
    assert sorted(jobs(house, asked[1]) + jobs(house, asked[2])) == [2, 3]


def test_a_job_that_does_not_fit_leaves_the_pilot_waiting(house):
    asked = start(house, house.pilot())
    house.submitted({"CPUTime": 50_000})
    assert not asked[0].done()
    fitting = start(house, house.pilot("South"), resource={"cores": 1, "memory_mb": 100})
    assert jobs(house, fitting) == [1]
    house.submitted()
    assert jobs(house, asked) == [2]


def test_a_pilot_that_hangs_up_while_it_waits_takes_no_job_with_it(house):
    pilot = house.pilot()
    task, connection = start(house, pilot)
    connection.gone.set()
    house.run(task)
    assert connection.sent == []
    house.submitted()
    assert house.get("/v1/jobs/1")["state"] == "Waiting"
    assert [job["id"] for job in house.claim(pilot)] == [1]


def test_a_new_claim_ends_the_old_one(house):
    pilot = house.pilot()
    first, second = start(house, pilot), start(house, pilot)
    assert jobs(house, first) == []
    house.submitted()
    assert jobs(house, second) == [1]


def test_released_jobs_wake_parked_requests(house):
    house.submitted()
    house.control("hold", 1)
    asked = start(house, house.pilot())
    house.control("release", 1)
    assert jobs(house, asked) == [1]


def test_jobs_of_a_pilot_that_left_wake_parked_requests(house):
    house.submitted()
    leaving = house.pilot()
    house.claim(leaving)
    asked = start(house, house.pilot())
    house.call("POST", "/v1/pilots/leave", {"reason": "sigterm"}, token=leaving)
    assert jobs(house, asked) == [1]
    assert house.get("/v1/jobs/1")["attempt"] == 2


def test_a_new_submit_pool_reaches_parked_requests(house):
    asked = start(house, house.pilot())
    house.submitted({"Requirements": {"Software": "root"}})
    assert jobs(house, asked) == [1]


def test_waiting_counts_as_a_heartbeat(make_house):
    house = make_house(lease=0.2)
    house.user("ann")
    pilot = house.pilot()
    house.ticks += 0.1
    asked = start(house, pilot)
    house.ticks += 0.15
    assert jobs(house, asked) == []  # patience is half a lease
    assert house.core.sessions.expired() == []
    house.ticks += 0.3
    assert house.core.sessions.expired() == [1]


# --- heartbeat ------------------------------------------------------------------------------------------


def beat(house, pilot, *entries):
    answer = house.call("POST", "/v1/pilots/heartbeat", {"jobs": list(entries)}, token=pilot)
    assert answer.status == 200, answer.body
    return answer.json


def test_a_heartbeat_shows_the_last_output_live(house):
    house.submitted()
    pilot = house.pilot()
    house.claim(pilot)
    house.now += 10
    assert beat(house, pilot, {"id": 1, "attempt": 1, "cpu_seconds": 1.5, "tail": "step 1\n"}) == {
        "kill": [], "drain": False, "lease_s": 1_800.0,
    }  # fmt: skip
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["live"], logs["tail"], logs["cpu_seconds"]) == (True, "step 1\n", 1.5)
    beat(house, pilot, {"id": 1, "attempt": 1, "cpu_seconds": 2.5})  # nothing new was printed
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["tail"], logs["cpu_seconds"]) == ("step 1\n", 2.5)
    house.report(pilot, {"id": 1, "attempt": 1}, "Done", tail="all done\n")
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["live"], logs["tail"], logs["state"]) == (False, "all done\n", "Done")


@pytest.mark.slow
def test_only_the_last_64_kilobytes_of_output_are_kept(house):
    house.submitted()
    pilot = house.pilot()
    house.claim(pilot)
    beat(house, pilot, {"id": 1, "attempt": 1, "tail": "x" * 100_000 + "END"})
    tail = house.get("/v1/jobs/1/logs")["tail"]
    assert len(tail) == 65_536
    assert tail.endswith("END")


@pytest.mark.slow
def test_the_tails_of_a_pilot_have_a_limit_in_bytes(house):
    house.submitted(*[{}] * 140)
    pilot = house.pilot(cores=140, node={"cores": 140})
    all_of_it = {"cores": 140, "memory_mb": 2_000, "norm_cpu_seconds": 0}
    held = [{"id": job["id"], "attempt": 1} for job in house.claim(pilot, 140, resource=all_of_it)]
    beat(house, pilot, *(one | {"tail": "\N{SNOWMAN}" * 60_000} for one in held[:10]))
    (session,) = house.core.sessions.values()
    assert {len(tail) for tail in session.tails.values()} == {65_536}
    assert house.get("/v1/jobs/1/logs")["tail"] == "\N{SNOWMAN}" * 21_845
    for some in (held[:70], held[70:]):
        beat(house, pilot, *(one | {"tail": "x" * 65_536} for one in some))
    beat(house, pilot, *held[:70], *(one | {"tail": "y" * 65_536} for one in held[70:]))
    assert len(session.usage) == 140
    assert sum(map(len, session.tails.values())) <= 8 << 20


def test_news_of_attempts_that_are_not_the_pilot_s_are_dropped(house):
    """An idle pilot once kept 27 MB of the server with tails of jobs that it did not have."""
    house.submitted(*[{}] * 3)
    thief, pilot = house.pilot(), house.pilot()
    house.claim(pilot, 2)
    beat(
        house,
        thief,
        *({"id": n, "attempt": 1, "cpu_seconds": 1.0, "tail": "x" * 65_000} for n in range(1, 100)),
    )
    beat(house, pilot, {"id": 1, "attempt": 1, "tail": "a"}, {"id": 2, "attempt": 2, "tail": "b"})
    other, session = house.core.sessions.values()
    assert (other.usage, other.tails) == ({}, {})
    assert (set(session.usage), session.tails) == ({(1, 1)}, {(1, 1): b"a"})


def test_news_of_jobs_that_the_pilot_no_longer_has_are_dropped(house):
    house.submitted(*[{}] * 2)
    pilot = house.pilot()
    house.claim(pilot, 2)
    beat(house, pilot, {"id": 1, "attempt": 1, "tail": "a"}, {"id": 2, "attempt": 1, "tail": "b"})
    beat(house, pilot, {"id": 2, "attempt": 1})
    (session,) = house.core.sessions.values()
    assert (set(session.usage), session.tails) == ({(2, 1)}, {(2, 1): b"b"})


def test_numbers_that_cannot_be_are_bounded(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    claimed = house.now
    house.now += 100
    huge = {"cpu_seconds": 1.7e308, "wall_seconds": 1e300}
    beat(house, pilot, {"id": 1, "attempt": 1, **huge, "rss_mb": 1e308})
    most_mb = 2 * house.core.sessions[1].offer.memory_mb + 4_096
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["cpu_seconds"], logs["wall_seconds"], logs["rss_mb"]) == (pytest.approx(440), 100, most_mb)
    house.report(pilot, job, started=5.0, ended=1e15, max_rss_mb=1e308, **huge)
    (one,) = house.get("/v1/jobs/1")["attempts"]
    assert (one["cpu_seconds"], one["wall_seconds"], one["max_rss_mb"]) == (pytest.approx(440), 100, most_mb)
    assert (one["started_at"], one["ended_at"]) == (claimed, house.now)


@pytest.mark.parametrize("given", [{"cpu_seconds": 50.0, "wall_seconds": 10.0}, {"cpu_seconds": 50.0}])
def test_cpu_time_fits_the_wall_time(house, given):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.now += 10
    house.report(pilot, job, **given)
    (one,) = house.get("/v1/jobs/1")["attempts"]
    assert one["cpu_seconds"] == pytest.approx(44)


@pytest.mark.parametrize("state", ["Running", "Done"])
def test_times_lie_inside_the_attempt(house, state):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    claimed = house.now
    house.now += 10
    house.report(pilot, job, state, started=1e12, ended=3.0)
    if state == "Running":
        house.report(pilot, job, ended=3.0)
    (one,) = house.get("/v1/jobs/1")["attempts"]
    assert (one["started_at"], one["ended_at"] >= one["started_at"]) == (claimed + 10, True)


def test_late_reports_are_one_line_of_the_log_for_each_request(house, caplog):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.report(pilot, job)
    failed = {"id": 1, "attempt": 1, "state": "Failed", "cause": "exit"}
    with caplog.at_level(logging.WARNING):
        house.call("POST", "/v1/pilots/report", {"reports": [failed] * 1_000}, token=pilot)
    (line,) = [one for one in caplog.records if "too late" in one.message]
    assert (line.job, line.reports) == (1, 1_000)


def nested(levels):
    node = {"cores": 4}
    for _ in range(levels - 1):
        node = {"below": node}
    return node


@pytest.mark.parametrize("node", [nested(9), {"a": [[[[[[[[1]]]]]]]]}, {"a": "x" * 16_400}, nested(900)])
def test_a_node_is_described_briefly(house, node):
    """A node nested 979 levels deep was stored, and no answer about its pilot could be made any more."""
    body = {"join_token": house.prepare_pilot(), "nonce": "n", "node": node}
    answer = house.call("POST", "/v1/pilots/join", body)
    assert (answer.status, answer.code) == (413, "too-large")


@pytest.mark.parametrize("node", [nested(8), {"a": "x" * 16_000}])
def test_a_node_has_room_for_what_it_is(house, node):
    assert house.pilot(node=node)


def test_kill_orders_are_repeated_until_the_end_is_reported(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running")
    house.control("kill", 1, reason="not needed")
    running = {"id": 1, "attempt": 1}
    for _ in range(2):
        assert beat(house, pilot, running)["kill"] == [{**running, "reason": "not needed"}]
    assert house.report(pilot, job, "Failed", cause="killed")["accepted"]
    assert beat(house, pilot, running)["kill"] == []
    assert house.get("/v1/jobs/1")["state"] == "Killed"


def test_a_draining_pilot_is_notified_and_gets_no_more_jobs(house):
    house.submitted()
    pilot = house.pilot()
    assert house.call("POST", "/v1/pilots/drain", {"pilots": [1, 77]}, token="admin").json == {"changed": 1}
    assert beat(house, pilot)["drain"] is True
    answer = house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot)
    assert answer.json == {"jobs": [], "drain": True}
    assert house.get("/v1/jobs/1")["state"] == "Waiting"
    assert house.get("/v1/pilots")["pilots"][0]["drain"] == 1


def test_a_server_that_is_about_to_end_hands_out_nothing_more(house):
    """Pilots ask again when it is back: what others give back now is not for them."""
    house.submitted()
    pilot = house.pilot()
    house.core.ending = True
    refused = house.call("POST", "/v1/pilots/claim", house.claim_body(), token=pilot)
    assert (refused.status, refused.json["error"]["code"]) == (503, "unavailable")
    assert house.get("/v1/jobs/1")["state"] == "Waiting"
    house.core.ending = False
    assert len(house.claim(pilot)) == 1


def test_a_parked_claim_ends_when_its_pilot_is_drained(house):
    asked = start(house, house.pilot(), wait=30.0)
    house.call("POST", "/v1/pilots/drain", {"pilots": [1]}, token="admin")
    house.submitted()
    assert jobs(house, asked) == []
    assert house.get("/v1/jobs/1")["state"] == "Waiting"


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"id": 1},
        {"id": "1", "attempt": 1},
        {"id": 10**30, "attempt": 1},
        {"id": -1, "attempt": 1},
        {"id": 1, "attempt": 10**30},
        {"id": 1, "attempt": 1, "cpu_seconds": -1},
        {"id": 1, "attempt": 1, "tail": 5},
        {"id": 1, "attempt": 1, "tail": "x" * 300_000},
    ],
)
def test_news_that_are_malformed(house, entry):
    answer = house.call("POST", "/v1/pilots/heartbeat", {"jobs": [entry]}, token=house.pilot())
    assert (answer.status, answer.code) == (400, "invalid-request")


# --- report ---------------------------------------------------------------------------------------------


def test_the_way_of_one_job_by_reports(house):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    assert house.report(pilot, job, "Running", started=house.now)["accepted"]
    assert house.get("/v1/jobs/1")["state"] == "Running"
    told = {
        "cause": "exit", "exit_code": 3, "cpu_seconds": 1.5, "wall_seconds": 2.5, "max_rss_mb": 10.5,
        "ended": house.now + 2, "message": "it said no", "tail": "boo",
    }  # fmt: skip
    assert house.report(pilot, job, "Failed", **told)["accepted"]
    found = house.get("/v1/jobs/1")
    assert (found["state"], found["exit_code"], found["cause"]) == ("Failed", 3, "exit")
    assert "exit code 3" in found["reason"]
    assert found["attempts"][0]["max_rss_mb"] == 10.5
    assert [event["event"] for event in found["events"]] == ["Waiting", "Matched", "Running", "Failed"]


def test_an_exit_code_is_said_once(house):
    said = {
        "The job ended with exit code 3.": "exit code 3",
        "The job ended with exit code 3; this code means: x.": "exit code 3: this code means: x",
        "The job ended with exit code 3. Missing in the output: a (none).": "exit code 3: Missing in the output: a (none)",
        "The job ended with exit code 3; for it: x. Left out: a.": "exit code 3: for it: x. Left out: a",
        "it said no": "exit code 3: it said no",
        "": "exit code 3",
    }  # fmt: skip
    house.submitted(*[{}] * len(said))
    pilot = house.pilot()
    for message in said:
        (job,) = house.claim(pilot)
        house.report(pilot, job, "Failed", cause="exit", exit_code=3, message=message, started=house.now)
    assert [house.get(f"/v1/jobs/{number}")["reason"] for number in range(1, 1 + len(said))] == list(
        said.values()
    )


def test_many_reports_in_one_request_are_judged_one_by_one(house):
    house.submitted({}, {})
    pilot = house.pilot()
    house.claim(pilot, 2)
    entries = [
        {"id": 1, "attempt": 1, "state": "Done"},
        {"id": 1, "attempt": 2, "state": "Done"},
        {"id": 99, "attempt": 1, "state": "Done"},
        {"id": 2, "attempt": 1, "state": "Running"},
    ]
    results = house.call("POST", "/v1/pilots/report", {"reports": entries}, token=pilot).json["results"]
    assert [one["accepted"] for one in results] == [True, False, False, True]
    assert [one.get("reason") for one in results] == [None, "no such attempt", "no such attempt", None]


def test_a_released_job_goes_back_and_keeps_its_number_of_attempts(house):
    house.submitted({"MaxAttempts": 2})
    pilot = house.pilot()
    for attempt in (1, 2):
        (job,) = house.claim(pilot)
        assert job["attempt"] == attempt
        house.report(pilot, job, "Running")
        house.report(pilot, job, "Released", cause="pilot-shutdown")
    found = house.get("/v1/jobs/1")
    assert (found["state"], len(found["attempts"])) == ("Failed", 2)
    assert "maximum of 2 attempts" in found["reason"]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "Flying"},
        {"state": "Done\n"},
        {"state": ""},
        {"id": "one"},
        {"id": 10**30},
        {"attempt": 10**30},
        {"attempt": 1.5},
        {"exit_code": 10**30},
        {"exit_code": "0"},
        {"signal": -(10**30)},
        {"cpu_seconds": -1},
        {"cpu_seconds": "long"},
        {"started": "yesterday"},
        {"output": {"sha256": "x", "size": 1}},
        {"output": {"sha256": "0" * 64, "size": -1}},
        {"output": {"sha256": "0" * 64, "size": 10**30}},
        {"message": "x" * 10_000},
        {"tail": "x" * 300_000},
        {"cause": "x" * 300},
    ],
)
def test_a_report_that_is_malformed_is_refused_for_good(house, change):
    """400, not 503: a pilot asks again after a 503, for ever."""
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    one = {"id": job["id"], "attempt": job["attempt"], "state": "Done", **change}
    answer = house.call("POST", "/v1/pilots/report", {"reports": [one]}, token=pilot)
    assert (answer.status, answer.code) == (400, "invalid-request")
    assert house.get("/v1/jobs/1")["state"] == "Matched"


@pytest.mark.parametrize(
    "odd", [{"started": -1e300, "ended": 1e300}, {"cause": "no such"}, {"exit_code": -9}]
)
def test_odd_but_harmless_reports_are_taken(house, odd):
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    assert house.report(pilot, job, **odd)["accepted"]
    house.get("/v1/jobs/1")
    house.get("/v1/usage")


# --- leave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "state"), [("idle", "Done"), ("drained", "Done"), ("sigterm", "Done"), ("error", "Aborted")]
)
def test_how_a_pilot_leaves_is_written_down(house, reason, state):
    pilot = house.pilot()
    body = {"reason": reason, "message": "goodbye"}
    assert house.call("POST", "/v1/pilots/leave", body, token=pilot).status == 200
    assert house.get("/v1/pilots")["pilots"] == []
    (row,) = house.get("/v1/pilots?all=true")["pilots"]
    assert (row["state"], row["reason"]) == (state, f"{reason}: goodbye")


def test_a_late_census_does_not_change_how_a_pilot_left(house):
    pilot = house.pilot()
    house.call("POST", "/v1/pilots/leave", {"reason": "idle"}, token=pilot)
    ended = {"pilot": 1, "state": "Lost", "reason": "ended: exit code 0"}
    assert house.call("POST", "/v1/service/ended", ended, token="service").json == {"rescued": 0}
    assert house.get("/v1/pilots?all=true")["pilots"][0]["state"] == "Done"


@pytest.mark.parametrize(
    "body", [{"pilot": 99, "state": "Lost", "reason": ""}, {"pilot": 1, "state": "Flying", "reason": ""}]
)
def test_a_wrong_call_of_the_service_is_explained(house, body):
    house.pilot()
    assert house.call("POST", "/v1/service/ended", body, token="service").status in (400, 404)


def test_an_unknown_service_call(house):
    assert house.call("POST", "/v1/service/fly", {}, token="service").status == 404
