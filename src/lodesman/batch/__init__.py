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
)
from lodesman.batch.local import LocalBackend, TickReport
from lodesman.batch.zipapp import build_pilot, zipapp_command

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
    "build_pilot",
    "unusable",
    "zipapp_command",
]
