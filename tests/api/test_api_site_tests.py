"""Tests of sites over HTTP: which queues are tested and which are not, how a test is followed, and what ends one."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import wait
from typing import Any, cast

import pytest
from tests.api.conftest import PATIENCE
from tests.unit.loops.test_node_report import REPORT

from lodesman.base.errors import Unavailable
from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.engines.backend import CancelOutcome, NativeState, NativeStatus, SubmitResult
from lodesman.server.loops import site_tests
from lodesman.server.loops.launch import PilotSettings
from lodesman.server.loops.site_tests import SiteTests

SITES = """
[ce_defaults]
VO = ["lab"]
CPUTime = 1000
WallTime = 3600
[site.Here.ce.one.queue.a]
NumberOfProcessors = 4
Memory = 3000
SubmitOptions = "--own 'a word'"
[site.Here.ce.one.queue.full]
MaxTotalJobs = 0
[site.Here.ce.one.queue.elsewhere]
Backend = "slurm"
[site.Here.ce.two.queue.b]
Backend = "manual"
[site.Others.ce.x.queue.q]
VO = ["strangers"]
[group.physics]
vo = "lab"
"""


class Held:
    """A batch system whose jobs end when the test opens the gate, or by a cancel."""

    def __init__(self) -> None:
        self.backend, self.options = self, ("--usual",)
        self.gate = threading.Event()
        self.specs: list[Any] = []
        self.cancelled: set[str] = set()
        self.forgotten: set[str] = set()

    def submit(self, spec: Any) -> SubmitResult:
        self.specs.append(spec)
        (stamp,) = spec.stamps().values()
        return SubmitResult(accepted={stamp: stamp})

    def status(self, pilots: dict[str, str]) -> dict[str, NativeStatus]:
        def state(stamp: str) -> NativeState:
            over = stamp in self.cancelled or (
                self.gate.is_set() and stamp == f"{self.specs[0].submission}-1"
            )
            return NativeState.ENDED if over else NativeState.RUNNING

        return {
            one: NativeStatus(state=state(one), observed_at=0.0, word="as the test says") for one in pilots
        }

    def output(self, *_: str) -> bytes:
        return json.dumps(REPORT).encode()

    def cancel(self, pilots: dict[str, str]) -> dict[str, CancelOutcome]:
        self.cancelled |= set(pilots)
        return dict.fromkeys(pilots, CancelOutcome.ORDERED)

    def forget(self, pilots: dict[str, str]) -> None:
        self.forgotten |= set(pilots)


@pytest.fixture
def held():
    found = Held()
    yield found
    found.gate.set()


@pytest.fixture
def ticks():
    return [50.0]


@pytest.fixture
def tested(house, held, ticks, monkeypatch):
    """The house with these sites, and a batch system for the local queues."""
    monkeypatch.setattr("lodesman.server.loops.queue_tests._POLL_SECONDS", 0.01)
    house.side.policy = house.core.policy = house.policy(load_resources([("sites.toml", SITES)]))
    settings = PilotSettings(
        servers=("https://lode.example",), program=b"zipapp", ca_file="/ca.pem", url_file="/url"
    )
    house.side.site_tests = SiteTests(settings, lambda: {"local": cast("Any", held)}, ticks=lambda: ticks[0])
    yield house
    house.side.site_tests.close()


def begin(house, path="Here", **more):
    answer = house.call("POST", "/v1/site-tests", {"path": path, **more}, token="admin")
    assert answer.status == 200, answer.body
    return answer.json


def ask(house, test):
    return house.get(f"/v1/site-tests/{test}", "admin")


def over(house, test):
    """Its last answer: when no thread of it is left."""
    run = house.side.site_tests._find(test)
    assert not wait(run.futures, timeout=PATIENCE).not_done
    return ask(house, test)


def rows(answer):
    return {
        (f"{one['ce']}/{one['queue']}", one["check"]): (one["result"], one["detail"])
        for one in answer["checks"]
    }


def test_which_queues_are_tested(tested, held):
    first = begin(tested)
    assert (first["path"], first["state"], first["queues"], first["begun_at"]) == (
        "Here",
        "running",
        4,
        tested.now,
    )
    assert rows(first) | {("one/a", "submit"): None} == {
        ("one/a", "submit"): None,
        ("one/full", "submit"): ("unknown", "no test job: MaxTotalJobs is 0"),
        ("one/elsewhere", "submit"): ("unknown", "no test job: there is no backend 'slurm' here"),
        ("two/b", "submit"): ("unknown", "no test job: pilots there are started manually, by others: test them there"),
    }  # fmt: skip
    held.gate.set()
    last = over(tested, first["test"])
    assert (last["state"], last["doing"]) == ("finished", {})
    assert [one["check"] for one in last["checks"] if one["queue"] == "a"][-2:] == ["cancel", "forget"]
    assert {one["result"] for one in last["checks"] if one["queue"] == "a"} == {"ok"}
    assert held.forgotten == {f"{spec.submission}-1" for spec in held.specs}


def test_a_test_job_is_submitted_as_a_pilot_is_and_carries_no_secret(tested, held):
    held.gate.set()
    over(tested, begin(tested, "Here/one/a")["test"])
    first, second = held.specs
    assert (first.queue, first.count, first.program) == (("Here", "one", "a"), 1, b"zipapp")
    assert (first.cores, first.memory_mb, first.wall_seconds) == (4, 3_000, 3_600)
    assert first.options == ("--usual", "--own", "a word")
    assert first.submission.startswith("test_")
    assert first.submission != second.submission
    assert json.loads(first.pilot_file) == {
        "servers": ["https://lode.example"], "ca_file": "/ca.pem", "python": "python3", "stay_seconds": 0,
        "url_file": "/url",
    }  # fmt: skip
    assert json.loads(second.pilot_file)["stay_seconds"] > 0


def test_no_pilot_is_stored_and_the_trail_names_who_did_it(tested, held):
    held.gate.set()
    over(tested, begin(tested)["test"])
    assert tested.get("/v1/pilots?all=true", "admin")["pilots"] == []
    (entry,) = tested.get("/v1/audit?action=site-tested", "admin")["entries"]
    assert (entry["subject"], entry["by"]) == ("Here", "admin")


def test_a_closed_queue_is_tested_only_by_its_name(tested, held):
    body = {"path": "Here/one", "reason": "disk broken"}
    assert tested.call("POST", "/v1/sites/close", body, token="admin").status == 200
    result, words = rows(begin(tested))["one/a", "submit"]
    assert result == "unknown"
    assert "disk broken; name the queue, and it is tested all the same" in words
    assert held.specs == []
    held.gate.set()
    assert rows(over(tested, begin(tested, "Here/one/a")["test"]))["one/a", "cancel"][0] == "ok"


def test_a_queue_that_no_vo_may_use(tested):
    assert rows(begin(tested, "Others")) == {("x/q", "submit"): ("unknown", "no test job: no VO may use it")}


def test_what_goes_on_is_said_by_queue(tested):
    test = begin(tested)["test"]
    words = "a test job is running (as the test says)"
    while (doing := ask(tested, test)["doing"].get("Here/one/a")) != words:
        assert doing is None or "a test job is" in doing
    assert ask(tested, test)["state"] == "running"


def test_a_stopped_test_cancels_its_jobs(tested, held):
    test = begin(tested)["test"]
    answer = tested.call("DELETE", f"/v1/site-tests/{test}", token="admin")
    assert answer.json["state"] in ("stopping", "stopped")
    assert over(tested, test)["state"] == "stopped"
    assert held.forgotten == held.cancelled == {f"{spec.submission}-1" for spec in held.specs} != set()
    again = tested.call("DELETE", f"/v1/site-tests/{test}", token="admin")
    assert (again.status, again.json["state"]) == (200, "stopped")


def test_a_finished_test_stays_finished(tested, held):
    held.gate.set()
    test = begin(tested)["test"]
    over(tested, test)
    assert tested.call("DELETE", f"/v1/site-tests/{test}", token="admin").json["state"] == "finished"


def test_a_test_whose_client_has_gone_is_stopped(tested, held, ticks):
    test = begin(tested)["test"]
    ticks[0] += site_tests._FORSAKEN_SECONDS + 1.0
    run = tested.side.site_tests._find(test)
    assert run.stopped.wait(PATIENCE)
    assert over(tested, test)["state"] == "stopped"
    assert held.cancelled


def test_a_client_that_asks_keeps_its_test(tested, ticks):
    test = begin(tested)["test"]
    for _ in range(5):
        ticks[0] += site_tests._FORSAKEN_SECONDS - 1.0
        assert ask(tested, test)["state"] == "running"


def test_the_end_of_the_server_cancels_the_jobs(tested, held):
    test = begin(tested)["test"]
    while not held.specs:
        ask(tested, test)
    tested.side.site_tests.close()
    assert held.forgotten == {f"{spec.submission}-1" for spec in held.specs}


def test_a_fault_of_the_program_is_said(tested, held, monkeypatch, caplog):
    monkeypatch.setattr(held, "submit", lambda _: 1 / 0)
    last = over(tested, begin(tested, "Here/one/a")["test"])
    ((result, words),) = rows(last).values()
    assert (last["state"], result) == ("finished", "failed")
    assert "a fault in the program" in words
    deadline = time.monotonic() + 30
    while "ZeroDivisionError" not in caplog.text:  # its thread logs it last
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def test_few_tests_at_once(tested, held):
    for _ in range(site_tests._MOST_RUNNING):
        begin(tested)
    refused = tested.call("POST", "/v1/site-tests", {"path": "Here"}, token="admin")
    assert (refused.status, refused.code) == (503, Unavailable.code)
    held.gate.set()


def test_old_tests_are_forgotten(tested, held, monkeypatch):
    monkeypatch.setattr(site_tests, "_MOST_KEPT", 2)
    first, *_ = [begin(tested, "Here/two")["test"] for _ in range(3)]
    answer = tested.call("GET", f"/v1/site-tests/{first}", token="admin")
    assert (answer.status, answer.code) == (404, "not-found")
    assert len(tested.side.site_tests._tests) == 2


def test_a_large_site_is_not_tested_whole(tested):
    queues = "".join(f"[site.Big.ce.c.queue.q{n}]\nBackend = 'manual'\n" for n in range(25))
    config = load_resources([("big.toml", f"[group.physics]\nvo = 'lab'\n{queues}")])
    tested.side.policy = cast("Policy", tested.policy(config))
    answer = begin(tested, "Big")
    assert (answer["queues"], answer["left_out"], len(answer["checks"])) == (20, 5, 20)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"path": "Nowhere"}, 404), ({"site": "Here", "ce": "nine"}, 404), ({}, 400), ({"path": "Here", "seconds": 0}, 400),
        ({"path": "Here", "seconds": 1e9}, 400), ({"site": "Here", "queue": "a"}, 400),
    ],
)  # fmt: skip
def test_what_cannot_be_tested(tested, body, status):
    assert tested.call("POST", "/v1/site-tests", body, token="admin").status == status


def test_names_apart(tested):
    answer = tested.call("POST", "/v1/site-tests", {"site": "Here", "ce": "two", "queue": "b"}, token="admin")
    assert (answer.json["path"], answer.json["queues"]) == ("Here/two/b", 1)
