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
from lodesman.batch.local import LocalBackend, TickReport

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
    "unusable",
    "zipapp_command",
]
