"""Who may make, change and use job classes, their names, and which class a job gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from lodesman.languages.gridengine.values import class_name_problem
from lodesman.languages.jobclass.model import DEFAULT_VARIANT, TEMPLATE, ClassSnapshot, ClassState, JobClass
from lodesman.languages.jobs.record import shown

_RESERVED_NAMES = frozenset({TEMPLATE.upper(), "ANY_JC", "NO_JC", "NONE", "UNSPECIFIED"})

MOST_NAMED = 3
"""A sentence has the first of many names."""
LONGEST_SHOWN = 255


class RefusalReason(StrEnum):
    """Why something cannot be done with a job class."""

    NAME = "name"
    EXISTS = "exists"
    UNKNOWN = "unknown"
    DISABLED = "disabled"
    CONFLICT = "conflict"
    NOT_ALLOWED = "not-allowed"
    NOT_OWNER = "not-owner"
    NO_CLASS = "no-class"
    REFERENCED = "referenced"
    TEMPLATE = "template"


class ClassRefusal(Struct, frozen=True, kw_only=True):
    """A refusal in one sentence."""

    reason: RefusalReason
    sentence: str


def _no(reason: RefusalReason, sentence: str) -> ClassRefusal:
    return ClassRefusal(reason=reason, sentence=sentence)


def first_of(texts: Sequence[str], mark: str = ", ") -> str:
    """At most three texts, cut as in errors, and the number of others."""
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return mark.join(shown(text, LONGEST_SHOWN) for text in texts[:MOST_NAMED]) + more


def refuse_name(name: str, existing: Collection[str] = ()) -> ClassRefusal | None:
    """Why a new class cannot have this name, or None."""
    problem = class_name_problem(name)
    if problem:
        return _no(RefusalReason.NAME, f"Job class name {problem}.")
    if name.upper() in _RESERVED_NAMES:
        return _no(RefusalReason.NAME, f'Job class name contains "{name}", which has a meaning of its own.')
    if name in existing:
        return _no(RefusalReason.EXISTS, f'Job class "{name}" already exists.')
    return None


def refuse_edit(job_class: JobClass, user: str, *, is_manager: bool) -> ClassRefusal | None:
    """Why a user may not change, delete, enable or disable a class, or None.

    Owners and managers may; only managers may for the template and for a class without owner.
    """
    owners = () if job_class.name == TEMPLATE else job_class.owner
    if is_manager or user in owners:
        return None
    who = f"must be manager, or one of its owners ({first_of(owners)})," if owners else "must be manager"
    sentence = f'denied: "{shown(user)}" {who} to change the job class "{job_class.name}".'
    return _no(RefusalReason.NOT_OWNER, sentence)


def refuse_delete(name: str, places: Iterable[str]) -> ClassRefusal | None:
    """Why a class cannot be deleted, or None; `places`: queues and quota sets that name it."""
    if name == TEMPLATE:
        return _no(RefusalReason.TEMPLATE, "The job class template cannot be deleted.")
    named = first_of([*places])
    if named:
        return _no(RefusalReason.REFERENCED, f'Job class "{name}" is still referenced in {named}.')
    return None


def choose_class(name: str | None, default_jc: str, *, enforce_jc: bool) -> str | ClassRefusal | None:
    """`name`, else `default_jc` ("" or `none`: there is none).

    NONE asks for no class, which `enforce_jc` refuses.
    """
    chosen = name or default_jc
    if chosen and chosen.upper() != "NONE":
        return chosen
    if enforce_jc:
        sentence = "Every job needs a job class here (enforce_jc). Name one with --class."
        return _no(RefusalReason.NO_CLASS, sentence)
    return None


def split_name(full_name: str) -> tuple[str, str]:
    """A class alone means its variant `default`."""
    name, dot, variant = full_name.partition(".")
    return name, variant if dot else DEFAULT_VARIANT


def no_class(name: str) -> ClassRefusal:
    """An unknown class or variant."""
    return _no(RefusalReason.UNKNOWN, f'No job class or job class variant "{shown(name, 80)}".')


class ClassUser:
    """Each class is judged once, while user lists and classes stay."""

    __slots__ = ("_known", "_names", "_user")

    def __init__(self, user: str, lists: Collection[str] = ()) -> None:
        self._user = user
        self._names = frozenset([f"%{user}", *(name for name in lists if name[:1] != "%")])
        self._known: dict[str, ClassRefusal | None] = {}

    def refusal(self, job_class: JobClass) -> ClassRefusal | None:
        """Why this user may not use a class, or None. Denial wins; without `user_lists` everybody may."""
        if job_class.name not in self._known:
            self._known[job_class.name] = self._judge(job_class)
        return self._known[job_class.name]

    def _judge(self, job_class: JobClass) -> ClassRefusal | None:
        banned = next((name for name in job_class.xuser_lists if name in self._names), "")
        if banned:
            why = f"{banned} is in its xuser_lists"
        elif job_class.user_lists and self._names.isdisjoint(job_class.user_lists):
            why = "its user_lists do not have this user"
        else:
            return None
        sentence = f'denied: "{shown(self._user)}" may not use the job class "{job_class.name}": {why}.'
        return _no(RefusalReason.NOT_ALLOWED, sentence)


MakeSnapshot = Callable[[JobClass, str], ClassSnapshot]
"""What a job of a variant keeps."""


def derive(
    classes: Mapping[str, JobClass],
    full_name: str,
    user: ClassUser,
    snapshot: MakeSnapshot = JobClass.snapshot,
) -> ClassSnapshot | ClassRefusal:
    """What a job gets and keeps of a class, or why the user cannot have it."""
    name, variant = split_name(full_name)
    job_class = classes.get(name)
    if job_class is None or name == TEMPLATE or variant not in job_class.variants:
        return no_class(full_name)
    denied = user.refusal(job_class)
    if denied:
        return denied
    quoted = f'"{name}.{variant}"'
    match job_class.state(variant):
        case ClassState.DISABLED:
            return _no(RefusalReason.DISABLED, f"Job class variant {quoted} is disabled.")
        case ClassState.CONFLICT:
            sentence = (
                f"Job class variant {quoted} is in conflict with the template. Its owner has to change it."
            )
            return _no(RefusalReason.CONFLICT, sentence)
        case ClassState.ENABLED:
            return snapshot(job_class, variant)
