"""Task queues held against a resource by masks: what is counted is what `explain` says, pair by pair."""

from __future__ import annotations

import threading
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.explain.survey import ALL, NAMES, SENDABLE, WaitingTaskQueues
from lodesman.decide.matching import ANY, ResourceRequest, TaskQueueKey
from lodesman.decide.matching.criteria import CRITERIA, explain
from lodesman.decide.matching.offers import as_if_made_for, gets_private
from lodesman.decide.matching.request import PRIVATE
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.loops.snapshot import KnownQueues
from lodesman.server.store import SqliteDatabase


def some(letters, size):
    return st.sets(st.sampled_from(letters), max_size=size).map(lambda found: tuple(sorted(found)))


KEYS = st.builds(
    TaskQueueKey,
    owner=st.sampled_from("ab"),
    group=st.sampled_from("gh"),
    vo=st.sampled_from(["v", "v", "w"]),
    job_type=st.sampled_from(["User", "MC"]),
    job_class=st.sampled_from(["", "", "app"]),
    variant=st.sampled_from(["v1", "default"]),
    sites=some("AB", 2),
    banned_sites=some("AB", 1),
    grid_ces=some(["c1", "c2"], 1),
    platforms=some("pq", 2),
    tags=some("tu", 2),
    pilot_type=st.sampled_from(["", PRIVATE]),
    force_generic=st.booleans(),
    submission_pools=some("12", 1),
    submit_pool=st.sampled_from(["", "x", "y"]),
    cores=st.sampled_from([1, 2, 4]),
    memory_mb=st.sampled_from([0, 100, 2_000]),
    norm_cpu_seconds=st.sampled_from([1, 60, 3_600]),
)
REQUESTS = st.builds(
    ResourceRequest,
    vo=st.sampled_from("vw"),
    groups=st.none() | some("gh", 2),
    owner=st.sampled_from(["", "", "a"]),
    pilot_type=st.sampled_from(["", PRIVATE]),
    site=st.sampled_from(["A", ANY]),
    ce=st.sampled_from(["c1", ANY]),
    platforms=st.sampled_from([(), ("p",), (ANY,)]),
    tags=some(["t", "u", ANY], 2),
    required_tags=some("tu", 1),
    job_types=st.none() | some(["User", "MC"], 2),
    job_classes=st.none() | some(["NO_JC", "ANY_JC", "app", "app.v1"], 2),
    submit_pools=some("xy", 2),
    submission_pool=st.sampled_from(["", "1"]),
    cores=st.sampled_from([0, 1, 4]),
    memory_mb=st.sampled_from([0, 100, 4_000]),
    norm_cpu_seconds=st.sampled_from([0, 60, 7_200]),
)
KEY = TaskQueueKey(owner="ann", group="g", vo="v", norm_cpu_seconds=60)
HERE = ResourceRequest(
    vo="v", site="A", ce="c1", platforms=("p",), cores=4, memory_mb=2_000, norm_cpu_seconds=3_600
)


def field(keys, waiting=None):
    """Task queues 10, 11, ... of which the first has one waiting job, the second two, and so on."""
    known = dict(enumerate(keys, 10))
    jobs = waiting or {tq_id: tq_id - 9 for tq_id in known}
    return WaitingTaskQueues(table=KeyTable(known), keys=known, waiting=jobs)


def counts_of(found):
    """How many task queues each criterion excludes."""
    return {one.criterion: one.task_queues for one in found.work.ruled_out_by}


def refused(key, request, names):
    return {one.name for one in CRITERIA if one.name in names and not one.holds(key, request)}


@given(st.lists(KEYS, max_size=7), REQUESTS)
def test_what_fits_a_pilot_is_what_nothing_speaks_against(keys, request):
    found = field(keys).survey(request)
    fitting = [tq_id for tq_id, key in enumerate(keys, 10) if not explain(key, request)]
    assert list(found.fitting) == fitting
    assert found.work.task_queues == len(keys)
    assert found.work.jobs == sum(range(1, len(keys) + 1))
    assert (found.work.fitting, found.work.fitting_jobs) == (
        len(fitting),
        sum(tq_id - 9 for tq_id in fitting),
    )
    assert found.fullest == (max(fitting) if fitting else None)
    counts = counts_of(found)
    assert sum(counts.values()) == sum(len(explain(key, request)) for key in keys)
    assert list(counts.items()) == sorted(counts.items(), key=lambda one: (-one[1], one[0]))


@given(st.lists(KEYS, max_size=7), REQUESTS)
def test_what_could_be_run_in_a_queue_is_what_a_pilot_made_for_it_could_run(keys, request):
    found = field(keys).survey(request, SENDABLE)
    fitting = [tq_id for tq_id, key in enumerate(keys, 10) if not explain(key, as_if_made_for(key, request))]
    assert list(found.fitting) == fitting
    counts = counts_of(found)
    for one in CRITERIA:
        against = sum(one.name in refused(key, request, SENDABLE) for key in keys)
        assert counts.get(NAMES[one.name], 0) == against


@given(st.lists(KEYS, min_size=1, max_size=7), REQUESTS, st.sampled_from([ALL, SENDABLE]))
def test_the_nearest_are_refused_by_the_fewest_criteria(keys, request, names):
    found = field(keys).survey(request, names)
    against = {
        tq_id: refused(key, request, names) for tq_id, key in enumerate(keys, 10) if key.vo == request.vo
    }
    if not against or not all(against.values()):
        assert found.work.nearest == []
        return
    fewest = min(map(len, against.values()))
    groups: dict[frozenset[str], list[int]] = {}
    for tq_id, names_against in against.items():
        if len(names_against) == fewest:
            groups.setdefault(frozenset(NAMES[name] for name in names_against), []).append(tq_id)
    assert len(found.work.nearest) == min(5, len(groups))
    assert [one.task_queues for one in found.work.nearest] == sorted(map(len, groups.values()), reverse=True)[
        :5
    ]
    for one in found.work.nearest:
        members = groups[frozenset(step.criterion for step in one.steps)]
        assert (one.task_queues, one.jobs) == (len(members), sum(tq_id - 9 for tq_id in members))
        assert one.example.task_queue == max(members)
        assert len(one.example.reasons) == fewest
        assert all(step.options for step in one.steps)
        assert one.text == " and ".join(step.text for step in one.steps)


@given(st.lists(KEYS, max_size=7), REQUESTS, st.sampled_from([(), ("",), ("1",), ("", "2")]))
def test_a_queue_for_private_pilots_excludes_whoever_gets_none(keys, request, pools):
    known, private = field(keys), {10 + n for n, key in enumerate(keys) if gets_private(key, pools)}
    found = known.survey(request, SENDABLE, private_pools=pools)
    assert set(found.fitting) == private.intersection(known.survey(request, SENDABLE).fitting)
    assert counts_of(found).get("GenericPilots", 0) == len(keys) - len(private)
    for one in found.work.nearest:
        assert all(step.options for step in one.steps)
        assert one.text == " and ".join(step.text for step in one.steps)
        assert len(one.example.reasons) == len(one.change)


def test_the_change_for_generic_pilots_is_the_queue_s():
    found = field([KEY, KEY]).survey(HERE, SENDABLE, private_pools=())
    (near,) = found.work.nearest
    assert (near.text, near.task_queues) == ("GenericPilots -> yes", 2)
    assert near.example.reasons == ["it takes private pilots only: GenericPilots is no"]


def test_an_empty_field_fits_nothing_and_refuses_nothing():
    found = field([]).survey(HERE)
    assert msgspec.to_builtins(found.work) == {
        "task_queues": 0, "jobs": 0, "fitting": 0, "fitting_jobs": 0, "ruled_out_by": [], "nearest": [],
    }  # fmt: skip


def test_no_suggestion_is_to_serve_another_vo():
    found = field([replace(KEY, vo="w"), replace(KEY, vo="w", memory_mb=9_000)]).survey(HERE)
    assert counts_of(found) == {"VO": 2, "Memory": 1}
    assert found.work.nearest == []


def test_the_fullest_of_the_nearest_is_the_example():
    keys = [
        replace(KEY, memory_mb=3_000),
        replace(KEY, memory_mb=8_000),
        replace(KEY, cores=9, memory_mb=3_000),
    ]
    found = field(keys, {10: 70, 11: 5, 12: 900}).survey(HERE)
    (near,) = found.work.nearest
    assert msgspec.to_builtins(near) == {
        "change": ["Memory"],
        "text": "Memory 2000 -> 8000",
        "task_queues": 2,
        "jobs": 75,
        "steps": [
            {
                "criterion": "Memory",
                "text": "Memory 2000 -> 8000",
                "offered": 2_000,
                "options": [{"value": 3_000, "task_queues": 1}, {"value": 8_000, "task_queues": 2}],
            }
        ],
        "example": {
            "task_queue": 10,
            "owner": "ann",
            "group": "g",
            "reasons": ["the job needs 3000 MB of memory, the resource has 2000"],
        },
    }


def test_identity_does_not_count_for_a_pilot_that_is_yet_to_be_made():
    private = replace(KEY, pilot_type=PRIVATE, submission_pools=("SAM",))
    assert field([private]).survey(HERE).fitting == ()
    assert field([private]).survey(HERE, SENDABLE).fitting == (10,)


@pytest.mark.slow
def test_a_survey_and_a_read_at_the_same_time_do_not_disturb_each_other(tmp_path):
    writer = SqliteDatabase(tmp_path / "lode.db").writer()
    list(writer.execute("PRAGMA synchronous=OFF"))  # durability is not what is tested here

    def put(numbers):
        for number in numbers:
            key = f'{{"owner":"a{number}","group":"g","vo":"v","norm_cpu_seconds":60}}'
            writer.execute("INSERT INTO task_queue (id, key, created_at) VALUES (?, ?, 0)", (number, key))
            writer.execute("INSERT INTO task_queue_count (tq_id, waiting) VALUES (?, 1)", (number,))

    put(range(1, 60))
    known = KnownQueues(SqliteDatabase(tmp_path / "lode.db").reader())
    known.read()
    wrong: list[int] = []
    done = threading.Event()

    def ask():
        while not done.is_set():
            found = known.survey(HERE)
            if not found.work.task_queues == len(found.fitting) == found.work.fitting_jobs:
                wrong.append(found.work.task_queues)

    asking = threading.Thread(target=ask)
    asking.start()
    for start in range(60, 400, 20):
        writer.execute("UPDATE task_queue_count SET waiting = 0 WHERE tq_id < ?", (start - 40,))
        put(range(start, start + 20))
        known.read()
    done.set()
    asking.join()
    assert wrong == []
    writer.close()
