"""The program of a test job, as a batch system runs it: alone, in a folder of its own, with its line judged as ever."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.unit.pilot.test_python39 import oldest_python

from lodesman.pilot import probe
from lodesman.server.engines.zipapp import build_zipapp
from lodesman.server.loops.node_report import judge_node, read_report

PATIENCE = 60.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    target = tmp_path_factory.mktemp("probe") / "site-test.pyz"
    build_zipapp(target, module="probe")
    return target


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Key and certificate of 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key"), "-out", str(folder / "cert")],
        check=True, capture_output=True,
    )  # fmt: skip
    return folder


class Health(BaseHTTPRequestHandler):
    """Answers with what the server says of itself, by a clock that is `behind` by so many seconds."""

    def __init__(self, *given, behind=0.0, body=None):
        self.behind, self.body = behind, body
        super().__init__(*given)

    def do_GET(self):
        whole = {"status": "ok", "time": time.time() - self.behind, "path": self.path}
        raw = json.dumps(whole).encode() if self.body is None else self.body
        self.send_response(200)
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        """Nothing."""


@contextmanager
def a_server(tls=None, **given):
    """Its address."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Health, **given))
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tls / "cert", tls / "key")
        http.socket = context.wrap_socket(http.socket, server_side=True)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{http.server_address[1]}"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def command(archive, folder, python=sys.executable, *, named="python3", **wanted):
    folder.mkdir(exist_ok=True)
    file = folder / "pilot.json"
    file.write_text(json.dumps({"python": named, **wanted}))
    return [python, "-I", str(archive), "--file", str(file), "--copy", "1", "--remove", "--notice", "120"]


def run(archive, tmp_path, python=sys.executable, **wanted):
    """Its report, and check -> (result, detail)."""
    folder = tmp_path / "work"
    words = command(archive, folder, python, **wanted)
    done = subprocess.run(words, cwd=folder, capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert not folder.exists()
    assert len(done.stdout.splitlines()) == 1
    report = read_report(done.stdout)
    assert report is not None, done.stdout
    return report, {one.check: (one.result, one.detail) for one in judge_node(report, python="python3")}


@pytest.mark.slow
def test_a_good_node(archive, tmp_path):
    with a_server() as address:
        report, found = run(archive, tmp_path, oldest_python(), servers=[address])
    assert {result for result, _ in found.values()} == {"ok"}
    assert report.host == os.uname().nodename
    assert report.folder == str(tmp_path / "work")
    assert report.free_mb is not None
    assert report.free_mb > 0
    assert report.has_python
    assert "plain HTTP on one machine" in found["server"][1]


@pytest.mark.slow
def test_a_server_by_tls(archive, tmp_path, certificate):
    with a_server(certificate) as address:
        _, found = run(archive, tmp_path, servers=[address], ca_file=str(certificate / "cert"))
        assert found["server"] == ("ok", f"{address} by TLSv1.3")
        _, found = run(archive, tmp_path, servers=[address])
        assert found["server"][0] == "failed"
        assert "its certificate is not trusted" in found["server"][1]
        _, found = run(archive, tmp_path, servers=[address], ca_file=str(tmp_path / "none.pem"))
        assert found["server"][0] == "failed"
        assert "none.pem cannot be used" in found["server"][1]
        assert "Put it there" in found["server"][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://127.0.0.1:1", "does not answer (Connection refused). Let public_url"),
        ("ftp://x", "is unusable"),
        ("https://no-such-host.invalid:1", "does not answer"),
    ],
)
def test_a_server_that_cannot_be_reached(archive, tmp_path, address, words):
    _, found = run(archive, tmp_path, servers=[address])
    assert found["server"][0] == "failed"
    assert words in found["server"][1]
    assert found["clock"] == ("unknown", "no server answered with its time")


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b'{"time": null}', b"", b'"time"'])
def test_another_program_at_the_address(archive, tmp_path, body):
    with a_server(body=body) as address:
        _, found = run(archive, tmp_path, servers=[address])
    assert found["server"][0] == "failed"
    assert "what answers there is not a Lodesman server" in found["server"][1]


@pytest.mark.slow
@pytest.mark.parametrize(("behind", "way"), [(3_600.0, "ahead of"), (-3_600.0, "behind")])
def test_a_clock_that_is_wrong(archive, tmp_path, behind, way):
    with a_server(behind=behind) as address:
        _, found = run(archive, tmp_path, servers=[address])
    assert found["clock"][0] == "failed"
    assert f"3,600 s {way} the server's" in found["clock"][1]


@pytest.mark.slow
def test_each_address_is_asked_once_and_a_file_goes_first(archive, tmp_path):
    with a_server() as address:
        (tmp_path / "url").write_text(address + "\n")
        report, _ = run(archive, tmp_path, servers=["http://127.0.0.1:1"], url_file=str(tmp_path / "url"))
        assert [one.address for one in report.servers] == [address]
        report, _ = run(archive, tmp_path, servers=[address, address], url_file=str(tmp_path / "none"))
        assert [one.address for one in report.servers] == [address]


def test_a_python_that_is_not_there(archive, tmp_path):
    report, _ = run(archive, tmp_path, named="no-such-python")
    assert not report.has_python


def test_a_folder_that_takes_no_files():
    free, fault = probe._try_scratch(Path("/proc"), apart=True)
    assert (free, bool(fault)) == (0, True)
    assert probe._try_scratch(Path("/no/such"), apart=True) == (None, "No such file or directory in /no/such")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_stays_ends_at_an_order_and_removes_its_folder(archive, tmp_path, number):
    folder = tmp_path / "work"
    words = command(archive, folder, stay_seconds=3_600)
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert read_report(process.stdout.readline()) is not None
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0
    assert not folder.exists()
