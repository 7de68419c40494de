"""The outcome of the six steps: a record and who wrote what, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from lodesman.base.errors import Forbidden, InvalidJob, LodesmanError
from lodesman.decide.submission.native_table import path_of
from lodesman.languages.jobclass import ClassSnapshot, JobValues, Violation
from lodesman.languages.jobs.record import Record, shown
from lodesman.wire.jobs import Notice


class ValueSource(StrEnum):
    """Who wrote a value, in the order of writing."""

    DEFAULT = "default"
    CLASS = "class"
    COMMAND_LINE = "command line"
    CLIENT_JSV = "client JSV"
    SERVER_JSV = "server JSV"
    CHANGE = "change"


class Origin(Struct, frozen=True, kw_only=True):
    """The last writer of a value; `script` names a JSV."""

    step: ValueSource
    script: str = ""

    def __str__(self) -> str:
        return f"{self.step} {self.script}".rstrip()


class JsvView(Struct, frozen=True, kw_only=True):
    """What the server JSV sees or made of a job."""

    values: JobValues
    job_class: str = ""  # `jc`; "": without a class
    rejected: str | None = None  # the text of a rejection; the rest does not count then


class Breach(Struct, frozen=True, kw_only=True):
    """What a class does not allow, and who wrote it."""

    violation: Violation
    origin: Origin


class ResolvedRecord(Struct, frozen=True, kw_only=True):
    """What the job is to be."""

    record: Record
    snapshot: ClassSnapshot | None = None
    notices: tuple[Notice, ...] = ()
    # by attribute of a description (`WallTime`, `Environment.A`); absent: came with the record
    origins: Mapping[str, Origin] = field(default_factory=dict)
    jsv_runs: int = 0  # how often the server JSV was asked; a real server has used up a number then


class SubmissionRefusal(Struct, frozen=True, kw_only=True):
    """A no."""

    sentence: str  # without a full stop
    breaches: tuple[Breach, ...] = ()  # every one of the class
    chain: tuple[str, ...] = ()  # the classes that were asked for in turn
    jsv_runs: int = 0
    attribute: str = ""
    forbidden: bool = False
    jsv: str = ""  # the verifier of the server that said no
    asked: str = "run job"  # what cannot be done

    @property
    def error(self) -> LodesmanError:
        """In the words of Grid Engine."""
        data: dict[str, Any] = {"attribute": self.attribute} if self.attribute else {}
        if self.jsv:
            data["jsv"] = self.jsv
        if self.chain:
            data["chain"] = list(self.chain)
        if self.breaches:
            data["violations"] = [_as_data(breach) for breach in self.breaches]
        hint = " ".join(_in_words(breach) for breach in self.breaches)
        if self.jsv:
            hint = f"The JSV of the server says so: {self.jsv}."
        sentence = self.sentence if self.sentence.endswith(".") else f"{self.sentence}."
        kind = Forbidden if self.forbidden else InvalidJob
        return kind(f"Unable to {self.asked}: {sentence}", hint=hint, **data)


def _as_data(breach: Breach) -> dict[str, str | None]:
    violation = breach.violation
    return {
        "attribute": violation.attribute,
        "key": violation.key,
        "here": path_of(violation.attribute, violation.key),
        "deed": str(violation.deed),
        "specifier": violation.specifier,
        "given": violation.given,
        "allowed": violation.allowed,
        "origin": str(breach.origin),
    }


def _in_words(breach: Breach) -> str:
    violation = breach.violation
    given = "nothing" if violation.given is None else shown(violation.given)
    allowed = "nothing" if violation.allowed is None else shown(violation.allowed)
    subject = f"{violation.attribute} {violation.key}" if violation.key else violation.attribute
    letters = f"with {{{violation.specifier}}}" if violation.specifier else "without a specifier"
    sentence = f"{given} is from the {breach.origin}; the class has {allowed} {letters}"
    return f"{path_of(violation.attribute, violation.key)} ({subject}): {sentence}."
