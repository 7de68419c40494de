"""Declared types that change: what jobs asked for stays, equal sets share one SubmitPool and one task queue."""

import random

import pytest
from tests.contract.test_jobs_walk import parked

from lodesman.base.errors import Conflict
from lodesman.decide.matching import key_to_json
from lodesman.decide.matching.policy import Policy
from lodesman.decide.matching.submit_pool import spelled_requirements, submit_pool_id
from lodesman.decide.resources import compile_requirements, load_resources
from lodesman.server.loops.snapshot import KnownQueues
from lodesman.server.store.journal import Change
from lodesman.server.store.submit_pools import PoolRow, stored_pools
from lodesman.server.writer.pilots import hash_token, prepare_pilots
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.submit import NewPool
from lodesman.server.writer.submit_pools import PoolIds, judge_queues, rekey_pools
from lodesman.wire.service import NewPilot, QueueVerdicts, Renewals

S1, S2 = ("S1", "ce", "q"), ("S2", "ce", "q")


def policy(words="number GB", first="60 GB", second="60 GB", more=""):
    """Two queues with a disk; how `disk` is declared, and what each offers."""
    declared = f'disk = "{words}"\n' if words else ""
    queues = "".join(
        f'[site.{site}.ce.ce.queue.q]\nCPUTime = 1000\ndisk = "{disk}"\n'
        for site, disk in (("S1", first), ("S2", second))
        if disk
    )
    return Policy(load_resources([("s.toml", f"[job_description]\n{declared}{more}{queues}")]))


GB, MB = policy(), policy("number MB")


def wants(now, disk=50):
    """The SubmitPool that such a job brings, as the configuration has it."""
    types, world, wanted = now.config.types, now.vo_config("vo"), {"disk": disk}
    mask = world.table.eligible_mask(compile_requirements(wanted, types))
    return NewPool(
        id=submit_pool_id(compile_requirements(wanted, types), "vo"), vo="vo",
        requirements=spelled_requirements(compile_requirements(wanted, types)),
        queues=mask,
    )  # fmt: skip


def submit(house, now, count=1, *, disk=50, owner="ann", **more):
    pool = wants(now, disk)
    return house.submit(count, key=house.key(submit_pool=pool.id, owner=owner), pools=[pool], **more).first


def pools(house):
    """The ids of all pools; in memory and on disk they are the same, with the same queues."""
    stored = {row.id: row.queues for row in stored_pools(house.reader)}
    assert {pool: house.live.pools.mask(pool) for pool in house.live.pools.known} == stored
    loaded = PoolMap.load(house.reader)
    assert [loaded.of_queue(place).pools for place in (S1, S2)] == [
        house.live.pools.of_queue(place).pools for place in (S1, S2)
    ]
    return list(stored)


def queues(house):
    """(id, SubmitPool) of all task queues. Whatever the index has is as it is stored, and counters are true."""
    rows = list(house.reader.execute("SELECT id, key, pool_id FROM task_queue ORDER BY id"))
    stored = {number: key for number, key, _ in rows}
    index = house.live.queues.index
    for number, key, _ in index.queues():
        assert stored[number] == key_to_json(key)
        assert index.find(key) == number
        assert ("impossible" in index._queues[number].limits) == (number in house.live.queues.held)
    assert set(house.reconcile().values()) == {0}
    assert set(house.live.queues.held) == {
        row[0] for row in house.reader.execute("SELECT tq_id FROM task_queue_hold")
    }
    counted = {row[0] for row in house.reader.execute("SELECT tq_id FROM task_queue_count")}
    assert counted == stored.keys()
    return [(number, pool) for number, _, pool in rows]


def run_all(house, *pilots):
    """Claim and finish whatever there is; returns the jobs."""
    done = []
    for pilot in pilots or (house.pilot("S1"),):
        while claimed := house.claim(pilot, 4):
            for one in claimed:
                assert house.report(pilot, one).accepted
                done.append(one.job_id)
    return sorted(done)


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
def test_fifty_gigabytes_stay_fifty_gigabytes(house, rows):
    first = submit(house, GB, 4, rows=rows)
    house.refresh(policy("number MB", "100 MB", "100 MB"))
    assert house.counts() == {"Held": 4}
    assert "Requirements.disk excludes 2 of 2" in house.job(first).reason
    house.refresh(policy("number MB", "100 MB", "60 GB"))
    assert house.counts() == {"Waiting": 4}
    assert run_all(house, house.pilot("S1")) == []
    assert run_all(house, house.pilot("S2")) == [first + n for n in range(4)]


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
def test_an_equal_job_after_the_change_joins_the_same_task_queue(house, rows):
    first = submit(house, GB, 3, rows=rows)
    house.refresh(GB)
    house.refresh(MB)
    new = wants(MB, "50 GB")
    assert new.id == wants(MB, 51_200).id != wants(GB).id
    assert pools(house) == [new.id]
    assert next(stored_pools(house.reader)).requirements == '{"disk":["number",">=","MB",[51200]]}'
    assert queues(house) == [(1, new.id)]
    later = submit(house, MB, disk=51_200)
    assert queues(house) == [(1, new.id)]
    assert run_all(house) == [first, first + 1, first + 2, later]


@pytest.mark.sqlite
def test_declarations_of_other_parameters_change_nothing(house):
    submit(house, GB)
    house.refresh(GB)
    before = pools(house), queues(house), house.writer.connection.total_changes()
    house.refresh(policy(more='cpumodel = "string"\nscratch = "number GB"\n'))
    assert (pools(house), queues(house)) == before[:2]
    assert house.reader.execute("SELECT rekeyed FROM submit_pool_state").fetchone() == (0,)


@pytest.mark.parametrize(
    ("words", "offer", "same"),
    [
        ("string", "50 GB", "50 GB"),
        ("list", "10 GB, 50 GB", "50 GB"),
        ("number GB ==", 50, 50),
        ("", "50 GB", "50 GB"),
    ],
)
def test_a_change_of_kind(house, words, offer, same):
    job = submit(house, GB)
    now = policy(words, offer, 60)
    house.refresh(now)
    assert pools(house) == [wants(now, same).id]
    assert run_all(house, house.pilot("S2")) == []
    assert run_all(house, house.pilot("S1")) == [job]


def test_unreadable_requirements_are_held_until_they_are_readable(house):
    job = submit(house, GB)
    house.refresh(policy("boolean", "true", "true"))
    assert house.state(job) == "Held"
    assert pools(house) == [wants(GB).id]
    house.refresh(MB)
    assert pools(house) == [wants(MB, "50 GB").id]
    assert run_all(house) == [job]


# --- two that become one -----------------------------------------------------------------------------------


def both(house, older, younger, **more):
    """Jobs of both, where `MB` has the same set under its own identifier before the refresh."""
    first = submit(house, older, 4, disk="50 GB", **more)
    second = submit(house, younger, 3, disk="50 GB", **more)
    assert len(queues(house)) == len(pools(house)) == 2
    return first, second


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
@pytest.mark.parametrize("order", [(GB, MB), (MB, GB)], ids=["renamed is older", "renamed is younger"])
def test_two_pools_become_one(house, order, rows):
    first, second = both(house, *order, rows=rows)
    house.refresh(MB)
    assert pools(house) == [wants(MB, "50 GB").id]
    assert queues(house) == [(1, wants(MB, "50 GB").id)]
    assert house.counts() == {"Waiting": 7}
    assert list(house.reader.execute("SELECT * FROM queue_jobs")) == [(1, 7)]
    assert run_all(house) == [*range(first, first + 4), *range(second, second + 3)]
    assert list(house.reader.execute("SELECT * FROM queue_jobs")) == [(1, 0)]


@pytest.mark.parametrize("rows", [False, True], ids=["array", "rows"])
@pytest.mark.parametrize("order", [(GB, MB), (MB, GB)], ids=["renamed is older", "renamed is younger"])
def test_whatever_state_jobs_are_in_they_go_along(house, order, rows):
    first, second = both(house, *order, rows=rows)
    pilot = house.pilot()
    claimed = {one.job_id: one for one in house.claim(pilot, 2)}
    while len([job for job in claimed if job >= second]) < 2:
        claimed |= {one.job_id: one for one in house.claim(pilot)}
    left = [job for job in (*range(first, first + 4), *range(second, second + 3)) if job not in claimed]
    house.control("hold", left[-1])
    house.control("kill", left[0])
    waits, runs = set(left[1:-1]), sorted(claimed)
    house.refresh(MB)
    assert len(queues(house)) == 1
    assert house.state(left[-1]) == "Held"
    house.control("release", left[-1])
    house.control("reschedule", left[0])
    house.report(pilot, claimed[runs[-1]], "Released", cause="pilot-lost")
    queues(house)
    assert set(run_all(house)) == waits | {left[-1], left[0], runs[-1]}
    for job in runs[:-1]:
        assert house.report(pilot, claimed[job]).accepted
    assert house.counts() == {"Done": 7}
    queues(house)


def test_after_a_restart_it_is_as_it_was(house):
    both(house, GB, MB)
    pilot = house.pilot()
    (claimed,) = house.claim(pilot)
    house.refresh(MB)
    house.claim(pilot)
    house.restart()
    assert house.counts() == {"Waiting": 5, "Matched": 2}
    assert queues(house) == [(1, wants(MB, "50 GB").id)]
    assert len(run_all(house, pilot)) == 5
    third = submit(house, MB, disk="50 GB", owner="bob")
    assert [number for number, _ in queues(house)] == [1, 3]  # no id is given out again
    assert run_all(house) == [third]
    assert house.report(pilot, claimed).accepted


def test_a_held_task_queue_that_is_joined(house):
    first, second = both(house, MB, GB)
    house.control("kill", first, first + 3)
    small = policy("number GB", "1 GB", "1 GB")
    house.refresh(small)
    assert house.counts() == {"Held": 3, "Killed": 4}
    house.control("reschedule", first)
    house.refresh(MB)
    assert house.live.queues.held == {}
    assert len(queues(house)) == 1
    assert run_all(house) == [first, second, second + 1, second + 2]


def test_a_task_queue_that_the_index_had_dropped_gets_its_key_and_its_jobs(house):
    job = submit(house, GB)
    house.control("kill", job)
    house.live.queues.index.remove(1)
    other = submit(house, MB, disk="50 GB")
    house.refresh(MB)
    assert queues(house) == [(2, wants(MB, "50 GB").id)]
    house.control("reschedule", job)
    assert run_all(house) == [job, other]


def test_sets_of_which_many_become_one_at_once(house):
    text, version = policy("string", "6.30", "6.30"), policy("version", "6.32", "6.28")
    jobs = [submit(house, text, disk=wanted) for wanted in ("6.30", "6.30.0", "6.31", "6.30.00")]
    assert len(pools(house)) == 4
    house.refresh(version)
    assert len(pools(house)) == 2
    assert [number for number, _ in queues(house)] == [1, 3]
    assert run_all(house, house.pilot("S2")) == []
    assert run_all(house, house.pilot("S1")) == jobs


def test_a_pilot_that_waits_where_the_other_pool_is_served_is_answered(house):
    here, there = policy("number GB", "60 GB", "1 GB"), policy("number MB", "1 GB", "60 GB")
    old = submit(house, here, 2)
    pool = wants(there, "50 GB")
    house.submit(key=house.key(submit_pool=pool.id, cores=8), pools=[pool])
    _, answer = parked(house, house.pilot("S2", cores=4))
    house.refresh(there)
    assert [one.job_id for one in answer()] == [old]


def test_a_batch_that_fails_leaves_everything_as_it_was(house):
    both(house, GB, MB)
    submit(house, GB, owner="bob")
    house.claim(house.pilot(), 2)
    old, new = wants(GB), wants(MB, "50 GB")
    moves = Renewals(config=MB.digest, pools=[(old.id, new.id, new.requirements)])
    before = pools(house), queues(house), house.counts()

    class Fault:
        def apply(self, tx):
            assert rekey_pools(tx, house.live, moves, MB.digest) == 2
            assert house.live.queues.index.find(house.key(submit_pool=old.id)) is None
            raise ZeroDivisionError

    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Fault())
    assert (pools(house), queues(house), house.counts()) == before
    assert house.live.queues.index.find(house.key(submit_pool=old.id)) == 1
    house.refresh(MB)
    assert len(queues(house)) == 2
    assert house.counts() == {"Waiting": 6, "Matched": 2}
    assert len(run_all(house)) == 6


class Faulty:
    """A command that is applied, and then the batch fails."""

    def __init__(self, command):
        self.command = command

    def apply(self, tx):
        self.command.apply(tx)
        raise ZeroDivisionError


# What S1 alone takes of the older set, and S2 alone of the younger.
ONE, OTHER = policy("number GB", "60 GB", "1 GB"), policy("number MB", "1 GB", "60 GB")


def apart(house, first=1, second=1):
    """Jobs in task queue 1 for S1, and in task queue 2, which will be the same, for S2."""
    return submit(house, ONE, first, disk="50 GB", rows=True), submit(
        house, OTHER, second, disk="50 GB", rows=True
    )


def test_what_runs_may_return_to_the_task_queue_that_is_left(house):
    apart(house)
    pilots = house.pilot("S1"), house.pilot("S2")
    claimed = [house.claim(pilot)[0] for pilot in pilots]
    house.refresh(MB)
    assert len(queues(house)) == 1
    assert list(house.reader.execute("SELECT DISTINCT tq_id FROM attempt")) == [(1,)]
    house.refresh(policy("number MB", "1 GB", "1 GB"))
    assert set(house.live.queues.held) == {1}
    for pilot, one in zip(pilots, claimed, strict=True):
        house.report(pilot, one, "Released", cause="pilot-shutdown")
    assert house.counts() == {"Held": 2}


def test_jobs_that_come_before_where_the_other_had_got_to_are_found(house):
    submit(house, ONE, disk="50 GB")
    submit(house, OTHER, 2, disk="50 GB", rows=True)
    submit(house, ONE, disk="50 GB")
    pilot = house.pilot("S1")
    for number in (1, 4):
        (claimed,) = house.claim(pilot)
        assert claimed.job_id == number
        house.report(pilot, claimed)
        house.restart()
    last = submit(house, ONE, disk="50 GB")
    assert [one.job_id for one in house.claim(pilot)] == [last]
    assert house.reader.execute("SELECT row_cursor FROM task_queue_count WHERE tq_id = 1").fetchone() == (
        last,
    )
    submit(house, ONE, disk="50 GB")
    house.refresh(MB)
    assert [number for number, _ in queues(house)] == [1]
    assert run_all(house) == [2, 3, last + 1]


def test_claims_that_were_not_counted_yet_are_counted_once(house):
    apart(house, 4, 3)
    assert len(house.claim(house.pilot("S2"), 3)) == 3
    house.refresh(MB)
    assert list(house.reader.execute("SELECT * FROM queue_jobs")) == [(1, 4)]
    house.restart()
    assert list(house.reader.execute("SELECT * FROM queue_jobs")) == [(1, 4)]
    assert house.counts() == {"Waiting": 4, "Matched": 3}


def test_pilots_on_their_way_are_pilots_of_the_task_queue_that_is_left(house):
    apart(house)
    house.do(Change(prepare_pilots, house.live, [NewPilot(
        stamp="s", vo="vo", site="S2", ce="ce", queue="q", request={}, join_hash=hash_token("x"), tq_id=2,
    )]))  # fmt: skip
    house.refresh(MB)
    assert list(house.reader.execute("SELECT tq_id FROM pilot")) == [(1,)]


def test_a_batch_that_fails_leaves_holds_as_they_were(house):
    apart(house, 2, 2)
    house.do(Change(judge_queues, house.live, QueueVerdicts(number=0, hold=[(1, "x"), (2, "y")])))
    old, new = wants(ONE, "50 GB"), wants(OTHER, "50 GB")
    moves = Renewals(config=MB.digest, pools=[(old.id, new.id, new.requirements)])
    before = pools(house), queues(house)
    with pytest.raises(Exception, match="nothing was stored"):
        house.do(Faulty(Change(rekey_pools, house.live, moves, MB.digest)))
    assert (pools(house), queues(house)) == before
    assert house.live.queues.held == {1: "x", 2: "y"}
    house.do(Change(rekey_pools, house.live, moves, MB.digest))
    assert house.live.queues.held == {1: "x"}
    assert house.counts() == {"Held": 4}
    queues(house)


def test_another_configuration_refuses_it(house):
    submit(house, GB)
    with pytest.raises(Conflict, match="another configuration"):
        house.do(Change(rekey_pools, house.live, Renewals(config="old", pools=[]), MB.digest))
    gone = Renewals(config=MB.digest, pools=[("req2:gone", "req2:x", "{}")])
    assert house.do(Change(rekey_pools, house.live, gone, MB.digest)) == 0
    assert pools(house) == [wants(GB).id]


def test_cached_keys_are_read_again(house):
    known = KnownQueues(house.reader)
    both(house, GB, MB)
    submit(house, GB, owner="bob")
    assert [(tq_id, n) for tq_id, _, n in known.read()] == [(1, 4), (2, 3), (3, 1)]
    house.refresh(MB)
    pool = wants(MB, "50 GB").id
    assert [(tq_id, key.submit_pool, n) for tq_id, key, n in known.read()] == [(1, pool, 7), (3, pool, 1)]
    assert sorted(known.table.pools.values()) == [pool, pool]
    assert known.table.full.bit_count() == 2
    assert known.read()[0][1] is known.read()[0][1]


def test_a_submission_that_was_checked_by_the_types_of_before_is_taken_along(house):
    submit(house, GB)
    keeper = house.keeper(MB)
    keeper.tick(MB, house.clock)
    late = submit(house, GB)
    assert len(pools(house)) == 2
    assert keeper.tick(MB, house.clock + 1) == "request"
    assert queues(house) == [(1, wants(MB, "50 GB").id)]
    assert late in run_all(house)


@pytest.mark.parametrize("seed", range(12))
def test_no_job_is_lost_whatever_is_joined(house_of, tmp_path, seed):
    house, rng = house_of(tmp_path), random.Random(seed)
    words = [GB, MB, policy("number TB"), policy("number GB ==", "50 GB", "1 TB")]
    pilot, running, count = house.pilot(), [], 0
    for _ in range(40):
        deed = rng.choice(
            ["submit", "submit", "claim", "hold", "release", "kill", "reschedule", "pass", "back"]
        )
        if deed == "submit":
            now, jobs = rng.choice(words), rng.choice([1, 1, 3, 5])
            disk = rng.choice(["50 GB", "51200 MB", "1 TB"])
            submit(house, now, jobs, disk=disk, owner=rng.choice(["ann", "bob"]), rows=rng.random() < 0.5)
            count += jobs
        elif deed == "claim":
            running += house.claim(pilot, rng.randrange(1, 4))
        elif deed == "back" and running:
            house.report(pilot, running.pop(rng.randrange(len(running))), "Released", cause="pilot-shutdown")
        elif deed == "pass":
            house.refresh(rng.choice(words))
            queues(house)
        elif count and deed != "back":
            begun = rng.randrange(1, count + 1)
            house.control(deed, begun, min(count, begun + rng.randrange(4)))
        if rng.random() < 0.05:
            house.restart()
    house.refresh(policy("number MB", "2 TB", "2 TB"))
    found = queues(house)
    assert len({pool for _, pool in found}) <= 2
    assert len(found) <= 4
    assert sum(house.counts().values()) == count
    for one in running:
        house.report(pilot, one)
    house.control("release", 1, count)
    waiting = house.counts().get("Waiting", 0)
    assert len(run_all(house, pilot)) == waiting
    assert not house.counts().keys() & {"Waiting", "Held", "Matched"}
    queues(house)
    house.close()


# --- what is known already ---------------------------------------------------------------------------------


def test_each_set_is_read_once_for_each_table_of_types():
    settled = PoolIds()
    old = wants(GB)
    row = PoolRow(old.id, "vo", old.requirements, 0, 0.0, None)
    odd = [PoolRow("req1:x", "vo", text, 0, 0.0, None) for text in ("", "{}", "x", "[]", "[1]", '{"a": [1]}')]
    assert settled.changed(GB.config.types, [row, *odd]) == []
    spoiled = PoolRow(old.id, "vo", wants(GB, 51).requirements, 0, 0.0, None)
    assert settled.changed(GB.config.types, [spoiled]) == []  # it is known: not read again
    new = wants(MB, "50 GB")
    assert settled.changed(MB.config.types, [row]) == [(old.id, new.id, new.requirements)]
    assert settled.changed(MB.config.types, [row]) == [(old.id, new.id, new.requirements)]


def test_the_requirements_of_older_databases_are_those_of_today(house):
    """Pools of the first canonical form, whose values had no unit: it is stored that it is not known."""
    job = submit(house, GB, 2)
    new = wants(GB)
    with house.writer:
        for table, where in (("submit_pool_bits", "true"), ("task_queue", "true")):
            house.writer.execute(
                f"UPDATE {table} SET requirements = ? WHERE {where}", ('{"disk":["number","",null,[50]]}',)
            )
        house.writer.execute("UPDATE submit_pool_bits SET id = 'req1:old'")
        house.writer.execute("UPDATE task_queue SET key = replace(key, pool_id, 'req1:old')")
        key = house.writer.execute("SELECT key FROM task_queue").fetchone()[0]
    assert isinstance(key, str)
    house.restart()
    house.refresh(GB)
    assert pools(house) == [new.id]
    assert queues(house) == [(1, new.id)]
    assert house.reader.execute("SELECT requirements FROM task_queue").fetchone() == (new.requirements,)
    assert run_all(house) == [job, job + 1]


def test_the_database_refuses_two_task_queues_with_one_key(house):
    both(house, GB, MB)
    with pytest.raises(Exception, match=r"(?i)unique"), house.writer:
        house.writer.execute("UPDATE task_queue SET key = (SELECT key FROM task_queue WHERE id = 1)")
