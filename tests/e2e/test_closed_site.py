"""A site is closed in a running server: its pilots finish and leave, none come; it is opened, and they come (ADR 0025)."""

from __future__ import annotations

from tests.e2e.conftest import wait_until

AT_NORTH = {"Site": "North", "Executable": "/bin/sh"}


def until(flag):
    """A payload that ends when a file is there."""
    return {**AT_NORTH, "Arguments": f"-c 'until [ -e {flag} ]; do sleep 0.05; done'"}


def at_north(server):
    rows = server.get("/v1/pilots?limit=1000")["pilots"]
    return [row for row in rows if row["site"] == "North"]


def decided(server):
    return server.get("/v1/director")["at"] or 0.0


def test_pilots_leave_a_closed_site_and_come_when_it_is_opened(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    flag = server.home / "go on"
    first = server.submit(until(f'"{flag}"'))
    server.wait_for("Running", first)

    body = {"path": "North", "reason": "power cut"}
    assert server.ask("POST", "/v1/sites/close", body, token="ann").status == 403
    done = server.ask("POST", "/v1/sites/close", body, token="admin")
    assert (done.status, done.json["queues"], done.json["drained"] >= 1) == (200, 1, True), done.body
    second = server.submit(AT_NORTH | {"Arguments": "-c true"})
    told = server.get(f"/v1/jobs/{second}/why", token="ann")
    assert (told["verdict"], told["main_reason"]) == ("not now", "closed-by-administrator")
    assert "lode site open North" in told["who"]

    assert server.states(first, first)[first] == "Running"  # what runs goes on
    flag.touch()
    server.wait_for("Done", first)
    wait_until(lambda: not at_north(server), "the pilots to leave")
    for _ in range(2):
        before = decided(server)
        wait_until(lambda at=before: decided(server) > at, "the director to decide")
    assert at_north(server) == []
    assert server.states(second, second)[second] == "Waiting"
    room = server.get("/v1/director")["plan"]["rooms"]["North/cn/q"]
    assert room["room"] == 0

    assert server.ask("POST", "/v1/sites/open", {"site": "North"}, token="admin").status == 200
    server.wait_for("Done", second)
    messages = {line["message"]: line for line in server.log_lines()}
    assert messages["a site was closed"]["closed_by"] == messages["a site was opened"]["opened_by"] == "admin"


def test_a_pilot_that_still_runs_a_job_stays_when_the_site_is_opened(make_server):
    """Its drain is taken back (ADR 0063)."""
    server = make_server().start()
    server.user("ann", "physics")
    flag = server.home / "go on"
    first = server.submit(until(f'"{flag}"'))
    server.wait_for("Running", first)
    assert (
        server.ask("POST", "/v1/sites/close", {"path": "North", "reason": "a fuse"}, token="admin").status
        == 200
    )
    opened = server.ask("POST", "/v1/sites/open", {"site": "North"}, token="admin")
    assert (opened.status, opened.json["staying"] >= 1) == (200, True), opened.body
    pilot = server.get(f"/v1/jobs/{first}")["pilot"]
    assert [row["drain"] for row in at_north(server) if row["id"] == pilot] == [0]
    flag.touch()
    server.wait_for("Done", first)
