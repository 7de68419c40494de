"""What a submission with a job class, or before a verifier of the server (JSV), is to be: the six steps of Grid Engine.

    1 an empty job      2 system defaults      3 the values of the class      4 what the record says
    5 the server JSV may change all of it; if it changes the class, all begins again      6 access specifiers

A pure machine: a generator that asks its caller for the JSV's word. It works on records, before this program fills in its
own defaults, which could not be separated from the user's words.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field

from lodesman.decide.submission.native import SaidRecord, free_memory, with_free_memory
from lodesman.decide.submission.native_table import BY_USER, FILES, FREE_MEMORY, HOLD, MEMORY, path_of
from lodesman.decide.submission.native_texts import (
    Path,
    canonical,
    canonical_snapshot,
    changed_paths,
    flat,
    key_names,
)
from lodesman.decide.submission.prepared_classes import GivenValues, give_values
from lodesman.decide.submission.resolution import (
    Breach,
    JsvView,
    Origin,
    ResolvedRecord,
    SubmissionRefusal,
    ValueSource,
)
from lodesman.decide.submission.shapes import shape_of
from lodesman.languages.gridengine.complexes import STOCK_COMPLEXES, Complexes
from lodesman.languages.gridengine.values import UnreadableValue
from lodesman.languages.jobclass import (
    ClassRefusal,
    ClassSnapshot,
    Give,
    JobValues,
    Violation,
    check,
    choose_class,
    entries_of,
    merge,
    refusal_sentence,
)
from lodesman.languages.jobclass.access import Deed
from lodesman.languages.jobclass.request import RequestChange
from lodesman.languages.jobclass.rights import RefusalReason, split_name
from lodesman.languages.jobclass.specifiers import ClassList
from lodesman.languages.jobs.attributes import BY_SPELLING, by_name
from lodesman.languages.jobs.record import Record, shown
from lodesman.wire.jobs import Notice

_MOST_RESTARTS: Final = 10
_ORDER: Final = {step: place for place, step in enumerate(ValueSource)}
_NO_CLASS: Final = "NONE"
_OF_CLASSES: Final = frozenset(
    spelling.lower()
    for spelling, attribute in BY_SPELLING.items()
    if attribute.name in {"JobClass", "Variant"}
)
_JC: Final = "jc"
_NAME: Final = "N"

# `class` or `class.variant` -> what its jobs get, or why this user cannot have it
Derive = Callable[[str], ClassSnapshot | ClassRefusal]
# what it gives to jobs, with the defaults
GiveValues = Callable[[ClassSnapshot | None], GivenValues]


class SubmissionRules(Struct, frozen=True, kw_only=True):
    """Rules for each submission."""

    default_jc: str = ""
    enforce_jc: bool = False
    defaults: JobValues = field(default_factory=dict)  # of the system
    jsv: str = ""  # its name, "" without one
    complexes: Complexes = STOCK_COMPLEXES


class DraftRecord(Struct, frozen=True, kw_only=True):
    """A submission from the client."""

    record: Record
    edits: Sequence[RequestChange] = ()  # of its lists (-adds, -mods, -clears, -clearp)
    # who wrote an attribute of Grid Engine (or `l_hard h_rt`, an entry of its list) last
    client_jsv: Mapping[str, str] = field(default_factory=dict)
    usual_name: bool = False  # its JobName counts as a default
    hold: bool = False  # its user has it Held


Resolution = Generator[JsvView, JsvView, ResolvedRecord | SubmissionRefusal]


def resolve(
    draft: DraftRecord, rules: SubmissionRules, derive: Derive, give: GiveValues | None = None
) -> Resolution:
    """Yields what the server JSV must see, and is sent its answer. Without class, system defaults and JSV the record
    comes back as it is. `give`: keeps what it worked out; None: nothing is kept.
    """
    job_class, variant = asked_class(draft.record), class_of(draft.record)[1]
    if variant and split_name(job_class)[1] != variant:
        reason = f"{shown(job_class)} is another variant" if job_class else "there is no JobClass"
        return SubmissionRefusal(sentence=f"Variant {shown(variant)}: {reason}", attribute="Variant")
    chosen = choose_class(job_class, rules.default_jc, enforce_jc=rules.enforce_jc)
    if isinstance(chosen, str) or job_class or draft.edits or draft.client_jsv or rules.defaults or rules.jsv:
        give = give or partial(give_values, defaults=rules.defaults, complexes=rules.complexes)
        is_plain = not (draft.edits or draft.client_jsv or draft.usual_name or draft.hold or rules.jsv)
        if not is_plain or not isinstance(chosen, str):
            return (yield from _Steps(draft, rules, derive, give).run(chosen, asked=bool(job_class)))
        snapshot = derive(chosen)
        if isinstance(snapshot, ClassRefusal):
            return _refused(snapshot, by_default=not job_class)
        return (yield from _by_shape(draft, rules, chosen, snapshot, give(snapshot)))
    if isinstance(chosen, ClassRefusal):
        return _refused(chosen)
    return ResolvedRecord(record=draft.record)


def _by_shape(
    draft: DraftRecord, rules: SubmissionRules, chosen: str, snapshot: ClassSnapshot, given: GivenValues
) -> Resolution:
    """What came of another record of this shape, or else of the steps."""
    shape = shape_of(draft.record)
    plan = given.shapes.get(shape)
    if plan is not None and (found := plan.resolve(draft.record)) is not None:
        return found
    steps = _Steps(draft, rules, lambda _: snapshot, lambda _: given)
    result = yield from steps.run(chosen, asked=bool(asked_class(draft.record)))
    if isinstance(result, ResolvedRecord):
        given.keep_shape(shape, draft.record, result)
    return result


class _Steps:
    def __init__(self, draft: DraftRecord, rules: SubmissionRules, derive: Derive, give: GiveValues) -> None:
        self.draft = draft
        self.rules = rules
        self.derive = derive
        self.give = give
        self.record = SaidRecord(draft.record, rules.complexes)
        self.notices = self.record.notices
        self.writers: dict[Path, Origin] = {}
        self.said: dict[str, str | None] = {}  # requests of the record itself
        self.runs = 0

    def run(self, chosen: str | ClassRefusal | None, *, asked: bool) -> Resolution:
        chain: list[str] = []
        by_user = self._origin((_JC, None), ValueSource.COMMAND_LINE)
        origin = by_user if asked else Origin(step=ValueSource.DEFAULT)
        while True:
            snapshot = self.derive(chosen) if isinstance(chosen, str) else chosen
            if isinstance(snapshot, ClassRefusal):
                by_default = chosen == self.rules.default_jc and not (asked or chain)
                return _refused(snapshot, chain, self.runs, by_default=by_default)
            name = snapshot.name if snapshot else _NO_CLASS
            if name in chain or len(chain) > _MOST_RESTARTS:
                steps = " -> ".join([*chain, name])
                sentence = f"JSV keeps changing the job class: {steps}"
                return SubmissionRefusal(
                    sentence=sentence, chain=(*chain, name), jsv_runs=self.runs, jsv=self.rules.jsv
                )
            chain.append(name)
            given = self.give(snapshot)
            values = self._filled(given)
            if isinstance(values, SubmissionRefusal) or not self.rules.jsv:
                break
            answer = yield JsvView(values=values, job_class=chosen if isinstance(chosen, str) else "")
            self.runs += 1
            if answer.rejected is not None:
                return SubmissionRefusal(sentence=answer.rejected, jsv_runs=self.runs, jsv=self.rules.jsv)
            if full_name(answer.job_class) == name:
                values = self._changed(values, answer.values)
                break
            # default_jc counts only for what the user left open.
            chosen = choose_class(answer.job_class or _NO_CLASS, "", enforce_jc=self.rules.enforce_jc)
            origin = Origin(step=ValueSource.SERVER_JSV, script=self.rules.jsv)
        return values if isinstance(values, SubmissionRefusal) else self._end(given, values, origin)

    def _canonical(self, values: JobValues) -> JobValues:
        texts, notices = canonical(values, self.rules.complexes)
        self.notices += notices
        return texts

    def _filled(self, given: GivenValues) -> JobValues | SubmissionRefusal:
        """Steps 1 to 4."""
        self.notices += given.notices
        values, self.writers = dict(given.defaults), dict(given.default_writers)
        own_name = self.record.values.get(_NAME)
        if self.draft.usual_name and own_name:
            values.setdefault(_NAME, own_name)
            self._write([(_NAME, None)], ValueSource.DEFAULT)
        values |= given.values
        self.writers |= given.writers
        own = dict(self.record.beside(values.get("pe_range")))
        if self.draft.usual_name:
            own.pop(_NAME, None)
        if self.draft.hold:
            own.setdefault(HOLD, BY_USER)
        self.said = entries_of("l_hard", own.get("l_hard"))
        # A job has one of these files: the user's comes instead.
        start = {name: value for name, value in values.items() if name not in FILES or name not in own}
        keys = key_names(self.rules.complexes)
        merged = merge(start, [Give(attribute=name, value=one) for name, one in own.items()], keys)
        self._write(flat(own), ValueSource.COMMAND_LINE)
        if not self.draft.edits:
            return merged.values
        edited = merge(merged.values, self.draft.edits, keys)
        if edited.faults:
            return SubmissionRefusal(sentence=" ".join(map(str, edited.faults)), jsv_runs=self.runs)
        texts = self._canonical(edited.values)
        self._write(changed_paths(merged.values, texts), ValueSource.COMMAND_LINE)
        return texts

    def _changed(self, before: JobValues, given: JobValues) -> JobValues | SubmissionRefusal:
        """Step 5."""
        try:
            after = self._canonical(given)
        except UnreadableValue as wrong:
            sentence = f"JSV {self.rules.jsv} sets a value that cannot be read: {wrong}"
            return SubmissionRefusal(sentence=sentence, jsv_runs=self.runs)
        self._write(changed_paths(before, after), ValueSource.SERVER_JSV)
        return after

    def _write(self, paths: Iterable[Path], step: ValueSource) -> None:
        if step is ValueSource.COMMAND_LINE and self.draft.client_jsv:
            self.writers |= {path: self._origin(path, step) for path in paths}
        else:
            self.writers |= dict.fromkeys(paths, self._origin((_JC, None), step))

    def _origin(self, path: Path, step: ValueSource) -> Origin:
        if step is ValueSource.COMMAND_LINE and self.draft.client_jsv:
            by_entry = self.draft.client_jsv.get(" ".join(filter(None, path)), "")
            client = by_entry or self.draft.client_jsv.get(path[0], "")
            step = ValueSource.CLIENT_JSV if client else step
            return Origin(step=step, script=client)
        return Origin(step=step, script=self.rules.jsv if step is ValueSource.SERVER_JSV else "")

    def _end(
        self, given: GivenValues, values: JobValues, of_class: Origin
    ) -> ResolvedRecord | SubmissionRefusal:
        """Step 6, and the record."""
        usual, snapshot = Origin(step=ValueSource.COMMAND_LINE), given.snapshot
        violated = _violations(given.held, values, self.rules.complexes) if given.held else ()
        breaches = tuple(
            Breach(violation=violation, origin=self.writers.get((violation.attribute, violation.key), usual))
            for violation in violated
        )
        # What the system gives to every job is no deed of this one.
        breaches = tuple(
            breach
            for breach in breaches
            if breach.origin.step is not ValueSource.DEFAULT
            or breach.violation.deed not in (Deed.ADDED, Deed.SET)
        )
        if snapshot and breaches:
            return access_refusal(snapshot, breaches, self.runs)
        record, notices = self.record.changed(values)
        origins = {path_of(*path): self.writers[path] for path in self._by_step(values)}
        free = self._free_memory(values)
        if free and (wider := with_free_memory(record, values, free, self.rules.complexes)) is not record:
            record = wider
            origins["Memory"] = self.writers["l_hard", free[0]]
        record = _of_snapshot(record, snapshot)
        if snapshot:
            origins |= dict.fromkeys(("JobClass", "Variant"), of_class)
        return ResolvedRecord(
            record=record,
            snapshot=snapshot,
            notices=tuple(dict.fromkeys((*self.notices, *notices, *self._of_empty(values)))),
            origins=origins,
            jsv_runs=self.runs,
        )

    def _free_memory(self, values: JobValues) -> list[str]:
        return [
            name
            for name, text in entries_of("l_hard", values.get("l_hard")).items()
            if name in FREE_MEMORY
            and (
                self.said.get(name) != text
                or self.writers["l_hard", name].step is not ValueSource.COMMAND_LINE
            )
        ]

    def _of_empty(self, values: JobValues) -> Iterator[Notice]:
        """Who wrote an empty value may have meant to remove what the class says."""
        for name, value in self.draft.record.items():
            attribute = by_name(name) if value in ("", [], {}) else None
            for path in flat(values) if attribute else ():
                here = path_of(*path).partition(".")[0]
                if attribute and here == attribute.name and self.writers[path].step is ValueSource.CLASS:
                    words = f"it is empty, and the job has what its class says; to remove that: --clearp {path[0]}"
                    yield Notice(here, f"{here}: {words}.")

    def _by_step(self, values: JobValues) -> list[Path]:
        """Of several that are one attribute here, the last writer's comes last."""
        return sorted(flat(values), key=lambda path: _ORDER[self.writers[path].step])


def violations(
    snapshot: ClassSnapshot | None, values: JobValues, complexes: Complexes
) -> tuple[Violation, ...]:
    """What a class does not allow, but for a limit of memory that only repeats its free memory."""
    return _violations(canonical_snapshot(snapshot, complexes), values, complexes) if snapshot else ()


def _violations(held: ClassSnapshot, values: JobValues, complexes: Complexes) -> tuple[Violation, ...]:
    """The same of a class with canonical values."""
    requests = entries_of("l_hard", values.get("l_hard"))
    if MEMORY in requests and requests[MEMORY] == free_memory(requests, FREE_MEMORY):
        of_class = held.attributes.get("l_hard")
        named = {entry.key for entry in of_class.entries or ()} if isinstance(of_class, ClassList) else set()
        if MEMORY not in named:
            values = {**values, "l_hard": {key: text for key, text in requests.items() if key != MEMORY}}
    return check(held, values, key_names(complexes))


def access_refusal(
    snapshot: ClassSnapshot, breaches: Sequence[Breach], runs: int = 0, asked: str = "run job"
) -> SubmissionRefusal:
    """A refusal with all breaches."""
    first = breaches[0].violation
    path = path_of(first.attribute, first.key)
    return SubmissionRefusal(
        sentence=refusal_sentence(snapshot, [breach.violation for breach in breaches]),
        breaches=tuple(breaches),
        jsv_runs=runs,
        asked=asked,
        attribute=path if path.startswith("Requirements.") else path.partition(".")[0],  # it has a position
    )


def _refused(
    no: ClassRefusal, chain: Sequence[str] = (), runs: int = 0, *, by_default: bool = False
) -> SubmissionRefusal:
    more = " It is the default_jc of the server; name another one with --class." if by_default else ""
    return SubmissionRefusal(
        sentence=f"{no.sentence}{more}",
        chain=tuple(chain),
        jsv_runs=runs,
        attribute="JobClass",
        forbidden=no.reason is RefusalReason.NOT_ALLOWED,
    )


# --- parts ----------------------------------------------------------------------------------------


def names_class(record: Record) -> bool:
    """Whether it has JobClass or Variant."""
    return not _OF_CLASSES.isdisjoint(map(str.lower, record))


def asked_class(record: Record) -> str:
    """The class that a description asks for, with its variant."""
    job_class, variant = class_of(record)
    return f"{job_class}.{variant}" if variant and job_class and "." not in job_class else job_class


def class_of(record: Record) -> tuple[str, str]:
    """JobClass and Variant as written, if they are texts."""
    names = {"JobClass": "", "Variant": ""}
    for name, value in record.items():
        attribute = by_name(name) if name[:1] in "jJvV" else None
        if attribute and attribute.name in names and isinstance(value, str):
            names[attribute.name] = value
    return names["JobClass"], names["Variant"]


def full_name(name: str) -> str:
    """`class.variant` of what was asked for."""
    return ".".join(split_name(name)) if name and name.upper() != _NO_CLASS else _NO_CLASS


def _of_snapshot(record: Record, snapshot: ClassSnapshot | None) -> Record:
    return with_class(record, snapshot.job_class if snapshot else "", snapshot.variant if snapshot else "")


def with_class(record: Record, job_class: str, variant: str = "") -> Record:
    """With this class and variant."""
    names = {name: text for name, text in (("JobClass", job_class), ("Variant", variant)) if text}
    if class_of(record) == ("", "") and not names:
        return record
    kept = {
        name: value
        for name, value in record.items()
        if not (attribute := by_name(name)) or attribute.name not in ("JobClass", "Variant")
    }
    return kept | names
