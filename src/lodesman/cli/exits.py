"""Exit codes: what a program is told about the end of a call (docs/cli.md)."""

from __future__ import annotations

from lodesman.errors import LodesmanError

FAILED, USAGE, CONFLICT, INTERRUPTED, PIPE_CLOSED = 1, 2, 6, 130, 141
BY_CODE = {
    "not-found": 3,
    "unauthorized": 4,
    "forbidden": 4,
    "unavailable": 5,
    "aborted": 5,
    "conflict": CONFLICT,
}


def exit_code(fault: LodesmanError) -> int:
    """The exit code that an error means."""
    return BY_CODE.get(fault.code, FAILED)
