"""How a pilot lives and ends: signals, drain, idleness, a server that is away, answers that are lost."""

from __future__ import annotations

import signal
import sys
import time

TRAP = "trap 'echo tidy; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
# So much that it does not travel in the report.
LARGE = "head -c 20000 /dev/urandom"


def test_sigterm_ends_payloads_and_gives_their_jobs_back(fake, start, job):
    pilot = start(cores=2)
    fake.submit(job(1, "sh", "-c", TRAP), job(2, "sh", "-c", STUBBORN))
    fake.until(lambda: {1, 2} <= {entry["id"] for entry in fake.entries() if entry.get("tail") == "ready\n"})
    pilot.terminate()
    assert pilot.end() == 0
    for number in (1, 2):
        end = fake.end_of(number)
        assert (end["state"], end["cause"]) == ("Released", "pilot-shutdown")
    assert fake.end_of(2)["signal"] == 9
    assert fake.outputs == {}
    assert [leave["reason"] for leave in fake.leaves] == ["sigterm"]


def test_after_a_notice_payloads_end_that_do_so_in_time(fake, start, job, gate):
    pilot = start(cores=2, words=("--notice", "300"))
    fake.submit(job(1, "sh", "-c", f"{gate.wait}; true"))
    fake.until(lambda: fake.running(1))
    pilot.process.send_signal(signal.SIGUSR2)
    fake.until(lambda: fake.beats and fake.beats[-1]["state"] == "draining")
    fake.submit(job(2, "true"))
    gate.open()
    assert pilot.end() == 0
    assert fake.end_of(1)["state"] == "Done"
    assert (2, 1) not in fake.ends()
    assert [leave["reason"] for leave in fake.leaves] == ["drained"]


def test_drain_finishes_payloads_and_leaves(fake, start, job, gate):
    pilot = start()
    fake.submit(job(1, "sh", "-c", f"{gate.wait}; true"), job(2, "true"))
    fake.until(lambda: fake.running(1))
    fake.drain = True
    fake.until(lambda: fake.beats and fake.beats[-1]["state"] == "draining")
    gate.open()
    assert pilot.end() == 0
    assert fake.end_of(1)["state"] == "Done"
    assert (2, 1) not in fake.ends()
    assert [leave["reason"] for leave in fake.leaves] == ["drained"]


def test_idle_pilot_leaves(fake, start, job):
    fake.terms["idle_s"] = 0.5
    pilot = start()
    fake.submit(job(1, "true"))
    fake.end_of(1)
    assert pilot.end() == 0
    assert [leave["reason"] for leave in fake.leaves] == ["idle"]


def test_pilot_without_patience_asks_once(fake, start):
    fake.terms["idle_s"] = 0
    pilot = start()
    assert pilot.end() == 0
    assert [leave["reason"] for leave in fake.leaves] == ["idle"]
    assert 1 <= len(fake.claims) <= 3


def test_end_of_the_slot(fake, start, job):
    """With less than half a minute left nothing is asked for at all."""
    pilot = start(life_seconds=20)
    fake.submit(job(1, "true"))
    assert pilot.end() == 0
    assert fake.claims == []
    assert [leave["reason"] for leave in fake.leaves] == ["drained"]


def test_kill_order(fake, start, job):
    start()
    fake.submit(job(1, "sh", "-c", STUBBORN))
    fake.until(lambda: fake.running(1))
    fake.kill = [
        {"id": 1, "attempt": 1, "reason": "the user killed it"},
        {"id": 5, "attempt": 1, "reason": ""},
    ]
    end = fake.end_of(1)
    assert (end["state"], end["cause"], end["message"]) == ("Failed", "killed", "the user killed it")
    assert end["output"] is not None


def test_server_away_payload_goes_on_and_its_result_arrives_once(fake, start, job, tmp_path):
    pilot = start()
    flag = tmp_path / "flag"
    fake.submit(job(1, "sh", "-c", f"while [ ! -e {flag} ]; do sleep 0.02; done; {LARGE}; echo done"))
    fake.until(lambda: fake.running(1))
    fake.stop()
    flag.touch()

    def waits():
        return (pilot.directory / "outbox/1.1.json").exists() and "upload-failed" in pilot.log()

    from_outside(waits)
    assert pilot.process.poll() is None
    fake.start()
    assert fake.end_of(1)["state"] == "Done"
    assert fake.output(1)["std.out"].endswith(b"done\n")
    # The pilot works again, and reports nothing twice.
    fake.submit(job(2, "true"))
    fake.end_of(2)
    assert fake.accepted[1, 1, "Done"] == 1


def from_outside(condition) -> None:
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_lost_claim_answer_is_asked_for_again(fake, start, job):
    fake.lose_answers = 2
    start()
    fake.submit(job(1, "sh", "-c", "echo once"))
    assert fake.end_of(1)["state"] == "Done"
    tokens = [claim["claim_token"] for claim in fake.claims[:3]]
    assert len(set(tokens)) == 1
    fake.until(lambda: len(fake.claims) > 3)
    assert fake.claims[3]["claim_token"] not in tokens


def test_duplicate_claim_answer_runs_once(fake, start, job, tmp_path):
    start()
    count = tmp_path / "count"
    same = job(1, "sh", "-c", f"echo x >> {count}")
    fake.submit(same, same, job(1, "sh", "-c", f"echo again >> {count}", attempt=2), job(2, "true"))
    fake.end_of(1, attempt=2)
    fake.end_of(2)
    assert count.read_text() == "x\nagain\n"
    assert fake.accepted[1, 1, "Done"] == 1


def test_disowned_pilot_kills_and_ends(fake, start, job):
    pilot = start(flush_s=1)
    fake.submit(job(1, "sh", "-c", STUBBORN))
    fake.until(lambda: fake.running(1))
    fake.token = "another"
    assert pilot.end() == 5
    assert fake.leaves == []
    assert not fake.ends()


def test_exclusive_payload_is_stopped_before_the_lease_ends(fake, start, job, gate):
    fake.terms["lease_s"] = 2
    pilot = start(cores=2)
    fake.submit(job(1, "sleep", "60", exclusive=True), job(2, "sh", "-c", f"{gate.wait}; true"))
    fake.until(lambda: fake.running(1) and fake.running(2))
    fake.stop()
    from_outside(lambda: len(pilot.events("payload-ended")) == 1)
    assert pilot.events("payload-ended")[0]["job"] == "1.1"
    fake.start()
    gate.open()
    end = fake.end_of(1)
    assert (end["state"], end["cause"]) == ("Released", "pilot-shutdown")
    assert fake.end_of(2)["state"] == "Done"


def test_results_that_no_server_takes(fake, start, job, gate):
    fake.terms["lease_s"] = 1
    pilot = start()
    fake.submit(job(1, "sh", "-c", f"{LARGE}; {gate.wait}; true"))
    fake.until(lambda: fake.running(1))
    fake.stop()
    gate.open()
    assert pilot.end() == 6
    # Undelivered results stay on disk for a person.
    assert (pilot.directory / "outbox/1.1.json").exists()
    assert (pilot.directory / "outbox/1.1.tar.gz").exists()


def test_refused_output_is_noted_and_the_report_arrives(fake, start, job):
    fake.refuse_output = 413
    start()
    fake.submit(job(1, "sh", "-c", LARGE))
    end = fake.end_of(1)
    assert (end["state"], end["cause"], end["output"]["size"] > 8_192) == ("Failed", "output-limit", True)


def test_output_in_upload_is_reported_with_heartbeats(fake, start, job):
    fake.refuse_output = 503
    start()
    fake.submit(job(1, "sh", "-c", LARGE))
    entry = {"id": 1, "attempt": 1, "state": "completing"}
    fake.until(lambda: fake.entries().count(entry) > 1)
    assert not fake.ends()
    fake.refuse_output = 0
    assert fake.end_of(1)["state"] == "Done"
    assert set(fake.output(1)) == {"std.out", "std.err"}


def test_join_refused_and_bad_files(fake, start, tmp_path):
    pilot = start(join_token="wrong")
    assert pilot.end() == 3
    assert "wrong" not in pilot.log()
    fake.stop()
    lonely = start(join_patience_s=0.2)
    assert lonely.end() == 4
    assert (
        f"No server accepted this pilot in 0 s: http://127.0.0.1:{fake.port} does not answer" in lonely.log()
    )
    bad = start(cpu_scaling_factor=0)
    assert bad.end() == 2


def test_join_describes_the_node(fake, start):
    start(cores=3, memory_mb=1234, platform="x86_64-test1")
    fake.until(lambda: fake.claims)
    join = fake.joins[0]
    assert join["protocol"] == 1
    assert join["nonce"]
    node = join["node"]
    assert (node["cores"], node["memory_mb"], node["platform"]) == (3, 1234, "x86_64-test1")
    assert fake.claims[0]["resource"] == {
        "cores": 3,
        "memory_mb": 1234,
        "norm_cpu_seconds": 2**31 - 1,
        "last_end_s": 0.0,
    }


def test_two_hundred_short_jobs(fake, start, job):
    """None is lost, none runs twice, on a slot with several at once."""
    start(cores=4)
    fake.submit(*[job(number, "sh", "-c", "echo $JOBID") for number in range(1, 201)])
    fake.until(lambda: len(fake.ends()) == 200)
    assert {fake.output(number)["std.out"] for number in range(1, 201)} == {
        f"{number}\n".encode() for number in range(1, 201)
    }
    assert all(count == 1 for (*_, state), count in fake.accepted.items() if state == "Done")


def test_memory_shared_between_processes_counts_once(fake, start, job, tmp_path):
    """Six processes that share 100 MB hold about 100 MB, not 600."""
    start()
    seen, forked = tmp_path / "seen", tmp_path / "forked"
    forked.mkdir()
    script = (
        "import os, sys, time\n"
        "x = bytearray(100 << 20); x[::4096] = b'1' * len(x[::4096])\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0: break\n"
        "open(f'{sys.argv[2]}/{os.getpid()}', 'w').close()\n"
        "while not os.path.exists(sys.argv[1]): time.sleep(0.01)\n"
    )
    fake.submit(job(1, sys.executable, "-c", script, str(seen), str(forked), memory_mb=300))
    from_outside(lambda: len(list(forked.iterdir())) == 6)
    told = len(fake.entries())
    # Payloads are not looked at at once; two heartbeats later their figures were measured while all six ran.
    fake.until(lambda: len([one for one in fake.entries()[told:] if one["rss_mb"]]) >= 3)
    seen.touch()
    end = fake.end_of(1)
    assert end["state"] == "Done", end
    # RSS, which counts shared pages for each process, was over the limit: it was noticed and measured precisely.
    assert end["max_rss_mb"] > 300
