"""Why a pilot gets nothing: the first reason that holds, from what is stored and what the hot process knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.answers.service import NewPilot
from lodesman.answers.vocabulary import FreeBy, PilotState, PilotVerdict
from lodesman.commands.pilots import EndPilot, PreparePilots
from lodesman.commands.sessions import Ask, Free
from lodesman.errors import NotFound
from lodesman.matching import ResourceRequest, TaskQueueKey, key_to_json
from lodesman.matching.matcher import Chances
from lodesman.services.why.pilot_now import PilotNow, reckon
from lodesman.services.why.pilot_verdict import WHO, PilotFacts, judge_pilot, read_pilot
from lodesman.store.pilots import PILOT_ENDED, PilotRow

ROW = PilotRow(
    id=7, stamp="s7", state=PilotState.RUNNING, vo="lab", owner="", group="", pilot_type="", submission_pool="Local",
    tq_id=None, site="N", ce="c", queue="q", requirements="{}", request="{}", node="{}", native_id="n7",
    created_at=1.0, submitted_at=2.0, joined_at=3.0, last_seen=4.0, ended_at=None, drain=0, reason="", jobs_done=0,
)  # fmt: skip
KEY = TaskQueueKey(owner="ann", group="g", vo="lab", cores=2, memory_mb=500)
NOTHING = Chances(of_vo=0, elsewhere=0, groups=(), without_share=(), blocked={})
SOME = replace(NOTHING, of_vo=3, groups=(("g", 2),))
NOW = PilotNow(
    at=100.0, joined=True, whole=Free(4, 2_000, 1_000), request=ResourceRequest(vo="lab", cores=4),
    free_by=FreeBy.ASKED, asked=Ask(90.0, Free(4, 2_000, 1_000), 1), waits_since=None, silent_seconds=1.0,
    chances=NOTHING,
)  # fmt: skip
FACTS = PilotFacts(row=ROW, running=())


@pytest.mark.parametrize(
    ("facts", "now", "verdict"),
    [
        ({"state": PilotState.DONE}, {"chances": SOME}, PilotVerdict.ENDED),
        ({"drain": 1}, {"chances": SOME}, PilotVerdict.DRAINING),
        ({"state": PilotState.SUBMITTED}, {"joined": False, "chances": SOME}, PilotVerdict.NOT_ASKED),
        ({}, {"asked": None, "chances": SOME}, PilotVerdict.NOT_ASKED),
        ({}, {"asked": None, "waits_since": 95.0, "chances": SOME}, PilotVerdict.WOULD_GET),
        ({}, {"request": ResourceRequest(vo="lab", cores=0), "chances": SOME}, PilotVerdict.FULL),
        ({}, {"chances": SOME}, PilotVerdict.WOULD_GET),
        ({}, {"chances": replace(NOTHING, without_share=(("g", 1),))}, PilotVerdict.WOULD_GET),
        ({}, {"chances": NOTHING}, PilotVerdict.NOTHING_WAITS),
        ({}, {"chances": replace(NOTHING, elsewhere=5)}, PilotVerdict.NOTHING_WAITS),
        ({}, {"chances": replace(NOTHING, of_vo=5, blocked={"quota": 1})}, PilotVerdict.LIMITED),
        ({}, {"chances": replace(NOTHING, of_vo=5)}, PilotVerdict.NOTHING_FITS),
    ],
)
def test_the_first_that_holds(facts, now, verdict):
    facts = PilotFacts(row=replace(ROW, **facts), running=())
    assert judge_pilot(facts, replace(NOW, **now)) is verdict


def test_a_pilot_that_has_jobs_has_asked_before_the_server_started():
    facts = PilotFacts(row=ROW, running=(KEY,))
    assert judge_pilot(facts, replace(NOW, asked=None)) is PilotVerdict.NOTHING_WAITS


def test_every_verdict_says_who_can_change_it():
    assert set(WHO) == set(PilotVerdict)


@given(
    state=st.sampled_from(PilotState), drain=st.booleans(), joined=st.booleans(), cores=st.integers(0, 2),
    of_vo=st.integers(0, 2), eligible=st.integers(0, 2),
)  # fmt: skip
def test_would_get_a_job_only_if_something_is_eligible(state, drain, joined, cores, of_vo, eligible):
    chances = replace(NOTHING, of_vo=of_vo, groups=(("g", eligible),) if eligible else ())
    now = replace(NOW, joined=joined, request=ResourceRequest(vo="lab", cores=cores), chances=chances)
    facts = PilotFacts(row=replace(ROW, state=state, drain=int(drain)), running=())
    verdict = judge_pilot(facts, now)
    takes = state not in PILOT_ENDED and not drain and joined and cores > 0
    assert (verdict is PilotVerdict.WOULD_GET) == (takes and eligible > 0)


@pytest.mark.parametrize(
    ("changes", "running", "standing"),
    [
        ({"state": PilotState.PREPARED}, (), "on its way"),
        ({"state": PilotState.SUBMITTED}, (), "on its way"),
        ({}, (), "idle"),
        ({}, (KEY,), "busy"),
        ({"drain": 1}, (KEY,), "draining"),
        ({"state": PilotState.LOST, "drain": 1}, (), "ended"),
    ],
)
def test_where_it_is_in_its_life(changes, running, standing):
    assert PilotFacts(row=replace(ROW, **changes), running=running).standing == standing


# --- what it has free -----------------------------------------------------------------------------------

WHOLE = Free(4, 2_000, 1_000)


@pytest.mark.parametrize(
    ("asked", "used", "free"),
    [
        (None, [], Free(4, 2_000, 1_000)),
        (Ask(1.0, Free(3, 1_500, 600), 1), [], Free(3, 1_500, 600)),
        (Ask(1.0, Free(4, 2_000, 600), 1), [(1, 300)], Free(3, 1_700, 600)),
        (Ask(1.0, Free(4, 2_000, 600), 1), [(1, 0), (2, 100)], Free(1, 1_400, 600)),
        (None, [(4, 2_000)], Free(0, 0, 1_000)),
        (None, [(9, 9_000)], Free(0, 0, 1_000)),
        (Ask(1.0, Free(4, 2_000, 5_000), 1), [], Free(4, 2_000, 1_000)),
    ],
)
def test_what_is_free_is_reckoned_as_the_pilot_does(asked, used, free):
    assert reckon(WHOLE, asked, used) == free


def test_a_pilot_that_its_queue_shut_out_has_nothing_to_divide():
    assert reckon(Free(0, 0, 0), None, [(1, 0)]) == Free(0, 0, 0)


def test_a_pilot_whose_queue_is_gone_is_shut_out_whatever_waits():
    facts = PilotFacts(row=ROW, running=())
    now = replace(NOW, whole=Free(0, 0, 0), request=ResourceRequest(vo="lab", cores=0), chances=SOME)
    assert judge_pilot(facts, now) is PilotVerdict.SHUT_OUT
    draining = PilotFacts(row=replace(ROW, drain=1), running=())
    assert judge_pilot(draining, now) is PilotVerdict.DRAINING


# --- what is stored -------------------------------------------------------------------------------------


def prepared(base, stamp="s1"):
    new = NewPilot(stamp=stamp, vo="lab", site="N", ce="c", queue="q", request={}, join_hash=stamp.encode())
    return base.do(PreparePilots(base.live, [new]))[0]


def test_a_pilot_is_found_by_its_number_and_by_its_stamp(base):
    number = prepared(base, "0" * 24)
    assert read_pilot(base.db, str(number)).row.stamp == "0" * 24
    assert read_pilot(base.db, "0" * 24).row.id == number
    assert read_pilot(base.db, str(number)).used == []
    for name in ("", "99", "9" * 18, "9" * 30, "s", "x" * 10_000, "१"):
        with pytest.raises(NotFound):
            read_pilot(base.db, name)


def test_what_its_jobs_were_promised_is_known_until_they_end(base):
    number = prepared(base)
    base.writer.execute("INSERT INTO task_queue (id, key, created_at) VALUES (5, ?, 0)", (key_to_json(KEY),))
    base.writer.execute(
        "INSERT INTO attempt (id, job_id, number, tq_id, pilot_id, claim_token, site, claimed_at) "
        "VALUES (1, 1, 1, 5, ?, 't', 'N', 0)",
        (number,),
    )
    assert read_pilot(base.db, "1").used == [(2, 500)]
    base.writer.execute("UPDATE attempt SET ended_at = 5")
    assert read_pilot(base.db, "1").used == []
    base.do(EndPilot(base.live, number, PilotState.LOST, "gone"))
    assert judge_pilot(read_pilot(base.db, "1"), None) is PilotVerdict.ENDED
