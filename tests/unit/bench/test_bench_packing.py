"""Packing in the simulation of the benchmark: every job runs, and less is wasted when pilots are drained."""

import pytest
from bench.rows.packing import SLOT, Payload, SharedPilot, drain


def test_waste_is_what_idles_until_the_last_end():
    pilot = SharedPilot([Payload(2, 110.0, 100.0), Payload(1, 130.0, 130.0)])
    assert pilot.free == SLOT - 3
    assert pilot.waste(90.0) == SLOT * 40 - 2 * 10 - 1 * 40
    assert SharedPilot().waste(90.0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_packed_pilots_waste_less(seed):
    packed, drawn = (drain(seed, packs=packs, jobs=1_500, pilots=20) for packs in (True, False))
    assert packed.waste < 0.95 * drawn.waste
    assert packed.end < 1.25 * drawn.end
