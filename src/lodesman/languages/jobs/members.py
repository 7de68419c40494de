"""The members of a parametric description: values, and filling placeholders.

`%s` is the member's value of `Parameters`, `%n` its number from 0, padded with zeros to the width of the count, `%j`
the job id, `%(FirstJob)s` that of the submission's first job (unless a sequence has that name), `%(X)s` its value of
`Parameters.X`, `%%` a percent sign; others stay. What a value brings in is not filled again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Iterable, Mapping
from decimal import Context, Decimal
from operator import itemgetter
from typing import Any, Final

from msgspec import Struct

from lodesman.base.errors import InvalidJob, InvalidRequest
from lodesman.languages.jobs.attributes import BY_SPELLING, TEXT_FIELDS, Attribute, invalid
from lodesman.languages.jobs.record import NO_POSITIONS, PositionMap, shown, text_of, tidy
from lodesman.languages.jobs.spec import JobSpec, ParametricMembers, ValueSequence
from lodesman.languages.jobs.values import Mistake

_MOST_VARYING_INPUTS: Final = 10_000
_MOST_PROGRAMS: Final = 10_000
_PLACEHOLDER = re.compile(r"%(?:([%snj])|\(([A-Za-z0-9_.-]{1,255})\)s)")
_DECIMAL = Context(prec=50, traps=[])
_FIRST_JOB: Final = "FirstJob"
JOB_TOKENS: Final = frozenset("jf")
"""Known only when a job has its number."""
_FIELD_NAMES = JobSpec.__struct_fields__

# A token names what is filled in: "s", "n", "j", "f" (the first job), or ":X" for the sequence X. With "=" before it the
# value keeps its type.
Member = Mapping[str, Any]
_Filler = Callable[[Member], Any]
# A member's number and job id -> what fills the token.
_Source = Callable[[int, int], Any]


def value_at(sequence: ValueSequence, index: int) -> Any:
    """The value of member `index` (from 0).

    Whole numbers follow DIRAC's rule exactly, in closed form (a factor other than 1, 0 and -1 leaves 64 bits within
    some 130 members). Fractions are decimals of 50 digits, rounded once: the third of 0.1, 0.2, ... is 0.3.
    """
    if sequence.values is not None:
        return sequence.values[index]
    start, step, factor = sequence.start, sequence.step, sequence.factor
    if isinstance(start, int) and isinstance(step, int) and isinstance(factor, int):
        if factor == 1:
            return start + index * step
        if start * factor + step == start:
            return start
        power: int = factor**index
        return start * power + step * (power - 1) // (factor - 1)
    if index == 0:
        return start
    first, add, times = (Decimal(repr(part)) for part in (start, step, factor))
    if times == 1:
        return float(_DECIMAL.add(first, _DECIMAL.multiply(add, Decimal(index))))
    growth = _DECIMAL.power(times, index)
    steps = _DECIMAL.divide(_DECIMAL.subtract(growth, Decimal(1)), _DECIMAL.subtract(times, Decimal(1)))
    return float(_DECIMAL.add(_DECIMAL.multiply(first, growth), _DECIMAL.multiply(add, steps)))


def has_placeholder(text: str) -> bool:
    """Whether a text of an array has anything to fill."""
    return _PLACEHOLDER.search(text) is not None


def is_numbered(members: ParametricMembers) -> bool:
    """Whether values of `Parameters` are whole numbers, which are the indexes then; else these count from 0."""
    listed = members.values
    parts = (members.start, members.step, members.factor) if listed is None else listed
    return members.unnamed and all(type(part) is int for part in parts)


class CompiledValue(Struct, frozen=True, kw_only=True):
    """A value with placeholders, and its tokens."""

    fill: _Filler
    tokens: frozenset[str]


def _no_member(index: int, count: int) -> InvalidRequest:
    return InvalidRequest(f"There is no member {index}; they are 0 to {count - 1}.", count=count)


class Scope:
    """Sequences that placeholders can name."""

    __slots__ = ("members", "width")

    def __init__(self, members: ParametricMembers) -> None:
        self.members = members
        self.width = len(str(members.count))

    def sequence(self, token: str) -> ValueSequence | None:
        """None for numbers of members and jobs."""
        token = token.removeprefix("=")
        if token == "s":
            return self.members
        return self.members.named[token[1:]] if token[0] == ":" else None

    def member(self, index: int, job_id: int, tokens: Iterable[str]) -> Member:
        """The values of the tokens for one member. Raises InvalidRequest if there is none."""
        if not 0 <= index < self.members.count:
            raise _no_member(index, self.members.count)
        return {token: self.source(token)(index, job_id) for token in tokens}

    def source(self, token: str) -> _Source:
        """What fills a token."""
        sequence = self.sequence(token)
        if sequence is None:
            width = self.width
            if token == "j":
                return lambda _index, job_id: str(job_id)
            if token == "f":
                return lambda index, job_id: str(job_id - index)
            return lambda index, _job_id: str(index).zfill(width)
        if token[0] == "=":
            return lambda index, _job_id: value_at(sequence, index)
        values = sequence.values
        if values is not None:
            return lambda index, _job_id: text_of(values[index])
        return lambda index, _job_id: text_of(value_at(sequence, index))

    def deferred(self, spec: JobSpec) -> list[tuple[Attribute, CompiledValue]]:
        """Deferred values with placeholders."""
        values = ((BY_SPELLING[name], raw) for name, raw in spec.deferred.items())
        compiled = ((attribute, self.compile_of(attribute, raw)) for attribute, raw in values)
        return [(attribute, value) for attribute, value in compiled if value]

    def compile_of(self, attribute: Attribute, value: Any) -> CompiledValue | None:
        """`compile` for an attribute."""
        return self.compile(value, keep_type=attribute.field == "requirements")

    def compile(self, value: Any, *, keep_type: bool = False, depth: int = 3) -> CompiledValue | None:
        """None without placeholders. Raises Mistake for an unknown sequence.

        `keep_type`: a text that is one placeholder and nothing else takes the parameter's own type.
        """
        if isinstance(value, str):
            return self._compile_text(value, keep_type=keep_type) if "%" in value else None
        if not depth or not isinstance(value, (list, tuple, dict)):
            return None
        items = value.values() if isinstance(value, dict) else value
        parts = [self.compile(item, keep_type=keep_type, depth=depth - 1) for item in items]
        used = [part for part in parts if part]
        if not used:
            return None
        fills = [part.fill if part else _constant(item) for part, item in zip(parts, items, strict=True)]
        tokens = frozenset[str]().union(*(part.tokens for part in used))
        if isinstance(value, dict):
            names = list(value)
            return CompiledValue(
                fill=lambda member: {name: fill(member) for name, fill in zip(names, fills, strict=True)},
                tokens=tokens,
            )
        kind = type(value)
        return CompiledValue(fill=lambda member: kind(fill(member) for fill in fills), tokens=tokens)

    def _compile_text(self, text: str, *, keep_type: bool) -> CompiledValue | None:
        tokens: set[str] = set()
        pieces: list[str] = []
        end = 0
        for match in _PLACEHOLDER.finditer(text):
            if match[1] == "s" and not self.members.unnamed:
                continue
            pieces.append(text[end : match.start()].replace("%", "%%"))
            end = match.end()
            if match[1] == "%":
                pieces.append("%%")
                continue
            token = match[1] or self._token_of(match[2])
            tokens.add(token)
            pieces.append(f"%({token})s")
        if not pieces:
            return None
        form = "".join(pieces) + text[end:].replace("%", "%%")
        if keep_type and tokens and form == f"%({token})s" and token not in "njf":
            return CompiledValue(fill=itemgetter(f"={token}"), tokens=frozenset({f"={token}"}))
        return CompiledValue(fill=form.__mod__, tokens=frozenset(tokens))

    def _token_of(self, name: str) -> str:
        if name == _FIRST_JOB and name not in self.members.named:
            return "f"
        if name not in self.members.named:
            names = ", ".join(f"%({shown(names)})s" for names in list(self.members.named)[:8])
            raise Mistake(f"has %({shown(name)})s, which no sequence stands for (known: {names or 'none'})")
        return f":{name}"


def read_filled(attribute: Attribute, value: Any, index: int, places: PositionMap) -> Any:
    """The filled value for member `index`. Raises InvalidJob."""
    try:
        return attribute.read(value)
    except Mistake as mistake:
        raise invalid(attribute.name, mistake, places, right=attribute.right, member=index) from None


def _constant(value: Any) -> _Filler:
    return lambda _member: value


class Template:
    """A spec with placeholders; `varies` is False if all members are alike."""

    __slots__ = ("_base", "_count", "_deferred", "_fills", "_sources", "_spec", "varies")

    def __init__(self, spec: JobSpec, members: ParametricMembers) -> None:
        scope = Scope(members)
        self._spec = spec
        compiled = {field: scope.compile(getattr(spec, field)) for field in TEXT_FIELDS}
        self._fills = [(field, value.fill) for field, value in compiled.items() if value]
        self._deferred = scope.deferred(spec)
        used = [value for value in compiled.values() if value] + [value for _, value in self._deferred]
        self._count = members.count
        tokens = frozenset[str]().union(*(value.tokens for value in used))
        self._sources = [(token, scope.source(token)) for token in tokens]
        self._base = {field: getattr(spec, field) for field in _FIELD_NAMES} | {"deferred": {}}
        self.varies = bool(used)

    def expand(self, index: int, job_id: int) -> JobSpec:
        """The job of member `index`. Raises InvalidJob for a wrong deferred value."""
        if not self.varies:
            return self._spec
        if not 0 <= index < self._count:
            raise _no_member(index, self._count)
        member = {token: source(index, job_id) for token, source in self._sources}
        changed = {field: fill(member) for field, fill in self._fills}
        for attribute, value in self._deferred:
            changed[attribute.field] = read_filled(attribute, value.fill(member), index, NO_POSITIONS)
        return JobSpec(**{**self._base, **changed})


def common_name(spec: JobSpec, members: ParametricMembers | None) -> str:
    """All members' name, its percent signs read; with placeholders as written."""
    compiled = None if members is None else Scope(members).compile(spec.name)
    return spec.name if compiled is None or compiled.tokens else str(compiled.fill({}))


def input_names(
    spec: JobSpec, members: ParametricMembers | None, runs: Iterable[tuple[int, int]] | None = None
) -> tuple[str, ...]:
    """The input files of all members, or of those in `runs` [start, stop), each once.

    Raises InvalidJob if the names vary and there are more than 10,000 members.
    """
    if members is None:
        return tuple(dict.fromkeys(spec.input_sandbox))
    scope = Scope(members)
    compiled = scope.compile(spec.input_sandbox)
    if compiled is None:
        return tuple(dict.fromkeys(spec.input_sandbox))
    if not compiled.tokens:
        return tuple(dict.fromkeys(compiled.fill({})))
    if members.count > _MOST_VARYING_INPUTS:
        raise InvalidJob(
            f"InputSandbox: its names vary and there are {members.count} members.",
            hint=f"At most {_MOST_VARYING_INPUTS} members can each have files of their own.",
            attribute="InputSandbox",
        )
    indexes = (index for start, stop in runs or ((0, members.count),) for index in range(start, stop))
    filled = (compiled.fill(scope.member(index, 0, compiled.tokens)) for index in indexes)
    return tuple(dict.fromkeys(name for names_of_one in filled for name in names_of_one))


def list_programs(spec: JobSpec, members: ParametricMembers | None) -> frozenset[str]:
    """What members (of more than 10,000 the first ones) execute, as paths below their directories."""
    return frozenset(tidy(name) for name in _programs(spec, members) if name)


def _programs(spec: JobSpec, members: ParametricMembers | None) -> Iterable[str]:
    compiled = None if members is None else Scope(members).compile(spec.executable)
    if members is None or compiled is None:
        return (spec.executable,)
    scope, several = Scope(members), range(min(members.count, _MOST_PROGRAMS))
    return dict.fromkeys(compiled.fill(scope.member(index, 0, compiled.tokens)) for index in several)


def check_program(spec: JobSpec, members: ParametricMembers | None) -> None:
    """Raise InvalidJob for a program that no node can have: a folder, or a path below the job's directory without a
    file there.

    Names without a folder may be commands of the node, and other paths on it are unknown.
    """
    names = [name for name in _programs(spec, members) if not name.startswith("/") or name.endswith("/")]
    if not names:
        return
    brought = {_place_on_node(name) for name in input_names(spec, members)}
    for name in names:
        problem, hint = _explain_misplaced(name, brought)
        if problem:
            message = f"Executable is {shown(name)}, and {problem}."
            raise InvalidJob(message, hint=hint, attribute="Executable")


def _place_on_node(path: str) -> str:
    """Where a file or folder (with its slash) of the InputSandbox lies."""
    return path.rstrip("/").rpartition("/")[2] + "/" * path.endswith("/")


def _explain_misplaced(name: str, brought: Container[str]) -> tuple[str, str]:
    """Why a program cannot be there, and what to do; '' if it can."""
    path, last = tidy(name), _place_on_node(tidy(name))
    top, *below = path.split("/")
    is_folder = path.endswith("/") or last in ("", ".", "..") or f"{path}/" in brought
    if is_folder:
        return "that is a folder", "Name the program in it, or a command of the node."
    if path in brought or "/" not in name or (f"{top}/" in brought and ".." not in below):
        return "", ""
    problem = "there is no such file in the job's directory"
    if last in brought:
        return problem, f"The files of an InputSandbox lie side by side there: write {shown(last)}."
    if name.startswith("~") or "$" in name:
        return problem, "No variable and no ~ is read in it: /bin/sh -c reads them, in Arguments."
    return (
        problem,
        f"Take it along (InputSandbox, --files {shlex.quote(name)}); a path on the node begins with /.",
    )
