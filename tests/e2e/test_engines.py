"""A server whose pilots run on a real batch system, as a site would configure it: what goes well, and what breaks."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.e2e.conftest import wait_until
from tests.kits import arc_kit, gridengine_kit, htcondor_kit, slurm_kit
from tests.kits.sshd import sshd_of_this_session

from lodesman.decide.resources import QueueId
from lodesman.server.config.backends import BackendSection
from lodesman.server.engines.backend import Backend, NativeState
from lodesman.server.main.backends import make_backend
from lodesman.server.store.read.pilots import live_pilots

PATIENCE = 240.0
KILLS = int(os.environ.get("LODE_TEST_KILLS", "4"))
OUTAGE_SECONDS = float(os.environ.get("LODE_TEST_OUTAGE", "30"))


@dataclass(frozen=True)
class Engine:
    """A batch system: its section, the queue's name there, its service script with an action, and a push if it needs one."""

    section: dict[str, Any]
    queue: str
    service: Callable[[str], object]
    push: Callable[[], object] = lambda: None


def slurm(_request: Any) -> Engine:
    """Pilots run as the account of the tests."""
    folder = slurm_kit.slurm_of_this_session()
    section = {"type": "slurm", "environment": slurm_kit.environment(folder)}
    return Engine(section, "pilots", lambda action: slurm_kit.service(action, folder))


def slurm_by_ssh(_request: Any) -> Engine:
    there = sshd_of_this_session()
    where = {
        "host": f"{there.user}@{there.host}:{there.port}".removeprefix("@"),
        "known_hosts": str(there.known_hosts),
        "identity": str(there.identity),
    }
    same = slurm(None)
    return replace(same, section={**same.section, **where})


def gridengine(_request: Any) -> Engine:
    service = gridengine_kit.the_gridengine()
    variables = {name: value for name, value in service.items() if name != gridengine_kit.ACCOUNT}
    section = {"type": "gridengine", "account": service[gridengine_kit.ACCOUNT], "environment": variables}
    return Engine(section, "all.q", gridengine_kit.run_service)


def htcondor(_request: Any) -> Engine:
    folder = htcondor_kit.service()
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "ACCOUNT": "lode"}
    section = {"type": "htcondor", "environment": environment}
    return Engine(section, "default", htcondor_kit.run_service)


def arc(request: Any) -> Engine:
    service = request.getfixturevalue("arc_service")
    files = {
        "ca": service["LODE_TEST_ARC_CA"],
        "certificate": service["LODE_TEST_ARC_CERTIFICATE"],
        "url": service["LODE_TEST_ARC"],
    }
    act = partial(arc_kit.run_service, service)
    return Engine({"type": "arc", **files}, "pilots", act, arc_kit.News(service).push)


@pytest.fixture
def arc_service():
    with arc_kit.started_arc() as found:
        yield found


def engines(*made: Callable[[Any], Engine], thorough: bool = True) -> list[Any]:
    marks = [pytest.mark.engines, *([pytest.mark.thorough] * thorough)]
    return [pytest.param(make, marks=marks) for make in made]


ENGINES = engines(slurm, slurm_by_ssh, gridengine, htcondor, arc)


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param(request)


def start(make_server, engine: Engine, *, total: int = 2, **settings: Any):
    """A server with one queue of this engine, in which so many pilots may be; ann is a user."""
    given = {
        "backend.engine": {"poll_seconds": 1, **engine.section},
        "pilots.python": "python3", "pilots.idle_seconds": 60, "pilots.lease_seconds": 60, **settings,
    }  # fmt: skip
    server = make_server(**given)
    (server.home / "sites.toml").write_text(f"""
[site.Far]
VO = ["lab"]
[site.Far.ce.ce.queue."{engine.queue}"]
Backend = "engine"
MaxTotalJobs = {total}
CPUTime = 1000
WallTime = 3600
[group.physics]
vo = "lab"
""")
    server.start()
    server.user("ann", "physics")
    return server


@pytest.fixture
def server(make_server, engine):
    return start(make_server, engine)


def backend_of(engine: Engine, sockets: Path) -> Backend:
    return make_backend(msgspec.convert(engine.section, BackendSection), sockets)


def job(code: int) -> dict[str, Any]:
    words = ["-c", "echo $LODESMAN_JOB > out.txt; exit $1", "sh", str(code)]
    return {"Executable": "/bin/sh", "Arguments": words, "OutputSandbox": ["out.txt"]}


def pilots_of(server) -> list[dict[str, Any]]:
    return server.get("/v1/pilots?all=true")["pilots"]


@pytest.mark.parametrize(
    "engine",
    [*engines(slurm_by_ssh, gridengine, htcondor, thorough=False), *engines(slurm, arc)],
    indirect=True,
)
def test_jobs_run_on_a_real_batch_system_and_nothing_is_left_there(server, engine):
    first = server.submit(*[job(0)] * 4, job(7))

    def ended():
        engine.push()
        states = [server.get(f"/v1/jobs/{number}", "ann")["state"] for number in range(first, first + 5)]
        return states if set(states) <= {"Done", "Failed"} else None

    assert wait_until(ended, "the jobs", patience=PATIENCE) == ["Done"] * 4 + ["Failed"]

    def host():
        engine.push()
        return pilots_of(server)[-1]["host"]

    assert wait_until(host, "the host of the first pilot", patience=PATIENCE)
    assert {one["backend"] for one in pilots_of(server)} == {"engine"}
    known = {one["stamp"]: one["native_id"] for one in pilots_of(server)}
    assert server.stop() == 0, server.tail()
    backend = backend_of(engine, server.home / "sockets")

    def gone():
        engine.push()
        return {one.state for one in backend.status(known).values()} <= {
            NativeState.ENDED,
            NativeState.UNKNOWN,
        }

    wait_until(gone, "the end of all pilots there", patience=PATIENCE)


# --- what breaks ---------------------------------------------------------------------------------------------


class Rows:
    """The live pilots as they are stored."""

    def __init__(self, server: Any) -> None:
        self._db = server.database.reader()

    def all(self) -> dict[str, str | None]:
        """Stamp -> native id."""
        return {one.stamp: one.native_id for one in live_pilots(self._db)}

    def prepared(self) -> set[str]:
        return {stamp for stamp, native_id in self.all().items() if native_id is None}


def states(server) -> list[str]:
    return [one["state"] for one in server.get("/v1/jobs?all=true&limit=1000")["jobs"]]


def killed_in_submissions(server, engine: Engine, rows: Rows, rng: random.Random) -> int:
    """Kill the server KILLS times while a submission is under way; returns how many jobs were submitted."""
    seen: set[str] = set()
    jobs = 0
    for kills in range(KILLS):

        def under_way(seen: set[str] = seen) -> set[str]:
            nonlocal jobs
            engine.push()
            if not any(rows.all().values()) and set(states(server)) <= {
                "Done"
            }:  # no pilot runs that would take it
                server.submit(job(0))
                jobs += 1
            for _ in range(100):
                if found := rows.prepared() - seen:
                    return found
                threading.Event().wait(0.005)
            return rows.all().keys() - seen  # sent between two looks: the kill comes after it

        seen |= wait_until(under_way, f"submission {kills}", patience=PATIENCE)
        threading.Event().wait(rng.choice((0.0, 0.01, 0.05, 0.2)))  # before the command, in it, or after it
        os.kill(server.pids("background")[0], signal.SIGKILL)
        server.stop(signal.SIGKILL)
        server.start()
    return jobs


def test_a_kill_between_stored_and_submitted_loses_no_pilot_and_sends_none_twice(make_server, engine):
    server = start(make_server, engine, total=40, **{"pilots.idle_seconds": 1})
    backend = backend_of(engine, server.home / "sockets")
    of_others = backend.census().keys()  # the engine has pilots of earlier tests, too
    rows = Rows(server)
    jobs = killed_in_submissions(server, engine, rows, random.Random(11))
    queue = QueueId("Far", "ce", engine.queue)

    def all_known():
        engine.push()
        return not rows.prepared()

    wait_until(all_known, "what became of all submissions", patience=PATIENCE)
    listed = {stamp: native for stamp, native in backend.census().items() if stamp not in of_others}

    def stored():
        engine.push()
        found = {one["stamp"]: one["native_id"] for one in pilots_of(server)}
        return {stamp: found.get(stamp) for stamp in listed} == listed

    wait_until(stored, f"the references of {listed}", patience=PATIENCE)

    def over():
        engine.push()
        return states(server) == ["Done"] * jobs and not rows.all()

    wait_until(over, "the end of all jobs and pilots", patience=PATIENCE)

    def empty():
        engine.push()
        load = backend.loads([queue])[queue]
        return (load.waiting, load.running, load.held) == (0, 0, 0)

    wait_until(empty, "an empty queue", patience=PATIENCE)
    assert {one["attempt"] for one in server.get("/v1/jobs?all=true&limit=1000")["jobs"]} == {1}


@pytest.mark.parametrize("engine", engines(slurm, gridengine, htcondor, arc), indirect=True)
def test_an_engine_that_is_away_under_load(make_server, engine):
    server = start(make_server, engine, total=6, **{"pilots.idle_seconds": 1})
    first = server.submit(*[{**job(0), "Arguments": ["-c", "sleep 4"]}] * 40)
    rows = Rows(server)

    def pilots():
        engine.push()
        return len(rows.all()) == 6 and not rows.prepared()

    # The queue is full: what was seen of it before may be acted on for a while after it went away, too.
    wait_until(pilots, "pilots that wait and run", patience=PATIENCE)
    engine.service("outage")
    try:
        wait_until(
            lambda: faults(server), "a poll that fails", patience=PATIENCE
        )  # the queue of HTCondor hangs
        before = {one["stamp"] for one in pilots_of(server)}
        assert not threading.Event().wait(OUTAGE_SECONDS)
        pilots = pilots_of(server)
        assert {one["stamp"] for one in pilots} == before
        # A submission that was on its way as it went away may have been refused.
        submitted = [one for one in pilots if one["native_id"]]
        assert submitted
        assert not [one for one in submitted if one["state"] in {"Lost", "Aborted"}]
    finally:
        engine.service("start")
    server.wait_for("Done", first, first + 39, patience=PATIENCE)
    assert {one["attempt"] for one in server.get("/v1/jobs?all=true&limit=1000")["jobs"]} == {1}


def faults(server) -> bool:
    """Whether the batch system does not answer, as the server says."""
    failing = server.ask("GET", "/health").json["background"]["failing"]
    return any("engine" in one for one in failing)


@pytest.mark.engines
@pytest.mark.thorough
def test_a_queue_that_accepts_and_never_runs_keeps_its_caps_and_gives_pilots_back(make_server):
    engine = replace(slurm(None), queue="down")
    server = start(
        make_server,
        engine,
        total=3,
        **{"director.maxPilotWaitingHours": 0.002, "director.excessConfirmSeconds": 1},
    )
    server.submit(*[job(0)] * 50)
    backend, queue = backend_of(engine, server.home / "sockets"), QueueId("Far", "ce", engine.queue)
    most = 0

    def given_back():
        nonlocal most
        load = backend.loads([queue])[queue]
        most = max(most, (load.waiting or 0) + (load.running or 0))
        reasons = [one["reason"] for one in pilots_of(server)]
        return sum("maxPilotWaitingHours" in reason for reason in reasons) == 3

    wait_until(given_back, "three pilots that waited too long", patience=PATIENCE)
    assert most == 3
    # The iteration that opens it notes so after the pilots' reasons are stored.
    wait_until(
        lambda: "breaker-opened" in {line.get("action") for line in server.log_lines()},
        "the breaker",
        patience=PATIENCE,
    )
    wait_until(lambda: backend.loads([queue])[queue].waiting == 0, "an empty queue", patience=PATIENCE)
