"""What is stored of an iteration: JSON and back, and the story made from it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from lodesman.base.errors import NotFound
from lodesman.decide.director import record as records
from lodesman.decide.director.iteration import DirectorInput, decide
from lodesman.decide.director.options import read_options
from lodesman.decide.director.orders import PoolState
from lodesman.decide.director.plan import PlanRow
from lodesman.decide.director.queues import QueueCaps, QueueLoad
from lodesman.decide.director.record import Stories, loads_of, replay, to_record
from lodesman.decide.director.supply import PilotStanding
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.writer.pool_map import PoolMap
from lodesman.wire.vocabulary import TargetPolicy

NOW = 1_000_000.0


def story(record, tq_id):
    return Stories(record).lines(tq_id)


@pytest.fixture(scope="session")
def decision_for():
    def make(demands, queues, pilots=(), *, pools=None, section=None):
        return decide(
            DirectorInput(
                demands=demands,
                table=KeyTable({one.tq_id: one.key for one in demands}),
                serving=PoolMap(),
                pilots=pilots,
                queues=queues,
                pools=pools or {"Local": PoolState(name="Local")},
                suspects={},
                breakers={},
                buckets={},
            ),
            options=read_options({"PrivatePilotFraction": "0"} | (section or {})),
            now=NOW,
            seed=5,
        )

    return make


@pytest.fixture(scope="session")
def stored(decision_for):
    """The record as it comes back from a database."""

    def make(*args, **given):
        return json.loads(json.dumps(to_record(decision_for(*args, **given))))

    return make


def test_the_plan_comes_back_as_it_was(plan_of, decision_for, demand, queue, pilot):
    decision = decision_for(
        [demand(k, waiting_jobs=10 * k) for k in range(1, 5)] + [demand(9, waiting_jobs=0)],
        [queue("A")],
        [pilot(k) for k in range(7)],
        section={"maxPilotsPerIteration": "20"},
    )
    assert plan_of(json.loads(json.dumps(to_record(decision)))) == decision.plan


@pytest.mark.parametrize("policy", TargetPolicy)
@pytest.mark.parametrize("other", TargetPolicy)
def test_an_iteration_is_computed_again_from_its_record(stored, demand, queue, pilot, policy, other):
    """By its own policy as it was, by another one as that would have asked then."""
    demands = [demand(k, waiting_jobs=7 * k, weight=k / 3, norm_cpu_seconds=40_000 * k) for k in range(1, 9)]
    demands.append(demand(9, waiting_jobs=0))
    pilots = [pilot(k) for k in range(7)] + [pilot(8, standing=PilotStanding.BUSY)]
    section = {"maxPilotsPerIteration": "30", "extraPilots": "7", "lowestCPUBoost": "9000", "minTarget": "3"}
    arithmetic = ("target", "plan", "row_fields", "rows")
    record, wanted = (
        stored(demands, [queue("A")], pilots, section={**section, "TargetPolicy": one})
        for one in (policy, other)
    )
    again = json.loads(json.dumps(replay(record, other)))
    assert [again[name] for name in arithmetic] == [wanted[name] for name in arithmetic]
    assert (again["placements"], again["asks"], again["rooms"]) == ([], [], record["rooms"])


def test_what_is_not_stored_whole_is_not_computed_again(stored, demand, queue, monkeypatch):
    monkeypatch.setattr(records, "MOST_ROWS", 2)
    record = stored([demand(k) for k in range(1, 4)], [queue("A")])
    with pytest.raises(NotFound, match="more than 2 task queues; not all are stored"):
        replay(record, TargetPolicy.GAP)


def test_a_record_of_an_older_release_is_read(plan_of, stored, demand, queue):
    record = stored([demand(1)], [queue("A")])
    (as_it_was,) = plan_of(record).rows
    place = record["row_fields"].index("clamps")
    record["row_fields"][place] = "blocked"  # clamps were not there, and another field was
    record["rows"][0][place] = ""
    (row,) = plan_of(record).rows
    assert isinstance(row, PlanRow)
    assert row == replace(as_it_was, clamps=())


def test_it_records_each_placement(stored, demand, queue):
    record = stored([demand(1, waiting_jobs=10)], [queue("A")])
    assert record["placements"] == [[1, "A/ce/q", 16]]
    (ask,) = record["asks"]
    assert (ask["asked"], ask["placed"], ask["pool"], ask["private"]) == (16, 16, "Local", False)
    assert (ask["owner"], ask["group"]) == ("generic", "generic")
    load = [0, 0, NOW, "batch"]
    room = {"wanted": 16, "room": 40, "left": 24, "clamps": [], "slots": None, "others": 0, "load": load}
    assert record["rooms"]["A/ce/q"] == room


def test_the_loads_that_it_went_by_come_back(stored, demand, queue):
    queues = [
        queue("A", waiting=3, running=4, observed_at=NOW - 12.345),
        queue("B", waiting=None, running=4),
        queue("C", waiting=-1, running=4),
    ]
    found = loads_of(stored([demand(1)], queues))
    load = QueueLoad(waiting=3, running=4, observed_at=NOW - 12.3, source="batch")
    assert found["A/ce/q"] == load
    assert (found["B/ce/q"].waiting, found["B/ce/q"].running) == (None, 4)
    assert [found[f"{site}/ce/q"].is_known for site in "ABC"] == [True, False, False]


def test_loads_of_another_release(stored, demand, queue):
    record = stored([demand(1)], [queue("A", waiting=3), queue("B")])
    del record["rooms"]["B/ce/q"]["load"]
    record["load_fields"] = ["told_by", "jobs", *record["load_fields"][:3]]
    record["rooms"]["A/ce/q"]["load"] = ["slurm", 7, *record["rooms"]["A/ce/q"]["load"][:3]]
    (known,) = loads_of(record).items()
    assert known == ("A/ce/q", QueueLoad(waiting=3, running=0, observed_at=NOW, source="slurm"))
    assert loads_of({**record, "load_fields": ["waiting"]}) == {}
    del record["load_fields"]
    assert loads_of(record) == {}


def test_the_limit_of_a_queue_is_recorded_even_without_demand(stored, demand, queue):
    shut = queue("B", norm_cpu_seconds=5, waiting=4, caps=QueueCaps(max_waiting=4))
    rooms = stored([demand(1)], [queue("A"), shut, queue("C", norm_cpu_seconds=5)])["rooms"]
    assert (rooms["B/ce/q"]["wanted"], rooms["B/ce/q"]["room"]) == (0, 0)
    assert rooms["B/ce/q"]["clamps"] == [["max-waiting", 1, 0, 0, "MaxWaitingJobs 4 - 4 waiting"]]
    assert rooms["C/ce/q"]["clamps"] == []


@pytest.mark.slow
def test_loads_are_recorded_in_short_form(decision_for, demand, queue):
    queues = [queue(f"S{n}", waiting=n, running=n, observed_at=NOW - n / 7) for n in range(2_000)]
    rooms = to_record(decision_for([demand(1)], queues))["rooms"]
    loads = sum(len(json.dumps(room["load"])) for room in rooms.values())
    assert loads < 80_000


def test_it_counts_supply_that_does_not_serve(stored, demand, queue, pilot):
    pilots = [pilot(1, standing=PilotStanding.BUSY), pilot(2, norm_cpu_seconds=1), pilot(3, tq_id=7)]
    record = stored([demand(1)], [queue("A")], pilots)
    assert record["aside"] == {"runs jobs": 1}
    assert record["spare"] == 1
    assert record["borrowed"] == {"1": 1}


def test_of_many_refusals_some_examples_are_kept(stored, demand, queue):
    queues = [queue(f"S{k}", norm_cpu_seconds=10) for k in range(30)]
    record = stored([demand(1)], queues)
    (refused,) = record["asks"][0]["refused"]
    assert (refused["kind"], refused["count"]) == ("a pilot there could not run these jobs", 30)
    assert len(refused["examples"]) == 5


# --- the story ----------------------------------------------------------------------------------------


def test_the_story_of_placed_pilots(stored, demand, queue):
    lines = story(stored([demand(1, waiting_jobs=10)], [queue("A"), queue("B", norm_cpu_seconds=5)]), 1)
    assert lines[0] == "pilots: 16 of 16 asked were placed"
    assert "cap = int((1 + 0.2) x 10) + 4 - 0 = 16" in lines
    assert "asked = 16" in lines
    assert "generic pilots (drawn by PrivatePilotFraction) through submission pool Local" in lines
    assert "1 CE queue: a pilot there could not run these jobs" in lines
    assert lines[-1] == ("  B/ce/q: the job needs 3600 s of normalised CPU time, the resource has 5")


def test_the_story_of_enough_supply(stored, demand, queue, pilot):
    lines = story(stored([demand(1)], [queue("A")], [pilot(k) for k in range(16)]), 1)
    assert lines[0] == (
        "pilots: none asked because 16 allowed for 10 jobs - 16 usable pilots waiting or idle"
    )


def test_the_story_of_a_queue_without_room(stored, demand, queue):
    full = queue("A", waiting=4, caps=QueueCaps(max_waiting=4))
    lines = story(stored([demand(1)], [full]), 1)
    assert lines[0] == "pilots: 16 asked, none placed because no CE queue would take one"
    assert lines[-1] == "  A/ce/q: MaxWaitingJobs 4 - 4 waiting"


def test_the_story_of_part(stored, demand, queue):
    lines = story(stored([demand(1)], [queue("A", caps=QueueCaps(max_waiting=3))]), 1)
    assert lines[0] == "pilots: 3 of 16 asked were placed"
    assert "1 CE queue: its room was used up in this iteration" in lines


def test_the_story_of_an_empty_task_queue(stored, demand, queue):
    lines = story(stored([demand(1, waiting_jobs=0)], [queue("A")]), 1)
    assert lines == ("pilots: none asked because no job waits", "none asked: no job waits")


def test_the_story_of_no_pool(stored, demand, queue):
    pools = {"Local": PoolState(name="Local", running=2, queued=40)}
    lines = story(stored([demand(1)], [queue("A")], pools=pools), 1)
    assert lines[0] == "pilots: 16 asked, none placed because no submission pool would take them"
    assert lines[-1] == "submission pool Local: full"


def test_the_story_of_an_empty_draw(stored, demand, queue):
    lines = story(stored([demand(1)], [queue("A")], section={"pilotsPerIteration": "0"}), 1)
    assert lines[0] == "pilots: none asked because the draw of this iteration was 0 at a mean of 0"


def test_the_story_of_no_jobs(stored, demand, queue):
    lines = story(stored([demand(1, waiting_jobs=0)], [queue("A")]), 1)
    assert lines[0] == "pilots: none asked because no job waits"


def test_the_story_of_a_task_queue_that_came_later(stored, demand, queue):
    lines = story(stored([demand(1)], [queue("A")]), 99)
    assert lines == ("pilots: none asked because the task queue was not there at that iteration",)


@pytest.mark.slow
def test_ten_thousand_task_queues_stay_small(decision_for, demand, queue):
    demands = [demand(k, waiting_jobs=10) for k in range(10_000)]
    record = to_record(decision_for(demands, [queue("A")]))
    assert len(json.dumps(record)) < 3_000_000


@pytest.mark.slow
def test_a_record_stays_within_a_few_megabytes(plan_of, decision_for, demand, queue, monkeypatch):
    """A tenth of all sizes. Half of the task queues have lines; those that ask come before the others."""
    for name in ("MOST_ROWS", "_MOST_ASKS", "_MOST_EXAMPLES"):
        monkeypatch.setattr(records, name, getattr(records, name) // 10)
    demands = [demand(k, waiting_jobs=k % 2, owner=f"o{k}") for k in range(2 * records.MOST_ROWS)]
    pools = {"Local": PoolState(name="Local", total=10**6)}
    section = {"pilotsPerIteration": "1000"}
    decision = decision_for(demands, [queue("A", norm_cpu_seconds=5)], pools=pools, section=section)
    found = json.loads(json.dumps(to_record(decision)))
    assert len(json.dumps(found)) < 800_000
    assert len(found["rows"]) == records.MOST_ROWS
    assert len(found["asks"]) == records._MOST_ASKS
    assert found["left_out"] == records.MOST_ROWS + len(decision.orders) - records._MOST_ASKS
    asked = {row.tq_id for row in plan_of(found).rows if row.asked}
    assert len(asked) == records.MOST_ROWS or asked == {row.tq_id for row in decision.plan.rows if row.asked}
    kept = {one["tq_id"] for one in found["asks"]}
    assert story(found, next(iter(kept)))[0].endswith("none placed because no CE queue would take one")
    assert "what became of them is not recorded" in story(found, next(iter(asked - kept)))[0]
    there = {row.tq_id for row in plan_of(found).rows}
    missing = next(one.tq_id for one in demands if one.tq_id not in there)
    assert story(found, missing) == (
        "pilots: not recorded, the iteration had too many task queues to keep them all",
    )


def test_examples_are_fewer_where_there_are_many_task_queues(decision_for, demand, queue, monkeypatch):
    monkeypatch.setattr(records, "_MOST_EXAMPLES", 6)
    queues = [queue(f"S{k}", norm_cpu_seconds=10) for k in range(9)]
    pools = {"Local": PoolState(name="Local", total=100)}
    for count, shown in ((1, 5), (2, 3), (3, 2), (7, 0)):
        found = to_record(decision_for([demand(k) for k in range(count)], queues, pools=pools))
        for ask in found["asks"]:
            (refused,) = ask["refused"]
            assert (refused["count"], len(refused["examples"])) == (9, shown)
