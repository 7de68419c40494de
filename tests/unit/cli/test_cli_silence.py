"""What commands that wait say where no terminal shows it: in a pipe, a log, a batch script."""

import json
import time

import pytest
from tests.unit.cli.conftest import job_row, waited

from lodesman.user.cli.commands import site_tests
from lodesman.user.cli.progress import Pace, progress

MINUTE, HOUR = 60.0, 3_600.0


@pytest.fixture
def now(monkeypatch):
    """The clock of the commands, in a list."""
    found = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: found[0])
    return found


@pytest.fixture
def waits(server, now):
    """A function that lets `seconds` pass in waits whose jobs stand as `states` says of the time since the beginning."""

    def give(seconds, states):
        begun = now[0]

        def answer(asked):
            now[0] += float(asked.query.get("seconds", 50))
            gone = now[0] - begun
            return waited(Done=3, over=True) if gone >= seconds else waited(**states(gone))

        server.on("GET", "/v1/jobs/wait", answer)

    return give


def test_a_wait_says_a_line_after_ten_seconds_and_at_changes_then(at, waits):
    waits(200.0, lambda gone: {"Waiting": 3} if gone < 100.0 else {"Running": 1, "Done": 1, "Waiting": 1})
    result = at("wait", "12-14")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        "lode: 0 of 3 ended: 3 Waiting.",
        "lode: 1 of 3 ended: 1 Waiting, 1 Running, 1 Done.",
        "lode: All 3 jobs have ended: 3 Done.",
    ]


def test_a_short_wait_says_its_end_alone(at, waits):
    waits(5.0, lambda _: {"Waiting": 3})
    assert at("wait", "12-14").err == "lode: All 3 jobs have ended: 3 Done.\n"


def test_a_wait_in_which_nothing_changes_gives_a_sign_of_life_each_ten_minutes(at, server, waits):
    waits(2 * HOUR, lambda _: {"Waiting": 3})
    lines = at("wait", "12-14").err.splitlines()
    assert 10 <= lines.count("lode: 0 of 3 ended: 3 Waiting.") <= 13
    assert len(server.asked) < 2 * HOUR / 50 + 20  # it does not ask more often for it


def test_a_wait_in_which_much_changes_says_a_line_a_minute_at_most(at, waits):
    waits(HOUR, lambda gone: {"Waiting": 10_000 - int(gone), "Done": int(gone)})
    assert 30 <= len(at("wait", "12-14").err.splitlines()) <= 64


def test_a_program_that_wants_json_gets_no_line_between(at, waits):
    waits(HOUR, lambda gone: {"Waiting": 10_000 - int(gone), "Done": int(gone)})
    result = at("wait", "12-14", "--json")
    assert json.loads(result.out)["over"] is True
    assert "Waiting" not in result.err


def test_lines_come_at_growing_distances():
    pace = Pace(0.0)
    assert [at for at in range(300) if pace.is_due(float(at), str(at))] == [10, 30, 70, 130, 190, 250]
    assert pace.seconds_left(250.0) == MINUTE
    assert pace.seconds_left(400.0) == 0.0


def test_the_same_words_are_said_again_after_ten_minutes():
    pace = Pace(0.0)
    assert [at for at in range(2_000) if pace.is_due(float(at), "no change")] == [10, 610, 1_210, 1_810]


def test_a_long_copy_says_how_far_it_is(capsys, now):
    for silent in (False, True):
        with progress("uploading", 5 << 20, shown=False, of_bytes=True, silent=silent) as advance:
            for _ in range(5):
                now[0] += 9.0
                advance(1 << 20)
        out, err = capsys.readouterr()
        assert (out, err.splitlines()) == (
            "", [] if silent else ["lode: uploading: 2.0 MiB of 5.0 MiB.", "lode: uploading: 5.0 MiB of 5.0 MiB."]
        )  # fmt: skip


def test_fetching_outputs_says_how_far_it_is(at, server, now):
    def rows(_):
        now[0] += 11.0
        return {"jobs": [job_row(12, state="Waiting"), job_row(13, state="Waiting")]}

    server.on("GET", "/v1/jobs", rows)
    assert "lode: fetching outputs: 1 of 2." in at("output", "12-13").err.splitlines()
    assert "fetching" not in at("output", "12-13", "--json").err


@pytest.mark.slow
def test_a_test_of_a_site_says_what_it_does(at, server, now, monkeypatch):
    monkeypatch.setattr(site_tests.time, "sleep", lambda seconds: now.append(now.pop() + seconds))
    begun = now[0]
    tested = {"test": "abc", "path": "North", "queues": 1, "checks": []}
    doing = {"North/ce/q": "a test job waits"}
    server.on("POST", "/v1/site-tests", tested | {"state": "running", "doing": doing})
    server.on(
        "GET", "/v1/site-tests/abc",
        lambda _: tested | {"state": "running" if now[0] - begun < HOUR else "finished", "doing": doing},
    )  # fmt: skip
    monkeypatch.setattr(site_tests, "_POLL_SECONDS", 5.0)
    lines = at("site", "test", "North").err.splitlines()
    assert 5 <= lines.count("lode: North/ce/q: a test job waits") <= 7
    assert "a test job waits" not in at("site", "test", "North", "--json").err
