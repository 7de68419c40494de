"""A job class, a job's copy of it, and the template of classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.base.errors import InvalidRequest
from lodesman.languages.jobclass.attributes import FIRST_ATTRIBUTES, KINDS, JobValues, kind_of
from lodesman.languages.jobclass.specifiers import (
    ByVariant,
    ClassValue,
    free,
    job_value,
    read_base,
    size_of,
    write_base,
)

TEMPLATE = "template"
DEFAULT_VARIANT = "default"


class ClassState(StrEnum):
    """Whether jobs can be derived from a variant. Derived jobs stay, and run, in every state."""

    ENABLED = "enabled"
    DISABLED = "disabled"
    CONFLICT = "conflict"


class ClassSnapshot(Struct, frozen=True, kw_only=True):
    """What a job keeps of its variant: values and specifiers."""

    job_class: str
    variant: str
    revision: int
    attributes: Mapping[str, ClassValue] = field(default_factory=dict)  # One that is not there is free.

    @property
    def name(self) -> str:
        """`class.variant`."""
        return f"{self.job_class}.{self.variant}"

    @property
    def size(self) -> int:
        """About the letters of all values."""
        return sum(size_of(value) for value in self.attributes.values())

    @property
    def values(self) -> JobValues:
        """What a job gets."""
        pairs = ((name, job_value(kind_of(name), value)) for name, value in self.attributes.items())
        return {name: value for name, value in pairs if value}

    def to_json(self) -> str:
        """Canonical JSON; attributes as in the text of a class."""
        attributes = {name: write_base(kind_of(name), value) for name, value in self.attributes.items()}
        members = {"class": self.job_class, "variant": self.variant, "revision": self.revision}
        return json.dumps(
            members | {"attributes": attributes}, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )


def snapshot_from_json(text: str) -> ClassSnapshot:
    """Inverse of `ClassSnapshot.to_json`. Raises InvalidRequest."""
    faults: list[str] = []
    try:
        members = json.loads(text)
        attributes = {
            name: read_base(kind_of(name), value, faults.append)
            for name, value in members["attributes"].items()
        }
        snapshot = ClassSnapshot(
            job_class=members["class"],
            variant=members["variant"],
            revision=members["revision"],
            attributes={name: value for name, value in attributes.items() if value is not None},
        )
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as fault:
        faults.append(f"{type(fault).__name__}: {fault}")
    if faults:
        raise InvalidRequest(f"A stored job class cannot be read: {faults[0]}.")
    return snapshot


class JobClass(Struct, frozen=True, kw_only=True):
    """The last three fields are not part of the native text."""

    name: str
    variants: tuple[str, ...] = (DEFAULT_VARIANT,)
    owner: tuple[str, ...] = ()
    user_lists: tuple[str, ...] = ()  # Names of user lists and, behind `%`, of users; `xuser_lists` likewise.
    xuser_lists: tuple[str, ...] = ()
    attributes: Mapping[str, ByVariant] = field(default_factory=dict)
    # The texts of attributes that no version has: they are kept and bind no job.
    unknown: Mapping[str, str] = field(default_factory=dict)
    disabled: frozenset[str] = frozenset()  # Variants.
    conflicts: frozenset[str] = frozenset()  # Variants.
    revision: int = 0  # The store counts it.

    def state(self, variant: str) -> ClassState:
        """A conflict hides whether a variant is disabled."""
        if variant in self.conflicts:
            return ClassState.CONFLICT
        return ClassState.DISABLED if variant in self.disabled else ClassState.ENABLED

    def value(self, attribute: str, variant: str) -> ClassValue:
        """An attribute that the class lacks is free."""
        by_variant = self.attributes.get(attribute)
        return by_variant.of(variant) if by_variant else free(kind_of(attribute))

    def values(self, variant: str) -> JobValues:
        """What a job gets."""
        return self.snapshot(variant).values

    def snapshot(self, variant: str) -> ClassSnapshot:
        """What a job keeps."""
        values = {name: value.of(variant) for name, value in self.attributes.items()}
        bound = {name: value for name, value in values.items() if value != free(kind_of(name))}
        return ClassSnapshot(job_class=self.name, variant=variant, revision=self.revision, attributes=bound)

    def alike(self) -> list[tuple[str, ...]]:
        """Variants with the same values together: all that no attribute has a bracket for."""
        own = {variant for held in self.attributes.values() for variant in held.variants}
        plain = tuple(variant for variant in self.variants if variant not in own)
        return [plain] * bool(plain) + [(variant,) for variant in self.variants if variant in own]

    def revised(self, new: JobClass) -> JobClass:
        """The next revision, with the texts of `new`. Disabled variants stay so; conflicts are judged anew."""
        kept = self.disabled & set(new.variants)
        return replace(new, disabled=kept, conflicts=frozenset(), revision=self.revision + 1)

    def switched(self, variants: Iterable[str], *, on: bool) -> JobClass:
        """Enable or disable variants; none means all."""
        named = frozenset(variants) or frozenset(self.variants)
        return replace(self, disabled=self.disabled - named if on else self.disabled | named)


@cache
def fresh_template() -> JobClass:
    """A new installation's template: every attribute is free."""
    return JobClass(
        name=TEMPLATE, attributes={name: ByVariant(base=free(KINDS[name])) for name in FIRST_ATTRIBUTES}
    )


def new_class(template: JobClass, name: str, creator: str) -> JobClass:
    """A copy of the template, which the creator owns."""
    return replace(
        template, name=name, owner=(creator,), disabled=frozenset(), conflicts=frozenset(), revision=1
    )
