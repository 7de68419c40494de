"""A server whose pilots run on a real batch system, as a site would configure it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.e2e.conftest import wait_until
from tests.kits import arc_kit, gridengine_kit, htcondor_kit, slurm_kit
from tests.kits.sshd import sshd_of_this_session

from lodesman.batch.backend import NativeState
from lodesman.config.backends import BackendSection
from lodesman.daemon.backends import make_backend

PATIENCE = 240.0


@dataclass(frozen=True)
class Engine:
    """A batch system: its section, the queue's name there, and a push if it needs one."""

    section: dict[str, Any]
    queue: str
    push: Callable[[], object] = lambda: None


def slurm(_request: Any) -> Engine:
    """Pilots run as the account of the tests."""
    environment = slurm_kit.environment(slurm_kit.slurm_of_this_session())
    return Engine({"type": "slurm", "environment": environment}, "pilots")


def slurm_by_ssh(_request: Any) -> Engine:
    there = sshd_of_this_session()
    where = {
        "host": f"{there.user}@{there.host}:{there.port}".removeprefix("@"),
        "known_hosts": str(there.known_hosts),
        "identity": str(there.identity),
    }
    return Engine({**slurm(None).section, **where}, "pilots")


def gridengine(_request: Any) -> Engine:
    service = gridengine_kit.the_gridengine()
    variables = {name: value for name, value in service.items() if name.startswith("SGE_")}
    section = {"type": "gridengine", "account": service[gridengine_kit.ACCOUNT], "environment": variables}
    return Engine(section, "all.q")


def htcondor(_request: Any) -> Engine:
    folder = htcondor_kit.service()
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "ACCOUNT": "lode"}
    return Engine({"type": "htcondor", "environment": environment}, "default")


def arc(request: Any) -> Engine:
    service = request.getfixturevalue("arc_service")
    files = {
        "ca": service["LODE_TEST_ARC_CA"],
        "certificate": service["LODE_TEST_ARC_CERTIFICATE"],
        "url": service["LODE_TEST_ARC"],
    }
    return Engine({"type": "arc", **files}, "pilots", lambda: arc_kit.run_service(service, "refresh"))


@pytest.fixture
def arc_service():
    with arc_kit.started_arc() as found:
        yield found


@pytest.fixture(
    params=[
        pytest.param(make, marks=pytest.mark.engines)
        for make in (slurm, slurm_by_ssh, gridengine, htcondor, arc)
    ]
)
def engine(request):
    return request.param(request)


@pytest.fixture
def server(make_server, engine):
    section = {"poll_seconds": 1, **engine.section}
    settings = {
        "backend.engine": section, "pilots.python": "python3", "pilots.idle_seconds": 60, "pilots.lease_seconds": 60,
    }  # fmt: skip
    server = make_server(**settings)
    (server.home / "sites.toml").write_text(f"""
[site.Far]
VO = ["lab"]
[site.Far.ce.ce.queue."{engine.queue}"]
Backend = "engine"
MaxTotalJobs = 2
CPUTime = 1000
WallTime = 3600
[group.physics]
vo = "lab"
""")
    server.start()
    server.user("ann", "physics")
    return server


def job(code: int) -> dict[str, Any]:
    words = ["-c", "echo $LODESMAN_JOB > out.txt; exit $1", "sh", str(code)]
    return {"Executable": "/bin/sh", "Arguments": words, "OutputSandbox": ["out.txt"]}


def pilots_of(server) -> list[dict[str, Any]]:
    return server.get("/v1/pilots?all=true")["pilots"]


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
    backend = make_backend(msgspec.convert(engine.section, BackendSection), server.home / "sockets")

    def gone():
        engine.push()
        return {one.state for one in backend.status(known).values()} <= {
            NativeState.ENDED,
            NativeState.UNKNOWN,
        }

    wait_until(gone, "the end of all pilots there", patience=PATIENCE)
