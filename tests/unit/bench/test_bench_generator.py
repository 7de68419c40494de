"""What wrk prints, encoded requests, and the raw connection against a server that answers in pieces."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from bench import generator
from bench.generator import Connection, LoadFault, NoGenerator, encode, need_wrk, parse_wrk, replay

OUTPUT = """Running 10s test @ http://127.0.0.1:1
  1 threads and 64 connections
Requests/sec:   7534.10
RESULT requests=75341 seconds=10.000 p50_ms=7.950 p99_ms=15.620 failed=41
"""


def test_the_line_of_our_scripts_is_read():
    load = parse_wrk(OUTPUT, cpu_seconds=1.5)
    assert (load.requests, load.seconds, load.p50_ms, load.p99_ms, load.failed) == (
        75341,
        10.0,
        7.95,
        15.62,
        41,
    )
    assert load.rate == pytest.approx(7530)
    assert load.cpu_seconds == 1.5


def test_output_without_the_line_is_a_fault():
    with pytest.raises(LoadFault, match="unable to connect"):
        parse_wrk("unable to connect to 127.0.0.1:1")


def test_without_wrk_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(generator.shutil, "which", lambda _name: None)
    with pytest.raises(NoGenerator, match="apt-get install -y wrk"):
        need_wrk()


def test_requests_are_whole():
    assert encode("POST", "/v1/jobs", "t", b"{}") == (
        b"POST /v1/jobs HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer t\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert encode("GET", "/health", "t").endswith(b"Bearer t\r\n\r\n")


@pytest.fixture
def port() -> Iterator[int]:
    """A server that answers each request with a body, cut in pieces; in chunks if asked for /chunks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        while request := connection.recv(65_536):
            if b" /bye " in request:
                return
            if b" /chunks " in request:
                parts = [
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
                    b"c\r\n2;x\r\nde\r\n0\r\n",
                    b"\r\n",
                ]
            else:
                status = b"500 No" if b" /bad " in request else b"200 OK"
                parts = [b"HTTP/1.1 " + status + b"\r\ncontent-length: 5\r\n\r", b"\nab", b"cde"]
            for part in parts:
                connection.sendall(part)


def test_answers_in_pieces_are_put_together(port):
    connection = Connection(port)
    for path in ("/whole", "/chunks", "/whole"):
        assert connection.ask(encode("GET", path, "t")) == (200, b"abcde")
    assert connection.ask(encode("GET", "/bad", "t")) == (500, b"abcde")
    with pytest.raises(LoadFault, match="hung up"):
        connection.ask(encode("GET", "/bye", "t"))
    connection.close()


def test_a_replay_sends_all_and_reports_failures(port):
    good, bad = encode("POST", "/whole", "t", b"x"), encode("POST", "/bad", "t", b"x")
    out = replay(port, [good] * 9 + [bad], connections=3)
    assert len(out.latencies) == 10
    assert out.failures == ["500 b'abcde'"]
    assert out.seconds >= max(out.latencies)
