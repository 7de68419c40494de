"""What a text of job classes would change, and what speaks against it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.base.errors import (
    Conflict,
    Forbidden,
    InvalidConfig,
    InvalidRequest,
    LodesmanError,
    NotFound,
    SyntaxFault,
)
from lodesman.languages.gridengine.values import class_name_problem
from lodesman.languages.jobclass.access import VerdictCache, Violation, check_template, count_comparisons
from lodesman.languages.jobclass.attributes import BOOLEAN_DEFAULTS, JobValue, entries_of, kind_of, truth
from lodesman.languages.jobclass.classes import REQUESTS, Classes
from lodesman.languages.jobclass.language import (
    ClassPiece,
    ClassText,
    check_size,
    read_class,
    split_classes,
    write_class,
)
from lodesman.languages.jobclass.model import DEFAULT_VARIANT, TEMPLATE, JobClass, new_class
from lodesman.languages.jobclass.rights import (
    ClassRefusal,
    RefusalReason,
    first_of,
    no_class,
    refuse_edit,
    refuse_name,
)
from lodesman.languages.jobclass.specifiers import job_value, length_of, size_of
from lodesman.languages.jobs.record import shown

EditMode = Literal["add", "change", "either"]
Problem = Callable[[str, JobValue], str]
"""(attribute, value) -> why no job can have it; "" if jobs can. An entry of a list of requests is a value of its own."""

_MOST_CLASSES = 1_000
MOST_NAMES = 500
"""For each of `owner`, `user_lists` and `xuser_lists`. Stored classes may have more, until they are changed."""
_LONGEST_NAME = 255
_LISTS = ("user_lists", "xuser_lists")
_MAX_FAULTS = 100
_MAX_NOTICES = 100
_MOST_LISTED = 20
_MOST_GIVEN = 1 << 16
_MOST_ENTRIES = 100_000
_MOST_COMPARED = 300_000
_KINDS: Mapping[RefusalReason, Callable[..., LodesmanError]] = {
    RefusalReason.NAME: InvalidRequest,
    RefusalReason.UNKNOWN: NotFound,
    RefusalReason.NOT_ALLOWED: Forbidden,
    RefusalReason.NOT_OWNER: Forbidden,
    RefusalReason.NO_CLASS: InvalidRequest,
}


class Author(Struct, frozen=True, kw_only=True):
    """Who changes classes; managers may change all of them."""

    name: str
    is_manager: bool = False

    @property
    def owner(self) -> tuple[str, ...]:
        """The author as an owner; NONE cannot be one."""
        return (self.name,) if self.name != "NONE" else ()


class ClassNotice(Struct, frozen=True, kw_only=True):
    """What is odd in a class, but allowed."""

    job_class: str
    attribute: str  # "": it is about the whole class.
    message: str
    line: int


class ClassEdit(Struct, frozen=True, kw_only=True):
    """A text's changes, or else faults."""

    after: Classes  # All classes as they would be.
    changed: Mapping[str, JobClass] = field(default_factory=dict)  # The classes of the text.
    texts: Mapping[str, str] = field(default_factory=dict)  # Their canonical texts.
    faults: tuple[LodesmanError, ...] = ()
    notices: tuple[ClassNotice, ...] = ()


def error_of(refusal: ClassRefusal, *, line: int = 0, **data: object) -> LodesmanError:
    """`line`: of a text, 0 for none."""
    place = _at(line, refusal.sentence) if line else {"message": refusal.sentence}
    return _KINDS.get(refusal.reason, Conflict)(reason=refusal.reason.value, **place, **data)


def _at(line: int, words: str) -> dict[str, Any]:
    return {"message": f"line {line}, column 1: {words}", "line": line, "column": 1}


def one_error(faults: Sequence[LodesmanError]) -> LodesmanError:
    """All in the data of one: of their kind if they share one, else InvalidConfig."""
    kinds = {type(fault) for fault in faults}
    kind = kinds.pop() if len(kinds) == 1 else InvalidConfig
    first = str(faults[0])
    many = f"There are {len(faults)} faults, first: {first}"
    return (InvalidConfig if kind is SyntaxFault else kind)(
        first if len(faults) == 1 else many,
        hint="Nothing was changed.",
        faults=[fault.as_dict() for fault in faults],
    )


def edit_classes(
    before: Classes, text: str, by: Author, how: EditMode, *, groups: Collection[str] = (),
    meaningless: Mapping[str, str] | None = None, problem: Problem | None = None,
) -> ClassEdit:  # fmt: skip
    """What a text with classes would change. Raises TooLarge.

    `either`: existing classes change, others are new. `groups`: those known of accounts. `meaningless`: attributes
    without a meaning here, each with a remark. `problem`: what is wrong with a value, in whole sentences.
    """
    reading = _Reading(before, by, how)
    pieces = split_classes(text)
    for piece in pieces[:_MOST_CLASSES]:
        reading.read(piece)
    if len(pieces) > _MOST_CLASSES:
        words, line = f"a text has at most {_MOST_CLASSES} classes.", pieces[_MOST_CLASSES].line
        reading.faults.append(InvalidConfig(**_at(line, words)))
    changed = {name: job_class for name, (job_class, _) in reading.found.items()}
    if too_much := _too_much_work(before, reading.found):
        return ClassEdit(after=before, faults=(too_much,))
    after = before.with_changes(changed)
    for name, (job_class, lines) in reading.found.items():
        reading.faults += _against_template(after, job_class, lines)
        reading.faults += _too_large(job_class, lines)
        reading.faults += _wrong_values(job_class, lines, problem) if problem else ()
        reading.notices += _without_meaning(job_class, lines, meaningless or {})
        reading.notices += _unknown_lists(job_class, lines, {*before.vocabulary.user_lists, *groups})
        if name == TEMPLATE:
            reading.notices += islice(_new_conflicts(before, after, changed, lines["jcname"]), _MAX_NOTICES)
    faults = tuple(sorted(reading.faults, key=lambda fault: int(fault.data["line"])))[:_MAX_FAULTS]
    notices = tuple(reading.notices[:_MAX_NOTICES])
    if faults:
        return ClassEdit(after=before, faults=faults, notices=notices)
    texts = {name: write_class(job_class) for name, job_class in changed.items()}
    for written in texts.values():
        check_size(written)
    return ClassEdit(after=after, changed=changed, texts=texts, notices=notices)


class _Reading:
    def __init__(self, before: Classes, by: Author, how: EditMode) -> None:
        self.before, self.by, self.how = before, by, how
        self.found: dict[str, tuple[JobClass, Mapping[str, int]]] = {}
        self.faults: list[LodesmanError] = []
        self.notices: list[ClassNotice] = []
        self._first: dict[str, int] = {}

    def read(self, piece: ClassPiece) -> None:
        present = self.before.by_name.get(piece.name)
        class_text = read_class(
            piece.text,
            template=self._start(present, piece.name),
            canonical=self.before.canonical,
            first_line=piece.line,
        )
        self.faults += class_text.faults
        line = class_text.lines.get("jcname", piece.line)
        refusal = self._refuse(piece.name, present)
        if refusal is not None:
            self.faults.append(error_of(refusal, line=line, job_class=piece.name))
        if piece.name in self._first:
            words = f'The class "{shown(piece.name)}" stands at line {self._first[piece.name]} already.'
            self.faults.append(InvalidConfig(**_at(line, words), job_class=piece.name))
        self._first.setdefault(piece.name, line)
        self._take(class_text, present)

    def _take(self, class_text: ClassText, present: JobClass | None) -> None:
        job_class = class_text.job_class
        if job_class is None:
            return
        self.notices += [
            ClassNotice(
                job_class=job_class.name, attribute=notice.attribute, message=notice.message, line=notice.line
            )
            for notice in class_text.notices
        ]
        if present is None and not self.by.is_manager and self.by.name not in job_class.owner:
            job_class = replace(job_class, owner=(*self.by.owner, *job_class.owner))
        job_class = replace(job_class, revision=1) if present is None else present.revised(job_class)
        if faults := [
            *_too_many_names(job_class, class_text.lines),
            *_too_many_entries(job_class, self.before.template, class_text.lines),
        ]:
            self.faults += faults  # it would take long to say what else is wrong
            return
        self.found.setdefault(job_class.name, (job_class, class_text.lines))

    def _start(self, present: JobClass | None, name: str) -> JobClass:
        """What a text lacks: attributes as in the template; the present owners and users."""
        template = self.before.template
        if present is None:
            return replace(new_class(template, name, self.by.name), owner=self.by.owner)
        return replace(
            template, owner=present.owner, user_lists=present.user_lists, xuser_lists=present.xuser_lists
        )

    def _refuse(self, name: str, present: JobClass | None) -> ClassRefusal | None:
        if present is not None:
            refusal = refuse_edit(present, self.by.name, is_manager=self.by.is_manager)
            if self.how == "add":
                sentence = f'Job class "{name}" already exists.'
                refusal = ClassRefusal(reason=RefusalReason.EXISTS, sentence=sentence)
            return refusal
        if class_name_problem(name):
            return None  # The reading said so.
        return no_class(name) if self.how == "change" else refuse_name(name)


def _against_template(
    after: Classes, job_class: JobClass, lines: Mapping[str, int]
) -> Iterator[LodesmanError]:
    variants_of: dict[Violation, list[str]] = {}
    if job_class.name != TEMPLATE:
        for variant, violations in check_template(after.template, job_class, after.canonical).items():
            for violation in violations:
                variants_of.setdefault(violation, []).append(variant)
    for violation, variants in variants_of.items():
        line = lines.get(violation.attribute, lines["jcname"])
        words = f"The template does not allow this of {_name_variants(job_class, variants)}: {violation.sentence}."
        yield InvalidConfig(
            **_at(line, words), job_class=job_class.name, variants=variants[:_MOST_LISTED], attribute=violation.attribute,
            key=violation.key, specifier=violation.specifier, given=violation.given, allowed=violation.allowed,
        )  # fmt: skip


def _too_large(job_class: JobClass, lines: Mapping[str, int]) -> Iterator[LodesmanError]:
    """The first variant with more than each submission should keep."""
    values = [
        value for held in job_class.attributes.values() for value in (held.base, *held.variants.values())
    ]
    sizes = {id(value): size_of(value) for value in values}
    for variant, *_ in job_class.alike():
        size = sum(sizes[id(held.of(variant))] for held in job_class.attributes.values())
        if size > _MOST_GIVEN:
            words = f"{job_class.name}.{variant} gives a job {size:,} letters; at most {_MOST_GIVEN:,}."
            yield InvalidConfig(**_at(lines["jcname"], words), job_class=job_class.name, variants=[variant])
            return


def _too_many_entries(
    job_class: JobClass, template: JobClass, lines: Mapping[str, int]
) -> Iterator[LodesmanError]:
    """Refusals name a variant's entries, and each value is compared with the template's."""
    count = judged = 0
    for name, held in job_class.attributes.items():
        own = sum(map(length_of, held.variants.values()))
        count += own + length_of(held.base) * (len(job_class.variants) - len(held.variants))
        if name in template.attributes:
            judged += len(held.variants) * length_of(template.attributes[name].of(DEFAULT_VARIANT))
    variants = f"{len(job_class.variants):,} variants"
    words = ""
    if count > _MOST_ENTRIES:
        words = f"the lists of {job_class.name} have {count:,} entries in its {variants} together"
    elif judged > _MOST_ENTRIES and job_class.name != TEMPLATE:
        words = f"the lists of {job_class.name} are held against {judged:,} entries of the template in its {variants}"
    if words:
        words += f"; at most {_MOST_ENTRIES:,}. Make several classes of it."
        yield InvalidConfig(**_at(lines["jcname"], words), job_class=job_class.name, limit=_MOST_ENTRIES)


def _too_much_work(
    before: Classes, read: Mapping[str, tuple[JobClass, Mapping[str, int]]]
) -> LodesmanError | None:
    """A changed template is compared with all classes, each other class with it."""
    changed = {name: job_class for name, (job_class, _) in read.items()}
    is_of_all = TEMPLATE in changed
    judged = {**before.by_name, **changed} if is_of_all else changed
    count = count_comparisons(changed.get(TEMPLATE, before.template), judged.values())
    if count <= _MOST_COMPARED:
        return None
    name = TEMPLATE if is_of_all else next(iter(changed))
    subject = "the entries of the template are held against the values of"
    words = f"{subject} {len(judged):,} classes, {count:,} times; at most {_MOST_COMPARED:,}. "
    words += "Give the template fewer entries." if is_of_all else "Change fewer classes at once."
    return InvalidConfig(**_at(read[name][1]["jcname"], words), job_class=name, limit=_MOST_COMPARED)


def _too_many_names(job_class: JobClass, lines: Mapping[str, int]) -> Iterator[LodesmanError]:
    """Submissions and changes are compared with each of these names."""
    instead = "Put the users on a user list, and name that."
    whose = {"owner": "Administrators may change every class."} | dict.fromkeys(_LISTS, instead)
    for attribute, remedy in whose.items():
        names: tuple[str, ...] = getattr(job_class, attribute)
        longest = max(names, key=len, default="")
        words = ""
        if len(names) > MOST_NAMES:
            words = (
                f"{attribute} of {job_class.name} has {len(names):,} names; at most {MOST_NAMES}. {remedy}"
            )
        elif len(longest) > _LONGEST_NAME:
            words = f"{attribute} has the name {shown(longest)} of {len(longest):,} letters; at most {_LONGEST_NAME}."
        if words:
            at = _at(lines.get(attribute, lines["jcname"]), words)
            yield InvalidConfig(**at, job_class=job_class.name, attribute=attribute, limit=MOST_NAMES)


def _wrong_values(job_class: JobClass, lines: Mapping[str, int], problem: Problem) -> Iterator[LodesmanError]:
    """Values for which all jobs would be refused, each once."""
    for attribute in filter(job_class.attributes.get, lines):
        held, kind = job_class.attributes[attribute], kind_of(attribute)
        sentences: set[str] = set()
        judged: set[object] = set()
        for value in (held.base, *held.variants.values()):
            job_part = job_value(kind, value)
            parts = {key: {key: text} for key, text in entries_of(attribute, job_part).items()}
            for key, part in parts.items() if attribute in REQUESTS else [(None, job_part)]:
                same = tuple(part.items()) if isinstance(part, Mapping) else part
                words = problem(attribute, part) if part and same not in judged else ""
                judged.add(same)
                if words and words not in sentences:
                    sentences.add(words)
                    at = _at(lines[attribute], f"{attribute}: {words}")
                    yield InvalidConfig(**at, job_class=job_class.name, attribute=attribute, key=key)


def _name_variants(job_class: JobClass, variants: Sequence[str]) -> str:
    if len(variants) == len(job_class.variants):
        return job_class.name
    return first_of([f"{job_class.name}.{variant}" for variant in variants])


def _without_meaning(
    job_class: JobClass, lines: Mapping[str, int], remarks: Mapping[str, str]
) -> Iterator[ClassNotice]:
    """Without effect on jobs; a truth value at its default needs no notice."""
    for attribute in filter(remarks.__contains__, lines):
        held, default = job_class.attributes.get(attribute), BOOLEAN_DEFAULTS.get(attribute)
        values = [held.of(variants[0]) for variants in job_class.alike()] if held else []
        job_values = (
            job_value(kind_of(attribute), value) for value in {id(value): value for value in values}.values()
        )
        if any(value and (default is None or truth(str(value)) != default) for value in job_values):
            message = f"{attribute} has no meaning here; it is kept. {remarks[attribute]}".rstrip()
            yield ClassNotice(
                job_class=job_class.name, attribute=attribute, message=message, line=lines[attribute]
            )


def _unknown_lists(
    job_class: JobClass, lines: Mapping[str, int], lists: Collection[str]
) -> Iterator[ClassNotice]:
    for attribute in _LISTS:
        for name in getattr(job_class, attribute):
            if not name.startswith("%") and name not in lists:
                message = f"{attribute} names {shown(name)}, and there is no such user list or group."
                line = lines.get(attribute, lines["jcname"])
                yield ClassNotice(job_class=job_class.name, attribute=attribute, message=message, line=line)


def _new_conflicts(
    before: Classes, after: Classes, changed: Collection[str], line: int
) -> Iterator[ClassNotice]:
    judged: VerdictCache = {}
    for name in sorted(after.by_name.keys() - changed):
        conflicts = before.by_name[name].conflicts
        for variant, sentences in after.conflicts_of(name, judged).items():
            if variant not in conflicts:
                message = f"{name}.{variant} is in conflict with the template: {first_of(sentences, '; ')}."
                yield ClassNotice(job_class=name, attribute="", message=message, line=line)
