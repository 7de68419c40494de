"""Which SubmitPools a queue serves: as plain sets would say, however the map came about, in every thread."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.unit.writer.conftest import Pools

from lodesman.decide.masks.bits import numbered
from lodesman.server.store import SqliteDatabase
from lodesman.server.store.submit_pools import pass_requests
from lodesman.server.writer.pool_map import _FEW_NEW, KnownPools, PoolMap

NAMES = "uvwxyz"
PLACES = [(name, "ce", "q") for name in NAMES]
Q = PLACES[0]


def test_unknown_queues_and_pools():
    pools = Pools()
    assert pools.of_queue(Q).pools == ()
    assert pools.bit(Q) is None
    assert pools.mask("a") is None
    assert list(pools.known) == []


def test_pools_come_in_order():
    pools = Pools([("b", *Q), ("a", *Q), ("c", *PLACES[1])])
    assert pools.of_queue(Q).pools == ("a", "b")
    assert pools.known == {"a", "b", "c"}


def test_what_a_queue_serves_has_one_version_until_it_changes():
    pools = Pools([("a", *Q)])
    first = pools.of_queue(Q)
    assert pools.of_queue(Q) == first
    pools.add("b", [PLACES[1]])
    assert pools.of_queue(Q) == first
    assert pools.of_queue(PLACES[1]).version != first.version
    pools.add("c", [Q])
    second = pools.of_queue(Q)
    assert (second.pools, second.version == first.version) == (("a", "c"), False)
    pools.put({"c": None})
    assert pools.of_queue(Q).pools == first.pools
    assert pools.of_queue(Q).version != second.version


def test_a_refresh_replaces_the_queues_of_the_pools_that_it_names():
    pools = Pools([("a", *Q), ("b", *Q)])
    before = pools.version
    bit = 5
    pools.bits = {**pools.bits, PLACES[1]: bit}
    pools.put({"a": 1 << bit, "c": 0})
    assert (pools.of_queue(Q).pools, pools.of_queue(PLACES[1]).pools) == (("b",), ("a",))
    assert pools.known == {"a", "b", "c"}
    assert pools.version > before


@pytest.mark.parametrize("count", [1, _FEW_NEW, _FEW_NEW + 1, 12_000])
def test_many_new_pools_at_once(count):
    pools = Pools([("a", *Q)])
    assert pools.of_queue(Q).pools == ("a",)
    bit = pools.bit(Q)
    new = {f"p{number:05}": (number % 2) << bit for number in range(count)}
    for part in (dict(list(new.items())[: count // 2]), dict(list(new.items())[count // 2 :])):
        pools.put(part)
    assert pools.of_queue(Q).pools == ("a", *(pool for pool, mask in new.items() if mask))


def test_a_map_of_a_database(tmp_path):
    db = SqliteDatabase(tmp_path / "lode.db").writer()
    with db:
        db.execute("INSERT INTO pool_queue VALUES (0, 'u', 'ce', 'q'), (9, 'v', 'ce', 'q')")
        rows = [("a", b"\x01\x02"), ("b", b""), ("c", b"\x00\x02")]
        db.connection.executemany("INSERT INTO submit_pool_bits VALUES (?, 'vo', '{}', ?, 0, NULL, 0)", rows)
    pools = PoolMap.load(db)
    assert (pools.of_queue(Q).pools, pools.of_queue(PLACES[1]).pools) == (("a",), ("a", "c"))
    assert pools.known == {"a", "b", "c"}
    assert pools.bits == {Q: 0, PLACES[1]: 9}
    db.close()


def test_the_queues_of_a_pool_are_valid_only_for_their_version(tmp_path):
    db = SqliteDatabase(tmp_path / "lode.db").writer()
    with db:
        db.execute("INSERT INTO pool_queue VALUES (0, 'u', 'ce', 'q'), (9, 'v', 'ce', 'q')")
        db.execute("INSERT INTO submit_pool_bits VALUES ('a', 'vo', '{}', ?, 0, NULL, 0)", (b"\x01\x02",))
        db.execute("INSERT INTO submit_pool_bits VALUES ('b', 'vo', '{}', ?, 0, NULL, 0)", (b"\x00\x02",))
    known = KnownPools(db)
    version = pass_requests(db).version
    assert known.serving("a", version) is None
    known.look()
    both, one, none = (known.serving(pool, version) for pool in ("a", "b", "other"))
    assert [len(both), len(one), len(none)] == [2, 1, 0]
    assert [place in both for place in PLACES] == [True, True, False, False, False, False]
    assert [place in one for place in PLACES[:2]] == [False, True]
    assert Q not in none
    with db:
        db.execute("UPDATE submit_pool_state SET version = version + 1")
    assert known.serving("a", pass_requests(db).version) is None
    known.look()
    assert len(known.serving("a", pass_requests(db).version)) == 2
    db.close()


class Maps(RuleBasedStateMachine):
    """The map and plain sets, side by side."""

    def __init__(self):
        super().__init__()
        self.pools = Pools()
        self.wanted: dict[str, set[str]] = {}
        self.pools.bits = numbered(PLACES)

    def mask(self, names):
        return sum(1 << self.pools.bit((name, "ce", "q")) for name in names)

    @rule(masks=st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(NAMES)), max_size=3))
    def put(self, masks):
        before = self.pools.version
        self.pools.put({pool: self.mask(names) for pool, names in masks.items()})
        self.wanted |= {pool: set(names) for pool, names in masks.items()}
        assert self.pools.version > before

    @rule(pool=st.sampled_from("abcdef"), names=st.frozensets(st.sampled_from(NAMES)))
    def add(self, pool, names):
        self.pools.add(pool, [(name, "ce", "q") for name in sorted(names)])
        self.wanted.setdefault(pool, set()).update(names)

    @rule(gone=st.frozensets(st.sampled_from("abcdefgh")))
    def remove(self, gone):
        self.pools.put(dict.fromkeys(gone))
        for pool in gone:
            self.wanted.pop(pool, None)

    @rule(
        masks=st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from(NAMES)), max_size=3),
        gone=st.frozensets(st.sampled_from("abcdef")),
        look=st.booleans(),
    )
    def put_and_put_back(self, masks, gone, look):
        put = self.pools.put({pool: self.mask(names) for pool, names in masks.items()})
        removed = self.pools.put(dict.fromkeys(gone))
        if look:
            self.pools.of_queue(Q)
        self.pools.put(removed)
        self.pools.put(put)

    @rule(name=st.sampled_from(NAMES))
    def look(self, name):
        found = self.pools.of_queue((name, "ce", "q")).pools
        assert found == tuple(sorted(pool for pool, names in self.wanted.items() if name in names))

    @invariant()
    def the_same_pools(self):
        assert self.pools.known == set(self.wanted)


Maps.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestMaps = pytest.mark.slow(Maps.TestCase)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), max_size=3)), max_size=8))
def test_a_map_of_pools_is_the_same_however_it_came_about(adds):
    wanted: dict[str, set[str]] = {}
    pools = Pools()
    for pool, queues in adds:
        pools.add(pool, [(queue, queue, queue) for queue in queues])
        for queue in queues:
            wanted.setdefault(queue, set()).add(pool)
    for queue in "xyz":
        assert pools.of_queue((queue, queue, queue)).pools == tuple(sorted(wanted.get(queue, ())))
    assert pools.known == {pool for pool, _ in adds}


def test_readers_see_each_state_after_the_one_before():
    """A pool is never seen to come and go again while others only come."""
    pools = Pools([("p00000", *Q)])
    bit, seen, stop = pools.bit(Q), [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(len(pools.of_queue(Q).pools))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 2_000):
        pools.put({f"p{number:05}": 1 << bit})
    stop.set()
    for reader in readers:
        reader.join()
    assert len(pools.of_queue(Q).pools) == 2_000
    assert all(1 <= count <= 2_000 for count in seen)


def test_one_reader_sees_the_map_grow_only():
    pools = Pools([("p00000", *Q)])
    bit, seen, stop = pools.bit(Q), [], threading.Event()

    def read():
        while not stop.is_set():
            seen.append(len(pools.of_queue(Q).pools))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 3_000):
        pools.put({f"p{number:05}": 1 << bit})
    stop.set()
    reader.join()
    assert all(earlier <= later for earlier, later in pairwise(seen))
