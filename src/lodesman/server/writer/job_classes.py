"""Job classes: how they are stored, and which hold from then on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from msgspec.structs import replace

from lodesman.base.errors import Conflict, LodesmanError, TooLarge
from lodesman.decide.resources import Fault, FilePosition, ResourceTree, written_jc_lists
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.languages.gridengine.vocabulary import Vocabulary
from lodesman.languages.jobclass import (
    Classes,
    ClassRefusal,
    classes_of,
    read_class,
    refuse_delete,
    refuse_edit,
)
from lodesman.languages.jobclass.classes import ClassesOfUser, UsableClass
from lodesman.languages.jobclass.editing import Author, ClassEdit, error_of, one_error
from lodesman.languages.jobclass.model import TEMPLATE, JobClass
from lodesman.languages.jobclass.rights import RefusalReason
from lodesman.languages.jobs.record import shown
from lodesman.languages.quota.rules import FilterTag
from lodesman.server.store import Reader
from lodesman.server.store.accounts import user_named
from lodesman.server.store.job_classes import (
    classes_changed_by,
    drop_class,
    job_classes,
    put_class,
    switch_class,
)
from lodesman.server.store.transaction import Transaction
from lodesman.server.writer.quotas import QuotaRules
from lodesman.wire.job_classes import JobClassSection

log = logging.getLogger(__name__)


class ClassesMoved(Conflict):
    """Classes changed after a change was judged: judge it again."""


def load_classes(db: Reader, vocabulary: Vocabulary, section: JobClassSection) -> Classes:
    """Read classes as stored, under this configuration."""
    return replace(classes_of(_stored(db), vocabulary).under(vocabulary, section), version=0)


def _stored(db: Reader) -> Iterator[JobClass]:
    for row in job_classes(db):
        # A class survives keys that have become two names of one resource.
        parsed = read_class(row.text, canonical=lambda _, key: key)
        if parsed.job_class is None:
            faults = "; ".join(map(str, parsed.faults))
            log.error("a job class does not hold: %s", faults, extra={"job_class": row.name})
        else:
            yield replace(parsed.job_class, disabled=row.disabled, revision=row.revision)


class ClassRules:
    """The classes that hold now."""

    def __init__(self, classes: Classes) -> None:
        self._prepared = PreparedClasses(classes)
        # As of the last commit, for any thread; and with what is not committed yet, for the writer's thread.
        self.now = self.latest = classes

    @property
    def prepared(self) -> PreparedClasses:
        """Those of `now`, with what was worked out of them."""
        now, prepared = self.now, self._prepared
        if prepared.classes is not now:
            self._prepared = prepared = PreparedClasses(now)
        return prepared

    def use(self, tx: Transaction, classes: Classes) -> None:
        """Use these classes from the commit on."""
        tx.undo.append(partial(setattr, self, "latest", self.latest))
        self.latest = classes
        tx.afterwards.append(partial(setattr, self, "now", classes))


def configure_classes(tx: Transaction, rules: ClassRules, classes: Classes) -> None:
    """The same classes under a new configuration. Raises ClassesMoved."""
    _need(rules, classes)
    rules.use(tx, classes)


def set_classes(tx: Transaction, rules: ClassRules, edit: ClassEdit, by: Author, *, most: int) -> None:
    """Store all classes or none. `most`: by one last author; 0: unlimited. Raises ClassesMoved, TooLarge."""
    _need(rules, edit.after)
    if most and not by.is_manager:
        count = len(classes_changed_by(tx, by.name) | edit.changed.keys())
        if count > most:
            raise TooLarge(
                f"{by.name} would have {count} job classes; at most {most} are allowed.",
                hint="Remove some, or ask an administrator for more: job_classes in [limits].",
                limit=most, size=count,
            )  # fmt: skip
    for name, job_class in edit.changed.items():
        put_class(tx, job_class, edit.texts[name], by.name)
    rules.use(tx, edit.after)


def _need(rules: ClassRules, after: Classes) -> None:
    if after.version != rules.latest.version + 1:
        raise ClassesMoved("Job classes were changed at the same time.", hint="Try again.")


def remove_classes(
    tx: Transaction,
    rules: ClassRules,
    quotas: QuotaRules,
    names: Iterable[str],
    by: Author,
    *,
    tree: ResourceTree,
) -> None:
    """All or none, and none that a jc_list in `tree` names; their jobs stay. Raises `one_error` of all refusals."""
    faults: list[LodesmanError] = []
    gone = dict.fromkeys(names)
    for name in gone:
        result = rules.latest.find(name) if "." not in name else None
        if isinstance(result, tuple):
            refusal = refuse_edit(result[0], by.name, is_manager=by.is_manager)
            refusal = refusal or refuse_delete(name, _places(name, rules.latest, quotas, tree))
        else:
            refusal = result or ClassRefusal(
                reason=RefusalReason.UNKNOWN, sentence=_VARIANT.format(shown(name, 80))
            )
        if refusal:
            faults.append(error_of(refusal, job_class=name))
    if faults:
        raise one_error(faults)
    for name in gone:
        drop_class(tx, name)
    rules.use(tx, rules.latest.with_states(gone))


_VARIANT = 'No job class "{}": whole classes are removed. A variant goes when its class is changed.'


def _places(name: str, classes: Classes, quotas: QuotaRules, tree: ResourceTree) -> Iterator[str]:
    if classes.default_jc.partition(".")[0] == name:
        yield "default_jc of the configuration"
    for quota_set in {**quotas.in_use, **quotas.sets}.values():
        filters = (rule.filters.get(FilterTag.JCS) for rule in quota_set.rules)
        named = {listed for held in filters if held for listed in (*held.names, *held.excluded)}
        if any(listed.partition(".")[0] == name for listed in named):
            yield f"the quota set {quota_set.name}"
    named_by = (place for place, _, lists in written_jc_lists(tree) if lists.names_class(name))
    yield from (f"the jc_list of {place}" for place in dict.fromkeys(named_by))


def unknown_classes(tree: ResourceTree, classes: Classes) -> Iterator[Fault]:
    """Report missing classes that default_jc (jobs without a class are refused) or a jc_list names."""
    usual = classes.default_jc
    if usual and usual.upper() != "NONE" and isinstance(classes.find(usual), ClassRefusal):
        yield Fault(
            message=f'default_jc: no job class or job class variant "{usual}"; jobs that ask for none are refused',
            source=FilePosition(file="configuration", section="job_classes"),
        )
    for place, source, lists in written_jc_lists(tree):
        for name in lists.classes():
            job_class, _, variant = name.partition(".")
            existing = classes.by_name.get(job_class)
            if existing is None or (variant and variant not in existing.variants):
                yield Fault(
                    message=f'JcList of {place}: no job class or job class variant "{name}"', source=source
                )


def switch_classes(tx: Transaction, rules: ClassRules, names: Iterable[str], by: Author, *, on: bool) -> None:
    """Enable or disable, all or none. Raises `one_error` of all refusals."""
    faults: list[LodesmanError] = []
    changed: dict[str, JobClass] = {}
    refusals: dict[str, ClassRefusal | None] = {}
    for class_name in dict.fromkeys(names):
        result = rules.latest.find(class_name)
        if isinstance(result, tuple):
            job_class, variants = result
            if job_class.name not in refusals:
                refusals[job_class.name] = refuse_edit(job_class, by.name, is_manager=by.is_manager)
            refusal = refusals[job_class.name]
            if job_class.name == TEMPLATE and not refusal:
                sentence = "The job class template has no jobs: there is nothing to enable or disable."
                refusal = ClassRefusal(reason=RefusalReason.TEMPLATE, sentence=sentence)
        else:
            refusal = result
        if refusal:
            faults.append(error_of(refusal, job_class=class_name))
        elif isinstance(result, tuple):
            before = changed.get(job_class.name) or job_class
            changed[job_class.name] = before.switched(variants, on=on)
    if faults:
        raise one_error(faults)
    for name, changed_class in changed.items():
        switch_class(tx, name, changed_class.disabled, by.name)
    rules.use(tx, rules.latest.with_states(changed))


def groups_of(db: Reader, owner: str) -> tuple[str, ...]:
    """None for a removed account."""
    account = user_named(db, owner)
    return tuple(account.groups) if account else ()


def usable_by(db: Reader, owner: str, classes: Callable[[], Classes]) -> UsableClass:
    """Classes that may be suggested; read once one is."""

    @cache
    def own() -> ClassesOfUser:
        return classes().of(owner, groups_of(db, owner))

    return lambda listed: own().usable(listed)
