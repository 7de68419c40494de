"""Which jobs the Python API means, and which it refuses to mean."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

from lodesman.base.errors import InvalidRequest, LodesmanError, NotFound
from lodesman.user.access.caller import Caller
from lodesman.user.access.outputs import DamagedArchive
from lodesman.user.python.client import Client
from lodesman.user.python.core import JobFailed, ServerCore
from lodesman.wire import calls
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import EndedJob, Waited

MINE, OTHERS = {7, 8, 12, 15}, {9}
FAILED = {8}


class _Row:
    def __init__(self, number: int) -> None:
        self.id = number


class _Page:
    more = False

    def __init__(self, ids: set[int]) -> None:
        self.jobs = [_Row(one) for one in sorted(ids)]


class Listing(Caller):
    """A server with a few jobs, of which it may list some."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", token="t")
        self.asked: list[Any] = []

    def __copy__(self) -> Listing:
        return self

    def call(self, call: Any, query: Any = None, body: Any = None) -> Any:
        self.asked.append(query if body is None else body)
        if call is calls.JOB:
            raise NotFound(f"Job {query.job} was not found, or you may not see it.")
        if call is calls.WAIT:
            return Waited(over=True, left=0, states={JobState.DONE: 1})
        assert call is calls.JOBS
        seen = MINE | OTHERS if query.all else MINE
        found = {one for one in seen if query.first <= one <= query.last}
        return _Page(found & FAILED if query.state else found)


@pytest.fixture
def server():
    return Listing()


@pytest.fixture
def client(server):
    made = Client("http://127.0.0.1:1", token="t")
    made.core = ServerCore(server)
    return made


@pytest.mark.parametrize(
    ("which", "ids"),
    [
        (None, [7, 8, 12, 15]),
        ("7-12", [7, 8, 9, 12]),
        ("12, 7-8", [7, 8, 12]),
        (9, [9]),
        ([8, 7], [7, 8]),
        ({15, 7}, [7, 15]),
        (range(7, 10), [7, 8, 9]),
        ("8-100000", [8, 9, 12, 15]),
    ],
)
def test_jobs_are_named_by_text_and_by_number(client, which, ids):
    assert client.jobs(which).ids == ids


def test_jobs_that_follow_one_another_are_asked_for_at_once(client, server):
    client.jobs("7,8,9,12")
    assert [(one.first, one.last) for one in server.asked] == [(7, 9), (12, 12)]


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("", "names no job"),
        (" ", "names no job"),
        (",", "names no job"),
        ([], "No job is named"),
        (iter(()), "No job is named"),
        (b"12", "is not the id"),
        ([7, True], "is not the id"),
        ([7, 0], "is not the id"),
        (["7"], "is not the id"),
        (7.0, "is not the id"),
        ("12-7", "12-7 runs backwards. Write 7-12"),
        ("0", "There is no job 0"),
        ("all", "'all' is not a job"),
    ],
)
def test_what_names_no_job_is_refused_and_does_not_mean_all(client, server, which, words):
    with pytest.raises(InvalidRequest, match=words):
        client.jobs(which)
    assert server.asked == []


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("9999", "Job 9999 was not found"),
        (9999, "Job 9999 was not found"),
        ([7, 8, 9999], "Job 9999 was not found"),
        ([7, 8, 10], "Job 10 was not found"),
        ("7,10-11", "Jobs 10-11 were not found"),
    ],
)
@pytest.mark.parametrize("filters", [{}, {"state": "Failed"}])
def test_a_job_that_is_named_and_not_there_is_refused_whatever_the_filters(client, which, words, filters):
    with pytest.raises(NotFound, match=words):
        client.jobs(which, **filters)


def test_jobs_that_no_filter_leaves_are_none(client):
    assert client.jobs("7,12", state="failed").ids == []
    assert client.jobs("12-15", state="failed").ids == []
    assert client.jobs([7, 8], state="failed").ids == [8]


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        ("done", "Done"),
        ("FAILED, killed", "Failed,Killed"),
        (JobState.DONE, "Done"),
        (["Failed", JobState.KILLED], "Failed,Killed"),
    ],
)
def test_states_are_taken_as_on_the_command_line(client, server, state, asked):
    client.jobs(state=state)
    assert server.asked[0].state == asked


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"state": ""}, "state is empty"),
        ({"state": ","}, "is not a state"),
        ({"state": "Failed,"}, "is not a state"),
        ({"state": []}, "state is empty"),
        ({"state": "Finished"}, "'Finished' is not a state. There are .*Done"),
        ({"state": "completed"}, "Completed is a state of DIRAC"),
        ({"name": ""}, "name is empty"),
        ({"name": " "}, "name is empty"),
        ({"group": ""}, "group is empty"),
        ({"job_group": ""}, "job_group is empty"),
        ({"job_class": ""}, "job_class is empty"),
        ({"submission": 0}, "submission is empty"),
        ({"where": {}}, "where is empty"),
        ({"where": {"JobGroup": None}}, "a value is None"),
    ],
)
def test_a_filter_that_is_empty_or_unknown_does_not_mean_all(client, server, filters, words):
    with pytest.raises(InvalidRequest, match=words):
        client.jobs(**filters)
    assert server.asked == []


@pytest.mark.parametrize("wrong", [0, -1, True, False, "7", 7.0, None, 2**60])
def test_what_is_no_id_is_no_job(client, wrong):
    with pytest.raises(InvalidRequest, match="is not the id of a job"):
        client.job(wrong)


@pytest.mark.parametrize("timeout", ["10m", "2h30m", 5, 0.5, math.inf, None])
def test_a_wait_takes_a_time_as_a_number_or_a_text(client, timeout):
    assert client.job(7).wait(timeout)


@pytest.mark.parametrize("timeout", ["soon", "", True, [5], math.nan])
def test_a_time_that_is_none_is_refused_with_what_is_taken(client, timeout):
    with pytest.raises(InvalidRequest, match=r"timeout: .* is not a time.*10m|timeout: .* write 90s"):
        client.job(7).wait(timeout)
    with pytest.raises(InvalidRequest, match="timeout"):
        next(client.as_completed([client.job(7)], timeout))


def test_an_error_shows_nothing_that_steers_a_terminal():
    ended = EndedJob(7, JobState.FAILED, 0.0, 1, None, cast("Any", "exit\x1b[2J"))
    log = "one\n\x1b]0;owned\x07two\tthree\r\u202e\n"
    fault = JobFailed.of(ended, log)
    assert fault.log == log
    assert str(fault) == (
        "Job 7 is Failed (exit\\x1b[2J, exit code 1).\none\n\\x1b]0;owned\\x07two\tthree\n\\u202e"
    )
    assert (
        str(LodesmanError("It is \x1b[2J.", hint="See \x9b31m\u202e."))
        == r"It is \x1b[2J. See \x9b31m\u202e."
    )


def test_an_output_at_fault_does_not_stop_the_others(client, monkeypatch, tmp_path):
    """The first fault is raised, with its job."""

    def output(job, directory):
        if job in (8, 12):
            raise DamagedArchive(f"The archive of {job} is damaged.")
        made.append(job)
        return directory / str(job)

    made: list[int] = []
    monkeypatch.setattr(client.core, "output", output)
    with pytest.raises(DamagedArchive, match="of 8 is damaged") as caught:
        client.jobs().output(tmp_path)
    assert (made, caught.value.__notes__) == ([7, 15], ["It is job 8."])
    assert client.jobs([7, 15]).output(tmp_path) == [tmp_path / "7", tmp_path / "15"]
