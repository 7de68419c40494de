"""Pilots that fall silent and speak again, and output that is being handed in: over HTTP, and what users see of it."""

import pytest

from lodesman.base.errors import Unavailable
from lodesman.server.live.leases import look_at_clock
from lodesman.server.store.journal import Change
from lodesman.server.writer.report import note_heartbeat, note_silence

ENTRY = {"id": 1, "attempt": 1}


def beat(house, pilot, *entries):
    answer = house.call("POST", "/v1/pilots/heartbeat", {"jobs": list(entries)}, token=pilot)
    assert answer.status == 200, answer.body
    return answer.json


def running(house):
    """Job 1 runs in a pilot."""
    house.submitted()
    pilot = house.pilot()
    (job,) = house.claim(pilot)
    house.report(pilot, job, "Running")
    return pilot


def fall_silent(house, seconds=301.0):
    """Time passes without a heartbeat; then the daemon checks the leases."""
    house.ticks += seconds
    house.now += seconds
    return house.do(Change(note_silence, house.core.live, house.core.sessions.newly_silent()))


def state(house, job=1):
    return house.get(f"/v1/jobs/{job}")["state"]


@pytest.fixture
def posted(house, monkeypatch):
    """The commands that heartbeats post."""
    commands = []
    post = house.core.commands.run

    async def command(one, **how):
        commands.append(one)
        return await post(one, **how)

    monkeypatch.setattr(house.core.commands, "run", command)
    return commands


def test_a_silent_pilot_stalls_its_jobs_and_a_heartbeat_brings_them_back(house):
    pilot = running(house)
    assert fall_silent(house) == 1
    found = house.get("/v1/jobs/1")
    assert found["state"] == "Stalled"
    assert found["reason"] == "its pilot has said nothing since 1970-01-12 13:46:40 UTC"
    assert found["events"][-1]["silent_since"] == 1_000_000.0
    beat(house, pilot, ENTRY)
    assert [event["event"] for event in house.get("/v1/jobs/1")["events"]][-2:] == ["Stalled", "Running"]
    assert house.core.live.pilots.silent == set()


def test_a_stalled_job_is_alive_in_everything_that_counts(house):
    running(house)
    fall_silent(house)
    assert [job["id"] for job in house.get("/v1/jobs?state=Stalled")["jobs"]] == [1]
    (row,) = house.get("/v1/jobs/counts")["counts"]
    assert (row["state"], row["jobs"]) == ("Stalled", 1)
    assert house.get("/v1/usage", "admin")["states"] == {"Stalled": 1}
    text = house.call("GET", "/metrics", token="admin").body.decode()
    assert 'lodesman_jobs{group="physics",state="Stalled"} 1.0' in text
    assert "does not wait" in house.get("/v1/jobs/1/why")["summary"]


def test_pilots_that_were_not_silent_cost_the_writer_nothing(house, posted):
    pilot = running(house)
    posted.clear()
    for _ in range(3):
        beat(house, pilot, ENTRY)
    house.ticks += 299.0
    assert house.core.sessions.newly_silent() == {}
    beat(house, pilot, ENTRY, {"id": 7, "attempt": 1, "state": "some new word"})
    assert posted == []


def test_any_request_keeps_a_pilot_from_falling_silent(house):
    pilot = running(house)
    house.ticks += 200.0
    house.claim(pilot)
    house.ticks += 200.0
    assert house.core.sessions.newly_silent() == {}


def test_a_pilot_that_uploads_is_completing_and_reports_it_once(house, posted):
    pilot = running(house)
    posted.clear()
    for _ in range(3):
        beat(house, pilot, {**ENTRY, "state": "completing"})
    assert [one.change for one in posted] == [note_heartbeat]
    assert state(house) == "Completing"
    house.report(pilot, ENTRY, "Done")
    posted.clear()
    beat(house, pilot)
    assert (posted, house.core.sessions.hear(1).completing) == ([], frozenset())
    assert [event["event"] for event in house.get("/v1/jobs/1")["events"]][-2:] == ["Completing", "Done"]


def test_each_attempt_that_a_pilot_uploads_is_reported(house, posted):
    pilot = running(house)
    house.submitted()
    (second,) = house.claim(pilot)
    house.report(pilot, second, "Running")
    posted.clear()
    beat(house, pilot, {**ENTRY, "state": "completing"}, {"id": 2, "attempt": 1})
    beat(house, pilot, {**ENTRY, "state": "completing"}, {"id": 2, "attempt": 1, "state": "completing"})
    assert [len(one.values[2]) for one in posted] == [2, 2]
    assert [state(house, job) for job in (1, 2)] == ["Completing", "Completing"]


def test_silence_while_it_hands_in(house):
    pilot = running(house)
    beat(house, pilot, {**ENTRY, "state": "completing"})
    fall_silent(house)
    assert state(house) == "Stalled"
    beat(house, pilot, {**ENTRY, "state": "completing"})
    assert state(house) == "Completing"


def test_what_cannot_be_stored_now_is_stored_with_the_next_word(house, monkeypatch):
    """And the heartbeat is answered all the same: an exclusive payload dies without an answer."""
    pilot = running(house)
    fall_silent(house)

    async def full(_):
        raise Unavailable("The disk is full.")

    with monkeypatch.context() as broken:
        broken.setattr(house.core.commands, "run", full)
        assert beat(house, pilot, {**ENTRY, "state": "completing"})["kill"] == []
        assert house.core.sessions.hear(1).completing == frozenset()
    assert state(house) == "Stalled"
    beat(house, pilot, {**ENTRY, "state": "completing"})
    assert state(house) == "Completing"


def test_a_kill_of_a_stalled_job_reaches_the_pilot_when_it_speaks_again(house):
    pilot = running(house)
    fall_silent(house)
    assert house.control("kill", 1, reason="enough").json["changed"] == 1
    assert beat(house, pilot, ENTRY)["kill"] == [{**ENTRY, "reason": "enough"}]
    assert state(house) == "Killed"


def test_the_output_of_a_stalled_job_is_still_live(house):
    pilot = running(house)
    beat(house, pilot, {**ENTRY, "tail": "step 1\n"})
    fall_silent(house)
    logs = house.get("/v1/jobs/1/logs")
    assert (logs["state"], logs["tail"]) == ("Stalled", "step 1\n")


def looks(house, *, clock, ticks=1.0):
    """Time passes by both clocks, and the daemon looks at them."""
    house.now += clock
    house.ticks += ticks
    house.run(look_at_clock(house.core))


@pytest.mark.parametrize(("hours", "words"), [(3.0, "set forward by 3.0 h"), (-5.0, "set back by 5.0 h")])
def test_a_clock_that_is_set_is_reported_once_and_ends_no_lease(house, caplog, hours, words):
    pilot = running(house)
    looks(house, clock=1.0)
    looks(house, clock=1.0 + hours * 3_600)
    looks(house, clock=1.0)
    (warning,) = [one for one in caplog.messages if "clock" in one]
    assert words in warning
    assert "lodesman_clock_jumps_total 1.0" in house.call("GET", "/metrics", token="admin").body.decode()
    assert (house.core.sessions.expired(), house.core.sessions.newly_silent()) == ([], {})
    assert house.do(Change(note_silence, house.core.live, house.core.sessions.newly_silent())) == 0
    beat(house, pilot, ENTRY)
    assert state(house) == "Running"
    # The lease still ends by the clock that never jumps.
    house.ticks += house.core.terms.lease_seconds + 1.0
    assert len(house.core.sessions.expired()) == 1


@pytest.mark.parametrize("clock", [-4.0, 1.0, 5.5])
def test_a_clock_that_drifts_is_not_reported(house, caplog, clock):
    for _ in range(5):
        looks(house, clock=clock)
    assert not [one for one in caplog.messages if "clock" in one]
