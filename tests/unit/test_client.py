"""The client against servers that answer, refuse, break off, lie and come back."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import socket
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.base import errors
from lodesman.base.errors import (
    Conflict,
    InvalidConfig,
    InvalidRequest,
    LodesmanError,
    NotFound,
    SyntaxFault,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from lodesman.wire.client import Aborted, BadChecksum, Client, LocalFault, Retry, sha256_of
from lodesman.wire.client.exchange import (
    HttpAnswer,
    ServerAddress,
    fault_of,
    is_every_address,
    is_loopback,
    parse_server,
    unanswered_by,
)

TLS = Path(__file__).parents[1] / "data" / "tls"


class Scripted:
    """A server that answers by a list of steps; the last one is repeated.

    A step is (status, body, headers), or "cut" (close without an answer), "half" (promise more than comes)
    or "hang" (send nothing until released).
    """

    def __init__(self, *steps, tls: bool = False) -> None:
        self.steps = list(steps) or [(200, {}, {})]
        self.requests: list[tuple[str, str, dict[str, Any], bytes]] = []
        self.connections = 0
        self.arrived = threading.Condition()
        self.release = threading.Event()
        script = self

        class Speaker(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self):
                super().setup()
                script.connections += 1

            def log_message(self, *_):
                """Nothing to say."""

            def answer(self):
                step = script.steps.pop(0) if len(script.steps) > 1 else script.steps[0]
                if step == "early":
                    self.connection.sendall(
                        b"HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                    self.close_connection = True
                    return
                length = int(self.headers.get("Content-Length") or 0)
                content = self.rfile.read(length)
                with script.arrived:
                    script.requests.append((self.command, self.path, dict(self.headers), content))
                    script.arrived.notify_all()
                if step == "hang":
                    script.release.wait(60)
                if step in ("cut", "hang"):
                    self.close_connection = True
                    return
                if step == "half":
                    self.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
                    self.close_connection = True
                    return
                status, body, headers = step
                raw = body if isinstance(body, bytes) else json.dumps(body).encode()
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                length_line = "" if "Transfer-Encoding" in headers else f"Content-Length: {len(raw)}\r\n"
                self.connection.sendall(f"HTTP/1.1 {status} X\r\n{length_line}{head}\r\n".encode() + raw)
                self.close_connection = headers.get("Connection") == "close"

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - the library's names

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                """Clients cut connections here."""

        self.server = Quiet(("127.0.0.1", 0), Speaker)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "server.pem")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    servers = []

    def make(*steps, tls: bool = False) -> Scripted:
        servers.append(Scripted(*steps, tls=tls))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture
def dead_url():
    """An address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken until the test ends
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def connect():
    """Make clients that note how long they would have slept, and do not."""
    clients = []

    def make(*servers, **options) -> Any:
        naps: list[float] = []
        client: Any = Client(
            [getattr(s, "url", s) for s in servers], sleep=naps.append, rng=random.Random(1), **options
        )
        client.naps = naps
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


def ok(body=None, **headers):
    return (200, {} if body is None else body, headers)


# --- addresses and faults ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "server", "again"),
    [
        ("http://localhost", ServerAddress(False, "localhost", 80), "http://localhost:80"),
        ("https://h.example/", ServerAddress(True, "h.example", 443), "https://h.example:443"),
        ("http://[::1]:7777/lode/", ServerAddress(False, "::1", 7777, "/lode"), "http://[::1]:7777/lode"),
    ],
)
def test_addresses(text, server, again):
    assert parse_server(text) == server
    assert str(server) == again


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:7777",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://u@x",
        "http://x/?q",
        "http://a b",
        "http://x:99999",
    ],
)
def test_unusable_addresses(text):
    with pytest.raises(InvalidConfig):
        parse_server(text)


def test_clients_that_cannot_be():
    with pytest.raises(InvalidConfig):
        Client([])
    with pytest.raises(InvalidConfig) as fault:
        Client(["http://x"], "secret\nX-Evil: 1")
    assert "secret" not in str(fault.value)
    with pytest.raises(InvalidConfig):
        Client(["https://x"], ca_file="/nowhere/ca.pem")


def all_kinds(kind=LodesmanError):
    yield kind
    for below in kind.__subclasses__():
        yield from all_kinds(below)


@pytest.mark.parametrize("kind", [kind for kind in all_kinds() if kind.__module__ == errors.__name__])
def test_every_error_comes_back_as_its_class(kind):
    body = {"error": {"code": kind.code, "message": "So it is.", "hint": "Do this.", "data": {"n": 1}}}
    fault = fault_of(HttpAnswer(418, "", json.dumps(body).encode()))
    assert type(fault) is kind
    assert (fault.message, fault.hint) == ("So it is.", "Do this.")
    assert fault.data == {"n": 1, "status": 418}


def test_a_syntax_fault_keeps_its_message_and_position():
    sent = SyntaxFault("unexpected ;", line=3, column=7)
    fault = fault_of(HttpAnswer(400, "", json.dumps({"error": sent.as_dict()}).encode()))
    assert fault.message == sent.message
    assert (fault.data["line"], fault.data["column"]) == (3, 7)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthorized),
        (404, NotFound),
        (409, Conflict),
        (413, TooLarge),
        (502, Unavailable),
        (500, LodesmanError),
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": "text"}', b"[" * 100_000, b'{"error": {"code": 5}}']
)
def test_bodies_that_say_nothing(status, kind, body):
    fault = fault_of(HttpAnswer(status, "", body))
    assert type(fault) is kind
    assert str(status) in fault.message


@given(st.binary(max_size=200), st.text(max_size=20))
def test_no_answer_breaks_the_reader(body, retry_after):
    assert isinstance(fault_of(HttpAnswer(503, retry_after, body)), LodesmanError)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("0.5", 0.5), ("100000", 60.0), ("", None), ("soon", None), ("-1", None), ("nan", None)],
)
def test_retry_after(text, seconds):
    assert fault_of(HttpAnswer(503, text, b"")).data.get("retry_after") == seconds


@given(st.integers(1, 10_000), st.integers(0, 2**32), st.floats(0, 60))
def test_back_off_is_bounded_and_jittered(failures, seed, at_least):
    retry = Retry(base_s=0.25, cap_s=30)
    delay = retry.delay(failures, random.Random(seed), at_least=at_least)
    assert at_least <= delay <= at_least + min(30, 0.25 * 2 ** min(failures - 1, 30))


# --- requests ---------------------------------------------------------------------------------------


def test_request_and_answer(serve, connect):
    server = serve(ok({"jobs": [1, "ä"]}))
    assert connect(server, token="tok").request("POST", "/v1/x", {"a": "ö"}) == {"jobs": [1, "ä"]}
    method, path, headers, body = server.requests[0]
    assert (method, path, json.loads(body)) == ("POST", "/v1/x", {"a": "ö"})
    assert headers["Authorization"] == "Bearer tok"
    assert headers["Content-Type"] == "application/json"


def test_no_token_no_header_and_base_path(serve, connect):
    server = serve()
    connect(server.url + "/base").request("GET", "/v1/x")
    assert server.requests[0][1] == "/base/v1/x"
    assert "Authorization" not in server.requests[0][2]


def test_one_connection_is_kept(serve, connect):
    server = serve()
    client = connect(server)
    for _ in range(5):
        client.request("GET", "/")
    assert server.connections == 1


def test_raw_bodies_and_answers(serve, connect):
    server = serve((200, b"text", {}))
    client = connect(server)
    assert client.fetch("POST", "/", b"[1]") == b"text"
    assert server.requests[0][3] == b"[1]"
    with pytest.raises(LodesmanError, match="not JSON"):
        client.request("GET", "/")


def test_chunked_and_empty_answers(serve, connect):
    chunked = (200, b"3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n", {"Transfer-Encoding": "chunked"})
    client = connect(serve(chunked, (204, b"", {})))
    assert client.request("GET", "/") == [1, 2]
    assert client.request("GET", "/") is None


def test_halves_of_characters_do_not_break_a_request(serve, connect):
    server = serve()
    connect(server).request("POST", "/", {"name": "\udcff"})
    assert json.loads(server.requests[0][3]) == {"name": "?"}


def test_the_error_of_the_answer_is_raised(serve, connect):
    server = serve((409, {"error": {"code": "conflict", "message": "Stale."}}, {}))
    with pytest.raises(Conflict, match="Stale"):
        connect(server).request("POST", "/", {}, idempotent=True)
    assert len(server.requests) == 1


@pytest.mark.parametrize("path", ["v1", "/a b", "/a\r\nX: 1", "/ä", ""])
def test_paths_that_cannot_be_asked_for(connect, path):
    with pytest.raises(InvalidRequest):
        connect("http://127.0.0.1:1").request("GET", path)


# --- several servers, repeating ---------------------------------------------------------------------


def test_the_next_server_is_asked_and_remembered(serve, connect, dead_url):
    live = serve()
    client = connect(dead_url, live)
    client.request("POST", "/", {})
    client.request("POST", "/", {})
    assert len(live.requests) == 2
    assert client.naps == []


def test_a_server_of_this_machine_is_found_again_by_its_file(serve, connect, dead_url, tmp_path):
    file, live = tmp_path / "url", serve()
    client = connect(dead_url, url_file=str(file), retry=Retry(rounds=1))
    for wrong in ("", "http://example.org:80", "https://127.0.0.1:1", "ftp://127.0.0.1", "\xff"):
        file.write_text(wrong, encoding="latin-1")
        with pytest.raises(Unavailable):
            client.request("GET", "/")
    file.write_text(f"{live.url}\n")
    with pytest.raises(Unavailable):
        client.request("GET", "/")
    client.request("GET", "/")
    connect(dead_url, url_file=str(file), retry=Retry(rounds=1)).request("GET", "/")
    assert len(live.requests) == 2


def test_a_standby_is_passed_over_even_for_what_must_not_be_repeated(serve, connect):
    standby = serve((503, {}, {"Retry-After": "1"}))
    live = serve()
    connect(standby, live).request("POST", "/", {})
    assert len(standby.requests) == len(live.requests) == 1


def test_a_person_does_not_wait_for_what_a_person_has_to_mend(serve, connect):
    """A pilot does: its results must arrive."""
    silent = json.dumps(
        {"error": {"code": "unavailable", "message": "It hangs.", "data": {"silent_seconds": 9.0}}}
    )
    hangs = (503, silent.encode(), {"Retry-After": "1"})
    server = serve(hangs, hangs, ok({"done": True}))
    with pytest.raises(Unavailable, match="It hangs"):
        connect(server, retry=Retry(rounds=4, patient=False)).request("GET", "/")
    assert connect(server, retry=Retry(rounds=4)).request("GET", "/") == {"done": True}
    assert len(server.requests) == 3


def test_idempotent_requests_are_repeated_with_growing_jitter(serve, connect):
    server = serve((503, {}, {}), "cut", "half", (503, {}, {"Retry-After": "7"}), ok({"done": True}))
    client = connect(server)
    assert client.request("POST", "/", {}, idempotent=True) == {"done": True}
    assert len(client.naps) == 4
    assert all(nap <= 0.25 * 2**step for step, nap in enumerate(client.naps[:3]))
    assert client.naps[3] >= 7


def test_rounds_end(serve, connect, dead_url):
    client = connect(dead_url, retry=Retry(rounds=3))
    with pytest.raises(Unavailable, match="refused") as fault:
        client.request("GET", "/")
    assert len(client.naps) == 2
    assert fault.value.data["sent"] is False


def test_what_was_sent_is_not_sent_again_unasked(serve, connect):
    server, other = serve("cut"), serve()
    client = connect(server, other)
    with pytest.raises(Unavailable) as fault:
        client.request("POST", "/", {})
    assert fault.value.data["sent"] is True
    assert (len(server.requests), len(other.requests), client.naps) == (1, 0, [])


def test_a_connection_that_the_server_closed_is_not_used(serve, connect):
    """Also for requests that must not be repeated: the end of the stream is seen before sending."""
    server = serve()
    client = connect(server)
    client.request("GET", "/")
    server.server.shutdown()
    kept = client._connection.sock
    other = socket.fromfd(kept.fileno(), socket.AF_INET, socket.SOCK_STREAM)
    other.shutdown(socket.SHUT_RD)  # as if the server had closed
    other.close()
    threading.Thread(target=server.server.serve_forever, args=(0.01,), daemon=True).start()
    assert client.request("POST", "/", {}) == {}
    assert server.connections == 2


def test_connection_close_is_obeyed(serve, connect):
    server = serve(ok(None, Connection="close"))
    client = connect(server)
    client.request("POST", "/", {})
    client.request("POST", "/", {})
    assert server.connections == 2


def test_timeout(serve, connect):
    server = serve("hang")
    with pytest.raises(Unavailable, match="timed out"):
        connect(server, retry=Retry(rounds=1)).request("GET", "/", timeout=0.05)


# --- ending a request from another thread -----------------------------------------------------------


def test_abort_ends_a_request_under_way(serve, connect):
    server = serve("hang", ok({"again": 1}))
    client = connect(server)
    faults = []

    def ask():
        try:
            client.request("POST", "/", {}, idempotent=True)
        except LodesmanError as fault:
            faults.append(fault)

    thread = threading.Thread(target=ask)
    thread.start()
    with server.arrived:
        assert server.arrived.wait_for(lambda: server.requests, 60)
    client.abort()
    thread.join(60)
    assert isinstance(faults[0], Aborted)
    with pytest.raises(Aborted):
        client.request("GET", "/")
    client.rearm()
    assert client.request("GET", "/") == {"again": 1}


def test_abort_before_anything(connect):
    client = connect("http://127.0.0.1:1")
    client.abort()
    client.rearm()


# --- files ------------------------------------------------------------------------------------------


CONTENT = b"content" * 100_000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


def test_upload(serve, connect, file):
    server = serve("cut", ok({"sha256": DIGEST, "size": len(CONTENT)}))
    assert sha256_of(file) == DIGEST
    assert connect(server).upload("/x", file, DIGEST)["size"] == len(CONTENT)
    method, _, headers, body = server.requests[-1]
    assert (method, headers["X-Sha256"], body) == ("PUT", DIGEST, CONTENT)


def test_upload_that_arrives_otherwise(serve, connect, file):
    with pytest.raises(BadChecksum):
        connect(serve(ok({"sha256": "0" * 64}))).upload("/x", file, DIGEST)


def test_upload_refused_before_all_of_it_was_sent(serve, connect, tmp_path):
    large = tmp_path / "large"
    with large.open("wb") as target:
        target.truncate(64 << 20)
    with pytest.raises((TooLarge, Unavailable)):
        connect(serve("early"), retry=Retry(rounds=1)).upload("/x", large, "0" * 64)


def test_download(serve, connect, tmp_path):
    target = tmp_path / "target"
    connect(serve("half", (200, CONTENT, {}))).download("/x", target, DIGEST, len(CONTENT))
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "steps",
    [
        [(200, b"other", {})],
        [(200, CONTENT + b"x", {})],
        [(200, CONTENT[:-1], {})],
        [(404, {}, {})],
        ["half"],
    ],
)
def test_bad_downloads_leave_no_file(serve, connect, tmp_path, steps):
    target = tmp_path / "target"
    with pytest.raises((BadChecksum, NotFound, Unavailable)):
        connect(serve(*steps)).download("/x", target, DIGEST, len(CONTENT))
    assert not target.exists()


def test_a_download_without_end_is_cut(serve, connect, tmp_path):
    """Not more than the promised size and a little is ever written."""
    server = serve((200, bytes(8 << 20), {}), ok({"fine": 1}))
    client = connect(server)
    with pytest.raises(BadChecksum):
        client.download("/x", tmp_path / "target", DIGEST, 10)
    assert client.request("GET", "/") == {"fine": 1}


class Refusing:
    """A path whose file fails in one step with an error of the system."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def open(self, _mode):
        self._refuse("open")
        return self

    def __getattr__(self, name):
        if name not in ("read", "write", "close", "fileno"):
            raise AttributeError(name)
        return lambda *_: self._refuse(name)

    def _refuse(self, step):
        if step == self.step:
            raise OSError(self.number, os.strerror(self.number))
        return b""

    def unlink(self):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def __str__(self):
        return "/scratch/input"


@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("open", errno.EROFS), ("open", errno.EMFILE), ("open", errno.ENOSPC), ("open", errno.EACCES),
        ("write", errno.ENOSPC), ("write", errno.EDQUOT), ("write", errno.EIO), ("close", errno.ENOSPC),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_written_is_no_silent_server(serve, connect, step, number):
    """The request is not repeated, and other servers are not asked: they have the same file."""
    server = serve((200, CONTENT, {}))
    client = connect(server, server, retry=Retry(rounds=5))
    with pytest.raises(LocalFault) as caught:
        client.download("/x", Refusing(step, number), DIGEST, len(CONTENT))
    assert caught.value.message == f"/scratch/input: {os.strerror(number)}."
    assert caught.value.data["errno"] == number
    assert (client.naps, len(server.requests)) == ([], 1)


def test_a_file_that_cannot_be_read_is_no_silent_server(serve, connect, tmp_path, monkeypatch):
    client = connect(serve(ok()))
    with pytest.raises(LocalFault, match="No such file"):
        client.upload("/x", tmp_path / "gone", DIGEST)
    source = tmp_path / "source"
    source.write_bytes(CONTENT)
    monkeypatch.setattr(Path, "open", lambda *_: Unreadable(source))
    with pytest.raises(LocalFault, match="Input/output error"):
        client.upload("/x", source, DIGEST)
    assert client.naps == []


class Unreadable(io.FileIO):
    """A file on a disk that is broken."""

    def read(self, _size=-1):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_machine_without_descriptors_is_no_silent_server(serve, connect, monkeypatch, number):
    server = serve(ok())

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "create_connection", refuse)
    client = connect(server)
    with pytest.raises(LocalFault, match=os.strerror(number)):
        client.request("GET", "/")
    assert client.naps == []


# --- TLS --------------------------------------------------------------------------------------------


def test_tls_with_a_known_authority(serve, connect, file):
    server = serve(ok({"safe": True}), tls=True)
    client = connect(server, ca_file=str(TLS / "certificate.pem"))
    assert client.request("GET", "/") == {"safe": True}
    client.upload("/x", file, DIGEST)
    assert server.requests[-1][3] == CONTENT


def test_tls_with_an_authority_that_came_as_text(serve, connect):
    """As to a pilot on a node, where the file is not."""
    server = serve(ok({"safe": True}), tls=True)
    client = connect(server, ca_file=f"A certificate:\n{(TLS / 'certificate.pem').read_text()}")
    assert client.request("GET", "/") == {"safe": True}
    with pytest.raises(InvalidConfig, match="A certificate that came as text cannot be used"):
        connect(server, ca_file="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.slow
def test_tls_with_an_unknown_authority(serve, connect):
    server = serve(tls=True)
    for method in ("GET", "POST"):
        with pytest.raises(Unavailable) as fault:
            connect(server, retry=Retry(rounds=1)).request(method, "/")
        assert fault.value.message.startswith(f"{server.url}: its certificate is not trusted (self")
        assert fault.value.hint == "Name the root: lode --ca-file FILE."
        assert fault.value.data["sent"] is False
    assert server.requests == []


def test_tls_with_another_name_than_the_certificate_has(serve, connect):
    """A root that is trusted is no help then."""
    server = serve(tls=True)
    elsewhere = server.url.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(Unavailable) as fault:
        unreached(connect, elsewhere, server)
    assert "127.0.0.2" in fault.value.message
    assert "--ca-file" not in fault.value.hint
    assert "the certificate has" in fault.value.hint


def unreached(connect, url, server):
    """A server at every address of this machine, asked by another of them."""
    address, port = url.rpartition("/")[2].split(":")
    with socket.create_server((address, int(port))) as listener:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "server.pem")

        def shake_hands():
            with suppress(OSError):
                context.wrap_socket(listener.accept()[0], server_side=True)

        threading.Thread(target=shake_hands, daemon=True).start()
        ca_file = str(TLS / "certificate.pem")
        connect(url, ca_file=ca_file, retry=Retry(rounds=1)).request("GET", "/")


def test_a_certificate_that_ended_is_no_question_of_trust():
    fault = ssl.SSLCertVerificationError(1, "certificate verify failed")
    fault.verify_code, fault.verify_message = 10, "certificate has expired"
    error = unanswered_by(parse_server("https://h"), fault, sent=False)
    assert error.message == "https://h:443: its certificate is not trusted (certificate has expired)."
    assert error.hint == "Ask the administrators of the server."


@pytest.mark.parametrize(("method", "sent"), [("GET", False), ("POST", True)])
def test_in_the_clear_to_a_server_that_wants_tls(serve, connect, method, sent):
    server = serve(tls=True)
    client = connect(server.url.replace("https", "http"), retry=Retry(rounds=1))
    with pytest.raises(Unavailable, match="does not answer") as fault:
        client.request(method, "/")
    assert fault.value.hint == "The server there may want https."
    assert fault.value.data["sent"] is sent


def test_with_tls_to_a_server_that_has_none(serve, connect):
    server = serve()
    client = connect(server.url.replace("http", "https"), retry=Retry(rounds=1))
    with pytest.raises(Unavailable, match="does not answer") as fault:
        client.request("GET", "/")
    assert fault.value.hint == "The server there may speak http, not https."


def test_a_read_that_broke_off_changed_nothing(serve, connect):
    with pytest.raises(Unavailable) as fault:
        connect(serve("cut"), retry=Retry(rounds=1)).request("GET", "/")
    assert fault.value.data["sent"] is False


def test_abort_cuts_a_tls_connection_at_once(serve, connect):
    server = serve("hang", tls=True)
    client = connect(server, ca_file=str(TLS / "certificate.pem"))
    ended = []

    def ask():
        try:
            client.request("GET", "/")
        except Aborted:
            ended.append(time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    with server.arrived:
        assert server.arrived.wait_for(lambda: server.requests, 60)
    client.abort()
    thread.join(60)
    assert ended


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.9.9.9", "127.1", "0x7f.1", "0x7F000001", "2130706433", "0177.0.0.01", "::1", "0:0::1",
     "::ffff:127.0.0.1", "localhost", "LocalHost", "localhost."],
)  # fmt: skip
def test_this_machine_itself_by_any_of_its_numbers(host):
    assert is_loopback(host)
    assert not is_every_address(host)
    address = parse_server(f"http://{f'[{host}]' if ':' in host else host}:1")
    assert (address.is_private, address.is_reachable) == (True, False)


@pytest.mark.parametrize(
    "host",
    ["128.1", "10.1", "192.0.2.7", "1.127", "::2", "::ffff:10.0.0.1", "grid.example", "127.0.0.1.example",
     "localhost.example", "127.0.0.1 x", "0x", "9999999999", "127.0.0.1\0", "\u0661\u0662\u0667.1", ""],
)  # fmt: skip
def test_what_is_another_machine_or_no_address(host):
    assert not is_loopback(host)
    assert is_every_address(host) == (host == "")


@pytest.mark.parametrize("host", ["0.0.0.0", "0", "0x0", "0.0", "::", "0::0", "::ffff:0.0.0.0"])
def test_every_address_by_any_of_its_numbers(host):
    assert is_every_address(host)
    assert not is_loopback(host)
