"""Requests by HTTPS, to a server that does all that servers do."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lodesman.base.errors import BackendFault
from lodesman.server.engines.run import https
from lodesman.server.engines.run.https import Https

TLS = Path(__file__).parents[2] / "data" / "tls"
AUTHORITY, PAIR = str(TLS / "certificate.pem"), str(TLS / "server.pem")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_words):
        """Nothing is printed."""

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.command, self.path, body, self.headers.get("Authorization", "")))
        self.server.addresses.append(self.client_address)
        getattr(self, "do_" + self.path.rpartition("/")[2])()

    do_GET = do_POST = do_PUT = do_HEAD = answer  # noqa: N815

    def do_plain(self, code=200, content=b"hello"):
        self.send_response(code)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_refused(self):
        self.do_plain(401)

    def do_moved(self):
        self.do_plain(302)

    def do_chunks(self):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")

    def do_until_closed(self):
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"all of it")

    def do_left(self):
        """The answer, and then the connection is gone."""
        self.do_plain()
        self.close_connection = True

    def do_nothing(self):
        self.close_connection = True

    def do_part(self):
        self.send_response(200)
        self.send_header("Content-Length", "50")
        self.end_headers()
        self.wfile.write(b"part")
        self.close_connection = True

    def do_garbage(self):
        self.wfile.write(b"Welcome to this host!\r\n\r\n")
        self.close_connection = True

    def do_drip(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        while not self.server.stopping.wait(0.05):
            self.wfile.write(b".")
            self.wfile.flush()

    def do_endless(self):
        self.send_response(200)
        self.end_headers()
        while not self.server.stopping.is_set():
            self.wfile.write(b"x" * 65536)


class Server(ThreadingHTTPServer):
    """`seen`: method, path, body and authorization of each request; `addresses`: of its client."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str, bytes, str]] = []
        self.addresses: list[object] = []
        self.stopping = threading.Event()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(PAIR)
        self.socket = self.context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, *_words):
        """A client that gives up is no error here."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.stopping.set()
        found.shutdown()
        thread.join()


@pytest.fixture
def make(server):
    made = []

    def new(**settings):
        settings = {"ca": AUTHORITY, "seconds": 20.0, **settings}
        made.append(Https(url=f"https://localhost:{server.server_port}/arex/rest/1.0", **settings))
        return made[-1]

    yield new
    for service in made:
        https._close(service._idle)


def test_a_request_and_its_answer(server, make):
    service = make()
    answer = service.request("POST", "/jobs/plain", b"body", headers={"Accept": "application/json"})
    assert answer == (200, "OK", b"hello", 5)
    assert server.seen == [("POST", "/arex/rest/1.0/jobs/plain", b"body", "")]
    assert service.request("HEAD", "/plain") == (200, "OK", b"", 5)
    assert service.request("GET", "/chunks").body == b"hello world"
    assert service.request("GET", "/moved").code == 302
    assert service.request("GET", "/until_closed").body == b"all of it"


def test_a_connection_is_used_again(server, make):
    service = make()
    for _ in range(3):
        for path in ("/plain", "/chunks"):
            service.request("GET", path)
        service.request("HEAD", "/plain")
    assert len(set(server.addresses)) == 1


def test_a_service_that_is_dropped_leaves_no_connection(server):
    service = Https(url=f"https://localhost:{server.server_port}", ca=AUTHORITY, seconds=20.0)
    service.request("GET", "/plain")
    (kept,) = service._idle
    del service
    assert kept.connection.sock is None


def test_each_thread_has_its_connection(server, make):
    service = make()
    barrier = threading.Barrier(4)

    def ask():
        barrier.wait()
        for _ in range(5):
            assert service.request("GET", "/plain").body == b"hello"

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.seen) == 20
    assert len(set(server.addresses)) <= 4


def test_a_connection_that_was_ended_is_replaced(server, make):
    service = make()
    service.request("GET", "/left")
    assert service.request("GET", "/plain").body == b"hello"
    assert len(set(server.addresses)) == 2


def test_what_must_not_be_repeated_is_sent_once(server, make):
    service = make()
    service.request("GET", "/plain")
    with pytest.raises(BackendFault) as fault:
        service.request("POST", "/nothing", b"new", repeatable=False)
    assert fault.value.data["transient"]
    assert [method for method, *_ in server.seen] == ["GET", "POST"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/nothing", "Remote end closed connection without response"),
        ("/part", "its answer is cut off"),
        ("/garbage", "Welcome to this host!"),
        ("/endless", "its answer is longer than 1 MB"),
        ("/drip", "its answer did not come in time"),
    ],
)
def test_answers_that_do_not_come(make, path, reason):
    service = make(seconds=0.3 if path == "/drip" else 20.0, most_bytes=1 << 20)
    with pytest.raises(BackendFault) as fault:
        service.request("GET", path)
    assert fault.value.data["transient"]
    assert reason in str(fault.value)
    assert str(fault.value).startswith(f"{service.url} cannot be asked: ")


def test_a_server_that_says_nothing(make):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        service = make(seconds=0.2)
        service.url = f"https://localhost:{silent.getsockname()[1]}"
        with pytest.raises(BackendFault, match="did not come in time"):
            service.request("GET", "/")
        port = silent.getsockname()[1]
    service.url = f"https://localhost:{port}/rest"
    with pytest.raises(BackendFault, match="Connection refused"):
        service.request("GET", "/")


@pytest.mark.parametrize("url", ["", "ce.example.org", "http://ce.example.org", "https://", "https://h:port"])
def test_an_address_that_is_none(url):
    with pytest.raises(BackendFault):
        Https(url=url).request("GET", "/")


def test_a_host_that_is_not_trusted(make):
    with pytest.raises(BackendFault, match="certificate verify failed"):
        make(ca="").request("GET", "/plain")


def test_a_certificate_of_another_host(make, server):
    service = make()
    service.url = f"https://127.1:{server.server_port}"
    with pytest.raises(BackendFault, match="certificate is not valid for"):
        service.request("GET", "/plain")


def test_a_folder_of_authorities(make, tmp_path):
    words = ["openssl", "x509", "-in", AUTHORITY, "-noout", "-subject_hash"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    shutil.copy(AUTHORITY, tmp_path / f"{found}.0")
    assert make(ca=str(tmp_path)).request("GET", "/plain").code == 200


def test_our_certificate_is_read_for_each_connection(server, make, tmp_path):
    server.context.verify_mode = ssl.CERT_REQUIRED
    server.context.load_verify_locations(AUTHORITY)
    file = tmp_path / "proxy.pem"
    service = make(certificate=str(file))
    with pytest.raises(BackendFault, match=f"No such file or directory .*{file.name}|cannot be asked"):
        service.request("GET", "/plain")
    file.write_text("nonsense")
    with pytest.raises(BackendFault) as fault:
        service.request("GET", "/plain")
    assert "nonsense" not in str(fault.value)
    shutil.copy(PAIR, file)
    assert service.request("GET", "/plain").code == 200


def test_a_token_is_read_for_each_connection_and_after_a_refusal(server, make, tmp_path, monkeypatch):
    file = tmp_path / "token"
    service = make(token_file=str(file))
    with pytest.raises(BackendFault, match="No such file"):
        service.request("GET", "/plain")
    file.write_text("first\n")
    service.request("GET", "/plain")
    file.write_text("second")
    service.request("GET", "/plain")
    assert service.request("GET", "/refused").code == 401
    service.request("GET", "/plain")
    monkeypatch.setattr(https, "_AGE_SECONDS", -1.0)
    service.request("GET", "/refused")
    file.write_text("third")
    service.request("GET", "/plain")
    file.write_text("fourth")
    service.request("GET", "/plain")
    words = [authorization for *_, authorization in server.seen]
    assert words == [f"Bearer {token}" for token in ("first first first second second third fourth").split()]


@pytest.mark.parametrize("text", ["", "hush hush", "hush\r\nX-Other: hush", "hüsh", "hush\0"])
def test_a_token_that_is_none_is_neither_sent_nor_shown(server, make, tmp_path, text):
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(BackendFault) as fault:
        make(token_file=str(file)).request("GET", "/plain")
    assert fault.value.data["transient"]
    assert "sh" not in str(fault.value).replace(str(file), "").replace("cash", "")
    assert str(file) in str(fault.value)
    assert server.seen == []
