"""A fault in one item costs that item alone: planted in each part that the loops of the background process visit."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.loops.test_director_service import LONG, SHORT, World
from tests.unit.loops.test_refresh_input import POLICY, draft, pool, stored

from lodesman.base.errors import Conflict, ServerFault, Unavailable
from lodesman.decide.director import iteration
from lodesman.server.loops import direct, launch, reasons, reconciler, refresh, retention, snapshot
from lodesman.server.loops.candidates import CandidateMaker
from lodesman.server.loops.left_out import (
    Item,
    LeftOutItems,
    StepPass,
    do_without_faulty,
    task_queue,
)
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.refresh import PoolKeeper
from lodesman.server.loops.snapshot import KnownQueues, SnapshotKeeper
from lodesman.server.store.shelf import Shelf
from lodesman.server.store.task_queues import JudgedQueue
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.service import LimitAnswer, PassNumber, PurgeResult, RepairCounts, Suspects


def fails(real, is_faulty):
    """The real function, but for what is at fault."""

    def call(*args, **names):
        if is_faulty(*args, **names):
            raise StopIteration
        return real(*args, **names)

    return call


# --- the rule itself


@given(items=st.lists(st.integers(), unique=True, max_size=40), data=st.data())
def test_what_is_done_at_once_is_done_for_all_but_those_at_fault(items, data):
    faulty = data.draw(st.sets(st.sampled_from(items))) if items else set()
    done, left = [], StepPass("x", {})

    def call(some):
        if faulty & set(some):
            raise KeyError("x")
        done.extend(some)

    left.in_parts(items, call, str)
    assert done == [one for one in items if one not in faulty]
    assert set(left.faults) == {str(one) for one in faulty}


def test_what_fails_whatever_is_left_out_is_raised():
    def attempt(_without):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        do_without_faulty(attempt, lambda: [[[(task_queue(1),)]]], StepPass("x", {}))


@pytest.mark.parametrize("fault", [Unavailable("away"), Conflict("moved")])
def test_that_nobody_can_answer_now_is_the_fault_of_no_item(fault):
    def call(_some):
        raise fault

    for attempt in (
        lambda left: left.in_parts([1, 2], call, str),
        lambda left: do_without_faulty(call, lambda: [[[(task_queue(1),)]]], left),
    ):
        left = StepPass("x", {})
        with pytest.raises(type(fault)):
            attempt(left)
        assert left.faults == {}


def test_it_is_named_until_the_next_pass_and_logged_once(caplog):
    left_out = LeftOutItems()
    for _ in range(3):
        with left_out.step("the x") as left, left.item(Item("site", "North")):
            raise KeyError("no ad")
    assert left_out.named() == {"site North": "the x (KeyError: 'no ad')"}
    assert [row.levelno for row in caplog.records] == [logging.ERROR]
    with left_out.step("the x") as left, left.item(Item("site", "North")):
        pass
    assert left_out.named() == {}


# --- the director


@pytest.fixture
def world(base, policy, make_key):
    return World(base, policy, make_key)


def of_key(owner):
    """Whether a list of task queues has that of an owner."""
    return lambda rows, *_args, **_names: any(key.owner == owner for _, key, _ in rows)


LONG_QUEUE = f"CE queue {'/'.join(LONG)}"
DIRECTOR = {
    "weights": (direct, "director_weights", of_key("bob"), "task queue 2"),
    "supply": (
        iteration, "count_supply", lambda demands, *_args, **_names: any(one.key.owner == "bob" for one in demands),
        "task queue 2",
    ),
    "candidate": (
        CandidateMaker, "_candidate", lambda _self, queue, _offers: queue == LONG, LONG_QUEUE,
    ),
    "pilot": (direct, "pilot_view", lambda pilot, *_args: pilot.id == 1, "pilot 1"),
    "placement": (
        iteration, "place",
        lambda _orders, places, **_names: any(one.queue_id == LONG for one in places.queues.values()),
        LONG_QUEUE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("part", DIRECTOR)
def test_the_director_leaves_out_what_it_cannot_handle(world, monkeypatch, part):
    module, name, is_faulty, item = DIRECTOR[part]
    monkeypatch.setattr(module, name, fails(getattr(module, name), is_faulty))
    world.pilot()
    world.submit(5)
    world.submit(5, owner="bob")
    assert world.tick() > 0
    assert {one.queue_id for one in world.placements} == {SHORT}
    assert set(world.director.left_out.named()) == {item}
    monkeypatch.undo()
    world.tick(1_010.0)
    assert world.director.left_out.named() == {}


def test_a_site_whose_gate_cannot_be_made_gets_no_pilots(world, monkeypatch):
    def look(_self, _db, policy, _pools, _now, _pilots, *, sites):
        if "South" in sites:
            raise StopIteration
        return direct.decide.__globals__["NO_SITES"]

    monkeypatch.setattr(direct.SiteMatcher, "look", look)
    world.submit()
    assert world.tick() > 0
    assert {one.queue_id.site for one in world.placements} == {"North"}
    assert set(world.director.left_out.named()) == {"site South"}


def test_limits_that_cannot_be_evaluated_count_as_they_did_before(world):
    answers = [StopIteration("rule"), LimitAnswer(ids=[1]), StopIteration("rule")]

    def limited(_queues):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    world.director.limited = limited
    world.submit()
    with pytest.raises(StopIteration):  # nothing is known: nothing is opened
        world.tick(1_000.0)
    assert world.tick(1_010.0) == 0
    world.submit(5, owner="bob")
    assert world.tick(1_020.0) > 0
    assert {one.order.tq_id for one in world.placements} == {2}
    assert [name.partition(",")[0] for name in world.director.left_out.named()] == ["limits"]


def test_each_queue_is_launched_whatever_another_meets_with(monkeypatch):
    def prepare(_self, placement, *_args):
        if placement.queue_id == SHORT:
            raise StopIteration
        prepared.append(placement.queue_id)
        return []

    prepared = []
    monkeypatch.setattr(launch.SubmissionPools, "_prepare", prepare)
    monkeypatch.setattr(launch.SubmissionPools, "_served", lambda _self, _queues: {})
    monkeypatch.setattr(launch.SubmissionPools, "_backend", lambda *_args: "local")
    left_out = LeftOutItems()
    pools = launch.SubmissionPools.__new__(launch.SubmissionPools)
    pools._left_out, pools.watches = left_out, {"local": SimpleNamespace(backend=None)}
    placements = [
        SimpleNamespace(queue_id=queue, request=SimpleNamespace(vo="lab")) for queue in (SHORT, LONG)
    ]
    decision = SimpleNamespace(placement=SimpleNamespace(placements=placements))
    pools.launch(decision, {("lab", SHORT): 1, ("lab", LONG): 1})
    assert prepared == [LONG]
    assert set(left_out.named()) == {f"CE queue {'/'.join(SHORT)}"}


# --- SubmitPools


def judged(number):
    return JudgedQueue(id=number, key=draft().key, requirements="{}", jobs=1, may_return=False, held=None)


class Keeper:
    """A keeper of pools; `posted`: what the hot process took, `faulty`: what it fails with."""

    def __init__(self, base, **names):
        self.posted, self.faulty, self.left_out = [], set(), LeftOutItems()
        self.keeper = PoolKeeper(
            base.db, self.post, refresh_seconds=900.0, grace_seconds=900.0, left_out=self.left_out, **names
        )

    def post(self, call, body):
        if call is inner_calls.POOL_PASS:
            self.posted.append((call, body))
            return PassNumber(number=1, at=0.0)
        numbers = {row[0] for row in [*getattr(body, "hold", ()), *getattr(body, "release", ())]}
        if numbers & self.faulty:
            raise ServerFault("It failed by a fault of its own.")
        self.posted.append((call, body))
        return SimpleNamespace(removed=0)

    def held(self):
        return [row[0] for call, body in self.posted if call is inner_calls.JUDGE_QUEUES for row in body.hold]


@pytest.fixture
def pools(base, monkeypatch):
    found = Keeper(base)
    queues = [judged(number) for number in (1, 2, 3)]
    monkeypatch.setattr(refresh, "read_refresh_input", lambda _db: stored(
        pool({"Software": "root"}), pool({"Software": "geant"}), queues=queues,
    ))  # fmt: skip
    monkeypatch.setattr(refresh, "never_text", lambda _found: "nothing can")
    monkeypatch.setattr(refresh, "runnable", lambda _queue, _policy, _masks: 0)
    return found


def test_a_refresh_judges_all_task_queues_but_the_one_at_fault(pools, monkeypatch):
    asked = iter([False, True, False])
    monkeypatch.setattr(refresh, "find_exclusions", fails(lambda *_args: None, lambda *_args: next(asked)))
    pools.keeper.tick(POLICY, 1_000.0)
    assert pools.held() == [1, 3]
    assert set(pools.left_out.named()) == {"task queue 2"}


def test_a_refresh_has_all_task_queues_held_but_the_one_with_which_the_writer_fails(pools, monkeypatch):
    monkeypatch.setattr(refresh, "find_exclusions", lambda *_args: None)
    pools.faulty = {2}
    pools.keeper.tick(POLICY, 1_000.0)
    assert pools.held() == [1, 3]
    assert set(pools.left_out.named()) == {"task queue 2"}


@pytest.mark.parametrize("part", ["mask", "changed"])
def test_a_pool_that_cannot_be_evaluated_keeps_its_queues(pools, monkeypatch, part):
    faulty = pool({"Software": "geant"})
    if part == "mask":
        real = refresh._Evaluator.mask
        monkeypatch.setattr(
            refresh._Evaluator, "mask", fails(real, lambda _self, text: text == faulty.requirements)
        )
    else:
        real = refresh.PoolIds.changed
        monkeypatch.setattr(
            refresh.PoolIds, "changed", fails(real, lambda _self, _types, some: faulty in some)
        )
    monkeypatch.setattr(refresh, "find_exclusions", lambda *_args: None)
    pools.keeper.tick(POLICY, 1_000.0)
    assert set(pools.left_out.named()) == {f"SubmitPool {faulty.id}"}
    (found,) = [body for call, body in pools.posted if call is inner_calls.POOL_PASS]
    changed = {pool({"Software": "root"}).id} | ({faulty.id} if part == "changed" else set())
    assert set(found.masks) == changed
    assert pools.held() == [1, 2, 3]


def test_ads_that_cannot_be_asked_leave_the_pools_as_they_were(pools, monkeypatch):
    monkeypatch.setattr(refresh, "find_exclusions", lambda *_args: None)
    pools.keeper._ask_ads = fails(None, lambda *_args: True)
    pools.keeper.tick(POLICY, 1_000.0)
    assert pools.held() == [1, 2, 3]
    assert set(pools.left_out.named()) == {"ads of sites"}


# --- the snapshot and the reasons


@pytest.fixture
def waiting(world, policy):
    world.submit(5)
    world.submit(5, owner="bob")
    world.submit(5, owner="cleo")
    keeper = SnapshotKeeper(world.base.db)
    return SimpleNamespace(world=world, keeper=keeper, policy=policy)


def test_a_damaged_task_queue_is_not_in_the_snapshot_and_all_others_are(waiting, monkeypatch):
    monkeypatch.setattr(snapshot, "keys_by_id", fails(snapshot.keys_by_id, lambda _db, ids: 2 in ids))
    waiting.keeper.refresh(1_000.0)
    assert [one[0] for one in waiting.keeper.snapshot.waiting] == [1, 3]
    assert set(waiting.keeper.snapshot.left_out) == {"task queue 2"}
    monkeypatch.undo()
    waiting.keeper.refresh(2_000.0)
    assert [one[0] for one in waiting.keeper.snapshot.waiting] == [1, 2, 3]
    assert waiting.keeper.snapshot.left_out == {}
    assert len(KnownQueues(waiting.world.base.db).read()) == 3


@pytest.mark.parametrize(
    ("part", "item"),
    [
        ("pilots.refresh", "pilots"),
        ("starts.read", "starts of late"),
        ("_known_pools.look", "SubmitPools"),
    ],
)
def test_a_snapshot_is_taken_whatever_one_part_meets_with(waiting, monkeypatch, part, item):
    holder, _, name = part.partition(".")
    monkeypatch.setattr(getattr(waiting.keeper, holder), name, fails(None, lambda *_args: True))
    waiting.keeper.refresh(1_000.0)
    assert waiting.keeper.at == 1_000.0
    assert len(waiting.keeper.snapshot.waiting) == 3
    assert set(waiting.keeper.left_out.named()) == {item}


def test_an_iteration_that_cannot_be_read_leaves_the_one_before(waiting, monkeypatch):
    monkeypatch.setattr(snapshot, "iteration_after", lambda _db, _number: (1, 5.0, b"{"))
    waiting.keeper.refresh(1_000.0)
    assert waiting.keeper.snapshot.iteration is None
    assert set(waiting.keeper.left_out.named()) == {"the director's last iteration"}


def test_all_task_queues_are_judged_but_the_one_at_fault(waiting, monkeypatch):
    waiting.keeper.refresh(1_000.0)
    real = reasons.find_exclusions
    monkeypatch.setattr(reasons, "find_exclusions", fails(real, lambda key, *_args: key.owner == "bob"))
    mine = MainReasons(waiting.world.base.db, waiting.keeper)
    assert set(mine.judge(waiting.policy, 1_000.0)) == {1, 3}
    assert set(waiting.keeper.left_out.named()) == {"task queue 2"}


# --- passes through the database


def steps(passes, begin):
    for _ in begin:
        pass
    return set(passes.left_out.named())


@pytest.mark.parametrize("kind", ["jobs", "queues", "attempts"])
def test_the_reconciler_mends_all_but_the_one_at_fault(monkeypatch, kind):
    mended = []

    def post(call, body):
        if call is not inner_calls.RECONCILE:
            done.append(call)
            return RepairCounts() if call is inner_calls.CHECK_LIMITS else Nothing()
        if 2 in getattr(body, kind):
            raise ServerFault("It failed by a fault of its own.")
        mended.extend(getattr(body, kind))
        return RepairCounts()

    done = []
    monkeypatch.setattr(reconciler, "find_suspects", lambda _db: iter([Suspects(**{kind: [1, 2, 3]})]))
    mine = reconciler.Reconciler(None, post)
    word = {"jobs": "job", "queues": "task queue", "attempts": "attempt"}[kind]
    assert steps(mine, mine._run()) == {f"{word} 2"}
    assert mended == [1, 3]
    assert done == [inner_calls.CHECK_LIMITS, inner_calls.FORGET_IDLE]


def test_what_is_old_is_purged_but_for_the_one_at_fault(base, tmp_path, monkeypatch):
    purged = []

    def post(_call, body):
        if 2 in (ids := [*body.jobs, *body.pilots]):
            raise ServerFault("It failed by a fault of its own.")
        purged.extend(ids)
        return PurgeResult(jobs=[(job, 1) for job in body.jobs])

    span = retention.SubmissionSpan(1, 1, 1, 9)
    monkeypatch.setattr(retention.old, "old_submissions", lambda *_args: [span])
    monkeypatch.setattr(retention.old, "old_jobs", lambda *_args: [[(1, 1), (2, 1), (3, 1)]])
    monkeypatch.setattr(retention.old, "old_pilots", lambda *_args: [[2, 4]])
    monkeypatch.setattr(retention.Retention, "_templates", fails(None, lambda *_args: True))
    mine = retention.Retention(base.db, post, Shelf(tmp_path, limit_bytes=1), keep_days=1.0)
    assert steps(mine, mine.run(1e9)) == {"job 2", "pilot 2", "submissions 1 to 1"}
    assert purged == [1, 3, 4]


def test_a_new_pool_at_fault_brings_no_pass_at_each_look(pools, monkeypatch):
    monkeypatch.setattr(refresh, "find_exclusions", lambda *_args: None)
    monkeypatch.setattr(refresh._Evaluator, "mask", fails(None, lambda *_args: True))
    monkeypatch.setattr(refresh.read, "has_new_pools", lambda _db: True)
    causes = [pools.keeper.tick(POLICY, now) for now in (1_000.0, 1_002.0, 1_059.0, 1_060.0)]
    assert causes == ["start", "", "", "ads of sites"]


class Wordless(ValueError):
    """A fault whose own words fail."""

    def __str__(self) -> str:
        raise RecursionError


def test_a_fault_without_words_costs_its_item_alone():
    left = StepPass("x", {})
    with left.item("one"):
        raise Wordless
    assert left.faults == {"one": "Wordless: it cannot be put into words"}
