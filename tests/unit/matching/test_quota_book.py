"""Quota sets as rules of the limit engine: they say what an evaluation by brute force says, and ask each filter once."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.conftest import COMPLEXES, one_set, sets_of
from tests.unit.quota.test_quota_oracle import (
    PROCESSORS,
    UNIX_GROUPS,
    VOCABULARY_TEXT,
    Job,
    World,
    allowed,
    some_job,
    some_line,
    text_of,
)

from lodesman.decide.matching import quota_book
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.limits import RunLimits
from lodesman.decide.matching.quota_book import QuotaBook, job_of
from lodesman.decide.matching.task_queue import TaskQueueKey
from lodesman.languages.gridengine.complexes import read_complexes
from lodesman.languages.gridengine.files import read_vocabulary
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.quota.reading import read_quota_sets

VOCABULARY = Vocabulary(complexes=COMPLEXES)
HERE = RunPlace("S", "ce", "all.q", "h1")


def vocabulary_of_the_world():
    found = read_vocabulary({"v": VOCABULARY_TEXT}, faults=[])
    plain = Vocabulary(complexes=COMPLEXES, host_groups=found.host_groups, user_lists=found.user_lists)
    return plain.with_accounts(UNIX_GROUPS)


def key_of(job: Job) -> TaskQueueKey:
    name, _, variant = job.job_class.partition(".")
    requests = [f"{COMPLEXES.get(key).name}={text}" for key, text in sorted(job.requests.items())]
    return TaskQueueKey(
        owner=job.user, group="g", vo="v", project=job.project, job_class=name, variant=variant, pe=job.pe,
        cores=job.slots, consumables=tuple(requests),
    )  # fmt: skip


def place_of(job: Job) -> RunPlace:
    return RunPlace("S", "ce", job.queue, job.host.upper())


def load(host: str):
    known = PROCESSORS[host.lower()]
    return {} if known is None else {"num_proc": known}


def compare(seed: int, candidates: int) -> int:
    """The engine's masks and refusals, with slots that come and go, against the brute force of the quota language."""
    draw = random.Random(seed)
    world = World([
        (draw.random() < 0.9, [some_line(draw) for _ in range(draw.randint(1, 4))]) for _ in range(draw.randint(1, 3))
    ])  # fmt: skip
    limits = RunLimits(QuotaBook(sets_of(text_of(world, draw)), vocabulary_of_the_world(), load))
    slots: dict[TaskQueueKey, int] = {}
    started = 0
    for _ in range(candidates):
        if world.running and draw.random() < 0.2:
            ended = world.running.pop(draw.randrange(len(world.running)))
            limits.give(key_of(ended), place_of(ended))
        if slots and draw.random() < 0.1:
            gone = draw.choice(list(slots))
            limits.remove(0, slots.pop(gone), gone)
        job = some_job(draw)
        key, place = key_of(job), place_of(job)
        if key not in slots:
            slots[key] = next(n for n in range(1_000) if n not in slots.values())
            limits.add(0, slots[key], key)
        may = allowed(world, job)
        shut = limits.shut_slots(place)[0] >> slots[key] & 1
        assert bool(shut) is not may, (job, world)
        assert bool(limits.refusals(key, place)) is not may
        if may:
            limits.take(key, place)
            world.running.append(job)
            started += 1
    for job in world.running:
        limits.give(key_of(job), place_of(job))
    assert [use for use, _ in limits.uses() if use.used] == []
    return started


@given(st.integers(0, 2**32))
def test_masks_say_what_a_brute_force_says(seed):
    compare(seed, 20)


@pytest.mark.slow
@given(st.integers(0, 2**32))
def test_masks_say_what_a_brute_force_says_of_many(seed):
    compare(seed, 100)


@pytest.mark.slow
def test_random_worlds_are_neither_open_nor_shut():
    assert 120 < sum(compare(seed, 20) for seed in range(30)) < 480


@pytest.fixture
def asked(monkeypatch):
    """How often each filter was asked of a value."""
    found: Counter[tuple[str, str]] = Counter()

    def fits(tag, one, job):
        found[tag, str(one)] += 1
        return real(tag, one, job)

    real = quota_book.fits
    monkeypatch.setattr(quota_book, "fits", fits)
    return found


def test_each_filter_is_asked_once_for_each_value(asked):
    book = QuotaBook(
        one_set(*["users ann to slots=1"] * 50, "users {*} projects p to slots=2", "pes smp to slots=3"),
        VOCABULARY,
    )
    for owner in ("ann", "bob", "ann"):
        for project in ("p", "q"):
            for cores in (1, 2):
                book.of_key(TaskQueueKey(owner=owner, group="g", vo="v", project=project, cores=cores))
    assert asked == {
        ("users", "ann"): 2,
        ("users", "{*}"): 2,
        ("projects", "p"): 2,
        ("pes", "smp"): 2,
    }  # with several cores, too


def test_rules_of_sets_that_are_not_enabled_are_no_rules():
    book = QuotaBook(sets_of("{\nname off\nlimit to slots=0\n}\n"), VOCABULARY)
    assert (list(book.names), list(book.sets)) == ([], [])
    assert not RunLimits(book).active


def test_several_limits_on_one_resource_are_one_and_the_smallest_counts():
    limits = RunLimits(QuotaBook(one_set("to slots=3,slots=2"), VOCABULARY))
    key = TaskQueueKey(owner="ann", group="g", vo="v")
    for _ in range(2):
        assert limits.refusals(key, HERE) == []
        limits.take(key, HERE)
    ((use, amount),) = limits.refusals(key, HERE)
    assert (use.resource, use.used, use.limit, amount) == ("slots", 2, 2, 1)


def test_memory_and_time_of_a_job_are_requests_of_the_complexes_that_mean_them():
    key = TaskQueueKey(owner="ann", group="g", vo="v", memory_mb=3, norm_cpu_seconds=7)
    requests = job_of(key, VOCABULARY).requests
    assert requests == {"h_vmem": 3 << 20, "mem_free": 3 << 20, "virtual_free": 3 << 20, "h_cpu": 7}
    asked = job_of(
        TaskQueueKey(owner="ann", group="g", vo="v", memory_mb=3, consumables=("vf=1G",)), VOCABULARY
    )
    assert asked.requests["virtual_free"] == 1 << 30


@pytest.mark.parametrize(
    ("consumable", "cores", "memory_mb", "fits"),
    [
        ("YES", 4, 4096, True),
        ("YES", 4, 4097, False),
        ("YES", 3, 4096, True),  # a third has no end
        ("JOB", 4, 4096, True),
        ("JOB", 4, 4097, False),
        ("NO", 4, 16384, True),  # each core's request alone
        ("NO", 4, 16385, False),
    ],
)
def test_memory_of_all_cores_is_charged_once(consumable, cores, memory_mb, fits):
    text = f"slots s INT <= YES YES 1 0\nvirtual_free vf MEMORY <= YES {consumable} 0 0\n"
    vocabulary = Vocabulary(complexes=read_complexes(text, faults=[]))
    limits = RunLimits(QuotaBook(read_quota_sets(MEMORY_SET, vocabulary.complexes, faults=[]), vocabulary))
    key = TaskQueueKey(owner="ann", group="g", vo="v", cores=cores, memory_mb=memory_mb)
    assert (limits.refusals(key, HERE) == []) is fits
    if fits and consumable != "NO":
        limits.take(key, HERE)
        ((use, amount),) = limits.refusals(key, HERE)
        assert use.used == amount == 4 << 30
        assert isinstance(use.used, int)


MEMORY_SET = "{\nname m\nenabled true\nlimit to vf=4G\n}\n"


def test_what_is_infinite_never_fits_and_leaves_nothing_behind():
    limits = RunLimits(QuotaBook(one_set("to mc=5G"), VOCABULARY))
    key = TaskQueueKey(owner="ann", group="g", vo="v", consumables=("mc=INFINITY",))
    limits.add(0, 0, key)
    assert limits.shut_slots(HERE)[0] == 1
    limits.take(key, HERE)  # as after a lower limit
    limits.give(key, HERE)
    assert list(limits.uses()) == []


def test_parts_and_kinds_go_with_their_last_task_queue():
    """Jobs that need other amounts each time must not make claims slower for ever."""
    limits = RunLimits(QuotaBook(one_set("users * to mc=5G"), VOCABULARY))
    limits.shut_slots(HERE)
    for n in range(1, 500):
        key = TaskQueueKey(owner="ann", group="g", vo="v", consumables=(f"mc={n}M",))
        limits.add(0, 0, key)
        limits.take(key, HERE)
        limits.remove(0, 0, key)
        limits.give(key, HERE)
    (split,) = limits._splits.values()
    assert (limits._kinds, split.parts) == ({}, {})
