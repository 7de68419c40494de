"""Which pilots count for which task queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import DirectorOptions
from lodesman.decide.director.plan import allowance
from lodesman.decide.director.supply import AsideReason, PilotStanding, count_supply
from lodesman.decide.matching.tables import KeyTable
from lodesman.server.writer.pool_map import PoolMap

HOUR = 3600.0
NOW = 1_000_000.0


@pytest.fixture(scope="session")
def count():
    def counted(demands, pilots, **given):
        table = given.pop("table", None) or KeyTable({one.tq_id: one.key for one in demands})
        serving = given.pop("serving", None) or PoolMap()
        options = DirectorOptions(**given)
        return count_supply(demands, pilots, table=table, serving=serving, options=options, now=NOW)

    return counted


# --- which pilots count at all ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "standing",
    [PilotStanding.SUBMITTING, PilotStanding.WAITING, PilotStanding.IDLE],
)
def test_pilots_that_may_still_take_a_job_count(count, demand, pilot, standing):
    supply = count([demand()], [pilot(1, standing=standing)])
    assert supply.counted == {1: 1}
    assert supply.spare == ()


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (PilotStanding.BUSY, AsideReason.BUSY),
        (PilotStanding.DRAINING, AsideReason.DRAINING),
        (PilotStanding.SILENT, AsideReason.SILENT),
        (PilotStanding.SHUT, AsideReason.SHUT),
        (PilotStanding.BOUND, AsideReason.BOUND),
    ],
)
def test_pilots_that_take_no_job_now_count_nowhere(count, demand, pilot, standing, reason):
    supply = count([demand()], [pilot(1, standing=standing)])
    assert supply.counted == {1: 0}
    assert supply.aside == {reason: 1}
    assert supply.spare == ()


def test_a_bound_pilot_that_waits_too_long_is_among_the_aged(count, demand, pilot):
    supply = count([demand()], [pilot(1, standing=PilotStanding.BOUND, submitted_at=NOW - 6 * HOUR)])
    assert supply.aside == {AsideReason.TOO_OLD: 1}
    assert [one.pilot_id for one in supply.aged] == [1]


def test_an_idle_pilot_counts_for_no_task_queue_that_limits_keep_from_it(count, demand, pilot):
    """One on a full host is no supply; the same pilot elsewhere is."""
    pilots = [
        pilot(1, standing=PilotStanding.IDLE, barred=frozenset({1, 99})),
        pilot(2, standing=PilotStanding.IDLE, tq_id=2, barred=frozenset({1})),
        pilot(3, standing=PilotStanding.IDLE),
    ]
    demands = [demand(1, waiting_jobs=5), demand(2, waiting_jobs=5)]
    assert count(demands, pilots[:1]).counted == {1: 0, 2: 1}
    assert count(demands, pilots[:2]).counted == {1: 0, 2: 2}
    assert count(demands, pilots).counted == {1: 1, 2: 2}
    assert [one.pilot_id for one in count([demand(1)], pilots[:1]).spare] == [1]


@pytest.mark.parametrize("standing", [PilotStanding.WAITING, PilotStanding.SUBMITTING])
@pytest.mark.parametrize(("age_h", "counts"), [(5.99, 1), (6.0, 0), (7.0, 0)])
def test_a_pilot_waits_for_six_hours_and_no_longer(count, demand, pilot, standing, age_h, counts):
    supply = count([demand()], [pilot(1, standing=standing, submitted_at=NOW - age_h * HOUR)])
    assert supply.counted == {1: counts}
    assert supply.aside == ({} if counts else {AsideReason.TOO_OLD: 1})
    assert [(one.pilot_id, one.standing) for one in supply.aged] == ([] if counts else [(1, standing)])


def test_an_idle_pilot_counts_however_old_it_is(count, demand, pilot):
    old = pilot(1, standing=PilotStanding.IDLE, submitted_at=NOW - 100 * HOUR)
    assert count([demand()], [old]).counted == {1: 1}


def test_without_pilots_every_task_queue_has_none(count, demand):
    supply = count([demand(1), demand(2)], [])
    assert supply.counted == {1: 0, 2: 0}
    assert supply.borrowed == {1: 0, 2: 0}


# --- idle is not usable -------------------------------------------------------------------------------


def test_an_idle_pilot_with_too_little_life_left_is_no_supply(count, demand, pilot):
    dying = pilot(1, standing=PilotStanding.IDLE, norm_cpu_seconds=100)
    supply = count([demand(norm_cpu_seconds=3600)], [dying])
    assert supply.counted == {1: 0}
    assert [one.pilot_id for one in supply.spare] == [1]
    assert supply.useless == {1}


def test_a_pilot_at_the_wrong_site_is_no_supply_even_for_its_own_task_queue(count, demand, pilot):
    supply = count([demand(sites=("B",))], [pilot(1, site="A", tq_id=1)])
    assert supply.counted == {1: 0}


def test_a_private_pilot_serves_its_owner_only(count, demand, pilot):
    demands = [demand(1, owner="ann"), demand(2, owner="bob")]
    supply = count(demands, [pilot(1, tq_id=None, owner="ann", groups=("users",))])
    assert supply.counted == {1: 1, 2: 0}


# --- each pilot once ----------------------------------------------------------------------------------


def test_a_pilot_counts_for_its_own_task_queue_first(count, demand, pilot):
    supply = count([demand(1, waiting_jobs=1), demand(2, waiting_jobs=100)], [pilot(1, tq_id=1)])
    assert supply.counted == {1: 1, 2: 0}
    assert supply.borrowed == {1: 0, 2: 0}


def test_a_pilot_whose_task_queue_is_gone_serves_the_one_in_most_need(count, demand, pilot):
    supply = count([demand(1, waiting_jobs=3), demand(2, waiting_jobs=9)], [pilot(1, tq_id=77)])
    assert supply.counted == {1: 0, 2: 1}
    assert supply.borrowed == {1: 0, 2: 1}


def test_one_hundred_small_queues_are_not_served_by_the_pilots_of_one(count, demand, pilot):
    demands = [demand(tq_id, waiting_jobs=10) for tq_id in range(1, 101)]
    supply = count(demands, [pilot(k, tq_id=1) for k in range(14)])
    assert sum(supply.counted.values()) == 14
    assert supply.counted[1] == 10


def test_jobs_of_all_come_before_the_extra_of_one(count, demand, pilot):
    """20 pilots for queue 1 (10 jobs): those beyond its jobs serve queue 2's jobs before its own extra."""
    demands = [demand(1, waiting_jobs=10), demand(2, waiting_jobs=8)]
    supply = count(demands, [pilot(k, tq_id=1) for k in range(20)])
    assert supply.counted == {1: 12, 2: 8}
    assert supply.borrowed == {1: 0, 2: 8}


def test_more_than_all_allow_is_spare(count, demand, pilot):
    supply = count([demand(1, waiting_jobs=5)], [pilot(k) for k in range(15)])
    assert supply.counted == {1: 10}
    assert len(supply.spare) == 5
    assert not supply.useless


def test_the_youngest_waiting_pilots_are_the_spare_ones(count, demand, pilot):
    pilots = [pilot(k, submitted_at=NOW - k) for k in range(8)]
    pilots.append(pilot(99, standing=PilotStanding.IDLE, submitted_at=NOW))
    supply = count([demand(waiting_jobs=1)], pilots, extra_pilots=0, extra_pilot_fraction=3.0)
    assert supply.counted == {1: 4}
    assert {one.pilot_id for one in supply.spare} == {0, 1, 2, 3, 4}


def test_private_pilots_are_given_away_before_generic_ones(count, demand, pilot):
    """Queue 1 could take either; the generic one is left for queue 2, where the private ones cannot go."""
    demands = [demand(1, owner="ann", waiting_jobs=2), demand(2, owner="bob", waiting_jobs=1)]
    pilots = [
        pilot(1, tq_id=None),
        pilot(2, tq_id=None, owner="ann", groups=("users",)),
        pilot(3, tq_id=None, owner="ann", groups=("users",)),
    ]
    supply = count(demands, pilots, extra_pilots=0, extra_pilot_fraction=0.0)
    assert supply.counted == {1: 2, 2: 1}


# --- empty task queues --------------------------------------------------------------------------------


def test_pilots_of_an_empty_task_queue_serve_others_and_are_not_useless(count, demand, pilot):
    demands = [demand(1, waiting_jobs=0), demand(2, waiting_jobs=1)]
    supply = count(demands, [pilot(k, tq_id=1) for k in range(10)])
    assert supply.counted == {1: 0, 2: 5}
    assert (len(supply.spare), supply.useless) == (5, frozenset())


def test_a_task_queue_without_jobs_needs_no_pilots(count, demand, pilot):
    supply = count([demand(1, waiting_jobs=0)], [pilot(1)])
    assert supply.counted == {1: 0}
    assert len(supply.spare) == 1


# --- cost ---------------------------------------------------------------------------------------------


class Counting(KeyTable):
    """A table that notes what it was asked."""

    def __init__(self, keys):
        super().__init__(keys)
        self.asked = []

    def narrow_served(self, mask, request):
        self.asked.append(request)
        return super().narrow_served(mask, request)


def test_the_matcher_is_asked_once_per_kind_of_pilot_for_all_task_queues(count, demand, pilot):
    pilots = [pilot(k, tq_id=1) for k in range(1000)] + [pilot(2000 + k, tq_id=2) for k in range(1000)]
    demands = [demand(1, waiting_jobs=900), demand(2, waiting_jobs=900)]
    table = Counting({one.tq_id: one.key for one in demands})
    count(demands, pilots, table=table)
    assert len(table.asked) == 1


# --- all cases ----------------------------------------------------------------------------------------

SITES = st.sampled_from(["A", "B", "C"])
DEMANDS = st.lists(st.tuples(st.integers(0, 12), st.lists(SITES, max_size=2)), min_size=0, max_size=5)
PILOTS = st.lists(
    st.tuples(
        st.sampled_from(list(PilotStanding)), SITES, st.one_of(st.none(), st.integers(0, 6)), st.floats(0, 9)
    ),
    max_size=40,
)


@given(DEMANDS, PILOTS)
def test_every_pilot_is_counted_once_set_aside_or_spare(count, demand, pilot, explain, wanted, given_pilots):
    demands = [
        demand(k, waiting_jobs=jobs, sites=tuple(sorted(set(sites))))
        for k, (jobs, sites) in enumerate(wanted)
    ]
    pilots = [
        pilot(k, standing=standing, site=site, tq_id=tq_id, submitted_at=NOW - age * HOUR)
        for k, (standing, site, tq_id, age) in enumerate(given_pilots)
    ]
    supply = count(demands, pilots)
    assert len(supply.aged) == supply.aside.get(AsideReason.TOO_OLD, 0)
    total = sum(supply.counted.values()) + sum(supply.aside.values()) + len(supply.spare)
    assert total == len(pilots)
    for one in demands:
        allowed = allowance(one.waiting_jobs, DirectorOptions())
        full = 0 if one.waiting_jobs == 0 else allowed
        counted = supply.counted[one.tq_id]
        assert counted <= full
        spare_for_it = [
            spare for spare in supply.spare if not explain(one.key, pilots[spare.pilot_id].request)
        ]
        # A pilot is spare only if no task queue that it could serve wants one more.
        assert counted == full or not spare_for_it
        if spare_for_it:
            assert not any(spare.pilot_id in supply.useless for spare in spare_for_it)
