"""GET /v1/jobs/wait: when it is answered, with what, for whom, and how many may wait."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import contextmanager

import pytest
from tests.api.test_api_forgotten import finished, forget
from tests.api.test_api_refresh import configure

from lodesman.base.errors import Unavailable
from lodesman.server.live.waits import WaitLimits
from lodesman.server.store.read.job_ends import count_states
from lodesman.server.writer.control import Control


def ask(house, jobs, token="ann", **query):
    """A wait that is answered at once."""
    words = "".join(f"&{name}={value}" for name, value in query.items())
    return house.call("GET", f"/v1/jobs/wait?jobs={jobs}&seconds=0{words}", token=token)


class Waiting:
    """A wait under way."""

    def __init__(self, house, jobs, token="ann", query=""):
        self.house = house
        path = f"/v1/jobs/wait?jobs={jobs}{query}"
        self.before = {id(one) for one in of_all(house)}
        self.task, self.connection = house.open("GET", path, token=token)
        house.run(self._parked())

    async def _parked(self):
        while not self.task.done() and not {id(one) for one in of_all(self.house)} - self.before:  # noqa: ASYNC110
            await asyncio.sleep(0)

    @property
    def waits(self):
        self.house.run(asyncio.sleep(0))
        return not self.task.done()

    def answer(self):
        self.house.run(self.task)
        answer = self.connection.answer()
        assert answer.status == 200, answer.body
        return answer.json


def of_all(house):
    """Those that wait now."""
    return [one for of in house.core.waits._of.values() for found in of.waiters.values() for one in found]


def run_one(house, pilot, state="Done", **more):
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running", started=house.now)
    house.report(pilot, job, state, started=house.now, **more)
    return job["id"]


@pytest.mark.stores
@pytest.mark.parametrize("array", [False, True], ids=["rows", "members"])
def test_it_is_answered_when_the_last_job_has_ended(house, array):
    house.submitted(*([{"Parameters": 3}] if array else [{}, {}, {}]))
    waiting, pilot = Waiting(house, "1-3"), house.pilot()
    run_one(house, pilot)
    run_one(house, pilot, "Failed", cause="exit", exit_code=3)
    assert waiting.waits
    run_one(house, pilot)
    answer = waiting.answer()
    assert (answer["over"], answer["left"], answer["states"]) == (True, 0, {"Done": 2, "Failed": 1})
    assert [one["state"] for one in answer["jobs"]].count("Failed") == 1
    failed = answer["failed"]
    assert (failed["state"], failed["exit_code"], failed["cause"]) == ("Failed", 3, "exit")
    assert ask(house, "1-3").json == answer


@pytest.mark.stores
@pytest.mark.parametrize("array", [False, True], ids=["rows", "members"])
def test_the_counts_are_those_of_the_list_whatever_happens(house, array):
    house.submitted(*([{"Parameters": 6}] if array else [{}] * 6))
    pilot = house.pilot()

    def right():
        answer = ask(house, "1-6").json
        rows = house.get("/v1/jobs?all=true")["jobs"]
        found = {name: sum(row["state"] == name for row in rows) for name in {row["state"] for row in rows}}
        assert answer["states"] == found
        return found

    with Waiting(house, "1-6").house.core.waits.place("test"):
        right()
        run_one(house, pilot)
        right()
        house.control("hold", 3, 4)
        right()
        house.control("kill", 4, 5)
        right()
        house.control("release", 3)
        house.control("reschedule", 4)
        right()
        (job,) = house.claim(pilot)
        right()
        house.control("kill", job["id"])
        right()
        house.control("delete", 1, 6)
        assert right().keys() <= {"Deleted", "Waiting"}


def test_any_is_answered_by_the_first(house):
    house.submitted({"Parameters": 3})
    waiting, pilot = Waiting(house, "1-3", query="&any=true"), house.pilot()
    assert waiting.waits
    done = run_one(house, pilot)
    answer = waiting.answer()
    assert (answer["over"], answer["left"], [one["id"] for one in answer["jobs"]]) == (True, 2, [done])


def test_a_thousand_that_wait_for_the_same_share_one_count(house):
    house.submitted({"Parameters": 1_000})
    house.core.waits.limits = WaitLimits(waits=2_000)
    waiting = [Waiting(house, "1-1000") for _ in range(30)]
    assert len(house.core.waits.followed.watches) == 1
    house.control("kill", 1, 1_000)
    assert [one.answer()["states"] for one in waiting] == [{"Killed": 1_000}] * 30


def test_a_job_that_becomes_held_answers_and_held_may_end_the_wait(house):
    house.submitted({}, {})
    first, until_held = Waiting(house, "1-2"), Waiting(house, "1-2", query="&held=true")
    house.control("hold", 1)
    answer = first.answer()
    assert (answer["over"], answer["states"]) == (False, {"Held": 1, "Waiting": 1})
    assert until_held.answer()["over"] is False
    # It is known now.
    again = Waiting(house, "1-2", query="&held=true")
    assert again.waits
    house.control("kill", 2)
    answer = again.answer()
    assert (answer["over"], answer["left"], answer["states"]) == (True, 1, {"Held": 1, "Killed": 1})


@pytest.mark.stores
def test_jobs_that_no_queue_can_run_are_held_and_so_are_those_that_none_can_run_any_more(house):
    house.submitted({"CPUTime": 10**7}, hold_if_impossible=True)
    house.submitted({"Parameters": 2})
    assert ask(house, "1-3").json["states"] == {"Held": 1, "Waiting": 2}
    waiting = Waiting(house, "2-3")
    configure(house, '[site.North]\n[site.North.ce.c.queue.q]\nCPUTime = 10\n[group.physics]\nvo = "lab"\n')
    assert waiting.answer()["states"] == {"Held": 2}


def test_time_is_over(house):
    house.submitted({})
    answer = ask(house, "1").json
    assert answer == {"over": False, "left": 1, "states": {"Waiting": 1}, "unknown": 0, "failed": None, "jobs": [],
                      "more": False}  # fmt: skip


@pytest.mark.parametrize(
    "jobs", ["", "0", "x", "3-1", "1,,2", "1-", "-1", "1 2", "12345678901234567", "1-2-3"]
)
def test_what_is_no_list_of_jobs_is_refused(house, jobs):
    house.submitted({})
    assert ask(house, jobs.replace(" ", "%20")).code == "invalid-request"


@pytest.mark.stores
def test_a_thousand_ranges_and_no_more(house):
    house.submitted(*[{}] * 3)
    assert ask(house, ",".join(["1-2", "3"] * 500)).json["states"] == {"Waiting": 3}
    assert ask(house, ",".join(["1-2", "3"] * 500 + ["1"])).code == "invalid-request"


@pytest.mark.stores
def test_jobs_of_others_and_jobs_that_are_not_there(house):
    house.submitted({}, {})
    house.submitted({}, token="bob")
    house.submitted({})
    assert ask(house, "3").code == ask(house, "17").code == ask(house, "1,17").code == "not-found"
    assert ask(house, "1-4").json["states"] == {"Waiting": 3}
    assert ask(house, "1-4", token="admin").json["states"] == {"Waiting": 4}
    waiting = Waiting(house, "1-4", query="&any=true")
    house.control("kill", 3, token="bob")
    assert waiting.waits
    house.control("kill", 4)
    assert [one["id"] for one in waiting.answer()["jobs"]] == [4]


def test_too_many_that_wait(house):
    house.submitted({})
    house.core.waits.limits = WaitLimits(waits=2, waits_in_all=3)
    waiting = [Waiting(house, "1"), Waiting(house, "1")]
    refused = ask(house, "1")
    assert (refused.code, "You have 2 requests" in refused.json["error"]["message"]) == ("too-often", True)
    waiting.append(Waiting(house, "1", "admin"))
    house.user("eve")
    refused = ask(house, "1", "admin")
    words = "There are 3 requests that wait for jobs, of all users together."
    assert (refused.code, refused.json["error"]["message"]) == ("too-often", words)
    house.control("kill", 1)
    for one in waiting:
        assert one.answer()["over"]
    assert ask(house, "1").status == 200


def test_a_client_that_goes_away_is_forgotten(house):
    house.submitted({})
    waiting = Waiting(house, "1")
    waiting.connection.gone.set()
    house.run(waiting.task)
    assert (of_all(house), waiting.connection.sent) == ([], [])


def test_the_end_of_the_server_answers_all(house):
    house.submitted({})
    waiting = Waiting(house, "1")
    house.core.waits.close()
    house.run(waiting.task)
    assert waiting.connection.answer().code == "unavailable"
    assert ask(house, "1").code == "unavailable"


def test_nothing_is_kept_while_nobody_waits(house):
    house.submitted({})
    waits, pilot = house.core.waits, house.pilot()
    assert not house.core.journal.follows
    ask(house, "1")
    assert house.core.journal.follows
    for of in waits._of.values():
        of.used -= 1_000
    house.loop.call_soon(waits._forget_idle)
    house.run(asyncio.sleep(0))
    assert (waits._of, waits.followed.watches, house.core.journal.follows) == ({}, {}, False)
    run_one(house, pilot)
    assert ask(house, "1").json["states"] == {"Done": 1}


@contextmanager
def events(house, jobs, token="ann"):
    """A stream under way: (its connection, what reads the events that came since)."""
    task, connection = house.open("GET", f"/v1/jobs/events?jobs={jobs}", token=token)
    taken = 0

    async def some():
        while not task.done() and len(connection.sent) < taken + 2:
            connection._said.clear()
            await connection._said.wait()

    def read():
        nonlocal taken
        house.run(some())
        text = b"".join(part["body"] for part in connection.sent[taken + 1 :]).decode()
        taken = len(connection.sent) - 1
        return [
            (one.split("\n")[0][7:], json.loads(one.split("\ndata: ")[1]))
            for one in text.split("\n\n")
            if one[:1] == "e"
        ]

    yield connection, read
    connection.gone.set()
    house.run(task)


def test_a_stream_begins_with_the_states_and_goes_on_with_the_changes(house):
    house.submitted({"Parameters": 3})
    pilot = house.pilot()
    with events(house, "1-2") as (connection, read):
        assert read() == [("states", {"states": {"Waiting": 2}, "left": 2, "unknown": 0})]
        (start, _) = connection.sent
        assert (b"content-type", b"text/event-stream") in start["headers"]
        house.control("kill", 2, 3)
        assert read() == [("change", {"first": 2, "last": 2, "old": "Waiting", "new": "Killed"})]
        run_one(house, pilot, "Failed", cause="exit", exit_code=9)
        found = read()
        while len(found) < 3:
            found += read()
        assert found[-1] == (
            "change", {"first": 1, "last": 1, "old": "Running", "new": "Failed", "cause": "exit", "exit_code": 9}
        )  # fmt: skip
    assert house.core.waits._streams.total() == 0


@pytest.mark.slow
def test_a_slow_reader_loses_changes_and_is_told_how_the_jobs_stand(house):
    house.submitted(*[{}] * 700)
    with events(house, "1-700") as (connection, read):
        read()
        connection._takes.clear()
        for action in ("hold", "release", "hold", "release"):
            house.control(action, 1, 700)
        connection.take_again()
        found = read()
        while found[-1][0] != "resync":
            found += read()
        assert found[-1] == ("resync", {"states": {"Waiting": 700}, "left": 700, "unknown": 0})


def test_streams_have_limits_of_their_own(house):
    house.submitted({})
    house.core.waits.limits = WaitLimits(streams=1)
    with events(house, "1") as (_, read):
        read()
        assert house.call("GET", "/v1/jobs/events?jobs=1", token="ann").code == "too-often"
        assert ask(house, "1").status == 200
    assert house.call("GET", "/v1/jobs/events?jobs=17", token="ann").code == "not-found"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_counted_twice_between_the_start_and_the_changes(house, seed):
    """Jobs change while others begin to wait for them; the snapshots are read in a thread of their own meanwhile."""
    rng = random.Random(seed)
    house.submitted({"Parameters": 150})
    house.submitted(*[{}] * 50)
    core, whose = house.core, lambda *_: True

    def change():
        first = rng.randint(1, 200)
        action = rng.choice(["hold", "release", "kill", "reschedule"])
        return core.commands.run(
            Control(core.live, action, (range(first, min(201, first + rng.randint(1, 30))),), "", whose)
        )

    async def everything():
        tasks = []
        for number in range(300):
            tasks.append(asyncio.ensure_future(change()))
            if number % 6 == 0:
                first = rng.randint(1, 190)
                path = f"/v1/jobs/wait?jobs={first}-{first + rng.randint(0, 10)}&seconds=0"
                tasks.append(house.open("GET", path, token="ann")[0])
            if number % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    house.run(everything())
    assert len(core.waits.followed.watches) > 20
    for watch in core.waits.followed.watches.values():
        assert +watch.states == count_states(core.reader, watch.ranges).states


@pytest.mark.stores
def test_jobs_that_were_purged_had_ended_but_how_is_not_known(house):
    finished(house, {}, {}, {})
    finished(house)
    waiting_for = house.submitted({})
    waiting = Waiting(house, "1-5")
    forget(house, 1, 2, 4)
    house.control("kill", waiting_for)
    # It saw them end.
    assert waiting.answer()["states"] == {"Done": 4, "Killed": 1}
    for jobs, unknown, known in (("1-3", 2, {"Done": 1}), ("3,4", 1, {"Done": 1}), ("4,5", 1, {"Killed": 1})):
        answer = ask(house, jobs).json
        assert (answer["over"], answer["unknown"], answer["states"], answer["left"]) == (
            True,
            unknown,
            known,
            0,
        )
    assert ask(house, "4").json["error"]["message"] == "Job 4 is no longer known."


@pytest.mark.stores
def test_a_database_that_fails_refuses_and_is_asked_again(house, monkeypatch):
    house.submitted({})

    def fails(*_):
        raise Unavailable("The database is away.")

    with monkeypatch.context() as patch:
        patch.setattr("lodesman.server.live.waits.count_states", fails)
        assert ask(house, "1").code == "unavailable"
    assert ask(house, "1").json["states"] == {"Waiting": 1}


def test_ranges_of_one_user_and_of_all_are_limited(house, monkeypatch):
    house.submitted(*[{}] * 9)
    monkeypatch.setattr("lodesman.server.live.waits._MOST_PARTS_OF_ONE", 3)
    monkeypatch.setattr("lodesman.server.live.waits._MOST_PARTS_IN_ALL", 5)
    mine = Waiting(house, "1,3")
    assert ask(house, "5,7").code == "too-often"
    assert ask(house, "5,7", "admin").status == 200
    # Counts that are not asked for any more make room.
    assert ask(house, "1,5,9", "admin").status == 200
    assert len(house.core.waits.followed.watches) == 2
    theirs = Waiting(house, "1,5,9", "admin")
    assert ask(house, "7").code == "unavailable"
    house.control("kill", 1, 9)
    assert mine.answer()["over"]
    assert theirs.answer()["over"]
    assert ask(house, "7").status == 200
