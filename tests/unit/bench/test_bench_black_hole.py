"""The black hole of the benchmark: the director keeps its bounds, and it is its rules that keep them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from bench import black_hole_ways
from bench.black_hole import SITES, World
from bench.black_hole_ways import Director, by_the_director, by_the_seed
from bench.rows import black_hole as row

from lodesman.decide.director.limits import Breaker
from lodesman.decide.director.options import read_options


@pytest.mark.slow
def test_the_director_keeps_its_bounds_and_the_formula_alone_does_not():
    said = []
    empty, failed, makespan = row.measure(SimpleNamespace(less=lambda full: full // 5, say=said.append))
    assert empty.value <= 20
    assert failed.value <= 150
    assert makespan.value <= 1.05
    assert (empty.target, failed.target, makespan.target) == (20, 150, 1.05)
    assert empty.details["staying"][0] <= 20
    assert failed.details["staying"][0] <= 150
    assert empty.details["formula"][0] > 1_000
    assert failed.details["formula"][0] > 1_000
    assert len(said) == 4


@pytest.mark.slow
def test_a_pilot_that_joins_a_black_hole_has_to_speak_against_its_queue(monkeypatch):
    """Else slots that get no jobs are free, and get pilots without end."""
    monkeypatch.setattr(black_hole_ways, "note_failure", lambda *_, **__: Breaker())
    assert by_the_director(1, {}, jobs=1_500).empty > 20


@pytest.mark.slow
@pytest.mark.parametrize("stays", [True, False])
def test_all_jobs_are_done_and_each_is_counted_once(stays):
    found = by_the_director(7, {}, jobs=300, stays=stays)
    assert 3_000.0 < found.makespan_s < 3 * 3_600.0
    assert found.pilots >= found.to_hole + 200
    assert found.failed > 0


def test_a_day_is_the_same_each_time():
    assert by_the_seed(3, {}, jobs=60) == by_the_seed(3, {}, jobs=60) != by_the_seed(4, {}, jobs=60)


def test_no_slot_holds_two_pilots():
    world = World(1, jobs=100)
    director = Director(world, read_options({}))
    world.every(30.0, director.poll)
    world.every(60.0, director.iterate)
    most = dict.fromkeys(SITES, 0)

    def look():
        for site, slots in SITES.items():
            there = sum(one.site == site and one.host is not None for one in world.live.values())
            assert there + len(world._free[site]) == slots
            most[site] = max(most[site], there)

    world.every(60.0, look)
    world.run()
    assert all(most.values())
