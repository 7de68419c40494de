"""Closing and opening in a real database: what is stored, which pilots leave, and what a time does."""

from __future__ import annotations

import pytest
from tests.contract.conftest import OFFER

from lodesman.base.errors import Conflict, InvalidRequest, Unavailable
from lodesman.server.store.journal import Change
from lodesman.server.store.read.pilots import pilot_by_id
from lodesman.server.writer.pilots import (
    drain_pilots,
    hash_token,
    join_pilot,
    pilots_submitted,
    prepare_pilots,
)
from lodesman.server.writer.sessions import FreeResources
from lodesman.server.writer.site_mask import KnownMask, TendingOutcome, close_site, open_site, tend_closings
from lodesman.wire.nodes import Closing, NodePath
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState

S1 = ("S1", "", "")
PLACE = ("S1", "ce", "q")


def closing_of(site="S1", ce="", queue="", **more):
    return Closing(
        **{
            "site": site,
            "ce": ce,
            "queue": queue,
            "reason": "power",
            "closed_by": "root",
            "since": 0.0,
            "until": None,
            "keep_pilots": False,
            **more,
        }
    )


def close(house, site="S1", ce="", queue="", **more):
    dry_run = more.pop("dry_run", False)
    return house.do(Change(close_site, house.live, closing_of(site, ce, queue, **more), dry_run=dry_run))


def reopen(house, *node, by="ann"):
    return house.do(Change(open_site, house.live, NodePath(*node), by))


def mask(house):
    return KnownMask().look(house.reader)


def sent(house, site="S1"):
    """A pilot that waits in its batch system; returns its stamp."""
    house.pilots += 1
    stamp = f"stamp{house.pilots}"
    new = NewPilot(
        stamp=stamp, vo="vo", site=site, ce="ce", queue="q", request=OFFER, join_hash=hash_token(stamp + "-j")
    )
    house.do(Change(prepare_pilots, house.live, [new]))
    house.do(Change(pilots_submitted, house.live, {stamp: ("native" + stamp, "")}))
    return stamp


def join(house, stamp):
    return house.do(Change(join_pilot, house.live, stamp + "-j", "nonce", {"cores": 8})).row


def test_every_reader_knows_a_closing_with_author_and_reason(house):
    done = close(house, until=5_000.0)
    assert (done.renewed, done.drained) == (False, ())
    (found,) = mask(house).closings_of(PLACE, house.clock)
    assert found == done.closing
    assert (found.closed_by, found.reason, found.since, found.until) == ("root", "power", 1_000.0, 5_000.0)
    house.restart()
    assert mask(house).closings_of(PLACE, house.clock) == (found,)


def test_closing_again_changes_all_but_since_when(house):
    close(house)
    house.clock += 100.0
    done = close(house, reason="cooling", closed_by="bob", until=9_000.0, keep_pilots=True)
    assert done.renewed
    (found,) = mask(house).closings
    assert (found.since, found.reason, found.closed_by, found.until, found.keep_pilots) == (
        1_000.0, "cooling", "bob", 9_000.0, True,
    )  # fmt: skip


def test_one_whose_time_has_passed_begins_anew(house):
    close(house, until=1_100.0)
    house.clock = 1_100.0
    assert mask(house).closings_of(PLACE, house.clock) == ()
    done = close(house)
    assert (done.renewed, done.closing.since) == (False, 1_100.0)


def test_running_pilots_are_drained_with_the_reason(house):
    mine, other = house.pilot("S1"), house.pilot("S2")
    done = close(house)
    assert done.drained == (mine,)
    row = pilot_by_id(house.reader, mine)
    assert (row.drain, row.drain_reason) == (
        1,
        "S1 is closed by root since 1970-01-01 00:16 UTC: power",
    )
    assert pilot_by_id(house.reader, other).drain == 0


def test_a_request_that_waits_is_answered_with_nothing(house):
    pilot = house.pilot("S1")
    answers = []
    house.journal.post(house.claim_command(pilot, wait=True, answer=answers.append), answers.append)
    close(house)
    assert answers == [[]]
    house.submit()
    assert house.state(1) == "Waiting"


@pytest.mark.parametrize(
    ("node", "leaves"),
    [(("S1",), True), (("S1", "ce"), True), (("S1", "ce", "q"), True), (("S1", "c"), False), (("S1", "ce", "r"), False)],
)  # fmt: skip
def test_only_pilots_of_what_is_closed_leave(house, node, leaves):
    pilot = house.pilot("S1")
    assert close(house, *node).drained == ((pilot,) if leaves else ())
    assert pilot_by_id(house.reader, pilot).drain == leaves


def test_pilots_may_stay_and_those_that_come_too(house):
    pilot, stamp = house.pilot("S1"), sent(house)
    assert close(house, keep_pilots=True).drained == ()
    assert pilot_by_id(house.reader, pilot).drain == 0
    assert join(house, stamp).drain == 0
    # Thought better of it: now they go.
    assert len(close(house).drained) == 2


def test_waiting_pilots_are_drained_and_stay_when_it_is_opened(house):
    stamp, other = sent(house), sent(house)
    assert len(close(house).drained) == 2
    row = join(house, stamp)
    assert (row.drain, row.drain_reason[:12]) == (1, "S1 is closed")
    assert len(reopen(house, "S1").staying) == 2
    assert [
        (one.drain, one.drain_reason) for one in (join(house, other), pilot_by_id(house.reader, row.id))
    ] == [(0, "")] * 2


def test_a_pilot_leaves_while_any_closing_holds(house):
    pilot = house.pilot("S1")
    close(house)
    close(house, ce="ce")
    close(house, reason="again", ce="ce", queue="q")
    assert reopen(house, "S1").staying == ()
    assert pilot_by_id(house.reader, pilot).drain_reason.startswith("S1/ce is closed by")
    assert reopen(house, "S1", "ce").staying == ()
    assert reopen(house, "S1", "ce", "q").staying == (pilot,)


def test_what_an_administrator_drained_stays_drained(house):
    first, second = house.pilot("S1"), house.pilot("S1")
    house.do(Change(drain_pilots, house.live, [first]))
    close(house)
    house.do(Change(drain_pilots, house.live, [second]))
    assert reopen(house, "S1").staying == ()
    assert [pilot_by_id(house.reader, one).drain for one in (first, second)] == [1, 1]


def test_pilots_that_are_stored_or_join_while_it_is_closed_leave(house):
    close(house)
    late = sent(house)
    (number,) = house.reader.execute("SELECT id FROM pilot WHERE stamp = ?", (late,)).fetchone()
    assert pilot_by_id(house.reader, number).drain == 1
    assert join(house, late).drain == 1
    house.clock = 2_000.0
    assert join(house, sent(house, "S2")).drain == 0


def test_a_pilot_that_comes_when_the_time_has_passed_stays(house):
    close(house, until=1_500.0)
    house.clock = 1_500.0
    assert join(house, sent(house)).drain == 0


def test_a_dry_run_reports_and_changes_nothing(house):
    pilot = house.pilot("S1")
    done = close(house, dry_run=True)
    assert done.drained == (pilot,)
    assert mask(house).closings == ()
    assert pilot_by_id(house.reader, pilot).drain == 0


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [({"reason": " \n "}, "reason"), ({"reason": "x" * 1_001}, "reason"), ({"until": 1_000.0}, "until")],
)
def test_what_makes_no_sense_is_refused(house, wrong, parameter):
    with pytest.raises(InvalidRequest) as fault:
        close(house, **wrong)
    assert fault.value.data["parameter"] == parameter
    assert mask(house).closings == ()


def test_exactly_what_was_closed_is_opened(house):
    close(house)
    close(house, ce="ce", queue="q", reason="full")
    done = reopen(house, "S1")
    before, others = done.closing, done.others
    assert (before.node, [one.node for one in others]) == (S1, [PLACE])
    assert mask(house).reason(PLACE, house.clock).endswith("full")
    reopen(house, *PLACE)
    assert mask(house).closings == ()


def test_opening_what_is_not_closed_lists_the_closings(house):
    close(house, ce="ce")
    with pytest.raises(Conflict) as fault:
        reopen(house, "S1")
    assert str(fault.value) == "S1 is not closed. Closed there: S1/ce."
    assert fault.value.data["closed"] == [["S1", "ce", ""]]
    with pytest.raises(Conflict, match=r"S1/ce/q is not closed\. Closed there: S1/ce\."):
        reopen(house, *PLACE)
    with pytest.raises(Conflict, match=r"S2 is not closed\. Nothing is closed there"):
        reopen(house, "S2")


def test_a_closing_whose_time_has_passed_is_open_and_removed_later(house):
    pilot = house.pilot("S1")
    assert close(house, until=1_500.0).drained == (pilot,)
    close(house, "S2")
    assert house.do(Change(tend_closings, house.live)) == TendingOutcome((), ())
    house.clock = 1_500.0
    with pytest.raises(Conflict, match="S1 is not closed"):
        reopen(house, "S1")
    known = KnownMask()
    assert len(known.look(house.reader).closings) == 2
    assert house.do(Change(tend_closings, house.live)) == TendingOutcome((pilot,), ())
    assert [one.site for one in known.look(house.reader).closings] == ["S2"]


def test_the_mask_is_read_again_only_when_it_has_changed(house):
    known = KnownMask()
    before = known.look(house.reader)
    house.submit()
    assert known.look(house.reader) is before
    close(house)
    after = known.look(house.reader)
    assert after is not before
    reopen(house, "S1")
    assert known.look(house.reader) is not after


def test_a_batch_that_fails_closes_nothing(house):
    pilot = house.pilot("S1")
    answers = []
    house.journal.post(house.claim_command(pilot, wait=True, answer=answers.append), answers.append)

    class Faulty:
        def apply(self, tx):
            close_site(tx, house.live, closing_of("S1", reason="x"))
            raise OSError("the disk is gone")

    with pytest.raises(Unavailable):
        house.do(Faulty())
    assert mask(house).closings == ()
    assert pilot_by_id(house.reader, pilot).drain == 0
    assert house.submit().count == 1
    assert [len(one) for one in answers] == [1]  # it still waited, and got the job


def test_ended_pilots_are_left_alone(house):
    pilot = house.pilot("S1")
    house.end_pilot(pilot, PilotState.DONE)
    assert close(house).drained == ()
    assert pilot_by_id(house.reader, pilot).drain_reason == ""


def test_the_log_names_the_author(house, caplog):
    with caplog.at_level("INFO"):
        close(house)
        reopen(house, "S1", by="ann")
    told = {record.message: vars(record) for record in caplog.records}
    assert told["a site was closed"]["closed_by"] == "root"
    assert told["a site was opened"]["opened_by"] == "ann"
    assert told["a site was opened"]["site"] == "S1"


# --- closings that are announced: the clock begins at 1,000 -------------------------------------------------


def announce(house, begins=2_000.0, until=3_000.0, **more):
    return close(house, begins=begins, until=until, **more)


def test_jobs_start_ahead_of_it_only_if_they_end_before(house):
    pilot, other = house.pilot(), house.pilot("S2")
    assert announce(house).drained == ()
    house.submit(4, key=house.key(norm_cpu_seconds=600))
    house.clock = 1_400.0
    assert [one.job_id for one in house.claim(pilot)] == [1]
    house.clock = 1_401.0
    assert house.claim(pilot) == []
    assert len(house.claim(other)) == 1
    house.submit(key=house.key(norm_cpu_seconds=120))
    house.clock = 1_880.0
    assert len(house.claim(pilot)) == 1
    house.clock = 1_881.0
    house.submit(key=house.key(norm_cpu_seconds=120))
    assert house.claim(pilot) == []
    house.restart()
    assert house.claim(pilot) == []


def test_nothing_is_claimed_that_would_begin_later(house):
    """Neither the job beyond the cores nor those ahead."""
    pilot, other = house.pilot(cores=1), house.pilot("S2", cores=1)
    house.submit(9, key=house.key(norm_cpu_seconds=60))
    announce(house)
    free = FreeResources(1, 16_000, 100_000)
    assert len(house.claim(pilot, 5, free=free, subtracts=True, ahead=3)) == 1
    assert house.claim(pilot, 1, free=FreeResources(0, 16_000, 100_000), subtracts=True) == []
    assert len(house.claim(other, 5, free=free, subtracts=True, ahead=3)) == 5


def test_a_pilot_that_waits_for_jobs_asks_anew(house):
    pilot, answers = house.pilot(), []
    house.journal.post(house.claim_command(pilot, wait=True, answer=answers.append), answers.append)
    announce(house)
    assert answers == [[]]
    house.journal.post(house.claim_command(pilot, wait=True, answer=answers.append), answers.append)
    house.clock = 1_950.0
    house.submit()  # of 100 seconds: it may not start there any more
    assert answers == [[]]
    assert house.state(1) == "Waiting"


def test_pilots_leave_a_minute_before_and_stay_when_it_is_over(house):
    pilot, other = house.pilot(), house.pilot("S2")
    announce(house)
    house.clock = 1_939.0
    assert house.do(Change(tend_closings, house.live)) == TendingOutcome((), ())
    house.clock = 1_940.0
    assert house.do(Change(tend_closings, house.live)) == TendingOutcome((), (pilot,))
    assert pilot_by_id(house.reader, pilot).drain_reason.startswith("S1 is closed by root since")
    assert pilot_by_id(house.reader, other).drain == 0
    assert join(house, sent(house)).drain == 1
    house.clock = 3_000.0
    assert mask(house).closings_of(PLACE, house.clock) == ()
    assert pilot in house.do(Change(tend_closings, house.live)).staying
    house.submit()
    assert len(house.claim(pilot)) == 1


def test_it_is_cancelled_by_opening_and_changed_by_closing_again(house):
    pilot = house.pilot()
    announce(house)
    house.clock = 1_500.0
    done = announce(house, begins=2_500.0)
    assert (done.renewed, done.closing.since, done.closing.begins) == (True, 1_000.0, 2_500.0)
    house.submit(key=house.key(norm_cpu_seconds=5_000))
    assert house.claim(pilot) == []
    assert reopen(house, "S1").closing.begins == 2_500.0
    assert mask(house).closings == ()
    assert len(house.claim(pilot)) == 1


def test_a_closing_now_replaces_one_that_is_announced_and_not_the_other_way_round(house):
    pilot, announced = house.pilot(), announce(house).closing
    house.clock = 1_500.0
    assert close(house, dry_run=True).replaced == mask(house).closings[0] == announced
    done = close(house)
    assert (done.replaced, done.drained, done.renewed) == (announced, (pilot,), False)
    assert (done.closing.since, mask(house).closings) == (1_500.0, (done.closing,))
    with pytest.raises(Conflict, match=r"S1 is closed by root since .* Open it first: lode site open S1;"):
        announce(house)
    announce(house, site="S2")
    house.clock = 2_100.0
    done = close(house, "S2", until=9_000.0)  # longer than was announced
    assert (done.renewed, done.closing.since, done.closing.until) == (True, 2_000.0, 9_000.0)


@pytest.mark.parametrize(
    ("wrong", "parameter"),
    [({"begins": 900.0}, "begins"), ({"until": 2_000.0}, "until"), ({"keep_pilots": True}, "keep_pilots")],
)
def test_an_announcement_that_makes_no_sense_is_refused(house, wrong, parameter):
    with pytest.raises(InvalidRequest) as fault:
        announce(house, **wrong)
    assert fault.value.data["parameter"] == parameter
    assert mask(house).closings == ()


def test_a_batch_that_fails_announces_nothing_to_claims(house):
    pilot = house.pilot()

    class Faulty:
        def apply(self, tx):
            close_site(tx, house.live, closing_of(begins=2_000.0))
            raise OSError("the disk is gone")

    with pytest.raises(Unavailable):
        house.do(Faulty())
    house.submit(key=house.key(norm_cpu_seconds=5_000))
    assert len(house.claim(pilot)) == 1
