"""What a job on the server's own machine can reach: its own folder, and nothing of the server or of another pilot."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.kits.shell_pilots import same, send

from lodesman.base.processes import living_processes, read_process
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import NativeState
from lodesman.server.engines.isolation import Isolation, Wishes, find_isolation
from lodesman.server.engines.local import LocalBackend
from lodesman.server.engines.pilot_directory import PilotDirectory

QUEUE = QueueId("S", "c", "q")
ACCOUNT = "nobody" if os.geteuid() == 0 else ""
PATIENCE = 200.0
# Looked for on the whole machine, where the same test may run twice.
SLEEP = f"{os.getpid()}.987654"

ATTACK = """
import json, os, subprocess, sys
data, server = sys.argv[1], sys.argv[2]
def attempt(do):
    try:
        return do() or "done"
    except OSError as fault:
        return type(fault).__name__
names = ["admin.token", "run/service.token", "lode.db", "sandboxes", "run/reads.sock"]
print(json.dumps({
    "uid": os.getuid(),
    "reads": {name: attempt(lambda: os.stat(f"{data}/{name}")) for name in names},
    "pilots": os.listdir(f"{data}/pilots"),
    "writes": attempt(lambda: open(f"{data}/share/pilot.pyz", "r+b").close()),
    "configures": attempt(lambda: open(f"{data}/../sites.toml", "a").close()),
    "moves": attempt(lambda: os.rename(os.path.dirname(data), os.path.dirname(data) + ".moved")),
    "sees": attempt(lambda: os.stat(f"/proc/{server}")),
    "kills": attempt(lambda: os.kill(int(server), 0)),
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "uncovers": subprocess.run(["umount", data], capture_output=True).returncode,
    "score": int(open("/proc/self/oom_score_adj").read()),
}))
"""


def wait_until(happened, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := happened()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.01)
    return found


@pytest.fixture
def found(tmp_path) -> Isolation:
    """The isolation that this machine gives."""
    programs = tmp_path / "programs"
    programs.mkdir()
    wishes = Wishes(data=tmp_path, run_as=ACCOUNT, python=sys.executable, shown=(programs,))
    found = find_isolation(wishes, make_account=False)
    if not found.namespaces:
        pytest.skip(found.fault)
    return found


def test_a_job_reaches_nothing_of_the_server(make_server, found):
    server = make_server(**{"local.trust_jobs": False, "local.run_as": ACCOUNT}).start()
    server.user("ann", "physics")
    server.user("bob", "bio")
    assert "isolated by namespaces" in server.ask("GET", "/health").json["local_pilots"]
    assert server.process is not None
    arguments = ["-c", ATTACK, str(server.data), str(server.process.pid)]
    job = server.submit({"Executable": sys.executable, "Arguments": arguments}, token="bob")
    server.wait_for("Done", job)
    seen = json.loads(server.get(f"/v1/jobs/{job}/logs", token="bob")["tail"])
    assert seen["uid"] != 0
    assert set(seen["reads"].values()) == {"FileNotFoundError"}
    assert len(seen["pilots"]) == 1
    assert seen["writes"] == "OSError" or (ACCOUNT and seen["writes"] == "PermissionError")
    assert seen["configures"] != "done"
    assert seen["moves"] != "done"
    assert (seen["sees"], seen["kills"]) == ("FileNotFoundError", "ProcessLookupError")
    assert seen["processes"] <= 3
    assert seen["uncovers"] != 0
    assert seen["score"] > int(Path("/proc/self/oom_score_adj").read_text())


def test_the_servers_processes_are_closed_to_their_account(make_server):
    server = make_server().start()
    for pid in (*server.pids("server"), *server.pids("background")):
        assert Path(f"/proc/{pid}/environ").stat().st_uid == 0


@pytest.fixture
def backend(tmp_path, found):
    made = LocalBackend(
        tmp_path / "pilots", {QUEUE: 1}, isolation=found, grace_seconds=0.5, programs=tmp_path / "programs"
    )
    yield made
    made.stop_all()


def run(backend, script, stamp="s1-1") -> PilotDirectory:
    assert send(backend, QUEUE, stamp, script=script).refused == {}
    return PilotDirectory(backend.root / stamp)


def wait_for_end(backend, stamp="s1-1"):
    def ended():
        backend.tick()
        return backend.status(same(stamp))[stamp].state is NativeState.ENDED

    wait_until(ended, "the end")
    return backend.status(same(stamp))[stamp]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_end_of_an_enclosed_pilot_is_its_own(backend, script, code):
    run(backend, script)
    assert wait_for_end(backend).exit_code == code


def test_orders_reach_an_enclosed_pilot(backend):
    pilot = run(backend, "trap 'exit 5' TERM; touch ready; while :; do sleep 0.05; done")
    wait_until((pilot.path / "work" / "ready").exists, "the pilot")
    backend.cancel(same("s1-1"))
    assert wait_for_end(backend).exit_code == 5


def test_nothing_outlives_keeper_and_guard(backend):
    """A stray without a mark, in a session of its own: the kernel ends it with the namespace."""
    pilot = run(backend, f"(env -i setsid /bin/sh -c 'exec sleep {SLEEP}' &); exec sleep {SLEEP}")
    wait_until(lambda: len(_sleepers()) == 2, "the pilot and its stray")
    record, begun = pilot.record(), _sleepers()
    for name in ("guard", "keeper"):
        os.kill(record[name][0], signal.SIGSTOP)
    for name in ("guard", "keeper"):
        os.kill(record[name][0], signal.SIGKILL)
    wait_until(
        lambda: all(read_process(pid) is None or not _is_sleeper(pid) for pid in begun), "the end of all"
    )
    assert "may have left" not in wait_for_end(backend).detail
    assert run(backend, "exit 0", stamp="s2-1")
    assert wait_for_end(backend, "s2-1").exit_code == 0


def _sleepers() -> set[int]:
    return {process.pid for process in living_processes().values() if _is_sleeper(process.pid)}


def _is_sleeper(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{SLEEP}\0".encode()
    except OSError:
        return False


def test_a_file_in_the_current_folder_is_no_part_of_the_server(make_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = make_server().start()
    (tmp_path / "msgspec.py").write_text("open('taken', 'w').close()\n")
    before = server.pids("background")
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: set(server.pids("background")) - set(before), "the next background process")
    assert server.get("/v1/pilots")["pilots"] == []
    assert not (tmp_path / "taken").exists()
