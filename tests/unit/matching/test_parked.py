"""Parked requests: who is woken, in which order, how many, and that none is missed."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.matching.criteria import explain
from lodesman.decide.matching.matcher import Matcher
from lodesman.decide.matching.parked import _IDLE_SIGNATURES, FEW, ParkedRequests, signature
from lodesman.decide.matching.request import ResourceRequest
from lodesman.decide.matching.task_queue import TaskQueueKey

KEY = TaskQueueKey(owner="alice", group="bio", vo="vo1", norm_cpu_seconds=0)
REQUEST = ResourceRequest(vo="vo1", site="A", cores=1, norm_cpu_seconds=3600)


class House:
    """A matcher, its parked requests, and the caller's loop."""

    def __init__(self):
        self.matcher = Matcher()
        self.parked = ParkedRequests(self.matcher.index)
        self.requests = {}
        self.rng = random.Random(8)

    def put(self, tq_id, waiting=0, **changes):
        self.matcher.index.put(tq_id, replace(KEY, project=f"p{tq_id}", **changes), waiting, now=0.0)

    def fill(self, tq_id, jobs):
        self.matcher.index.add_waiting(tq_id, jobs, now=0.0)
        return {tq_id: jobs}

    def park(self, ticket, *, since=0.0, count=1, **changes):
        request = replace(REQUEST, **changes)
        self.requests[ticket] = (request, count)
        self.parked.park(ticket, request, count, since)

    def serve(self, filled):
        """What the writer does: each woken ticket claims, and leaves with what it got."""
        got = {}
        for ticket in self.parked.wake(filled):
            request, count = self.requests[ticket]
            got[ticket] = self.matcher.choose(request, count, now=0.0, rng=self.rng, undo=[])
            if got[ticket]:
                self.parked.leave(ticket)
        return got


@pytest.fixture
def house():
    return House()


# --- signatures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("life", "rounded"), [(0, 0), (59, 0), (60, 60), (61, 60), (3661, 3660)])
def test_remaining_life_is_rounded_down_to_a_minute(life, rounded):
    assert signature(replace(REQUEST, norm_cpu_seconds=life)).norm_cpu_seconds == rounded


def test_requests_that_say_the_same_have_one_signature():
    one = replace(
        REQUEST, tags=("b", "a"), required_tags=("b", "a"), groups=("y", "x"), job_types=("T", "S"),
        submit_pools=("q", "p", "q"), norm_cpu_seconds=119, job_classes=("b", "a"),
    )  # fmt: skip
    other = replace(
        REQUEST, tags=("a", "b", "a"), required_tags=("a", "b"), groups=("x", "y"), job_types=("S", "T"),
        submit_pools=("p", "q"), norm_cpu_seconds=60, job_classes=("a", "b"),
    )  # fmt: skip
    assert signature(one) == signature(other)
    assert signature(one) != signature(replace(one, tags=("a",)))
    assert signature(replace(one, groups=None)).groups is None


# --- parking and leaving ------------------------------------------------------------------------------


def test_park_and_leave(house):
    house.park("t1")
    assert "t1" in house.parked._tickets
    assert len(house.parked._tickets) == 1
    with pytest.raises(ValueError, match="parked already"):
        house.park("t1")
    assert house.parked.leave("t1")
    assert not house.parked.leave("t1")
    assert "t1" not in house.parked._tickets
    assert len(house.parked._tickets) == 0


def test_a_ticket_that_left_is_not_woken(house):
    house.put(1)
    house.park("t1")
    house.park("t2")
    house.parked.leave("t1")
    assert house.serve(house.fill(1, 5)) == {"t2": [1]}


def test_a_ticket_may_come_back(house):
    house.put(1)
    house.park("t1", since=1.0)
    house.park("t2", since=2.0)
    house.parked.leave("t1")
    house.park("t1", since=1.0)
    assert list(house.parked.wake(house.fill(1, 1))) == ["t1"]


def test_signatures_without_tickets_are_dropped_after_a_while(house):
    for n in range(_IDLE_SIGNATURES + 100):
        house.park(n, site=f"S{n}")
        house.parked.leave(n)
    assert len(house.parked._kinds) <= _IDLE_SIGNATURES + 1
    house.put(1, sites=("S7",))
    house.park("t", site="S7")
    assert house.serve(house.fill(1, 1)) == {"t": [1]}


# --- waking -------------------------------------------------------------------------------------------


def test_without_parked_requests_none_is_woken(house):
    house.put(1)
    assert list(house.parked.wake(house.fill(1, 3))) == []
    assert list(house.parked.wake({})) == []


def test_only_those_that_fit_are_woken(house):
    house.put(1, sites=("B",), cores=4)
    house.park("wrong site", cores=8)
    house.park("too small", site="B", cores=2)
    house.park("fits", site="B", cores=4)
    house.park("other vo", site="B", cores=4, vo="vo2")
    assert house.serve(house.fill(1, 10)) == {"fits": [1]}


def test_the_longest_waiting_first_and_no_more_than_jobs(house):
    house.put(1)
    for ticket, since in (("c", 3.0), ("a", 1.0), ("d", 4.0), ("b", 2.0)):
        house.park(ticket, since=since, cores=int(since))
    assert list(house.serve(house.fill(1, 2))) == ["a", "b"]
    assert list(house.serve(house.fill(1, 9))) == ["c", "d"]


def test_those_that_came_at_once_are_woken_in_order_of_coming(house):
    house.put(1)
    for ticket in "xyz":
        house.park(ticket, since=1.0)
    assert list(house.serve(house.fill(1, 3))) == ["x", "y", "z"]


def test_order_holds_with_many_signatures(house):
    """More signatures than are checked one by one."""
    house.put(1, sites=("odd",))
    for n in range(4 * FEW):
        house.park(n, since=float(1000 - n), cores=1 + n, site="odd" if n % 2 else "even")
    woken = list(house.serve(house.fill(1, 3 * FEW)))
    assert woken == [n for n in reversed(range(4 * FEW)) if n % 2]


def test_a_ticket_that_asks_for_many_takes_many(house):
    house.put(1)
    house.park("many", since=1.0, count=3)
    house.park("next", since=2.0)
    house.park("last", since=3.0)
    assert house.serve(house.fill(1, 4)) == {"many": [1, 1, 1], "next": [1]}
    assert house.parked.leave("last")


def test_without_claims_in_between_tickets_count_for_what_they_asked(house):
    house.put(1)
    for n in range(5):
        house.park(n, since=float(n), count=2)
    assert list(house.parked.wake(house.fill(1, 4))) == [0, 1]
    assert list(house.parked.wake({1: 5})) == [0, 1, 2]


def test_no_ticket_comes_twice_in_one_waking(house):
    house.put(1)
    house.put(2)
    house.park("t1", since=1.0)
    house.park("t2", since=2.0)
    filled = house.fill(1, 1) | house.fill(2, 9)
    assert list(house.parked.wake(filled)) == ["t1", "t2"]


def test_a_blocked_empty_or_unknown_task_queue_wakes_no_request(house):
    house.put(1)
    house.put(2)
    house.park("t1")
    house.fill(1, 1)
    house.matcher.index.block(1, "quota")
    assert list(house.parked.wake({1: 1, 2: 1, 3: 1})) == []
    house.matcher.index.unblock(1, "quota")
    assert house.serve({1: 1}) == {"t1": [1]}


def test_a_limit_that_fills_while_waking_stops_it(house):
    house.put(1)
    for n in range(4):
        house.park(n, since=float(n))
    woken = []
    for ticket in house.parked.wake(house.fill(1, 4)):
        woken.append(ticket)
        house.matcher.choose(REQUEST, 1, now=0.0, rng=house.rng, undo=[])
        house.parked.leave(ticket)
        if len(woken) == 2:
            house.matcher.index.block(1, "two at a time")
    assert woken == [0, 1]


def test_a_ticket_that_draws_elsewhere_leaves_its_job_to_the_next(house):
    """t1 fits both, t2 only the first, t3 only the second: whatever t1 draws, no job stays."""
    for seed in range(20):
        one = House()
        one.rng = random.Random(seed)
        one.put(1, sites=("A",))
        one.put(2, cores=2)
        one.park("t1", since=1.0, cores=2)
        one.park("t2", since=2.0)
        one.park("t3", since=3.0, site="B", cores=2)
        got = one.serve(one.fill(1, 1) | one.fill(2, 1))
        assert sorted(tq for chosen in got.values() for tq in chosen) == [1, 2]
        assert got["t1"]


def test_a_ticket_whose_last_minute_does_not_suffice_sleeps_on(house):
    house.put(1, norm_cpu_seconds=3620)
    house.park("rounded away", norm_cpu_seconds=3650)
    house.park("enough", norm_cpu_seconds=3660)
    assert house.serve(house.fill(1, 5)) == {"enough": [1]}


sites = st.sampled_from(["A", "B", ""])
tags = st.sets(st.sampled_from("tuv"), max_size=2).map(lambda s: tuple(sorted(s)))
keys = st.builds(
    TaskQueueKey,
    owner=st.sampled_from(["alice", "bob"]),
    group=st.sampled_from(["g", "h"]),
    vo=st.just("vo1"),
    sites=st.sets(st.sampled_from("AB"), max_size=2).map(lambda s: tuple(sorted(s))),
    banned_sites=st.sets(st.sampled_from("AB"), max_size=1).map(tuple),
    tags=tags,
    cores=st.integers(1, 3),
    norm_cpu_seconds=st.sampled_from([0, 100, 3600]),
)
requests = st.builds(
    ResourceRequest,
    vo=st.sampled_from(["vo1", "vo2"]),
    groups=st.none() | st.sampled_from([("g",), ("h", "g")]),
    owner=st.sampled_from(["", "alice"]),
    site=sites,
    tags=tags,
    required_tags=tags,
    cores=st.integers(0, 3),
    norm_cpu_seconds=st.integers(0, 4000),
)


@given(
    st.lists(st.tuples(requests, st.integers(1, 3)), max_size=20),
    st.lists(st.tuples(keys, st.integers(1, 4)), min_size=1, max_size=5, unique_by=lambda pair: pair[0]),
    st.integers(0, 99),
)
def test_after_waking_no_job_waits_beside_a_ticket_that_fits(waiting, queues, seed):
    house = House()
    house.rng = random.Random(seed)
    for number, (request, count) in enumerate(waiting):
        house.requests[number] = (request, count)
        house.parked.park(number, request, count, float(seed * number % 7))
    filled = {}
    for tq_id, (key, jobs) in enumerate(queues):
        house.matcher.index.put(tq_id, key, jobs, now=0.0)
        filled[tq_id] = jobs
    jobs_before = sum(filled.values())
    got = house.serve(filled)
    claimed = sum(len(chosen) for chosen in got.values())
    assert all(got.values()), "who is woken gets something"
    assert claimed == jobs_before - sum(jobs for _, _, jobs in house.matcher.index.queues())
    for number, (request, _) in enumerate(waiting):
        if number in house.parked._tickets:
            assert not any(
                jobs and not explain(key, signature(request)) for _, key, jobs in house.matcher.index.queues()
            )


@pytest.mark.slow
def test_twenty_thousand_parked_and_one_job(house):
    """The right one is found among all; the benchmark measures the speed."""
    for n in range(20_000):
        house.park(n, since=float(n), site=f"S{n % 2000:04}")
    house.put(1, sites=("S1234", "S1999"))
    assert house.serve(house.fill(1, 3)) == {1234: [1], 1999: [1], 3234: [1]}
    house.put(2)
    assert list(house.serve(house.fill(2, 2))) == [0, 1]


# --- SubmitPools that are read later --------------------------------------------------------------------


def test_pools_are_read_when_a_task_queue_fills(house):
    served: set[tuple[str, str]] = set()
    parked = ParkedRequests(house.matcher.index, lambda pool, place: (pool, place[0]) in served)
    north, south = replace(REQUEST, site="N", submit_pools=("x",)), replace(REQUEST, site="S")
    for number, request in enumerate((north, south, north)):
        parked.park(number, request, 1, float(number))
    house.put(1, 3, submit_pool="p")
    house.put(2, 3)
    assert list(parked.wake({1: 3})) == []
    served.add(("p", "S"))
    assert list(parked.wake({1: 3})) == [1]
    served.add(("p", "N"))
    assert list(parked.wake({1: 3})) == [0, 1, 2]
    served.clear()
    assert list(parked.wake({1: 3})) == []
    assert list(parked.wake({2: 3})) == [0, 1, 2]


def test_requests_that_differ_in_pools_are_one_kind_if_pools_are_read_later(house):
    parked = ParkedRequests(house.matcher.index, lambda _pool, _place: True)
    for number in range(10):
        parked.park(number, replace(REQUEST, submit_pools=(f"p{number}",)), 1, 0.0)
    assert len(parked._kinds) == 1


@pytest.mark.slow
def test_queues_without_requests_are_dropped(house):
    parked = ParkedRequests(house.matcher.index, lambda _pool, _place: True)
    for number in range(_IDLE_SIGNATURES + 10):
        parked.park(number, replace(REQUEST, site=f"s{number}"), 1, 0.0)
        parked.leave(number)
    assert len(parked._at_place) <= _IDLE_SIGNATURES + 1
