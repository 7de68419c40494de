"""The command that changes jobs: what it writes is purged, undone with a batch that fails, and never hits another job."""

from __future__ import annotations

import random

import pytest
from tests.contract.test_forget import dangling, forget_all, later, run_one, sizes
from tests.contract.test_stop_orders import rolled_back

from lodesman.base.errors import TooLarge
from lodesman.server.writer.change import ChangeJobs, PreparedChange, find_kinds
from lodesman.server.writer.control import join_ranges
from lodesman.server.writer.submit import PreparedCohort

ANYBODY = lambda *_: True  # noqa: E731
KEEP = 90


def command(house, first, last=None, *, project="other", most=0, **more):
    """Change the project of all these jobs, as it was prepared now."""
    ranges = join_ranges([(first, last or first)])
    kinds = find_kinds(house.reader, ranges, ANYBODY)
    new = PreparedCohort(
        key=house.key(project=project), template='{"changed":1}', expand=False, max_attempts=5, runs=()
    )
    change = PreparedChange(
        attributes=("JobGroup",), kinds={(one.submission, one.template, one.tq_id): new for one in kinds},
        owners={(one.submission, one.template, one.tq_id): one.owner for one in kinds}, pools=(), config="",
    )  # fmt: skip
    return ChangeJobs(house.live, "change", ranges, "", ANYBODY, change=change, most=most, **more)


def change(house, *args, **more):
    out = house.do(command(house, *args, **more))
    return out.changed, out.refused


def waiting(house):
    """Waiting jobs by the project of their task queue, in memory and as counted from the database."""
    found = {key.project: n for _, key, n in house.live.queues.index.queues() if n}
    assert not any(house.reconcile().values())
    return found


def test_nothing_is_left_when_changed_jobs_are_purged(house):
    pilot = house.pilot()
    house.submit()
    house.submit(count=4)
    for _ in range(3):
        assert change(house, 1) == (1, 0)
        assert change(house, 3, 4) == (2, 0)
    assert sizes(house, "template") == {"template": 2 + 1 + 3}
    assert dangling(house) == {}
    for _ in range(5):
        run_one(house, pilot)
    house.end_pilot(pilot)
    assert dangling(house) == {}
    later(house, KEEP + 1)
    forget_all(house, keep=KEEP)
    assert set(sizes(house).values()) == {0}


def test_a_batch_that_fails_changes_nothing(house):
    house.submit()
    house.submit(count=4)
    before = waiting(house)
    rolled_back(house, command(house, 1, 4))
    assert {key.project: n for _, key, n in house.live.queues.index.queues() if n} == before == {"": 5}


def test_a_job_that_is_another_one_by_now_is_refused(house):
    house.submit(count=3)
    late = command(house, 1, 3, project="late")
    assert change(house, 1, 2) == (2, 0)
    out = house.do(late)
    assert (out.changed, out.refused) == (1, 2)
    assert {one.reason for one in out.examples} == {"it was changed at the same time; try again"}
    assert waiting(house) == {"other": 2, "late": 1}


def test_a_changed_job_that_comes_back_has_the_attempts_that_it_was_given(house):
    house.submit(max_attempts=1)
    assert change(house, 1) == (1, 0)
    (claimed,) = house.claim(house.pilot())
    assert house.reader.only("SELECT max_attempts, attempt FROM job WHERE id = 1") == (5, 1)
    assert house.reader.only("SELECT body FROM template WHERE id = ?", (claimed.template_id,)) == (
        '{"changed":1}',
    )


def test_task_queues_of_one_user_are_limited(house):
    house.submit(count=3)
    assert change(house, 1, project="a", most=2) == (1, 0)
    with pytest.raises(TooLarge, match="task queues"):
        house.do(command(house, 2, project="b", most=2))
    assert change(house, 2, project="a", most=2) == (1, 0)


@pytest.mark.parametrize("seed", range(6))
def test_any_walk_of_changes_keeps_the_counts_right(house, seed):
    """Arrays and single jobs, changed, held, released and claimed in any order."""
    rng = random.Random(seed)
    house.submit(count=6)
    house.submit()
    house.submit(count=3)
    pilot = house.pilot()
    for _ in range(12):
        first = rng.randint(1, 10)
        last = min(10, first + rng.randint(0, 4))
        match rng.randint(0, 3):
            case 0:
                change(house, first, last, project=rng.choice("abc"))
            case 1:
                house.control("hold", first, last)
            case 2:
                house.control("release", first, last)
            case _:
                house.claim(pilot, 1)
        states = [house.state(job) for job in range(1, 11)]
        assert sum(waiting(house).values()) == states.count("Waiting")
    assert dangling(house) == {}
