"""Demand: buckets, allowance, values that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodesman.decide.director.options import CPU_BUCKETS, DirectorOptions
from lodesman.decide.director.plan import allowance, cpu_bucket


@pytest.mark.parametrize(
    ("cpu", "bucket"),
    [(0, 360), (1, 360), (360, 360), (361, 1800), (3601, 21_600), (1_080_000, 1_080_000), (10**9, 1_080_000)],
)
def test_cpu_time_is_rounded_up_to_its_bucket(cpu, bucket):
    assert cpu_bucket(cpu, CPU_BUCKETS) == bucket


@given(st.integers(0, 2_000_000))
def test_a_bucket_is_never_smaller_but_at_the_end(cpu):
    bucket = cpu_bucket(cpu, CPU_BUCKETS)
    assert bucket in CPU_BUCKETS
    assert bucket >= cpu or bucket == CPU_BUCKETS[-1]
    assert all(smaller < cpu for smaller in CPU_BUCKETS if smaller < bucket)


@pytest.mark.parametrize(
    ("jobs", "fraction", "extra", "allowed"),
    [(0, 0.2, 4, 4), (1, 0.2, 4, 5), (4, 0.2, 4, 8), (5, 0.2, 4, 10), (100, 0.2, 4, 124), (100, 0.0, 0, 100)],
)
def test_the_allowance_is_the_formula_of_the_seed(jobs, fraction, extra, allowed):
    options = DirectorOptions(extra_pilot_fraction=fraction, extra_pilots=extra)
    assert allowance(jobs, options) == allowed
