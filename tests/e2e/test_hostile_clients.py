"""64 clients that misbehave at once: the server stays well, and a good client is served meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import random
import resource
import socket
import struct
import threading
import time
from collections import Counter
from pathlib import Path

CLIENTS = 64
# Of a good client while the others misbehave, and of them in each way.
ROUNDS, TIMES = 5, 3
MB = 1 << 20
GROWTH_MB = 100  # of about 50 at the start: at most 150
# No client may lose a job because the machine is slow while the others misbehave.
SERVER_SETTINGS = {"pilots.lease_seconds": 600}
# The pilots among the misbehaving offer one core: what they may take by rights is not this.
MINE = {"Site": "Bench", "NumberOfProcessors": 2}


class Hostile:
    """One client's connection and the means to misuse it. What it hears does not matter."""

    def __init__(self, server, rng, pilots, others):
        self.server, self.rng = server, rng
        self.pilot_tokens, self.other_jobs = pilots, others
        self.statuses: Counter[str] = Counter()

    def open(self):
        return socket.create_connection(("127.0.0.1", self.server.port), timeout=5)

    def send(self, *parts, wait=True):
        """Send parts on a new connection; returns the first line of the answer."""
        with self.open() as sock:
            try:
                for part in parts:
                    sock.sendall(part)
                if wait:
                    line = sock.recv(65_536).split(b"\r\n")[0]
                    self.statuses[line[9:12].decode(errors="replace")] += 1
            except OSError:
                self.statuses["cut"] += 1

    def hold(self, words, seconds=1.0):
        """Say something, then nothing, and stay."""
        with self.open() as sock:
            sock.sendall(words)
            threading.Event().wait(self.rng.uniform(0, seconds))

    def request(self, method, path, body=b"", *, token="", headers=()):
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        if token:
            lines.append(f"Authorization: Bearer {self.server.tokens.get(token, token)}")
        self.send("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    # --- ways to misbehave ------------------------------------------------------------------------------

    def half_a_line(self):
        self.hold(b"POST /v1/jo")

    def half_a_head(self):
        self.hold(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthor")

    def half_a_body(self):
        token = self.server.tokens["ann"]
        head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n"
        self.hold(head.encode() + b'{"jobs": [')

    def slow_loris(self):
        token = self.server.tokens["ann"]
        head = f"POST /v1/sandboxes HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n"
        with self.open() as sock, contextlib.suppress(OSError):
            for byte in head.encode() + b"X-Sha256: " + b"0" * 64 + b"\r\n\r\n" + b"x" * 40:
                sock.sendall(bytes([byte]))
                threading.Event().wait(0.005)

    def wrong_tokens(self):
        for token in ("wrong", "x" * 5_000, "\xff\xfe", "", self.server.tokens["ann"][:-1]):
            self.request("GET", "/v1/jobs", token=token)
            self.request("POST", "/v1/jobs", b"{}", token=token)
            self.request("POST", "/v1/service/reconcile", b"{}", token=token)

    def other_people_s_jobs(self):
        job = self.rng.choice(self.other_jobs)
        for path in ("", "/why", "/logs", "/output"):
            self.request("GET", f"/v1/jobs/{job}{path}", token="ann")
        body = json.dumps({"action": "kill", "ranges": [[job, job]]}).encode()
        self.request("POST", "/v1/jobs/control", body, token="ann")

    def ten_megabytes_of_jdl(self):
        body = json.dumps({"text": "[ A = {" + "1," * (5 * MB) + "1}; ]", "form": "jdl"}).encode()
        self.request("POST", "/v1/jobs", body, token="ann")

    def ten_megabytes_without_a_token(self):
        self.request("POST", "/v1/jobs", b"x" * (10 * MB))

    def ten_megabytes_of_news(self):
        self.request(
            "POST", "/v1/pilots/heartbeat", b"[" * (10 * MB), token=self.rng.choice(self.pilot_tokens)
        )

    def a_gigabyte_announced(self):
        self.request("POST", "/v1/jobs", b"x", token="ann", headers=("Content-Length: 1073741824",))

    def no_json(self):
        for body in (
            b"",
            b"{",
            b"\xff\xfe\x00",
            b'{"text": "\xff"}',
            b"null",
            b"[]" * 1_000,
            b"\x00" * 1_000,
        ):
            self.request("POST", self.rng.choice(["/v1/jobs", "/v1/pilots/join"]), body, token="ann")

    def deep_nesting(self):
        depth = self.rng.choice([1_000, 100_000, MB])
        for body in (b"[" * depth, b'{"jobs": [' + b'{"a": ' * depth, b'{"text": "' + b"[A=" * depth + b'"}'):
            self.request("POST", "/v1/jobs", body, token="ann")

    def huge_numbers(self):
        big = "9" * self.rng.choice([20, 400, 5_000])
        self.request("GET", f"/v1/jobs/{big}", token="ann")
        self.request("GET", f"/v1/jobs?first={big}&limit=-{big}", token="ann")
        body = f'{{"action": "kill", "ranges": [[1, {big}]]}}'.encode()
        self.request("POST", "/v1/jobs/control", body, token="ann")

    def header_flood(self):
        with self.open() as sock, contextlib.suppress(OSError):
            sock.sendall(b"GET /health HTTP/1.1\r\n")
            for _ in range(200):
                sock.sendall(b"x-flood: " + b"y" * 10_000 + b"\r\n")

    def ten_thousand_headers(self):
        self.send(b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 10_000 + b"\r\n")

    def long_address(self):
        self.send(b"GET /" + b"x" * MB + b" HTTP/1.1\r\n\r\n")

    def no_http(self):
        for words in (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            os.urandom(2_000),
            b"\r\n" * 9,
        ):
            self.send(words)

    def two_lengths(self):
        line, chunked = b"POST /v1/jobs HTTP/1.1\r\n", b"Transfer-Encoding: chunked\r\n"
        self.send(line + b"Content-Length: 5\r\n" + chunked + b"\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n")
        self.send(line + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde")
        self.send(line + chunked + b"\r\nFFFFFFFFFFFFFFFFF\r\n")

    def methods(self):
        for method in ("CONNECT x:1", "OPTIONS *", "TRACE /", "BREW /", "GET http://elsewhere/"):
            self.send(f"{method} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n".encode())

    def pipeline_without_reading(self):
        with self.open() as sock, contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            token = self.server.tokens["ann"]
            one = f"GET /v1/openapi.json HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            sock.settimeout(1)
            sock.sendall(one * 500)

    def reset(self):
        with self.open() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(b"GET /v1/openapi.json HTTP/1.1\r\n\r\n")

    def promise_and_leave(self):
        token = self.server.tokens["ann"]
        head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 99\r\n"
        self.hold(head.encode() + b"Expect: 100-continue\r\n\r\n", 0.3)

    def report_for_others(self):
        token = self.rng.choice(self.pilot_tokens)
        reports = [{"id": job, "attempt": n, "state": "Done"} for job in self.other_jobs for n in (1, 2)]
        self.request("POST", "/v1/pilots/report", json.dumps({"reports": reports}).encode(), token=token)
        sha = hashlib.sha256(b"forged").hexdigest()
        for job in self.other_jobs[:3]:
            self.request(
                "PUT",
                f"/v1/jobs/{job}/attempts/1/output",
                b"forged",
                token=token,
                headers=(f"X-Sha256: {sha}",),
            )

    def claim_everything(self):
        token = self.rng.choice(self.pilot_tokens)
        for count in (10**9, 10**30, -1):
            body = {"claim_token": "x" * 20, "count": count, "resource": {"cores": 65_536}}
            self.request("POST", "/v1/pilots/claim", json.dumps(body).encode(), token=token)

    def endless_news(self):
        token = self.rng.choice(self.pilot_tokens)
        first = self.rng.randrange(1, 10**9)
        jobs = [{"id": first + n, "attempt": 1, "tail": "x" * 60_000} for n in range(100)]
        self.request("POST", "/v1/pilots/heartbeat", json.dumps({"jobs": jobs}).encode(), token=token)

    def wait_and_hang_up(self):
        token = self.rng.choice(self.pilot_tokens)
        body = json.dumps(
            {"claim_token": os.urandom(8).hex(), "wait_s": 50, "resource": {"cores": 1}}
        ).encode()
        head = f"POST /v1/pilots/claim HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.hold(head.encode() + body, 0.5)

    def many_vos_and_lists(self):
        for n in range(20):
            self.request("GET", f"/v1/queues?vo=vo{self.rng.random()}-{n}", token="ann")
        self.request("GET", "/v1/jobs?state=" + "x," * 5_000, token="ann")
        self.request("GET", "/v1/sandboxes/..%2f..%2fetc%2fpasswd", token=self.rng.choice(self.pilot_tokens))

    def ways(self):
        own = [name for name in vars(type(self)) if not name.startswith("_")]
        tools = {"open", "send", "hold", "request", "ways", "run"}
        return sorted(set(own) - tools)

    def run(self, enough, way, gone):
        """Misbehave until it is enough: first in one's own way, later in any. `gone`: how often in each way, by all."""
        while not enough.is_set():
            with contextlib.suppress(OSError):
                getattr(self, way)()
            gone.append(way)
            way = self.rng.choice(self.ways())


def memory_mb(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1_024
    return 0.0


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Good:
    """A well-behaved user and a well-behaved pilot, while the others misbehave."""

    def __init__(self, server):
        self.server, self.pilot = server, server.fake_pilot()
        self.longest, self.rounds = 0.0, 0

    def round(self):
        """Submit, claim, report, read: everything must work at once."""
        began = time.monotonic()
        job = self.server.submit(MINE, token="bob")
        (claimed,) = self.pilot.claim(wait=20.0)
        assert claimed["id"] == job
        assert self.pilot.ask("heartbeat", {"jobs": [{"id": job, "attempt": 1}]}).status == 200
        assert self.pilot.report(claimed)["accepted"]
        assert self.server.get(f"/v1/jobs/{job}", "bob")["state"] == "Done"
        self.longest = max(self.longest, time.monotonic() - began)
        self.rounds += 1


def test_misbehaviour_of_64_clients_harms_no_other_client(server):
    victim = server.fake_pilot()
    held = server.submit(*[MINE] * 3, token="bob")
    others = [job["id"] for job in victim.claim(3)]
    assert others == list(range(held, held + 3))
    tokens = [server.fake_pilot().token for _ in range(4)]
    good = Good(server)
    good.round()
    hot, (background,) = server.process.pid, server.pids("background")
    before = {pid: memory_mb(pid) for pid in (hot, background)}
    processes = len(server.processes())

    clients = [Hostile(server, random.Random(n), tokens, others) for n in range(CLIENTS)]
    ways = clients[0].ways()
    enough, begun, gone = threading.Event(), good.rounds, list[str]()
    threads = [
        threading.Thread(target=client.run, args=(enough, ways[n % len(ways)], gone), daemon=True)
        for n, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    try:
        while good.rounds < begun + ROUNDS or min(map(Counter(gone).__getitem__, ways)) < TIMES:
            good.round()
            victim.ask("heartbeat", {"jobs": [{"id": job, "attempt": 1} for job in others]})
    finally:
        enough.set()
    for thread in threads:
        thread.join(200)
    assert not any(thread.is_alive() for thread in threads)

    statuses = sum((client.statuses for client in clients), Counter())
    assert good.longest < 60.0
    assert {code for code in statuses if code.startswith("5")} <= {"503"}, statuses
    assert {"400", "401", "403", "404", "413"} <= set(statuses), statuses
    assert statuses["200"] < sum(statuses.values())
    assert server.ask("GET", "/health").json["status"] == "ok"
    for job in others:  # no client could report, kill or see the victim's jobs
        assert server.get(f"/v1/jobs/{job}", "bob")["state"] == "Matched"
        assert victim.report({"id": job, "attempt": 1})["accepted"]
    assert server.pids("background") == [background], "nothing had to be started again"
    assert len(server.processes()) <= processes + 2
    for pid, mb in before.items():
        assert memory_mb(pid) - mb < GROWTH_MB, (pid, mb, memory_mb(pid))
    wait_until_calm(hot)
    traces = Counter(
        line["trace"].strip().splitlines()[-1][:200] for line in server.log_lines() if "trace" in line
    )
    assert traces == {}
    good.round()


def wait_until_calm(pid):
    """Connections of clients that are gone are closed."""
    deadline = time.monotonic() + 200
    while descriptors(pid) > 60:
        assert time.monotonic() < deadline, descriptors(pid)
        threading.Event().wait(0.1)


def test_two_hundred_half_requests_block_no_other_client(server):
    open_ones = []
    try:
        for n in range(200):
            sock = socket.create_connection(("127.0.0.1", server.port), timeout=200)
            sock.sendall(b"POST /v1/pilots/claim HTTP/1.1\r\nHost: x"[: n % 40])
            open_ones.append(sock)
        good = Good(server)
        for _ in range(3):
            good.round()
    finally:
        for sock in open_ones:
            sock.close()


def headers_taken(server):
    """How many headers of 100 kB a server takes before it ends the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=200) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\n")
        for taken in range(2_000):
            try:
                sock.sendall(b"x: " + b"y" * 99_995 + b"\r\n")
            except OSError:
                return taken
    return 2_000


def test_a_head_without_end_does_not_fill_the_memory(server):
    pid = server.process.pid
    before = memory_mb(pid)
    assert headers_taken(server) < 1_000
    assert memory_mb(pid) - before < 50
    assert server.ask("GET", "/health").status == 200


def test_a_server_that_runs_out_of_descriptors_comes_back(make_server):
    """More connections than the process may have: a client that has one is served, and then all are again."""
    server = make_server().start()
    server.user("bob", "bio")
    good = Good(server)
    kept = server.connect()
    kept.request("GET", "/health")
    assert kept.getresponse().read()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (120, 120))
    crowd = []
    try:
        for _ in range(250):
            with contextlib.suppress(OSError):
                crowd.append(socket.create_connection(("127.0.0.1", server.port), timeout=5))
        kept.request("GET", "/health")
        assert kept.getresponse().status == 200
    finally:
        kept.close()
        for sock in crowd:
            sock.close()
    deadline = time.monotonic() + 200
    while True:
        try:
            good.round()
            break
        except (OSError, http.client.HTTPException, AssertionError):
            assert time.monotonic() < deadline
            threading.Event().wait(0.2)
    assert server.stop() == 0
