"""Jobs that a pilot has ahead: who gets them, what they take of what is free, and how they come back."""

from __future__ import annotations

import pytest
from tests.contract.test_bookings import Limited
from tests.contract.test_claims_together import statements
from tests.contract.test_reconciler import CLEAN

from lodesman.base.errors import Unavailable
from lodesman.server.store.journal import Change
from lodesman.server.store.read.jobs import attempts_of_job
from lodesman.server.store.write.attempts import AttemptReport
from lodesman.server.writer import ahead
from lodesman.server.writer.ahead import HeardPilot, has_much_ahead, others_wait, take_back
from lodesman.server.writer.claim import MOST_AHEAD
from lodesman.server.writer.live import AHEAD_SECONDS
from lodesman.server.writer.report import BEYOND_SIZE, TAKEN_BACK, take_reports
from lodesman.server.writer.sessions import FreeResources

CORES = 8  # of each pilot
FULL = FreeResources(0, 0, 100_000)


def ids(claimed):
    return [one.job_id for one in claimed]


def claim(house, pilot, count=CORES + 1, ahead=0, **more):
    """As a pilot claims over HTTP."""
    return house.claim(pilot, count, ahead=ahead, subtracts=True, **more)


def give_back(house, pilot, claimed):
    """As a pilot does: a time that it does not know is 0."""
    reports = [
        AttemptReport(id=one.job_id, attempt=one.attempt, state="Released", cause="returned", started=0.0)
        for one in claimed
    ]
    return house.do(Change(take_reports, house.live, pilot, reports, cores=CORES))


def ask_if_others_wait(house, pilot):
    return house.do(Change(others_wait, house.live, pilot))


def park(house, pilot, **more):
    """A claim that waits; what it is answered with."""
    answers = []
    house.journal.post(
        house.claim_command(pilot, CORES, wait=True, answer=answers.append, subtracts=True, **more),
        answers.append,
    )
    house.do(house.claim_command(house.pilot("S2", platforms=["none"])))  # the writer works in order
    return answers


class Together:
    """Some commands in one transaction."""

    def __init__(self, *commands):
        self.commands = commands

    def apply(self, tx):
        return [one.apply(tx) for one in self.commands]


# --- who gets them ----------------------------------------------------------------------------------------------------


def test_what_is_ahead_comes_after_what_can_run_now(house):
    house.submit(40)
    pilot = house.pilot()
    assert ids(claim(house, pilot, 3, 20)) == list(range(1, 24))
    assert house.live.pilots.ahead_of(pilot) == 20
    assert house.counts() == {"Matched": 23, "Waiting": 17}
    assert house.reconcile() == CLEAN


def test_none_is_given_ahead_unless_it_is_asked_for(house):
    house.submit(40)
    assert len(claim(house, house.pilot(), 1_000)) == CORES + 1


def test_a_pilot_that_is_full_may_ask_for_jobs_ahead_alone(house):
    house.submit(30)
    pilot = house.pilot()
    claim(house, pilot)
    assert len(claim(house, pilot, 0, 10, free=FULL)) == 10


def test_a_claim_for_jobs_ahead_alone_never_waits(house):
    pilot = house.pilot()
    assert claim(house, pilot, 0, 10, wait=True, free=FULL) == []
    assert len(house.live.parked) == 0


def test_what_is_ahead_fits_the_whole_pilot(house):
    wide = house.submit(3, key=house.key(cores=CORES)).first
    house.submit(3, key=house.key(cores=CORES + 1))
    pilot = house.pilot()
    found = claim(house, pilot, 1, 10, free=FreeResources(2, 16_000, 100_000))
    assert ids(found) == [wide, wide + 1, wide + 2]


def test_what_outlives_the_pilot_is_not_given_ahead(house):
    house.submit(3, key=house.key(norm_cpu_seconds=5_000))
    assert claim(house, house.pilot(), 1, 10, free=FreeResources(8, 16_000, 4_000)) == []


def test_a_pilot_holds_no_more_than_the_most(house):
    house.submit(2_000)
    pilot = house.pilot()
    got = len(claim(house, pilot, 9, 500))
    while more := claim(house, pilot, 0, 500, free=FULL):
        got += len(more)
    assert got == CORES + 64 + MOST_AHEAD
    assert claim(house, pilot, 1) == []


def test_a_claim_that_brought_nothing_gets_what_there_is_when_it_is_made_again(house):
    """Its pilot hung up: it has room for jobs now."""
    pilot = house.pilot()
    assert claim(house, pilot, 0, 10, token="the-same-token") == []
    first = house.submit(3).first
    for _ in range(2):
        assert ids(claim(house, pilot, 2, token="the-same-token")) == [first, first + 1]


def test_the_same_claim_again_gets_the_same(house):
    house.submit(30)
    pilot = house.pilot()
    first = claim(house, pilot, 2, 10, token="the-same-token")
    assert claim(house, pilot, 2, 10, token="the-same-token") == first
    house.restart()
    assert claim(house, pilot, 2, 10, token="the-same-token") == first


@pytest.mark.parametrize("count", [0, 3])
def test_the_same_claim_again_in_the_same_batch_gets_the_same(house, count):
    house.submit(40)
    pilot = house.pilot()
    if not count:
        claim(house, pilot)
    same = [
        house.claim_command(
            pilot, count, ahead=10, token="lost", subtracts=True, free=FULL if not count else None
        )
        for _ in range(2)
    ]
    lost, again = house.do(Together(*same))
    assert ids(again) == ids(lost)
    assert len(again) == count + 10
    assert house.reconcile() == CLEAN


def test_jobs_ahead_count_for_limits(house):
    limited = Limited(house)
    limited.put("{\nname a\nenabled true\nlimit users {*} to slots=5\n}\n")
    house.submit(40)
    pilot = house.pilot()
    assert len(claim(house, pilot, 2, 20)) == 5
    found = claim(house, pilot, 0, 20)
    assert found == []
    assert set(limited.used().values()) == {5}


# --- no more than it ended lately -------------------------------------------------------------------------------------


def test_a_pilot_that_ended_nothing_gets_nothing_ahead(house):
    house.submit(900)
    pilot = house.pilot()
    got = [len(claim(house, pilot, 1, 500, quick=False)) for _ in range(3)]
    assert sum(got) == 3
    assert claim(house, pilot, 0, 500, quick=False) == []


def test_a_pilot_has_no_more_ahead_than_it_ended_lately(house):
    house.submit(900)
    pilot = house.pilot()
    found = claim(house, pilot, quick=False)
    for one in found[:6]:
        house.report(pilot, one)
        house.report(pilot, one)  # its answer was lost
    give_back(house, pilot, found[6:7])
    assert len(claim(house, pilot, 0, 500, free=FULL, quick=False)) == 6
    assert claim(house, pilot, 0, 500, free=FULL, quick=False) == [], "it has them"
    house.report(pilot, found[7], "Failed", cause="exit")
    assert len(claim(house, pilot, 0, 500, free=FULL, quick=False)) == 1
    house.clock += AHEAD_SECONDS + 0.1
    house.report(pilot, found[8])
    assert claim(house, pilot, 0, 500, free=FULL, quick=False) == [], "one end, and seven ahead"


def test_an_end_that_is_not_committed_counts_for_nothing(house):
    house.submit(30)
    pilot = house.pilot()
    found = claim(house, pilot, quick=False)

    class Fails:
        def apply(self, tx):
            raise ZeroDivisionError

    with pytest.raises(Unavailable):
        house.do(Together(end(house, pilot, found[:5]), Fails()))
    assert claim(house, pilot, 0, 500, free=FULL, quick=False) == []


def test_a_clock_that_is_set_leaves_nothing_counted(house):
    house.submit(30)
    pilot = house.pilot()
    (found,) = claim(house, pilot, 1, quick=False)
    house.report(pilot, found)
    house.clock -= 3_600
    assert claim(house, pilot, 0, 500, free=FULL, quick=False) == []


# --- taken back -------------------------------------------------------------------------------------------------------


def hoard(house, count=30):
    """A pilot that has all jobs ahead."""
    house.submit(count)
    pilot = house.pilot()
    return pilot, claim(house, pilot, 0, count)


def take_back_from(house, pilot, *, heard=None, steady_since=0.0, **more):
    heard = HeardPilot(CORES, house.clock if heard is None else heard, steady_since, **more)
    return house.do(Change(take_back, house.live, {pilot: heard}))


def test_what_is_not_started_goes_to_a_pilot_that_waits(house):
    pilot, found = hoard(house)
    answers = park(house, house.pilot())
    house.clock += 10.0
    gone = take_back_from(house, pilot)
    assert gone == {pilot: [(one.job_id, 1) for one in found[CORES:]]}
    assert ids(answers[0]) == ids(found[CORES : 2 * CORES])
    job = house.job(found[-1].job_id)
    assert (job.state, job.outcome, job.cause, job.reason) == ("Waiting", "Released", "returned", TAKEN_BACK)
    assert house.live.pilots.ahead_of(pilot) == CORES
    assert house.reconcile() == CLEAN


def test_what_was_taken_back_costs_no_attempt_and_its_end_is_refused(house):
    house.submit(10, max_attempts=1)
    pilot = house.pilot()
    found = claim(house, pilot, 0, 10)
    other = house.pilot()
    answers = park(house, other)
    house.clock += 10.0
    take_back_from(house, pilot)
    late = house.report(pilot, found[-1], exit_code=0)
    assert (late.accepted, house.state(found[-1].job_id)) == (False, "Matched")
    (again,) = [one for one in answers[0] if one.job_id == found[-1].job_id]
    assert house.report(other, again).accepted
    assert house.state(found[-1].job_id) == "Done"


def test_a_pilot_that_waits_for_the_same_itself_keeps_nothing_by_that(house):
    pilot, found = hoard(house)
    park(house, pilot)
    house.clock += 10.0
    assert take_back_from(house, pilot) == {}, "nobody else waits"
    park(house, house.pilot())
    assert len(take_back_from(house, pilot)[pilot]) == len(found) - CORES


@pytest.mark.parametrize(
    "why", ["nobody waits", "no claim fits", "it is young", "it was not heard", "it has started", "it is few"]
)
def test_what_is_left_to_a_pilot(house, why):
    count = CORES if why in ("it is few", "it has started") else 30
    house.submit(count, key=house.key(platforms=("linux",)))
    pilot = house.pilot(platforms=["linux"])
    found = claim(house, pilot, 0, count)
    house.clock += 9.0 if why == "it is young" else 10.0
    for one in found if why == "it has started" else ():
        house.report(pilot, one, "Running")
    if why != "nobody waits":
        park(house, house.pilot(platforms=["other" if why == "no claim fits" else "linux"]))
    heard = house.clock - 1.0 if why == "it was not heard" else None
    assert take_back_from(house, pilot, heard=heard) == {}
    assert house.counts() == {"Running" if why == "it has started" else "Matched": count}


def test_a_pilot_that_goes_silent_keeps_what_it_claimed_last_for_two_minutes(house):
    """It kept 64 jobs, or a thousand, for the half hour of its lease while others waited."""
    pilot, found = hoard(house)
    answers, heard = park(house, house.pilot()), house.clock
    house.clock += 119.0
    assert take_back_from(house, pilot, heard=heard) == {}
    house.clock += 1.0
    gone = take_back_from(house, pilot, heard=heard)
    assert gone == {pilot: [(one.job_id, 1) for one in found[CORES:]]}
    assert ids(answers[0]) == ids(found[CORES : 2 * CORES])
    assert house.reconcile() == CLEAN


def test_what_a_pilot_had_before_a_gap_is_left_to_it_for_a_minute(house):
    """As after a restart of the server: it has run what it had, and reports it now."""
    pilot, found = hoard(house)
    park(house, house.pilot())
    house.clock += 600.0
    back = house.clock
    house.clock += 59.0
    assert take_back_from(house, pilot, steady_since=back) == {}
    assert house.report(pilot, found[-1]).accepted
    house.clock += 1.0
    assert len(take_back_from(house, pilot, steady_since=back)[pilot]) == len(found) - CORES - 1


def test_what_a_pilot_claimed_after_a_gap_is_taken_back_as_ever(house):
    pilot, found = hoard(house)
    park(house, house.pilot())
    back = house.clock
    house.clock += 10.0
    assert len(take_back_from(house, pilot, steady_since=back)[pilot]) == len(found) - CORES


def test_each_gap_excuses_what_was_claimed_since_the_one_before(house):
    """A word every half minute would excuse all for ever."""
    pilot, found = hoard(house)
    park(house, house.pilot())
    session, taken = house.sessions[pilot], []
    for _ in range(6):
        house.clock += 32.0
        session.hear(house.clock)
        gone = take_back_from(
            house, pilot, steady_since=session.steady_since, excused_since=session.excused_since
        )
        taken.append(len(gone.get(pilot, ())))
    assert taken == [0, len(found) - CORES, 0, 0, 0, 0]


def test_a_gap_excuses_what_was_claimed_after_an_earlier_one(house):
    pilot = house.pilot()
    session = house.sessions[pilot]
    house.clock += 100.0
    session.hear(house.clock)
    house.submit(30)
    found = claim(house, pilot, 0, 30)
    park(house, house.pilot())
    house.clock += 100.0
    session.hear(house.clock)
    away = {"steady_since": session.steady_since, "excused_since": session.excused_since}
    assert take_back_from(house, pilot, **away) == {}
    house.clock += 60.0
    assert len(take_back_from(house, pilot, **away)[pilot]) == len(found) - CORES


def test_not_all_is_taken_back_at_once(house, monkeypatch):
    monkeypatch.setattr(ahead, "_MOST_AT_ONCE", 7)
    first, second = hoard(house)[0], hoard(house)[0]
    park(house, house.pilot())
    house.clock += 10.0
    heard = HeardPilot(CORES, house.clock, 0.0)
    gone = house.do(Change(take_back, house.live, {first: heard, second: heard}))
    assert {pilot: len(some) for pilot, some in gone.items()} == {first: 7}


# --- no more at once than it has room for -----------------------------------------------------------------------------


def say(house, pilot, *said, **more):
    """One message: (attempt, state) in order."""
    reports = [
        AttemptReport(id=one.job_id, attempt=one.attempt, state=state, cause="" if state == "Running" else "ok", **more)
        for one, state in said
    ]  # fmt: skip
    results = house.do(Change(take_reports, house.live, pilot, reports, cores=CORES, memory_mb=16_000))
    assert all(one.accepted for one in results)


def start_all(house, pilot, claimed, **more):
    say(house, pilot, *[(one, "Running") for one in claimed], **more)


def ahead_alone(house, pilot, count):
    return claim(house, pilot, 0, count, free=FULL, quick=False)


def live_attempts(house):
    return sum(house.counts().get(state, 0) for state in ("Matched", "Running", "Completing", "Stalled"))


@pytest.mark.parametrize("together", [True, False])
def test_a_word_that_it_runs_brings_no_more_than_the_cores(house, together):
    """One job ended brings one more, not one more for each that is said to run."""
    house.submit(100)
    pilot = house.pilot()
    found = claim(house, pilot, quick=False)
    house.report(pilot, found[0])
    for _ in range(25):
        got = ahead_alone(house, pilot, 1)
        if together:
            start_all(house, pilot, got)
        for one in () if together else got:
            house.report(pilot, one, "Running")
    assert live_attempts(house) == CORES + 1


def test_what_it_hands_in_for_ever_brings_no_more_than_may_be_handed_in(house):
    house.submit(300)
    pilot = house.pilot()
    for _ in range(150):
        got = claim(house, pilot, 1, 1)
        start_all(house, pilot, got)
        house.hear(pilot, completing=got)
    assert live_attempts(house) <= CORES + 64 + 2


@pytest.mark.parametrize("started", [None, 1.0, 1e12])
def test_what_runs_beyond_the_cores_is_taken_back_while_another_waits(house, started):
    pilot, found = hoard(house)
    start_all(house, pilot, found, started=started)
    assert house.counts() == {"Running": 30}
    answers = park(house, house.pilot())
    house.clock += 9.0
    assert take_back_from(house, pilot) == {}
    house.clock += 1.0
    gone = [(one.job_id, one.attempt) for one in found[CORES:]]
    assert take_back_from(house, pilot) == {pilot: gone}
    assert ids(answers[0]) == ids(found[CORES : 2 * CORES])
    assert house.live.pilots.ahead_of(pilot) == 0
    job = house.job(found[-1].job_id)
    assert (job.state, job.cause, job.reason) == ("Waiting", "returned", BEYOND_SIZE)
    assert not house.report(pilot, found[-1], exit_code=0).accepted
    assert house.reconcile() == CLEAN
    assert take_back_from(house, pilot) == {}, "as many as it has cores run"


@pytest.mark.parametrize(
    ("cores", "memory_mb", "fit"),
    [(1, 0, 8), (1, 5_000, 3), (3, 0, 2), (4, 9_000, 1), (8, 16_000, 1), (1, 2_000, 8)],
)
def test_what_fits_is_counted_in_cores_and_memory(house, cores, memory_mb, fit):
    house.submit(20, key=house.key(cores=cores, memory_mb=memory_mb))
    pilot = house.pilot()
    start_all(house, pilot, claim(house, pilot, 0, 20))
    assert house.live.pilots.ahead_of(pilot) == 20 - fit


def test_what_it_claimed_to_run_now_takes_its_room_before_what_was_ahead(house):
    house.submit(30)
    pilot = house.pilot()
    found = claim(house, pilot, 5, 20)
    start_all(house, pilot, found[5:])
    assert house.live.pilots.ahead_of(pilot) == 20 - (CORES - 5)


@pytest.mark.parametrize("order", ["the start first", "the end first", "one by one"])
def test_jobs_that_follow_each_other_run_in_the_room_of_those_that_ended(house, order):
    house.submit(200)
    pilot, other = house.pilot(), house.pilot(platforms=["linux"])
    runs = claim(house, pilot, CORES)
    start_all(house, pilot, runs)
    for _ in range(5):
        following = claim(house, pilot, 0, CORES)
        pairs = [
            [(new, "Running"), (old, "Done")][:: -1 if order == "the end first" else 1]
            for old, new in zip(runs, following, strict=True)
        ]
        for said in pairs if order == "one by one" else [[one for pair in pairs for one in pair]]:
            say(house, pilot, *said)
        assert house.live.pilots.ahead_of(pilot) == 0
        runs = following
    house.submit(1, key=house.key(cores=CORES + 1))
    claim(house, other, CORES + 1)
    park(house, house.pilot())
    house.clock += 100.0
    assert take_back_from(house, pilot) == {}


def test_starts_that_come_before_the_ends_are_taken_for_what_they_are_when_those_come(house):
    house.submit(60)
    pilot = house.pilot()
    runs = claim(house, pilot, CORES)
    following = claim(house, pilot, 0, CORES)
    start_all(house, pilot, [*runs, *following])
    assert house.live.pilots.ahead_of(pilot) == CORES
    for left, one in enumerate(reversed(runs)):
        say(house, pilot, (one, "Done"))
        assert house.live.pilots.ahead_of(pilot) == CORES - 1 - left


def test_what_hands_in_long_outputs_is_left_alone(house):
    """Its next heartbeat says that what ran before has ended."""
    pilot, found = hoard(house, 2 * CORES)
    start_all(house, pilot, found)
    named = house.clock
    house.clock += 15.0
    answers = park(house, house.pilot())
    assert take_back_from(house, pilot, named_at=named) == {}
    house.hear(pilot, *found[CORES:], completing=found[:CORES])
    assert take_back_from(house, pilot, named_at=house.clock) == {}
    assert answers == []
    assert house.live.pilots.ahead_of(pilot) == 0


def test_a_pilot_that_never_names_what_it_has_is_judged_without(house):
    pilot, found = hoard(house)
    start_all(house, pilot, found)
    park(house, house.pilot())
    house.clock += 69.0
    assert take_back_from(house, pilot, named_at=float("-inf")) == {}
    house.clock += 1.0
    assert len(take_back_from(house, pilot, named_at=float("-inf"))[pilot]) == 30 - CORES


def test_a_restart_excuses_nothing_that_is_said_to_run(house):
    pilot, found = hoard(house)
    start_all(house, pilot, found)
    house.restart()
    assert house.live.pilots.ahead_of(pilot) == 30 - CORES
    assert claim(house, pilot, 100) == [], "its cores are taken"
    park(house, house.pilot())
    house.clock += 10.0
    assert len(take_back_from(house, pilot)[pilot]) == 30 - CORES
    assert house.reconcile() == CLEAN


def test_what_runs_within_its_room_still_does_after_a_restart(house):
    house.submit(20, key=house.key(cores=2, memory_mb=4_000))
    pilot = house.pilot()
    start_all(house, pilot, claim(house, pilot, 0, 4))
    house.restart()
    assert house.live.pilots.ahead_of(pilot) == 0
    park(house, house.pilot(platforms=["linux"]))
    house.clock += 1_000.0
    assert take_back_from(house, pilot) == {}


def test_a_start_that_is_not_committed_takes_nothing(house):
    pilot, found = hoard(house)

    class Fails:
        def apply(self, tx):
            raise ZeroDivisionError

    reports = [AttemptReport(id=one.job_id, attempt=one.attempt, state="Running") for one in found]
    with pytest.raises(Unavailable):
        house.do(Together(Change(take_reports, house.live, pilot, reports, cores=CORES), Fails()))
    assert house.live.pilots.ahead_of(pilot) == 30
    assert not house.live.pilots.runs_beyond(pilot)


# --- others first -----------------------------------------------------------------------------------------------------


def test_pilots_that_wait_come_before_what_is_ahead(house):
    """Both claims wait when jobs come: each gets what it can run now; the rest goes ahead."""
    first, second = house.pilot(), house.pilot()
    answers = [park(house, one, ahead=100) for one in (first, second)]
    house.submit(30)
    (one,), (other,) = answers
    assert sorted(ids(one) + ids(other)) == list(range(1, 31))
    assert min(len(one), len(other)) == CORES


def test_a_claim_of_the_same_batch_comes_before_what_is_ahead(house):
    house.submit(10)
    first, second = house.pilot(), house.pilot()
    commands = [house.claim_command(one, 3, ahead=100) for one in (first, second)]
    one, other = house.do(Together(*commands))
    assert (len(one), len(other)) == (7, 3)


def test_a_pilot_that_ended_in_the_batch_gets_none_ahead(house):
    house.submit(10)
    pilot = house.pilot()

    class End:
        def apply(self, tx):
            house.live.pilots.ended(tx, pilot)

    house.do(Together(house.claim_command(pilot, 0, ahead=5), End()))
    assert house.counts() == {"Waiting": 10}


def test_a_batch_that_fails_gives_none_ahead(house):
    house.submit(10)
    pilot = house.pilot()

    class Fails:
        def apply(self, tx):
            raise ZeroDivisionError

    with pytest.raises(Unavailable):
        house.do(Together(house.claim_command(pilot, 2, ahead=5), Fails()))
    assert house.counts() == {"Waiting": 10}
    assert ids(claim(house, pilot, 2, 5)) == [1, 2, 3, 4, 5, 6, 7]
    assert house.reconcile() == CLEAN


# --- what it takes of what is free ------------------------------------------------------------------------------------


def test_what_is_ahead_takes_nothing_of_what_is_free(house):
    house.submit(60)
    pilot = house.pilot()
    claim(house, pilot, 0, 20)
    assert len(claim(house, pilot, 100)) == CORES + 1
    assert claim(house, pilot, 100) == []


def test_what_started_takes_its_cores(house):
    house.submit(60)
    pilot = house.pilot()
    found = claim(house, pilot, 0, 20)
    for one in found[:5]:
        house.report(pilot, one, "Running")
    assert house.live.pilots.ahead_of(pilot) == 15
    assert len(claim(house, pilot, 100)) == CORES - 5 + 1


def test_after_a_restart_what_has_not_started_takes_nothing(house):
    house.submit(60)
    pilot = house.pilot()
    found = claim(house, pilot, 2, 20)
    house.report(pilot, found[0], "Running")
    house.restart()
    assert house.live.pilots.ahead_of(pilot) == 21
    assert len(claim(house, pilot, 100)) == CORES


def test_an_attempt_may_end_without_a_word_of_its_start(house):
    house.submit(2)
    pilot = house.pilot()
    (found, _) = claim(house, pilot, 0, 20)
    house.clock += 10
    house.report(pilot, found, started=1_003.0, ended=1_004.5, exit_code=0)
    (attempt,) = attempts_of_job(house.reader, house.job(found.job_id))
    assert (house.state(found.job_id), attempt.started_at, attempt.ended_at) == ("Done", 1_003.0, 1_004.5)
    assert house.live.pilots.ahead_of(pilot) == 1


# --- back again -------------------------------------------------------------------------------------------------------


def test_what_is_given_back_waits_before_all_others_and_costs_no_attempt(house):
    first = house.submit(30, max_attempts=1).first
    pilot = house.pilot()
    for _ in range(3):
        found = claim(house, pilot, 0, 20)
        assert ids(found) == list(range(first, first + 20))
        assert all(one.accepted for one in give_back(house, pilot, found))
    assert house.counts() == {"Waiting": 30}
    job = house.job(first)
    assert (job.state, job.reason, job.attempt) == ("Waiting", "its pilot gave it back before it started", 3)
    assert house.live.pilots.held[pilot] == {}
    assert {one.started_at for one in attempts_of_job(house.reader, job)} == {None}
    (claimed,) = claim(house, house.pilot(), 1)
    house.report(house.pilots, claimed, "Running")
    house.report(house.pilots, claimed, "Released", cause="pilot-shutdown")  # its only one
    assert house.job(first).reason.endswith("; maximum of 1 attempt reached, beside 3 that did not start")
    assert house.reconcile() == CLEAN


def test_a_pilot_that_waits_gets_what_is_given_back(house):
    house.submit(20)
    pilot = house.pilot()
    found = claim(house, pilot, 2, 18)
    answers = park(house, house.pilot())
    give_back(house, pilot, found[10:])
    assert ids(answers[0]) == ids(found[10:18])


def test_what_has_started_counts_even_if_it_is_given_back(house):
    house.submit(1, max_attempts=1)
    pilot = house.pilot()
    (found,) = claim(house, pilot, 1)
    house.report(pilot, found, "Running")
    give_back(house, pilot, [found])
    assert house.state(1) == "Failed"


def test_a_job_that_was_killed_stays_killed_when_it_is_given_back(house):
    house.submit(1)
    pilot = house.pilot()
    found = claim(house, pilot, 1)
    house.control("kill", 1)
    assert give_back(house, pilot, found)[0].accepted
    assert house.state(1) == "Killed"


def test_attempts_of_lost_pilots_that_never_started_are_free_but_not_for_ever(house):
    job = house.submit(max_attempts=2).first
    rounds = 0
    while house.state(job) == "Waiting":
        pilot = house.pilot()
        claim(house, pilot, 0, 5)
        house.end_pilot(pilot)
        rounds += 1
    assert rounds == 20 + 2
    assert house.job(job).reason == (
        "its pilot ended without a word; maximum of 2 attempts reached, beside 20 that did not start"
    )


@pytest.mark.parametrize("started", [False, True])
def test_attempts_on_nodes_of_no_use_are_free_but_not_for_ever(house, started):
    job, rounds = house.submit(max_attempts=2).first, 0
    while house.state(job) == "Waiting":
        pilot = house.pilot()
        (found,) = claim(house, pilot, 0, 5)
        if started:
            house.report(pilot, found, "Running")
        house.report(pilot, found, "Released", cause="node-fault", message="No space left on device in /s.")
        rounds += 1
    assert rounds == 20 + 2
    assert house.job(job).reason == (
        "the node failed: No space left on device in /s.; maximum of 2 attempts reached, beside 20 that did not start"
    )


@pytest.mark.parametrize(("started", "rounds"), [(False, 20 + 2), (True, 2)])
def test_what_a_pilot_gives_up_before_it_started_is_free_but_not_for_ever(house, started, rounds):
    """A node refused it something for a moment, or the pilot had to end."""
    job = house.submit(max_attempts=2).first
    for _ in range(rounds):
        assert house.state(job) == "Waiting"
        pilot = house.pilot()
        (found,) = claim(house, pilot, 0, 5)
        if started:
            house.report(pilot, found, "Running")
        house.report(pilot, found, "Released", cause="pilot-shutdown", message="No memory.")
    assert house.state(job) == "Failed"


def test_what_is_given_back_is_not_held_against_lost_pilots(house):
    job = house.submit(max_attempts=1).first
    pilot = house.pilot()
    for _ in range(25):
        give_back(house, pilot, claim(house, pilot, 0, 1))
    claim(house, pilot, 0, 1)
    house.end_pilot(pilot)
    assert house.state(job) == "Waiting"


def test_what_a_pilot_does_not_name_is_free_too(house):
    from lodesman.server.writer.report import give_back as unnamed  # noqa: PLC0415

    job = house.submit(max_attempts=1).first
    pilot = house.pilot()
    (found,) = claim(house, pilot, 0, 1)
    assert house.do(Change(unnamed, house.live, pilot, [(found.job_id, found.attempt)])) == 1
    assert house.state(job) == "Waiting"


# --- many at once -----------------------------------------------------------------------------------------------------


def end(house, pilot, claimed, state="Done", cause="ok"):
    reports = [AttemptReport(id=one.job_id, attempt=one.attempt, state=state, cause=cause) for one in claimed]
    return Change(take_reports, house.live, pilot, reports, cores=CORES)


@pytest.mark.sqlite
@pytest.mark.parametrize(("state", "cause"), [("Done", "ok"), ("Released", "returned")])
def test_what_ends_together_is_read_once(house, state, cause):
    """Reads that wait for what was written before would make small portions of the writes."""
    house.submit(300)
    pilot = house.pilot()
    found = claim(house, pilot, 0, 300)
    results, seen = statements(house, lambda: house.do(end(house, pilot, found, state, cause)))
    assert all(one.accepted for one in results)
    assert len([sql for sql in seen if sql.startswith(("SELECT", "WITH"))]) < 5
    assert house.counts() == ({"Done": 300} if state == "Done" else {"Waiting": 300})


@pytest.mark.sqlite
def test_the_attempts_of_a_lost_pilot_are_read_once(house):
    house.submit(300)
    pilot = house.pilot()
    claim(house, pilot, 0, 300)
    _, seen = statements(house, lambda: house.end_pilot(pilot))
    assert len([sql for sql in seen if sql.startswith(("SELECT", "WITH"))]) < 20
    assert house.counts() == {"Waiting": 300}


def test_one_job_may_come_twice_in_one_portion(house):
    house.submit(2)
    pilot = house.pilot()
    first, second = claim(house, pilot, 0, 2)
    reports = [
        AttemptReport(id=one.job_id, attempt=one.attempt, state=state, started=1_000.0, cause=cause)
        for one, state, cause in [
            (first, "Running", ""), (second, "Running", ""), (first, "Done", "ok"), (first, "Done", "ok"),
            (second, "Failed", "exit"),
        ]
    ]  # fmt: skip
    results = house.do(Change(take_reports, house.live, pilot, reports, cores=CORES))
    assert [one.accepted for one in results] == [True] * 5
    assert results[3].reason == "already ended"
    assert house.events(first.job_id)[-3:] == ["Matched", "Running", "Done"]
    assert (house.state(first.job_id), house.state(second.job_id)) == ("Done", "Failed")


def test_a_job_given_back_after_others_of_its_task_queue_were_claimed_is_next(house):
    """In one transaction: the front of the rows has moved on, and goes back."""
    house.submit(10, rows=True)
    pilot, other = house.pilot(), house.pilot()
    found = claim(house, pilot, 0, 3)
    _, results = house.do(
        Together(house.claim_command(other, 2), end(house, pilot, found[1:2], "Released", "returned"))
    )
    assert results[0].accepted
    assert ids(claim(house, other, 0, 2)) == [2, 6]


# --- others wait ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("platforms", "expected"), [(["linux"], True), (["other"], False)])
def test_another_pilot_waits_for_what_is_ahead(house, platforms, expected):
    house.submit(20, key=house.key(platforms=("linux",)))
    pilot = house.pilot()
    claim(house, pilot, 0, 20)
    assert not has_much_ahead(house.live, pilot, CORES)
    park(house, house.pilot(platforms=platforms))
    assert has_much_ahead(house.live, pilot, CORES)
    assert ask_if_others_wait(house, pilot) is expected


def test_a_pilot_that_has_only_what_it_runs_is_not_asked(house):
    house.submit(20)
    pilot = house.pilot()
    found = claim(house, pilot, 0, 20)
    park(house, house.pilot())
    give_back(house, pilot, found[CORES:])
    assert not has_much_ahead(house.live, pilot, CORES)
