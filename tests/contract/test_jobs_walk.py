"""The way of jobs through the store: submitted, claimed, reported, given back."""

import json
import threading

import pytest
from msgspec.structs import asdict

from lodesman.base.errors import Conflict, InvalidRequest, NotFound, Unauthorized
from lodesman.decide.matching import GroupShare
from lodesman.server.store.accounts import principal_of
from lodesman.server.store.journal import Change
from lodesman.server.store.task_queues import queues_with_jobs
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.claim import unpark
from lodesman.server.writer.pilots import hash_token, join_pilot
from lodesman.server.writer.sessions import FreeResources
from lodesman.server.writer.submit import register_input
from lodesman.server.writer.submit_pools import set_shares
from lodesman.server.writer.upkeep import forget_idle_queues
from lodesman.wire.service import RepairCounts
from lodesman.wire.vocabulary import PilotState

CLEAN = asdict(RepairCounts())


def test_one_job_from_submission_to_done(house):
    done = house.submit()
    assert (done.first, done.count, house.state(1)) == (1, 1, "Waiting")
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    assert (claimed.job_id, claimed.attempt) == (1, 1)
    assert house.state(1) == "Matched"
    assert house.report(pilot, claimed, "Running", cause="").accepted
    assert house.state(1) == "Running"
    assert house.report(pilot, claimed, exit_code=0).accepted
    assert house.state(1) == "Done"
    assert house.events(1) == ["Waiting", "Matched", "Running", "Done"]
    assert house.claim(pilot) == []


def test_an_array_is_handed_out_member_by_member(house):
    house.submit(5)
    pilot = house.pilot()
    assert [c.job_id for c in house.claim(pilot, 3)] == [1, 2, 3]
    assert house.counts() == {"Waiting": 2, "Matched": 3}
    assert [c.job_id for c in house.claim(pilot, 10)] == [4, 5]


def test_ids_are_contiguous_and_never_used_twice(house):
    firsts = [house.submit(n).first for n in (1, 10, 1, 5)]
    assert firsts == [1, 2, 12, 13]
    house.restart()
    assert house.submit().first == 18


def test_rows_and_members_are_taken_in_the_order_of_submission(house):
    house.submit(2)
    house.submit(2, rows=True)
    house.submit(2)
    pilot = house.pilot()
    assert [c.job_id for c in house.claim(pilot, 6)] == [1, 2, 3, 4, 5, 6]


def test_a_repeated_request_id_gets_the_first_answer(house):
    first = house.submit(3, request_id="r1")
    again = house.submit(3, request_id="r1")
    assert again.repeated
    assert (again.first, again.count) == (first.first, 3)
    assert sum(house.counts().values()) == 3


def test_a_request_id_is_not_taken_for_other_jobs(house):
    house.submit(3, request_id="r1")
    with pytest.raises(Conflict, match=r"'r1' was used for other jobs: 1 to 3") as refused:
        house.submit(2, request_id="r1")
    assert "Nothing was submitted" in refused.value.hint
    with pytest.raises(Conflict):
        house.submit(3, key=house.key(group="other"), request_id="r1")
    assert house.submit(3, request_id="r1").repeated
    assert sum(house.counts().values()) == 3


def test_a_request_id_is_not_taken_for_other_files(house):
    for sha256 in ("a" * 64, "b" * 64):
        house.do(Change(register_input, "ann", sha256, 5))
    house.submit(1, request_id="r1", inputs=["a" * 64])
    assert house.submit(1, request_id="r1", inputs=["a" * 64]).repeated
    with pytest.raises(Conflict):
        house.submit(1, request_id="r1", inputs=["b" * 64])


def test_a_repeated_request_id_reports_the_held_jobs_again(house):
    first = house.submit(3, request_id="r1", held="no queue")
    again = house.submit(3, request_id="r1", held="no queue")
    assert (first.held, again.held, again.repeated) == (3, 3, True)
    house.restart()
    assert house.submit(3, request_id="r1").held == 3
    assert house.submit(2, request_id="r2").held == 0


def test_a_submission_needs_a_job(house):
    with pytest.raises(InvalidRequest):
        house.submit(0)


def test_a_lost_answer_is_given_again(house):
    house.submit(3)
    pilot = house.pilot()
    first = house.claim(pilot, 2, token="same-token")
    assert house.claim(pilot, 2, token="same-token") == first
    assert house.counts() == {"Waiting": 1, "Matched": 2}


def test_a_lost_answer_is_given_again_after_a_restart(house):
    house.submit(3)
    pilot = house.pilot()
    first = house.claim(pilot, 2, token="same-token")
    house.restart()
    assert house.claim(pilot, 2, token="same-token") == first
    assert [c.job_id for c in house.claim(pilot, 5)] == [3]


def test_waiting_survives_a_restart(house):
    house.submit(4)
    house.submit(2, rows=True)
    pilot = house.pilot()
    house.claim(pilot, 3)
    house.restart()
    assert [c.job_id for c in house.claim(pilot, 10)] == [4, 5, 6]


def test_a_dropped_front_continues_where_it_was(house):
    """What was claimed is not in the stored cursor yet."""
    house.submit(6)
    house.submit(2)
    pilot = house.pilot()
    given = [c.job_id for c in house.claim(pilot, 7)]
    for tq_id, _, _ in house.live.queues.index.queues():
        house.live.queues.fronts.forget(tq_id)
    given += [c.job_id for c in house.claim(pilot, 5)]
    assert given == list(range(1, 9))


def test_a_claim_that_is_rolled_back_leaves_no_trace_in_memory(house):
    house.submit(3)
    house.submit(2, rows=True)
    pilot = house.pilot()
    house.claim(pilot)
    db = house.writer
    tx = Transaction(db, 1_000.0)
    db.begin()
    tried = house.claim_command(pilot, 5, wait=False, answer=lambda _: None).apply(tx)
    assert [c.job_id for c in tried] == [2, 3, 4, 5]
    db.roll_back()
    tx.roll_back_memory()
    assert [c.job_id for c in house.claim(pilot, 9)] == [2, 3, 4, 5]


def test_only_fitting_jobs_are_given(house):
    house.submit(key=house.key(sites=("S2",)))
    house.submit(key=house.key(cores=16))
    house.submit(key=house.key(norm_cpu_seconds=200_000))
    pilot = house.pilot()
    assert house.claim(pilot, 5) == []
    assert house.claim(house.pilot("S2"), 5)[0].job_id == 1


def test_what_is_free_now_counts_not_what_the_pilot_is(house):
    house.submit(key=house.key(cores=4))
    pilot = house.pilot()
    assert house.claim(pilot, free=FreeResources(2, 16_000, 100_000)) == []
    assert len(house.claim(pilot, free=FreeResources(4, 16_000, 100_000))) == 1


def wait_for(box, done):
    assert done.wait(60)
    return box[0]


def parked(house, pilot, count=1, **more):
    """A claim that waits; returns (command, function that waits for its answer)."""
    box, done = [], threading.Event()

    def answer(result):
        box.append(result)
        done.set()

    command = house.claim_command(pilot, count, wait=True, answer=answer, **more)
    house.journal.post(command, answer)
    house.claim(
        house.pilot("elsewhere", cores=1), free=FreeResources(0, 0, 0)
    )  # a command after it: it has parked
    assert not box
    return command, lambda: wait_for(box, done)


def test_a_waiting_pilot_is_answered_by_the_submission(house):
    pilot = house.pilot()
    _, answer = parked(house, pilot)
    house.submit()
    assert [c.job_id for c in answer()] == [1]
    assert house.state(1) == "Matched"


def test_the_longest_waiting_pilots_are_served_first(house):
    answers = []
    for _ in range(3):
        house.clock += 1
        answers.append(parked(house, house.pilot())[1])
    house.submit(2)
    assert [[c.job_id for c in answer()] for answer in answers[:2]] == [[1], [2]]
    house.submit(1)
    assert [c.job_id for c in answers[2]()] == [3]


def test_patience_ends_with_nothing(house):
    command, answer = parked(house, house.pilot())
    house.do(Change(unpark, command))
    assert answer() == []
    house.submit()
    assert house.state(1) == "Waiting"


def test_a_new_request_of_the_same_pilot_ends_the_old_one(house):
    pilot = house.pilot()
    _, first = parked(house, pilot)
    _, second = parked(house, pilot)
    assert first() == []
    house.submit()
    assert [c.job_id for c in second()] == [1]


def test_a_request_that_is_served_at_once_ends_an_older_one_that_waits(house):
    pilot = house.pilot()
    house.submit(key=house.key(cores=8))
    _, first = parked(house, pilot, free=FreeResources(1, 16_000, 100_000))
    assert [c.job_id for c in house.claim(pilot)] == [1]
    assert first() == []
    house.submit()
    assert house.state(2) == "Waiting"


def test_a_pilot_that_ends_waits_no_more(house):
    pilot = house.pilot()
    _, answer = parked(house, pilot)
    house.end_pilot(pilot)
    assert answer() == []


def test_a_new_submit_pool_reaches_pilots_that_wait(house):
    pilot = house.pilot()
    _, answer = parked(house, pilot)
    pool = house.pool("req1:x", [("S1", "ce", "q")])
    house.submit(key=house.key(submit_pool="req1:x"), pools=[pool])
    assert [c.job_id for c in answer()] == [1]


def test_a_pool_that_the_queue_does_not_serve_is_not_given(house):
    house.submit(key=house.key(submit_pool="req1:x"), pools=[house.pool("req1:x", [("S2", "ce", "q")])])
    assert house.claim(house.pilot("S1")) == []
    assert len(house.claim(house.pilot("S2"))) == 1


def test_a_rescued_job_wakes_a_waiting_pilot(house):
    house.submit()
    lost = house.pilot()
    house.claim(lost)
    _, answer = parked(house, house.pilot())
    house.end_pilot(lost)
    assert [(c.job_id, c.attempt) for c in answer()] == [(1, 2)]


@pytest.mark.parametrize(
    "cause", ["exit", "signal", "cpu-limit", "wall-limit", "memory-limit", "output-limit"]
)
def test_the_payload_s_own_failures_end_the_job(house, cause):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.report(pilot, claimed, "Failed", cause=cause, exit_code=3)
    assert house.state(1) == "Failed"
    assert house.job(1).cause == cause
    assert house.claim(pilot) == []


@pytest.mark.parametrize("cause", ["pilot-shutdown", "input", "pilot-lost", "lease-expired", "something-new"])
def test_other_failures_send_the_job_back(house, cause):
    house.submit(max_attempts=2)
    pilot = house.pilot()
    for attempt in (1, 2):
        (claimed,) = house.claim(pilot)
        assert claimed.attempt == attempt
        house.report(pilot, claimed, "Running")
        house.report(pilot, claimed, "Released", cause=cause)
    assert house.state(1) == "Failed"
    assert "maximum of 2 attempts" in house.job(1).reason


def test_jobs_of_a_lost_pilot_go_back_before_the_others(house):
    house.submit(4)
    lost = house.pilot()
    house.claim(lost, 2)
    assert house.end_pilot(lost) == 2
    assert house.counts() == {"Waiting": 4}
    pilot = house.pilot()
    assert [(c.job_id, c.attempt) for c in house.claim(pilot, 4)] == [(1, 2), (2, 2), (3, 1), (4, 1)]
    assert house.reconcile() == CLEAN


def test_a_stale_report_changes_nothing(house):
    house.submit()
    lost, other = house.pilot(), house.pilot()
    (old,) = house.claim(lost)
    house.end_pilot(lost)
    (new,) = house.claim(other)
    answer = house.report(lost, old, "Failed", cause="exit")
    assert (answer.accepted, answer.reason) == (False, "stale attempt")
    assert house.state(1) == "Matched"
    assert house.report(other, new).accepted


def test_a_late_success_counts_while_the_next_attempt_is_unclaimed(house):
    house.submit()
    lost = house.pilot()
    (old,) = house.claim(lost)
    house.end_pilot(lost)
    assert house.state(1) == "Waiting"
    answer = house.report(lost, old)
    assert (answer.accepted, answer.reason) == (True, "late")
    assert house.state(1) == "Done"
    assert house.claim(house.pilot()) == []
    assert house.reconcile() == CLEAN


def test_a_pilot_cannot_report_for_another(house):
    house.submit()
    owner, other = house.pilot(), house.pilot()
    (claimed,) = house.claim(owner)
    answer = house.report(other, claimed)
    assert (answer.accepted, answer.reason) == (False, "not your attempt")
    assert house.state(1) == "Matched"


def test_a_report_may_be_sent_twice(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    assert house.report(pilot, claimed).accepted
    assert house.report(pilot, claimed).accepted
    assert house.events(1).count("Done") == 1


def test_reports_about_jobs_that_do_not_exist(house):
    pilot = house.pilot()
    house.submit()
    (claimed,) = house.claim(pilot)
    claimed = type(claimed)(99, 1, 1, 1)
    assert house.report(pilot, claimed).reason == "no such attempt"


def test_a_join_token_is_good_once(house):
    pilot = house.pilot()
    stamp = house.sessions[pilot].stamp
    with pytest.raises(Unauthorized, match="used before"):
        house.do(Change(join_pilot, house.live, stamp + "-join", "another nonce", {}))
    again = house.do(Change(join_pilot, house.live, stamp + "-join", "nonce", {}))
    assert again.row.id == pilot
    with pytest.raises(Unauthorized, match="unknown"):
        house.do(Change(join_pilot, house.live, "no such token", "nonce", {}))


def test_a_pilot_that_ended_cannot_join(house):
    pilot = house.pilot()
    house.end_pilot(pilot)
    with pytest.raises((Unauthorized, Conflict)):
        house.do(Change(join_pilot, house.live, house.sessions[pilot].stamp + "-join", "nonce", {}))


def test_a_pilot_ends_once(house):
    house.submit()
    pilot = house.pilot()
    house.claim(pilot)
    assert house.end_pilot(pilot, PilotState.DONE) == 1
    assert house.end_pilot(pilot, PilotState.LOST) == 0
    assert house.reader.execute("SELECT state FROM pilot").fetchone() == ("Done",)


def test_held_at_submission_with_its_reason(house):
    house.submit(held="no queue", rows=True)
    house.submit(3, held="no queue")
    assert house.counts() == {"Held": 4}
    assert house.claim(house.pilot(), 5) == []
    assert (house.state(3), house.job(3).reason) == ("Held", "no queue")


def test_the_reconciler_repairs_a_wrong_counter(house):
    house.submit(5)
    house.writer.execute("UPDATE task_queue_count SET waiting = 9")
    house.restart()
    assert house.live.queues.index.waiting(1) == 9
    assert house.reconcile()["wrong_counters"] == 1
    assert house.live.queues.index.waiting(1) == 5
    assert house.reconcile() == CLEAN


def test_a_ghost_is_never_handed_out(house):
    house.submit(2)
    house.writer.execute("UPDATE task_queue_count SET waiting = 9")
    house.restart()
    assert len(house.claim(house.pilot(), 9)) == 2
    assert house.reconcile() == CLEAN


def test_a_task_queue_that_was_dropped_while_empty_comes_back(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.clock += 400
    house.do(Change(forget_idle_queues, house.live))
    assert not house.live.queues.index.has(1)
    house.report(pilot, claimed, "Released", cause="pilot-shutdown")
    assert [(c.job_id, c.attempt) for c in house.claim(pilot)] == [(1, 2)]
    house.clock += 400
    house.do(Change(forget_idle_queues, house.live))
    house.submit()
    assert house.reader.execute("SELECT count(*) FROM task_queue").fetchone() == (1,)


def test_only_task_queues_that_hold_jobs_are_loaded(house):
    house.submit(key=house.key(project="a"))
    house.submit(key=house.key(project="b"))
    pilot = house.pilot()
    house.claim(pilot)
    assert len(list(queues_with_jobs(house.reader))) == 1


def shares_of_attempts(house):
    return [
        json.loads(row[0] or "null") for row in house.reader.execute("SELECT shares FROM attempt ORDER BY id")
    ]


def test_the_groups_that_competed_for_each_job_of_a_claim_are_recorded_with_their_shares(house):
    house.submit(1, key=house.key(group="g"))
    house.submit(2, key=house.key(group="h", owner="bob"))
    house.submit(2, key=house.key(group="i", owner="eve", sites=("elsewhere",)))
    house.do(Change(set_shares, house.live, {"g": GroupShare(share=1e9)}))
    house.claim(house.pilot(), 3)
    assert shares_of_attempts(house) == [{"g": 1e9, "h": 1000}, {"h": 1000}, {"h": 1000}]


def test_a_private_pilot_competes_with_no_group(house):
    house.submit(1, key=house.key(group="g"))
    house.submit(2, key=house.key(group="h", owner="bob"))
    house.claim(house.pilot(group="h"))
    assert shares_of_attempts(house) == [{}]


def test_with_many_groups_a_drawn_sample_is_recorded(house):
    for number in range(6):
        house.submit(2_000, key=house.key(group=f"g{number}"))
    pilots = [house.pilot(), house.pilot(group="g1")]
    for number in range(1_600):
        house.claim(pilots[number % 2])
    recorded = [shares for shares in shares_of_attempts(house)[::2] if shares is not None]
    assert 3 <= len(recorded) <= 30
    assert all(len(shares) == 6 for shares in recorded)
    assert not any(shares_of_attempts(house)[1::2])


def test_tokens_and_accounts(house):
    token = house.user("ann", ("g", "h"))
    who = principal_of(house.reader, hash_token(token))
    assert (who.name, who.groups, who.vo, who.admin) == ("ann", ("g", "h"), "vo", False)
    assert who.allows("jobs:write")
    assert not who.allows("admin")
    assert principal_of(house.reader, hash_token("other")) is None
    assert token not in str(list(house.reader.execute("SELECT * FROM token")))


def test_an_unknown_job_is_not_found(house):
    assert house.job(7) is None
    with pytest.raises(NotFound):
        house.control("kill", 7)
