"""The server as it is run: two processes, local pilots, real jobs, over HTTP."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import socket
import ssl
import subprocess
import tarfile
import threading
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.conftest import PATIENCE, wait_until
from tests.kits.leases_in_hand import LEASE_SECONDS, SilenceInHand


def sh(script, **more):
    return {"Executable": "/bin/sh", "Arguments": ["-c", script], **more}


def unpacked(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive if one.isfile()}


# --- real jobs ------------------------------------------------------------------------------------------


@pytest.mark.stores
def test_a_job_from_its_input_file_to_its_output(server):
    content = b"three\nblind\nmice\n"
    sha = hashlib.sha256(content).hexdigest()
    uploaded = server.ask("POST", "/v1/sandboxes", content, token="ann", X_Sha256=sha)
    assert uploaded.json == {"sha256": sha, "size": len(content)}
    # A payload that ends at once is reported with its end: none says that it ran.
    seen = server.home / "seen"
    script = f"wc -l < mice.txt; echo warn >&2; date > when; until [ -e {seen} ]; do sleep 0.05; done"
    job = server.submit(
        sh(script, InputSandbox=["mice.txt"], OutputSandbox=["when"]),
        sandboxes={"mice.txt": {"sha256": sha, "size": len(content)}},
    )
    server.wait_for("Running", job)
    seen.touch()
    server.wait_for("Done", job)
    found = server.get(f"/v1/jobs/{job}", "ann")
    assert (found["exit_code"], found["attempt"], found["cause"]) == (0, 1, "ok")
    assert [event["event"] for event in found["events"]] == ["Waiting", "Matched", "Running", "Done"]
    output = server.ask("GET", f"/v1/jobs/{job}/output", token="ann")
    assert output.headers["x-sha256"] == hashlib.sha256(output.body).hexdigest()
    files = unpacked(output.body)
    assert (files["std.out"].strip(), files["std.err"]) == (b"3", b"warn\n")
    assert files["when"]
    logs = server.get(f"/v1/jobs/{job}/logs", "ann")
    assert (logs["live"], "warn" in logs["tail"]) == (False, True)
    assert server.ask("GET", f"/v1/jobs/{job}/output", token="bob").status == 404


@pytest.mark.stores
def test_an_array_on_two_sites(server):
    first = server.submit(sh("echo $JOBID %s", Parameters=12))
    server.wait_for("Done", first, first + 11)
    rows = server.get(f"/v1/jobs?first={first}&last={first + 11}", "ann")["jobs"]
    assert {row["site"] for row in rows} <= {"North", "South"}
    one = unpacked(server.ask("GET", f"/v1/jobs/{first + 4}/output", token="ann").body)
    assert one["std.out"].split()[0] == str(first + 4).encode()


def test_failures_have_a_reason(server):
    first = server.submit(sh("exit 7"), sh("kill -9 $$"), {"Executable": "no-such-program"})
    server.wait_for("Failed", first, first + 2)
    reasons = [server.get(f"/v1/jobs/{job}")["reason"] for job in range(first, first + 3)]
    assert "exit code 7" in reasons[0]
    assert "signal 9" in reasons[1]
    assert "no-such-program" in reasons[2]


def test_a_running_job_is_killed_with_all_it_started(server):
    job = server.submit(sh("setsid sleep 97531 & sleep 97531"))
    server.wait_for("Running", job)
    answer = server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job, job]]}, token="ann")
    assert answer.json["changed"] == 1
    assert server.states(job, job) == {job: "Killed"}
    wait_until(
        lambda: server.get(f"/v1/jobs/{job}")["attempts"][0]["ended_at"] is not None, "the end of the attempt"
    )
    assert [command for command in server.processes().values() if "97531" in command] == []


def test_what_a_running_job_prints_is_seen_live(server):
    job = server.submit(sh("echo step one; read never < /dev/zero & sleep 100"))

    def seen():
        reply = server.ask("GET", f"/v1/jobs/{job}/logs", token="ann")
        return reply.status == 200 and reply.json["live"] and "step one" in reply.json["tail"]

    wait_until(seen, "the first words of the job")
    server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job, job]]}, token="ann")


def test_two_groups_and_how_things_stand(server):
    first = server.submit(*[sh("true")] * 4, token="ann")
    second = server.submit(*[sh("true")] * 4, token="bob")
    server.wait_for("Done", first, first + 3)
    server.wait_for("Done", second, second + 3)
    told = server.get("/v1/usage")
    assert {row["group"] for row in told["groups"]} == {"physics", "bio"}
    assert told["attempts"]["same_number_twice"] == 0
    assert {row["site"] for row in told["sites"]} <= {"North", "South"}


def metric_names(server) -> set[str]:
    text = server.ask("GET", "/metrics", token="admin").body.decode()
    return {one.name for family in text_string_to_metric_families(text) for one in family.samples}


def test_metrics_of_a_working_server(server):
    server.wait_for("Done", server.submit(sh("true")))
    counted = {"lodesman_jobs", "lodesman_pilots"}  # by the background process, now and then
    wait_until(lambda: counted <= metric_names(server), "the first count of jobs and pilots")
    assert {"lodesman_commits_total", "lodesman_claimed_jobs_total"} <= metric_names(server)


# --- pilots that are this test --------------------------------------------------------------------------


def bench(**more):
    """A job that only a pilot of the test can take."""
    return {"Site": "Bench", **more}


def commands(server):
    return server.get("/v1/service/metrics", "service")["commands_total"]


class Waiting:
    """A claim that waits in a thread."""

    def __init__(self, pilot, count=1):
        self.jobs = []
        self.done = threading.Event()
        before = commands(pilot.server)
        self._thread = threading.Thread(target=self._run, args=(pilot, count), daemon=True)
        self._thread.start()
        wait_until(lambda: commands(pilot.server) > before, "the claim's arrival")

    def _run(self, pilot, count):
        self.jobs = pilot.claim(count, wait=45.0)
        self.done.set()

    def result(self):
        assert self.done.wait(PATIENCE)
        self._thread.join(PATIENCE)
        return self.jobs


def test_a_waiting_claim_is_answered_by_the_very_commit_of_the_submission(server):
    """Within milliseconds means: no timer and no polling is between the two."""
    pilot = server.fake_pilot()
    for _ in range(5):
        waiting = Waiting(pilot)
        assert not waiting.done.is_set()
        job = server.submit(bench())
        (got,) = waiting.result()
        found = server.get(f"/v1/jobs/{job}")
        assert (got["id"], found["state"]) == (job, "Matched")
        assert found["claimed_at"] == found["submitted_at"]
        pilot.report(got)
    pilot.ask("leave", {"reason": "idle"})


def test_pilots_that_wait_share_what_comes(server):
    pilots = [server.fake_pilot() for _ in range(4)]
    waiting = [Waiting(pilot) for pilot in pilots]
    first = server.submit(*[bench()] * 4)
    got = sorted(job["id"] for one in waiting for job in one.result())
    assert got == list(range(first, first + 4))
    for pilot in pilots:
        pilot.ask("leave", {"reason": "idle"})
    assert set(server.states(first, first + 3).values()) == {"Waiting"}
    server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[first, first + 3]]}, token="ann")


@pytest.mark.stores
def test_pilots_that_fall_silent_lose_their_jobs_and_tokens_but_not_what_they_had_finished(
    make_server, tmp_path, monkeypatch
):
    silence = SilenceInHand(tmp_path, monkeypatch)
    server = make_server(**{"pilots.lease_seconds": LEASE_SECONDS}).start()
    server.user("ann", "physics")
    gone, late = server.fake_pilot(), server.fake_pilot()
    first = server.submit(*[bench()] * 2)
    (lost,), (finished,) = gone.claim(), late.claim()
    silence.last(2 * LEASE_SECONDS)
    server.wait_for("Waiting", first, first + 1)
    assert [one.ask("heartbeat", {}).status for one in (gone, late)] == [401, 401]

    content = b"worth the time that it took"
    sha = hashlib.sha256(content).hexdigest()
    job = finished["id"]
    path = f"/v1/jobs/{job}/attempts/1/output"
    assert server.ask("PUT", path, content, token=late.token, X_Sha256=sha).status == 200
    told = late.report(finished, output={"sha256": sha, "size": len(content)})
    assert (told["accepted"], told["reason"]) == (True, "late")
    assert server.states(job, job)[job] == "Done"
    assert server.ask("GET", f"/v1/jobs/{job}/output", token="ann").body == content

    other = server.fake_pilot()
    (again,) = other.claim()
    assert (again["id"], again["attempt"]) == (lost["id"], lost["attempt"] + 1)
    causes = [one["cause"] for one in server.get(f"/v1/jobs/{lost['id']}")["attempts"]]
    assert causes[0] == "lease-expired"
    other.report(again)
    assert server.states(lost["id"], lost["id"]) == {lost["id"]: "Done"}


@pytest.mark.stores
def test_a_large_output_goes_through_while_a_slow_client_takes_it(server):
    pilot = server.fake_pilot()
    job = server.submit(bench())
    (claimed,) = pilot.claim()
    content = os.urandom(1 << 20) * 30
    sha = hashlib.sha256(content).hexdigest()
    path = f"/v1/jobs/{job}/attempts/1/output"
    assert server.ask("PUT", path, content, token=pilot.token, X_Sha256=sha).status == 200
    pilot.report(claimed, output={"sha256": sha, "size": len(content)})
    slow = server.connect()
    slow.request("GET", f"/v1/jobs/{job}/output", headers={"Authorization": f"Bearer {server.tokens['ann']}"})
    response = slow.getresponse()
    got = response.read(100_000)
    for _ in range(20):  # others do not wait for it
        assert server.ask("GET", "/v1/me", token="ann").status == 200
        server.submit(bench(), token="bob")
    assert hashlib.sha256(got + response.read()).hexdigest() == sha
    slow.close()
    assert server.ask("GET", f"/v1/jobs/{job}/output", token="ann").body == content
    pilot.ask("leave", {"reason": "idle"})
    server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[job + 1, job + 20]]}, token="bob")


# --- two processes --------------------------------------------------------------------------------------


@pytest.mark.stores
def test_without_its_background_process_the_server_takes_jobs_and_gets_a_new_one(server):
    running = server.submit(sh("sleep 3; echo survived"))
    server.wait_for("Running", running)
    pilot = server.fake_pilot()
    (background,) = server.pids("background")
    os.kill(background, signal.SIGKILL)
    waiting = Waiting(pilot)
    job = server.submit(bench())
    assert waiting.result()[0]["id"] == job
    assert server.ask("GET", "/health").status == 200
    statuses = set()

    def back():
        reply = server.ask("GET", "/v1/me", token="ann")
        statuses.add(reply.status)
        return reply.status == 200

    wait_until(back, "the new background process")
    assert statuses <= {200, 503}
    assert server.pids("background") != [background]
    server.wait_for("Done", running)
    assert server.get(f"/v1/jobs/{running}")["attempt"] == 1
    after = server.submit(sh("true"))
    server.wait_for("Done", after)
    assert any("started again" in line["message"] for line in server.log_lines())
    pilot.ask("leave", {"reason": "idle"})


def test_the_background_process_ends_with_the_hot_one(make_server):
    server = make_server().start()
    (background,) = server.pids("background")
    server.process.kill()
    server.process.wait()
    wait_until(lambda: background not in server.processes(), "the end of the background process")


def test_a_hang_up_is_heard_and_ends_no_server_that_has_no_terminal(make_server):
    server = make_server().start()
    server.process.send_signal(signal.SIGHUP)
    wait_until(
        lambda: [one for one in server.log_lines() if "SIGHUP" in one["message"]], "word of the signal"
    )
    assert server.ask("GET", "/health").json["status"] == "ok"
    assert server.stop() == 0, server.tail()


@pytest.mark.stores
def test_a_stop_ends_everything_and_nothing_is_lost(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    first = server.submit(*[sh("sleep 30")] * 3)
    wait_until(lambda: "Running" in server.states(first, first + 2).values(), "a running job")
    assert server.stop() == 0
    wait_until(lambda: not server.processes(), "the end of all processes")
    server.start()
    assert set(server.states(first, first + 2)) == {first, first + 1, first + 2}
    assert server.ask("GET", "/v1/me", token="ann").status == 200  # its token is still good
    server.ask("POST", "/v1/jobs/control", {"action": "kill", "ranges": [[first, first + 2]]}, token="ann")
    assert server.stop(signal.SIGINT) == 0
    wait_until(lambda: not server.processes(), "the end of all processes")
    assert [line for line in server.log_lines() if line["level"] == "critical"] == []


def test_two_servers_do_not_share_a_data_directory(make_server):
    server = make_server().start()
    second = make_server(**{"server.data": str(server.data)})
    process = second.spawn()
    assert process.wait(PATIENCE) == 1
    assert "Another server already owns" in second.log.read_text()
    assert server.ask("GET", "/health").status == 200


def test_a_port_that_is_taken(make_server):
    server = make_server().start()
    second = make_server(**{"server.port": server.port})
    process = second.spawn()
    assert process.wait(PATIENCE) != 0
    assert f"Port {server.port} of 127.0.0.1 is in use" in second.log.read_text()
    wait_until(lambda: not second.processes(), "the end of its processes")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"server.host": "0.0.0.0"}, "TLS"),
        ({"server.port": 70_000}, "port"),
        ({"pilots.idle_seconds": -1}, "idle_seconds"),
        ({"resources.files": ["/nowhere/sites.toml"]}, "/nowhere/sites.toml"),
        ({"server.colour": "red"}, "colour"),
    ],
)
def test_a_server_that_is_configured_wrongly_says_what_and_ends(make_server, settings, word):
    server = make_server(**settings)
    assert server.spawn().wait(PATIENCE) == 1
    (line,) = server.log_lines()
    assert word in line["message"]
    assert "trace" not in line
    assert not (server.data / "lode.db").exists()


def test_a_changed_configuration_is_taken_in_by_both_processes(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    before = (server.home / "sites.toml").read_text()
    refused = server.ask(
        "POST", "/v1/jobs", {"jobs": [{"Executable": "x", "Site": "New", "CPUTime": 5}]}, token="ann"
    )
    assert refused.status == 400
    new = '[site.New]\nVO = ["lab"]\n[site.New.ce.cx]\nBackend = "manual"\n[site.New.ce.cx.queue.q]\nCPUTime = 100\n'
    server.configure(before + new)

    def names():
        return {row["site"] for row in server.get("/v1/sites", "ann")["sites"]}

    wait_until(lambda: "New" in names(), "the new site in the background process")
    body = {"jobs": [{"Executable": "x", "Site": "New", "CPUTime": 5}]}
    wait_until(
        lambda: server.ask("POST", "/v1/jobs", body, token="ann").status == 200, "the new site in the hot one"
    )
    server.configure("[site.New\n")
    wait_until(lambda: "sites.toml" in server.log.read_text(), "a line in the log about the broken file")
    assert "New" in names()
    assert server.ask("POST", "/v1/jobs", body, token="ann").status == 200


def test_secrets_are_readable_by_their_owner_only(server):
    for path in (server.data, server.data / "run", server.data / "sandboxes"):
        assert path.stat().st_mode & 0o077 == 0
    tokens = (server.data / "admin.token", server.data / "run" / "service.token")
    for path in (*tokens, *server.data.glob("lode.*")):
        assert path.stat().st_mode & 0o077 == 0
    log = server.log.read_text()
    assert not any(token in log for token in server.tokens.values())


def handshake(port, context):
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
    ):
        return tls.version()


def test_with_a_certificate_everything_speaks_tls(make_server, tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    apart = {"local.run_as": "nobody" if os.geteuid() == 0 else "", "local.trust_jobs": True}
    server = make_server(**{"server.tls_certificate": str(certificate), "server.tls_key": str(key)}, **apart)
    context = ssl.create_default_context(cafile=str(certificate))
    server.tls = context
    server.start()
    server.user("ann", "physics")
    job = server.submit(sh("echo safe"))
    server.wait_for("Done", job)
    with pytest.raises(OSError, match=r"."):
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=PATIENCE)
    assert handshake(server.port, context) == "TLSv1.3"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(server.port, context) == "TLSv1.2"
    for weak in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES256-SHA384"):
        context.set_ciphers(weak)
        with pytest.raises(ssl.SSLError):
            handshake(server.port, context)
    assert server.stop() == 0
