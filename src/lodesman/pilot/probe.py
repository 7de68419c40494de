"""The program of a test job (`lode site test`): what a pilot would find on this node, as one line of JSON.

It is the pilot's zipapp with another start, and has no secret. The server judges the facts (`loops.node_report`).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import platform
import shutil
import signal
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lodesman.base import kernel
from lodesman.base.errors import InvalidConfig
from lodesman.pilot.nursery import Nursery
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.trial import NodeTrial
from lodesman.wire.client import exchange

MARK = "lode-site-test"
"""No other line of a test job has this member."""
_MB = 1 << 20
_ANSWER_BYTES = 1 << 16
_ANSWER_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the line, then stay for as long as the file says."""
    parser = argparse.ArgumentParser(prog="site-test.pyz", description="A test job of Lodesman.")
    parser.add_argument("--file", type=Path, required=True, help="what to test")
    parser.add_argument("--copy", type=int, default=0, help="not used")
    parser.add_argument("--remove", action="store_true", help="remove the folder at the end")
    parser.add_argument("--notice", type=int, default=0, help="not used")
    options = parser.parse_args(arguments)
    folder = Path.cwd()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        request = json.loads(options.file.read_bytes())
        sys.stdout.write(json.dumps(_facts(request, folder)) + "\n")
        sys.stdout.flush()
        time.sleep(float(request.get("stay_seconds", 0)))
    finally:
        if options.remove:
            os.chdir("/")
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def _facts(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    apart = kernel.set_attribute(kernel.CHILD_SUBREAPER, 1)
    free, fault = _try_scratch(folder, apart=apart)
    servers = [_address_in(request.get("url_file")) or server for server in request.get("servers", ())]
    return {
        MARK: 1,
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable or "",
        "has_python": bool(shutil.which(str(request.get("python", "")))),
        "keeps_jobs_apart": apart,
        "folder": str(folder),
        "free_mb": free,
        "scratch_fault": fault,
        "servers": [_try_server(server, request.get("ca_file") or None) for server in dict.fromkeys(servers)],
    }


def _try_scratch(folder: Path, *, apart: bool) -> tuple[int | None, str]:
    """Free MB, None: unknown; and why no payload could run there. `apart`: whether jobs can be kept apart."""
    free = None
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(folder).free // _MB
    nursery = Nursery()
    trial = NodeTrial(folder, os.environ, Reaper(nursery) if apart else None)
    try:
        return free, trial.fault()
    finally:
        nursery.close()
        with contextlib.suppress(OSError):
            (folder / "work").rmdir()


def _address_in(url_file: str | None) -> str:
    try:
        return Path(url_file).read_text(encoding="ascii").strip() if url_file else ""
    except (OSError, ValueError):
        return ""


def _try_server(address: str, ca_file: str | None) -> dict[str, Any]:
    begun = time.monotonic()
    fact: dict[str, Any] = {"address": address, "is_private": False, "tls": "", "fault": "", "ahead_s": None}
    fact.update(untrusted=False, bad_ca_file=False)
    try:
        server = exchange.parse_server(address)
        fact["is_private"] = server.is_private
        fact.update(_ask_server(server, ca_file))
    except InvalidConfig as fault:
        fact.update(fault=fault.message, bad_ca_file=bool(fault.data.get("source")))
    except (OSError, http.client.HTTPException) as fault:
        words = exchange.unanswered_by(server, fault, sent=False).message
        fact.update(fault=words, untrusted=isinstance(fault, ssl.SSLCertVerificationError))
    fact["seconds"] = round(time.monotonic() - begun, 3)
    return fact


def _ask_server(server: exchange.ServerAddress, ca_file: str | None) -> dict[str, Any]:
    trust = exchange.trusted_authorities(ca_file) if server.secure else None
    connection = exchange.open_connection(server, trust)
    try:
        connection.connect()
        sock = connection.sock
        sock.settimeout(_ANSWER_SECONDS)
        tls = sock.version() if isinstance(sock, ssl.SSLSocket) else ""
        before = time.time()
        connection.request("GET", server.base + "/health")
        body = connection.getresponse().read(_ANSWER_BYTES)
        now = time.time()
    finally:
        connection.close()
    try:
        theirs = float(json.loads(body)["time"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return {"fault": f"{server}: what answers there is not a Lodesman server."}
    return {"tls": tls or "", "ahead_s": round((before + now) / 2 - theirs, 2)}


if __name__ == "__main__":
    raise SystemExit(main())
