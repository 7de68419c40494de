"""What a pilot publishes when what is in a script happens, by a clock of its own: for tests of writers and readers.

    {"allocated": 8, "priority": 0, "slot_ends": 9000, "steps": [
      {"at": 1000, "do": "start", "payload": "a", "cores": 4, "expected_end": 4600, "enforced_end": 8200},
      {"at": 2000, "do": "commit", "payload": "a"},
      {"at": 2500, "do": "estimate", "payload": "a", "expected_end": 5000},
      {"at": 3000, "do": "drain", "cause": "node", "slot_ends": 6000},
      {"at": 3500, "do": "resume", "cause": "node", "slot_ends": 9000},
      {"at": 4500, "do": "end", "payload": "a", "pending": true},
      {"at": 4600, "do": "safe", "payload": "a"},
      {"at": 4700, "do": "leave"}]}

Times are UNIX seconds. `enforced_end`, `cause`, `slot_ends` (null: nothing ends the slot), `pending` (the output is not safe
yet) may be left out; `wait` lets time pass. A payload that may not start is reported and never runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from .timeline import Facts, LastStatus, decide, no_start, note_publication
from .values import Status
from .waste import RunningPayload

_LONGEST_S = 30 * 86_400
_DEFAULT_CAUSE = "drain"
_TIME, _WHOLE = (int, float), (int,)
_KINDS = {
    "payload": (str,),
    "cores": _WHOLE,
    "expected_end": _TIME,
    "enforced_end": (*_TIME, type(None)),
    "slot_ends": (*_TIME, type(None)),
    "cause": (str,),
    "pending": (bool,),
    "value": _WHOLE,
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "start": ("payload", "cores", "expected_end"),
    "end": ("payload",),
    "commit": ("payload",),
    "safe": ("payload",),
    "estimate": ("payload", "expected_end"),
    "drain": (),
    "resume": (),
    "priority": ("value",),
    "leave": (),
    "wait": (),
}


class InvalidSteps(ValueError):
    """The message says which step cannot be followed, and why."""


class Sink(Protocol):
    """Takes a status: a directory (channel.Publication), or a test."""

    def publish(self, status: Status) -> bool:
        """False if that was not possible now."""
        ...


@dataclass(frozen=True)
class ScriptEvent:
    """A publication for the event `why`, or the payload that was refused for that reason."""

    at: float
    why: str
    status: Status | None = None
    written: bool = True
    refused: str | None = None

    def line(self) -> str:
        """JSON: at, why, and keys (with written) or refused."""
        if self.status is None:
            return json.dumps({"at": self.at, "why": self.why, "refused": self.refused})
        keys = self.status.items()
        return json.dumps({"at": self.at, "why": self.why, "written": self.written, "keys": keys})


@dataclass(frozen=True)
class ScriptStep:
    """One thing that happens at that time."""

    at: float
    do: str
    payload: str = ""
    cores: int = 1
    expected_end: float = 0
    enforced_end: float | None = None
    slot_ends: float | None = None
    moves_slot: bool = False
    cause: str = _DEFAULT_CAUSE
    pending: bool = False
    value: int = 0


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name is given twice in one object")
    return values


def read_script(text: str) -> tuple[Facts, Sequence[ScriptStep]]:
    """The steps by time. Raises InvalidSteps."""
    try:
        script = json.loads(text, object_pairs_hook=_each_once)
    except ValueError as fault:
        raise InvalidSteps(f"the script is not JSON: {fault}") from None
    if not isinstance(script, dict) or not isinstance(script.get("steps"), list) or not script["steps"]:
        raise InvalidSteps('the script is not an object with a list "steps"')
    facts = Facts(
        allocated=_field("the script", script, "allocated", _WHOLE),
        priority=_field("the script", {"priority": 0, **script}, "priority", _WHOLE),
        slot_ends=_field("the script", {"slot_ends": None, **script}, "slot_ends", _KINDS["slot_ends"]),
    )
    steps = [_step(f"step {place}", step) for place, step in enumerate(script["steps"], 1)]
    if any(step.at > following.at for step, following in zip(steps, steps[1:])):
        raise InvalidSteps("the steps are not in order of time")
    if steps[-1].at - steps[0].at > _LONGEST_S:
        raise InvalidSteps("the steps take more than 30 days")
    return facts, steps


def _step(where: str, step: object) -> ScriptStep:
    if not isinstance(step, dict) or step.get("do") not in _NEEDED:
        raise InvalidSteps(f'{where}: "do" is none of {", ".join(_NEEDED)}')
    names = [name for name in _KINDS if name in step or name in _NEEDED[step["do"]]]
    more = {name: _field(where, step, name, _KINDS[name]) for name in names}
    if more.get("cores", 1) < 1:
        raise InvalidSteps(f'{where}: "cores" is less than 1')
    at = _field(where, step, "at", _TIME)
    return ScriptStep(at, step["do"], moves_slot="slot_ends" in step, **more)


def _field(where: str, record: Mapping[str, object], name: str, kinds: tuple[type, ...]) -> Any:
    value = record.get(name)
    is_kind = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    if name not in record or not is_kind or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidSteps(f'{where}: "{name}" is missing or of the wrong kind')
    return value


def follow(facts: Facts, steps: Sequence[ScriptStep], sink: Sink) -> Iterator[ScriptEvent]:
    """Publish as a pilot does. Raises InvalidSteps for a payload that does not run."""
    pilot = _ScriptedPilot(facts, sink)
    for at, together in groupby(steps, key=lambda step: step.at):
        while pilot.ask_again < at:
            yield from pilot.ask(pilot.ask_again)
        for step in together:
            refused = pilot.happen(step)
            if refused:
                yield ScriptEvent(at, refused, refused=step.payload)
        yield from pilot.ask(at)


class _ScriptedPilot:
    def __init__(self, facts: Facts, sink: Sink) -> None:
        self.ask_again = math.inf
        self._facts = facts
        self._sink = sink
        self._said = LastStatus()
        self._running: dict[str, RunningPayload] = {}
        self._pending: dict[str, float] = {}
        self._refused: set[str] = set()

    def ask(self, now: float) -> Iterator[ScriptEvent]:
        due = decide(self._said, self._facts, now)
        self.ask_again = due.ask_again
        if due.publish is None:
            return
        written = self._sink.publish(due.publish)
        if written:
            self._said = note_publication(self._said, due.publish, now)
            self.ask_again = decide(self._said, self._facts, now).ask_again
        yield ScriptEvent(now, due.why, due.publish, written)

    def happen(self, step: ScriptStep) -> str | None:
        if step.do == "start":
            return self._start(step)
        if step.do in ("end", "commit", "safe", "estimate"):
            self._change(step)
        elif step.do == "priority":
            self._facts = replace(self._facts, priority=step.value)
        elif step.do == "leave":
            self._facts = replace(self._facts, leaving=True)
        elif step.do in ("drain", "resume"):
            causes = {step.cause}
            drain = self._facts.drain | causes if step.do == "drain" else self._facts.drain - causes
            ends = step.slot_ends if step.moves_slot else self._facts.slot_ends
            self._facts = replace(self._facts, drain=drain, slot_ends=ends)
        return None

    def _start(self, step: ScriptStep) -> str | None:
        if step.payload in self._running:
            raise InvalidSteps(f'at {step.at}: payload "{step.payload}" runs already')
        self._refused.add(step.payload)
        if self._facts.drain and self._said.status and self._said.status.can_postpone_last_job:
            return "drain"
        reason = no_start(self._said, step.expected_end, step.at)
        if reason is None:
            self._refused.discard(step.payload)
            self._running[step.payload] = RunningPayload(
                step.cores, step.at, step.at, step.expected_end, step.enforced_end
            )
            self._tell()
        return reason

    def _change(self, step: ScriptStep) -> None:
        name = step.payload
        if name in self._refused:
            return
        payloads = self._pending if step.do == "safe" else self._running
        if name not in payloads:
            raise InvalidSteps(f'at {step.at}: payload "{name}" does not run, or nothing of it is pending')
        payload = self._running.get(name)
        if step.do == "safe" or payload is None:
            del self._pending[name]
        elif step.do == "commit":
            self._running[name] = replace(payload, committed=step.at)
        elif step.do == "estimate":
            self._running[name] = replace(payload, expected_end=step.expected_end)
        else:
            del self._running[name]
            if step.pending:
                self._pending[name] = payload.cores * (step.at - payload.committed)
        self._tell()

    def _tell(self) -> None:
        self._facts = replace(
            self._facts,
            running=tuple(self._running.values()),
            pending_waste=sum(self._pending.values()),
        )
