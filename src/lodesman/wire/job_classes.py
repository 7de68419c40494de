"""Job classes: what owners write, which there are, and what jobs get of a variant."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.wire.call import Page

MOST_TEXT: Final = 4 << 20

# A class, or one of its variants: two names of at most 255 characters.
_ClassName = Annotated[str, Meta(min_length=1, max_length=511)]
_Names = Annotated[list[_ClassName], Meta(min_length=1, max_length=1_000)]


class JobClassSection(Struct, forbid_unknown_fields=True, frozen=True):
    """What the server's configuration says of job classes."""

    default_jc: str = ""  # The class of jobs that ask for none; '': they get none.
    enforce_jc: bool = False  # Every job needs a class.
    # What jobs have for which neither their class nor their user says anything, as Grid Engine writes it.
    defaults: dict[str, str] = {}


class AttributeEdit(Struct, frozen=True, omit_defaults=True):
    """A change of what defaults, class and description say together, as `qsub` has it."""

    # In a list add, modify or clear an entry; clearp unsets an attribute.
    verb: Literal["adds", "mods", "clears", "clearp"]
    attribute: _ClassName
    key: Annotated[str, Meta(max_length=1_024)] = ""  # Of the entry.
    value: Annotated[str, Meta(max_length=65_536)] | None = None


class ClassTextBody(Struct, frozen=True, omit_defaults=True):
    """Classes in Grid Engine's own text."""

    text: Annotated[str, Meta(max_length=MOST_TEXT)]
    how: Literal["add", "change"] = "add"  # Add new ones, or change those that there are.
    trial: bool = False  # Change nothing; classes that there are count as changed, others as new.


class DropClassesBody(Struct, frozen=True):
    """The classes to remove, all or none."""

    names: _Names


class SwitchClassesBody(Struct, frozen=True):
    """What to enable or disable, all or none."""

    names: _Names  # Classes (all their variants), and variants (`class.variant`).
    switch: Literal["enable", "disable"]


class ClassNoticeRow(Struct, frozen=True):
    """What is odd in a class and does not stop it."""

    job_class: str
    attribute: str  # '': it is about the whole class.
    message: str
    line: int  # Of the text.


class ClassesChanged(Struct, frozen=True):
    """The classes, or variants, that were added, changed, removed, enabled or disabled, or would be."""

    names: list[str]
    notices: list[ClassNoticeRow] = []


class ClassRow(Struct, frozen=True, omit_defaults=True):
    """One variant of a class. Times in UNIX seconds."""

    job_class: str
    variant: str
    state: Literal["enabled", "disabled", "conflict"]  # conflict: it goes against the template.
    owner: list[str]  # The first three.
    revision: int
    changed_at: float | None  # None: the template of a new installation, which was never changed.
    changed_by: str
    more_owners: int = 0  # How many there are besides.


class JobClasses(Page, frozen=True):
    """Variants of job classes."""

    classes: list[ClassRow]  # By class; the first of a class is `default`.
    default_jc: str  # As it is configured.
    enforce_jc: bool  # As it is configured.


class ClassAt(Struct, frozen=True, omit_defaults=True):
    """A class, and one of its variants."""

    name: str
    variant: str = "default"


class ClassInFull(Struct, frozen=True):
    """A class in its canonical text."""

    name: str
    text: str
    revision: int
    disabled: list[str]  # Its variants that are disabled.
    conflicts: dict[str, list[str]]  # How variants go against the template.
    variant: str  # The one that was asked for.
    # What jobs of that variant get, with access specifiers; what is not there is free.
    values: dict[str, str]
