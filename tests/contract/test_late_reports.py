"""Reports that come after their attempt has ended: which still count, what is kept of the others, and who may report."""

import logging

import pytest
from msgspec.structs import replace

from lodesman.base.errors import Unauthorized
from lodesman.server.store.accounts import principal_of
from lodesman.server.store.journal import Change
from lodesman.server.store.read.jobs import attempts_of_job
from lodesman.server.store.sandboxes import may_hand_in, small_output
from lodesman.server.writer.pilots import LATE_SECONDS, hash_token, join_pilot
from lodesman.wire.pilots import ReportResult
from lodesman.wire.vocabulary import PilotState

USED = {"cpu_seconds": 5.0, "wall_seconds": 7.0, "max_rss_mb": 9.0}


def lost(house, cause="lease-expired", *, runs=False, **more):
    """A job whose pilot fell silent: (pilot, what it had)."""
    house.submit(**more)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    if runs:
        house.report(pilot, claimed, "Running")
    house.clock += 100
    house.end_pilot(pilot, cause=cause)
    return pilot, claimed


def may_upload(house, pilot, claimed):
    return may_hand_in(house.reader, pilot, claimed.job_id, claimed.attempt)


def attempts(house, job_id=1):
    return attempts_of_job(house.reader, house.job(job_id))


# --- what counts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["lease-expired", "pilot-lost"])
def test_a_late_success_counts_with_all_its_report(house, cause):
    pilot, claimed = lost(house, cause)
    assert may_upload(house, pilot, claimed)
    house.upload(pilot, claimed, "ab", 3)
    told = house.report(pilot, claimed, exit_code=0, output_sha256="ab", ended=900.0, **USED)
    assert (told.accepted, told.reason) == (True, "late")
    found = house.job(1)
    assert (found.state, found.outcome, found.cause, found.output_sha256, found.cpu_seconds) == (
        "Done", "Done", "ok", "ab", 5.0,
    )  # fmt: skip
    assert house.reader.execute("SELECT jobs_done FROM pilot WHERE id = ?", (pilot,)).fetchone() == (1,)
    # Its answer may get lost, too.
    assert house.report(pilot, claimed) == ReportResult(1, 1, accepted=True, reason="already ended")
    assert not may_upload(house, pilot, claimed)
    assert house.claim(house.pilot()) == []


def test_the_output_that_comes_with_a_late_success_is_kept(house):
    pilot, claimed = lost(house)
    assert house.report(pilot, claimed, output_sha256="ab", output=b"abc").reason == "late"
    assert small_output(house.reader, house.job(1).last_attempt) == b"abc"


def test_a_late_success_counts_when_there_were_to_be_no_more_attempts(house):
    pilot, claimed = lost(house, max_attempts=1, runs=True)
    assert house.state(1) == "Failed"
    assert may_upload(house, pilot, claimed)
    assert house.report(pilot, claimed).reason == "late"
    assert (house.state(1), house.job(1).reason) == ("Done", "")
    assert house.events(1)[-2:] == ["Failed", "Done"]


def test_a_late_success_of_a_job_that_is_held_by_now(house):
    pilot, claimed = lost(house)
    house.control("hold", 1)
    assert house.report(pilot, claimed).reason == "late"
    assert house.counts() == {"Done": 1}
    assert house.live.queues.index.waiting(1) == 0


def test_a_late_success_counts_after_a_restart(house):
    pilot, claimed = lost(house)
    house.restart()
    assert house.report(pilot, claimed).accepted
    house.restart()
    assert house.counts() == {"Done": 1}
    assert house.claim(house.pilot()) == []


def test_several_late_successes_in_one_request(house):
    house.submit(3)
    pilot = house.pilot()
    held = house.claim(pilot, 3)
    house.end_pilot(pilot)
    for claimed in held:
        assert house.report(pilot, claimed).reason == "late"
    assert house.counts() == {"Done": 3}
    live = house.reader.execute("SELECT count(*) FROM attempt WHERE ended_at IS NULL").fetchone()
    assert live == (0,)


# --- what does not ----------------------------------------------------------------------------------------


def test_what_comes_when_the_next_attempt_has_begun_is_refused_noted_and_logged(house, caplog):
    pilot, claimed = lost(house)
    other = house.pilot()
    (again,) = house.claim(other)
    assert not may_upload(house, pilot, claimed)
    with caplog.at_level(logging.WARNING):
        told = house.report(pilot, claimed, **USED)
    assert (told.accepted, told.reason) == (False, "stale attempt")
    (line,) = [one for one in caplog.records if "too late" in one.message]
    assert (line.job, line.attempt, line.pilot, line.job_attempt) == (1, 1, pilot, 2)
    first, second = attempts(house)
    assert (first.outcome, first.cause, first.cpu_seconds) == ("Released", "lease-expired", 5.0)
    assert first.message == "Done was reported when it no longer counted"
    assert (house.state(1), second.outcome) == ("Matched", None)
    assert house.report(other, again).accepted


def test_a_refused_report_is_noted_once(house):
    pilot, claimed = lost(house)
    house.claim(house.pilot())
    house.report(pilot, claimed, "Failed", cause="exit", **USED)
    house.report(pilot, claimed, **{**USED, "cpu_seconds": 99.0})
    first, _ = attempts(house)
    assert (first.message, first.cpu_seconds) == ("Failed was reported when it no longer counted", 5.0)


def test_a_late_failure_changes_nothing_but_is_noted(house):
    pilot, claimed = lost(house)
    told = house.report(pilot, claimed, "Failed", cause="exit", exit_code=1, **USED)
    assert (told.accepted, told.reason) == (False, "already ended")
    assert house.state(1) == "Waiting"
    assert attempts(house)[0].message.startswith("Failed was reported")
    # The same pilot cannot take it back.
    assert len(house.claim(house.pilot())) == 1


@pytest.mark.parametrize("action", ["kill", "delete"])
def test_a_job_that_its_owner_ended_meanwhile_stays_so(house, action):
    pilot, claimed = lost(house)
    house.control(action, 1)
    before = house.state(1)
    assert not may_upload(house, pilot, claimed)
    assert house.report(pilot, claimed).accepted is False
    assert house.state(1) == before


def test_the_end_that_a_pilot_reported_is_final(house):
    """Failed with an exit code, then rescheduled: a second word about the same attempt does not make it Done."""
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause="exit", exit_code=1)
    house.control("reschedule", 1)
    assert house.report(pilot, claimed).accepted is False
    assert house.state(1) == "Waiting"
    assert house.report(pilot, claimed, "Failed", cause="exit", exit_code=1).accepted


def test_a_report_whose_answer_was_lost_is_accepted_even_if_the_next_attempt_has_begun(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Released", cause="pilot-shutdown")
    house.claim(house.pilot())
    assert house.report(pilot, claimed, "Released", cause="pilot-shutdown").accepted
    assert house.state(1) == "Matched"


def test_another_pilot_s_earlier_attempt_is_not_spoken_of(house):
    lost(house)
    other = house.pilot()
    (again,) = house.claim(other)
    told = house.report(other, type(again)(1, 1, again.template_id, again.submission_id))
    assert told.reason == "not your attempt"
    assert attempts(house)[0].message in ("", None)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_attempts_that_never_were(house, number):
    pilot, claimed = lost(house)
    told = house.report(pilot, replace(claimed, attempt=number))
    assert (told.accepted, told.reason) == (False, "no such attempt")


def test_the_attempt_of_each_number_is_found(house):
    house.submit(max_attempts=9)
    pilots = []
    for _ in range(4):
        pilots.append(house.pilot())
        (claimed,) = house.claim(pilots[-1])
        house.end_pilot(pilots[-1])
    for number, pilot in enumerate(pilots[:-1], 1):
        assert house.report(pilot, replace(claimed, attempt=number)).reason == "stale attempt"
    assert [one.message or "" for one in attempts(house)] == [
        "Done was reported when it no longer counted"
    ] * 3 + [""]  # fmt: skip


# --- unknown is not zero ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["lease-expired", "pilot-lost"])
def test_what_a_lost_payload_used_is_not_known(house, cause):
    lost(house, cause)
    (one,) = attempts(house)
    assert (one.cpu_seconds, one.wall_seconds, one.max_rss_mb) == (None, None, None)


# --- the token of a lost pilot ----------------------------------------------------------------------------


def tokens(house, pilot):
    rows = house.reader.execute("SELECT kind, expires_at FROM token WHERE pilot_id = ?", (pilot,))
    return sorted(rows)


def test_the_token_of_a_lost_pilot_is_good_for_some_days_and_its_join_token_is_not(house):
    pilot, _ = lost(house)
    assert tokens(house, pilot) == [("pilot", house.clock + LATE_SECONDS)]
    with pytest.raises(Unauthorized, match="unknown"):
        house.do(Change(join_pilot, house.live, "stamp1-join", "nonce", {}))


@pytest.mark.parametrize("state", [PilotState.DONE, PilotState.ABORTED])
def test_a_pilot_that_left_needs_no_token(house, state):
    house.submit()
    pilot = house.pilot()
    house.claim(pilot)
    house.end_pilot(pilot, state)
    assert tokens(house, pilot) == []


def test_a_pilot_that_was_lost_without_jobs_has_no_report(house):
    pilot = house.pilot()
    house.end_pilot(pilot)
    assert tokens(house, pilot) == []


def test_the_principal_of_a_lost_pilot_expires(house):
    house.submit()
    pilot = house.pilot()
    joined = house.do(Change(join_pilot, house.live, "stamp1-join", "nonce", {"cores": 8}))
    house.claim(pilot)
    digest = hash_token(joined.token)
    assert principal_of(house.reader, digest).expires_at is None
    house.end_pilot(pilot)
    assert principal_of(house.reader, digest).expires_at == house.clock + LATE_SECONDS


@pytest.mark.parametrize(
    ("state", "cause", "done"),
    [
        ("Done", "ok", 1),
        ("Failed", "exit", 1),
        ("Released", "pilot-shutdown", 0),
        ("Failed", "input", 0),
        ("Failed", "never-started", 0),
    ],
)
def test_a_pilot_counts_the_jobs_that_ended_in_it(house, state, cause, done):
    house.submit(1, max_attempts=1)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, state, cause=cause)
    assert house.reader.execute("SELECT jobs_done FROM pilot WHERE id = ?", (pilot,)).fetchone() == (done,)


@pytest.mark.parametrize("action", ["kill", "reschedule"])
def test_a_pilot_does_not_count_a_job_that_was_stopped(house, action):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Running", cause="")
    house.control(action, 1)
    house.report(pilot, claimed, "Done")
    assert house.reader.execute("SELECT jobs_done FROM pilot WHERE id = ?", (pilot,)).fetchone() == (0,)
