"""The worlds, the bodies and the oracle of the benchmark."""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import replace

import apsw
import pytest
from bench import bodies, world
from bench.oracle import WrongAnswer, check_answer, eligible
from bench.peer_world import PEER
from bench.rows.fairness import starts
from bench.world import GRID, WISHES, Size

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.resources import load_resources
from lodesman.languages.jobs import read_description, read_job
from lodesman.server.store.task_queues import queues_with_jobs
from lodesman.server.writer.pool_map import PoolMap
from lodesman.server.writer.sessions import UNLIMITED, FreeResources, load_sessions

SMALL = Size(queues=7, jobs=100, rows=30, pilots=3)


@pytest.mark.parametrize("workload", [GRID, PEER], ids=["grid", "peer"])
def test_no_two_task_queues_are_alike(workload):
    rng = random.Random(1)
    keys = [workload.key(rng, number) for number in range(500)]
    assert len(set(keys)) == 500
    assert {key.group for key in keys} <= set(workload.shares)
    for key in keys:
        for values in (key.sites, key.banned_sites, key.platforms, key.tags, key.grid_ces):
            assert list(values) == sorted(set(values))


@pytest.mark.slow
@pytest.mark.parametrize("workload", [GRID, PEER], ids=["grid", "peer"])
def test_pilots_find_something_and_not_everything(workload):
    rng = random.Random(2)
    queues = [(number, workload.key(rng, number), 1) for number in range(300)]
    counts = []
    for _ in range(30):
        place = workload.pilot(rng)
        offer = {**place.presented(), "tags": tuple(place.request["tags"])}
        counts.append(len(eligible(queues, ResourceRequest(**offer))))
    assert 0 < sum(counts) / len(counts) < 150


def test_a_world_has_the_jobs_it_was_asked_for(tmp_path):
    found = world.build(tmp_path, SMALL)
    assert len(found["pilots"]) == 3
    assert not (tmp_path / "pilot.tokens").exists()
    db = apsw.Connection(str(tmp_path / "lode.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ask = lambda sql: next(iter(db.execute(sql)))[0]  # noqa: E731
    assert ask("SELECT count(*) FROM task_queue") == 7
    assert ask("SELECT sum(waiting) FROM task_queue_count") == 100
    assert ask("SELECT count(*) FROM job WHERE state = 'Waiting'") == 30
    assert ask("SELECT count(*) FROM pilot WHERE state = 'Running'") == 3
    db.close()


@pytest.mark.slow
def test_pilots_of_a_load_of_claims_ask_for_what_their_queues_have_and_hold_much_more(tmp_path):
    found = world.build(tmp_path, replace(SMALL, alike=2), replace(GRID, name="roomy", room=1_000))
    lines = [line.split() for line in (tmp_path / "pilot.tokens").read_text().splitlines()]
    assert [token for token, _, _ in lines] == found["pilots"]
    assert lines[0][1:] == lines[3][1:]
    plain, roomy = (tomllib.loads(world.resources(replace(GRID, room=room)))["site"] for room in (1, 1_000))
    for name, site in plain.items():
        for queue, has in site["ce"]["ce"]["queue"].items():
            other = roomy[name]["ce"]["ce"]["queue"][queue]
            assert other["NumberOfProcessors"] == 1_000 * has["NumberOfProcessors"]
            assert other["MaxRAM"] == 1_000 * has["MaxRAM"]


@pytest.mark.slow
def test_three_jobs_in_ten_have_requirements_and_pilots_serve_some(tmp_path):
    world.build(tmp_path, Size(queues=200, jobs=200, rows=200, pilots=20), WISHES)
    db = apsw.Connection(str(tmp_path / "lode.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ((with_pool,),) = db.execute("SELECT count(*) FROM task_queue WHERE pool_id != ''")
    assert 40 <= with_pool <= 80
    pools = PoolMap.load(db)
    assert len(pools.known) > 30
    sessions = load_sessions(db, now=0.0).values()
    served = [
        len(one.request(FreeResources(64, UNLIMITED, UNLIMITED), pools).submit_pools) for one in sessions
    ]
    assert len(pools.known) / 20 < sum(served) / len(served) < len(pools.known) / 3
    queues = list(queues_with_jobs(db))
    fitting = [
        eligible(queues, one.request(FreeResources(64, UNLIMITED, UNLIMITED), pools)) for one in sessions
    ]
    pooled = {tq_id for tq_id, key, _ in queues if key.submit_pool}
    assert any(some & pooled for some in fitting)
    db.close()


@pytest.mark.slow
def test_the_grid_is_a_configuration_of_resources():
    text = world.resources(GRID)
    assert len(tomllib.loads(text)["site"]) == world.SITES
    config = load_resources([("grid.toml", text)])
    assert len(list(config.tree.queue_ids())) == 2 * world.SITES
    assert set(config.groups) == set(GRID.shares)


def test_bodies_hold_distinct_jobs_that_are_valid():
    for number in (0, 1, 77):
        record = read_job(bodies.job(number)).spec
        text = read_description(bodies.jdl(number), form="jdl").record
        assert read_job(text).spec == record
    jobs = json.loads(bodies.json_batch(100, 60))["jobs"]
    assert len({json.dumps(job) for job in jobs}) == 60
    assert len(json.loads(bodies.jdl_batch(5, 4))["texts"]) == 4


def test_parametric_bodies_have_as_many_members_as_they_say():
    for body in (bodies.values_record(12), bodies.array(12)):
        (record,) = json.loads(body)["jobs"]
        members = read_job(record).members
        assert members is not None
        assert members.count == 12
    one = json.loads(bodies.array(1))["jobs"][0]
    assert read_job(one).members is None
    text = read_description(json.loads(bodies.values_jdl(12))["text"], form="jdl").record
    members = read_job(text).members
    assert members is not None
    assert members.count == 12


QUEUES = [
    (1, TaskQueueKey(owner="o", group="g", vo="v", cores=1, norm_cpu_seconds=10), 5),
    (2, TaskQueueKey(owner="o", group="g", vo="v", cores=8, norm_cpu_seconds=10), 5),
    (3, TaskQueueKey(owner="o", group="g", vo="v", cores=1, norm_cpu_seconds=10, project="p"), 0),
]
NODE = ResourceRequest(vo="v", cores=2, norm_cpu_seconds=100)


def test_the_oracle_allows_what_fits_and_waits():
    assert eligible(QUEUES, NODE) == {1}


def test_the_oracle_refuses_an_empty_answer_and_a_wrong_one():
    check_answer({1}, [1], NODE)
    check_answer(set(), [], NODE)
    with pytest.raises(WrongAnswer, match="no job, while 1"):
        check_answer({1}, [], NODE)
    with pytest.raises(WrongAnswer, match=r"\[2\]"):
        check_answer({1}, [2], NODE)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_starts_follow_the_shares_in_small(packed):
    test, whole = starts(5, seed=3, choices=1_000, packed=packed)
    assert 0 < test.claims <= 1_000
    assert whole < 100  # some kinds of pilots see parts only
    assert test.result()[2] > 1e-4
