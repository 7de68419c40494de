"""A server under test: started as in production, two processes, measured from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.generator import Connection, LoadFault, encode
from bench.machine import Meter, children, process_cpu, resident_mb
from bench.stores import address
from examples.demo.grid import free_port

from lodesman.wire.client import Client, ServerAddress

START_SECONDS, STOP_SECONDS = 120.0, 60.0
QUIET_CORES, QUIET_SECONDS = 0.05, 300.0
# No pilots of its own: the benchmark acts as the pilots. The director still computes its first iteration.
HABITS = {
    "limits.waiting_jobs": 0,
    "limits.task_queues": 0,
    "server.sandbox_quota_mb": 0,
    "pilots.lease_seconds": 36_000,
    "director.PollingTime": 3_600,
    "director.pilotsPerIteration": 0,
}


class Server:
    """One server on one data directory; use it in a `with`."""

    def __init__(
        self, data: Path, *, resources: Path | None = None, settings: Mapping[str, Any] | None = None,
        prelude: str = "", cores: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        chosen = {
            **HABITS,
            "server.port": self.port,
            "server.data": str(data),
            "store.url": address(data),
            **(settings or {}),
        }
        if resources is not None:
            chosen["resources.files"] = [str(resources)]
        self._arguments = [
            w for name, value in chosen.items() for w in ("--set", f"{name}={json.dumps(value)}")
        ]
        self._paths = [path for path in sys.path if path]
        if prelude.strip():
            # Each process of the server runs it, the background process too.
            folder = data.parent / "prelude"
            folder.mkdir(exist_ok=True)
            (folder / "sitecustomize.py").write_text(prelude)
            self._paths.insert(0, str(folder))
        self._cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        """Start it and wait until it is healthy."""
        program = "import sys\nfrom lodesman.server.main.__main__ import main\nsys.exit(main())"
        pinned = ["taskset", "-c", ",".join(map(str, self._cores))] if self._cores else []
        begun = time.perf_counter()
        with (self.data.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*pinned, sys.executable, "-c", program, "server", *self._arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(self._paths)},
            )  # fmt: skip
        try:
            self._wait_until_well(begun)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    @property
    def pid(self) -> int:
        """The hot process."""
        assert self._process is not None
        return self._process.pid

    def background(self) -> int | None:
        """The background process, if it has started."""
        return next(iter(children(self.pid)), None)

    def meter(self) -> Meter:
        """Counts CPU from now on: of the hot and the background process."""
        background = self.background()
        return Meter(hot=self.pid, **({"background": background} if background else {}))

    def memory_mb(self) -> dict[str, float]:
        """RSS of both processes."""
        background = self.background()
        found = {"hot_mb": resident_mb(self.pid)}
        return found | ({"background_mb": resident_mb(background)} if background else {})

    def ask(self, method: str, path: str, token: str = "", body: bytes = b"") -> Any:
        """One request on a connection of its own; the answer's JSON. Raises LoadFault unless it is a 200."""
        connection = Connection(self.port)
        try:
            status, text = connection.ask(encode(method, path, token, body))
        finally:
            connection.close()
        if status != 200:
            raise LoadFault(f"{method} {path}: {status} {text[:500]!r}")
        return json.loads(text)

    def counters(self) -> dict[str, Any]:
        """What the hot process has counted."""
        run = self.data / "run"
        client = Client(
            [ServerAddress(False, str(run / "hot.sock"), 0)], (run / "service.token").read_text().strip()
        )
        counted: dict[str, Any] = client.request("GET", "/v1/service/metrics")
        client.close()
        return counted

    def wait_for_calm(self) -> None:
        """Wait until the background process answers, has finished its first iteration and is idle."""
        end = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < end and self.ask("GET", "/health")["background"]["standing"] != "ok":
            time.sleep(0.1)
        quiet = 0
        while time.monotonic() < end and quiet < 3:
            background = self.background()
            before = process_cpu(background) if background else 0.0
            time.sleep(0.5)
            used = (process_cpu(background) - before) / 0.5 if background else 1.0
            quiet = quiet + 1 if used <= QUIET_CORES else 0

    def stop(self) -> None:
        """Stop it and keep its data."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _wait_until_well(self, begun: float) -> None:
        while time.perf_counter() - begun < START_SECONDS:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            try:
                self.ask("GET", "/health")
            except OSError:
                time.sleep(0.005)
                continue
            self.start_seconds = time.perf_counter() - begun
            return
        tail = (self.data.parent / "server.log").read_text(errors="replace")[-2_000:]
        raise LoadFault(f"the server did not start:\n{tail}")
