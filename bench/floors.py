"""The speed of the bare machine, measured in the same run: absolute figures change by the hour, ratios do not."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import apsw
from bench.generator import need_wrk, wrk
from examples.demo.grid import free_port

HERE = Path(__file__).parent
BLOCK = b"\0" * 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Floors:
    """Per second: forced writes of 4 KB, one-row commits, started processes, constant answers over HTTP."""

    fdatasync: float
    sqlite_commits: float
    spawns: float
    http: float | None

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return asdict(self)


def measure(folder: Path, seconds: float) -> Floors:
    """All floors; `folder` is on the disk that the database will be on."""
    return Floors(
        fdatasync=fdatasync(folder, seconds),
        sqlite_commits=sqlite_commits(folder, seconds),
        spawns=spawns(seconds),
        http=http(seconds),
    )


def _rate(step: Callable[[], object], seconds: float) -> float:
    done, begun = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - begun) < seconds:
        step()
        done += 1
    return done / elapsed


def fdatasync(folder: Path, seconds: float) -> float:
    """Writes of 4 KB to the end of a file, each forced to the disk."""
    path = folder / "floor.bin"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)

    def step() -> None:
        os.write(descriptor, BLOCK)
        os.fdatasync(descriptor)

    try:
        return _rate(step, seconds)
    finally:
        os.close(descriptor)
        path.unlink()


def sqlite_commits(folder: Path, seconds: float) -> float:
    """Transactions of one insert, as durable as the server's own (WAL, synchronous=FULL)."""
    path = folder / "floor.db"
    db = apsw.Connection(str(path))
    for setting in ("journal_mode=WAL", "synchronous=FULL"):
        list(db.execute(f"PRAGMA {setting}"))
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)")
    try:
        return _rate(lambda: db.execute("INSERT INTO t (text) VALUES ('0123456789')"), seconds)
    finally:
        db.close()
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            name.unlink(missing_ok=True)


def spawns(seconds: float) -> float:
    """/bin/true, started and waited for, one after the other."""

    def step() -> None:
        os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)

    return _rate(step, seconds)


def http(seconds: float) -> float | None:
    """Constant answers of the server's own connections to wrk with the same requests as claims; None without wrk."""
    try:
        need_wrk()
    except RuntimeError:
        return None
    port = free_port()
    server = subprocess.Popen([sys.executable, str(HERE / "bare.py"), str(port)], stdin=subprocess.DEVNULL)
    try:
        _wait_for(port)
        tokens = HERE / "floor.tokens"
        url = f"http://127.0.0.1:{port}"
        return wrk(url, "claim.lua", seconds=max(seconds, 2), tokens=str(tokens)).rate
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    end = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)
        else:
            return
