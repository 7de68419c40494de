"""The pilot's file, the protocol, the log: text and JSON values to values, and back."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base.errors import InvalidConfig, InvalidRequest
from lodesman.pilot.context import Log, PilotOptions, parse_pilot_file
from lodesman.pilot.protocol import (
    AssignedJob,
    AttemptKey,
    PayloadLimits,
    PayloadReport,
    parse_claim,
    parse_heartbeat,
    parse_key,
    parse_refusals,
    report_end,
)

FILE = {"servers": ["http://127.0.0.1:7777"], "join_token": "secret", "stamp": "s1"}
SPEC = {"executable": "/bin/true"}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


# --- the pilot's file -------------------------------------------------------------------------------


def test_smallest_file():
    file = parse_pilot_file(json.dumps(FILE))
    assert file.servers == ("http://127.0.0.1:7777",)
    assert (file.join_token, file.stamp, file.submit_pools) == ("secret", "s1", None)
    assert file.options == PilotOptions()


def test_whole_file():
    options = {
        "cores": 4,
        "memory_mb": 8000,
        "life_seconds": 3600,
        "cpu_scaling_factor": 2,
        "idle_s": 0,
        "heartbeat_s": 5,
        "jobs_at_once": 2,
        "platform": "x86_64-test",
        "something_new": [1],
    }
    record = {
        **FILE,
        "site": "S",
        "ce": "C",
        "queue": "Q",
        "submit_pools": ["p"],
        "ca_file": "/ca",
        "options": options,
    }
    file = parse_pilot_file(json.dumps(record))
    assert (file.site, file.ce, file.queue, file.submit_pools) == ("S", "C", "Q", ("p",))
    assert file.ca_file == "/ca"
    assert file.options == PilotOptions(
        cores=4,
        memory_mb=8000,
        life_seconds=3600,
        cpu_scaling_factor=2.0,
        idle_s=0.0,
        heartbeat_s=5.0,
        jobs_at_once=2,
        platform="x86_64-test",
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        json.dumps({**FILE, "servers": "http://x"}),
        json.dumps({**FILE, "servers": [1]}),
        json.dumps({**FILE, "servers": ["example.org:7777"]}),
        json.dumps({**FILE, "servers": ["http://example.org:7777"]}),
        json.dumps({**FILE, "servers": ["http://127.0.0.1:7777", "http://192.0.2.1"]}),
        json.dumps({**FILE, "servers": ["http://localhost.example.org"]}),
        json.dumps({**FILE, "join_token": ""}),
        json.dumps({**FILE, "stamp": 5}),
        json.dumps({**FILE, "submit_pools": [1]}),
        json.dumps({**FILE, "options": []}),
        json.dumps({**FILE, "options": {"cores": -1}}),
        json.dumps({**FILE, "options": {"cores": "4"}}),
        json.dumps({**FILE, "options": {"cores": True}}),
        json.dumps({**FILE, "options": {"platform": 1}}),
        json.dumps({**FILE, "options": {"life_seconds": float("inf")}}),
        json.dumps({**FILE, "options": {"idle_s": float("nan")}}),
        json.dumps({**FILE, "options": {"cpu_scaling_factor": 0}}),
    ],
)
def test_unusable_files(text):
    with pytest.raises(InvalidConfig) as fault:
        parse_pilot_file(text)
    assert "secret" not in str(fault.value)


@pytest.mark.parametrize(
    "server", ["https://example.org:7777", "http://[::1]:7777", "http://localhost", "http://127.8.9.10/lode"]
)
def test_servers_where_tokens_stay_private(server):
    assert parse_pilot_file(json.dumps({**FILE, "servers": [server]})).servers == (server,)


@given(json_values)
def test_no_file_breaks_the_reader(value):
    with contextlib.suppress(InvalidConfig):
        parse_pilot_file(json.dumps(value))


# --- the protocol -----------------------------------------------------------------------------------


def claim_of(**job):
    return parse_claim({"jobs": [{"id": 1, "attempt": 2, "spec": SPEC, **job}], "drain": False})


def test_smallest_job():
    claim = claim_of()
    assert claim.jobs == [AssignedJob(AttemptKey(1, 2), "/bin/true")]
    assert str(claim.jobs[0].key) == "1.2"
    assert parse_key("1.2") == (1, 2)
    assert parse_key("1.x") is parse_key("12") is parse_key("") is parse_key("\u00b2.1") is None


def test_whole_job():
    spec = {
        "executable": "run.sh",
        "arguments": ["-v", "ü"],
        "environment": {"A": "b"},
        "std_input": "in",
        "std_output": "o",
        "std_error": "e",
        "output_sandbox": ["*.dat"],
        "cores": 2,
        "memory_mb": 500,
        "name": "n",
    }
    item = {"name": "in", "url": "/v1/sandboxes/x", "sha256": "ab", "size": 3, "unpack": True}
    limits = {"norm_cpu_seconds": 10, "cpu_seconds": 5.5, "wall_seconds": 7, "memory_mb": 600, "output_mb": 1}
    (job,) = claim_of(spec=spec, input=[item], limits=limits, exclusive=True).jobs
    assert (job.executable, job.arguments, job.environment) == ("run.sh", ("-v", "ü"), {"A": "b"})
    assert (job.std_input, job.std_output, job.std_error) == ("in", "o", "e")
    assert (job.output_sandbox, job.cores, job.memory_mb) == (("*.dat",), 2, 500)
    assert job.limits == PayloadLimits(cpu_seconds=5.5, wall_seconds=7, memory_mb=600, output_mb=1)
    assert (job.inputs[0].size, job.inputs[0].unpack, job.exclusive) == (3, True, True)


@pytest.mark.parametrize(
    ("own", "told", "most"), [(0, 0, 0), (5, 0, 5), (0, 200, 200), (5, 200, 5), (500, 200, 200)]
)
def test_what_the_server_takes_bounds_every_output(own, told, most):
    record = {"id": 1, "attempt": 1, "spec": SPEC, "limits": {"output_mb": own}}
    (job,) = parse_claim({"jobs": [record]}, sandbox_mb=told).jobs
    assert (job.limits.output_mb, job.limits.max_output_mb) == (own, most)


def test_empty_names_of_streams_are_the_usual_ones():
    (job,) = claim_of(spec={**SPEC, "std_output": "", "std_error": None}).jobs
    assert (job.std_output, job.std_error) == ("std.out", "std.err")


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec": None},
        {"spec": {}},
        {"spec": {"executable": 1}},
        {"spec": {**SPEC, "arguments": "a b"}},
        {"spec": {**SPEC, "arguments": [1]}},
        {"spec": {**SPEC, "environment": ["A=b"]}},
        {"spec": {**SPEC, "environment": {"A": 1}}},
        {"spec": {**SPEC, "cores": "2"}},
        {"spec": {**SPEC, "cores": 1e30}},
        {"limits": {"cpu_seconds": -1}},
        {"limits": {"cpu_seconds": float("nan")}},
        {"input": [{"name": "x"}]},
        {"input": {}},
    ],
)
def test_a_job_that_cannot_be_read_is_named_and_others_are_not_lost(wrong):
    jobs = [{"id": 1, "attempt": 1, "spec": SPEC, **wrong}, {"id": 2, "attempt": 1, "spec": SPEC}]
    claim = parse_claim({"jobs": jobs})
    assert list(claim.unreadable) == [(1, 1)]
    assert claim.unreadable[AttemptKey(1, 1)]
    assert [job.key.id for job in claim.jobs] == [2]


@pytest.mark.parametrize(
    "answer",
    [None, [], {"jobs": {}}, {"jobs": [1]}, {"jobs": [{"id": 1}]}, {"jobs": [{"id": True, "attempt": 1}]}],
)
def test_claims_that_cannot_be_read(answer):
    with pytest.raises(InvalidRequest):
        parse_claim(answer)


def test_orders():
    answer = {"kill": [{"id": 1, "attempt": 2, "reason": "why"}], "drain": True, "lease_s": 60}
    orders = parse_heartbeat(answer)
    assert (orders.kill, orders.drain, orders.lease_s) == ({(1, 2): "why"}, True, 60)
    assert parse_heartbeat({}).kill == {}
    assert parse_heartbeat({"lease_s": None}).lease_s == 0
    for wrong in (None, {"kill": [5]}, {"kill": [{"id": "1", "attempt": 1}]}, {"lease_s": "60"}):
        with pytest.raises(InvalidRequest):
            parse_heartbeat(wrong)


def test_verdicts():
    results = [
        {"id": 1, "attempt": 1, "accepted": True},
        {"id": 2, "attempt": 1, "accepted": False, "reason": "stale"},
        {"id": 3, "attempt": 1},
    ]
    assert parse_refusals({"results": results}) == {(1, 1): "", (2, 1): "stale", (3, 1): "refused"}


@given(json_values)
def test_no_answer_breaks_the_readers(value):
    for read in (parse_claim, parse_heartbeat, parse_refusals):
        for answer in (value, {"jobs": value, "kill": value, "results": value}, {"jobs": [value]}):
            with contextlib.suppress(InvalidRequest):
                read(answer)


def test_report_has_every_field_of_the_protocol():
    output = {"sha256": "ab", "size": 5}
    record = PayloadReport(AttemptKey(1, 2), "Done", output=output).as_json()
    assert set(record) == {
        "id",
        "attempt",
        "state",
        "cause",
        "exit_code",
        "signal",
        "cpu_seconds",
        "wall_seconds",
        "max_rss_mb",
        "started",
        "ended",
        "output",
        "tail",
        "message",
    }
    assert record["output"] == {"sha256": "ab", "size": 5}
    assert (record["id"], record["attempt"]) == (1, 2)
    json.dumps(record)


@pytest.mark.parametrize(
    ("cause", "state"),
    [("ok", "Done"), ("not-started", "Failed"), ("input", "Failed"), ("pilot-shutdown", "Released")],
)
def test_each_cause_has_its_state(cause, state):
    assert report_end(AttemptKey(1, 1), cause).state == state


@pytest.mark.parametrize(
    ("limits", "cpu_seconds"),
    [({"norm_cpu_seconds": 100}, 50), ({"norm_cpu_seconds": 100, "cpu_seconds": 30}, 30), ({}, 0)],
)
def test_normalised_time_is_divided_by_the_speed_of_the_node(limits, cpu_seconds):
    record = {"id": 1, "attempt": 1, "spec": SPEC, "limits": limits}
    (job,) = parse_claim({"jobs": [record]}, scaling=2.0).jobs
    assert job.limits.cpu_seconds == cpu_seconds


@pytest.mark.parametrize(
    ("spec", "limits", "expected"),
    [
        ({"expected_seconds": 40}, {"wall_seconds": 60, "norm_cpu_seconds": 1}, 40),
        ({"expected_seconds": 90}, {"wall_seconds": 60}, 60),
        ({}, {"wall_seconds": 60, "norm_cpu_seconds": 1}, 60),
        ({"cores": 5}, {"norm_cpu_seconds": 100}, 10),
        ({"cores": 5}, {"cpu_seconds": 100}, 20),
        ({"expected_seconds": ""}, {}, 0),
    ],
)
def test_the_time_that_a_job_is_expected_to_take(spec, limits, expected):
    record = {"id": 1, "attempt": 1, "spec": {**SPEC, **spec}, "limits": limits}
    (job,) = parse_claim({"jobs": [record]}, scaling=2.0).jobs
    assert job.expected_seconds == expected


@pytest.mark.parametrize("priority", [-3, 0, 7, -(2**53)])
def test_priorities_may_be_negative(priority):
    assert claim_of(spec={**SPEC, "vacate_priority": priority}).jobs[0].vacate_priority == priority


@pytest.mark.parametrize(
    "spec",
    [{"vacate_priority": -(2**53) - 2}, {"vacate_priority": True}, {"vacate_priority": "9"}, {"expected_seconds": -1}],
)  # fmt: skip
def test_priorities_and_times_that_are_none(spec):
    claim = claim_of(spec={**SPEC, **spec})
    assert not claim.jobs
    assert next(iter(spec)) in claim.unreadable[AttemptKey(1, 2)]


# --- the log ----------------------------------------------------------------------------------------


def test_log_lines():
    stream = io.StringIO()
    log = Log(stream, lambda: 1.23456, stamp="s")
    log("event", job="1.1", odd={1, 2}.__class__, text="ü\n")
    line = json.loads(stream.getvalue())
    assert (line["time"], line["event"], line["stamp"], line["job"]) == (1.235, "event", "s", "1.1")
    assert stream.getvalue().count("\n") == 1


def test_a_closed_log_is_survived():
    stream = io.StringIO()
    log = Log(stream, lambda: 0.0)
    stream.close()
    log("event")
