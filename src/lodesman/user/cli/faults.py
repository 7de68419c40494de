"""Errors for people, and exit codes for programs (docs/cli.md)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lodesman.base.errors import InvalidConfig, LodesmanError, Unavailable
from lodesman.user.cli.words import located, plain

FAILED, USAGE, CONFLICT, INTERRUPTED, PIPE_CLOSED = 1, 2, 6, 130, 141
BY_CODE = {
    "not-found": 3,
    "unauthorized": 4,
    "forbidden": 4,
    "unavailable": 5,
    "too-often": 5,
    "server-fault": 5,
    "aborted": 5,
    "conflict": CONFLICT,
    "database-lost": 8,
}
_CARRIED_OUT = "It may have been carried out: check before you ask again."
# How the readers give a place inside their sentences; here it stands before them.
_PLACE = re.compile(r"^line \d+, column \d+: | \(line \d+, column \d+\)")


def exit_code(fault: LodesmanError) -> int:
    """The exit code of an error."""
    return BY_CODE.get(fault.code, FAILED)


def exit_code_of(faults: Iterable[LodesmanError], *, some_done: bool) -> int:
    """The code of a call for many things: theirs if all failed alike."""
    codes = {exit_code(fault) for fault in faults}
    if not codes:
        return 0
    return codes.pop() if len(codes) == 1 and not some_done else FAILED


def advise(fault: LodesmanError) -> None:
    """Add, once, what to do when there was no answer."""
    if isinstance(fault, Unavailable):
        if fault.data.get("sent"):
            if not fault.hint.startswith(_CARRIED_OUT):
                fault.hint = f"{_CARRIED_OUT} {fault.hint}".rstrip()
        elif not fault.hint:
            fault.hint = "Is it running (lode server)? For another address: lode --server URL."


def refusal(error: LodesmanError) -> Iterator[str]:
    """One line, or one for each fault of a configuration."""
    faults = error.data.get("faults", ())
    if not isinstance(error, InvalidConfig) or len(faults) < 2:
        yield f"lode: {plain(error)}"
        return
    yield f"lode: The configuration has {len(faults)} faults:"
    yield from (f"  {located(**fault)}" for fault in faults)
    if error.hint:
        yield f"lode: {plain(error.hint)}"


def placed(label: str, fault: LodesmanError) -> str:
    """An error as compilers print it: FILE:LINE:COLUMN: sentence."""
    line, column = fault.data.get("line"), fault.data.get("column")
    if not isinstance(line, int) or not isinstance(column, int):
        return plain(f"{label}: {fault}")
    return plain(f"{label}:{line}:{column}: {_PLACE.sub('', str(fault), count=1)}")


def without_place(fault: LodesmanError) -> LodesmanError:
    """Line and column are not those of the user's file."""
    fault.message = _PLACE.sub("", fault.message, count=1)
    fault.data = {name: value for name, value in fault.data.items() if name not in ("line", "column")}
    return fault
