"""The snapshot and the pending reasons follow what changed: always what is read and judged from the start."""

from __future__ import annotations

import random

import pytest

from lodesman.decide.matching.policy import Policy
from lodesman.decide.resources import load_resources
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.server.store.changes import change_marks
from lodesman.server.store.journal import Change
from lodesman.server.store.task_queues import hold_queue, release_queue, waiting_by_queue
from lodesman.server.writer.submit import PreparedCohort, PreparedSubmission, Submit

RESOURCES = """
[site.North]
VO = ["lab"]
[site.North.ce.cn.queue.short]
NumberOfProcessors = 4
CPUTime = 100000
Memory = 2000
[site.South]
VO = ["lab"]
[site.South.ce.cs.queue.long]
Memory = 2000
CPUTime = 200000
"""
OFFER = '{"platforms":[],"tags":[],"cores":4,"memory_mb":2000,"norm_cpu_seconds":100000}'
COST = 0.25  # CPU seconds of a refresh, and of a judgement: after a change it rests 4 s, else 50
STEP = 6.0


class World:
    """Changes of the database, by the commands or as these store them."""

    def __init__(self, base, make_key, seed=0):
        self.base, self.make_key, self.rng = base, make_key, random.Random(seed)
        self.numbers = iter(range(10_000, 20_000))

    def write(self, sql, *values):
        with self.base.writer:
            self.base.writer.execute(sql, values)

    def event(self):
        self.write("INSERT INTO event (id, at, job_id, kind) VALUES (?, 1, 1, 'Done')", next(self.numbers))

    def submit(self):
        rng, sites = self.rng, self.rng.choice([(), ("North",), ("Nowhere",)])
        at_most = rng.choice([0, 0, 0, 2])
        key = self.make_key(
            owner=rng.choice("abc"), group=rng.choice(["bio", "physics"]), sites=sites, at_most=at_most,
            submission=7 if at_most else 0, cores=rng.choice([1, 4]),
        )  # fmt: skip
        cohort = PreparedCohort(key=key, template="{}", expand=False, max_attempts=1, runs=((0, 3),))
        self.base.do(Submit(self.base.live, PreparedSubmission(
            owner=key.owner, group=key.group, vo=key.vo, name="", form="json", record="", members=None, count=3,
            cohorts=(cohort,),
        )))  # fmt: skip

    def some_queue(self):
        return self.rng.choice(sorted(waiting_by_queue(self.base.db)) or [0])

    def claim(self):
        """As a claim is stored: an attempt, and nothing else."""
        tq_id, number = self.some_queue(), next(self.numbers)
        if tq_id:
            self.write(
                """INSERT INTO attempt (id, job_id, number, tq_id, pilot_id, claim_token, site, claimed_at)
                VALUES (?, ?, 1, ?, 1, 't', 'North', 60)""", number, number, tq_id,
            )  # fmt: skip

    def end_attempts(self):
        self.write("UPDATE attempt SET ended_at = 90, outcome = 'Done' WHERE id % 2 = 0")
        self.event()

    def hold(self):
        tq_id = self.some_queue()
        if tq_id:
            self.base.do(Change(hold_queue, next(self.numbers), tq_id, "no queue"))

    def release(self):
        held = self.base.db.execute("SELECT min(tq_id) FROM task_queue_hold").fetchone()[0]
        if held:
            self.base.do(Change(release_queue, next(self.numbers), held, "it can run"))

    def pilot(self):
        number, state = next(self.numbers), self.rng.choice(["Submitted", "Running"])
        self.write(
            """INSERT INTO pilot (id, stamp, state, vo, site, ce, queue, request, created_at, joined_at, last_seen)
            VALUES (?, ?, ?, 'lab', 'North', 'cn', 'short', ?, 40, ?, ?)""",
            number, f"s{number}", state, OFFER, 50.0 if state == "Running" else None, 1e9,
        )  # fmt: skip

    def pilot_joins(self):
        self.write(
            "UPDATE pilot SET state = 'Running', joined_at = 50, last_seen = 1e9 WHERE state = 'Submitted'"
        )

    def pilot_ends(self):
        self.write(
            "UPDATE pilot SET state = 'Done', ended_at = 60 WHERE id = (SELECT min(id) FROM pilot WHERE ended_at IS NULL)"
        )

    def close(self):
        self.write("UPDATE site_mask_state SET version = version + 1")

    def rekey(self):
        self.write("UPDATE submit_pool_state SET rekeyed = rekeyed + 1")

    def decide(self):
        record = '{"row_fields": ["tq_id", "asked", "cap"], "rows": [], "asks": [], "no_pool": [], "plan": {}, "rooms": {}}'
        self.write("INSERT INTO director_iteration (at, plan) VALUES (1000, ?)", record)

    def nothing(self):
        pass


CHANGES = (
    World.submit, World.claim, World.end_attempts, World.hold, World.release, World.pilot, World.pilot_joins,
    World.pilot_ends, World.rekey, World.decide, World.close,
)  # fmt: skip


@pytest.fixture
def world(base, make_key):
    return World(base, make_key)


@pytest.fixture
def policy():
    return Policy(load_resources([("sites.toml", RESOURCES)]))


def seen(keeper, now):
    """What a keeper says to those who ask."""
    snapshot, contest, pilots = keeper.snapshot, keeper.contest, keeper.pilots
    return {
        "waiting": list(snapshot.waiting),
        "groups": {group: jobs for group, jobs in snapshot.groups.items() if jobs},
        "startable": keeper.startable,
        "turns": [contest.turn(key, tq_id, ahead=1, shares={}) for tq_id, key, _ in snapshot.waiting],
        "usable": [pilots.usable(key, None, now=now) for _, key, _ in snapshot.waiting],
        "own": dict(pilots.own),
        "iteration": snapshot.iteration and snapshot.iteration.number,
        "attempts": sorted(pilots.attempts),
    }


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_each_change_has_another_mark(world, change):
    for before in (World.submit, World.submit, World.pilot, World.pilot, World.hold):
        before(world)
    world.write("UPDATE pilot SET state = 'Submitted', joined_at = NULL")
    marks = change_marks(world.base.db)
    assert change_marks(world.base.db) == marks
    change(world)
    assert change_marks(world.base.db) != marks


def test_a_pilot_that_joins_as_another_ends_changes_a_mark(world):
    world.pilot(), world.pilot(), world.pilot()
    world.write("UPDATE pilot SET state = 'Running' WHERE id = (SELECT min(id) FROM pilot)")
    world.write("UPDATE pilot SET state = 'Submitted' WHERE id > (SELECT min(id) FROM pilot)")
    marks = change_marks(world.base.db)
    world.pilot_ends()
    world.write("UPDATE pilot SET state = 'Running' WHERE id = (SELECT max(id) FROM pilot)")
    assert change_marks(world.base.db) != marks


def test_without_a_change_nothing_is_read_or_made_anew(world):
    world.submit()
    keeper = SnapshotKeeper(world.base.db)
    keeper.refresh(1_000.0)
    first, contest, version = keeper.snapshot, keeper.contest, keeper.version
    keeper._cost = COST
    keeper.refresh(1_000.0 + STEP)
    assert keeper.snapshot.at == 1_000.0
    keeper.refresh(1_060.0)
    assert keeper.snapshot.at == 1_060.0, "at times all is read, whatever the marks say"
    assert keeper.snapshot.waiting is first.waiting
    assert (keeper.contest, keeper.version) == (contest, version)


def test_no_request_waits_for_a_change_that_is_dear_since_the_last_look_found_none(world):
    world.submit()
    keeper = SnapshotKeeper(world.base.db)
    keeper.refresh(1_000.0)
    keeper._changed_cost = COST
    keeper.refresh(1_060.0)
    assert not keeper.is_cheap
    world.submit()
    keeper.refresh(1_120.0)
    assert keeper.is_cheap


def test_a_counter_that_was_repaired_is_seen_within_a_minute(world):
    """No mark changes with it."""
    world.submit()
    keeper = SnapshotKeeper(world.base.db)
    keeper.refresh(1_000.0)
    keeper._cost = COST
    world.write("UPDATE task_queue_count SET waiting = 99")
    keeper.refresh(1_060.0)
    assert [jobs for *_, jobs in keeper.snapshot.waiting] == [99]
    assert sum(keeper.snapshot.groups.values()) == 99


@pytest.mark.parametrize("seed", range(6))
def test_after_any_changes_it_is_as_if_read_from_the_start(base, make_key, policy, seed):
    world, now = World(base, make_key, seed), 1_000.0
    keeper = SnapshotKeeper(base.db)
    reasons, stored = MainReasons(base.db, keeper), {}
    for _ in range(25):
        for change in world.rng.choices(
            (*CHANGES, World.submit, World.claim, World.nothing), k=world.rng.choice([0, 1, 3])
        ):
            change(world)
        now += STEP
        keeper.refresh(now)
        fresh = SnapshotKeeper(base.db)
        fresh.refresh(now)
        fresh.know_who_competes(keeper._where, keeper._apart)  # as of the last judgement
        assert seen(keeper, now) == seen(fresh, now)
        stored |= reasons.judge(policy, now) or {}
        judged = MainReasons(base.db, fresh)
        judged._stored = {}
        expected = judged.judge(policy, now)
        assert {tq_id: reason for tq_id, reason in stored.items() if reason is not None} == expected
        keeper._cost = reasons._cost = COST


def test_reasons_are_judged_again_only_after_a_change(world, policy):
    world.submit()
    keeper = SnapshotKeeper(world.base.db)
    reasons = MainReasons(world.base.db, keeper)
    keeper.refresh(1_000.0)
    assert len(reasons.judge(policy, 1_000.0)) == 1
    reasons._cost = COST
    reasons._judge_all = None  # it is not asked
    assert reasons.judge(policy, 1_000.0 + STEP) == {}
    del reasons._judge_all
    world.pilot()
    keeper.refresh(1_010.0)
    assert len(reasons.judge(policy, 1_012.0)) == 1
