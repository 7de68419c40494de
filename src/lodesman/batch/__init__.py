"""Batch systems: one protocol, and the backends that speak it."""

from lodesman.batch.backend import (
    Backend,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotCopy,
    PilotSpec,
    QueueKey,
    QueueLoad,
    Refusal,
    SubmitResult,
    unusable,
    zipapp_command,
)
from lodesman.batch.local import LocalBackend, TickReport, queue_slots

__all__ = [
    "Backend",
    "CancelOutcome",
    "LocalBackend",
    "NativeState",
    "NativeStatus",
    "PilotCopy",
    "PilotSpec",
    "QueueKey",
    "QueueLoad",
    "Refusal",
    "SubmitResult",
    "TickReport",
    "queue_slots",
    "unusable",
    "zipapp_command",
]
