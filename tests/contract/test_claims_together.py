"""Claims of many task queues in one transaction: what they collect is written late, and read as if it were not."""

import random

import pytest

from lodesman.server.store.journal import Change
from lodesman.server.store.write.attempts import _CLAIM_MEMBER


class Together:
    """Some claims in one transaction, with something done between them."""

    def __init__(self, claims, between=lambda tx, claimed: None):
        self.claims = claims
        self.between = between

    def apply(self, tx):
        claimed = []
        for claim in self.claims:
            claimed += claim.apply(tx)
            self.between(tx, claimed)
        return claimed


def statements(house, work):
    """The statements that were run meanwhile."""
    seen = []
    house.writer.connection.trace_v2(1, lambda event: seen.append(event["sql"]))
    try:
        result = work()
    finally:
        house.writer.connection.trace_v2(0, None)
    return result, seen


def queues(house, count, jobs=2):
    """Task queues with some jobs each: a run in the even ones, rows in the odd ones."""
    for number in range(count):
        house.submit(jobs, key=house.key(owner=f"owner{number}"), rows=number % 2 == 1)


@pytest.mark.sqlite
def test_first_claims_of_many_task_queues_do_not_write_in_small_portions(house):
    queues(house, 40)
    pilots = [house.pilot() for _ in range(40)]
    claims = Together([house.claim_command(pilot) for pilot in pilots])
    claimed, seen = statements(house, lambda: house.do(claims))
    assert len({one.job_id for one in claimed}) == 40
    members = [sql for sql in seen if sql.startswith(_CLAIM_MEMBER.sql)]
    assert 0 < len(members) <= 6  # 20 of them: widths of 16 and 4, or of 1


@pytest.mark.sqlite
def test_a_front_is_opened_by_one_statement(house):
    queues(house, 10)
    claims = Together([house.claim_command(house.pilot()) for _ in range(10)])
    claimed, seen = statements(house, lambda: house.do(claims))
    opened = {(one.job_id - 1) // 2 for one in claimed}
    reads = [sql for sql in seen if "FROM job WHERE queued" in sql or "FROM cohort c" in sql]
    assert len(reads) == len(opened) > 1


@pytest.mark.parametrize("forgets", [False, True])
def test_rows_and_runs_beyond_one_portion_are_claimed_in_the_order_of_their_ids(house, forgets):
    for _ in range(20):
        house.submit(3)
        house.submit(10, rows=True)
    [(tq_id, _, jobs)] = house.live.queues.index.queues()
    assert jobs == 260

    def forget(_tx, _claimed):
        if forgets:
            house.live.queues.fronts.forget(tq_id)

    claims = Together([house.claim_command(house.pilot(), 20) for _ in range(13)], forget)
    assert [one.job_id for one in house.do(claims)] == list(range(1, 261))


@pytest.mark.parametrize("seed", range(8))
def test_no_job_is_claimed_twice_when_fronts_are_dropped_between_claims(house, seed):
    """A front that is read again in the same transaction sees what was claimed before it."""
    queues(house, 6, jobs=5)
    rng = random.Random(seed)
    known = list(house.live.queues.index.queues())

    def forget(_tx, _claimed):
        for tq_id, _, _ in rng.sample(known, 3):
            house.live.queues.fronts.forget(tq_id)

    claims = Together([house.claim_command(house.pilot(), rng.randint(1, 3)) for _ in range(12)], forget)
    claimed = house.do(claims)
    ids = [one.job_id for one in claimed]
    assert len(ids) == len(set(ids)) > 12
    left = [one.job_id for _ in range(30) for one in house.claim(house.pilot())]
    assert sorted(ids + left) == list(range(1, 31))


def test_a_row_that_was_claimed_is_not_claimed_again_by_a_front_read_anew(house):
    house.submit(1, rows=True)
    [(tq_id, _, _)] = house.live.queues.index.queues()
    house.live.queues.index.add_waiting(tq_id, 1, now=0.0)  # a wrong counter must find no ghost either
    claims = [house.claim_command(house.pilot()), house.claim_command(house.pilot())]
    claimed = house.do(Together(claims, lambda _tx, _claimed: house.live.queues.fronts.forget(tq_id)))
    assert [one.job_id for one in claimed] == [1]
    assert house.state(1) == "Matched"


def test_a_pilot_without_room_does_not_stand_before_one_that_has_some(house):
    """It waits longest, and its report of an end may be on its way; a job that comes alone went to nobody, for a minute."""
    full, other = house.pilot(cores=1), house.pilot(cores=1)
    answers = {full: [], other: []}
    house.submit(2, rows=True)
    assert len(house.claim(full, 2, subtracts=True)) == 2
    for pilot, heard in answers.items():
        house.journal.post(
            house.claim_command(pilot, wait=True, subtracts=True, answer=heard.append), heard.append
        )
    house.submit(1, rows=True)
    house.do(Change(lambda _: None))
    (claimed,) = answers[other]
    assert [one.job_id for one in claimed] == [3]
    assert answers[full] == []
