"""The records of hosts that get no jobs (ADR 0044)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lodesman.server.store.hosts import forget_failures, put_records
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.live import WriterState
from lodesman.wire.hosts import HostState


def set_hosts(
    tx: Transaction,
    live: WriterState,
    changed: Collection[HostState],
    pilots: Iterable[int],
    *,
    forget: int = 0,
) -> None:
    """Store records. `pilots`: on newly shut hosts; their claims are answered."""
    put_records(tx, changed)
    for pilot_id in pilots:
        live.parked.end_of_pilot(tx, pilot_id)
    if forget:
        forget_failures(tx, forget)
