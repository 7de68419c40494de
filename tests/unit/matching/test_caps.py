"""`AtMost`: the task queues of a submission close with the last job that may be taken, and open with the end of one."""

import random

import pytest

from lodesman.decide.matching import ResourceRequest, TaskQueueKey
from lodesman.decide.matching.group_index import startable
from lodesman.decide.matching.index import Index
from lodesman.decide.matching.limit_rules import RunPlace
from lodesman.decide.matching.matcher import Matcher

HERE = RunPlace("S", "c", "q", "h")
REQUEST = ResourceRequest(
    site="S", ce="c", queue="q", vo="vo", groups=("g",), cores=64, memory_mb=10**6, norm_cpu_seconds=10**6
)


def key(at_most=2, submission=7, **more):
    return TaskQueueKey(owner="ann", group="g", vo="vo", at_most=at_most, submission=submission, **more)


def filled(*keys, waiting=9):
    index = Index()
    for number, one in enumerate(keys, 1):
        index.put(number, one, waiting, now=0.0)
    return index


def are_open(index):
    """By task queue, held against the mask of the group that the lottery draws from."""
    found = sorted(number for number, _, _ in index.queues() if index.is_open(number))
    for group in index.groups():
        assert sorted(one.tq_id for one in group.queues(group.open)) == found
    return found


def test_all_task_queues_of_a_submission_close_and_open_together():
    index = filled(key(), key(cores=2), key(submission=8), key(0, 0))
    index.count_start(key(), HERE)
    assert are_open(index) == [1, 2, 3, 4]
    index.count_start(key(cores=2), HERE)
    assert are_open(index) == [3, 4]
    index.undo_start(key(), HERE)
    assert are_open(index) == [1, 2, 3, 4]


def test_a_cap_and_another_limit_block_each_by_itself():
    index = filled(key(1), key(1, cores=2))
    index.block(1, "impossible")
    index.count_attempt(key(1), HERE)
    assert are_open(index) == []
    index.uncount_attempt(key(1), HERE)
    assert are_open(index) == [2]
    index.count_attempt(key(1), HERE)
    index.unblock(1, "impossible")
    assert are_open(index) == []
    index.uncount_attempt(key(1), HERE)
    assert are_open(index) == [1, 2]


def test_a_task_queue_that_comes_late_is_closed_if_its_submission_is_full():
    index = Index()
    index.count_attempt(key(1), HERE)
    index.put(1, key(1), 3, now=0.0)
    index.put(2, key(3), 3, now=0.0)  # changed jobs, of which more may run
    assert are_open(index) == [2]
    index.count_attempt(key(3), HERE)
    index.count_attempt(key(3), HERE)
    assert (are_open(index), index.caps.taken(7)) == ([], 3)
    index.uncount_attempt(key(1), HERE)
    assert are_open(index) == [2]


def test_one_that_empties_and_goes_leaves_nothing_behind():
    index = filled(key(1), waiting=1)
    index.take(1, now=0.0)
    index.count_attempt(key(1), HERE)
    index.remove(1)
    assert index.caps.taken(7) == 1
    index.uncount_attempt(key(1), HERE)
    assert (index.caps.taken(7), index.caps._known) == (0, {})
    assert list(index.caps.take_eased()) == []


def test_what_may_start_is_said_once_after_an_end():
    index = filled(key(3), key(3, cores=2))
    for _ in range(3):
        index.count_attempt(key(3), HERE)
    index.take(2, 8, now=0.0)
    assert list(index.caps.take_eased()) == []
    index.uncount_attempt(key(3), HERE)
    index.uncount_attempt(key(3), HERE)
    assert [(queue.tq_id, jobs) for queue, jobs in index.caps.take_eased()] == [(1, 2), (2, 1)]
    assert list(index.caps.take_eased()) == []


def test_a_count_anew_says_how_many_were_wrong_and_mends_them():
    index = filled(key(1), key(1, submission=8))
    index.count_attempt(key(1), HERE)
    index.count_attempt(key(1, submission=9), HERE)
    assert index.recount([key(1), key(1, submission=9), key(0, 0)]) == 0
    assert index.recount([key(1, submission=8)]) == 3
    assert are_open(index) == [1]


def test_one_request_never_gets_more_and_gives_back_what_is_undone():
    matcher, undo = Matcher(), []
    matcher.index.put(1, key(3), 50, now=0.0)
    matcher.index.put(2, key(0, 0), 2, now=0.0)
    chosen = matcher.choose(REQUEST, 20, now=0.0, rng=random.Random(1), undo=undo)
    assert sorted(chosen) == [1, 1, 1, 2, 2]
    assert matcher.choose(REQUEST, 20, now=0.0, rng=random.Random(1), undo=undo) == []
    assert matcher.chances(REQUEST).blocked == {"at-most": 1}
    for one in reversed(undo):
        one()
    assert (matcher.index.caps.taken(7), are_open(matcher.index)) == (0, [1, 2])
    assert matcher.chances(REQUEST).blocked == {}


@pytest.mark.parametrize("seed", range(5))
def test_the_masks_follow_whatever_happens(seed):
    rng, index, live, known = random.Random(seed), Index(), [], {}
    keys = [key(most, number, cores=cores) for most in (0, 1, 3) for number in (7, 8) for cores in (1, 2)]
    keys = [one for one in keys if one.at_most] + [key(0, 0)]
    for step in range(300):
        tq_id, one = rng.choice(list(enumerate(keys)))
        deed = rng.choice(("put", "remove", "lives", "lives", "ends", "block", "unblock", "add", "take"))
        if deed == "put" and tq_id not in known:
            index.put(tq_id, one, waiting := rng.randint(0, 2), now=step)
            known[tq_id] = [waiting, False]
        elif deed == "lives":
            live.append(one)
            index.count_attempt(one, HERE)
        elif deed == "ends" and live:
            index.uncount_attempt(live.pop(rng.randrange(len(live))), HERE)
        elif tq_id in known:
            if deed == "remove":
                index.remove(tq_id)
                del known[tq_id]
            elif deed in ("block", "unblock"):
                getattr(index, deed)(tq_id, "x")
                known[tq_id][1] = deed == "block"
            elif deed == "add":
                index.add_waiting(tq_id, 1, now=step)
                known[tq_id][0] += 1
            elif deed == "take" and known[tq_id][0]:
                index.take(tq_id, 1, now=step)
                known[tq_id][0] -= 1
        taken = {n: sum(one.submission == n and one.at_most > 0 for one in live) for n in (7, 8)}
        wanted = {
            n for n, (waiting, blocked) in known.items()
            if waiting and not blocked and (not keys[n].at_most or taken[keys[n].submission] < keys[n].at_most)
        }  # fmt: skip
        assert set(are_open(index)) == wanted


@pytest.mark.parametrize(
    ("waiting", "taken", "may_start"),
    [
        ([(1, key(10), 500)], {}, {1: 10}),
        ([(1, key(10), 500)], {7: 4}, {1: 6}),
        ([(1, key(10), 500)], {7: 10}, {}),
        ([(1, key(10), 500)], {7: 12}, {}),
        ([(1, key(10), 3)], {7: 4}, {1: 3}),
        ([(1, key(0, 0), 500)], {}, {1: 500}),
        ([(1, key(5), 3), (2, key(5, cores=2), 9)], {7: 1}, {1: 3, 2: 1}),
        ([(1, key(5), 9), (2, key(5, submission=8), 9)], {7: 5}, {2: 5}),
    ],
)
def test_how_many_jobs_may_start_now(waiting, taken, may_start):
    assert {tq_id: jobs for tq_id, _, jobs in startable(waiting, taken)} == may_start
