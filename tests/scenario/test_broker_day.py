"""A simulated day of a site whose ads are lost, late, reordered and doubled: the ledger keeps both limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import at_most
from tests.kits.site_day import SiteDay, Weather

from lodesman.wire.vocabulary import GateMode


@pytest.mark.slow
def test_in_five_days_the_ledger_is_never_above_a_limit_and_uses_the_site():
    uses = []
    for seed in range(5):
        oracle, ledger, strict = (
            SiteDay(seed=seed, mode=mode).run() for mode in (None, GateMode.LEDGER, GateMode.STRICT)
        )
        for day in (oracle, ledger):
            assert (day.over_jobs_s, day.over_submitting_s) == (0.0, 0.0)
            assert day.most_jobs <= 100
            assert day.most_submitting <= 10
        # So many ads came that the day is one with ads, and so few that many did not.
        assert 180 < ledger.ads < 280
        uses.append(ledger.use / oracle.use)
        print(  # noqa: T201 - what strict mode costs stands beside
            f"seed {seed}: use {ledger.use:.3f}, of strict mode {strict.use:.3f}, of the oracle {oracle.use:.3f}; "
            f"strict mode is {strict.over_jobs_s / 86_400:.1%} of the time above MaxJobs (up to {strict.most_jobs}), "
            f"{strict.over_submitting_s / 86_400:.1%} above MaxSubmittingJobs (up to {strict.most_submitting})"
        )
        assert strict.most_jobs > 100
        assert strict.most_submitting > 10
    assert min(uses) >= 0.90, uses


weathers = st.builds(
    Weather,
    lost=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    late_s=st.sampled_from([0.0, 60.0, 600.0]),
    doubled=st.sampled_from([0.0, 0.05, 0.9]),
    on_its_way_s=st.sampled_from([(0.0, 0.0), (5.0, 60.0), (200.0, 300.0)]),
    submitting_s=st.sampled_from([(0.0, 1.0), (20.0, 180.0), (0.0, 4_000.0)]),
    running_s=st.sampled_from([10.0, 600.0, 14_400.0]),
    known_ended_s=st.sampled_from([0.0, 60.0, 2_000.0]),
    failed=st.sampled_from([0.0, 0.02, 0.5]),
)
# Without stamps the ends of pilots must be known when they have left the site's counts.
plain = st.builds(replace, weathers, stamps=st.just(False), known_ended_s=st.just(0.0))


@pytest.mark.slow
@at_most(30)
@given(
    seed=st.integers(0, 1 << 30),
    weather=weathers | plain,
    limits=st.tuples(st.integers(0, 12), st.integers(0, 5)),
)
def test_in_ledger_mode_no_limit_is_exceeded_whatever_happens_to_the_ads(seed, weather, limits):
    day = SiteDay(
        seed=seed,
        mode=GateMode.LEDGER,
        weather=weather,
        hours=3.0,
        max_jobs=limits[0],
        max_submitting=limits[1],
    ).run()
    assert day.most_jobs <= limits[0]
    assert day.most_submitting <= limits[1]


@pytest.mark.slow
@pytest.mark.parametrize("running_s", [3_600.0, 14_400.0])
def test_a_site_that_lists_no_stamps_is_used_where_its_counts_rise_with_what_is_sent(running_s):
    """Jobs of an hour: each of 10 pilots counted as being submitted for 900 s, so that a third of the site was used."""
    uses = {}
    for stamps in (True, False):
        weather = Weather(running_s=running_s, late_s=30.0, stamps=stamps)
        day = SiteDay(seed=3, mode=GateMode.LEDGER, hours=12.0, weather=weather).run()
        assert day.most_jobs <= 100
        assert day.most_submitting <= 10
        uses[stamps] = day.use
    assert uses[False] > 0.8 * uses[True], uses
