"""Every number that a pilot says: the largest that is taken moves no sum, limit or use beyond what the server knows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect
from tests.kits.table import hold_all

from lodesman.server.writer.report import most_mb
from lodesman.wire.requests import ClaimBody, HeartbeatBody, JoinBody, LeaveBody, ReportsBody

CORES, LIFE = 4, 10.0
# What a node says of itself is not typed: these are its numbers (`commands.sessions`).
OF_A_NODE = ("cores", "memory_mb", "cores_total", "memory_total_mb", "life_s", "cpu_scaling_factor")


def numbers(of: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
    """The numeric fields below a type, each with the largest value that is decoded."""
    if isinstance(of, inspect.UnionType):
        return {key: value for one in of.types for key, value in numbers(one, path).items()}
    if isinstance(of, inspect.ListType):
        return numbers(of.item_type, path)
    if isinstance(of, inspect.StructType):
        found = [numbers(one.type, (*path, one.encode_name)) for one in of.fields]
        return {key: value for one in found for key, value in one.items()}
    if isinstance(of, (inspect.IntType, inspect.FloatType)):
        most = (1 << 63) - 1 if isinstance(of, inspect.IntType) else 1e308
        return {path: most if of.le is None else of.le}
    return {}


def largest(body: type) -> dict[tuple[str, ...], float]:
    """All numbers of a body but for ids, which must be those of an attempt to mean anything."""
    found = numbers(inspect.type_info(body))
    return {path: most for path, most in found.items() if path[-1] not in ("id", "attempt")}


def with_value(base: dict[str, Any], path: tuple[str, ...], value: float) -> dict[str, Any]:
    """A copy in which this field has the value; what is missing above it is made."""
    name, *rest = path
    return {**base, name: with_value(base.get(name) or {}, tuple(rest), value) if rest else value}


def test_the_numbers_of_pilots_are_these():
    """A new one needs a bound, and a place in a test below."""
    every = {body: {".".join(path) for path in largest(body)} for body in
             (JoinBody, ClaimBody, HeartbeatBody, ReportsBody, LeaveBody)}  # fmt: skip
    assert every == {
        JoinBody: {"protocol", "pools_pass"},
        ClaimBody: {
            "count", "wait_s", "ahead", "resource.cores", "resource.memory_mb", "resource.norm_cpu_seconds",
            "resource.last_end_s",
        },
        HeartbeatBody: {"jobs.cpu_seconds", "jobs.wall_seconds", "jobs.rss_mb"},
        ReportsBody: {
            f"reports.{one}" for one in (
                "exit_code", "signal", "cpu_seconds", "wall_seconds", "max_rss_mb", "started", "ended", "output.size",
            )
        },
        LeaveBody: set(),
    }  # fmt: skip


@pytest.fixture
def pilot(house):
    return house.pilot(node={"cores": CORES})


def held(house, pilot):
    return house.core.sessions[int(pilot.removeprefix("pilot"))]


def test_reports(house, pilot):
    fields = [(path[1:], most) for path, most in largest(ReportsBody).items()]
    fields += [(path, -most) for path, most in fields if path[-1] in ("started", "ended")]
    every = dict(fields)

    def report(said):
        job_id = house.submitted()
        (job,) = house.claim(pilot)
        claimed, house.now = house.now, house.now + LIFE
        body: dict[str, Any] = {"output": {"sha256": "0" * 64, "size": 1}}
        for path, value in said.items():
            body = with_value(body, path, value)
        assert house.report(pilot, job, **body)["accepted"]
        found = house.get(f"/v1/jobs/{job_id}")
        assert 0 <= found["wall_seconds"] <= LIFE
        assert 0 <= found["cpu_seconds"] <= CORES * LIFE * 1.1
        assert found["max_rss_mb"] <= most_mb(held(house, pilot).offer.memory_mb) < 1 << 20
        assert claimed <= (found["started_at"] or claimed) <= found["ended_at"] <= house.now
        assert (found["output_size"], house.get("/v1/me")["inputs"]["outputs"]) == (None, 0)

    hold_all([{path: value} for path, value in fields] + [every], report)


def test_heartbeats(house, pilot):
    house.submitted()
    (job,) = house.claim(pilot)
    house.now += LIFE

    def beat(said):
        one = {"id": job["id"], "attempt": 1, **said}
        assert house.call("POST", "/v1/pilots/heartbeat", {"jobs": [one]}, token=pilot).status == 200
        (used,) = held(house, pilot).usage.values()
        assert used["wall_seconds"] <= LIFE
        assert used["cpu_seconds"] <= CORES * LIFE * 1.1
        assert used["rss_mb"] <= most_mb(held(house, pilot).offer.memory_mb) < 1 << 20

    fields = {path[1]: most for path, most in largest(HeartbeatBody).items()}
    hold_all([{name: most} for name, most in fields.items()] + [fields], beat)


def test_claims(house, pilot):
    """A pilot gets what fits its cores, one to have ready, and nothing ahead before it has ended anything."""
    house.submitted(*[{}] * 40)
    fields = largest(ClaimBody)
    hold: list[int] = []

    def claim(said):
        body = house.claim_body(1)
        for path, value in said.items():
            body = with_value(body, path, value)
        body["wait_s"] = min(body.get("wait_s", 0.0), 0.0)
        answer = house.call("POST", "/v1/pilots/claim", body, token=pilot)
        assert answer.status == 200, answer.body
        hold.extend(job["id"] for job in answer.json["jobs"])
        assert len(hold) <= CORES + 1

    hold_all([fields, *({path: most} for path, most in fields.items())], claim)
    assert len(hold) == CORES + 1


def test_nodes(house):
    """Of what is configured of its queue a node has no more, whatever it says."""
    offers = [house.pilot(node={"cores": CORES}, cores=8, memory_mb=2_000)]
    offers += [
        house.pilot(node={name: most}, cores=8, memory_mb=2_000)
        for name in OF_A_NODE
        for most in (1 << 53, 1e308)
    ]
    for name in offers:
        session = held(house, name)
        whole = session.whole(house.now)
        assert (whole.cores <= 8, whole.memory_mb <= 2_000, whole.norm_cpu_seconds) == (
            True,
            True,
            session.offer.norm_cpu_seconds,
        )


def test_joins(house):
    for path, most in largest(JoinBody).items():
        body = {"join_token": house.prepare_pilot("North"), "node": {"cores": CORES}}
        assert house.call("POST", "/v1/pilots/join", with_value(body, path, most)).status == 200, path
