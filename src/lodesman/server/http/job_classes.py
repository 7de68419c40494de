"""Job classes over HTTP: texts are judged here, and hold from the commit on."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import islice

from lodesman.base.errors import InvalidRequest
from lodesman.decide.submission.native_table import IS_KEPT, REMARKS
from lodesman.languages.jobclass import Classes, JobClass, write_class
from lodesman.languages.jobclass.attributes import kind_of
from lodesman.languages.jobclass.editing import Author, ClassEdit, edit_classes, error_of, one_error
from lodesman.languages.jobclass.model import DEFAULT_VARIANT
from lodesman.languages.jobclass.rights import LONGEST_SHOWN, MOST_NAMED, no_class, split_name
from lodesman.languages.jobclass.specifiers import write_base
from lodesman.languages.jobs.record import shown
from lodesman.server.http.auth import sees_all
from lodesman.server.http.dispatch import Request, serves
from lodesman.server.live.core import Core
from lodesman.server.live.rules import edit_agreed
from lodesman.server.store.job_classes import ClassChange, class_changes
from lodesman.server.store.journal import Change, Command
from lodesman.server.writer.job_classes import (
    remove_classes,
    set_classes,
    switch_classes,
)
from lodesman.server.writer.resolving import value_problem
from lodesman.wire import calls
from lodesman.wire.accounts import Principal
from lodesman.wire.call import Nothing
from lodesman.wire.job_classes import (
    ClassAt,
    ClassesChanged,
    ClassInFull,
    ClassNoticeRow,
    ClassRow,
    ClassTextBody,
    DropClassesBody,
    JobClasses,
    SwitchClassesBody,
)
from lodesman.wire.requests import AllQuery

_MEANINGLESS = {name: REMARKS[name] for name in IS_KEPT}


@serves(calls.JOB_CLASSES)
async def _classes(core: Core, request: Request[AllQuery, Nothing]) -> JobClasses:
    now, query = core.job_classes.now, request.query
    places = [*islice(_places(now, query.after), query.limit + 1)]
    some, changes = places[: query.limit], class_changes(core.reader)
    more = len(places) > len(some)
    return JobClasses(
        classes=[_row(now.by_name[name], variant, changes.get(name)) for name, variant in some],
        default_jc=now.default_jc, enforce_jc=now.enforce_jc, more=more, cursor=".".join(some[-1]) if more else "",
    )  # fmt: skip


def _places(classes: Classes, after: str) -> Iterator[tuple[str, str]]:
    """After one of them."""
    name, variant = split_name(after)
    if after and ("." not in after or variant not in _variants(classes, name)):
        raise InvalidRequest("`after` is no cursor of this list.", hint="Give `cursor` of the page before.")
    names = sorted(classes.by_name)
    for each in names[bisect_left(names, name) :]:
        variants = _variants(classes, each)
        begin = variants.index(variant) + 1 if after and each == name else 0
        yield from ((each, following) for following in variants[begin:])


def _variants(classes: Classes, name: str) -> list[str]:
    """The default first."""
    job_class = classes.by_name.get(name)
    variants = job_class.variants if job_class else ()
    return sorted(variants, key=lambda variant: (variant != DEFAULT_VARIANT, variant))


def _row(job_class: JobClass, variant: str, change: ClassChange | None) -> ClassRow:
    return ClassRow(
        job_class.name, variant, job_class.state(variant).value,
        owner=[shown(name, LONGEST_SHOWN) for name in job_class.owner[:MOST_NAMED]], revision=job_class.revision,
        changed_at=change.at if change else None, changed_by=change.by if change else "",
        more_owners=max(0, len(job_class.owner) - MOST_NAMED),
    )  # fmt: skip


@serves(calls.JOB_CLASS)
async def _class(core: Core, request: Request[ClassAt, Nothing]) -> ClassInFull:
    return await asyncio.to_thread(_in_full, core.job_classes.now, request.query.name, request.query.variant)


def _in_full(now: Classes, name: str, variant: str) -> ClassInFull:
    found = now.find(f"{name}.{variant}")
    if not isinstance(found, tuple):
        raise error_of(no_class(name) if variant == DEFAULT_VARIANT else found)
    job_class = found[0]
    values = {
        name: write_base(kind_of(name), value)
        for name, value in job_class.snapshot(variant).attributes.items()
    }
    return ClassInFull(
        name=job_class.name, text=write_class(job_class), revision=job_class.revision, disabled=sorted(job_class.disabled),
        conflicts=now.conflicts_of(job_class.name), variant=variant, values=values,
    )  # fmt: skip


@serves(calls.SET_CLASSES)
async def _set_classes(core: Core, request: Request[Nothing, ClassTextBody]) -> ClassesChanged:
    body, by = request.body, _author(request.who)
    how = "either" if body.trial else body.how
    groups = frozenset(core.policy.config.groups)

    def edit(before: Classes) -> ClassEdit:
        complexes = before.vocabulary.complexes
        problem = partial(value_problem, complexes) if complexes else None
        return edit_classes(
            before, body.text, by, how, groups=groups, meaningless=_MEANINGLESS, problem=problem
        )

    def command(result: ClassEdit) -> Command[object] | None:
        if result.faults:
            raise one_error(result.faults)
        if body.trial:
            return None
        change = Change(set_classes, core.job_classes, result, by, most=core.limits.job_classes)
        return request.audited(change, "class-changed", ", ".join(result.changed))

    result = await edit_agreed(core, edit, command)
    notices = [
        ClassNoticeRow(notice.job_class, notice.attribute, notice.message, notice.line)
        for notice in result.notices
    ]
    return ClassesChanged(list(result.changed), notices)


@serves(calls.DROP_CLASSES)
async def _drop_classes(core: Core, request: Request[Nothing, DropClassesBody]) -> ClassesChanged:
    names = list(dict.fromkeys(request.body.names))
    change = Change(
        remove_classes,
        core.job_classes,
        core.quotas,
        names,
        _author(request.who),
        tree=core.policy.config.tree,
    )
    await core.commands.run(request.audited(change, "class-removed", ", ".join(names)))
    return ClassesChanged(names)


@serves(calls.SWITCH_CLASSES)
async def _switch_classes(core: Core, request: Request[Nothing, SwitchClassesBody]) -> ClassesChanged:
    names, on = list(dict.fromkeys(request.body.names)), request.body.switch == "enable"
    change = Change(switch_classes, core.job_classes, names, _author(request.who), on=on)
    await core.commands.run(
        request.audited(change, "class-enabled" if on else "class-disabled", ", ".join(names))
    )
    return ClassesChanged(names)


def _author(who: Principal) -> Author:
    return Author(name=who.name, is_manager=sees_all(who))
