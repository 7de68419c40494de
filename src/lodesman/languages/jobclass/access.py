"""Whether a finished job keeps to its class, and a class to the template. A value changed back counts as unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from lodesman.languages.jobclass.attributes import (
    BOOLEAN_DEFAULTS,
    AttributeKind,
    CanonicalKey,
    JobValue,
    JobValues,
    entries_of,
    kind_of,
    truth,
)
from lodesman.languages.jobclass.model import DEFAULT_VARIANT, ClassSnapshot, JobClass
from lodesman.languages.jobclass.specifiers import (
    ClassEntry,
    ClassList,
    ClassScalar,
    ClassValue,
    free,
    job_value,
    join_grants,
    length_of,
)


class Deed(StrEnum):
    """A breach of a specifier."""

    CHANGED = "changed"
    REMOVED = "removed"
    ADDED = "added"
    SET = "set"
    OPENED = "opened"


class Violation(Struct, frozen=True, kw_only=True):
    """A value that a class, or the template, does not allow."""

    attribute: str
    key: str | None  # None for a scalar or a whole list.
    deed: Deed
    specifier: str  # The letters that hold here.
    # None: there is none. If a class opened what the template shuts, letters; `allowed` likewise.
    given: str | None
    allowed: str | None

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        place = self.attribute if self.key is None else f"{self.attribute}: {self.key}"
        if self.deed is Deed.OPENED:
            return f"{place} may not have the specifier {{{self.given}}}"
        return f"{place} may not be {self.deed}"


_MOST_SAID = 100
_Violations = tuple[Violation, ...]
VerdictCache = dict[tuple[str, ClassValue], tuple[_Violations, _Violations]]
"""Judgements of an attribute's value by one template."""


def check(snapshot: ClassSnapshot, values: JobValues, canonical: CanonicalKey) -> tuple[Violation, ...]:
    """Everything in which a finished job goes against its class, in the order of attributes.

    Values are compared as texts, truth values by meaning, keys by canonical name. Raises UnreadableValue for a list in
    a text that cannot be read.
    """
    return tuple(
        violation
        for name, held in snapshot.attributes.items()
        for violation in _check_value(name, held, values.get(name), canonical)
    )


def refusal_sentence(snapshot: ClassSnapshot, violations: Iterable[Violation]) -> str:
    """One sentence, without a full stop."""
    sentences = "; ".join(violation.sentence for violation in violations)
    return f'job class "{snapshot.name}" does not allow: {sentences}'


def _check_value(
    name: str, held: ClassValue, value: JobValue | None, canonical: CanonicalKey
) -> Iterator[Violation]:
    if isinstance(held, ClassList):
        yield from _check_list(name, held, value, canonical)
        return
    text = value if isinstance(value, str) else ",".join(entries_of(name, value))
    if violation := _check_scalar(name, held, text or None):
        yield violation


def _check_scalar(name: str, held: ClassScalar, text: str | None) -> Violation | None:
    default, class_text = BOOLEAN_DEFAULTS.get(name), held.text
    if default is not None:
        text, class_text = truth(text or default), class_text and truth(class_text)
    # A truth value cannot be unset: back at its default it is removed as well as changed.
    unset = text == default
    if class_text is None:
        deed, allowed = Deed.SET, unset or "+" in held.grants or "~" in held.grants
    elif text == class_text:
        return None
    elif text is None:
        deed, allowed = Deed.REMOVED, "-" in held.grants
    else:
        deed, allowed = Deed.CHANGED, "~" in held.grants or (unset and "-" in held.grants)
    if allowed:
        return None
    return Violation(
        attribute=name, key=None, deed=deed, specifier=held.grants, given=text, allowed=held.text
    )


def _canonical_key(name: str, key: str, canonical: CanonicalKey) -> str:
    return canonical(name, key) if kind_of(name) is AttributeKind.KEYED else key


def _check_list(
    name: str, held: ClassList, job_entries: JobValue | None, canonical: CanonicalKey
) -> Iterator[Violation]:
    entries = {
        _canonical_key(name, key, canonical): ClassEntry(key=key, value=value)
        for key, value in entries_of(name, job_entries).items()
    }
    for entry in held.entries or ():
        letters = join_grants(entry.grants, held.grants)
        own = entries.pop(_canonical_key(name, entry.key, canonical), None)
        if own is None:
            deed, fine = Deed.REMOVED, "-" in letters
        else:
            deed, fine = Deed.CHANGED, own.value == entry.value or "~" in letters
        if not fine:
            value, allowed = own.value if own else None, entry.value
            yield Violation(
                attribute=name, key=entry.key, deed=deed, specifier=letters, given=value, allowed=allowed
            )
    for extra in entries.values() if "+" not in held.grants else ():
        key, letters, value = extra.key, held.grants, extra.value
        yield Violation(
            attribute=name, key=key, deed=Deed.ADDED, specifier=letters, given=value, allowed=None
        )


# --- the template ---------------------------------------------------------------------------------


def check_template(
    template: JobClass, job_class: JobClass, canonical: CanonicalKey, verdicts: VerdictCache | None = None
) -> Mapping[str, tuple[Violation, ...]]:
    """By variant, where a class goes against the template (its variant `default`), the first hundred or so: a value
    that is not left open there, or a specifier that is withheld.

    Variants that keep to it are left out. A value of several variants is judged once; with common `verdicts`, of
    several classes.
    """
    forced = template.snapshot(DEFAULT_VARIANT).attributes
    verdicts = {} if verdicts is None else verdicts
    by_id: dict[tuple[str, int], tuple[_Violations, _Violations]] = {}
    violations_of: dict[str, _Violations] = {}
    for variants in job_class.alike():
        changed: list[Violation] = []
        opened: list[Violation] = []
        for name, held in forced.items():
            mine = job_class.value(name, variants[0])
            if (name, id(mine)) not in by_id:  # long values are compared once
                by_id[name, id(mine)] = verdicts.get((name, mine)) or _judge(name, held, mine, canonical)
                verdicts[name, mine] = by_id[name, id(mine)]
            changed += by_id[name, id(mine)][0]
            opened += by_id[name, id(mine)][1]
        if changed or opened:
            violations_of |= dict.fromkeys(variants, (*changed, *opened)[:_MOST_SAID])
    return {variant: violations_of[variant] for variant in job_class.variants if variant in violations_of}


def _judge(
    name: str, held: ClassValue, mine: ClassValue, canonical: CanonicalKey
) -> tuple[_Violations, _Violations]:
    """What a value gives, and what it leaves open, against the template's."""
    violations = _check_value(name, held, job_value(kind_of(name), mine), canonical)
    return tuple(islice(violations, _MOST_SAID)), tuple(
        islice(_find_opened(name, held, mine, canonical), _MOST_SAID)
    )


def judge_class(
    template: JobClass, job_class: JobClass, canonical: CanonicalKey, verdicts: VerdictCache | None = None
) -> JobClass:
    """The class with the variants in conflict that go against the template now."""
    return replace(job_class, conflicts=frozenset(check_template(template, job_class, canonical, verdicts)))


def count_comparisons(template: JobClass, classes: Iterable[JobClass]) -> int:
    """How many template entries are compared with these classes."""
    forced = template.snapshot(DEFAULT_VARIANT).attributes
    lengths = {name: length for name, held in forced.items() if (length := length_of(held))}
    values: set[tuple[str, ClassValue]] = set()
    for job_class in classes:
        for name in lengths:
            held = job_class.attributes.get(name)
            own = (held.base, *held.variants.values()) if held else (free(kind_of(name)),)
            values.update((name, value) for value in own)
    return sum(lengths[name] for name, _ in values)


def _find_opened(
    name: str, held: ClassValue, mine: ClassValue, canonical: CanonicalKey
) -> Iterator[Violation]:
    if isinstance(held, ClassScalar) or isinstance(mine, ClassScalar):
        # To set a scalar that is UNSPECIFIED is to change it.
        enough = set(mine.grants) <= set(held.grants.replace("~", "~+"))
        yield from _more(name, None, held.grants, "" if enough else mine.grants)
        return
    yield from _more(name, None, held.grants, "+" if "+" in mine.grants else "")
    entries = {_canonical_key(name, entry.key, canonical): entry for entry in mine.entries or ()}
    for entry in held.entries or ():
        own = entries.get(_canonical_key(name, entry.key, canonical)) if entries else None
        if own is not None:
            letters = join_grants(own.grants, mine.grants).replace("+", "")
            yield from _more(name, entry.key, join_grants(entry.grants, held.grants), letters)


def _more(name: str, key: str | None, held: str, mine: str) -> Iterator[Violation]:
    if set(mine) - set(held):
        yield Violation(attribute=name, key=key, deed=Deed.OPENED, specifier=held, given=mine, allowed=held)
