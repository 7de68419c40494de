"""Who uses what of limits and since when, and what other limits would change, against the engine that limits."""

from __future__ import annotations

import random
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.matching.test_quota_book import key_of, load, place_of, vocabulary_of_the_world
from tests.unit.quota.conftest import sets_of
from tests.unit.quota.test_quota_oracle import World, allowed, some_job, some_line, text_of

from lodesman.decide.matching.limit_takers import BucketLoad, RunningJob, taken_by, values_shown
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.quota_book import QuotaBook
from lodesman.decide.rehearse.limits import WaitingQueue, WorkToLimit, hold_against
from lodesman.decide.resources import QueueId


def some_book(draw):
    world = World(
        [(True, [some_line(draw) for _ in range(draw.randint(1, 4))]) for _ in range(draw.randint(1, 3))]
    )
    return world, QuotaBook(sets_of(text_of(world, draw)), vocabulary_of_the_world(), load)


@given(st.integers(0, 2**32))
def test_what_is_taken_is_what_the_engine_has_booked(seed):
    draw = random.Random(seed)
    _, book = some_book(draw)
    limits = RunLimits(book)
    jobs = [some_job(draw) for _ in range(12)]
    running = [RunningJob(key_of(job), place_of(job), float(number)) for number, job in enumerate(jobs)]
    for one in running:
        limits.take(one.key, one.place)
    draw.shuffle(running)
    taken = taken_by(book, running)
    booked = {
        (use.rule, values_shown(use.of_key, use.of_place), use.resource): use.used for use, _ in limits.uses()
    }
    assert {name: sum(one.amount for one in taken[name].holders()) for name in taken} == booked
    for one in taken.values():
        assert [at for at, _, _ in one.attempts] == sorted(at for at, _, _ in one.attempts)
        assert sum(found.jobs for found in one.holders()) == len(one.attempts)


def taken(*amounts):
    """A claim each second; the owners are a, b, a, b, ..."""
    keys = [SimpleNamespace(vo="v", owner="ab"[n % 2], project="") for n in range(len(amounts))]
    return BucketLoad(
        [(float(n), amount, key) for n, (amount, key) in enumerate(zip(amounts, keys, strict=True))]
    )  # type: ignore[misc]


@pytest.mark.parametrize(
    ("amounts", "limit", "need", "since"),
    [
        ((), 5, 1, None),
        ((1, 1), 5, 1, None),
        ((1, 1, 3), 5, 1, 2.0),
        ((1, 1, 3), 5, 4, 1.0),
        ((4, 1, 3), 5, 1, 1.0),
        ((9,), 5, 1, 0.0),
        ((Fraction(1, 2), Fraction(1, 2)), 1, Fraction(1, 4), 1.0),
    ],
)
def test_a_bucket_is_full_since_the_claim_after_which_less_was_left(amounts, limit, need, since):
    assert taken(*amounts).full_since(limit, need) == since


@pytest.mark.parametrize(
    ("amounts", "missing", "ends"),
    [((), 1, None), ((1, 4, 2), 1, 1), ((1, 4, 2), 5, 2), ((1, 4, 2), 8, None)],
)
def test_the_fewest_ends_are_those_of_the_largest(amounts, missing, ends):
    assert taken(*amounts).ends_needed(missing) == ends


def test_the_largest_holder_comes_first():
    assert [tuple(one) for one in taken(1, 4, 1, 1, 9).holders()] == [
        ("v", "a", "", 11, 3),
        ("v", "b", "", 5, 2),
    ]


# --- plans --------------------------------------------------------------------------------------------------


def queue_of(place):
    return QueueId(place.site, place.ce, place.queue)


@given(st.integers(0, 2**32))
def test_a_plan_limits_what_may_start_at_no_place(seed):
    draw = random.Random(seed)
    world, book = some_book(draw)
    world.running = [some_job(draw) for _ in range(4)]
    places = {place_of(job): job for job in (some_job(draw) for _ in range(3))}
    waiting = {key_of(job): job for job in (some_job(draw) for _ in range(6))}
    work = WorkToLimit(
        waiting=[WaitingQueue(key, 1, sorted({queue_of(place) for place in places})) for key in waiting],
        live=[RunningJob(key_of(job), place_of(job), 0.0) for job in world.running],
        places=places,
        tick=lambda: None,
    )
    found = hold_against(book, work)
    for slot, job in enumerate(waiting.values()):
        may = any(
            allowed(world, SimpleNamespace(**{**vars(job), "queue": there.queue, "host": there.host}))
            for there in places.values()
        )
        assert (slot not in found.limited) is may
    limits = RunLimits(book)
    for one in work.live:
        limits.take(one.key, one.place)
    assert sorted(map(named, found.over)) == sorted(
        named(use) for use, _ in limits.uses() if use.used > use.limit
    )


def named(use):
    return use.rule, use.of_key, use.of_place, use.resource, use.used


def test_what_no_place_can_run_is_not_limited():
    """A task queue without a CE queue that may run it, or one where no place is known, waits for something else."""
    book = QuotaBook(sets_of("{\nname t\nenabled true\nlimit to slots=0\n}\n"), vocabulary_of_the_world())
    job = some_job(random.Random(1))
    here = place_of(job)
    work = WorkToLimit(
        waiting=[WaitingQueue(key_of(job), 5, there) for there in ((), (QueueId("x", "y", "z"),), (queue_of(here),))],
        live=(), places=[here], tick=lambda: None,
    )  # fmt: skip
    assert hold_against(book, work).limited == {2: "t/1"}
    assert hold_against(QuotaBook((), vocabulary_of_the_world()), work).limited == {}
