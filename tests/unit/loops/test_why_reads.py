"""What explanations read: the position of a job, rows and untouched members alike, and pilots by number or stamp."""

from __future__ import annotations

import pytest

from lodesman.base.errors import NotFound
from lodesman.decide.explain.pilot import explain_ended
from lodesman.decide.matching import TaskQueueKey, key_to_json
from lodesman.server.store.journal import Change
from lodesman.server.store.read import why as module
from lodesman.server.store.read.why import pilot_facts, queue_position
from lodesman.server.writer.claim import Claim
from lodesman.server.writer.control import Control
from lodesman.server.writer.pilots import end_pilot, hash_token, join_pilot, prepare_pilots
from lodesman.server.writer.sessions import FreeResources, PilotSession
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.wire.service import NewPilot
from lodesman.wire.vocabulary import PilotState, PilotVerdict
from lodesman.wire.why_jobs import QueuePosition

KEY = TaskQueueKey(owner="ann", group="g", vo="lab", cores=2, memory_mb=500)


@pytest.fixture
def submit(base, make_key):
    def put(count):
        key = make_key()
        cohort = PreparedCohort(key=key, template="{}", expand=False, max_attempts=1, runs=((0, count),))
        return base.do(Submit(base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None, count=count,
            cohorts=(cohort,),
        ))).first  # fmt: skip

    return put


def stand(base, job_id):
    found = queue_position(base.db, 1, job_id)
    return found.ahead, found.waiting


def claim(base, count):
    request = {"platforms": [], "tags": [], "cores": 8, "memory_mb": 8_000, "norm_cpu_seconds": 1_000}
    base.do(Change(prepare_pilots, base.live, [NewPilot(
        stamp="s", vo="lab", site="North", ce="cn", queue="short", request=request, join_hash=hash_token("join"),
    )]))  # fmt: skip
    session = PilotSession(base.do(Change(join_pilot, base.live, "join", "nonce", {})).row, now=0.0)
    free = FreeResources(8, 10**9, 10**9)
    base.do(Claim(base.live, session=session, free=free, count=count, claim_token="t" * 8, wait=False,
                  answer=lambda _: None))  # fmt: skip


def test_rows_and_members_are_counted_in_the_order_of_their_ids(base, submit):
    submit(1), submit(10), submit(1), submit(5)
    assert [stand(base, n) for n in (1, 2, 8, 12, 13, 17)] == [
        (0, 17), (1, 17), (7, 17), (11, 17), (12, 17), (16, 17),
    ]  # fmt: skip


def test_what_was_claimed_or_killed_is_not_ahead(base, submit):
    submit(10), submit(2)
    claim(base, 3)
    base.do(Control(base.live, "kill", (range(5, 7),), "x", lambda *_: True))
    assert stand(base, 12) == (6, 7)
    assert stand(base, 7) == (1, 7)


def test_counting_ends_early_and_says_so(base, submit, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    for _ in range(6):
        submit(1)
    found = queue_position(base.db, 1, 6)
    assert (found.ahead, found.more_ahead) == (3, True)


def test_a_task_queue_that_is_gone(base):
    assert queue_position(base.db, 99, 1) == QueuePosition(waiting=0, ahead=0, more_ahead=False)


# --- what is stored -------------------------------------------------------------------------------------


def prepared(base, stamp="s1"):
    new = NewPilot(stamp=stamp, vo="lab", site="N", ce="c", queue="q", request={}, join_hash=stamp.encode())
    return base.do(Change(prepare_pilots, base.live, [new]))[0]


def test_a_pilot_is_found_by_its_number_and_by_its_stamp(base):
    number = prepared(base, "0" * 24)
    assert pilot_facts(base.db, str(number)).row.stamp == "0" * 24
    assert pilot_facts(base.db, "0" * 24).row.id == number
    assert pilot_facts(base.db, str(number)).promised == []
    for name in ("", "99", "9" * 18, "9" * 30, "s", "x" * 10_000, "१"):
        with pytest.raises(NotFound):
            pilot_facts(base.db, name)


def test_what_its_jobs_were_promised_is_known_until_they_end(base):
    number = prepared(base)
    base.writer.execute("INSERT INTO task_queue (id, key, created_at) VALUES (5, ?, 0)", (key_to_json(KEY),))
    base.writer.execute(
        "INSERT INTO attempt (id, job_id, number, tq_id, pilot_id, claim_token, site, claimed_at) "
        "VALUES (1, 1, 1, 5, ?, 't', 'N', 0)",
        (number,),
    )
    assert pilot_facts(base.db, "1").promised == [(2, 500)]
    base.writer.execute("UPDATE attempt SET ended_at = 5")
    assert pilot_facts(base.db, "1").promised == []
    base.do(Change(end_pilot, base.live, number, PilotState.LOST, "gone"))
    assert explain_ended(pilot_facts(base.db, "1"), 1_000.0).verdict is PilotVerdict.ENDED
