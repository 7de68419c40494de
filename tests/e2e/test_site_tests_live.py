"""`lode site test` against whole servers: local queues, and a real Slurm that works, lacks what it needs, or is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import PATIENCE, Server, wait_until
from tests.kits import slurm_kit
from tests.kits.sshd import sshd_of_this_session

PROGRAM = [sys.executable, "-c", "import sys; from lodesman.user.cli import main; sys.exit(main())"]
ALL = ["submit", "status", "output", "python", "scratch", "server", "clock", "cancel", "forget"]
Rows = dict[tuple[str, str], tuple[str, str]]


def command(server: Server, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """`lode site test`, as an administrator runs it."""
    token = server.home / "token"
    token.write_text(server.tokens["admin"])
    token.chmod(0o600)
    address = f"http://127.0.0.1:{server.port}"
    given = ["--server", address, "--token-file", str(token), "site", "test", *words]
    path = os.pathsep.join(p for p in sys.path if p)
    environ = {**os.environ, "PYTHONPATH": path, "TERM": "xterm"}
    return subprocess.Popen(
        [*PROGRAM, *given], cwd=server.home, env=environ, stdout=subprocess.PIPE, stderr=stderr, text=True
    )


def checked(server: Server, *words: str) -> tuple[int, Rows]:
    """The exit code, and (queue, check) -> (result, detail)."""
    process = command(server, *words, "--json")
    out, err = process.communicate(timeout=300.0)
    assert out, err
    rows = json.loads(out)["checks"]
    return process.returncode, {
        (f"{one['ce']}/{one['queue']}", one["check"]): (one["result"], one["detail"]) for one in rows
    }


def results(rows: Rows, queue: str) -> dict[str, str]:
    return {check: result for (name, check), (result, _) in rows.items() if name == queue}


@pytest.fixture
def local(make_server):
    server = make_server(**{"pilots.python": sys.executable, "director.pilotsPerIteration": 0}).start()
    yield server
    assert server.stop() == 0, server.tail()


def kept(server: Server) -> list[str]:
    """The folders of pilots, test jobs among them."""
    return [path.name for path in (server.data / "pilots").iterdir() if not path.name.startswith(".")]


def test_a_good_site_on_this_machine(local):
    code, rows = checked(local, "North")
    assert (code, results(rows, "cn/q")) == (0, dict.fromkeys(ALL, "ok")), rows
    assert kept(local) == []
    assert local.get("/v1/pilots?all=true")["pilots"] == []


def test_a_site_to_which_others_send_pilots(local):
    process = command(local, "Bench")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "pilots there are started manually, by others: test them there" in out
    assert "1 check, 0 failed, 1 unknown" in err


def test_a_wrong_python_command(make_server):
    server = make_server(**{"pilots.python": "no-such-python", "director.pilotsPerIteration": 0}).start()
    code, rows = checked(server, "North/cn/q")
    assert code == 1
    assert rows["cn/q", "python"][0] == "failed"
    assert "cannot start 'no-such-python'" in rows["cn/q", "python"][1]
    assert "is `python` of [pilots] right?" in rows["cn/q", "python"][1]
    assert kept(server) == []


def sent(server: Server) -> list[dict[str, Any]]:
    reply = server.ask("GET", "/v1/audit?action=site-tested", token="admin")
    return list(reply.json["entries"])


@pytest.fixture
def slow(make_server, tmp_path):
    """A server whose pilots and test jobs do nothing for long; all else that its Python runs, runs."""
    program = tmp_path / "slow"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *--copy*) exec sleep 1000;; esac\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    settings = {"pilots.python": str(program), "director.pilotsPerIteration": 0, "pilots.stop_at_exit": False}
    return make_server(**settings).start()


def read_until(terminal: int, words: str) -> str:
    text = ""
    while words not in text:
        text += os.read(terminal, 1_000).decode()
    return text


def test_ctrl_c_leaves_nothing(slow):
    terminal, inner = os.openpty()
    process = command(slow, "South", stderr=inner)
    os.close(inner)
    read_until(terminal, "lode: South/cs/q: a test job is running")
    process.send_signal(signal.SIGINT)
    read_until(terminal, "lode: The server cancels the test jobs.")
    process.communicate(timeout=PATIENCE)
    os.close(terminal)  # not before its last line is written
    assert process.returncode == 130
    wait_until(lambda: not kept(slow), "the removal of the test job")
    assert len(sent(slow)) == 1


def test_the_end_of_the_server_ends_the_test_jobs(slow):
    process = command(slow, "South")
    wait_until(lambda: kept(slow), "a test job")
    assert slow.stop() == 0, slow.tail()
    process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    wait_until(lambda: not slow.processes(), "the end of all processes")
    assert kept(slow) == []


# --- Slurm --------------------------------------------------------------------------------------------------------------

SITES = """
[site.Far]
VO = ["lab"]
[site.Far.ce.ce]
Backend = "engine"
CPUTime = 1000
WallTime = 3600
[site.Far.ce.ce.queue.pilots]
[site.Far.ce.ce.queue.down]
[site.Far.ce.ce.queue.nowhere]
[group.physics]
vo = "lab"
"""


def on_slurm(make_server: Any, folder: Path, outputs: Path, **section: Any) -> Server:
    engine = {
        "type": "slurm", "poll_seconds": 1, "folder": str(outputs), "environment": slurm_kit.environment(folder), **section,
    }  # fmt: skip
    server: Server = make_server(**{"backend.engine": engine, "pilots.python": "python3"})
    (server.home / "sites.toml").write_text(SITES)
    return server.start()


def jobs_there(folder: Path) -> list[str]:
    """The names of our test jobs that wait or run."""
    words = ["squeue", "--all", "--noheader", "--format=%j"]
    environ = {**os.environ, **slurm_kit.environment(folder)}
    done = subprocess.run(words, env=environ, capture_output=True, text=True, check=True, timeout=300)
    return [name for name in done.stdout.split() if name.startswith("lode-test_")]


@pytest.mark.engines
@pytest.mark.parametrize("by_ssh", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_sites_on_slurm(make_server, tmp_path, by_ssh):
    """A good queue, one that is down, and one that is not there."""
    folder, outputs, where = slurm_kit.slurm_of_this_session(), tmp_path / "outputs", {}
    if by_ssh:
        there = sshd_of_this_session()
        where = {
            "host": f"{there.user}@{there.host}:{there.port}".removeprefix("@"),
            "known_hosts": str(there.known_hosts),
            "identity": str(there.identity),
        }
    server = on_slurm(make_server, folder, outputs, **where)
    code, rows = checked(server, "Far/ce/pilots", "--timeout", "120")
    assert (code, results(rows, "ce/pilots")) == (0, dict.fromkeys(ALL, "ok")), rows
    code, rows = checked(server, "Far", "--queue", "ce/down", "--timeout", "6")
    expected = {"submit": "ok", "status": "unknown", "cancel": "ok", "forget": "ok"}
    assert (code, results(rows, "ce/down")) == (0, expected), rows
    assert "PartitionDown" in rows["ce/down", "status"][1]
    code, rows = checked(server, "Far/ce/nowhere")
    assert (code, list(rows)) == (1, [("ce/nowhere", "submit")])
    assert "invalid partition" in rows["ce/nowhere", "submit"][1]
    assert jobs_there(folder) == []
    assert list(outputs.iterdir()) == []
    assert server.get("/v1/pilots?all=true")["pilots"] == []
    assert server.stop() == 0, server.tail()


@pytest.mark.engines
@pytest.mark.thorough
def test_a_slurm_that_is_stopped(make_server, tmp_path):
    with slurm_kit.started_slurm() as folder:
        server = on_slurm(make_server, folder, tmp_path / "outputs")
        process = command(server, "Far/ce/down", "--timeout", "1000")
        wait_until(lambda: jobs_there(folder), "a test job")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        wait_until(lambda: not jobs_there(folder), "the cancel of the test job", patience=2 * PATIENCE)
        slurm_kit.service("stop", folder)
        code, rows = checked(server, "Far/ce/pilots")
        assert code == 1
        assert rows["ce/pilots", "submit"][0] == "failed"
        assert "Unable to contact slurm controller" in rows["ce/pilots", "submit"][1]
        assert server.stop() == 0, server.tail()
