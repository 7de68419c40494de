"""What a claim packs by, also when it has waited."""

from types import SimpleNamespace

import pytest

from lodesman.decide.matching.lottery import SharedSlot
from lodesman.server.writer.sessions import FreeResources


def claim(house, last_end_s, **more):
    free = FreeResources(6, 16_000, 100_000, last_end_s)
    return house.claim_command(house.pilot(), free=free, **more)


def shared(claim, now, cores=6):
    return claim._shared(SimpleNamespace(now=now), cores)


def test_what_it_runs_ends_sooner_when_it_has_waited(house):
    waits = claim(house, 7_200.0, wait=True)
    house.journal.post(waits, lambda _: None)
    house.do(house.claim_command(house.pilot()))  # the writer works in order
    began = waits.since
    assert began > 0
    assert [shared(waits, began + waited).busy_s for waited in (0, 3_000, 9_000)] == [7_200, 4_200, 0]


@pytest.mark.parametrize(
    ("last_end_s", "count", "cores", "packs"),
    [(None, 4, 6, True), (0.0, 1, 6, True), (50.0, 4, 0, True), (50.0, 4, 6, False)],
)
def test_it_does_not_pack(house, last_end_s, count, cores, packs):
    """Nothing is known of it, or it runs nothing, or it is full, or packing is off."""
    house.live.queues.packs = packs
    assert shared(claim(house, last_end_s, count=count), 5.0, cores) is None


@pytest.mark.parametrize(("last_end_s", "count"), [(50.0, 1), (0.0, 2)])
def test_it_packs_into_all_that_the_pilot_has(house, last_end_s, count):
    assert shared(claim(house, last_end_s, count=count), 5.0, 3) == SharedSlot(8, 3, last_end_s, 1.0)
