"""The backend of ARC where a real ARC cannot be made to do it: faults, races, answers that are late, odd, or too many."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.kits.shell_pilots import shell_spec

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import arc_text
from lodesman.server.engines.arc import ArcBackend
from lodesman.server.engines.backend import CancelOutcome, NativeState
from lodesman.server.engines.run.https import Answer

QUEUE = QueueId("Site", "arc", "pilots")
NAMES = re.compile(r'jobname="([^"]*)"')
SILENCE = BackendFault("It does not answer.", transient=True)


@dataclass
class Job:
    name: str
    state: str = "ACCEPTING"
    script: bytes = b""
    document: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    marks: list[str] = field(default_factory=list)


@dataclass(eq=False)
class FakeArc:
    """Answers as A-REX 6.17 does. `faults`: by the start of METHOD and path, what is answered or raised instead."""

    url: str = "https://ce.example.org/arex"
    jobs: dict[str, Job] = field(default_factory=dict)
    faults: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refusals: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, state: str, **more) -> str:
        native_id = f"id{len(self.jobs):04}" + "x" * 46
        copies: dict[str, Any] = {key: dict(value) for key, value in more.items()}
        self.jobs[native_id] = Job(name, state, **copies)
        return native_id

    def request(self, method, path, body=None, *, headers=None, repeatable=True, seconds=None) -> Answer:
        assert path.startswith("/rest/1.0/")
        path = path.removeprefix("/rest/1.0")
        line = f"{method} {path}"
        self.asked.append(line)
        for start, fault in self.faults.items():
            if line.startswith(start):
                answer = fault(line, body) if callable(fault) else fault
                if isinstance(answer, BackendFault):
                    raise answer
                if answer is not None:
                    return answer
        if path.startswith("/jobs?action=new"):
            assert not repeatable
            return said(201, [self._new(name) for name in NAMES.findall(body.decode())])
        if action := path.partition("?action=")[2]:
            assert len(body) < 1 << 20
            assert repeatable
            ids = [one["id"] for one in json.loads(body)["job"]]
            return said(201, [self._act(action, native_id) for native_id in ids])
        if path == "/jobs" or path.startswith("/jobs?state="):
            states = path.partition("=")[2].split(",") if "=" in path else []
            found = [{"id": i} for i, job in self.jobs.items() if not states or job.state in states]
            return said(200, found) if found else Answer(200, "OK", b"", 0)
        if path == "/info":
            return Answer(200, "OK", b'{"ComputingShare":{"Name":"pilots","MaxRunningJobs":"9"}}', None)
        return self._file(method, path.split("/")[2:], body, headers)

    def _new(self, name):
        if name in self.refusals:
            return {"status-code": "500", "reason": self.refusals[name]}
        return {
            "status-code": "201",
            "reason": "Created",
            "id": self.add(name, "ACCEPTING"),
            "state": "ACCEPTING",
        }

    def _act(self, action, native_id):
        job = self.jobs.get(native_id)
        if job is None:
            return {"status-code": "404", "reason": "Job not found", "id": native_id, "state": "None"}
        if action == "status":
            return {"status-code": "200", "reason": "OK", "id": native_id, "state": job.state}
        if action == "info":
            activity = {"Name": job.name, **job.document}
            return {"status-code": "200", "reason": "OK", "id": native_id,
                    "info_document": {"ComputingActivity": activity}}  # fmt: skip
        job.marks.append(action)
        return {"status-code": "202", "reason": "Queued", "id": native_id}

    def _file(self, method, words, body, headers):
        native_id, _, name = words
        job = self.jobs.get(native_id)
        if job is not None and method == "PUT":
            job.script = body
            return Answer(200, "OK", b"", 0)
        content = None if job is None else job.files.get(name)
        if content is None:
            return Answer(404, "Not Found", b"", 0)
        if method == "HEAD":
            return Answer(200, "OK", b"", len(content))
        begin = int(headers["Range"][6:-1]) if headers and "Range" in headers else 0
        return Answer(206, "Partial Content", content[begin:], None)


def said(code: int, jobs: list[Any]) -> Answer:
    """As ARC writes lists: of one element the element."""
    body = json.dumps({"job": jobs[0] if len(jobs) == 1 else jobs}).encode()
    return Answer(code, "OK", body, len(body))


FULL = {"Queue": "pilots", "ExecutionNode": "knoten-ü"}


@pytest.fixture
def arc() -> FakeArc:
    return FakeArc()


@pytest.fixture
def backend(arc) -> ArcBackend:
    return ArcBackend(service=arc, clock=lambda: 1000.0)


def states(backend, pilots):
    return {stamp: status.state for stamp, status in backend.status(pilots).items()}


# --- submission -----------------------------------------------------------------------------------


def test_one_request_describes_all_and_each_gets_its_script(arc, backend):
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=1000))
    assert len(result.accepted) == 1000
    assert result.refused == {}
    assert sum(line.startswith("POST") for line in arc.asked) == 1
    scripts = {job.script for job in arc.jobs.values()}
    assert len(scripts) == 1
    assert b"copy=$1" in scripts.pop()
    assert {arc.jobs[native_id].name for native_id in result.accepted.values()} == set(result.accepted)


def test_part_of_a_submission_is_refused(arc, backend):
    arc.refusals = {
        "sub-2": "No more jobs allowed",
        "sub-3": "Requested queue x is not allowed for this user",
    }
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=4))
    assert sorted(result.accepted) == ["sub-1", "sub-4"]
    assert {stamp: refusal.transient for stamp, refusal in result.refused.items()} == {
        "sub-2": True,
        "sub-3": False,
    }


@pytest.mark.parametrize(
    "answer", [Answer(500, "No more jobs allowed", b"", 0), Answer(403, "Forbidden", b"", 0)]
)
def test_all_of_a_submission_is_refused_for_now(arc, backend, answer):
    arc.faults["POST /jobs?action=new"] = answer
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=2))
    assert {refusal.reason for refusal in result.refused.values()} == {answer.reason}
    assert all(refusal.transient for refusal in result.refused.values())


@pytest.mark.parametrize(
    "answer",
    [SILENCE, Answer(502, "Bad Gateway", b"", 0), Answer(504, "Gateway Timeout", b"", 0), Answer(201, "OK", b"", 0),
     Answer(201, "OK", b'{"job":[{"status-code":"201"', 1), Answer(302, "Found", b"", 0), said(201, []),
     said(201, [{"status-code": "201", "id": "1"}]), Answer(200, "OK", b"<html>Welcome</html>", 20)],
)  # fmt: skip
def test_a_submission_whose_answer_did_not_come_is_found_by_its_stamp(arc, backend, answer):
    def lose(line, body):
        for name in NAMES.findall(body.decode()):
            arc.add(name, "ACCEPTING")
        return answer

    arc.faults["POST /jobs?action=new"] = lose
    spec = shell_spec(QUEUE, "sub", "true", count=2)
    with pytest.raises(BackendFault) as fault:
        backend.submit(spec)
    assert fault.value.data["transient"]
    arc.faults.clear()
    found = backend.census()
    assert sorted(found) == ["sub-1", "sub-2"]
    assert list(backend.submit(spec).refused.values()) == list(backend.submit(spec).refused.values())
    assert backend.submit(spec).accepted == {}
    assert len(arc.jobs) == 2


def test_an_odd_record_is_neither_accepted_nor_refused(arc, backend):
    arc.faults["POST /jobs?action=new"] = said(201, [{"status-code": "201", "id": "one"}, 7])
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=2))
    assert (dict(result.accepted), dict(result.refused)) == ({"sub-1": "one"}, {}) or result.refused[
        "sub-1"
    ].transient


def test_nothing_is_submitted_while_it_is_not_known_what_is_there(arc, backend):
    arc.faults["GET /jobs"] = SILENCE
    with pytest.raises(BackendFault):
        backend.submit(shell_spec(QUEUE, "sub", "true"))
    assert arc.jobs == {}


def test_a_job_without_its_script_is_refused_and_removed(arc, backend):
    """A token that runs out in the middle."""
    arc.faults["PUT"] = lambda line, _: Answer(401, "Unauthorized", b"", 0) if "id0001" in line else None
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=3))
    assert sorted(result.accepted) == ["sub-1", "sub-3"]
    assert result.refused["sub-2"].transient
    assert "401 Unauthorized" in result.refused["sub-2"].reason
    assert [job.marks for job in arc.jobs.values()] == [[], ["kill", "clean"], []]


def test_of_a_job_whose_script_may_have_arrived_nothing_is_said(arc, backend):
    arc.faults["PUT"] = SILENCE
    result = backend.submit(shell_spec(QUEUE, "sub", "true", count=50))
    assert result.accepted == {}
    unsaid = {f"sub-{number}" for number in range(1, 51)} - set(result.refused)
    assert 1 <= len(unsaid) <= 8, "those that were on their way"
    assert sum(line.startswith("PUT") for line in arc.asked) == len(unsaid), "no more are tried"
    marks = {job.name: job.marks for job in arc.jobs.values()}
    assert {stamp for stamp, mark in marks.items() if mark == ["kill"]} == unsaid


def test_the_secret_is_in_the_script_alone(arc, backend):
    spec = shell_spec(QUEUE, "sub", "hush", environment={"A": "b"})
    seen = []
    arc.faults["POST /jobs?action=new"] = lambda _, body: seen.append(body)
    backend.submit(spec)
    assert b"hush" not in seen[0]
    assert "hush" not in repr(backend) + repr(arc.asked)


# --- states ---------------------------------------------------------------------------------------


def test_a_job_that_is_not_there_yet_or_no_more_is_unknown(arc, backend):
    status = backend.status({"sub-1": "id9"})["sub-1"]
    assert (status.state, status.detail, status.observed_at) == (NativeState.UNKNOWN, "Job not found", 1000.0)


def test_an_end_stays_an_end_when_the_job_is_wiped(arc, backend):
    pilots = {"sub-1": arc.add("sub-1", "FAILED", document={**FULL, "ExitCode": "7", "Error": "it failed"})}
    first = backend.status(pilots)
    assert (first["sub-1"].exit_code, first["sub-1"].host, first["sub-1"].detail) == (
        7,
        "knoten-ü",
        "it failed",
    )
    arc.jobs.clear()
    assert backend.status(pilots) == first
    assert ArcBackend(service=arc).status(pilots)["sub-1"].state is NativeState.UNKNOWN


def test_an_end_without_a_full_document_is_read_of_arcs_own_file(arc, backend):
    native_id = arc.add(
        "sub-1", "FAILED", files={"diag": b"nodename=node1\nexitcode=3\n", "local": b"queue=pilots\n"}
    )
    status = backend.status({"sub-1": native_id})["sub-1"]
    assert (status.state, status.exit_code, status.host) == (NativeState.ENDED, 3, "node1")


def test_an_id_with_another_name_is_another_pilot(arc, backend):
    native_id = arc.add("other-1", "RUNNING", document=FULL)
    status = backend.status({"sub-1": native_id})["sub-1"]
    assert (status.state, status.detail) == (NativeState.UNKNOWN, "this job is other-1")
    assert backend.cancel({"sub-1": native_id}) == {"sub-1": CancelOutcome.UNKNOWN}
    assert backend.output("sub-1", native_id) is None
    backend.forget({"sub-1": native_id})
    assert arc.jobs[native_id].marks == []


def test_a_held_job_has_its_reason(arc, backend):
    native_id = arc.add("sub-1", "HELD", document={**FULL, "OtherMessages": "LRMS: JobHeldAdmin"})
    status = backend.status({"sub-1": native_id})["sub-1"]
    assert (status.state, status.word) == (NativeState.HELD, "HELD: LRMS: JobHeldAdmin")


def test_two_different_records_of_one_job_say_nothing(arc, backend):
    native_id = arc.add("sub-1", "RUNNING", document=FULL)
    good = {"status-code": "200", "reason": "OK", "id": native_id, "state": "RUNNING"}
    for second, state in ((good, NativeState.RUNNING), ({**good, "state": "FINISHED"}, NativeState.UNKNOWN)):
        arc.faults["POST /jobs?action=status"] = said(201, [good, second])
        assert states(backend, {"sub-1": native_id}) == {"sub-1": state}
    assert backend.cancel({"sub-1": native_id}) == {"sub-1": CancelOutcome.FAILED}


def test_a_missing_or_odd_record_says_nothing_of_its_job_alone(arc, backend):
    pilots = {stamp: arc.add(stamp, "RUNNING", document=FULL) for stamp in ("a-1", "b-1", "c-1")}
    good = {"status-code": "200", "reason": "OK", "id": pilots["a-1"], "state": "RUNNING"}
    arc.faults["POST /jobs?action=status"] = said(
        201, [good, {**good, "id": pilots["b-1"], "state": "PURPLE"}, None]
    )
    unknown = NativeState.UNKNOWN
    assert states(backend, pilots) == {"a-1": NativeState.RUNNING, "b-1": unknown, "c-1": unknown}


NONSENSE = [
    SILENCE, Answer(503, "Service Unavailable", b"<html>", 6), Answer(401, "Unauthorized", b"", 0),
    Answer(201, "OK", b"", 0), Answer(201, "OK", b"Welcome to ce.example.org\n", 26), Answer(201, "OK", b'{"job":[{', 9),
    Answer(201, "OK", b"{}", 2), Answer(201, "OK", b"\xff\xfe", 2), Answer(301, "Moved", b"", 0),
]  # fmt: skip


@pytest.mark.parametrize("answer", NONSENSE)
def test_what_cannot_be_believed_is_a_fault_that_may_pass(arc, backend, answer):
    pilots = {"sub-1": arc.add("sub-1", "RUNNING", document=FULL)}
    arc.faults["POST"] = arc.faults["GET /info"] = arc.faults["GET /jobs?"] = answer
    for call in (
        lambda: backend.status(pilots),
        lambda: backend.cancel(pilots),
        lambda: backend.forget(pilots),
        lambda: backend.loads([QUEUE]),
        backend.census,
    ):
        with pytest.raises(BackendFault) as fault:
            call()
        assert fault.value.data["transient"]
    assert arc.jobs[pilots["sub-1"]].marks == []


def test_a_list_that_cannot_be_believed_is_a_fault(arc, backend):
    for answer in NONSENSE:
        if answer == Answer(201, "OK", b"", 0):
            continue  # ARC 6 writes a list without elements so
        arc.faults["GET /jobs"] = answer
        with pytest.raises(BackendFault):
            backend.census()


def test_an_empty_list_is_not_believed_while_a_job_is_known(arc, backend):
    pilots = {"sub-1": arc.add("sub-1", "RUNNING", document=FULL)}
    assert backend.census() == pilots
    arc.faults["GET /jobs"] = Answer(200, "OK", b"", 0)
    for call in (backend.census, lambda: backend.loads([QUEUE])):
        with pytest.raises(BackendFault, match="lists no jobs, and knows some"):
            call()
    arc.jobs.clear()
    assert backend.census() == {}


def test_a_token_that_runs_out_between_two_requests_ends_nothing(arc, backend):
    pilots = {"sub-1": arc.add("sub-1", "FINISHED", document=FULL)}
    arc.faults["POST /jobs?action=info"] = Answer(401, "Unauthorized", b"", 0)
    with pytest.raises(BackendFault, match="certificate or token"):
        backend.status(pilots)
    arc.faults.clear()
    assert states(backend, pilots) == {"sub-1": NativeState.ENDED}


def test_an_end_whose_document_does_not_come_is_asked_for_again(arc, backend):
    pilots = {"sub-1": arc.add("sub-1", "RUNNING", document=FULL)}
    assert states(backend, pilots) == {"sub-1": NativeState.RUNNING}
    arc.jobs[pilots["sub-1"]].state = "FAILED"
    arc.faults["POST /jobs?action=info"] = said(201, [None, None])
    assert states(backend, pilots) == {"sub-1": NativeState.RUNNING}
    arc.faults.clear()
    arc.jobs[pilots["sub-1"]].document["ExitCode"] = "9"
    assert backend.status(pilots)["sub-1"].exit_code == 9


def test_the_clock_of_arc_may_be_wrong(arc, backend):
    document = {
        **FULL,
        "StartTime": "2099-01-01T00:00:00Z",
        "ComputingManagerEndTime": "1999-01-01T00:00:00Z",
    }
    status = backend.status({"sub-1": arc.add("sub-1", "FINISHED", document=document)})["sub-1"]
    assert (status.state, status.observed_at) == (NativeState.ENDED, 1000.0)


@pytest.mark.slow
def test_ten_thousand_pilots_are_asked_about_by_two_requests(arc, backend):
    pilots = {f"sub-{n}": arc.add(f"sub-{n}", "RUNNING", document=FULL) for n in range(1, 10_001)}
    backend.census()
    arc.asked.clear()
    backend.status(pilots)
    assert len(arc.asked) == 2
    bodies = {}
    arc.faults["POST"] = lambda line, body: bodies.setdefault(line, body) and None
    answer = FakeArc.request(
        arc, "POST", "/rest/1.0/jobs?action=status", arc_text.request_body(pilots.values())
    )
    arc.faults["POST"] = lambda line, _: answer if line.endswith("status") else said(201, [])
    backend.status(pilots)
    assert set(states(backend, pilots).values()) == {NativeState.RUNNING}


@pytest.mark.slow
def test_more_ids_than_one_request_holds(arc, backend):
    pilots = {f"sub-{n}": f"no{n}" for n in range(25_000)}
    assert set(states(backend, pilots).values()) == {NativeState.UNKNOWN}
    assert len(arc.asked) == 3


# --- cancelling, loads, outputs -------------------------------------------------------------------


def test_cancels_that_race_with_the_job(arc, backend):
    pilots = {
        stamp: arc.add(stamp, "PREPARED", document=FULL)
        for stamp in ("stays-1", "starts-1", "gone-1", "no-1")
    }

    def kill(_line, body):
        arc.jobs[pilots["starts-1"]].state = "RUNNING"
        arc.jobs[pilots["stays-1"]].state = "FAILED"
        del arc.jobs[pilots["gone-1"]]
        records = [arc._act("kill", one["id"]) for one in json.loads(body)["job"]]
        return said(201, [r if r["id"] != pilots["no-1"] else {**r, "status-code": "505"} for r in records])

    arc.faults["POST /jobs?action=kill"] = kill
    assert backend.cancel(pilots) == {
        "stays-1": CancelOutcome.REMOVED,
        "starts-1": CancelOutcome.ORDERED,
        "gone-1": CancelOutcome.UNKNOWN,
        "no-1": CancelOutcome.FAILED,
    }


def test_what_arc_says_of_a_waiting_job_may_be_old(arc, backend):
    """Its documents are a minute old: this job runs."""
    native_id = arc.add("sub-1", "RUNNING")
    old = {"status-code": "200", "reason": "OK", "id": native_id, "state": "ACCEPTED"}
    arc.faults["POST /jobs?action=status"] = said(201, [old])
    assert backend.cancel({"sub-1": native_id}) == {"sub-1": CancelOutcome.ORDERED}


def test_cancelling_what_has_ended(arc, backend):
    pilots = {
        "sub-1": arc.add("sub-1", "KILLED", document={**FULL, "Error": "Job is canceled by external request"})
    }
    assert backend.cancel(pilots) == {"sub-1": CancelOutcome.ENDED}
    assert arc.jobs[pilots["sub-1"]].marks == []
    assert backend.status(pilots)["sub-1"].exit_code is None


def test_loads_count_ours_by_queue(arc, backend):
    for number, state in enumerate(("ACCEPTED", "QUEUING", "RUNNING", "HELD", "FINISHED")):
        arc.add(f"sub-{number}", state, document=FULL)
    arc.add("another job", "RUNNING", document=FULL)
    arc.add("else-1", "RUNNING", document={**FULL, "Queue": "long"})
    arc.add("local-1", "RUNNING", files={"local": b"queue=pilots\n"})
    long = QueueId("Site", "arc", "long")
    found = backend.loads([QUEUE, long])
    assert [(load.waiting, load.running, load.held, load.slots) for load in found.values()] == [
        (2, 2, 1, 9),
        (0, 1, 0, None),
    ]
    assert found[QUEUE].observed_at == 1000.0


def test_loads_count_the_pilots_of_our_server(arc, backend):
    for number, mark in enumerate(("aa", "bb", "bb")):
        arc.add(f"{mark}sub-{number}", "RUNNING", document=FULL)
    backend.mark = "bb"
    assert backend.loads([QUEUE])[QUEUE].running == 2
    assert len(backend.census()) == 3


def test_loads_are_not_known_while_one_job_is_odd(arc, backend):
    native_id = arc.add("sub-1", "RUNNING", document=FULL)
    arc.faults["POST /jobs?action=status"] = said(
        201, [{"status-code": "200", "id": native_id, "state": "PURPLE"}]
    )
    load = backend.loads([QUEUE])[QUEUE]
    assert (load.waiting, load.running, load.held) == (None, None, None)
    arc.faults["POST /jobs?action=status"] = said(
        201, [{"status-code": "404", "id": native_id, "state": "None"}]
    )
    load = backend.loads([QUEUE])[QUEUE]
    assert (load.waiting, load.running, load.held) == (0, 0, 0), "it was removed since it was listed"


@pytest.mark.parametrize("size", [0, 5, (64 << 10) + 1, 1 << 20])
def test_outputs_of_any_size(arc, backend, size):
    content = (b"\0\xff" + bytes(range(256)) * (size // 256 + 1))[:size]
    native_id = arc.add("sub-1", "RUNNING", files={arc_text.OUTPUT: content})
    assert backend.output("sub-1", native_id) == content[-(64 << 10) :]


def test_an_output_of_a_service_that_sends_all(arc, backend):
    native_id = arc.add("sub-1", "FINISHED", files={arc_text.OUTPUT: b"x"})
    arc.faults["GET"] = Answer(200, "OK", b"a" * 100 + b"b" * (64 << 10), None)
    assert backend.output("sub-1", native_id) == b"b" * (64 << 10)


def test_there_is_no_output_yet(arc, backend):
    assert backend.output("sub-1", arc.add("sub-1", "ACCEPTED")) is None
    assert backend.output("sub-1", "nosuch") is None


def test_only_ended_jobs_are_removed(arc, backend):
    pilots = {stamp: arc.add(stamp, state, document=FULL)
              for stamp, state in (("a-1", "FINISHED"), ("b-1", "RUNNING"), ("c-1", "QUEUING"))}  # fmt: skip
    backend.forget(pilots | {"d-1": "nosuch"})
    assert [job.marks for job in arc.jobs.values()] == [["clean"], [], []]


def test_what_arc_no_longer_lists_is_not_remembered(arc, backend):
    for number in range(100):
        arc.add(f"sub-{number}", "FINISHED", document=FULL)
    backend.status(backend.census())
    arc.jobs.clear()
    assert backend.census() == {}
    assert not backend._known
    assert not backend._ends
