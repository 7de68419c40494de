"""Templates of parametric descriptions: what is filled per member, what must wait, what is checked when.

A text field (name, arguments, files, environment) keeps its placeholders in place. A field that decides
where the job runs, and a number, cannot: the value as written waits in `JobSpec.deferred` and is checked
when it is filled, for keys once per cohort (`cohorts`), for the rest here, before anything is stored.

`Arguments` written as one text is split as DIRAC does, after filling. If no value can change the split (no
blanks, quotes, backslashes, nothing empty), it is split once; else the text waits in `deferred` too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lodesman.jobs.attributes import BY_SPELLING, KEY_FIELDS, Attribute
from lodesman.jobs.faults import NO_POSITIONS, PositionMap, invalid
from lodesman.jobs.placeholders import Compiled, Scope, no_member, text_of, tokens_in
from lodesman.jobs.spec import JobSpec, Notice, ParametricMembers
from lodesman.jobs.values import Mistake

TEXT_FIELDS = (
    "executable",
    "arguments",
    "name",
    "std_input",
    "std_output",
    "std_error",
    "input_sandbox",
    "output_sandbox",
    "environment",
)
LONGEST_NUMBER = 25
_FIELD_NAMES = JobSpec.__struct_fields__
# Values that change no split, leave no directory and need no check of their own, one a line; and values
# that can split a command line and cannot break it.
_UNQUOTED = re.compile(r"[ !#-&(-\[\]-~\n]*+\Z")
_HARMLESS = re.compile(r"(?:[A-Za-z0-9_+=:@-]++(?:[./][A-Za-z0-9_+=:@-]++)*+(?:\n|\Z))*+\Z")

Given = tuple[Attribute, str, Any]


class Template:
    """One spec with placeholders, made ready; `expand` fills it for a member.

    `varies` is False if all members are alike: then `expand` gives the spec itself.
    """

    __slots__ = ("_base", "_count", "_deferred", "_fills", "_sources", "_spec", "varies")

    def __init__(self, spec: JobSpec, members: ParametricMembers) -> None:
        scope = Scope(members)
        self._spec = spec
        compiled = {field: scope.compile(getattr(spec, field)) for field in TEXT_FIELDS}
        self._fills = [(field, value.fill) for field, value in compiled.items() if value]
        self._deferred: list[tuple[Attribute, Compiled]] = []
        for name, raw in spec.deferred.items():
            attribute = BY_SPELLING[name]
            value = scope.compile(raw, keep_type=attribute.field == "requirements")
            self._deferred += [(attribute, value)] if value else []
        used = [value for value in compiled.values() if value] + [value for _, value in self._deferred]
        self._count = members.count
        self._sources = scope.sources(frozenset[str]().union(*(value.tokens for value in used)))
        self._base = {field: getattr(spec, field) for field in _FIELD_NAMES} | {"deferred": {}}
        self.varies = bool(used)

    def expand(self, index: int, job_id: int) -> JobSpec:
        """The job of member `index`. Raises InvalidJob if a deferred value turns out wrong."""
        if not self.varies:
            return self._spec
        if not 0 <= index < self._count:
            raise no_member(index, self._count)
        member = {token: source(index, job_id) for token, source in self._sources}
        changed = {field: fill(member) for field, fill in self._fills}
        for attribute, value in self._deferred:
            try:
                changed[attribute.field] = attribute.read(value.fill(member))
            except Mistake as mistake:
                raise invalid(
                    attribute.name, mistake, NO_POSITIONS, right=attribute.right, member=index
                ) from None
        return JobSpec(**{**self._base, **changed})


def expand(spec: JobSpec, members: ParametricMembers | None, index: int, job_id: int) -> JobSpec:
    """The job of one member; a single job (`members` None) is its own spec, percent signs and all.

    For many members of one template keep a `Template`. Raises InvalidRequest if there is no such member.
    """
    return spec if members is None else Template(spec, members).expand(index, job_id)


def needs_expansion(spec: JobSpec, members: ParametricMembers | None) -> bool:
    """Whether the members of this template differ from each other or from the template."""
    return members is not None and Template(spec, members).varies


def varying_key_fields(spec: JobSpec) -> set[str]:
    """The fields that decide where a job runs and whose value is another for each member."""
    varying = set()
    for name, raw in spec.deferred.items():
        field = BY_SPELLING[name].field
        if field in KEY_FIELDS and tokens_in(raw):
            varying.add(field)
    return varying


def split_fields(
    given: Mapping[str, Given], members: ParametricMembers, places: PositionMap
) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    """The fields of the template of a parametric description, and warnings. Raises InvalidJob."""
    splitter = _Splitter(members)
    for attribute, name, value in given.values():
        try:
            splitter.add(attribute, value)
        except Mistake as mistake:
            data = {} if splitter.member is None else {"member": splitter.member}
            raise invalid(name, mistake, places, right=attribute.right, **data) from None
    if splitter.deferred:
        splitter.fields["deferred"] = splitter.deferred
    return splitter.fields, splitter.warnings(given, places)


class _Splitter:
    """Sorts the attributes of one description into fields and deferred values."""

    def __init__(self, members: ParametricMembers) -> None:
        self.scope = Scope(members)
        self.fields: dict[str, Any] = {}
        self.deferred: dict[str, Any] = {}
        self.used: set[str] = set()
        self.member: int | None = None
        self._kinds: dict[str, tuple[int, bool, bool]] = {}

    def add(self, attribute: Attribute, value: Any) -> None:
        """Read one attribute. Raises Mistake; `member` then tells whose value was wrong, if one's was."""
        compiled = self.scope.compile(value, keep_type=attribute.field == "requirements")
        if compiled is None:
            self.fields[attribute.field] = attribute.read(value)
            return
        self.used |= {token.removeprefix("=") for token in compiled.tokens}
        if attribute.field == "input_sandbox" and "j" in compiled.tokens:
            raise Mistake("has %j, but a job has its number only after its files were uploaded")
        if attribute.key or attribute.typed:
            if "j" in compiled.tokens:
                raise Mistake("has %j, but a job has its number only after this was checked")
            self.deferred[attribute.name] = value
            if not attribute.key:
                self.check_each(attribute, compiled)
        elif attribute.field in TEXT_FIELDS:
            self.add_text(attribute, value, compiled)
        else:
            raise Mistake("has a placeholder, but is the same for all members")

    def add_text(self, attribute: Attribute, value: Any, compiled: Compiled) -> None:
        kinds = [self.kind_of_values(token) for token in compiled.tokens]
        harmless = all(kind[1] for kind in kinds)
        # Unquoted values cannot make a name or a command line wrong, however they split it.
        unquoted = attribute.field in ("arguments", "name") and all(kind[2] for kind in kinds)
        if (harmless or unquoted) and attribute.field != "input_sandbox":
            lengths = zip(compiled.tokens, kinds, strict=True)
            attribute.read(compiled.fill({token: "x" * kind[0] for token, kind in lengths}))
        else:
            self.check_each(attribute, compiled)
        if attribute.field == "arguments" and isinstance(value, str) and not harmless:
            self.deferred[attribute.name] = value
        else:
            self.fields[attribute.field] = attribute.read(value)

    def kind_of_values(self, token: str) -> tuple[int, bool, bool]:
        """Length of the longest value of a token, whether all are harmless, whether all are unquoted."""
        if token not in self._kinds:
            self._kinds[token] = self._look_at(token)
        return self._kinds[token]

    def _look_at(self, token: str) -> tuple[int, bool, bool]:
        sequence = self.scope.sequence(token)
        if sequence is None or sequence.values is None:
            return LONGEST_NUMBER, True, True
        texts = [text_of(value) for value in sequence.values]
        # Joined, so that one match looks at a million values.
        lines = "\n".join(texts)
        one_line_each = lines.count("\n") == len(texts) - 1
        harmless = one_line_each and "" not in texts and _HARMLESS.match(lines) is not None
        unquoted = one_line_each and _UNQUOTED.match(lines) is not None
        return max(map(len, texts)), harmless, unquoted

    def check_each(self, attribute: Attribute, compiled: Compiled) -> None:
        for index in range(self.scope.members.count):
            self.member = index
            attribute.read(compiled.fill(self.scope.member(index, 10**12, compiled.tokens)))
        self.member = None

    def warnings(self, given: Mapping[str, Given], places: PositionMap) -> tuple[Notice, ...]:
        """Sequences that nothing uses, and `%s` that stands for nothing."""
        members = self.scope.members
        notices = [
            _notice(f"Parameters.{name}", f"%({name})s is used nowhere.", places)
            for name in members.named
            if f":{name}" not in self.used
        ]
        if not members.unnamed:
            for _attribute, name, value in given.values():
                if "s" in tokens_in(value):
                    notices.append(_notice(name, "%s stays as it is: there is no plain Parameters.", places))
        return tuple(notices)


def _notice(attribute: str, message: str, places: PositionMap) -> Notice:
    line, column = places.get(attribute, (0, 0))
    return Notice(attribute=attribute, message=message, line=line, column=column)
