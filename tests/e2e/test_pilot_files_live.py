"""A site of three nodes without a batch system: pilots that a person starts on another machine, here a network namespace."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from ipaddress import ip_address
from pathlib import Path

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

NODES = """
[site.Three]
VO = ["lab"]
[site.Three.ce.nodes]
Backend = "manual"
[site.Three.ce.nodes.queue.hand]
CPUTime = 1000
MaxTotalJobs = 3
"""
# A network of four addresses, of those that are for tests between networks, that no other run has.
NETWORK = ip_address("198.18.0.0") + 4 * (os.getpid() % (1 << 15))
SERVER, NODE = str(NETWORK + 1), str(NETWORK + 2)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="only root makes network namespaces"
)


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more)


@pytest.fixture
def other_machine():
    """A network namespace with an address of its own, beside that of the server; nothing else is reached from there."""
    name, here, there = f"lode{os.getpid()}", f"lh{os.getpid() % 10**8}", f"ln{os.getpid() % 10**8}"
    try:
        run("ip", "netns", "add", name)
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        run("ip", "address", "add", f"{SERVER}/30", "dev", here)
        run("ip", "link", "set", here, "up")
        run("ip", "-n", name, "address", "add", f"{NODE}/30", "dev", there)
        run("ip", "-n", name, "link", "set", there, "up")
    except subprocess.CalledProcessError as fault:
        pytest.skip(f"no network namespaces here: {fault.stderr.strip()}")
    else:
        yield name
    finally:
        for words in (("link", "delete", here), ("netns", "delete", name)):
            with contextlib.suppress(subprocess.CalledProcessError):
                run("ip", *words)


def certificate(folder: Path):
    key, chain = folder / "key.pem", folder / "chain.pem"
    run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={SERVER}",
        "-addext", f"subjectAltName=IP:{SERVER},IP:127.0.0.1", "-keyout", str(key), "-out", str(chain),
    )  # fmt: skip
    return str(key), str(chain)


def lode(server, *words):
    environment = {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "LODE_TOKEN": server.tokens["admin"],
    }
    address = (
        "--server",
        f"https://127.0.0.1:{server.port}",
        "--ca-file",
        server.settings["server.tls_certificate"],
    )
    command = [sys.executable, "-m", "lodesman.user.cli", *address, *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


@pytest.fixture
def node():
    """A folder on the other machine. Those of pytest are closed to other accounts, also by another run that begins now."""
    with tempfile.TemporaryDirectory(prefix="lode-node-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@needs_root
def test_three_files_and_one_command_make_a_site(make_server, other_machine, tmp_path, node):
    key, chain = certificate(tmp_path)
    server = make_server(**{
        "server.host": "0.0.0.0", "server.tls_certificate": chain, "server.tls_key": key,
        "local.run_as": "nobody", "local.trust_jobs": True,
    })  # fmt: skip
    server.settings["server.public_url"] = f"https://{SERVER}:{server.port}"
    (server.home / "sites.toml").write_text((server.home / "sites.toml").read_text() + NODES)
    server.tls = ssl.create_default_context(cafile=chain)
    server.start()
    server.user("ann", "physics")
    first = server.submit(
        {"Executable": "/bin/sh", "Arguments": "-c 'ls /sys/class/net; id -u'", "Site": "Three"}
    )
    out = tmp_path / "out"
    made = lode(
        server,
        "pilot",
        "file",
        "--queue",
        "Three/nodes/hand",
        "--count",
        "3",
        "--hours",
        "1",
        "--dir",
        str(out),
    )
    assert made.returncode == 0, made.stderr
    assert "public_url" not in made.stderr  # it is reached from elsewhere
    files = sorted(out.iterdir())
    assert len(files) == 3
    # As on another machine: the file alone, a system Python, another account, no way but that address.
    pilot = shutil.copy(files[0], node / "pilot.pyz")
    os.chown(pilot, 65_534, 65_534)
    with (node / "log").open("wb") as log:
        process = subprocess.Popen(
            ["ip", "netns", "exec", other_machine, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
             "env", "-i", "PATH=/usr/bin:/bin", "/usr/bin/python3", "-I", str(pilot)],
            stdout=log, stderr=log, cwd="/",
        )  # fmt: skip
        assert process.wait(PATIENCE) == 0, (node / "log").read_text()
    server.wait_for("Done", first)
    rows = {row["id"]: row for row in server.get("/v1/pilots?all=true")["pilots"]}
    ended = [row for row in rows.values() if row["state"] == "Done"]
    assert [(row["queue"], row["jobs_done"]) for row in ended] == [("hand", 1)]
    # It ran there, and a file is good once.
    logs = server.ask("GET", f"/v1/jobs/{first}/logs", token="admin").json
    assert "65534" in json.dumps(logs)
    again = subprocess.run([sys.executable, str(files[0])], capture_output=True, text=True, check=False)
    assert again.returncode == 3
    assert "join token" in again.stderr
    full = lode(server, "pilot", "file", "--queue", "Three/nodes/hand", "--count", "2", "--dir", str(out))
    assert full.returncode == 6
    assert "MaxTotalJobs of Three/nodes/hand is 3" in full.stderr


def test_a_server_on_loopback_says_so_and_what_nobody_starts_expires(make_server, tmp_path):
    server = make_server()
    (server.home / "sites.toml").write_text((server.home / "sites.toml").read_text() + NODES)
    server.start()
    body = {"path": "Three/nodes/hand", "count": 2, "hours": 0.0005}
    made = server.ask("POST", "/v1/pilots/files", body, token="admin").json
    assert "public_url" in made["notices"][0]
    ids = {one["id"] for one in made["pilots"]}

    def expired():
        rows = server.get("/v1/pilots?all=true")["pilots"]
        return {(row["state"], row["reason"]) for row in rows if row["id"] in ids}

    wait_until(lambda: expired() == {("Aborted", "it was not started before its file expired")}, "their end")
