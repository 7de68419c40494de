"""Reading parametric descriptions: the sequences, and what is filled for each member.

A text field keeps its placeholders. A field that decides where the job runs, and a number, cannot: the value waits in
`JobSpec.deferred` and is checked when it is filled, keys once per cohort, others here. `Arguments` as one text is
split as DIRAC does, after filling; once, if no value can change the split.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from lodesman.base.errors import InvalidJob, counted
from lodesman.languages.jobs.attributes import Attribute, invalid
from lodesman.languages.jobs.members import JOB_TOKENS, CompiledValue, Scope, value_at
from lodesman.languages.jobs.record import INT_MAX, INT_MIN, PositionMap, shown, text_of
from lodesman.languages.jobs.spec import ParametricMembers, ValueSequence
from lodesman.languages.jobs.values import Mistake, kind_of, whole
from lodesman.wire.jobs import Notice

_MAX_MEMBERS = 1_000_000
_MAX_NAMED = 100
_LABEL = re.compile(r"[a-z0-9_.-]*\Z")
_LARGEST = 1e100
_GLITE = "_PARAM_"
_STEPS = 200
_COUNT = whole(1, _MAX_MEMBERS)
_COUNT_RIGHT = f"a whole number from 1 to {_MAX_MEMBERS}, or a list with one value for each member"
_PARTS = {"parameterstart": "start", "parameterstep": "step", "parameterfactor": "factor"}
_BASES = ("parameters", *_PARTS)
_LONGEST_NUMBER = 25
# Values that change no split, leave no directory and need no check of their own, one a line; and values
# that can split a command line and cannot break it.
_UNQUOTED = re.compile(r"[ !#-&(-\[\]-~\n]*+\Z")
_HARMLESS = re.compile(r"(?:[A-Za-z0-9_+=:@-]++(?:[./][A-Za-z0-9_+=:@-]++)*+(?:\n|\Z))*+\Z")

# An attribute, its name as written, and its value.
WrittenAttribute = tuple[Attribute, str, Any]
# Lower-case name -> name as written, value.
Parameters = Mapping[str, tuple[str, Any]]


def read_members(parameters: Parameters, places: PositionMap) -> ParametricMembers:
    """Read what starts with `Parameter`. Raises InvalidJob."""
    if len(parameters) > 4 * _MAX_NAMED:
        name = next(iter(parameters.values()))[0]
        message = f"is one of {len(parameters)} attributes of parameters"
        raise invalid(name, message, places, right=f"at most {_MAX_NAMED} sequences")
    labels: dict[str, dict[str, tuple[str, Any]]] = {}
    for lower, (name, value) in parameters.items():
        base, dot, label = lower.partition(".")
        if not _LABEL.match(label) or (dot and not label):
            message = "names a sequence that no placeholder can name"
            raise invalid(name, message, places, right="a name of letters, digits, '_', '-' and '.'")
        labels.setdefault(label, {})[base] = name, value
    sequences = {label: _read_sequence(parts, places) for label, parts in labels.items()}
    count = _common_count(labels, places)
    named: dict[str, ValueSequence] = {}
    for label, sequence in sequences.items():
        name = next(labels[label][base][0] for base in _BASES if base in labels[label]).partition(".")[2]
        if sequence.values is None:
            _check_range(f"Parameters.{name}" if name else "Parameters", sequence, count, places)
        if name:
            named[name] = sequence
    plain = msgspec.structs.asdict(sequences.get("", ValueSequence()))
    return ParametricMembers(count=count, **plain, named=named, unnamed="parameters" in parameters)


def _read_sequence(parts: Mapping[str, tuple[str, Any]], places: PositionMap) -> ValueSequence:
    """By lower-case name, without the label."""
    name, value = parts.get("parameters", ("", None))
    numbers = {_PARTS[base]: number for base, number in parts.items() if base in _PARTS}
    if isinstance(value, list):
        for other, _value in numbers.values():
            message = f"stands beside the values that {shown(name)} lists"
            raise invalid(other, message, places, right="either a list or start, step and factor")
        if not value:
            raise invalid(name, "is an empty list", places, right=_COUNT_RIGHT)
        wrong = next((index for index, item in enumerate(value) if not _is_scalar(item)), None)
        if wrong is not None:
            message = f"has {kind_of(value[wrong])} as value {wrong}, which no parameter can have"
            raise invalid(name, message, places, right="texts, finite numbers of 64 bits or truth values")
        return ValueSequence(values=tuple(value))
    first = next(iter(parts.values()))[0]
    if not name and "." not in first:
        raise _without_count(first, places)
    read: dict[str, Any] = {part: _number(*number, places) for part, number in numbers.items()}
    return ValueSequence(**read)


def _without_count(name: str, places: PositionMap) -> InvalidJob:
    return invalid(name, "stands without Parameters", places, right="Parameters = the number of jobs")


def _is_scalar(value: Any) -> bool:
    if isinstance(value, int):
        return INT_MIN <= value <= INT_MAX
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _number(name: str, value: Any, places: PositionMap) -> int | float:
    number = value
    if isinstance(value, str):
        try:
            is_whole = value.strip().lstrip("+-").isdecimal() and len(value) < 20
            is_plain = (
                value.isascii() and "_" not in value
            )  # what Python reads besides is no number in a description
            number = (int(value) if is_whole else float(value)) if is_plain else None
        except ValueError:
            number = None
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise invalid(name, f"is {kind_of(value)}, not a number", places, right="a number")
    if not (INT_MIN <= number <= INT_MAX if isinstance(number, int) else abs(number) <= _LARGEST):
        message = "is too large"
        raise invalid(name, message, places, right="a whole number of 64 bits, or a fraction up to 1e100")
    return number


def _common_count(labels: Mapping[str, Mapping[str, tuple[str, Any]]], places: PositionMap) -> int:
    counts: dict[str, int] = {}
    for name, value in (parts["parameters"] for parts in labels.values() if "parameters" in parts):
        try:
            counts[name] = _COUNT(len(value) if isinstance(value, list) else value)
        except Mistake as mistake:
            raise invalid(name, mistake, places, right=_COUNT_RIGHT) from None
        first = next(iter(counts))
        if counts[name] != counts[first]:
            message = f"has {counted(counts[name], 'value')}, but {shown(first)} has {counts[first]}"
            raise invalid(name, message, places, right="sequences of one length")
    if not counts:
        raise _without_count(next(iter(next(iter(labels.values())).values()))[0], places)
    return next(iter(counts.values()))


def _check_range(name: str, sequence: ValueSequence, count: int, places: PositionMap) -> None:
    whole_numbers = all(isinstance(part, int) for part in (sequence.start, sequence.step, sequence.factor))
    # Of fractions, and with a factor of 1, the last value is the largest; with another, what has not left
    # 64 bits after 200 steps stands still or alternates.
    members = range(min(count, _STEPS)) if whole_numbers and sequence.factor != 1 else [count - 1]
    wrong = next((k for k in members if not _is_scalar(value_at(sequence, k))), None)
    if wrong is not None:
        message = f"leaves the range of numbers at member {wrong}"
        raise invalid(name, message, places, right="a smaller count, step or factor")


def split_fields(
    attributes: Mapping[str, WrittenAttribute], members: ParametricMembers, places: PositionMap
) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    """The fields of the template, and warnings. Raises InvalidJob."""
    splitter = _Splitter(members)
    for attribute, name, value in attributes.values():
        if _GLITE in str(value):
            message = f"has {_GLITE}, the placeholder of gLite"
            raise invalid(name, message, places, right="%s for the value, %n for the number from 0")
        try:
            splitter.add(attribute, value)
        except Mistake as mistake:
            data = {} if splitter.member is None else {"member": splitter.member}
            raise invalid(name, mistake, places, right=attribute.right, **data) from None
    if splitter.deferred:
        splitter.fields["deferred"] = splitter.deferred
    return splitter.fields, splitter.warnings(attributes, places)


class _ValueKind(NamedTuple):
    longest: int
    harmless: bool
    unquoted: bool


class _Splitter:
    def __init__(self, members: ParametricMembers) -> None:
        self.scope = Scope(members)
        self.fields: dict[str, Any] = {}
        self.deferred: dict[str, Any] = {}
        self.used: set[str] = set()
        self.member: int | None = None
        self._kinds: dict[str, _ValueKind] = {}

    def add(self, attribute: Attribute, value: Any) -> None:
        """Raises Mistake; `member` is then the member with the wrong value, if one is."""
        compiled = self.scope.compile_of(attribute, value)
        if compiled is None:
            self.fields[attribute.field] = attribute.read(value)
            return
        self.used |= {token.removeprefix("=") for token in compiled.tokens}
        of_job = next(
            (
                "%j" if job_token == "j" else "%(FirstJob)s"
                for job_token in sorted(JOB_TOKENS & compiled.tokens)
            ),
            "",
        )
        if attribute.field == "input_sandbox" and of_job:
            raise Mistake(f"has {of_job}, but a job has its number only after its files were uploaded")
        if attribute.use in ("key", "limit"):
            if of_job:
                raise Mistake(f"has {of_job}, but a job has its number only after this was checked")
            self.deferred[attribute.name] = value
            if attribute.use == "limit":
                self.check_each(attribute, compiled)
        elif attribute.use == "text":
            self.add_text(attribute, value, compiled)
        else:
            raise Mistake("has a placeholder, but is the same for all members")

    def add_text(self, attribute: Attribute, value: Any, compiled: CompiledValue) -> None:
        kinds = [self.kind_of_values(token) for token in compiled.tokens]
        harmless = all(kind.harmless for kind in kinds)
        # Unquoted values cannot make a name or a command line wrong, however they split it.
        unquoted = attribute.field in ("arguments", "name") and all(kind.unquoted for kind in kinds)
        if (harmless or unquoted) and attribute.field != "input_sandbox":
            lengths = zip(compiled.tokens, kinds, strict=True)
            attribute.read(compiled.fill({token: "x" * kind.longest for token, kind in lengths}))
        else:
            self.check_each(attribute, compiled)
        if attribute.field == "arguments" and isinstance(value, str) and not harmless:
            self.deferred[attribute.name] = value
        else:
            self.fields[attribute.field] = attribute.read(value)

    def kind_of_values(self, token: str) -> _ValueKind:
        kind = self._kinds.get(token)
        if kind is None:
            values = getattr(self.scope.sequence(token), "values", None)
            texts = [text_of(value) for value in values] if values else ["1"]
            # Joined, so that one match reads a million values.
            lines = "\n".join(texts)
            one_line_each = lines.count("\n") == len(texts) - 1
            kind = self._kinds[token] = _ValueKind(
                longest=max(map(len, texts)) if values else _LONGEST_NUMBER,
                harmless=one_line_each and "" not in texts and _HARMLESS.match(lines) is not None,
                unquoted=one_line_each and _UNQUOTED.match(lines) is not None,
            )
        return kind

    def check_each(self, attribute: Attribute, compiled: CompiledValue) -> None:
        for index in range(self.scope.members.count):
            self.member = index
            attribute.read(compiled.fill(self.scope.member(index, 10**12, compiled.tokens)))
        self.member = None

    def warnings(self, attributes: Mapping[str, WrittenAttribute], places: PositionMap) -> tuple[Notice, ...]:
        """Sequences that nothing uses, and `%s` without a meaning."""
        members = self.scope.members
        notices = [
            _notice(f"Parameters.{name}", f"%({name})s is used nowhere.", places)
            for name in members.named
            if f":{name}" not in self.used
        ]
        if not members.unnamed:
            scope = Scope(msgspec.structs.replace(members, unnamed=True))
            for _attribute, name, value in attributes.values():
                compiled = scope.compile(value)
                if compiled and "s" in compiled.tokens:
                    notices.append(_notice(name, "%s stays as it is: there is no plain Parameters.", places))
        return tuple(notices)


def _notice(attribute: str, message: str, places: PositionMap) -> Notice:
    return Notice(attribute, message, *places.get(attribute, (0, 0)))
