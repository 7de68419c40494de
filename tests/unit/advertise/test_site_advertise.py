"""The program that advertises a site: its ad, its token, its exit codes, and what it sends to whom."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from lodesman.decide.broker.ad import read_site_ad
from lodesman.decide.broker.gate import SiteGate, SiteMatch
from lodesman.languages.classad import evaluate, parse_ad, write_expression
from lodesman.server.engines.zipapp import build_zipapp
from lodesman.site.advertise.__main__ import main, parser, quote_text, write_site_ad
from lodesman.site.advertise.counts import JobCounts
from lodesman.user.cli import main as lode

NOW = 1_795_000_000.25
COUNTS = JobCounts(40, 3, 7, ["abc-2", "abc-1"])
TOKEN = "a-token-of-a-site"
PRINTS = [sys.executable, "-c", "print('running=3 submitting=1 pending=2')"]


def ad_of(*words, counts=COUNTS):
    options = parser("x", {}).parse_args(["--site", "North", "--from", "slurm", *words])
    text = write_site_ad(options, counts, NOW)
    return read_site_ad(text, site="North", now=NOW), text


def test_an_ad_says_all_that_the_seed_has():
    ad, text = ad_of("--max-jobs", "100", "--max-submitting", "10")
    assert text.startswith('Name = "North"\nUpdateSequenceNumber = 1795000000250\nIncarnation = "')
    names = ("MaxJobs", "MaxSubmittingJobs", "CurrentJobs", "CurrentSubmittingJobs", "CurrentPendingJobs", "CurMatches",
             "JobsMatchedSinceLastAdvertisement", "StationName", "ClassAdLifetime")  # fmt: skip
    values = [evaluate(name, ad.ad) for name in names]
    assert values == [100, 10, 40, 3, 7, 40, 0, "North", 900]
    assert write_expression(ad.ad.node("Requirements")) == (
        "CurMatches < MaxJobs && JobsMatchedSinceLastAdvertisement + CurrentSubmittingJobs < MaxSubmittingJobs"
    )
    assert (ad.stamps, ad.stations, ad.lifetime_s) == ({"abc-1", "abc-2"}, {"north"}, 900)


@pytest.mark.parametrize(
    ("words", "clauses"),
    [
        ((), "true"),
        (("--max-jobs", "5"), "CurMatches < MaxJobs"),
        (("--max-pending", "5"), "JobsMatchedSinceLastAdvertisement + CurrentPendingJobs < MaxPendingJobs"),
        (("--max-jobs", "5", "--set", "Requirements=CurrentPendingJobs < 9"), "CurrentPendingJobs < 9"),
    ],
)
def test_requirements_are_those_of_the_limits_that_are_given(words, clauses):
    ad, _ = ad_of(*words)
    assert write_expression(ad.ad.node("Requirements")) == clauses


def test_pending_jobs_are_the_indicator_that_the_seed_asks_for():
    ad, _ = ad_of("--max-pending", "10")
    matches = [SiteMatch(stamp=f"new-{n}", matched_at=NOW) for n in range(2)]
    assert SiteGate("North", ad, matches=matches, now=NOW).room(100) == 1
    ad, _ = ad_of("--max-pending", "7")
    assert SiteGate("North", ad, now=NOW).shut == (
        "JobsMatchedSinceLastAdvertisement + CurrentPendingJobs < MaxPendingJobs is false: "
        "JobsMatchedSinceLastAdvertisement = 0, CurrentPendingJobs = 7, MaxPendingJobs = 7"
    )


def test_any_attribute_may_be_set_or_replaced():
    ad, _ = ad_of("--set", 'Url = "gsiftp://ce7"', "--set", "maxjobs=2 * 50", "--set", "CurrentJobs=0", "--lifetime", "60",
                  "--station", "d0", "--station", "D1", "--incarnation", 'a "b" \\c')  # fmt: skip
    values = [evaluate(name, ad.ad) for name in ("Url", "MaxJobs", "CurrentJobs")]
    assert values == ["gsiftp://ce7", 100, 0]
    assert (ad.stations, ad.lifetime_s, ad.incarnation) == ({"d0", "d1"}, 60, 'a "b" \\c')


def test_what_is_not_known_is_not_published():
    ad, text = ad_of(counts=JobCounts(3, None, None))
    assert "CurrentSubmittingJobs" not in text
    assert "CurrentPendingJobs" not in text
    assert ad.stamps == frozenset()


def test_an_ad_of_a_site_with_many_pilots_is_one_that_the_server_reads():
    ad, text = ad_of(counts=JobCounts(9_000, 0, 0, [f"{'a' * 48}-{n}" for n in range(9_000, 0, -1)]))
    assert len(text) < 1 << 16
    assert len(ad.stamps) == 1_000
    assert f"{'a' * 48}-9000" in ad.stamps


def test_texts_are_quoted_as_classads_have_them():
    for text in ("", "plain", 'a "b"', "back\\slash", "end\\", "ü"):
        assert evaluate("A", parse_ad(f"A = {quote_text(text)}")) == text


# --- the command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def server():
    """What was asked of it; it answers what the test says."""

    class Server(HTTPServer):
        asked: list = []  # noqa: RUF012 - one in each test
        answer = (200, {"site": "North", "sequence": 7, "shut": "", "received_at": 0.0, "good_until": 0.0})

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            found.asked.append((self.path, self.headers["Authorization"], json.loads(raw)))
            status, body = found.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_):
            """Nothing."""

    found = Server(("127.0.0.1", 0), Answers)
    found.asked = []
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def advertise(*words, command=PRINTS, **environ):
    return main(["--site", "North", "--from", "command", *words, "--", *command], environ=environ)


def url(server):
    return f"http://127.0.0.1:{server.server_port}"


def test_an_ad_is_sent_with_the_token_of_a_file(server, tmp_path, capsys):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    assert advertise("--once", "--server", url(server), "--token-file", str(file)) == 0
    ((path, token, body),) = server.asked
    assert (path, token) == ("/v1/sites/ad", f"Bearer {TOKEN}")
    ad = read_site_ad(body["ad"], site="North", now=0.0)
    assert [evaluate(f"Current{kind}Jobs", ad.ad) for kind in ("", "Submitting", "Pending")] == [3, 1, 2]
    assert capsys.readouterr().out == "lode: ad 7 of North is published; the gate is open.\n"
    server.answer = (200, {**server.answer[1], "shut": "its ad is too old"})
    assert advertise(LODE_SERVER=url(server), LODE_TOKEN=TOKEN) == 0
    assert (
        capsys.readouterr().out == "lode: ad 7 of North is published; the gate is shut: its ad is too old.\n"
    )


def test_print_sends_nothing_and_needs_no_token(server, capsys):
    assert advertise("--print", "--server", url(server)) == 0
    assert 'Name = "North"\n' in capsys.readouterr().out
    assert server.asked == []


def test_a_count_that_failed_is_said_and_nothing_is_published(server, capsys):
    for command in (["false"], ["/no/such"], ["echo", "pending=3"]):
        assert advertise("--server", url(server), command=command, LODE_TOKEN=TOKEN) == 7
        assert "could not be counted, so nothing is published" in capsys.readouterr().err
    assert advertise("--max-pending", "3", "--print", command=["echo", "running=3"]) == 7
    assert server.asked == []


@pytest.mark.parametrize(("status", "code", "exit_code"), [(401, "unauthorized", 4), (403, "forbidden", 4),
                                                           (409, "conflict", 1), (400, "syntax", 1)])  # fmt: skip
def test_a_refusal_is_said(server, capsys, status, code, exit_code):
    server.answer = (status, {"error": {"code": code, "message": "No.", "hint": "Do else.", "data": {}}})
    assert advertise(LODE_SERVER=url(server), LODE_TOKEN=TOKEN) == exit_code
    assert capsys.readouterr().err == "lode: No. Do else.\n"


def test_a_server_that_does_not_answer(server, capsys):
    address = url(server)
    assert advertise(LODE_SERVER="http://127.0.0.1:9", LODE_TOKEN=TOKEN) == 5
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert advertise(LODE_SERVER=f"http://127.0.0.1:9, {address}", LODE_TOKEN=TOKEN) == 0


def test_a_token_never_travels_in_the_clear(capsys):
    assert advertise(LODE_SERVER="http://lode.example.org", LODE_TOKEN=TOKEN) == 1
    assert "in the clear" in capsys.readouterr().err


def test_tokens_that_are_no_good(tmp_path, capsys):
    file = tmp_path / "token"
    given = {"LODE_SERVER": "http://127.0.0.1:9", "LODE_TOKEN_FILE": str(file)}
    assert advertise(**given) == 4
    file.write_text(TOKEN)
    file.chmod(0o644)
    assert advertise(**given) == 4
    file.chmod(0o600)
    file.write_text("two words")
    assert advertise(**given) == 4
    assert advertise(LODE_SERVER="http://127.0.0.1:9") == 4
    said = capsys.readouterr().err.splitlines()
    assert [
        word in line
        for word, line in zip(("No such file", "chmod 600", "no token", "no token"), said, strict=True)
    ] == [True] * 4


@pytest.mark.parametrize(
    "words",
    [
        [], ["--site", "X"], ["--from", "slurm"], ["--site", "X", "--from", "pbs"],
        ["--site", "X", "--from", "command", "--print"], ["--site", "X", "--from", "arc", "--print"],
        ["--site", "X", "--from", "slurm", "--print", "--max-jobs", "-1"],
        ["--site", "X", "--from", "slurm", "--print", "--max-jobs", "many"],
        ["--site", "X", "--from", "slurm", "--print", "--set", "7=1"],
        ["--site", "X", "--from", "slurm", "--print", "--set", "A"],
        ["--site", "X", "--from", "slurm", "--print", "--set", "A=1\nB=2"],
        ["--site", "X", "--from", "slurm", "--print", "--every", "0"],
        ["--site", "X", "--from", "slurm", "--token", "secret"],
        ["--site", "X", "--from", "slurm"],
    ],
)  # fmt: skip
def test_wrong_usage(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words, environ={})
    assert end.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_every_is_again_and_again(server, monkeypatch, capsys):
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        server.answer = (409, {"error": {"code": "conflict", "message": "Old.", "hint": "", "data": {}}})
        if len(waits) == 3:
            raise KeyboardInterrupt

    clock = SimpleNamespace(time=time.time, sleep=sleep)
    monkeypatch.setattr("lodesman.site.advertise.__main__.time", clock)
    with pytest.raises(KeyboardInterrupt):
        advertise("--every", "300", LODE_SERVER=url(server), LODE_TOKEN=TOKEN)
    assert len(server.asked) == 3  # what was refused did not end it
    assert all(290 < one <= 300 for one in waits)
    numbers = [read_site_ad(body["ad"], site="North", now=0.0).sequence for _, _, body in server.asked]
    assert numbers == sorted(numbers)


@pytest.mark.slow
def test_the_program_is_one_file_that_can_be_copied(tmp_path):
    first, second = tmp_path / "one", tmp_path / "two"
    build_zipapp(first, "advertise")
    for words in ([str(first), "--write", str(second)], [str(second), "--help"]):
        done = subprocess.run(
            [sys.executable, "-I", *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    assert second.read_bytes() == first.read_bytes()
    assert second.stat().st_mode & 0o777 == 0o755
    assert "--max-pending" in done.stdout


def test_lode_has_it_too(tmp_path, capsys, monkeypatch):
    for name in ("LODE_SERVER", "LODE_TOKEN", "LODE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    words = ["--site", "North", "--from", "command"]
    assert lode(["site", "advertise", *words, "--print", "--", "echo", "running=3"]) == 0
    assert "CurrentJobs = 3\n" in capsys.readouterr().out
    assert lode(["site", "advertise", "--write", str(tmp_path / "program")]) == 0
    build_zipapp(tmp_path / "other", "advertise")
    assert (tmp_path / "program").read_bytes() == (tmp_path / "other").read_bytes()
    assert (
        lode(["--server", "http://127.0.0.1:9", "site", "advertise", *words, "--", "echo", "running=3"]) == 4
    )
    with pytest.raises(SystemExit):
        lode(["site", "advertise", "--help"])
    assert "lode site advertise --site LCG.North" in capsys.readouterr().out
