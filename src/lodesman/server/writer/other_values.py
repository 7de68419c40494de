"""What a waiting job becomes by new values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from lodesman.base.errors import InvalidJob
from lodesman.decide.submission.prepared_classes import PreparedClasses
from lodesman.decide.submission.resolution import ValueSource
from lodesman.decide.submission.resolve import DraftRecord, asked_class, full_name, with_class
from lodesman.decide.submission.waiting import (
    ASKED,
    FROM_CLASS,
    changed_attributes,
    changed_origins,
    origins_of_new_class,
    own_record,
    refuse_change,
)
from lodesman.languages import jobs
from lodesman.languages.jobclass import Classes, snapshot_from_json
from lodesman.languages.jobs.attributes import PARAMETERS
from lodesman.server.jsv import check_modification
from lodesman.server.store import Reader
from lodesman.server.store.read.jobs import ChangeableJobs, description_of
from lodesman.server.writer.job_classes import groups_of
from lodesman.server.writer.resolving import Resolver
from lodesman.server.writer.templates import record_of_spec, usual_values
from lodesman.wire.jobs import Resolution
from lodesman.wire.jsv import JsvSection

_FIXED: Final = {
    "input_sandbox": "the files of a job are uploaded when it is submitted",
    **dict.fromkeys(("group", "owner", "vo"), "it decides whose the job is"),
    **dict.fromkeys(
        ("after", "after_ok", "on_parent_failure"), "what a job waits for is said when it is submitted"
    ),
}
_CLASS: Final = "JobClass"
_VARIANT: Final = "Variant"


class OtherValues:
    """New values for waiting jobs; None takes an attribute away."""

    def __init__(
        self, values: jobs.Record, db: Reader, classes: Classes, jsv: JsvSection, *, by: str
    ) -> None:
        """`jsv` does not verify changes. `by`: who changes. Raises InvalidJob."""
        self.given = {_attribute_of(name).name: value for name, value in values.items()}
        self._spec = _read(self.given)
        self._db = db
        self._classes = classes
        self._jsv = jsv
        self._by = by

    def of_job(
        self, kind: ChangeableJobs, before: jobs.JobSpec, resolutions: Sequence[Resolution]
    ) -> tuple[jobs.JobSpec, Resolution | None]:
        """The changed job, judged by its class as it was, or by its new class; and what that made of it.
        `resolutions`: of before. Raises InvalidJob, Forbidden.
        """
        old, complexes = record_of_spec(before, kind.group), self._classes.vocabulary.complexes
        names = [name for name in self.given if name not in (_CLASS, _VARIANT)]
        after, refusal, made = _with_values(before, self._spec, names), None, next(iter(resolutions), None)
        if self._is_other_class(before):
            self._need_same_origins(resolutions)
            after, made = self._of_class(kind, after, made)
        else:
            snapshot = snapshot_from_json(made.snapshot) if made and made.snapshot else None
            refusal = refuse_change(old, record_of_spec(after, kind.group), snapshot, complexes)
            made = made and replace(made, origins=changed_origins(made.origins, names, self._by))
        if self._jsv.is_set:
            changed = changed_attributes(old, record_of_spec(after, kind.group), complexes)
            check_modification(changed, self._jsv.allowed_modifications)
        if refusal is not None:
            raise refusal.error
        if not after.executable:
            raise InvalidJob("Executable is missing.", attribute="Executable")
        return after, made

    def _need_same_origins(self, resolutions: Sequence[Resolution]) -> None:
        paths = [
            {(path, origin in FROM_CLASS) for path, origin in resolution.origins.items()}
            for resolution in resolutions
        ]
        differing = sorted({path for other in paths for path, _ in paths[0] ^ other})
        path = next((name for name in differing if name.partition(".")[0] not in self.given), "")
        if path:
            raise InvalidJob(
                f"JobClass: of these jobs, which are alike, some say {path} themselves, and others have it of their class.",
                hint=f"Give all of them their {path} in the same change, or delete them and submit them again.",
                attribute=_CLASS,
            )

    def _class(self, job: jobs.JobSpec) -> tuple[str, str]:
        """Each "" if not named."""
        name = self._spec.job_class if _CLASS in self.given else job.job_class
        return name, self._spec.variant

    def _is_other_class(self, job: jobs.JobSpec) -> bool:
        if not {_CLASS, _VARIANT} & self.given.keys():
            return False
        name, variant = self._class(job)
        requested = asked_class(with_class({}, name, variant)) or self._classes.default_jc
        now = full_name(f"{job.job_class}.{job.variant}" if job.job_class else "")
        return full_name(requested) != now or bool(variant and not name)

    def _of_class(
        self, kind: ChangeableJobs, job: jobs.JobSpec, made: Resolution | None
    ) -> tuple[jobs.JobSpec, Resolution | None]:
        """Values as if submitted now, with its own."""
        whole, origins = record_of_spec(job, kind.group), made.origins if made else {}
        explicit = {name for name, value in self.given.items() if value is not None}
        explicit |= set() if made else self._described(kind)
        own = own_record(whole, origins, explicit, usual_values())
        usual_name = "JobName" not in explicit and origins.get("JobName") == str(ValueSource.DEFAULT)
        if usual_name:
            own["JobName"] = job.name
        draft = DraftRecord(record=with_class(own, *self._class(job)), usual_name=usual_name)
        resolver = Resolver(PreparedClasses(self._classes), kind.owner, groups_of(self._db, kind.owner))
        record, resolution = resolver.resolve_waiting(draft, ASKED)
        names = (name for name in {**whole, **record} if jobs.by_name(name) or name in PARAMETERS)
        changes = {
            _attribute_of(name).name: record.get(name)
            for name in names
            if whole.get(name) != record.get(name)
        }
        after = _with_values(job, _read(changes), changes)
        if resolution is not None:
            resolution = replace(
                resolution, origins=origins_of_new_class(resolution.origins, origins, self.given, self._by)
            )
        return after, resolution

    def _described(self, kind: ChangeableJobs) -> set[str]:
        """The description of a batch is not kept."""
        _, text, count, is_array, first, last = description_of(self._db, kind.submission)
        if not text or not first <= kind.template <= last or not (is_array or count == 1):
            return set()
        attributes = map(jobs.by_name, msgspec.json.decode(text))
        return {attribute.name for attribute in attributes if attribute} - self.given.keys()


def _read(values: jobs.Record) -> jobs.JobSpec:
    """Defaults for None."""
    present = {name: value for name, value in values.items() if value is not None}
    return jobs.read_job(present, whole=False).spec if present else jobs.JobSpec(executable="")


def _with_values(job: jobs.JobSpec, values: jobs.JobSpec, names: Iterable[str]) -> jobs.JobSpec:
    spelled = {_attribute_of(name).field for name in names}
    deferred = {
        name: raw
        for name, raw in job.deferred.items()
        if not (attribute := jobs.by_name(name)) or attribute.field not in spelled
    }
    return replace(job, **{field: getattr(values, field) for field in spelled}, deferred=deferred)


def _attribute_of(name: str) -> jobs.Attribute:
    attribute = jobs.by_name(name)
    if attribute is None:
        raise InvalidJob(
            f"{name[:80]}: waiting jobs have no such attribute that could be changed.",
            hint="The members of an array stay as they are, and so do attributes that mean nothing here.",
            attribute=name[:80],
        )
    if attribute.field in _FIXED:
        raise InvalidJob(
            f"{attribute.name} cannot be changed: {_FIXED[attribute.field]}.",
            hint="Delete the job and submit it again.",
            attribute=attribute.name,
        )
    return attribute
