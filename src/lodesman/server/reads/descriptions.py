"""Names and descriptions of jobs, made when they are read as far as they are not stored.

A description is the record as submitted, with what RFC #7 adds; in a batch it is made of the job's template and the
key of its task queue. A name like `render_%n` is stored once for all jobs of an array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from lodesman.base.errors import LodesmanError
from lodesman.decide.matching import TaskQueueKey
from lodesman.decide.matching.policy import Policy
from lodesman.languages.jobs import JobSpec, ParametricMembers, Record, Template, by_name
from lodesman.languages.jobs.record import text_of
from lodesman.languages.jobs.values import environment
from lodesman.server.store import Reader
from lodesman.server.store.read.jobs import (
    description_of,
    events_of_job,
    members_of,
    names_in_templates,
    resolution_of,
    stored_members,
)
from lodesman.server.store.submit_pools import sites_of_pool
from lodesman.server.store.task_queues import key_and_requirements
from lodesman.server.writer.templates import record_of_spec, stored_job, usual_values
from lodesman.wire.jobs import Job, JobDescription, Resolution

# Of names of members.
_KEEP = 64
# Submissions that list more than this are not read for the sake of a name.
_MOST_BYTES = 1 << 20
_ENVIRONMENT, _HIDDEN = "Environment", "(hidden)"


def describe_job(db: Reader, policy: Policy, job: Job) -> tuple[Record, JobDescription]:
    """The record of a stored job, and its description without the text."""
    key, requirements = key_and_requirements(db, job.task_queue)
    form, text, count, is_parametric, first, last = description_of(db, job.submission)
    changed = not first <= job.template <= last
    record = msgspec.json.decode(text) if text and not changed else None
    if not is_parametric and count > 1 and record is not None:
        record = record.get(str(job.id - job.base))  # the odd ones of a batch, by their indexes
    members = stored_members(db, job.submission)[1] if is_parametric else None
    full_record = _rebuilt(db, job, key, requirements, members) if record is None else dict(record)
    if key.submit_pool:
        _put(full_record, "submission_pools", "SubmitPool", [*key.submission_pools, key.submit_pool])
    sites = _sites(db, key) if policy.add_eligible_sites else []
    if sites:
        _put(full_record, "sites", "Site", sites)
    jobs = count if is_parametric and not changed else 1
    made = resolution_of(db, job.submission, job.template, 0 if is_parametric else job.id - job.base)
    if made is not None and changed:
        made = msgspec.structs.replace(made, origins=_origins(db, job, made))
    values, defaults = dict[str, str](), dict[str, str]()
    if made is not None:
        values = _flat(_rebuilt(db, job, key, requirements, members))
        named = {name.partition(".")[0] for name in (*values, *made.origins)}
        defaults = {name: text_of(value) for name, value in usual_values().items() if name not in named}
    return full_record, JobDescription(
        id=job.id, form=form, text="", jobs=jobs, rebuilt=record is None, resolution=made, values=values,
        defaults=defaults,
    )  # fmt: skip


def _origins(db: Reader, job: Job, made: Resolution) -> dict[str, str]:
    by: dict[str, str] = {}
    for event in events_of_job(db, job):
        if event.event == "Changed":
            names = event.attributes or ()
            by = {} if "JobClass" in names or "Variant" in names else by
            by |= dict.fromkeys(names, f"change by {event.name or 'a user'}")
    return {name: origin for name, origin in made.origins.items() if name.partition(".")[0] not in by} | by


def _flat(record: Record) -> dict[str, str]:
    """Values as text, by the names that origins have."""
    texts: dict[str, str] = {}
    for name, value in record.items():
        if name == "Consumables" and isinstance(value, list):
            pairs = [str(item).partition("=") for item in value]
            texts |= {f"{name}.{key}": text for key, _, text in pairs}
        elif isinstance(value, dict):
            texts |= {f"{name}.{key}": text_of(item) for key, item in value.items()}
        elif isinstance(value, list):
            texts[name] = ", ".join(map(text_of, value))
        else:
            texts[name] = text_of(value)
    return texts


def hide_environment(record: Record, description: JobDescription) -> tuple[Record, JobDescription]:
    """The record and the description without the values of environment variables, which may be tokens."""
    values = {
        name: _HIDDEN if name.partition(".")[0] == _ENVIRONMENT else text
        for name, text in description.values.items()
    }
    hidden = dict(record)
    for name, value in record.items():
        attribute = by_name(name)
        if attribute is not None and attribute.name == _ENVIRONMENT:
            hidden[name] = dict.fromkeys(environment(value), _HIDDEN)
    return hidden, msgspec.structs.replace(description, values=values)


def eligible_sites(db: Reader, policy: Policy, job: Job) -> list[str]:
    """The sites that a job's description names for its Requirements (option `add_eligible_sites`)."""
    return _sites(db, key_and_requirements(db, job.task_queue)[0]) if policy.add_eligible_sites else []


def _sites(db: Reader, key: TaskQueueKey) -> list[str]:
    """Sites that served its SubmitPool in the last pass and to which the job may go."""
    sites = sites_of_pool(db, key.submit_pool) if key.submit_pool else ()
    return [site for site in sites if (not key.sites or site in key.sites) and site not in key.banned_sites]


def _put(record: Record, field: str, name: str, values: Sequence[str]) -> None:
    """Give an attribute another value, whatever the description calls it."""
    for written in list(record):
        attribute = by_name(written)
        if attribute is not None and attribute.field == field:
            del record[written]
    # A text reads as one name unless a comma parts it or blanks around it fall away.
    first, *others = values
    record[name] = list(values) if others or "," in first or first != first.strip() else first


def _rebuilt(db: Reader, job: Job, key: TaskQueueKey, requirements: str, members: str | None) -> Record:
    """Of a job of a batch, or of a changed one."""
    spec = stored_job(db, job.template, key, requirements).spec
    if members is not None:
        template = Template(spec, msgspec.json.decode(members, type=ParametricMembers))
        spec = template.expand(job.id - job.base, job.id)
    return record_of_spec(spec, key.group)


class MemberNames:
    """Fills the placeholders of names. Belongs to the thread of its read connection."""

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._template = lru_cache(_KEEP)(self._read_template)

    def fill(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """The jobs, each with its own name; one that cannot be filled stays."""
        all_jobs = list(jobs)
        # A submission has no doubled percent signs in the name of all its members; templates have.
        templates = {job.template for job in all_jobs if not job.name or "%" in job.name}
        own = names_in_templates(self._db, templates) if templates else {}
        for job in all_jobs:
            written = own.get(job.template) or ""
            name = job.name or written
            template = self._template(job.submission, written) if "%" in written else None
            if template is not None:
                with suppress(LodesmanError):
                    name = template.expand(job.id - job.base, job.id).name
            yield job if name == job.name else msgspec.structs.replace(job, name=name)

    def _read_template(self, submission: int, name: str) -> Template | None:
        members = members_of(self._db, submission, most_bytes=_MOST_BYTES)
        if members is None:
            return None
        spec = JobSpec(executable="-", name=name)
        return Template(spec, msgspec.json.decode(members, type=ParametricMembers))
