"""What defaults and a job class give to jobs, and hold them against, before any job says a word: worked out once for
each variant of one version of the classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from lodesman.decide.submission.native_texts import Path, canonical, canonical_snapshot, flat
from lodesman.decide.submission.resolution import Origin, ResolvedRecord, ValueSource
from lodesman.decide.submission.shapes import Shape, ShapePlan, plan_of
from lodesman.languages.gridengine.complexes import Complexes
from lodesman.languages.jobclass import Classes, ClassSnapshot, JobClass, JobValues
from lodesman.languages.jobclass.classes import ClassesOfUser
from lodesman.languages.jobs.record import Record
from lodesman.wire.jobs import Notice

_MOST_KEPT: Final = 100
# Letters of a variant: one of 64 K of them would be kept in 8 MB.
_LONGEST: Final = 4_096
_BY_DEFAULT: Final = Origin(step=ValueSource.DEFAULT)
_BY_CLASS: Final = Origin(step=ValueSource.CLASS)


class GivenValues(Struct, frozen=True, kw_only=True):
    """What jobs have without a word of theirs; all values are canonical."""

    snapshot: ClassSnapshot | None  # as the class has it
    held: ClassSnapshot | None  # what the jobs are held against
    defaults: JobValues  # of the system
    values: JobValues  # of the class
    default_writers: Mapping[Path, Origin]
    writers: Mapping[Path, Origin]
    notices: tuple[Notice, ...]
    shapes: dict[Shape, ShapePlan]  # what came of records so far
    size: int = 0  # letters that the class gives
    text: str = ""  # of the snapshot, as it is stored

    def keep_shape(self, shape: Shape, record: Record, result: ResolvedRecord) -> None:
        """Keep what the six steps made of a record, without JSV and edits."""
        if self.held is None or sum(map(len, shape)) > _LONGEST:
            return
        plan = plan_of(record, result, self.held, {**self.defaults, **self.values})
        if plan is not None:
            if len(self.shapes) >= _MOST_KEPT:
                self.shapes.clear()
            self.shapes[shape] = plan


def give_values(snapshot: ClassSnapshot | None, defaults: JobValues, complexes: Complexes) -> GivenValues:
    """Raises UnreadableValue."""
    of_system, notices = canonical(defaults, complexes)
    of_class, more = canonical(snapshot.values, complexes) if snapshot else ({}, ())
    return GivenValues(
        snapshot=snapshot,
        held=canonical_snapshot(snapshot, complexes) if snapshot else None,
        defaults=of_system,
        values=of_class,
        default_writers=dict.fromkeys(flat(of_system), _BY_DEFAULT),
        writers=dict.fromkeys(flat(of_class), _BY_CLASS),
        notices=(*notices, *more),
        shapes={},
        size=snapshot.size if snapshot else 0,
        text=snapshot.to_json() if snapshot else "",
    )


class PreparedClasses:
    """One version of all job classes. What is worked out is kept until there is another version, which has an object of
    its own. Any thread may use it.
    """

    __slots__ = ("_kept", "classes")

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self._kept: dict[str, GivenValues] = {}  # by `class.variant`, "" for no class

    def of(self, user: str, groups: Collection[str]) -> ClassesOfUser:
        """As `Classes.of`."""
        return self.classes.of(user, groups, self._snapshot)

    def _snapshot(self, job_class: JobClass, variant: str) -> ClassSnapshot:
        kept = self._kept.get(f"{job_class.name}.{variant}")
        return job_class.snapshot(variant) if kept is None or kept.snapshot is None else kept.snapshot

    def size_of(self, snapshot: ClassSnapshot) -> int:
        """Letters that it gives to a job."""
        kept = self._find(snapshot)
        return snapshot.size if kept is None else kept.size

    def text_of(self, snapshot: ClassSnapshot) -> str:
        """As it is stored with a job."""
        kept = self._find(snapshot)
        return snapshot.to_json() if kept is None else kept.text

    def _find(self, snapshot: ClassSnapshot | None) -> GivenValues | None:
        kept = self._kept.get("" if snapshot is None else snapshot.name)
        return None if kept is None or kept.snapshot is not snapshot else kept

    def given(self, snapshot: ClassSnapshot | None) -> GivenValues:
        """What a snapshot from `of` gives to jobs. Raises UnreadableValue."""
        kept = self._find(snapshot)
        if kept is None:
            kept = give_values(snapshot, self.classes.defaults, self.classes.vocabulary.complexes)
            if kept.size <= _LONGEST:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept["" if snapshot is None else snapshot.name] = kept
        return kept
