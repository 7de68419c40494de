"""What ARC answers, as values: on answers that ARC 6.17 gave, and on others that nobody should send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import arc_text
from lodesman.server.engines.arc_text import ArcFacts, ArcJob
from lodesman.server.engines.backend import NativeState

DATA = Path(__file__).parents[2] / "data" / "arc"
JOBS = (DATA / "jobs.json").read_bytes()
INFO = (DATA / "info.json").read_bytes()
QUEUE = QueueId("Site", "arc", "pilots")
# Before ARC writes the first document of a job, it says this.
SHORT = {
    "ID": "urn:caid::org.nordugrid.arcrest:EwhLDmmd", "Name": "sub_b-1", "IDFromEndpoint": "urn:idfe:EwhLDmmd",
    "OtherInfo": "SubmittedVia=org.nordugrid.arcrest", "Type": "single",
    "State": ["nordugrid:ACCEPTED", "emies:accepted", "arcrest:ACCEPTED", "emiesattr:client-stagein-possible"],
    "Owner": "/O=Lodesman/CN=Pilots", "_attributes": {"BaseType": "      ", "CreationTime": "      "},
}  # fmt: skip
LOCAL = """globalid=EwhLDmmd
headnode=https://ce.example.org:443/arex
lrms=fork
queue=pilots
localid=24823
args=lodesman.sh 1 
starttime=20261123135158Z
jobname=sub_b-1
sessiondir=/var/spool/arc/session/EwhLDmmd
failedstate=INLRMS
failedcause=internal
"""  # noqa: W291
DIAGNOSIS = """runtimeenvironments=
nodename=node1
Processors=1
Benchmark=HEPSPEC:1.0
Command exited with non-zero status 1
WallTime=5.07s
LRMSStartTime=20261123135158Z
LRMSEndTime=20261123135204Z
walltime=6
exitcode=1
"""


def test_the_documents_of_jobs():
    records = arc_text.jobs_in(JOBS)
    assert [(record.code, record.reason) for record in records] == [(200, "OK")] * 3
    facts = [arc_text.facts_of(record.document) for record in records]
    assert facts[0] == ArcFacts(
        name="subc-1",
        queue="pilots",
        host="node1",
        message="LRMS error: (137) Job finished with wrong exit code - 137 != 0",
        exit_code=137,
        started_at=1795442137.0,
        ended_at=1795442138.0,
    )
    assert facts[2] == ArcFacts(
        name="subc-3", queue="pilots", host="node1", message="LRMS: Running under fork"
    )


def test_a_short_document_has_the_name_and_arcs_own_files_the_rest():
    facts = arc_text.facts_of(SHORT)
    assert facts == ArcFacts(name="sub_b-1")
    assert arc_text.with_lines(ArcFacts(), LOCAL) == ArcFacts(name="sub_b-1", queue="pilots")
    facts = arc_text.with_lines(facts, DIAGNOSIS)
    assert facts == ArcFacts(
        name="sub_b-1", host="node1", exit_code=1, started_at=1795441918.0, ended_at=1795441924.0
    )
    assert arc_text.with_lines(facts, DIAGNOSIS.replace("=1\n", "=7\n")) == facts, "what is known stays"


def test_one_job_is_an_object_and_several_are_a_list():
    one = arc_text.jobs_in(b'{"job":{"status-code":"404","reason":"Job not found","id":"4","state":"None"}}')
    two = arc_text.jobs_in(b'{"job":[{"status-code":"200","id":"4","state":"ACCEPTED"},{"id":"5"}]}')
    assert [(record.code, record.native_id, record.state) for record in one] == [(404, "4", "None")]
    assert [(record.code, record.native_id, record.state) for record in two] == [
        (200, "4", "ACCEPTED"),
        (0, "5", ""),
    ]
    assert arc_text.jobs_in(b'{"job":[]}') == []


@pytest.mark.parametrize(
    "body",
    [b"", b'""', b"[]", b"{}", b'{"job":"x"}', b'{"job":7}', b"<html>Service Unavailable</html>", b"\xff\0",
     b'{"job":[{"status-code":"200"', b"Welcome!\n" + JOBS, JOBS[: len(JOBS) // 2], b"[" * 100_000],
)  # fmt: skip
def test_what_is_no_answer_ends_no_job(body):
    with pytest.raises(BackendFault) as fault:
        arc_text.jobs_in(body)
    assert fault.value.data["transient"]
    assert len(str(fault.value)) < 400


def test_every_state_of_arc_has_its_meaning():
    waiting = "ACCEPTING ACCEPTED PREPARING PREPARED SUBMITTING QUEUING"
    running = "RUNNING OTHER EXITINGLRMS EXECUTED FINISHING KILLING"
    for words, state in (
        (waiting, NativeState.WAITING),
        ("HELD", NativeState.HELD),
        (running, NativeState.RUNNING),
        ("FINISHED FAILED KILLED WIPED", NativeState.ENDED),
        ("None UNDEFINED finished", NativeState.UNKNOWN),
    ):
        assert {arc_text.state_of(word) for word in words.split()} == {state}
    assert arc_text.state_of("") is NativeState.UNKNOWN


def test_a_held_job_has_its_reason():
    record = arc_text.jobs_in(b'{"job":{"status-code":"200","reason":"OK","id":"4","state":"HELD"}}')[0]
    facts = ArcFacts(name="s-1", message="LRMS: JobHeldAdmin")
    status = arc_text.status_of(record, facts, NativeState.HELD, 5.0)
    assert (status.state, status.word, status.detail, status.exit_code) == (
        NativeState.HELD,
        "HELD: LRMS: JobHeldAdmin",
        "LRMS: JobHeldAdmin",
        None,
    )


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [("FINISHED", None, 0), ("FINISHED", 0, 0), ("FAILED", 42, 42), ("FAILED", None, None), ("KILLED", None, None)],
)  # fmt: skip
def test_exit_codes(state, code, expected):
    record = arc_text.ArcRecord(200, "OK", "4", state, {})
    status = arc_text.status_of(record, ArcFacts(exit_code=code), NativeState.ENDED, 5.0)
    assert status.exit_code == expected
    assert arc_text.status_of(record, ArcFacts(exit_code=code), NativeState.RUNNING, 5.0).exit_code is None


@pytest.mark.parametrize("text", ["999999999", "4294967295", "-1", "UNDEFINEDVALUE", "", "1" * 5000, "³"])
def test_a_number_that_is_none(text):
    assert arc_text.facts_of({"ExitCode": text}).exit_code is None


@pytest.mark.parametrize("text", ["2026-11-23T13:55:37", "yesterday", "", "9" * 99, "99999-01-01T00:00:00Z"])
def test_a_time_that_is_none(text):
    assert arc_text.facts_of({"StartTime": text}).started_at is None


def test_hosts_in_any_language():
    facts = arc_text.facts_of({"ExecutionNode": ["knoten-ü", "узел"], "Name": "s-1"})
    assert facts.host == "узел"


def test_the_shares():
    (share,) = arc_text.shares_in(INFO).values()
    assert (share.slots, share.free_slots, share.running, share.waiting) == (1, 1, 1, 0)
    assert (share.wall_seconds, share.cores, share.memory_mb, share.closed) == (None, None, None, "")
    assert list(arc_text.shares_in(INFO)) == ["pilots"]


def load(ours, name="pilots"):
    found = arc_text.load_of(name, arc_text.shares_in(INFO), ours, 7.0)
    return found.waiting, found.running, found.held, found.others_waiting, found.others_running


def test_the_load_of_a_share():
    waiting, running = ArcJob("pilots", NativeState.WAITING), ArcJob("pilots", NativeState.RUNNING)
    other, held = ArcJob("other", NativeState.RUNNING), ArcJob("pilots", NativeState.HELD)
    assert load([]) == (0, 0, 0, 0, 1)
    assert load([waiting, running, running, other, held]) == (1, 2, 1, 0, 0)
    assert load([ArcJob("pilots", NativeState.ENDED)]) == (0, 0, 0, 0, 1)
    assert load([running], "nosuch") == (0, 0, 0, None, None)


def test_one_job_of_unknown_state_makes_our_numbers_unknown():
    unknown = ArcJob("", NativeState.UNKNOWN)
    assert load([unknown, ArcJob("pilots", NativeState.WAITING)]) == (None, None, None, None, None)


def share(**facts):
    share = {"Name": "vo", "MappingQueue": "pilots", **facts}
    return arc_text.shares_in(json.dumps({"Domains": [{"ComputingShare": [share, "x"]}]}).encode())


@pytest.mark.parametrize(
    ("facts", "asked", "detail"),
    [
        ({}, {}, ""),
        ({"MaxWallTime": "3600"}, {"wall_seconds": 3600}, ""),
        ({"MaxWallTime": "3600"}, {"wall_seconds": 3601}, "MaxWallTime is 3600, 3601 are asked for"),
        ({"MaxWallTime": "999999999"}, {"wall_seconds": 10**12}, ""),
        ({"MaxSlotsPerJob": "4"}, {"cores": 8}, "MaxSlotsPerJob is 4, 8 are asked for"),
        ({"MaxMainMemory": "2000"}, {"memory_mb": 4000}, "MaxMainMemory is 2000, 4000 are asked for"),
        ({"ServingState": "draining"}, {}, "ServingState is draining"),
        ({"ServingState": "queueing"}, {}, ""),
    ],
)
def test_what_a_share_says_of_a_pilot(facts, asked, detail):
    check = arc_text.check_of(shell_spec(QUEUE, "s", **asked), share(**facts))
    assert (check.possible, check.detail) == (not detail, detail)


def test_a_share_that_is_not_there_and_shares_that_are_not():
    spec = shell_spec(QueueId("Site", "arc", "nosuch"), "s")
    check = arc_text.check_of(spec, share())
    assert (check.possible, check.detail) == (False, "ARC has no share nosuch, only pilots, vo")
    assert arc_text.check_of(spec, {}).possible is None


def test_one_description_or_several():
    spec = shell_spec(
        QueueId("Site", "arc", 'a "queue"'), "sub", count=2, cores=4, memory_mb=4001, wall_seconds=60,
        options=('(runtimeenvironment="ENV/PROXY")',),
    )  # fmt: skip
    text = arc_text.descriptions(spec, spec.stamps(), 99)
    relations = (
        '(executable="lodesman.sh")(stdout="lodesman.out")(stderr="lodesman.out")(queue="a ""queue""")(count="4")'
        '(countpernode="4")(memory="1001")(walltime="60")(executables="lodesman.sh")'
        '(inputfiles=("lodesman.sh" "99"))(outputfiles=("lodesman.out" ""))(runtimeenvironment="ENV/PROXY")'
    )
    first, second = (f'&(jobname="sub-{number}")(arguments="{number}"){relations}' for number in (1, 2))
    assert text == f"+({first})({second})"
    assert arc_text.descriptions(spec, {1: "sub-1"}, 99) == first
    assert "secret" not in text


@pytest.mark.parametrize(
    ("code", "reason", "transient"),
    [
        (500, "Requested queue nosuch is not allowed for this user", False),
        (500, "nordugrid:xrsl parsing error: Value of 'count' attribute must be an integer", False),
        (500, "Job description is too big", False),
        (500, "No more jobs allowed", True),
        (500, "Failed to create session directory", True),
        (403, "Operation is not allowed", True),
        (404, "Version Not Supported", False),
        (500, "", True),
    ],
)
def test_which_refusals_last(code, reason, transient):
    refusal = arc_text.refusal_of(code, reason)
    assert refusal.transient is transient
    assert refusal.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(
        st.text() | st.sampled_from(["job", "id", "state", "status-code", "info_document", "ComputingActivity",
                                     "ExitCode", "Name", "StartTime", "ComputingShare", "MaxWallTime"]), inside),
)  # fmt: skip


def read(body):
    """Everything that can be read of an answer."""
    for record in arc_text.jobs_in(body):
        facts = arc_text.facts_of(record.document)
        arc_text.status_of(record, facts, arc_text.state_of(record.state), 0.0)
        arc_text.refusal_of(record.code, record.reason)


def may_pass(reader, body):
    """Whether it is read, or refused as a fault that may pass."""
    try:
        reader(body)
    except BackendFault as fault:
        return fault.data["transient"]
    return True


@pytest.mark.slow
@at_most(30)
@given(st.binary() | st.text().map(str.encode) | JSON.map(lambda value: json.dumps(value).encode())
       | JSON.map(lambda value: json.dumps({"job": value}).encode()))  # fmt: skip
def test_no_answer_breaks_the_reader(body):
    for reader in (read, arc_text.shares_in):
        assert may_pass(reader, body)


@given(st.data())
def test_a_truncated_or_doubled_answer_breaks_nothing(data):
    whole = data.draw(st.sampled_from([JOBS, INFO]))
    first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(whole))] * 2)))
    body = data.draw(st.sampled_from([whole[:first], whole[first:last], whole[:last] + whole[first:]]))
    for reader in (read, arc_text.shares_in):
        assert may_pass(reader, body)


@given(st.text(), st.integers(0, len(LOCAL)))
def test_any_lines_can_be_read(text, end):
    for lines in (text, LOCAL[:end], DIAGNOSIS[:end] + LOCAL, text + DIAGNOSIS):
        arc_text.with_lines(ArcFacts(), lines)
