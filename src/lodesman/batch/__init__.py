"""Batch systems: one protocol, and the backends that implement it."""

from lodesman.batch.backend import (
    Backend,
    BatchLoad,
    CancelOutcome,
    NativeState,
    NativeStatus,
    PilotCopy,
    PilotSpec,
    SubmitRefusal,
    SubmitResult,
)
from lodesman.batch.local import LocalBackend
from lodesman.batch.zipapp import build_pilot, zipapp_command

__all__ = [
    "Backend",
    "BatchLoad",
    "CancelOutcome",
    "LocalBackend",
    "NativeState",
    "NativeStatus",
    "PilotCopy",
    "PilotSpec",
    "SubmitRefusal",
    "SubmitResult",
    "build_pilot",
    "zipapp_command",
]
