"""Jobs that no configured queue can run: Held with their whole task queue, and released by themselves."""

import pytest
from tests.contract.test_jobs_walk import parked

from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements, submit_pool_id
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.server.store.journal import Change
from lodesman.server.store.read.job_lists import JobQuery, list_jobs
from lodesman.server.store.read.jobs import events_of_job
from lodesman.server.store.read.usage import count_jobs
from lodesman.server.writer.submit import NewPool
from lodesman.server.writer.upkeep import forget_idle_queues
from lodesman.wire.jobs import Count
from lodesman.wire.vocabulary import JobState

S1 = ("S1", "ce", "q")


def policy(memory=4000, cpu=1000, more=""):
    text = f"[site.S1.ce.ce.queue.q]\nMemory = {memory}\nCPUTime = {cpu}\n{more}"
    return Policy(load_resources([("sites.toml", text)]))


POSSIBLE, SLOW, SMALL = policy(), policy(cpu=10), policy(memory=100)


def big(house, **more):
    """A job that wants 4000 MB by its Requirements."""
    types, wanted = POSSIBLE.config.types, {"Memory": 4000}
    pool = NewPool(
        id=submit_pool_id(compile_requirements(wanted, types), "vo"), vo="vo",
        requirements=spelled_requirements(compile_requirements(wanted, types)),
        queues=0b1,
    )  # fmt: skip
    return house.submit(key=house.key(submit_pool=pool.id), pools=[pool], **more).first


def listed(house, *states):
    query = JobQuery(first=1, last=1_000, limit=1_000, states=states)
    return [(row.id, row.state, row.held_by) for row in list_jobs(house.reader, query)]


def sound(house):
    """Counters equal what they count, and memory what is stored."""
    assert set(house.reconcile().values()) == {0}
    stored = {row[0] for row in house.reader.execute("SELECT tq_id FROM task_queue_hold")}
    assert set(house.live.queues.held) == stored


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
def test_jobs_that_become_impossible_are_held_and_released_when_a_queue_appears(house, rows):
    first = house.submit(5, rows=rows).first
    house.refresh(POSSIBLE)
    assert house.counts() == {"Waiting": 5}
    house.clock += 10
    house.refresh(SLOW)
    assert house.counts() == {"Held": 5}
    job = house.job(first + 2)
    assert (job.state, job.held_by, job.since) == ("Held", "impossible", 1_010)
    assert "CPUTime excludes 1 of 1" in job.reason
    assert listed(house, "Held") == [(first + n, "Held", "impossible") for n in range(5)]
    assert listed(house, "Waiting") == []
    assert house.claim(house.pilot(), 5) == []
    sound(house)
    house.clock += 10
    house.refresh(POSSIBLE)
    assert house.counts() == {"Waiting": 5}
    assert house.job(first).reason == ""
    assert len(house.claim(house.pilot(), 5)) == 5
    sound(house)


def test_events_of_the_task_queue_are_shown_with_each_job(house):
    first = house.submit(2).first
    one = house.submit().first
    house.refresh(SLOW)
    house.refresh(POSSIBLE)
    for job, begun in ((first, "Submitted"), (one, "Waiting")):
        events = events_of_job(house.reader, house.job(job))
        assert [event.event for event in events] == [begun, "Held", "Waiting"]
        assert "no queue of VO vo can run it" in events[1].reason
        assert events[2].reason == "S1/ce/q can run it now (1 of 1 queue)"
    late = house.submit().first
    assert house.events(late) == ["Waiting"]


def test_events_of_the_task_queue_are_those_of_jobs_that_waited_in_it(house):
    job = house.submit().first
    (claimed,) = house.claim(house.pilot())
    house.submit()
    house.refresh(SLOW)
    house.refresh(POSSIBLE)
    assert house.events(job) == ["Waiting", "Matched"]
    house.refresh(SLOW)
    house.report(1, claimed, "Released", cause="pilot-lost")
    assert house.events(job) == ["Waiting", "Matched", "Waiting", "Held"]
    assert house.job(job).held_by == "impossible"
    house.refresh(POSSIBLE)
    assert house.events(job) == ["Waiting", "Matched", "Waiting", "Held", "Waiting"]


def test_a_pilot_that_waits_gets_a_released_job_at_once(house):
    first = house.submit(3).first
    house.refresh(SLOW)
    _, answer = parked(house, house.pilot())
    house.refresh(POSSIBLE)
    assert [claimed.job_id for claimed in answer()] == [first]


def test_a_job_that_was_impossible_from_the_start(house):
    first = house.submit(2, held="no queue can run it").first
    single = house.submit(held="no queue can run it").first
    assert house.counts() == {"Held": 3}
    assert house.events(first) == ["Submitted", "Held"]
    assert house.events(single) == ["Held"]
    assert house.job(single).reason == "no queue can run it"
    house.refresh(POSSIBLE)
    assert house.counts() == {"Waiting": 3}
    assert house.events(single) == ["Held", "Waiting"]


def test_requirements_that_no_queue_fulfils_after_a_change(house):
    job = big(house)
    other = house.submit().first
    house.refresh(SMALL)
    assert (house.state(job), house.state(other)) == ("Held", "Waiting")
    assert "Requirements.Memory excludes 1 of 1" in house.job(job).reason
    assert not any(house.reconcile().values())
    house.refresh(policy(memory=8000))
    assert house.state(job) == "Waiting"
    assert len(house.claim(house.pilot(), 5)) == 2


def test_a_job_that_a_person_holds_is_not_released(house):
    first = house.submit(4).first
    row = house.submit().first
    house.control("hold", first, first + 1)
    house.control("hold", row)
    house.refresh(SLOW)
    assert house.counts() == {"Held": 5}
    assert listed(house, "Held") == [
        (first, "Held", "user"), (first + 1, "Held", "user"), (first + 2, "Held", "impossible"),
        (first + 3, "Held", "impossible"), (row, "Held", "user"),
    ]  # fmt: skip
    house.refresh(POSSIBLE)
    assert house.counts() == {"Held": 3, "Waiting": 2}
    assert house.events(row) == ["Waiting", "Held"]
    sound(house)


def test_a_person_may_hold_what_is_held_already_and_it_stays_held(house):
    first = house.submit(3).first
    house.refresh(SLOW)
    assert house.control("hold", first).changed == 1
    assert house.job(first).held_by == "user"
    house.refresh(POSSIBLE)
    assert house.counts() == {"Held": 1, "Waiting": 2}
    house.control("release", first)
    assert house.counts() == {"Waiting": 3}
    sound(house)


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
def test_a_person_cannot_release_what_no_queue_can_run(house, rows):
    first = house.submit(2, rows=rows).first
    house.refresh(SLOW)
    out = house.control("release", first, first + 1)
    assert (out.changed, out.refused) == (0, 2)
    assert "until a queue can run it" in out.examples[0].reason
    assert house.counts() == {"Held": 2}


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
def test_held_jobs_can_be_killed_and_deleted(house, rows):
    first = house.submit(4, rows=rows).first
    house.refresh(SLOW)
    assert house.control("kill", first).changed == 1
    assert house.control("delete", first + 1).changed == 1
    assert house.counts() == {"Killed": 1, "Deleted": 1, "Held": 2}
    sound(house)
    house.refresh(POSSIBLE)
    assert house.counts() == {"Killed": 1, "Deleted": 1, "Waiting": 2}
    assert len(house.claim(house.pilot(), 5)) == 2
    sound(house)


def test_a_hold_ends_without_a_word_when_its_last_job_is_gone(house):
    first = house.submit(2).first
    house.refresh(SLOW)
    house.control("kill", first, first + 1)
    house.refresh(SLOW)
    assert house.live.queues.held == {}
    assert house.events(first) == ["Submitted", "Held", "Killed"]
    assert house.state(first) == "Killed"


def ticked(house, now):
    """A keeper after its first refresh."""
    keeper = house.keeper(now)
    keeper.tick(now, house.clock)
    return keeper


@pytest.mark.parametrize("count", [1, 3], ids=["row", "array"])
def test_a_job_that_returns_to_an_empty_task_queue_that_became_impossible_is_held_at_once(house, count):
    first = house.submit(count).first
    pilot = house.pilot()
    claimed = house.claim(pilot, count)
    house.refresh(SLOW)
    assert set(house.live.queues.held) == {1}
    assert house.counts() == {"Matched": count}
    assert "Held" not in house.events(first)
    house.report(pilot, claimed[0], "Released", cause="pilot-shutdown")
    assert house.job(first).held_by == "impossible"
    assert house.claim(pilot, count) == []
    house.end_pilot(pilot)
    assert house.counts() == {"Held": count}
    sound(house)
    house.refresh(POSSIBLE)
    assert house.counts() == {"Waiting": count}
    assert len(house.claim(house.pilot(), count)) == count


@pytest.mark.parametrize("count", [1, 3], ids=["row", "array"])
def test_a_job_that_a_person_releases_into_an_impossible_task_queue_is_held_at_once(house, count):
    first = house.submit(count).first
    house.control("hold", first, first + count - 1)
    house.refresh(SLOW)
    assert listed(house, "Held") == [(first + n, "Held", "user") for n in range(count)]
    house.control("release", first, first + count - 1)
    assert listed(house, "Held") == [(first + n, "Held", "impossible") for n in range(count)]
    sound(house)


def test_an_empty_hold_survives_a_restart_and_goes_when_nothing_can_return(house):
    house.submit()
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.refresh(SLOW)
    house.restart()
    house.refresh(SLOW)
    assert set(house.live.queues.held) == {1}
    house.report(pilot, claimed)
    house.refresh(SLOW)
    assert house.live.queues.held == {}
    sound(house)


@pytest.mark.parametrize("count", [1, 3], ids=["row", "array"])
@pytest.mark.parametrize("ended", ["Killed", "Failed"])
def test_ended_jobs_that_come_back_to_an_empty_task_queue_are_judged_at_once(house, count, ended):
    first = house.submit(count).first
    if ended == "Killed":
        house.control("kill", first, first + count - 1)
    else:
        pilot = house.pilot()
        for claimed in house.claim(pilot, count):
            house.report(pilot, claimed, "Failed", cause="exit", exit_code=1)
    keeper = ticked(house, SLOW)
    assert keeper.tick(SLOW, house.clock + 1) == ""
    house.control("reschedule", first, first + count - 1)
    assert keeper.tick(SLOW, house.clock + 2) == "request"
    assert house.counts() == {"Held": count}
    assert house.job(first).held_by == "impossible"
    house.control("kill", first)
    house.control("reschedule", first)  # it is held already: no refresh is needed
    assert keeper.tick(SLOW, house.clock + 3) == ""


def test_jobs_that_come_back_among_others_ask_for_nothing(house):
    first = house.submit(2).first
    house.control("kill", first)
    keeper = ticked(house, POSSIBLE)
    house.control("reschedule", first)
    assert keeper.tick(POSSIBLE, house.clock + 1) == ""


def test_a_task_queue_whose_pool_is_gone_is_judged_by_its_own_requirements(house):
    job = big(house)
    with house.writer:
        house.writer.execute("DELETE FROM submit_pool_bits")
    house.refresh(POSSIBLE)
    assert house.state(job) == "Waiting"
    house.refresh(SMALL)
    assert house.state(job) == "Held"
    house.refresh(POSSIBLE)
    house.refresh(POSSIBLE)
    assert len(house.claim(house.pilot())) == 1


def test_the_reason_follows_the_configuration(house):
    job = house.submit().first
    house.refresh(SLOW)
    house.clock += 60
    house.refresh(policy(cpu=10, more="[site.S2.ce.ce.queue.q]\nCPUTime = 20\n"))
    assert "excludes 2 of 2" in house.job(job).reason
    assert house.job(job).since == 1_000
    assert house.events(job) == ["Waiting", "Held"]


def test_holds_survive_a_restart_and_idle_task_queues(house):
    first = house.submit(3).first
    house.refresh(SLOW)
    house.restart()
    assert house.counts() == {"Held": 3}
    assert house.claim(house.pilot(), 3) == []
    sound(house)
    house.clock += 10_000
    house.do(Change(forget_idle_queues, house.live))
    more = house.submit(2).first
    assert house.counts() == {"Held": 5}
    assert house.job(more).held_by == "impossible"
    house.refresh(POSSIBLE)
    house.restart()
    assert house.counts() == {"Waiting": 5}
    assert {c.job_id for c in house.claim(house.pilot(), 9)} == {first, first + 1, first + 2, more, more + 1}


@pytest.mark.sqlite
def test_one_command_holds_a_task_queue_however_many_jobs_it_has(house):
    house.submit(1_000_000)
    house.submit(300, rows=True)
    house.refresh(POSSIBLE)
    before = house.writer.connection.total_changes()
    house.refresh(SLOW)
    assert house.writer.connection.total_changes() - before < 20
    assert house.counts() == {"Held": 1_000_300}
    assert count_jobs(house.reader) == [Count("ann", "g", JobState.HELD, 1_000_300)]


def test_a_batch_that_fails_leaves_holds_as_they_were(house):
    class Fault:
        def __init__(self, command):
            self.command = command

        def apply(self, tx):
            self.command.apply(tx)
            raise ZeroDivisionError

    class Hold:
        def __init__(self, deed):
            self.deed = deed

        def apply(self, tx):
            return getattr(house.live.queues, self.deed)(tx, 1, "x")

    house.submit(2)
    for deed, counts in (("hold", {"Waiting": 2}), ("release", {"Held": 2})):
        with pytest.raises(Exception, match="nothing was stored"):
            house.do(Fault(Hold(deed)))
        assert house.counts() == counts
        sound(house)
        assert house.live.queues.index.is_open(1) is (deed == "hold")
        house.do(Hold(deed))
    assert house.counts() == {"Waiting": 2}
    assert len(house.claim(house.pilot(), 5)) == 2


def test_task_queues_that_are_held_have_no_waiting_jobs_for_the_director(house):
    house.submit(4)
    assert list(house.reader.execute("SELECT waiting FROM queue_waiting")) == [(4,)]
    house.refresh(SLOW)
    assert list(house.reader.execute("SELECT waiting FROM queue_waiting")) == []
    assert list(house.reader.execute("SELECT jobs FROM queue_jobs")) == [(4,)]
