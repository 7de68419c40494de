"""A waiting job beside its class: what is its own, what may change, and who wrote what."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from lodesman.decide.submission.native import values_of
from lodesman.decide.submission.native_texts import changed_paths
from lodesman.decide.submission.resolution import Breach, Origin, SubmissionRefusal, ValueSource
from lodesman.decide.submission.resolve import access_refusal, class_of, violations
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.jobclass import ClassSnapshot
from lodesman.languages.jobs.record import Record

ASKED: Final = "change job"  # what cannot be done, in the words of `SubmissionRefusal`
# origins of values that are not the job's own
FROM_CLASS: Final = frozenset({str(ValueSource.CLASS), str(ValueSource.DEFAULT)})
_CLASS: Final = ("JobClass", "Variant")


def changed_attributes(old: Record, new: Record, complexes: Complexes) -> frozenset[str]:
    """The attributes of Grid Engine that differ."""
    before, after = values_of(old, complexes)[0], values_of(new, complexes)[0]
    changed = {name for name, _ in changed_paths(before, after)}
    return frozenset({*changed, "jc"} if class_of(old) != class_of(new) else changed)


def refuse_change(
    old: Record, new: Record, snapshot: ClassSnapshot | None, complexes: Complexes
) -> SubmissionRefusal | None:
    """Why the class, as the job got it, forbids this change; None if it does not."""
    before, after = values_of(old, complexes)[0], values_of(new, complexes)[0]
    changed = set(changed_paths(before, after))
    origin = Origin(step=ValueSource.CHANGE)
    breaches = [
        Breach(violation=violation, origin=origin)
        for violation in violations(snapshot, after, complexes)
        if (violation.attribute, violation.key) in changed
    ]
    return access_refusal(snapshot, breaches, asked=ASKED) if snapshot and breaches else None


def own_record(
    record: Record, origins: Mapping[str, str], said: Collection[str], usual: Mapping[str, Any]
) -> Record:
    """What of a job came neither from its class nor from the system. `record` has all but what is `usual`. `said`: its
    own attributes whatever `origins` know.
    """
    own = {name: value for name, value in record.items() if name not in _CLASS}
    for path, origin in origins.items():
        name, _, part = path.partition(".")
        if name not in said and origin in FROM_CLASS and name in own:
            left = _without(own[name], part) if part else None
            own = {
                key: left if key == name else content for key, content in own.items() if key != name or left
            }
    for path in (*said, *(path for path, origin in origins.items() if origin not in FROM_CLASS)):
        if path not in record and path not in _CLASS and path in usual:
            own[path] = usual[path]
    return own


def _without(value: Any, part: str) -> Any:
    if isinstance(value, Mapping):
        return {name: entry for name, entry in value.items() if name != part}
    return (
        [entry for entry in value if str(entry).partition("=")[0] != part]
        if isinstance(value, list)
        else None
    )


def changed_origins(origins: Mapping[str, str], names: Iterable[str], by: str) -> dict[str, str]:
    """Who wrote what after a user's change."""
    of_change = dict.fromkeys(names, f"{ValueSource.CHANGE} by {by}")
    return {
        path: writer for path, writer in origins.items() if path.partition(".")[0] not in of_change
    } | of_change


def origins_of_new_class(
    found: Mapping[str, str], before: Mapping[str, str], names: Iterable[str], by: str
) -> dict[str, str]:
    """Who wrote what of a job that got another class, which wrote `found`."""
    own = str(ValueSource.COMMAND_LINE)
    kept = {
        path: before.get(path, writer) if writer == own and before.get(path) not in FROM_CLASS else writer
        for path, writer in found.items()
    }
    return changed_origins(kept, {*names, *_CLASS} if "JobClass" in found else names, by)
