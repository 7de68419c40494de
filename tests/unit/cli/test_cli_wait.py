"""`lode wait`, `lode submit --wait` and the end of `lode logs -f`: exit codes, remarks, servers that go away, Ctrl-C."""

import json
import signal

import pytest
from tests.unit.cli.conftest import job_row, waited
from tests.unit.cli.test_cli_status import submission
from tests.unit.cli.test_cli_terminal import Screen

from lodesman.base.errors import Unavailable
from lodesman.languages.jobs.parents import failed_parent
from lodesman.user.access.caller import Caller
from lodesman.user.cli import waiting
from lodesman.user.cli.waiting import code_of, progress_line, time_left
from lodesman.wire import calls
from lodesman.wire.client import Retry, exchange
from lodesman.wire.client.exchange import HttpAnswer
from lodesman.wire.vocabulary import JobState
from lodesman.wire.waiting import EndedJob, Waited

FAILED = {"id": 17, "state": "Failed", "ended_at": 5.0, "exit_code": 3, "cause": "exit"}


@pytest.fixture
def answering(server):
    """A server that gives these answers to waits, the last one again and again; an exception is one that it is not there."""

    def give(*answers):
        left = list(answers)
        server.on("GET", "/v1/jobs/wait", lambda _: left.pop(0) if len(left) > 1 else left[0])

    return give


@pytest.fixture
def rests(monkeypatch):
    """The seconds that the command slept."""
    found: list[float] = []
    monkeypatch.setattr(waiting.time, "sleep", found.append)
    return found


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (waited(Done=3), 0, "All 3 jobs have ended: 3 Done."),
        (waited(Done=2, Failed=1, failed=FAILED), 3, "First Failed: job 17 (exit code 3)."),
        (waited(Done=2, Killed=1), 1, "1 Killed"),
        (waited(Deleted=3), 1, "3 Deleted"),
        (waited(Done=2, unknown=1), 1, "1 purged (how they ended is not known)"),
        (waited(Failed=1, Killed=2, failed=FAILED | {"exit_code": None, "signal": 9}), 137, "signal 9"),
        (waited(Failed=3, failed=FAILED | {"exit_code": None, "cause": "wall-limit"}), 1, "wall-limit"),
    ],
)
def test_the_exit_code_is_that_of_the_jobs(at, answering, answer, code, words):
    answering(waited(Waiting=3), answer)
    result = at("wait", "12-14")
    assert (result.code, result.out) == (code, "")
    assert words in result.err


@pytest.mark.parametrize(
    ("exit_code", "ended_by", "code"),
    [
        (1, None, 1),
        (127, None, 127),
        (255, None, 255),
        (256, None, 1),
        (None, 11, 139),
        (None, None, 1),
        (0, None, 1),
    ],
)
def test_exit_codes_of_jobs_for_a_shell(exit_code, ended_by, code):
    assert code_of(EndedJob(1, JobState.FAILED, 0.0, exit_code, ended_by)) == code


def test_one_job_is_named(at, answering):
    answering(waited(Failed=1, failed=FAILED, jobs=[FAILED]))
    assert at("wait", "17").err.splitlines() == [
        "lode: Job 17 is Failed (exit code 3).",
        "lode: What job 17 wrote last: lode logs 17",
    ]


def test_why_a_job_could_not_be_started_is_said(at, server, answering):
    failed = FAILED | {"exit_code": None, "cause": "not-started"}
    answering(waited(Failed=1, failed=failed, jobs=[failed]))
    why = "could not be started: there is no ./fit.py"
    whole = {"job_class": "", "sites": [], "attempts": [], "events": []}
    server.on("GET", "/v1/jobs/17", job_row(17, state="Failed", reason=why) | whole)
    result = at("wait", "17")
    assert (result.code, result.err) == (1, f"lode: Job 17 is Failed (not-started).\nlode: Job 17: {why}\n")


def test_an_answer_that_is_missing_after_the_wait_changes_nothing_of_it(at, server, answering):
    failed = FAILED | {"exit_code": None, "cause": "not-started"}
    answering(waited(Failed=1, failed=failed, jobs=[failed]))
    server.refuse("GET", "/v1/jobs/17", 404, code="not-found", message="There is no job 17.")
    result = at("wait", "17")
    assert (result.code, result.err) == (1, "lode: Job 17 is Failed (not-started).\n")


def test_what_is_asked(at, server, answering):
    answering(
        waited(Waiting=2),
        waited(Done=1, Waiting=1, over=True, jobs=[FAILED | {"state": "Done", "exit_code": 0}]),
    )
    result = at("wait", "--any", "--held", "stop", "12", "15-16")
    assert result.code == 0
    assert "Job 17 is Done. In all: 1 Waiting, 1 Done." in result.err
    first, then = [one.query for one in server.asked]
    assert first == {"jobs": "12,15-16", "any": "true", "held": "true", "seconds": "0", "limit": "1"}
    assert 1 <= int(then["seconds"]) <= 10  # a line is said then


def test_the_jobs_of_submissions_are_waited_for(at, server, answering):
    answering(waited(Done=6, over=True))
    server.on(
        "GET", "/v1/submissions", lambda asked: {"submissions": [submission(int(asked.query["submission"]))]}
    )
    assert at("wait", "--submission", "2", "7", "--submission", "4").code == 0
    assert server.asked[-1].query["jobs"] == "7,20-24,40-44"
    assert at("wait").code == 2
    server.on("GET", "/v1/submissions", {"submissions": []})
    result = at("wait", "--submission", "2")
    assert (result.code, "There is no submission 2 that you may see." in result.err) == (3, True)


def test_json_has_the_states_and_the_exit_codes(at, server, answering):
    answering(waited(Done=1, Failed=1, failed=FAILED, jobs=[FAILED]))
    result = at("wait", "16-17", "--json")
    assert result.code == 3
    found = json.loads(result.out)
    assert (found["states"], found["jobs"][0]["exit_code"]) == ({"Done": 1, "Failed": 1}, 3)
    assert server.asked[0].query["limit"] == "10000"


def test_held_jobs_are_remarked_at_once_and_again_when_there_are_more(at, answering):
    answering(
        waited(Held=1, Waiting=2), waited(Held=1, Waiting=2), waited(Held=2, Waiting=1), waited(Held=1, Waiting=2),
        waited(Done=3),
    )  # fmt: skip
    result = at("wait", "12-14")
    assert result.err.count(" Held, and will not end before") == 2
    assert "1 job is Held" in result.err
    assert (
        "2 jobs are Held, and will not end before they are released: lode status 12-14 --state Held"
        in result.err
    )


def test_only_held_jobs_are_left(at, answering):
    answering(waited(Held=1, Done=2, over=True))
    result = at("wait", "12-14", "--held", "stop")
    assert result.code == 125
    assert "Only Held jobs are left: 1 Held, 2 Done." in result.err


def held_for(server, *reasons):
    """The Held jobs of a server, from 13 on, and a wait that only they keep from its end."""
    rows = [
        job_row(13 + place, state="Held", reason=reason, held_by="user")
        for place, reason in enumerate(reasons)
    ]
    server.on("GET", "/v1/jobs", lambda asked: {"jobs": rows if asked.query["state"] == "Held" else []})
    left = {"Held": len(reasons), "Done": 1}
    server.on("GET", "/v1/jobs/wait", lambda asked: waited(**left, over="held" in asked.query))


PARENT_FAILED = "job 5, which it waited for, is Failed: no input"


def test_jobs_whose_parent_failed_are_not_waited_for(at, server):
    assert failed_parent(5, "Failed", "no input") == PARENT_FAILED
    held_for(server, PARENT_FAILED)
    result = at("wait", "12-13")
    assert result.code == 125
    assert result.err.splitlines() == [
        "lode: Only Held jobs are left: 1 Held, 1 Done.",
        f"lode: Job 13 is Held: {PARENT_FAILED}. To let it run: lode release 13. To end it: lode kill 13.",
    ]
    held_for(server, PARENT_FAILED, failed_parent(6, "Killed", ""))
    said = at("wait", "12-14").err.splitlines()[-1]
    assert said.endswith(
        "The other likewise. To let them run: lode release 12-14 --state Held. To end them: lode kill 12-14 --state Held."
    )
    found = at("wait", "12-14", "--json")
    assert (found.code, found.json["over"]) == (125, True)


def test_jobs_that_a_user_holds_are_waited_for(at, server, monkeypatch):
    held_for(server, PARENT_FAILED, "a new disk")
    ticks = iter(range(0, 10_000, 100))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: float(next(ticks)))
    result = at("wait", "12-14", "--timeout", "10m")
    assert (result.code, "2 jobs are Held, and will not end before" in result.err) == (124, True)
    assert len(server.of("GET", "/v1/jobs")) == 1


def test_time_is_over(at, answering, monkeypatch):
    answering(waited(Running=2, Done=1))
    ticks = iter(range(0, 10_000, 100))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: float(next(ticks)))
    result = at("wait", "12-14", "--timeout", "10m")
    assert result.code == 124
    assert "After 10 min 2 of 3 jobs had not ended: 2 Running, 1 Done." in result.err


@pytest.mark.parametrize("word", ["0", "x", "-1", "10y"])
def test_what_is_no_time_is_refused(at, word):
    assert at("wait", "12", "--timeout", word).code == 2


def test_a_server_that_goes_away_is_asked_again_quietly(at, answering, rests):
    away = (503, {"error": {"code": "unavailable", "message": "The server is shutting down."}})
    answering(waited(Waiting=1), *[away] * 9, waited(Done=1))
    result = at("wait", "12")
    assert (result.code, result.err) == (0, "lode: The job has ended: 1 Done.\n")
    assert rests


def test_a_token_that_is_revoked_meanwhile_ends_the_wait_with_the_reason(at, answering, rests):
    words = "This token is unknown. It was revoked."
    answering(waited(Waiting=1), (401, {"error": {"code": "unauthorized", "message": words}}))
    result = at("wait", "12")
    assert (result.code, words in result.err, rests) == (4, True, [])


def test_a_server_that_is_away_for_long_is_remarked_once(at, answering, rests, monkeypatch):
    monkeypatch.setattr(waiting, "_AWAY_SECONDS", 0.0)
    away = (503, {"error": {"code": "unavailable", "message": "The server is shutting down."}})
    answering(waited(Waiting=1), *[away] * 13, waited(Done=1))
    result = at("wait", "12")
    assert result.err.count("Asking again") == result.err.count("The server answers again.") == 1


BUSY = (429, {"error": {"code": "too-often", "message": "You have 500 requests that wait for jobs already."}})


@pytest.fixture
def impatient(monkeypatch):
    """Each question is asked once: what comes in between is the client's own patience."""
    monkeypatch.setattr("lodesman.wire.client.Retry", lambda **_: Retry(rounds=1))
    fault_of = exchange.fault_of
    monkeypatch.setattr(
        exchange, "fault_of", lambda answer: fault_of(HttpAnswer(answer.status, "7", answer.content))
    )


def test_too_many_that_wait_are_waited_for_from_the_first_question_on(at, answering, rests, impatient):
    answering(BUSY, BUSY, waited(Running=1), BUSY, waited(Done=1))
    result = at("wait", "12")
    assert (result.code, result.err) == (0, "lode: The job has ended: 1 Done.\n")
    assert rests == [7.0, 7.0, 7.0]


def test_time_may_be_over_before_there_is_a_place(at, answering, impatient, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting.time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    answering(BUSY)
    result = at("wait", "12", "--timeout", "20s")
    assert (result.code, now) == (124, [20.0])
    assert result.err == f"lode: After 20 s there was no answer: {BUSY[1]['error']['message']}\n"


def test_submit_wait_outlives_a_restart_before_its_first_question(at, server, answering, rests, impatient):
    submitting(server)
    away = Unavailable("http://127.0.0.1:9 does not answer.", sent=False)
    call, asked = Caller.call, []

    def once_away(self, wanted, *more, **named):
        asked.append(wanted)
        if wanted is calls.WAIT and asked.count(wanted) == 1:
            raise away
        return call(self, wanted, *more, **named)

    answering(waited(Done=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Caller, "call", once_away)
        result = at("submit", "--wait", "--", "true")
        assert (result.code, rests) == (0, [1.0])
        asked.clear()
        assert at("wait", "12").code == 5


def test_a_server_that_was_never_there_is_said_at_once(lode, rests):
    assert lode("--server", "http://127.0.0.1:9", "wait", "12").code == 5


def test_jobs_that_are_not_there(at, server):
    server.refuse(
        "GET", "/v1/jobs/wait", 404, code="not-found", message="Job 12 was not found, or you may not see it."
    )
    assert at("wait", "12").code == 3
    assert at("wait").code == 2


def test_ctrl_c_leaves_the_jobs_alone(at, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(waiting._Waiting, "_ask", interrupted)
    result = at("wait", "12-14")
    assert result.code == 130
    assert result.err == "lode: Interrupted. The jobs go on; this ends them: lode kill 12-14\n"


@pytest.mark.slow
def test_a_terminal_has_a_bar_until_the_end_and_ctrl_c_says_so(server):
    server.on("GET", "/v1/jobs/wait", waited(Done=40, Running=20, Waiting=40))
    screen = Screen("wait", "1-100", url=server.url)
    screen.read("] 40 of 100 ended")
    screen.process.send_signal(signal.SIGINT)
    screen.read()
    assert screen.process.wait() == 130
    assert screen.lines()[-1].endswith("lode: Interrupted. The jobs go on; this ends them: lode kill 1-100")


def test_progress_has_the_bar_of_status():
    line = progress_line(Waited(False, 60, {JobState.DONE: 40, JobState.WAITING: 60}), 300.0)
    assert line == f"[{8 * '#'}{12 * '.'}] 40 of 100 ended, about 5 min left: 60 Waiting, 40 Done"


def test_the_time_that_is_left_is_unknown_at_first():
    assert time_left(100.0, 0, 10) is time_left(1.0, 50, 10) is None
    assert time_left(100.0, 50, 10) == 20.0


def submitting(server):
    answer = {"submission": 1, "first": 12, "count": 3, "held": 0, "repeated": False, "notices": []}
    server.on("POST", "/v1/jobs", answer)


def test_submit_wait(at, server, answering, tmp_path):
    submitting(server)
    answering(waited(Waiting=3), waited(Done=2, Failed=1, failed=FAILED))
    (tmp_path / "a.jdl").write_text('[ Executable = "/bin/true"; ]')
    result = at("submit", "--wait", str(tmp_path / "a.jdl"))
    assert (result.code, result.out) == (3, "12-14\n")
    assert server.of("GET", "/v1/jobs/wait")[0].query["jobs"] == "12-14"
    assert "All 3 jobs have ended" in result.err


def test_submit_wait_in_json_is_one_value(at, server, answering, tmp_path):
    submitting(server)
    answering(waited(Done=3))
    (tmp_path / "a.jdl").write_text('[ Executable = "/bin/true"; ]')
    result = at("submit", "--wait", "--json", str(tmp_path / "a.jdl"))
    found = json.loads(result.out)
    assert (result.code, found["submissions"][0]["first"], found["waited"]["states"]) == (0, 12, {"Done": 3})


def test_following_logs_ends_with_the_exit_code(at, server, answering):
    server.on(
        "GET", "/v1/jobs/17/logs", {"id": 17, "state": "Failed", "attempt": 1, "live": False, "tail": "no\n"}
    )
    answering(waited(Failed=1, failed=FAILED, jobs=[FAILED]))
    result = at("logs", "-f", "17")
    assert (result.code, result.out, result.err) == (3, "no\n", "lode: Job 17 is Failed (exit code 3).\n")


def test_submit_wait_of_a_command(at, server, answering):
    submitting(server)
    answering(waited(Done=1))
    result = at("submit", "--wait", "--", "true")
    assert (result.code, result.out) == (0, "12-14\n")
