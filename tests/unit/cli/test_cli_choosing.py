"""Jobs chosen by --job-group, --where and so on, where commands also take numbers: wait, output, logs, change."""

import pytest
from tests.unit.cli.conftest import job_row, waited

from lodesman.user.cli import selection

CHOICE = ("--job-group", "prod*", "--where", "Site=Lyon")


@pytest.fixture
def server(server):
    def rows(asked):
        numbers = range(int(asked.query.get("first", 1)), min(int(asked.query.get("last", 99)), 16) + 1)
        found = [job_row(one, state="Done", job_group="prod7") for one in numbers if one in (12, 13, 16)]
        return {"jobs": found[::-1] if asked.query.get("newest") else found}

    server.on("GET", "/v1/jobs", rows)
    server.on("GET", "/v1/jobs/wait", waited(Done=3))
    server.on("POST", "/v1/jobs/change", {"changed": 3, "refused": 0, "examples": [], "dry_run": False})
    for number in (12, 13, 16):
        logs = {"id": number, "state": "Done", "attempt": 1, "live": False, "tail": f"I am {number}\n"}
        server.on("GET", f"/v1/jobs/{number}/logs", logs)
    return server


def ids(server):
    return server.asked[-1].query["jobs"]


def asked(server, **more):
    """The question that chose jobs had all that was given."""
    (query,) = (one.query for one in server.asked if one.path == "/v1/jobs")
    assert query["job_group"] == "prod*"
    assert query["where"] == "Site=Lyon"
    assert {name: query.get(name) for name in more} == more
    return True


def test_what_is_chosen_is_waited_for(at, server):
    done = at("wait", *CHOICE)
    assert (done.code, ids(server)) == (0, "12-13,16")
    assert "All 3 jobs have ended" in done.err
    assert asked(server, all=None)
    assert "Deleted" not in server.asked[0].query["state"]


def test_of_jobs_that_are_named_those_that_are_chosen(at, server):
    assert at("wait", "13-40", *CHOICE).code == 0
    assert ids(server) == "13,16"
    assert asked(server, all="true", first="13", last="40")


def test_jobs_that_wait_are_changed(at, server):
    assert at("change", *CHOICE, "CPUTime=2h").code == 0
    assert server.asked[-1].json == {"ranges": [[12, 13], [16, 16]], "attributes": {"CPUTime": "2h"}}
    assert asked(server, state="Waiting,Held")


def test_the_logs_of_a_few_are_shown_with_their_numbers(at, server):
    done = at("logs", *CHOICE)
    assert done.out == "I am 12\nI am 13\nI am 16\n"
    assert [line for line in done.err.splitlines() if "Job" in line] == [
        f"lode: Job {number}, Done:" for number in (12, 13, 16)
    ]
    assert [one["tail"] for one in at("logs", *CHOICE, "--json").json["jobs"]] == done.out.splitlines(
        keepends=True
    )
    assert "--follow shows one job; 3 jobs are chosen" in at("logs", "--follow", *CHOICE).err


def test_outputs_are_fetched(at, server, home):
    done = at("output", *CHOICE)
    assert "3 jobs without output" in done.err
    assert [one.query["first"] for one in server.asked if "job_group" not in one.query] == ["12", "16"]


@pytest.mark.parametrize("command", ["wait", "output", "logs", "change"])
def test_where_no_job_is_chosen_it_is_said_how_to_see_them(at, server, command):
    server.on("GET", "/v1/jobs", {"jobs": []})
    done = at(command, *CHOICE, *(["Memory=5"] if command == "change" else []))
    assert (done.code, len(server.asked)) == (3, 1)
    assert "You have no such job. See: lode status --jobs, with the same options." in done.err


@pytest.mark.parametrize("words", [["wait"], ["output"], ["logs"], ["change", "Memory=5"]])
def test_neither_numbers_nor_a_choice_is_wrong_usage(at, server, words):
    done = at(*words)
    assert (done.code, server.asked) == (2, [])
    assert "Name jobs, or choose them by --state, --name, --job-group" in done.err


def test_too_many_ranges_are_refused(at, server, monkeypatch):
    monkeypatch.setattr(selection, "_MOST_RANGES", 1)
    done = at("change", *CHOICE, "Memory=5")
    assert "The chosen jobs are in 2 separate ranges of ids" in done.err
    assert len(server.asked) == 1
