"""A configuration with a fault: the server goes on with the old one, says so everywhere, and survives a crash of its
second process meanwhile.
"""

from __future__ import annotations

import os
import signal
import urllib.request

import pytest
from tests.e2e.conftest import PATIENCE, wait_until

METRIC = "lodesman_configuration_refused"


def state_of(server):
    """What both processes say: /health (hot) and /v1/configuration (reading)."""
    return server.ask("GET", "/health").json["configuration"], server.get("/v1/configuration")


def refused_by_both(server):
    return all(state["refused_at"] for state in state_of(server))


def metrics(server):
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/metrics",
        headers={"Authorization": f"Bearer {server.tokens['admin']}"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        lines = answer.read().decode().splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(METRIC[:22])}


def replace(file, text):
    """Change a file as a whole: half of it is never read."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


@pytest.mark.slow
def test_a_refused_change_is_reported_everywhere_and_the_old_tree_stays(make_server):
    server = make_server().start()
    server.user("ann", "physics")
    sites = server.home / "sites.toml"
    good, before = sites.read_text(), server.get("/v1/sites")["sites"]
    hot, reading = state_of(server)
    assert (hot["refused_at"], reading["refused_at"], reading["faults"]) == (None, None, [])
    assert metrics(server)[METRIC] == 0

    server.configure(good + '[site.Bad.ce.c.queue.q]\nMaxRAM = "lots"\nCPUTime = "1 parsec"\n')
    wait_until(lambda: refused_by_both(server), "both processes to refuse it")
    hot, reading = state_of(server)
    assert (hot["faults"], hot["age_seconds"] > 0) == (2, True)
    lines = len(good.splitlines())
    assert [(fault["line"], fault["section"]) for fault in reading["faults"]] == [
        (lines + 2, "site.Bad.ce.c.queue.q"), (lines + 3, "site.Bad.ce.c.queue.q"),
    ]  # fmt: skip
    assert all(fault["source"] == str(sites) for fault in reading["faults"])
    counted = metrics(server)
    assert (counted[METRIC], counted["lodesman_configuration_refusals_total"]) == (1, 1)
    logged = [line for line in server.log_lines() if "is not used" in line["message"]]
    assert {line["process"] for line in logged} == {"hot", "background"}
    assert all(len(line["faults"]) == 2 for line in logged)
    assert [row["site"] for row in server.get("/v1/sites")["sites"]] == [row["site"] for row in before]

    # The second process is killed while the files are bad: the last good configuration is used, the fault still reported.
    (background,) = server.pids("background")
    os.kill(background, signal.SIGKILL)
    wait_until(lambda: server.pids("background") not in ([], [background]), "a new background process")
    wait_until(lambda: server.ask("GET", "/v1/me", token="admin").status == 200, "its answers")
    assert [row["site"] for row in server.get("/v1/sites")["sites"]] == [row["site"] for row in before]
    assert len(server.get("/v1/configuration")["faults"]) == 2
    job = server.submit({"Executable": "/bin/true"})
    server.wait_for("Done", job)

    server.configure(good + "[site.Bad]\n")
    wait_until(lambda: not any(state["refused_at"] for state in state_of(server)), "the mended files")
    assert "Bad" in [row["site"] for row in server.get("/v1/sites")["sites"]]
    assert metrics(server)[METRIC] == 0


@pytest.mark.slow
def test_a_fault_in_the_words_of_grid_engine_has_its_file_and_line_and_the_old_ones_stay(
    make_server, tmp_path
):
    words, good = tmp_path / "words.txt", "slots s INT <= YES YES 1 0\nmatlab ml INT <= YES JOB 0 0\n"
    words.write_text(good)
    server = make_server(**{"gridengine.files": [str(words)]}).start()

    def resources():
        return [one["name"] for one in server.get("/v1/quotas/resources")["resources"]]

    assert server.get("/v1/configuration")["files"] == [str(server.home / "sites.toml"), str(words)]
    assert resources() == ["slots", "matlab"]
    replace(words, good + "\nscratch sc MEMORY << YES YES 0 0\n")
    wait_until(lambda: refused_by_both(server), "both processes to refuse it")
    (fault,) = state_of(server)[1]["faults"]
    assert (fault["source"], fault["line"]) == (str(words), 4)
    assert "relop has <<" in fault["message"]
    assert resources() == ["slots", "matlab"]
    replace(words, good + "\nscratch sc MEMORY <= YES YES 0 0\n")
    wait_until(lambda: not any(state["refused_at"] for state in state_of(server)), "the mended file")
    wait_until(lambda: resources() == ["slots", "matlab", "scratch"], "the new complex in use")
