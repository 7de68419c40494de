"""Why a pilot gets nothing: the first reason that holds, from what is stored and what the hot process knows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from lodesman.decide.explain.pilot import explain_ended, explain_pilot
from lodesman.decide.explain.pilot_facts import PilotCase, PilotFacts, PilotNow, judge_pilot
from lodesman.decide.explain.survey import WaitingTaskQueues
from lodesman.decide.matching import ResourceRequest
from lodesman.decide.matching.matcher import Chances
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.tables import KeyTable
from lodesman.decide.resources import load_resources
from lodesman.server.writer.claim import reckon_free
from lodesman.server.writer.sessions import FreeResources, LastClaim
from lodesman.wire.pilots import Pilot
from lodesman.wire.vocabulary import FreeBy, PilotState, PilotVerdict
from lodesman.wire.why_pilots import Amounts

ROW = Pilot(
    id=7, stamp="s7", state=PilotState.RUNNING, reason="", site="N", ce="c", queue="q", native_id="n7", vo="lab",
    owner="", group="", pilot_type="", submission_pool="Local", jobs_done=0, task_queue=None, created_at=1.0,
    submitted_at=2.0, joined_at=3.0, last_seen=3.0, ended_at=None, drain=0,
    backend="local", host="", held_since=None, native_seen=None, bound_job=None,
)  # fmt: skip
NOTHING = Chances(of_vo=0, elsewhere=0, groups=(), without_share=(), blocked={})
SOME = replace(NOTHING, of_vo=3, groups=(("g", 2),))
NOW = PilotNow(
    at=100.0, joined=True, whole=Amounts(4, 2_000, 1_000), request=ResourceRequest(vo="lab", cores=4),
    free_by=FreeBy.ASKED, asked_at=90.0, asked_jobs=1, waits_since=None, silent_seconds=1.0, is_silent=False,
    chances=NOTHING,
)  # fmt: skip
FACTS = PilotFacts(row=ROW, drain_reason="", promised=[])
NO_WORK = WaitingTaskQueues(table=KeyTable(), keys={}, waiting={}).survey(NOW.request).work


@pytest.mark.parametrize(
    ("facts", "now", "verdict"),
    [
        ({"drain": 1}, {"chances": SOME}, PilotVerdict.DRAINING),
        ({}, {"joined": False, "chances": SOME}, PilotVerdict.NOT_ASKED),
        ({}, {"asked_at": None, "chances": SOME}, PilotVerdict.NOT_ASKED),
        ({}, {"asked_at": None, "waits_since": 95.0, "chances": SOME}, PilotVerdict.WOULD_GET),
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
    assert judge_pilot(replace(FACTS, row=structs.replace(ROW, **facts)), replace(NOW, **now)) is verdict


def test_a_pilot_that_has_jobs_has_asked_before_the_server_started():
    facts = replace(FACTS, promised=[(2, 500)])
    assert judge_pilot(facts, replace(NOW, asked_at=None)) is PilotVerdict.NOTHING_WAITS


@given(
    drain=st.booleans(), joined=st.booleans(), cores=st.integers(0, 2),
    of_vo=st.integers(0, 2), eligible=st.integers(0, 2),
)  # fmt: skip
def test_would_get_a_job_only_if_something_is_eligible(drain, joined, cores, of_vo, eligible):
    chances = replace(NOTHING, of_vo=of_vo, groups=(("g", eligible),) if eligible else ())
    now = replace(NOW, joined=joined, request=ResourceRequest(vo="lab", cores=cores), chances=chances)
    verdict = judge_pilot(replace(FACTS, row=structs.replace(ROW, drain=int(drain))), now)
    takes = not drain and joined and cores > 0
    assert (verdict is PilotVerdict.WOULD_GET) == (takes and eligible > 0)


@pytest.mark.parametrize(
    ("state", "changes", "promised", "standing"),
    [
        (PilotState.PREPARED, {}, [], "on its way"),
        (PilotState.SUBMITTED, {}, [], "on its way"),
        (PilotState.RUNNING, {}, [], "idle"),
        (PilotState.RUNNING, {}, [(2, 500)], "busy"),
        (PilotState.RUNNING, {"drain": 1}, [(2, 500)], "draining"),
        (PilotState.LOST, {"drain": 1, "ended_at": 90.0}, [], "ended"),
    ],
)
def test_where_it_is_in_its_life(state, changes, promised, standing):
    facts = replace(FACTS, row=structs.replace(ROW, state=state, **changes), promised=promised)
    case = PilotCase(facts=facts, now=NOW, work=NO_WORK, surveyed=1.0, policy=Policy(load_resources([])))
    found = explain_pilot(case) if facts.row.ended_at is None else explain_ended(facts, 100.0)
    assert found.standing == standing


@pytest.mark.parametrize(("joined", "waits"), [(True, ""), (False, "; it waits in ")])
def test_a_bound_pilot_runs_its_job_whatever_else_fits(joined, waits):
    row = structs.replace(ROW, state=PilotState.SUBMITTED, bound_job=42, joined_at=1.0 if joined else None)
    now = replace(NOW, joined=joined, chances=SOME)
    case = PilotCase(
        facts=replace(FACTS, row=row), now=now, work=NO_WORK, surveyed=1.0, policy=Policy(load_resources([]))
    )
    found = explain_pilot(case)
    assert found.verdict is PilotVerdict.BOUND
    assert found.summary.startswith(f"It runs job 42 and no other{waits}")
    assert any("only job 42, which it is bound to" in step.text for step in found.chain)
    drained = replace(FACTS, row=structs.replace(row, drain=1))
    assert judge_pilot(drained, now) is PilotVerdict.DRAINING


# --- what it has free -----------------------------------------------------------------------------------

WHOLE = FreeResources(4, 2_000, 1_000)


@pytest.mark.parametrize(
    ("asked", "used", "free"),
    [
        (None, [], FreeResources(4, 2_000, 1_000)),
        (LastClaim(1.0, FreeResources(3, 1_500, 600), 1), [], FreeResources(3, 1_500, 600)),
        (LastClaim(1.0, FreeResources(4, 2_000, 600), 1), [(1, 300)], FreeResources(3, 1_700, 600)),
        (LastClaim(1.0, FreeResources(4, 2_000, 600), 1), [(1, 0), (2, 100)], FreeResources(1, 1_400, 600)),
        (None, [(4, 2_000)], FreeResources(0, 0, 1_000)),
        (None, [(9, 9_000)], FreeResources(0, 0, 1_000)),
        (LastClaim(1.0, FreeResources(4, 2_000, 5_000), 1), [], FreeResources(4, 2_000, 1_000)),
    ],
)
def test_what_is_free_is_reckoned_as_the_pilot_does(asked, used, free):
    assert reckon_free(WHOLE, asked, used) == free


def test_a_pilot_that_its_queue_shut_out_has_nothing_to_divide():
    assert reckon_free(FreeResources(0, 0, 0), None, [(1, 0)]) == FreeResources(0, 0, 0)


def test_a_pilot_whose_queue_is_gone_gets_nothing_whatever_waits():
    now = replace(NOW, whole=Amounts(0, 0, 0), request=ResourceRequest(vo="lab", cores=0), chances=SOME)
    assert judge_pilot(FACTS, now) is PilotVerdict.NOT_CONFIGURED
    assert judge_pilot(replace(FACTS, row=structs.replace(ROW, drain=1)), now) is PilotVerdict.DRAINING
