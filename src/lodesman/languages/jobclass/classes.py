"""All job classes at one time: which one a job gets, and what changes of some make of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from lodesman.languages.gridengine.jclist import ANY_JC, NO_JC
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass.access import VerdictCache, check_template, judge_class
from lodesman.languages.jobclass.model import (
    DEFAULT_VARIANT,
    TEMPLATE,
    ClassSnapshot,
    JobClass,
    fresh_template,
)
from lodesman.languages.jobclass.rights import (
    ClassRefusal,
    ClassUser,
    MakeSnapshot,
    choose_class,
    derive,
    no_class,
    split_name,
)
from lodesman.wire.job_classes import JobClassSection

UsableClass = Callable[[str], str | None]
"""A name of a jc_list -> the class that a job's owner may name to enter there, "" for none; None: there is none."""


def every_class(listed: str) -> str:
    """The `UsableClass` if users' rights are unknown."""
    return "" if listed == NO_JC else listed


NO_CLASS = "NONE"
"""Names that a job has no class, whatever the default is."""
REQUESTS = ("l_hard", "l_soft")
"""The lists whose keys are resources."""
# Names and variants of classes that are compared for one suggestion: a few milliseconds.
_MOST_LOOKS, _LOOKS_OF_CLASS = 50_000, 20


class Classes(Struct, frozen=True, kw_only=True):
    """All job classes with the template, and what decides who gets which."""

    by_name: Mapping[str, JobClass]
    vocabulary: Vocabulary = field(default_factory=Vocabulary)
    default_jc: str = ""  # The class of a job that asks for none; "": it gets none.
    enforce_jc: bool = False  # A job without a class is refused.
    # What jobs have before their class says anything.
    defaults: Mapping[str, str] = field(default_factory=dict)
    version: int = 0  # Another one after each change.

    @property
    def template(self) -> JobClass:
        """The class that others start from, and keep to."""
        return self.by_name[TEMPLATE]

    def canonical(self, attribute: str, key: str) -> str:
        """For keys of a list: resources have second names."""
        name = self.vocabulary.complexes.canonical(key) if attribute in REQUESTS else None
        return name or key

    def derive(
        self, name: str | None, user: str, groups: Collection[str] = ()
    ) -> ClassSnapshot | ClassRefusal | None:
        """What a job of this user keeps of its class; None: a job without a class.

        `name` None or "": it asks for none; NONE: it wants none. Each of the user's `groups` is a user list, too,
        unless a user list has its name.
        """
        class_name = choose_class(name, self.default_jc, enforce_jc=self.enforce_jc)
        return self.get(class_name, user, groups) if isinstance(class_name, str) else class_name

    def get(self, name: str, user: str, groups: Collection[str] = ()) -> ClassSnapshot | ClassRefusal:
        """`name`: `class` or `class.variant`."""
        return self.of(user, groups).get(name)

    def of(
        self, user: str, groups: Collection[str] = (), snapshot: MakeSnapshot = JobClass.snapshot
    ) -> ClassesOfUser:
        """The classes for this user."""
        lists = self.vocabulary.lists_of(user, groups) | (set(groups) - self.vocabulary.user_lists.keys())
        return ClassesOfUser(self, ClassUser(user, lists), snapshot)

    def find(self, full_name: str) -> tuple[JobClass, frozenset[str]] | ClassRefusal:
        """The class, and the variants that are meant: of a class alone all."""
        name, variant = split_name(full_name)
        job_class = self.by_name.get(name)
        if job_class is None or variant not in job_class.variants:
            return no_class(full_name)
        return job_class, frozenset([variant] if "." in full_name else job_class.variants)

    def with_changes(self, changes: Mapping[str, JobClass | None]) -> Classes:
        """With these classes (None: without), judged by the template: all of them if that changes."""
        after = self.with_states(changes)
        return after.judged(after.by_name if TEMPLATE in changes else changes.keys() & after.by_name.keys())

    def with_states(self, changes: Mapping[str, JobClass | None]) -> Classes:
        """No text changes: nothing is judged."""
        by_name = {
            name: job_class
            for name, job_class in {**self.by_name, **changes}.items()
            if job_class is not None
        }
        return replace(self, by_name=by_name, version=self.version + 1)

    def under(self, vocabulary: Vocabulary, section: JobClassSection) -> Classes:
        """With another configuration."""
        after = replace(
            self, vocabulary=vocabulary, version=self.version + 1,
            default_jc=section.default_jc, enforce_jc=section.enforce_jc, defaults=section.defaults,
        )  # fmt: skip
        same = vocabulary.complexes == self.vocabulary.complexes
        return after if same else after.judged(self.by_name)

    def judged(self, names: Iterable[str]) -> Classes:
        """The classes, with current conflicts of these `names`."""
        template = replace(self.template, conflicts=frozenset())
        verdicts: VerdictCache = {}
        classes = {
            name: judge_class(template, self.by_name[name], self.canonical, verdicts) for name in names
        }
        return replace(self, by_name={**self.by_name, **classes, TEMPLATE: template})

    def conflicts_of(self, name: str, verdicts: VerdictCache | None = None) -> dict[str, list[str]]:
        """By variant, how a class goes against the template, without a full stop. `verdicts`: of other classes."""
        if name == TEMPLATE:
            return {}
        violations_of = check_template(self.template, self.by_name[name], self.canonical, verdicts)
        return {
            variant: [violation.sentence for violation in violations]
            for variant, violations in violations_of.items()
        }


class ClassesOfUser:
    """Job classes for one user; what is judged once is kept."""

    __slots__ = ("_classes", "_known", "_snapshot", "_suggested", "_user")

    def __init__(self, classes: Classes, user: ClassUser, snapshot: MakeSnapshot) -> None:
        self._classes, self._user, self._snapshot = classes, user, snapshot
        self._known: dict[str, ClassSnapshot | ClassRefusal] = {}
        self._suggested: dict[str, str | None] = {}

    def get(self, name: str) -> ClassSnapshot | ClassRefusal:
        """`name`: `class` or `class.variant`."""
        snapshot = self._known.get(name)
        if snapshot is None:
            snapshot = self._known[name] = derive(self._classes.by_name, name, self._user, self._snapshot)
        return snapshot

    def usable(self, listed: str) -> str | None:
        """The class to name to enter where a jc_list has this name.

        "": none at all, NONE where a job that names none gets one; None: the user may use none. ANY_JC: any class may
        enter, and the first thousands are none for this user; the others are not judged.
        """
        if listed not in self._suggested:
            self._suggested[listed] = self._suggest(listed)
        return self._suggested[listed]

    def _suggest(self, listed: str) -> str | None:
        classes = self._classes
        if listed == NO_JC:
            return None if classes.enforce_jc else NO_CLASS if classes.default_jc else ""
        if listed != ANY_JC:
            name, dot, variant = listed.partition(".")
            return self._enabled(name, variant if dot else None)
        left = _MOST_LOOKS
        for name, job_class in sorted(classes.by_name.items()):
            if left < 0:
                return ANY_JC
            if usable := self._enabled(name):
                return usable
            left -= (
                _LOOKS_OF_CLASS
                + len(job_class.user_lists)
                + len(job_class.xuser_lists)
                + len(job_class.variants)
            )
        return None

    def _enabled(self, name: str, variant: str | None = None) -> str | None:
        """A class or variant if this user can make jobs of it; of a class alone the first such variant."""
        job_class = self._classes.by_name.get(name)
        if job_class is None or name == TEMPLATE or self._user.refusal(job_class):
            return None
        shut = job_class.disabled | job_class.conflicts
        if variant is not None:
            return f"{name}.{variant}" if variant in job_class.variants and variant not in shut else None
        first = next((other for other in (DEFAULT_VARIANT, *job_class.variants) if other not in shut), None)
        return name if first == DEFAULT_VARIANT else first and f"{name}.{first}"


NO_CLASSES = Classes(by_name={})
"""Where no class is known."""


def classes_of(stored: Iterable[JobClass], vocabulary: Vocabulary) -> Classes:
    """Without a template among them, with a new installation's."""
    by_name = {TEMPLATE: fresh_template()} | {job_class.name: job_class for job_class in stored}
    return Classes(by_name=by_name, vocabulary=vocabulary).judged(by_name)
