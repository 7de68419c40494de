"""Whose turn is next: starts parted as the lottery parts them, and no more promised than there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.explain.turns import FIRST, Contest, Turn
from lodesman.decide.matching import GroupShare, TaskQueueKey

SHARES = {"a": GroupShare(share=3_000), "b": GroupShare(share=1_000), "open": GroupShare(job_sharing=True)}


def queue(number, jobs, group="a", owner="ann", priority=1):
    key = TaskQueueKey(owner=owner, group=group, vo="lab", norm_cpu_seconds=number, user_priority=priority)
    return number, key, jobs


def turns(*waiting, apart=()):
    contest = Contest(waiting, {"open"}, apart)
    return {number: contest.turn(key, number, ahead=0, shares=SHARES) for number, key, _ in waiting}


def test_alone_a_task_queue_gets_every_start():
    (turn,) = turns(queue(1, 10)).values()
    assert (turn.allotted(4), turn.is_next(1), turn.before) == (4, True, 0)
    assert FIRST.allotted(0) == 0
    ninth = turn._replace(ahead=9)
    assert (ninth.is_next(9), ninth.is_next(10), ninth.before) == (False, True, 9)


def test_of_two_that_compete_for_one_start_the_older_is_next():
    found = turns(queue(1, 1), queue(2, 1))
    assert [turn.is_next(1) for turn in found.values()] == [True, False]
    assert found[2].before == 1
    assert all(turn.is_next(2) for turn in found.values())


def test_groups_get_their_shares_owners_alike_parts_and_task_queues_their_priorities():
    found = turns(
        queue(1, 100), queue(2, 100, owner="bob"), queue(3, 100, owner="bob", priority=3), queue(4, 100, "b")
    )
    assert [round(turn.part, 4) for turn in found.values()] == [0.375, 0.0938, 0.2812, 0.25]
    assert [turn.allotted(32) for turn in found.values()] == [12, 3, 9, 8]
    assert {turn.others for turn in found.values()} == {300}


def test_owners_are_not_distinguished_where_jobs_are_shared():
    found = turns(*(queue(n, 9, "open", owner=f"o{n > 1}") for n in (1, 2, 3, 4)))
    assert {turn.part for turn in found.values()} == {0.25}


def test_owners_with_weights_get_their_parts_and_a_new_owner_one_of_its_own():
    shares = {"a": GroupShare(owner_weights={"ann": 2.5, "new": 0.5})}
    waiting = [queue(1, 100), queue(2, 100, owner="bob"), queue(3, 100, owner="bob", priority=3)]
    contest = Contest(waiting)

    def turn(key, number):
        return contest.turn(key, number, ahead=0, shares=shares)

    found = [turn(key, number) for number, key, _ in waiting]
    assert [one.part for one in found] == pytest.approx([2.5 / 3.5, 0.25 / 3.5, 0.75 / 3.5])
    assert [one.older for one in found] == pytest.approx([0.0, 2.5 / 3.5, 2.75 / 3.5])
    new = turn(queue(4, 1, owner="new")[1], None)
    assert (new.part, new.older) == (0.5 / 4.0, 3.5 / 4.0)


def test_what_the_others_leave_is_its_own():
    found = turns(queue(1, 100), queue(2, 1, "b"))
    assert (found[1].allotted(10), found[2].allotted(10)) == (9, 2)
    assert found[1]._replace(ahead=50).before == 51


def test_jobs_that_nothing_could_start_compete_with_no_others():
    found = turns(queue(1, 100), queue(2, 5), apart={1})
    assert (found[2].part, found[2].others) == (1.0, 0)


def test_a_new_task_queue_comes_last():
    contest = Contest([queue(1, 4), queue(2, 4)], ())
    _, key, _ = queue(3, 0)
    turn = contest.turn(key, None, ahead=0, shares=SHARES)
    assert (round(turn.part, 3), round(turn.older, 3), turn.others) == (0.333, 0.667, 8)
    assert not turn.is_next(1)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 9)), max_size=9),
    st.integers(0, 30),
)  # fmt: skip
def test_together_they_are_promised_what_there_is(queues, starts):
    waiting = [
        queue(n, jobs, group, owner, priority) for n, (jobs, group, owner, priority) in enumerate(queues)
    ]
    found = turns(*waiting)
    parted = [min(turn._replace(others=10**6).allotted(starts), jobs) for (_, _, jobs), turn in
              zip(waiting, found.values(), strict=True)]  # fmt: skip
    assert sum(parted) <= starts
    promised = [
        min(turn.allotted(starts), jobs) for (_, _, jobs), turn in zip(waiting, found.values(), strict=True)
    ]
    jobs = sum(jobs for *_, jobs in waiting)
    assert starts < jobs or sum(promised) == jobs


@pytest.mark.parametrize(("part", "before"), [(1.0, 3), (0.5, 7), (0.001, 103)])
def test_about_so_many_start_before_it(part, before):
    assert Turn(ahead=3, others=100 if part < 1 else 0, part=part).before == before


# --- where they may run -------------------------------------------------------------------------------------------------

WORLDS = st.lists(
    st.tuples(st.integers(1, 5), st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(1, 9), st.integers(0, 15)),
    max_size=9,
)  # fmt: skip


@given(WORLDS, st.integers(1, 15))
def test_only_those_count_that_may_run_in_its_queues(queues, asked):
    """Held against a contest of the rivals alone; who may run where is not known of the last one."""
    waiting = [queue(n, jobs, group, owner, rank) for n, (jobs, group, owner, rank, _) in enumerate(queues)]
    where = {n: mask for n, (*_, mask) in enumerate(queues[:-1])}
    contest = Contest(waiting, {"open"}, (), {"lab": where})
    for mask in {asked, *where.values()} - {0}:
        rivals = Contest([one for one in waiting if where.get(one[0], -1) & mask], {"open"})
        beside = contest.beside("lab", mask)
        assert beside.jobs == rivals.jobs
        for number, key, _ in waiting:
            expected = rivals.turn(key, number, ahead=1, shares=SHARES)
            assert beside.turn(key, number, ahead=1, shares=SHARES) == expected


def test_where_it_is_not_known_who_may_run_where_all_count():
    contest = Contest([queue(1, 4), queue(2, 4)], (), (), {"other": {}})
    assert contest.beside("lab", 1) is contest


@pytest.mark.parametrize(("limit", "value"), [("_MOST_KINDS", 1), ("_MOST_RIVALS", 3)])
def test_of_too_many_kinds_all_count(monkeypatch, limit, value):
    waiting, where = [queue(1, 4), queue(2, 4), queue(3, 4)], {1: 0b01, 2: 0b11, 3: 0b10}
    assert Contest(waiting, (), (), {"lab": where}).beside("lab", 0b01).jobs["lab"] == {"a": 8}
    monkeypatch.setattr(f"lodesman.decide.explain.turns.{limit}", value)
    contest = Contest(waiting, (), (), {"lab": where})
    assert contest.beside("lab", 0b01) is contest
