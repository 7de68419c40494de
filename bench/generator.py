"""Load from outside: wrk (compiled), and raw sockets with requests that were encoded beforehand."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
RESULT = re.compile(r"RESULT requests=(\d+) seconds=([\d.]+) p50_ms=([\d.]+) p99_ms=([\d.]+) failed=(\d+)")
ANSWER_SECONDS = 120.0


class NoGenerator(RuntimeError):
    """wrk is not installed."""


class LoadFault(RuntimeError):
    """The generator failed or sent something else."""


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk measured. `cpu_seconds` is its own."""

    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return (self.requests - self.failed) / self.seconds


def parse_wrk(output: str, cpu_seconds: float = 0.0) -> Load:
    """The line that our scripts print at the end. Raises LoadFault if it is not there."""
    found = RESULT.search(output)
    if found is None:
        raise LoadFault(f"wrk printed no result: {output[-500:]!r}")
    requests, seconds, p50, p99, failed = found.groups()
    return Load(int(requests), float(seconds), float(p50), float(p99), int(failed), cpu_seconds)


def need_wrk() -> str:
    """The path of wrk. Raises NoGenerator, which says how to install it."""
    found = shutil.which("wrk")
    if found is None:
        raise NoGenerator("wrk is missing; install it with: apt-get install -y wrk")
    return found


def wrk(
    url: str, script: str, *, seconds: float, connections: int = 64, core: int | None = 1, **given: str
) -> Load:
    """Run wrk on one core with one of our scripts; `given` becomes its environment (BENCH_NAME)."""
    command = [need_wrk(), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "60s",
               "-s", str(HERE / script), url]  # fmt: skip
    if core is not None and (os.cpu_count() or 1) > core and shutil.which("taskset"):
        command = ["taskset", "-c", str(core), *command]
    settings = {f"BENCH_{name.upper()}": value for name, value in given.items()}
    before = os.times()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **settings},
        timeout=seconds + 120,
    )
    after = os.times()
    if done.returncode:
        raise LoadFault(f"wrk failed: {done.stderr[-500:]}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return parse_wrk(done.stdout, cpu)


def encode(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """A whole request as it goes over the wire."""
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n"
    if body or method != "GET":
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class Connection:
    """One keep-alive connection; `ask` sends a request made by `encode` and reads the whole answer."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """Status and body. Raises LoadFault if the server hangs up."""
        self.send(request)
        head = self._until(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        if found:
            return status, self._exactly(int(found[1]))
        return status, self._chunked()

    def send(self, request: bytes) -> None:
        """Send a request whose answer is not awaited yet."""
        self._socket.sendall(request)

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _chunked(self) -> bytes:
        parts = []
        while size := int(self._until(b"\r\n").split(b";")[0], 16):
            parts.append(self._exactly(size))
            self._until(b"\r\n")
        self._until(b"\r\n")
        return b"".join(parts)

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._left:
            self._more()
        part, _, self._left = self._left.partition(mark)
        return part

    def _exactly(self, size: int) -> bytes:
        while len(self._left) < size:
            self._more()
        part, self._left = self._left[:size], self._left[size:]
        return part

    def _more(self) -> None:
        got = self._socket.recv(1 << 16)
        if not got:
            raise LoadFault("the server hung up")
        self._left += got


@dataclass(slots=True)
class Replay:
    """The results of encoded requests: seconds of each, and of all together."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    cpu_seconds: float = 0.0


def replay(port: int, requests: Sequence[bytes], *, connections: int = 1,
           check: Callable[[int, bytes], bool] = lambda status, _body: status == 200) -> Replay:  # fmt: skip
    """Send all requests over some connections. Each waits for its answer before the next."""
    out = Replay()
    waiting = list(reversed(requests))

    def work(connection: Connection) -> None:
        while True:
            try:
                request = waiting.pop()
            except IndexError:
                return
            begun = time.perf_counter()
            status, body = connection.ask(request)
            out.latencies.append(time.perf_counter() - begun)
            if not check(status, body):
                out.failures.append(f"{status} {body[:300]!r}")

    opened = [Connection(port) for _ in range(connections)]
    threads = [threading.Thread(target=work, args=(one,)) for one in opened]
    cpu, begun = time.process_time(), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.seconds, out.cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    for one in opened:
        one.close()
    return out
