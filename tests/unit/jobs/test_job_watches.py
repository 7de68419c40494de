"""Watches: whatever changes in whatever order, the counts are those of the jobs themselves."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.languages.jobs.watches import HOLDS_CHANGED, CountedJobs, JobMove, JobWatch, JobWatches
from lodesman.wire.vocabulary import JobState

W, H, M, D, F = JobState.WAITING, JobState.HELD, JobState.MATCHED, JobState.DONE, JobState.FAILED
IDS = range(1, 70)
spans = st.tuples(st.integers(1, 69), st.integers(1, 69)).map(lambda two: range(min(two), max(two) + 1))


def ranges_of(ids):
    """The fewest ranges with these ids."""
    found = []
    for one in sorted(ids):
        found.append(
            range(found.pop().start, one + 1) if found and found[-1].stop == one else range(one, one + 1)
        )
    return tuple(found)


def watching(followed, ranges, states, *, batch=0, **more):
    watch = JobWatch(tuple(ranges))
    followed.add(watch)
    watch.read_anew()
    watch.take_snapshot(
        CountedJobs(batch, Counter(states[one] for ids in ranges for one in ids if one in states), **more)
    )
    return watch


@given(
    st.lists(st.lists(st.sampled_from(IDS), min_size=1, max_size=20, unique=True), min_size=1, max_size=6),
    st.lists(st.tuples(spans, st.sampled_from(JobState)), max_size=30),
)
def test_counts_are_those_of_the_jobs(watched, changes):
    states, followed = dict.fromkeys(IDS, W), JobWatches()
    watches = {}
    for ids in watched:
        ranges = ranges_of(ids)
        watches[ranges] = watches.get(ranges) or watching(followed, ranges, states)
    for batch, (span, new) in enumerate(changes, 1):
        # As the commands do: those of one state together.
        runs = [run for old in JobState for run in ranges_of(one for one in span if states[one] is old)]
        moves = [JobMove(run[0], run[-1], states[run[0]], new) for run in runs]
        states |= dict.fromkeys(span, new)
        touched = followed.apply_moves(batch, moves)
        for ranges, watch in watches.items():
            expected = Counter(states[one] for ids in ranges for one in ids)
            assert watch.states == expected
            assert (watch in touched) == any(set(span) & set(ids) for ids in ranges)
            assert watch.left + watch.ended == watch.size


def test_changes_before_the_snapshot_are_not_counted_twice_nor_those_after_it_lost():
    followed = JobWatches()
    watch = JobWatch((range(1, 4),))
    followed.add(watch)
    watch.read_anew()
    followed.apply_moves(7, [JobMove(1, 1, W, M)])  # committed while the snapshot was read: it has it
    followed.apply_moves(8, [JobMove(2, 2, W, M)])  # it has it not
    watch.take_snapshot(CountedJobs(7, Counter({W: 2, M: 1})))
    assert watch.states == {W: 1, M: 2}
    followed.apply_moves(7, [JobMove(1, 1, W, M)])  # delivered later than the snapshot was taken
    assert watch.states == {W: 1, M: 2}
    followed.apply_moves(9, [JobMove(1, 2, M, D), JobMove(3, 3, W, F)])
    assert (watch.states[D], watch.states[F], watch.left) == (2, 1, 0)


def test_a_wait_is_over_for_the_first_and_for_held_jobs():
    states = {1: W, 2: W, 3: H}
    watch = watching(JobWatches(), [range(1, 4)], states)
    assert not any(watch.is_over(first=first, held=held) for first in (False, True) for held in (False, True))
    watch.apply_move(1, JobMove(1, 1, W, D))
    assert watch.is_over(first=True, held=False)
    assert not watch.is_over(first=False, held=True)
    watch.apply_move(2, JobMove(2, 2, W, F))
    assert watch.is_over(first=False, held=True)
    assert not watch.is_over(first=False, held=False)
    watch.apply_move(3, JobMove(3, 3, H, D))
    assert watch.is_over(first=False, held=False)


def test_a_job_that_runs_again_is_waited_for_again():
    watch = watching(JobWatches(), [range(1, 2)], {1: F})
    assert watch.is_over(first=False, held=False)
    watch.apply_move(1, JobMove(1, 1, F, W))
    assert watch.left == 1


def test_jobs_held_with_their_task_queue_are_held_and_counted_anew_when_that_changes():
    watch = watching(JobWatches(), [range(1, 6)], dict.fromkeys(range(1, 6), W), stopped=3)
    assert (watch.held, watch.shown()) == (3, {H: 3, W: 2})
    assert watch.is_over(first=False, held=True) is False
    watch.apply_move(1, JobMove(1, 1, W, M))
    assert not watch.doubtful  # what is claimed was not held
    watch.apply_move(2, HOLDS_CHANGED)
    assert watch.doubtful


def test_purged_jobs_had_ended():
    watch = watching(JobWatches(), [range(1, 4)], {1: W, 2: W, 3: W}, unknown=0)
    watch.take_snapshot(CountedJobs(1, Counter({D: 1}), unknown=2))
    assert (watch.left, watch.ended) == (0, 3)


@pytest.mark.slow
def test_watches_that_are_dropped_leave_nothing_behind():
    followed = JobWatches()
    made = [watching(followed, [range(one, 1_000_000)], Counter()) for one in (1, 2, 3)]
    for watch in made:
        followed.drop(watch)
    assert (followed.watches, followed.ranges, followed._at, +followed._levels) == ({}, 0, {}, {})


def test_a_single_job_is_found_by_its_number_and_no_range_is_walked(monkeypatch):
    followed, states = JobWatches(), dict.fromkeys(range(1, 2_000), W)
    whole = watching(followed, [range(1, 2_000)], states)
    few = watching(followed, [range(5, 9), range(700, 702)], states)
    other = watching(followed, [range(9, 700)], states)
    monkeypatch.setattr(JobWatch, "parts", lambda *_: 1 / 0)
    moves = [JobMove(701, 701, W, M), JobMove(8, 8, W, M), JobMove(1, 1, W, M)]
    assert followed.apply_moves(1, moves) == {whole: moves, few: moves[:2]}
    assert (whole.states[M], few.states[M], other.states[M]) == (3, 2, 0)
