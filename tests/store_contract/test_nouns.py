"""Each noun of the store: what was written is what is read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from msgspec import structs

from lodesman.base.errors import NotFound
from lodesman.decide.director.limits import Breaker
from lodesman.decide.matching import TaskQueueKey
from lodesman.server.store import accounts, director, sandboxes, submit_pools, task_queues
from lodesman.server.store.changes import change_marks
from lodesman.server.store.read import job_lists, upkeep, usage, why
from lodesman.server.store.read import jobs as read_jobs
from lodesman.server.store.read import pilots as read_pilots
from lodesman.server.store.statement import ANY
from lodesman.server.store.write import attempts, cohorts, jobs, pilots
from lodesman.server.store.write import upkeep as write_upkeep
from lodesman.server.store.write.attempts import AttemptReport, ClaimFacts
from lodesman.server.store.write.jobs import NewSubmission, WaitingJob
from lodesman.wire.call import encode
from lodesman.wire.nodes import Closing, QueueId
from lodesman.wire.service import NewPilot, PoolCleaning, StoredBreaker, UnusedInputs, WaitReason
from lodesman.wire.vocabulary import BreakerState, JobState, MainReason, PilotState

KEY = TaskQueueKey(owner="ann", group="g", vo="lab", norm_cpu_seconds=100)
PLACE, OTHER = QueueId("S", "ce", "q"), QueueId("T", "ce", "q")


def test_marks_of_changes(store):
    """What a process keeps in memory follows them."""
    seen = [change_marks(store.db)]
    store.do(task_queues.insert_queue, 1, KEY)
    assert change_marks(store.db) == seen[0], "no job waits there"
    steps = (
        lambda: store.do(task_queues.hold_queue, 5, 1, "no queue"),
        lambda: store.do(task_queues.release_queue, 6, 1, "one can"),
        lambda: store.do(task_queues.keys_changed),
        lambda: store.do(submit_pools.pools_changed),
        lambda: store.do(director.put_closing, Closing("S", "", "", "x", "root", 0.0, None, False)),
        lambda: add_pilot(store),
    )
    for step in steps:
        step()
        seen.append(change_marks(store.db))
        assert change_marks(store.db) == seen[-1]
    assert len(set(seen)) == len(steps) + 1


def test_breakers(store):
    opened = Breaker(state=BreakerState.OPEN, failures=3, trips=1, retry_at=500.5, reason="é")
    rows = [StoredBreaker(*PLACE, encode(opened).decode()), StoredBreaker(*OTHER, encode(Breaker()).decode())]
    store.do(director.put_breakers, rows)
    assert director.breakers(store.db) == {PLACE: opened, OTHER: Breaker()}
    later = structs.replace(opened, failures=4)
    store.do(
        director.put_breakers, [StoredBreaker(*PLACE, encode(later).decode()), StoredBreaker(*OTHER, "")]
    )
    assert director.breakers(store.db) == {PLACE: later}


def add_queue(store, key=KEY, requirements=""):
    number = store.ids.task_queue()
    store.do(task_queues.insert_queue, number, key, requirements)
    return number


def add_jobs(store, tq_id, count=1, *, rows=True):
    """A submission of single jobs or of one run; returns the first id."""

    def change(tx):
        base, number, template = store.ids.jobs(tx, count), store.ids.submission(), store.ids.template()
        jobs.insert_template(tx, template, read_jobs.StoredTemplate(0, 3, '{"spec": {"name": "n"}}', None))
        new = NewSubmission(
            owner="ann", group="g", vo="lab", name="n", form="json", record="{}", members=None, count=count,
            request_id=f"r{number}",
        )  # fmt: skip
        jobs.insert_submission(tx, new, number=number, base=base, held=0, templates=[template])
        for job_id in range(base, base + count) if rows else ():
            event = jobs.add_event(tx, store.ids, job_id, "Waiting", previous=None)
            jobs.insert_waiting(tx, tq_id, WaitingJob(job_id, number, template, 0, event, None, 3))
        if not rows:
            cohorts.insert_run(
                tx, store.ids, range(count), submission=number, tq_id=tq_id, base=base, template=template
            )
        waiting = task_queues.waiting_by_queue(tx.reader()).get(tq_id, 0)
        task_queues.set_waiting(tx, tq_id, waiting + count, as_of=store.claims.last_attempt)
        return base

    return store.do(change)


def claim(store, tq_id, pilot_id=1):
    """Take the front of a task queue; the counter is left to the log of claims."""

    def change(tx):
        job = store.fronts.take(tx, tq_id)
        facts = ClaimFacts(pilot_id, "token", "S", None)
        store.claims.claimed(tx, attempts.append_claim(tx, store.ids, facts, tq_id, job), tq_id)
        return job.id

    return store.do(change)


def add_pilot(store, stamp="p1", **changes):
    number = store.ids.pilot()
    new = NewPilot(
        stamp=stamp, vo="lab", site="S", ce="ce", queue="q", request={}, join_hash=b"join" + stamp.encode()
    )
    store.do(pilots.insert_pilot, number, new, {"cores": 4, **changes})
    return number


def test_users_and_tokens(store):
    store.do(accounts.put_user, "ann", "lab", ("g", "h"), admin=True)
    laptop = {"note": "laptop", "expires_at": None}
    store.do(accounts.insert_token, b"\x11" * 32, "ann", ("jobs",), **laptop, parent=None)
    store.do(accounts.insert_token, b"\x12" * 32, "ann", ("jobs",), **laptop, parent=b"\x11" * 32)
    who = accounts.principal_of(store.db, b"\x12" * 32)
    assert (who.name, who.vo, who.groups, who.admin, who.scopes) == ("ann", "lab", ("g", "h"), True, {"jobs"})
    assert [row.note for row in accounts.list_tokens(store.db)] == ["laptop", "laptop"]
    assert store.do(accounts.tokens_with_prefix, "11") == [b"\x11" * 32]
    assert len(store.do(accounts.delete_token, b"\x11" * 32).hashes) == 2
    assert accounts.principals(store.db) == {}
    assert accounts.is_admin(store.db, "ann")
    assert accounts.is_admin(store.db, "bob") is None


def test_closings_and_iterations(store):
    before = director.closings_version(store.db)
    closing = Closing(
        "S", "ce", "", reason="broken", closed_by="ann", since=1.0, until=None, keep_pilots=False
    )
    store.do(director.put_closing, closing)
    assert list(director.closings(store.db).active(2.0)) == [closing]
    assert director.closings_version(store.db) > before
    store.do(director.delete_closing, closing.node)
    assert list(director.closings(store.db, "S").active(2.0)) == []
    first, second = (store.do(director.insert_iteration, plan) for plan in ('{"n": 1}', '{"n": 2}'))
    assert director.iteration_after(store.db, first) == (second, store.now, '{"n": 2}')
    assert director.iteration_after(store.db, second) is None
    assert director.iteration(store.db, first) == (store.now, {"n": 1})
    with pytest.raises(NotFound, match=f"no iteration {second + 1}"):
        director.iteration(store.db, second + 1)


def test_input_files(store):
    store.do(sandboxes.insert_input, "ann", "a" * 64, 10)
    store.do(sandboxes.use_inputs, "ann", ["a" * 64], 7)
    assert sandboxes.usage_of(store.db, "ann") == (1, 4_096, 0)
    assert sandboxes.inputs_of_submission(store.db, 7) == {"a" * 64}
    key = [("ann", "a" * 64)]
    mark = UnusedInputs(before=2_000.0, mark=key)
    store.do(sandboxes.tidy_inputs, mark)
    assert sandboxes.uploaded_size(store.db, "ann", "a" * 64, to_stay=True) == 10, "a submission names it"
    store.do(sandboxes.tidy_inputs, UnusedInputs(done=[7]))
    store.do(sandboxes.tidy_inputs, mark)
    assert sandboxes.uploaded_size(store.db, "ann", "a" * 64, to_stay=True) is None
    assert store.do(sandboxes.tidy_inputs, UnusedInputs(before=2_000.0, remove=key)) == key
    assert sandboxes.usage_of(store.db, "ann") == (0, 0, 0)


def test_rows_of_jobs_their_events_and_attempts(store):
    queue = add_queue(store)
    first = add_jobs(store, queue, 2)
    assert [
        job.id for job in job_lists.list_jobs(store.db, job_lists.JobQuery(first=1, last=9, limit=9))
    ] == [1, 2]
    assert claim(store, queue) == first
    row = store.do(jobs.need_row, first)
    assert (row.state, row.attempt, row.owner) == (JobState.MATCHED, 1, "ann")
    store.do(attempts.start_attempt, row.last_attempt, 1_001.0)
    end = AttemptReport(id=first, attempt=1, state="Done", cause="ok", exit_code=0, tail="out")
    store.do(attempts.end_attempt, row.last_attempt, end)
    store.do(jobs.move, store.ids, row, JobState.RUNNING, attempt=1)
    store.do(lambda tx: jobs.move(tx, store.ids, jobs.need_row(tx, first), JobState.DONE, attempt=1))
    job = read_jobs.job_by_id(store.db, first)
    assert (job.state, job.outcome, job.exit_code) == (JobState.DONE, "Done", 0)
    events = [event.event for event in read_jobs.events_of_job(store.db, job)]
    assert events == ["Waiting", "Matched", "Running", "Done"]
    assert [one.number for one in read_jobs.attempts_of_job(store.db, job)] == [1]
    assert read_jobs.last_output(store.db, first).tail == "out"
    assert {count.state: count.jobs for count in usage.count_jobs(store.db)} == {"Done": 1, "Waiting": 1}
    with pytest.raises(NotFound):
        store.do(jobs.need_row, 99)


def test_members_without_rows(store):
    queue = add_queue(store)
    base = add_jobs(store, queue, 10, rows=False)

    def hold(tx):
        (cohort,) = cohorts.cohorts_between(tx, 1, range(10))
        cohorts.add_hole(tx, cohort.id, range(2, 4), state="Held", reason="later")
        return cohorts.waiting_runs(cohort, cohorts.holes_between(tx, cohort.id, range(10)), range(10))

    assert store.do(hold) == [range(2), range(4, 10)]
    held = read_jobs.job_by_id(store.db, base + 2)
    assert (held.state, held.held_by, held.reason) == (JobState.HELD, "user", "later")
    assert [claim(store, queue) for _ in range(3)] == [base, base + 1, base + 4], "holes are left out"
    assert why.queue_position(store.db, queue, base + 9).ahead == 4


def test_task_queues(store):
    queue = add_queue(store)
    add_jobs(store, queue, 3)
    assert [row.waiting for row in task_queues.list_task_queues(store.db, limit=9)] == [3]
    store.do(task_queues.store_reasons, {queue: WaitReason(MainReason.PILOTS_BUSY, "none")}, 1.0)
    assert why.stored_reasons(store.db) == {queue: WaitReason(MainReason.PILOTS_BUSY, "none")}
    store.do(task_queues.hold_queue, store.ids.event(), queue, "no such tag")
    assert task_queues.held_queues(store.db) == {queue: "no such tag"}
    assert read_jobs.job_by_id(store.db, 1).held_by == "impossible"
    store.do(task_queues.release_queue, store.ids.event(), queue, "there again")
    assert [event.event for event in read_jobs.events_of_job(store.db, read_jobs.job_by_id(store.db, 1))] == [
        "Waiting", "Held", "Waiting",
    ]  # fmt: skip
    assert task_queues.queue_with_key(store.db, KEY) == queue
    assert task_queues.keys_by_id(store.db, [queue]) == {queue: KEY}
    assert list(task_queues.queues_with_jobs(store.db)) == [(queue, KEY, 3)]


def test_submit_pools(store):
    asked = submit_pools.pass_requests(store.db).asked
    store.do(submit_pools.insert_bits, {PLACE: 0, OTHER: 1})
    store.do(submit_pools.store_pool, "req1:a", "lab", "{}", mask=0b1, is_evaluated=True)
    store.do(submit_pools.ask_for_pass)
    assert submit_pools.pass_requests(store.db).asked == asked + 1
    assert submit_pools.masks_of_pools(store.db) == {"req1:a": 1}
    assert submit_pools.bits_of_queues(store.db) == {PLACE: 0, OTHER: 1}
    store.do(submit_pools.delete_bits, [1])
    assert submit_pools.bits_of_queues(store.db) == {PLACE: 0}
    assert why.queues_of_pool(store.db, "req1:a") == {PLACE}
    assert [pool.id for pool in submit_pools.list_pools(store.db, "lab").pools] == ["req1:a"]
    assert store.do(submit_pools.clean_pools, PoolCleaning(mark=["req1:a"])) == []
    gone = store.do(submit_pools.clean_pools, PoolCleaning(remove=["req1:a"], unused_before=2_000.0))
    assert gone == ["req1:a"]


def test_pilots(store):
    number = add_pilot(store)
    row = store.do(pilots.need_pilot, stamp="p1")
    assert (row.id, row.state, json.loads(row.request)) == (number, PilotState.PREPARED, {"cores": 4})
    assert read_pilots.pilot_of_join_token(store.db, b"joinp1").id == number
    store.do(pilots.set_state, row, PilotState.RUNNING)
    store.do(pilots.set_joined, number, node="{}", host="wn1")
    store.do(pilots.exchange_token, number, digest=b"joinp1", nonce="n", token=b"work")
    assert accounts.principal_of(store.db, b"work").pilot_id == number
    assert [pilot.id for pilot in read_pilots.joined_pilots(store.db)] == [number]
    store.do(pilots.drain_pilots_for, [number], "closed")
    (pilot,) = read_pilots.pilots_in_short(store.db)
    assert (pilot.drain, pilot.queue_id, pilot.is_busy) == (1, PLACE, 0)
    ended = store.do(lambda tx: pilots.set_state(tx, pilots.need_pilot(tx, stamp="p1"), PilotState.SUBMITTED))
    assert not ended, "a pilot that runs is not submitted any more"


def test_what_is_old_is_found_and_deleted(store):
    queue = add_queue(store)
    job_id = add_jobs(store, queue)
    store.do(lambda tx: jobs.move(tx, store.ids, jobs.need_row(tx, job_id), JobState.KILLED))
    store.do(task_queues.set_waiting, queue, 0, as_of=0)
    (span,) = upkeep.old_submissions(store.db, 2_000.0, 10)
    assert list(upkeep.old_jobs(store.db, span, 2_000.0, 10)) == [[(job_id, 0)]]
    found = store.do(write_upkeep.old_jobs, [job_id], 2_000.0)
    store.do(write_upkeep.delete_jobs, found)
    assert read_jobs.job_by_id(store.db, job_id) is None
    assert upkeep.finished_submissions(store.db, span, 2_000.0) == [1]
    assert store.do(write_upkeep.delete_submissions, [1], 100)
    assert store.db.only("SELECT count(*) FROM submission")[0] == 0


def test_claims_are_replayed_after_a_crash(store):
    """A claim writes neither the counter of its task queue nor the cursor of its run: they follow from attempts."""
    queue = add_queue(store)
    base = add_jobs(store, queue, 5, rows=False)
    assert [claim(store, queue) for _ in range(2)] == [base, base + 1]
    assert task_queues.waiting_by_queue(store.db) == {queue: 3}, (
        "readers count attempts that are not in the counter"
    )
    assert store.db.only("SELECT waiting FROM task_queue_count")[0] == 5
    store.stop()
    store.start()
    assert store.db.only("SELECT waiting FROM task_queue_count")[0] == 3
    assert upkeep.wrong_counts(store.db, 1, queue) == []
    assert claim(store, queue) == base + 2


def test_a_claim_that_fails_leaves_front_and_log_as_they_were(store):
    queue = add_queue(store)
    base = add_jobs(store, queue, 3, rows=False)

    def broken(tx):
        store.fronts.take(tx, queue)
        raise ZeroDivisionError

    with pytest.raises(Exception, match="nothing was stored"):
        store.do(broken)
    assert claim(store, queue) == base


def test_what_task_queues_used(store):
    """Starts, and seconds since two times, of attempts that ended, run, and have not started."""
    one, other = add_queue(store), add_queue(store, replace(KEY, group="g2"))
    add_jobs(store, one, 3)
    add_jobs(store, other)
    store.now = 1_000.0
    for _ in range(3):
        claim(store, one)
    store.now = 1_500.0
    claim(store, other)

    def times(tx):
        tx.write("UPDATE attempt SET started_at = 900, ended_at = 1100 WHERE id = 1", rows=ANY)
        tx.write("UPDATE attempt SET started_at = 1200 WHERE id = 2", rows=ANY)
        tx.write("UPDATE attempt SET started_at = 1550 WHERE id = 4", rows=ANY)

    store.do(times)
    begins, now = [500.0, 1_400.0], 1_600.0

    def used(currency, after=0, last=4):
        return sorted(usage.used_by_queue(store.db, currency, begins, now, after=after, last=last))

    assert used("starts") == [(one, 3, 0), (other, 1, 1)]
    # The first ran from its claim on, whatever its node says.
    assert used("core-seconds") == [(one, 100 + 400, 200), (other, 50, 50)]
    assert used("core-seconds", after=1, last=3) == [(one, 400, 200)]
    assert usage.used_by_older(store.db, "core-seconds", begins, now, last=3) == [(one, 400, 200)]
    assert usage.used_by_older(store.db, "core-seconds", begins, now, last=1) == []
    # What a pilot gave back before it started is no start.
    store.do(
        lambda tx: tx.write("UPDATE attempt SET ended_at = 1500, cause = 'returned' WHERE id = 3", rows=ANY)
    )
    assert used("starts") == [(one, 2, 0), (other, 1, 1)]
