"""Pilots that say nothing for long: their jobs are Stalled, and what becomes of them then; and output being handed in."""

import pytest
from msgspec.structs import asdict
from tests.conftest import query_plan

from lodesman.server.store.journal import Change
from lodesman.server.store.read.jobs import events_of_job
from lodesman.server.store.read.pilots import pilots_with_stalled_jobs
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.report import note_heartbeat, note_silence
from lodesman.wire.jobs import Event, NotChanged
from lodesman.wire.pilots import ReportResult
from lodesman.wire.service import RepairCounts
from lodesman.wire.vocabulary import PilotState

CLEAN = asdict(RepairCounts())


def running(house, count=1, **more):
    """Jobs that run in one pilot: (pilot, what it claimed)."""
    house.submit(count, **more)
    pilot = house.pilot()
    claimed = house.claim(pilot, count)
    for one in claimed:
        house.report(pilot, one, "Running", cause="")
    return pilot, claimed


def last_event(house, job_id):
    return events_of_job(house.reader, house.job(job_id))[-1]


# --- Stalled ----------------------------------------------------------------------------------------------


def test_what_runs_in_a_silent_pilot_is_stalled_and_says_since_when(house):
    pilot, _ = running(house)
    house.clock = 1_400.0
    assert house.silence(pilot, since=1_050.5) == 1
    found = house.job(1)
    assert (found.state, found.since, found.pilot) == ("Stalled", 1_400.0, pilot)
    assert found.reason == "its pilot has said nothing since 1970-01-01 00:17:30 UTC"
    assert last_event(house, 1) == Event(
        1_400.0, "Stalled", attempt=1, silent_since=1_050.5, reason=found.reason
    )
    assert house.counts() == {"Stalled": 1}
    assert house.reconcile() == CLEAN


def test_what_it_has_claimed_and_not_started_stays_matched(house):
    house.submit(2)
    pilot = house.pilot()
    first, _ = house.claim(pilot, 2)
    house.report(pilot, first, "Running", cause="")
    assert house.silence(pilot) == 1
    assert house.counts() == {"Stalled": 1, "Matched": 1}


def test_only_the_pilots_that_are_silent_and_there_are_concerned(house):
    mute, _ = running(house)
    busy, _ = running(house)
    gone, _ = running(house)
    house.end_pilot(gone, PilotState.LOST)
    assert house.silence(mute, gone) == 1
    assert [house.state(job) for job in (1, 2, 3)] == ["Stalled", "Running", "Waiting"]
    assert house.live.pilots.silent == {mute}
    assert busy not in house.live.pilots.silent


def test_silence_is_noted_once(house):
    pilot, _ = running(house)
    assert (house.silence(pilot), house.silence(pilot)) == (1, 0)
    assert house.events(1).count("Stalled") == 1


def test_a_pilot_that_speaks_again_has_its_jobs_back(house):
    pilot, claimed = running(house, 3)
    house.silence(pilot)
    assert house.hear(pilot, *claimed) == 3
    assert house.counts() == {"Running": 3}
    assert house.events(1)[-2:] == ["Stalled", "Running"]
    assert (house.job(1).reason, house.job(1).pilot) == ("", pilot)
    assert house.live.pilots.silent == set()
    # As often as it happens.
    house.silence(pilot)
    house.hear(pilot, *claimed)
    assert house.events(1)[-4:] == ["Stalled", "Running"] * 2


def test_a_job_stays_stalled_until_a_heartbeat_names_it(house):
    pilot, (first, second) = running(house, 2)
    house.silence(pilot)
    assert house.hear(pilot, first) == 1
    assert [house.state(job) for job in (1, 2)] == ["Running", "Stalled"]
    assert house.live.pilots.silent == {pilot}
    assert house.hear(pilot, first, second) == 1
    assert (house.counts(), house.live.pilots.silent) == ({"Running": 2}, set())


def test_a_word_about_the_jobs_of_another_changes_nothing(house):
    mute, claimed = running(house)
    other, _ = running(house)
    house.silence(mute)
    assert house.hear(other, *claimed, completing=claimed) == 0
    assert house.state(1) == "Stalled"


def test_a_word_about_an_earlier_attempt_changes_nothing(house):
    pilot, (old,) = running(house)
    house.report(pilot, old, "Released", cause="input")
    (new,) = house.claim(pilot)
    house.report(pilot, new, "Running", cause="")
    house.silence(pilot)
    assert house.hear(pilot, old) == 0
    assert house.hear(pilot, new) == 1


def test_a_pilot_without_jobs_that_was_silent_is_remembered_no_longer_than_it_is(house):
    pilot = house.pilot()
    assert house.silence(pilot) == 0
    assert house.live.pilots.silent == {pilot}
    assert house.hear(pilot) == 0
    assert house.live.pilots.silent == set()
    house.silence(pilot)
    house.end_pilot(pilot, PilotState.DONE)
    assert house.live.pilots.silent == set()


@pytest.mark.parametrize(
    ("state", "cause", "after"), [("Done", "ok", "Done"), ("Failed", "exit", "Failed"), ("Released", "input", "Waiting")]
)  # fmt: skip
def test_a_report_about_a_stalled_job_counts(house, state, cause, after):
    pilot, (claimed,) = running(house)
    house.silence(pilot)
    assert house.report(pilot, claimed, state, cause=cause) == ReportResult(1, 1, accepted=True)
    assert house.state(1) == after
    assert house.reconcile() == CLEAN


def test_a_report_that_it_runs_ends_the_stall(house):
    pilot, (claimed,) = running(house)
    house.silence(pilot)
    house.report(pilot, claimed, "Running", cause="")
    assert house.state(1) == "Running"


def test_the_end_of_the_lease_sends_a_stalled_job_back_and_its_success_still_counts(house):
    pilot, (claimed,) = running(house)
    house.silence(pilot)
    assert house.end_pilot(pilot, cause="lease-expired") == 1
    assert (house.state(1), house.job(1).cause) == ("Waiting", "lease-expired")
    assert house.events(1)[-2:] == ["Stalled", "Waiting"]
    assert house.live.pilots.silent == set()
    assert house.report(pilot, claimed).reason == "late"
    assert house.state(1) == "Done"


# --- what people do to stalled jobs, and to those that are completing ---------------------------------------


def stalled(house):
    pilot, claimed = running(house)
    house.silence(pilot)
    return pilot, claimed


def completing(house):
    pilot, claimed = running(house)
    house.hear(pilot, completing=claimed)
    return pilot, claimed


@pytest.fixture(params=[stalled, completing])
def bring(request):
    return request.param


def test_a_kill_ends_it_now_and_orders_its_pilot(house, bring):
    pilot, (claimed,) = bring(house)
    assert house.control("kill", 1).changed == 1
    assert (house.state(1), house.live.pilots.stop_orders) == ("Killed", {pilot: {(1, 1): "because"}})
    # The pilot speaks again, and obeys.
    assert house.hear(pilot, claimed, completing=[claimed]) == 0
    assert house.state(1) == "Killed"
    house.report(pilot, claimed, "Failed", cause="killed")
    assert (house.state(1), house.live.pilots.stop_orders) == ("Killed", {pilot: {}})


def test_a_kill_that_never_reaches_the_pilot_holds(house, bring):
    pilot, _ = bring(house)
    house.control("kill", 1)
    house.end_pilot(pilot, cause="lease-expired")
    assert house.state(1) == "Killed"


def test_it_cannot_be_held(house, bring):
    _, (claimed,) = bring(house)
    state = house.state(1)
    out = house.control("hold", claimed.job_id)
    assert (out.changed, out.examples) == (0, [NotChanged(1, f"it is {state}")])


def test_a_reschedule_waits_for_the_end_of_the_attempt(house, bring):
    pilot, (claimed,) = bring(house)
    state = house.state(1)
    assert house.control("reschedule", 1).changed == 1
    assert house.state(1) == state
    assert house.control("reschedule", 1).examples[0].reason.startswith("it is being stopped already")
    house.report(pilot, claimed, "Done")
    assert (house.state(1), house.job(1).reason) == ("Waiting", "rescheduled: because")


def test_a_reschedule_that_never_reaches_the_pilot_goes_back_with_the_lease(house, bring):
    pilot, _ = bring(house)
    house.control("reschedule", 1)
    house.end_pilot(pilot, cause="lease-expired")
    assert (house.state(1), house.job(1).reason) == ("Waiting", "rescheduled: because")


def test_it_cannot_be_deleted_or_released(house, bring):
    bring(house)
    assert house.control("delete", 1).changed == house.control("release", 1).changed == 0


def test_a_job_without_a_live_attempt_is_found_by_the_reconciler(house, bring):
    bring(house)
    house.writer.execute("UPDATE attempt SET ended_at = 5, outcome = 'Done'")
    assert house.reconcile() == {**CLEAN, "active_without_attempt": 1}
    assert house.state(1) == "Done"


# --- Completing --------------------------------------------------------------------------------------------


def test_what_is_handed_in_is_completing_until_its_end_is_reported(house):
    pilot, (first, second) = running(house, 2)
    assert house.hear(pilot, second, completing=[first]) == 1
    assert [house.state(job) for job in (1, 2)] == ["Completing", "Running"]
    assert last_event(house, 1).attempt == 1
    assert house.hear(pilot, second, completing=[first]) == 0
    house.report(pilot, first)
    assert house.events(1)[1:] == ["Matched", "Running", "Completing", "Done"]


def test_nothing_leads_back_from_completing_to_running(house):
    pilot, claimed = completing(house)
    assert house.hear(pilot, *claimed) == 0
    assert house.report(pilot, claimed[0], "Running", cause="").accepted
    assert house.state(1) == "Completing"


def test_what_never_ran_as_far_as_is_known_stays_matched(house):
    """Its input is missing, say: its end is on its way, and there is no output."""
    house.submit()
    pilot = house.pilot()
    claimed = house.claim(pilot)
    assert house.hear(pilot, completing=claimed) == 0
    assert house.state(1) == "Matched"


def test_a_word_that_is_overtaken_by_the_report_changes_nothing(house):
    pilot, claimed = running(house)
    house.report(pilot, claimed[0])
    assert house.hear(pilot, completing=claimed) == 0
    assert house.state(1) == "Done"


def test_silence_while_the_output_is_handed_in(house):
    pilot, claimed = completing(house)
    assert house.silence(pilot) == 1
    assert house.hear(pilot, completing=claimed) == 1
    assert house.events(1)[-3:] == ["Completing", "Stalled", "Completing"]


# --- restarts and rollbacks --------------------------------------------------------------------------------


def test_after_a_restart_the_next_word_ends_the_stall(house):
    pilot, claimed = running(house)
    other, more = running(house)
    house.silence(pilot)
    house.restart()
    assert (house.live.pilots.silent, house.state(1)) == ({pilot}, "Stalled")
    assert house.hear(pilot, *claimed) == 1
    assert house.counts() == {"Running": 2}
    house.restart()
    assert house.live.pilots.silent == set()
    assert house.report(other, more[0]).accepted


@pytest.mark.sqlite
def test_stalled_jobs_are_found_among_the_live_attempts_alone(house):
    steps = query_plan(house.reader, lambda: pilots_with_stalled_jobs(house.reader))
    assert any("attempt_live" in step for step in steps)
    assert not any(step.startswith("SCAN j") for step in steps)


def test_what_is_rolled_back_leaves_no_trace_in_memory(house):
    pilot, claimed = running(house)

    def rolled_back(command):
        tx = Transaction(house.writer, 1_000.0)
        house.writer.begin()
        command.apply(tx)
        house.writer.roll_back()
        tx.roll_back_memory()

    rolled_back(Change(note_silence, house.live, {pilot: 1.0}))
    assert house.live.pilots.silent == set()
    house.silence(pilot)
    rolled_back(Change(note_heartbeat, house.live, pilot, {(1, 1): False}))
    assert (house.live.pilots.silent, house.state(1)) == ({pilot}, "Stalled")
    assert house.hear(pilot, *claimed) == 1


def test_a_stalled_row_keeps_its_pilot(house):
    pilot, claimed = stalled(house)
    row = house.reader.execute("SELECT pilot_id FROM job").fetchone()
    house.hear(pilot, completing=claimed)
    assert row == house.reader.execute("SELECT pilot_id FROM job").fetchone() == (pilot,)
