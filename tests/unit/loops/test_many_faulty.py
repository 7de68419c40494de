"""However many items are at fault, of whatever kinds: all others are handled, in a bounded number of tries."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kits.broker_kit import site_ad
from tests.unit.loops.test_director_service import LONG, World
from tests.unit.loops.test_left_out import Keeper, fails, judged
from tests.unit.loops.test_refresh_input import POLICY, stored

from lodesman.base.errors import ServerFault
from lodesman.decide.broker import site_wishes
from lodesman.decide.broker.site_wishes import site_wish
from lodesman.decide.director.iteration import Excess, without_spare
from lodesman.languages.classad import parse_expression
from lodesman.server.loops import direct, reasons, reconciler, refresh, snapshot
from lodesman.server.loops.candidates import CandidateMaker
from lodesman.server.loops.left_out import (
    NO_OMISSION,
    Item,
    LeftOutItems,
    StepPass,
    do_without_faulty,
    task_queue,
)
from lodesman.server.loops.reasons import MainReasons
from lodesman.server.loops.site_matching import UnfitQueues, places_of
from lodesman.server.loops.snapshot import SnapshotKeeper
from lodesman.wire import inner_calls
from lodesman.wire.call import Nothing
from lodesman.wire.service import RepairCounts, Suspects

# Of a pass that finds something new: with all, without what was known, without anything, three searches, and the answer.
MOST_TRIES = 3 * 60 + 4
MOST_TRIES_LATER = 20 + 3
# Of one where all is known: with all, without what was known, two searches whether it is mended, and the answer.
MOST_TRIES_AT_REST = 4 + 3


class Attempts:
    """What is attempted again and again with task queues, CE queues, pilots, and sites. `fails`: whether with these."""

    def __init__(self, is_at_fault, *, queues=20, pilots=100, task_queues=1_000, sites=5, of_each=1):
        """`of_each`: how many task queues belong to each owner."""
        self.is_at_fault, self.before, self.tries, self.of_each = is_at_fault, NO_OMISSION, 0, of_each
        self.left = StepPass("x", {})
        self.task_queues = [task_queue(n) for n in range(task_queues)]
        self.queues = [Item("CE queue", n) for n in range(queues)]
        self.pilots = [Item("pilot", n) for n in range(pilots)]
        self.sites = [Item("site", n) for n in range(sites)]
        self.all = {*self.task_queues, *self.queues, *self.pilots, *self.sites}

    def stages(self):
        owners = [
            tuple(self.task_queues[n : n + self.of_each])
            for n in range(0, len(self.task_queues), self.of_each)
        ]
        sites, queues, pilots = ([(one,) for one in kind] for kind in (self.sites, self.queues, self.pilots))
        return [[sites], [owners, queues, pilots]]

    def attempt(self, without):
        self.tries += 1
        if self.is_at_fault(self.all - without):
            raise KeyError("x")
        return len(without)

    def once(self):
        """One pass: what it left out; it brought an answer."""
        self.tries, self.left = 0, StepPass("x", self.left.faults)
        count, self.before = do_without_faulty(self.attempt, self.stages, self.left, before=self.before)
        assert count == len(self.before.items)
        assert set(self.left.faults) == set(map(str, self.before.items))
        return self.before.items

    def until(self, expected, most=300):
        """How many passes it takes until only these are left out; none leaves out too few, or takes too long."""
        for number in range(1, most):
            found = self.once()
            assert found >= expected
            assert self.tries <= (MOST_TRIES if number == 1 else MOST_TRIES_LATER)
            if found == expected:
                return number
        pytest.fail("It does not find what is at fault.")


def of_each(items):
    """A fault of each of these by itself."""
    return lambda present: not present.isdisjoint(items)


@pytest.mark.parametrize(
    ("count", "of", "passes"),
    [
        (0, 1_000, 1), (1, 1_000, 1), (3, 1_000, 1),
        pytest.param(3, 10_000, 4, marks=[pytest.mark.slow]), pytest.param(50, 1_000, 40, marks=[pytest.mark.slow]),
    ],
)  # fmt: skip
def test_all_but_those_at_fault_are_handled(count, of, passes):
    faulty = {task_queue((n + 1) * of // (count + 1)) for n in range(count)}
    attempts = Attempts(of_each(faulty), task_queues=of)
    assert attempts.until(faulty) <= passes
    assert attempts.once() == faulty
    assert attempts.tries <= MOST_TRIES_AT_REST


@pytest.mark.slow
def test_if_all_task_queues_are_at_fault_all_else_is_handled_at_once():
    attempts = Attempts(lambda present: any(one.kind == "task queue" for one in present))
    for _ in range(20):
        assert attempts.once() == set(attempts.task_queues)
        assert attempts.tries <= MOST_TRIES


def test_one_of_each_kind_at_once():
    faulty = {task_queue(77), Item("CE queue", 3), Item("pilot", 99), Item("site", 2)}
    assert Attempts(of_each(faulty)).until(faulty) <= 10


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 2_000])
def test_a_user_with_many_of_them_costs_no_one_else_an_iteration(count):
    """Of 5,000 task queues of one owner the first ones are at fault; those of 99 others are searched before them."""
    attempts = Attempts(lambda _: False, task_queues=9_950, of_each=50)
    attempts.stages = lambda own=attempts.stages: own_together(own())
    faulty = {task_queue(n) for n in range(count)}
    attempts.is_at_fault = of_each(faulty)
    lost = attempts.once() - faulty
    assert all(one.kind == "task queue" and one.key < 5_000 for one in lost)
    assert len(attempts.once() - faulty) < 1_000


def own_together(stages):
    """The first 5,000 task queues as those of one owner."""
    owners = stages[1][0]
    stages[1][0] = [tuple(one for group in owners[:100] for one in group), *owners[100:]]
    return stages


@pytest.mark.parametrize("queues", [2, 20])
@pytest.mark.parametrize("faulty", ["task queue 500", "CE queue 1", "task queue 500 and CE queue 1"])
def test_what_fails_with_each_item_of_another_kind_is_at_fault_and_not_these(faulty, queues):
    faulty = {Item(*one.rsplit(" ", 1)) for one in faulty.split(" and ")}
    faulty = {Item(one.kind, int(one.key)) for one in faulty}

    def is_at_fault(present):
        kinds = {"task queue": "CE queue", "CE queue": "task queue"}
        return any(other.kind == kinds[one.kind] for one in faulty & present for other in present - faulty)

    assert Attempts(is_at_fault, queues=queues).until(faulty) <= 10


@pytest.mark.slow
def test_one_of_many_that_is_mended_comes_back():
    faulty = {task_queue(n * 19) for n in range(50)}
    attempts = Attempts(of_each(faulty))
    attempts.until(faulty)
    faulty.remove(task_queue(190))
    attempts.tries = 0
    assert attempts.until(faulty) <= 40
    faulty.clear()
    assert attempts.once() == set()
    assert attempts.tries == 1


def test_one_that_comes_beside_those_that_are_known_is_found_alone():
    faulty = {task_queue(7), task_queue(8)}
    attempts = Attempts(of_each(faulty))
    attempts.until(faulty)
    faulty |= {Item("site", 3), task_queue(900)}
    assert attempts.once() == faulty
    attempts.task_queues.remove(task_queue(8))
    faulty.remove(task_queue(8))
    assert attempts.once() == faulty


@pytest.mark.slow
@given(sizes=st.tuples(*[st.integers(0, 12)] * 4), data=st.data())
def test_what_is_left_out_at_the_end_is_what_is_at_fault(sizes, data):
    queues, pilots, task_queues, sites = sizes
    attempts = Attempts(lambda _: False, queues=queues, pilots=pilots, task_queues=task_queues, sites=sites)
    faulty = data.draw(st.sets(st.sampled_from(sorted(attempts.all)))) if attempts.all else set()
    attempts.is_at_fault = of_each(faulty)
    assert attempts.until(faulty) <= 20


@given(
    pattern=st.lists(st.booleans(), min_size=1, max_size=12),
    count=st.integers(1, 3),
    passes=st.integers(1, 5),
)
def test_faults_that_come_and_go_cost_no_pass(pattern, count, passes):
    """As a task queue that fails at every second try."""
    faulty = {task_queue(7 * n) for n in range(count)}
    calls, before = 0, NO_OMISSION
    attempts = Attempts(lambda _: False, task_queues=40)

    def attempt(without):
        nonlocal calls
        calls += 1
        if faulty - without and pattern[calls % len(pattern)]:
            raise KeyError("x")
        return without

    for _ in range(passes):
        left, calls_before = StepPass("x", {}), calls
        brought, before = do_without_faulty(attempt, attempts.stages, left, before=before)
        assert brought <= before.items  # what it was made without is named
        assert set(left.faults) == set(map(str, before.items))
        assert calls - calls_before <= MOST_TRIES
    pattern[:] = [True]
    for _ in range(20):
        brought, before = do_without_faulty(attempt, attempts.stages, StepPass("x", {}), before=before)
    assert brought == faulty


def test_of_each_its_own_fault_is_said_and_of_a_group_that_it_is_one():
    def attempt(without):
        for number in (3, 7):
            if task_queue(number) not in without:
                raise KeyError(number)

    left = StepPass("x", {})
    _, found = do_without_faulty(attempt, lambda: [[[(task_queue(n),) for n in range(9)]]], left)
    assert left.faults == {"task queue 3": "KeyError: 3", "task queue 7": "KeyError: 7"}
    later = StepPass("x", left.faults)
    do_without_faulty(attempt, lambda: [[[(task_queue(n),) for n in range(9)]]], later, before=found)
    assert later.faults == left.faults
    left = StepPass("x", {})
    do_without_faulty(
        lambda without: 1 / (len(without) > 900), lambda: [[[(task_queue(n),) for n in range(1_000)]]], left
    )
    assert {words.partition(";")[0] for words in left.faults.values()} >= {
        "with others until it is known which is at fault"
    }


def test_of_a_thousand_in_parts_all_are_tried_and_the_log_has_some(caplog):
    calls, left = [], StepPass("x", {})

    def call(some):
        calls.append(some)
        raise KeyError("x")

    left.in_parts(range(1_000), call, task_queue)
    assert (len(left.faults), len(calls)) == (1_000, 1_999)
    assert len([row for row in caplog.records if row.levelno == logging.ERROR]) == 100


@pytest.mark.slow
def test_more_than_can_be_named_are_counted():
    left_out = LeftOutItems()
    with left_out.step("the x") as left:
        for number in range(10_007):
            left.leave_out(task_queue(number), KeyError("x"))
    named = left_out.named()
    assert (len(named), named["more of the x"]) == (10_001, "the x (7 items)")


# --- the director


def decided(world):
    return [
        (one.queue_id, one.count, one.order.tq_id) for one in world.placements
    ]  # fmt: skip


@pytest.mark.parametrize(
    "count", [0, 1, 3, 50, pytest.param(1_000, marks=[pytest.mark.slow])]
)  # fmt: skip
def test_the_director_decides_as_without_those_at_fault(base, policy, make_key, monkeypatch, count):
    first = World(base, policy, make_key)
    first.submit(5)
    first.submit(5, owner="bob")
    first.tick()
    expected, tries = decided(first), []
    assert expected
    for number in range(count):
        first.submit(1, owner="mallory", norm_cpu_seconds=200 + number)
    world, real = World(base, policy, make_key), direct.Director.look

    def look(*args):
        tries.append(args)
        return real(*args)

    monkeypatch.setattr(direct.Director, "look", look)
    is_faulty = lambda rows, *_: any(key.owner.startswith("mallory") for _, key, _ in rows)  # noqa: E731
    monkeypatch.setattr(direct, "director_weights", fails(direct.director_weights, is_faulty))
    world.tick()
    assert decided(world) == expected
    assert len(tries) <= (MOST_TRIES if count else 1)
    assert set(world.director.left_out.named()) == {f"task queue {3 + number}" for number in range(count)}


def test_the_director_leaves_out_several_of_several_kinds_at_once(base, policy, make_key, monkeypatch):
    world = World(base, policy, make_key)
    world.pilot()
    for owner in ("ann", "bob", "cleo", "dora", "mallory0", "mallory1", "mallory2"):
        world.submit(5, owner=owner)
    is_faulty = lambda rows, *_: any(key.owner.startswith("mallory") for _, key, _ in rows)  # noqa: E731
    monkeypatch.setattr(direct, "director_weights", fails(direct.director_weights, is_faulty))
    monkeypatch.setattr(direct, "pilot_view", fails(direct.pilot_view, lambda pilot, *_: pilot.id == 1))
    candidate = fails(CandidateMaker._candidate, lambda _self, queue, _offers: queue == LONG)
    monkeypatch.setattr(CandidateMaker, "_candidate", candidate)
    assert world.tick() > 0
    assert {one.order.tq_id for one in world.placements} <= {1, 2, 3, 4}
    assert set(world.director.left_out.named()) == {
        "pilot 1", f"CE queue {'/'.join(LONG)}", *(f"task queue {n}" for n in (5, 6, 7)),
    }  # fmt: skip


def test_pilots_are_not_cancelled_as_spare_while_jobs_are_left_out(base, policy, make_key, monkeypatch):
    """They may be for these jobs. Those that wait too long are cancelled as ever."""
    world, found = World(base, policy, make_key), []
    world.pilot()
    world.submit(5, owner="mallory")
    is_faulty = lambda rows, *_: any(key.owner == "mallory" for _, key, _ in rows)  # noqa: E731
    monkeypatch.setattr(direct, "director_weights", fails(direct.director_weights, is_faulty))
    world.director.cancel = found.append
    for now in (1_000.0, 1_200.0, 1_400.0):
        world.tick(now)
    assert [(one.cancel, list(one.suspects)) for one in found] == [((), [1])] * 3
    excess = Excess(cancel=(1, 2), too_old=frozenset({2}), suspects={1: 0.0, 2: 0.0})
    assert without_spare(excess) == Excess(cancel=(2,), too_old=frozenset({2}), suspects={1: 0.0, 2: 0.0})


# --- the snapshot, the reasons, the ads


@pytest.mark.parametrize("count", [0, 1, 3, 50, pytest.param(1_000, marks=[pytest.mark.slow])])
def test_all_others_are_in_the_snapshot_and_judged(base, policy, make_key, monkeypatch, count):
    world = World(base, policy, make_key)
    for number in range(count):
        world.submit(1, owner=f"mallory{number}")
    world.submit(5)
    keeper, numbers = SnapshotKeeper(base.db), range(1, count + 1)
    keeper.refresh(1_000.0)
    real, asked = reasons.find_exclusions, []

    def find(key, *rest):
        asked.append(key)
        return fails(real, lambda key, *_: key.owner.startswith("mallory"))(key, *rest)

    monkeypatch.setattr(reasons, "find_exclusions", find)
    assert set(MainReasons(base.db, keeper).judge(policy, 1_000.0)) == {count + 1}
    assert len(asked) == count + 1
    assert set(keeper.left_out.named()) == {f"task queue {n}" for n in numbers}
    monkeypatch.setattr(
        snapshot, "keys_by_id", fails(snapshot.keys_by_id, lambda _db, ids: set(ids) & {*numbers})
    )
    fresh = SnapshotKeeper(base.db)
    fresh.refresh(1_000.0)
    assert [one[0] for one in fresh.snapshot.waiting] == [count + 1]
    assert set(fresh.snapshot.left_out) == {f"task queue {n}" for n in numbers}


def test_a_fault_in_any_part_of_a_judgement_costs_that_task_queue_alone(base, policy, make_key, monkeypatch):
    world = World(base, policy, make_key)
    for owner in ("ann", "bob", "cleo"):
        world.submit(5, owner=owner)
    for name in ("_fit", "_judge_of", "_in_turn", "_detail"):
        keeper = SnapshotKeeper(base.db)
        keeper.refresh(1_000.0)
        mine = MainReasons(base.db, keeper)
        calls = iter([False, True, False])
        monkeypatch.setattr(mine, name, fails(getattr(mine, name), lambda *_, calls=calls: next(calls)))
        assert set(mine.judge(policy, 1_000.0)) == {1, 3}, name
        assert set(keeper.left_out.named()) == {"task queue 2"}, name


def test_a_vo_at_fault_costs_no_other_vo_its_reasons(base, policy, make_key, monkeypatch):
    world = World(base, policy, make_key)
    world.submit(5)
    world.submit(5, vo="other")
    keeper = SnapshotKeeper(base.db)
    keeper.refresh(1_000.0)
    real = type(policy).vo_config
    monkeypatch.setattr(type(policy), "vo_config", fails(real, lambda _self, vo: vo == "other"))
    assert set(MainReasons(base.db, keeper).judge(policy, 1_000.0)) == {1}
    assert set(keeper.left_out.named()) == {"VO other"}


WISH = 'StationName == "fnal"'


@pytest.mark.parametrize(
    ("sites", "pools", "pairs", "shut"),
    [
        ("", "", "", {}),
        ("South", "", "", {"a": "South", "b": "South", "c": "South"}),
        ("", "b", "", {"b": "North South"}),
        ("South", "b c", "", {"a": "South", "b": "North South", "c": "North South"}),
        ("", "", "a/North b/South", {"a": "North", "b": "South"}),
        ("North South", "a b c", "", dict.fromkeys("abc", "North South")),
    ],
)
def test_what_is_not_known_of_an_ad_opens_nothing(monkeypatch, sites, pools, pairs, shut):
    """What each pool asks is another text, so that a fault may be planted in one."""
    faulty = SimpleNamespace(sites=set(sites.split()), pools=set(pools.split()), pairs=set(pairs.split()))
    ads = {site: site_ad(site, StationName='"fnal"') for site in ("North", "South")}
    everywhere, places = sum(places_of(POLICY).values()), places_of(POLICY)
    texts = {f"{WISH} || {n} == {n + 1}": pool for n, pool in enumerate("abc")}
    wishes = {pool: [site_wish(text, parse_expression(text), everywhere)] for text, pool in texts.items()}
    owner = {id(ad.ad): site for site, ad in ads.items()}
    of, fulfils = site_wishes._SiteState.of, site_wishes._SiteState.fulfils

    def is_faulty(between, wish):
        pool, site = texts[wish.text], owner[id(between.side.ad)]
        return pool in faulty.pools or f"{pool}/{site}" in faulty.pairs

    monkeypatch.setattr(site_wishes._SiteState, "of", fails(of, lambda ad: owner[id(ad.ad)] in faulty.sites))
    monkeypatch.setattr(site_wishes._SiteState, "fulfils", fails(fulfils, is_faulty))
    left_out = LeftOutItems()
    queues = UnfitQueues(lambda _db: ads, lambda _db, _policy: wishes, left_out)
    for _ in range(2):  # what is at fault is asked anew
        found = queues.look(None, POLICY, 1.0)
        assert found == {pool: sum(places[site] for site in shut.get(pool, "").split()) for pool in "abc"}
        assert set(left_out.named()) >= {f"site {one}" for one in faulty.sites}
        if len(faulty.sites) < 2:
            asked = faulty.pools | {pair.partition("/")[0] for pair in faulty.pairs}
            assert {one for one in left_out.named() if one.startswith("Sub")} == {
                f"SubmitPool {one}" for one in asked
            }
    monkeypatch.undo()
    assert queues.look(None, POLICY, 1.0) == dict.fromkeys("abc", 0)
    assert left_out.named() == {}


# --- the refresh and the reconciler


@pytest.mark.parametrize("count", [0, 1, 3, 50, pytest.param(1_000, marks=[pytest.mark.slow])])
def test_a_refresh_holds_all_others(base, monkeypatch, count):
    pools, faulty = Keeper(base), set(range(2, count + 2))
    queues = [judged(number) for number in range(1, 1_003)]
    monkeypatch.setattr(refresh, "read_refresh_input", lambda _db: stored(queues=queues))
    monkeypatch.setattr(refresh, "never_text", lambda _found: "nothing can")
    monkeypatch.setattr(refresh, "runnable", lambda _queue, _policy, _masks: 0)
    monkeypatch.setattr(refresh, "find_exclusions", lambda *_args: None)
    pools.faulty = faulty
    pools.keeper.tick(POLICY, 1_000.0)
    assert pools.held() == [number for number in range(1, 1_003) if number not in faulty]
    assert set(pools.left_out.named()) == {f"task queue {number}" for number in faulty}


@pytest.mark.parametrize("count", [0, 1, 3, 50, 1_000])
def test_the_reconciler_mends_all_others_and_goes_on(monkeypatch, count):
    mended, done, faulty = [], [], set(range(2, count + 2))

    def post(call, body):
        if call is not inner_calls.RECONCILE:
            done.append(call)
            return RepairCounts() if call is inner_calls.CHECK_LIMITS else Nothing()
        if faulty.intersection(body.jobs):
            raise ServerFault("It failed by a fault of its own.")
        mended.extend(body.jobs)
        return RepairCounts()

    found = [Suspects(jobs=list(range(1, 1_003))), Suspects(jobs=[2_000])]
    monkeypatch.setattr(reconciler, "find_suspects", lambda _db: iter(found))
    mine = reconciler.Reconciler(None, post)
    for _ in mine._run():
        pass
    assert mended == [number for number in [*range(1, 1_003), 2_000] if number not in faulty]
    assert set(mine.left_out.named()) == {f"job {number}" for number in faulty}
    assert done == [inner_calls.CHECK_LIMITS, inner_calls.FORGET_IDLE]
