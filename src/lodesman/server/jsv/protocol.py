"""The dialogue of a host with one job submission verifier: lines in, lines out, and the outcome. A pure machine.

    host:   START                                        script: [SEND ENV] [LOG level text] STARTED
    host:   PARAM name value ... [ENV ADD name value ...] BEGIN
    script: any of PARAM, ENV, LOG, then RESULT STATE ACCEPT|CORRECT|REJECT|REJECT_WAIT [message]

The machine follows Grid Engine's program where its manual differs: changes before ACCEPT are kept, a line on stderr
rejects, the context is `server`. Two things are better here: `ERROR text` rejects with that text, and no line is too long.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from lodesman.base.errors import InvalidJob, counted
from lodesman.server.jsv.chain import JsvLogLine, JsvOutcome, JsvVerdict, ParameterChange
from lodesman.server.jsv.parameters import (
    ARGUMENT,
    BOOLEANS,
    CLEARED,
    JOB_CLASS,
    NUMBERS,
    READ_ONLY,
    Parameters,
    check_parameters,
    environment_lines,
    is_known,
    parameter_lines,
)

_MAX_LINES: Final = 100_000
_MAX_CHARACTERS: Final = 64 << 20
_MAX_ARGUMENTS: Final = 100_000
_MAX_COMPLAINT: Final = 4_096
_MAX_SAID: Final = 100  # lines of its log, and parameters that cannot be set
_LEVELS: Final = ("INFO", "WARNING", "ERROR")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,12}")
_COUNT: Final = re.compile(r"0*([0-9]{1,6})")
_NO_TEXT: Final = re.compile(r"[\x00\udc80-\udcff]")  # bytes that are not UTF-8, as they are decoded
_RESULTS: Final[Mapping[str, JsvVerdict]] = {
    "ACCEPT": JsvVerdict.ACCEPTED,
    "CORRECT": JsvVerdict.CORRECTED,
    "REJECT": JsvVerdict.REJECTED,
    "REJECT_WAIT": JsvVerdict.REJECTED_FOR_NOW,
}
# What the user reads if the script gives no text.
_USUAL_TEXT: Final[Mapping[JsvVerdict, str]] = {
    JsvVerdict.ACCEPTED: "",
    JsvVerdict.CORRECTED: "",
    JsvVerdict.REJECTED: "JSV rejected job",
    JsvVerdict.REJECTED_FOR_NOW: "JSV temporarily rejected job",
}


class _Refusal(Exception):
    """The script broke the protocol; the text is for the user."""


class Dialogue:
    """One submission before one script. Raises InvalidJob if a value cannot be sent; the process has heard nothing.

    `seen`: parameters of earlier jobs that it may not have forgotten. `strict_accept`: changes count only with CORRECT.
    """

    __slots__ = (
        "_arguments", "_broken", "_changes", "_characters", "_environment", "_environment_changes", "_given",
        "_grown", "_lines", "_log", "_logged", "_message", "_notes", "_restarted", "_script", "_send_environment",
        "_started", "_strict", "_to_send", "_values", "_verdict", "seen",
    )  # fmt: skip

    def __init__(
        self, parameters: Parameters, script: str, *, strict_accept: bool = False, seen: Collection[str] = ()
    ) -> None:
        check_parameters(parameters)
        self._given = parameters
        self._script = script
        self._strict = strict_accept
        self._restarted = False
        self._log: list[JsvLogLine] = []
        self._notes: dict[str, str] = {}
        self._lines = self._characters = self._grown = self._logged = 0
        self._verdict: JsvVerdict | None = None
        self._message = ""
        self._broken = False
        self.seen: set[str] = set(seen)
        self._forget_answers()

    def _forget_answers(self) -> None:
        parameters = self._given
        self._to_send: list[str] = []
        self._values = dict(parameters.values)
        self._arguments = list(parameters.arguments)
        self._environment: dict[str, str] | None = None  # copied when it is changed
        self._changes: list[ParameterChange] = []
        self._environment_changes: list[ParameterChange] = []
        self._send_environment = self._started = False

    def has_ended(self) -> bool:
        """Whether there is an outcome."""
        return self._verdict is not None

    @property
    def restart(self) -> bool:
        """Whether the process broke the protocol, or is in the middle of it."""
        return self._broken or self._verdict is None

    def outcome(self, *, seconds: float = 0.0, notes: Sequence[str] = ()) -> JsvOutcome:
        """Raises ValueError before the end. `notes` are added to its own."""
        verdict = self._verdict
        if verdict is None:
            raise ValueError("the dialogue has not ended")
        kept = verdict is JsvVerdict.CORRECTED or (verdict is JsvVerdict.ACCEPTED and not self._strict)
        return JsvOutcome(
            verdict=verdict,
            message=self._message,
            parameters=self._left() if kept else self._given,
            changes=tuple(self._changes) if kept else (),
            environment=tuple(self._environment_changes) if kept else (),
            log=tuple(self._log),
            notes=(*islice(self._notes.values(), _MAX_SAID), *self._left_out(), *notes),
            restart=self._broken,
            seconds=seconds,
        )

    def _left_out(self) -> list[str]:
        more = self._logged - len(self._log) + max(0, len(self._notes) - _MAX_SAID)
        return [f"JSV says more, which is left out: {counted(more, 'line')}."] if more else []

    def start(self) -> list[str]:
        """What the process hears first."""
        return ["START"]

    def prepare(self) -> None:
        """Make the lines with the parameters, while the script answers START."""
        self._to_send = parameter_lines(self._given, forget=self.seen)

    def take_line(self, line: str) -> list[str]:
        """The lines to send in answer to one of the script, without newlines."""
        words = [word for word in line.split(" ") if word]
        if not words or self._verdict is not None:
            return []
        self._lines += 1
        self._characters += len(line)
        try:
            if self._lines > _MAX_LINES or self._characters > _MAX_CHARACTERS:
                raise _Refusal(f"JSV sent more than {_MAX_LINES} lines or {_MAX_CHARACTERS >> 20} MB")
            return self._understand(words)
        except (_Refusal, InvalidJob) as refusal:
            self.refuse(str(refusal))
        return []

    def take_complaints(self, lines: Sequence[str]) -> None:
        """Lines on stderr reject the submission, whatever else was said."""
        text = "\n".join(f"JSV stderr: {line}" for line in lines)
        self.refuse(text[:_MAX_COMPLAINT])

    def take_silence(self) -> bool:
        """It ended or said nothing. True: start it anew and begin with `start`; the second time rejects."""
        if self._restarted:
            self.refuse(f'got no response from JSV script "{self._script}"')
            return False
        self._restarted = True
        self.seen = set()
        self._forget_answers()
        return True

    def refuse(self, message: str) -> None:
        """End it for a fault beside its lines; the process is not used again."""
        self._end(JsvVerdict.REJECTED, _legible(message))
        self._broken = True

    def _end(self, verdict: JsvVerdict, message: str) -> None:
        self._verdict, self._message = verdict, message

    def _left(self) -> Parameters:
        if not self._changes and not self._environment_changes:
            return self._given
        environment = self._given.environment if self._environment is None else self._environment
        return replace(
            self._given, values=self._values, arguments=tuple(self._arguments), environment=environment
        )

    # What a script may say

    def _understand(self, words: list[str]) -> list[str]:
        match words[0]:
            case "STARTED":
                return self._hear_started()
            case "PARAM":
                self._hear_parameter(words)
            case "RESULT":
                self._hear_result(words)
            case "LOG":
                self._hear_log(words)
            case "ENV":
                self._hear_environment(words)
            case "SEND":
                self._hear_send(words)
            case _:
                self._hear_unknown(words)
        return []

    def _hear_unknown(self, words: list[str]) -> None:
        if words[0] == "ERROR" and len(words) > 1:
            raise _Refusal(" ".join(words[1:]))
        raise _Refusal(f'master got unknown command from JSV: "{words[0][:200]}"')

    def _hear_started(self) -> list[str]:
        if self._started:
            raise _Refusal('JSV sent "STARTED" twice for one job')
        self._started = True
        if not self._to_send:
            self.prepare()
        lines = self._to_send
        if self._send_environment:
            lines = lines + environment_lines(self._given.environment)
        self.seen |= self._given.values.keys() - CLEARED
        return [*lines, "BEGIN"]

    def _hear_send(self, words: list[str]) -> None:
        if words[1:2] != ["ENV"]:
            raise _Refusal(f'got "{" ".join(words[1:2])}" as object for SEND command')
        self._send_environment = True

    def _hear_log(self, words: list[str]) -> None:
        level = words[1] if len(words) > 1 else ""
        is_level = level in _LEVELS
        text = _legible(" ".join(words[2:] if is_level else words[1:])[:_MAX_COMPLAINT])
        self._logged += 1
        if len(self._log) < _MAX_SAID:
            self._log.append(JsvLogLine(level=level if is_level else "WARNING", text=text))

    def _hear_result(self, words: list[str]) -> None:
        if not self._started:  # it was told of no job
            raise _Refusal('JSV sent "RESULT" before "STARTED"')
        if words[1:2] != ["STATE"] or len(words) < 3:
            raise _Refusal(f'JSV got unknown command "{" ".join(words[1:2])}"')
        verdict = _RESULTS.get(words[2])
        if verdict is None:
            raise _Refusal(f'JSV sent unknown result "{" ".join(words[2:])}"')
        self._end(verdict, _legible(" ".join(words[3:])) or _USUAL_TEXT[verdict])

    def _hear_environment(self, words: list[str]) -> None:
        verb, name = (*words[1:3], "<null>", "<null>")[:2]
        value = " ".join(words[3:]) if len(words) > 3 else None
        if len(words) < 3 or verb not in {"ADD", "MOD", "DEL"} or (value is None) != (verb == "DEL"):
            raise _Refusal(f'"ENV {verb} {name} {"<null>" if value is None else value[:200]}" is invalid')
        _need_text(name, value)
        if self._environment is None:
            self._environment = dict(self._given.environment)
        if value is None:
            self._environment.pop(name, None)
        else:
            self._environment[name] = value
        self._environment_changes.append(ParameterChange(name=name, value=value))

    def _hear_parameter(self, words: list[str]) -> None:
        if len(words) < 2:
            return
        name = words[1]
        value = " ".join(words[2:]) if len(words) > 2 else None
        _need_text(name, value)
        _check(name, value)
        argument = ARGUMENT.fullmatch(name)
        if name == "CMDARGS":
            self._cut_or_grow(value)
        elif argument:
            self._set_argument(int(argument[1]), value or "")
        elif not is_known(name):
            self._notes.setdefault(
                name, f'JSV sets the parameter "{name[:100]}", which cannot be set: ignored.'
            )
            return
        elif value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value
        self._changes.append(ParameterChange(name=name, value=value))
        if name == JOB_CLASS:
            self.seen.add(name)  # a library keeps what the script itself set, too

    def _cut_or_grow(self, value: str | None) -> None:
        if value is None:
            return
        argument = _COUNT.fullmatch(value)
        count = int(argument[1]) if argument else _MAX_ARGUMENTS + 1
        if count > _MAX_ARGUMENTS:
            raise _Refusal(f'JSV tries to set "CMDARGS" to "{value[:200]}"')
        del self._arguments[count:]
        self._grow_to(count)

    def _set_argument(self, number: int, value: str) -> None:
        if number >= _MAX_ARGUMENTS:
            raise _Refusal(f'JSV tries to set "CMDARG{number}" to "{value[:200]}"')
        self._grow_to(number + 1)
        self._arguments[number] = value

    def _grow_to(self, count: int) -> None:
        """Arguments may be cut and grow again, but not for ever."""
        more = max(0, count - len(self._arguments))
        self._grown += more
        if self._grown > 10 * _MAX_ARGUMENTS:
            raise _Refusal(f"JSV adds more than {10 * _MAX_ARGUMENTS} arguments")
        self._arguments += [""] * more


def _check(name: str, value: str | None) -> None:
    """In the words of the real parser."""
    if name in READ_ONLY:
        raise _Refusal(f'JSV tries to modify read-only parameter "{name}"')
    if name in BOOLEANS:
        if value is None:
            raise _Refusal(f'JSV tries to delete boolean parameter "{name}"')
        if value not in {"y", "n"}:
            raise _Refusal(f'JSV tries to set "{name}" to "{value[:200]}"')
    if name == "N" and value is None:
        raise _Refusal('JSV tries to delete "N"')
    if name in NUMBERS and value is not None and not _NUMBER.fullmatch(value):
        raise _Refusal(f'JSV tries to set "{name}" to "{value[:200]}"')


def _need_text(name: str, value: str | None) -> None:
    if _NO_TEXT.search(name) or (value is not None and _NO_TEXT.search(value)):
        raise _Refusal(f'JSV tries to set "{_legible(name[:100])}" to a value that is no text in UTF-8')


def _legible(text: str) -> str:
    """With question marks for what is no text."""
    return _NO_TEXT.sub("?", text)
