"""Job classes: what their owners write of them, which there are, and what jobs get of a variant."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from lodesman.wire.call import Page

MOST_TEXT: Final = 4 << 20

# A class, or one of its variants: two names of at most 255 characters.
_Wanted = Annotated[str, Meta(min_length=1, max_length=511)]
_Names = Annotated[list[_Wanted], Meta(min_length=1, max_length=1_000)]


class JobClassSection(Struct, forbid_unknown_fields=True, frozen=True):
    """`default_jc`: the class of jobs that ask for none; empty: they get none. `enforce_jc`: every job needs a class.
    `defaults`: what jobs have for which neither their class nor their user says anything, as Grid Engine writes it.
    """

    default_jc: str = ""
    enforce_jc: bool = False
    defaults: dict[str, str] = {}


class AttributeEdit(Struct, frozen=True, omit_defaults=True):
    """A change of what defaults, class and description say together, as `qsub` has it: in a list add, modify or clear the
    entry with this key; `clearp` unsets an attribute.
    """

    verb: Literal["adds", "mods", "clears", "clearp"]
    attribute: _Wanted
    key: Annotated[str, Meta(max_length=1_024)] = ""
    value: Annotated[str, Meta(max_length=65_536)] | None = None


class ClassTextBody(Struct, frozen=True, omit_defaults=True):
    """Classes in Grid Engine's own text. `how`: add new ones, or change those that there are.

    `trial`: change nothing; classes that there are count as changed, others as new.
    """

    text: Annotated[str, Meta(max_length=MOST_TEXT)]
    how: Literal["add", "change"] = "add"
    trial: bool = False


class DropClassesBody(Struct, frozen=True):
    """The classes to remove, all or none."""

    names: _Names


class SwitchClassesBody(Struct, frozen=True):
    """The classes (all variants) and variants (`class.variant`) to enable or disable, all or none."""

    names: _Names
    switch: Literal["enable", "disable"]


class ClassNoticeRow(Struct, frozen=True):
    """What is odd in a class and does not stop it, and at which line of the text. `attribute` '': it is about all of it."""

    job_class: str
    attribute: str
    message: str
    line: int


class ClassesChanged(Struct, frozen=True):
    """The classes, or variants, that were added, changed, removed, enabled or disabled, or would be."""

    names: list[str]
    notices: list[ClassNoticeRow] = []


class ClassRow(Struct, frozen=True, omit_defaults=True):
    """One variant of a class. `conflict`: it goes against the template. `owner`: the first three, and `more_owners` besides.
    Times in UNIX seconds; the template of a new installation was never changed.
    """

    job_class: str
    variant: str
    state: Literal["enabled", "disabled", "conflict"]
    owner: list[str]
    revision: int
    changed_at: float | None
    changed_by: str
    more_owners: int = 0


class JobClasses(Page, frozen=True):
    """Variants, by class; the first of a class is `default`. `default_jc`, `enforce_jc`: as they are configured."""

    classes: list[ClassRow]
    default_jc: str
    enforce_jc: bool


class ClassAt(Struct, frozen=True, omit_defaults=True):
    """A class, and one of its variants."""

    name: str
    variant: str = "default"


class ClassInFull(Struct, frozen=True):
    """A class in its canonical text, with its variants in states other than enabled.

    `conflicts`: how each goes against the template. `values`: what jobs of the variant that was asked for get, with access
    specifiers; what is not there is free.
    """

    name: str
    text: str
    revision: int
    disabled: list[str]
    conflicts: dict[str, list[str]]
    variant: str
    values: dict[str, str]
