"""Why did a payload end, and what does that make of its attempt? Pure; one cause for every end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from lodesman.pilot import protocol
from lodesman.pilot.protocol import Limits

_NOT_FOUND = {126: "it or its interpreter cannot be executed", 127: "it or its interpreter was not found"}


@dataclass(frozen=True)
class Stop:
    """The pilot's own decision to end a payload; the first one counts."""

    cause: str
    message: str


@dataclass(frozen=True)
class Outcome:
    """What is reported of an attempt that ended."""

    state: str
    cause: str
    message: str = ""
    exit_code: int | None = None
    signal: int | None = None


def before_start(cause: str, message: str) -> Outcome:
    """The payload never ran."""
    return Outcome(_state_of(cause), cause, message)


def judge(
    exit_code: int | None, number: int | None, *, stop: Stop | None, limits: Limits, cpu_over: bool
) -> Outcome:
    """From how the first process ended. `cpu_over`: the tree has used up its CPU time by now."""
    if stop is not None:
        return Outcome(_state_of(stop.cause), stop.cause, stop.message, exit_code, number)
    cause, message = _cause(exit_code, number, limits=limits, cpu_over=cpu_over)
    return Outcome(_state_of(cause), cause, message, exit_code, number)


def _cause(exit_code: int | None, number: int | None, *, limits: Limits, cpu_over: bool) -> tuple[str, str]:
    if exit_code == 0:
        return protocol.OK, ""
    if number == signal.SIGXCPU or cpu_over:
        return protocol.CPU_LIMIT, "The job used up its CPU time."
    if number == signal.SIGXFSZ and limits.output_mb:
        return protocol.OUTPUT_LIMIT, "The job wrote a file that is far over the limit of its output."
    if number is not None:
        return protocol.SIGNAL, f"The job was ended by signal {number} ({_name(number)}), not by the pilot."
    message = f"The job ended with exit code {exit_code}."
    if exit_code in _NOT_FOUND:
        message = f"{message[:-1]}; for the executable this code means: {_NOT_FOUND[exit_code]}."
    return protocol.EXIT, message


def _state_of(cause: str) -> str:
    if cause == protocol.OK:
        return protocol.DONE
    return protocol.RELEASED if cause == protocol.PILOT_SHUTDOWN else protocol.FAILED


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "no name"
