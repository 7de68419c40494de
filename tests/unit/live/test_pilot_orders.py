"""What a heartbeat is answered: orders for what the pilot names, and nothing else."""

from __future__ import annotations

from lodesman.server.live.pilots import _GIVEN_BACK, kill_orders
from lodesman.wire.pilots import KillOrder


def test_a_pilot_ends_what_it_names_and_was_ordered_to_or_went_back():
    orders = {(1, 1): "killed by ann", (2, 1): "killed by bob"}
    given_back = {(5, 2), (4, 1), (3, 1)}
    assert kill_orders(orders, given_back, {(1, 1), (4, 1), (5, 2), (6, 1)}) == [
        KillOrder(1, 1, "killed by ann"),
        KillOrder(4, 1, _GIVEN_BACK),
        KillOrder(5, 2, _GIVEN_BACK),
    ]
    assert kill_orders(orders, given_back, set()) == []
