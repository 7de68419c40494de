"""Where a job stands in its task queue: rows and untouched members counted alike, claims not written yet too."""

from __future__ import annotations

import pytest

from lodesman.answers.service import NewPilot
from lodesman.commands.claim import Claim
from lodesman.commands.control import Control
from lodesman.commands.pilots import Join, PreparePilots, hash_token
from lodesman.commands.sessions import Free, PilotSession
from lodesman.commands.submit import PreparedCohort, PreparedSubmission, Submit
from lodesman.services.why import position as module
from lodesman.services.why.position import position


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
    found = position(base.db, {"task_queue": 1, "id": job_id})
    return found["ahead"], found["waiting"]


def claim(base, count):
    request = {"platforms": [], "tags": [], "cores": 8, "memory_mb": 8_000, "norm_cpu_seconds": 1_000}
    base.do(PreparePilots(base.live, [NewPilot(
        stamp="s", vo="lab", site="North", ce="cn", queue="short", request=request, join_hash=hash_token("join"),
    )]))  # fmt: skip
    session = PilotSession(base.do(Join(base.live, "join", "nonce", {})).row, {}, now=0.0)
    free = Free(8, 10**9, 10**9)
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
    base.do(Control(base.live, "kill", ((5, 6),), "x", lambda *_: True))
    assert stand(base, 12) == (6, 7)
    assert stand(base, 7) == (1, 7)


def test_counting_ends_early_and_says_so(base, submit, monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    for _ in range(6):
        submit(1)
    found = position(base.db, {"task_queue": 1, "id": 6})
    assert (found["ahead"], found["more_ahead"]) == (3, True)


def test_a_task_queue_that_is_gone(base):
    assert position(base.db, {"task_queue": 99, "id": 1}) == {"waiting": 0, "ahead": 0, "more_ahead": False}
