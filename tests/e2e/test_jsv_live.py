"""A server whose script verifies every submission: what becomes of jobs while it rejects, hangs, dies, is edited, and while
the process that asks it is killed.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.e2e.conftest import PATIENCE, wait_until
from tests.kits.jsv_kit import ACCOUNT, public_folder, shell, write_script

CLASSES = "jcname app\nCMDNAME /bin/echo\nN {~}greeting\njcname big\nCMDNAME /bin/true\nN {~}large\n"
VERIFY = """
    case "$(jsv_get_param N)" in
      bad) jsv_reject "not this one" ;;
      hang) sleep 1000 ;;
      die) kill -9 $$ ;;
      wait) : > {folder}/begun; while [ ! -e {folder}/go ]; do sleep 0.05; done; jsv_set_param N checked; jsv_correct ;;
      class) jsv_set_param jc big; jsv_set_param N checked; jsv_correct ;;
      *) jsv_set_param N checked; jsv_correct ;;
    esac
"""


class Script:
    """The server's script and its folder, to which it may write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write(VERIFY.format(folder=folder))

    def write(self, verify: str) -> None:
        self.path = write_script(self.folder / "check", shell(verify)).path


@pytest.fixture
def script():
    with public_folder() as folder:
        folder.chmod(0o777)
        yield Script(folder)


@pytest.fixture
def start(make_server, script):
    def make(time_out_seconds: float):
        url = f"script:{ACCOUNT}{'@' if ACCOUNT else ''}{script.path}"
        settings = {"jsv.server": url, "jsv.time_out_seconds": time_out_seconds}
        made = make_server(**settings, **{"director.pilotsPerIteration": 0}).start()
        made.user("ann", "physics")
        made.user("bob", "bio")
        assert made.ask("POST", "/v1/job-classes", {"text": CLASSES}, token="admin").status == 200
        return made

    return make


@pytest.fixture
def server(start):
    """One that waits for its script, however busy the machine is."""
    return start(PATIENCE)


def send(server, name: str, token: str = "ann", **more):
    record = {"Executable": "/bin/true", "CPUTime": 60, "JobName": name, **more}
    return server.ask("POST", "/v1/jobs", {"jobs": [record]}, token=token, timeout=PATIENCE)


def stored(server) -> dict[int, str]:
    """The names of all jobs."""
    return {row["id"]: row["name"] for row in server.get("/v1/jobs?all=true&limit=10000")["jobs"]}


def test_a_script_rejects_corrects_changes_the_class_dies_and_is_edited(server, script):
    assert send(server, "mine").status == 200
    for name, words in {"bad": "not this one", "die": "got no response"}.items():
        refused = send(server, name)
        assert (refused.status, words in refused.json["error"]["message"]) == (400, True), refused.body
        assert script.path in refused.body.decode()
    changed = server.ask(
        "POST", "/v1/jobs", {"jobs": [{"JobClass": "app", "JobName": "class", "CPUTime": 60}]}, token="ann"
    )
    assert changed.status == 200, changed.body
    made = server.get(f"/v1/jobs/{changed.json['first']}/description")["resolution"]
    assert (made["job_class"], made["origins"]["JobClass"]) == ("big.default", f"server JSV {script.path}")
    assert sorted(stored(server).values()) == ["checked", "checked"]
    script.write("jsv_set_param N edited; jsv_correct")
    assert send(server, "bad").status == 200
    assert sorted(stored(server).values()) == ["checked", "checked", "edited"]


def test_a_script_that_hangs_refuses_the_job(start, script):
    server = start(0.5)
    refused = send(server, "hang")
    assert (refused.status, "got no response" in refused.json["error"]["message"]) == (400, True), (
        refused.body
    )
    assert script.path in refused.body.decode()
    assert stored(server) == {}


def test_two_clients_at_once_are_both_verified(server):
    def client(token: str) -> list[int]:
        return [send(server, name, token).status for name in ["ok", "bad"] * 15]

    with ThreadPoolExecutor(2) as clients:
        found = list(clients.map(client, ("ann", "bob")))
    assert found == [[200, 400] * 15] * 2
    assert list(stored(server).values()) == ["checked"] * 30


def test_a_kill_in_the_middle_of_a_dialogue_refuses_the_job(server, script):
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(send, server, "wait")
        wait_until((script.folder / "begun").exists, "a dialogue")
        (background,) = server.pids("background")
        os.kill(background, signal.SIGKILL)
        refused = asked.result()
    assert (refused.status, refused.json["error"]["hint"]) == (503, "Try again.")
    (script.folder / "go").touch()
    # Until the process is there again nothing is let past.
    wait_until(lambda: send(server, "bad").status == 400, "the next process")
    assert stored(server) == {}
    assert send(server, "wait").status == 200
    assert list(stored(server).values()) == ["checked"]


@pytest.mark.slow
def test_no_job_gets_past_the_script_however_often_the_process_is_killed(server):
    end, statuses = threading.Event(), []

    def client(token: str) -> None:
        while not end.is_set():
            statuses.append(send(server, "mine", token).status)

    clients = [threading.Thread(target=client, args=(token,)) for token in ("ann", "bob", "ann")]
    for one in clients:
        one.start()
    for kill in range(2):
        begun = statuses.count(200)
        wait_until(lambda begun=begun: statuses.count(200) >= begun + 10, f"jobs after {kill} kills")
        for pid in server.pids("background"):
            os.kill(pid, signal.SIGKILL)
    begun = statuses.count(200)
    wait_until(lambda: statuses.count(200) >= begun + 10, "jobs after all kills")
    end.set()
    for one in clients:
        one.join()
    assert set(statuses) <= {200, 503}
    assert list(stored(server).values()) == ["checked"] * statuses.count(200)
