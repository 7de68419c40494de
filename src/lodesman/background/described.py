"""The description of a job: the record as it was submitted, with what RFC #7 adds to it put in when it is read.

What is stored stays as it was given. The description of a job in a batch is not stored, unless it says something that
nothing else tells; it is made again of what the job's pilots are given and of the key of its task queue, in the
spelling of the manual: another description of the same job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from lodesman.answers.vocabulary import Form
from lodesman.jobs import ATTRIBUTES, JobSpec, Record, by_name
from lodesman.matching import TaskQueueKey, key_from_json, wanted_of
from lodesman.matching.policy import Policy
from lodesman.store.engine import Reader, only_row

SUBMISSION: Final = "SELECT form, record, count, members IS NOT NULL FROM submission WHERE id = ?"
TASK_QUEUE: Final = "SELECT key, requirements FROM task_queue WHERE id = ?"
TEMPLATE: Final = "SELECT max_attempts, body FROM template WHERE id = ?"
SITES: Final = "SELECT DISTINCT site FROM submit_pool_queue WHERE pool_id = ? ORDER BY site"
UNTOLD: Final[Mapping[str, Any]] = {
    name: getattr(JobSpec(executable=""), name) for name in JobSpec.__struct_fields__
}
# Fields of a job that its key has under the same name.
IN_KEY: Final = frozenset(TaskQueueKey.__dataclass_fields__) & frozenset(JobSpec.__struct_fields__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A description; `form` is the language it was given in, `count` how many jobs it is of.

    `rebuilt`: it was made again.
    """

    form: Form
    record: Record
    count: int = 1
    rebuilt: bool = False


def describe_job(db: Reader, policy: Policy, job: Mapping[str, Any]) -> Described:
    """The description of a job that is there."""
    key, requirements = _key(db, job)
    form, stored, count, parametric = only_row(db, SUBMISSION, (job["submission"],))
    record = msgspec.json.decode(stored) if stored else None
    if not parametric and count > 1 and record is not None:  # the odd ones of a batch, by their indexes
        record = record.get(str(job["id"] - job["base"]))
    rebuilt = record is None
    given = _rebuilt(db, job, key, requirements) if record is None else record
    return Described(
        form=form,
        record=_with_pool(given, key, _sites(db, policy, key)),
        count=count if parametric else 1,
        rebuilt=rebuilt,
    )


def eligible_sites(db: Reader, policy: Policy, job: Mapping[str, Any]) -> list[str]:
    """The sites that a job's description names since it has Requirements (option `add_eligible_sites`)."""
    return _sites(db, policy, _key(db, job)[0]) if policy.add_eligible_sites else []


def _key(db: Reader, job: Mapping[str, Any]) -> tuple[TaskQueueKey, str]:
    text, requirements = only_row(db, TASK_QUEUE, (job["task_queue"],))
    return key_from_json(text), requirements


def _sites(db: Reader, policy: Policy, key: TaskQueueKey) -> list[str]:
    """Those of the queues that served its SubmitPool in the last pass, as far as the job may go there."""
    if not (policy.add_eligible_sites and key.submit_pool):
        return []
    found = (site for (site,) in db.execute(SITES, (key.submit_pool,)))
    return [site for site in found if (not key.sites or site in key.sites) and site not in key.banned_sites]


def _with_pool(given: Record, key: TaskQueueKey, sites: Sequence[str]) -> Record:
    record = dict(given)
    if key.submit_pool:
        _add(record, "submission_pools", "SubmitPool", [*key.submission_pools, key.submit_pool])
    if sites:
        _add(record, "sites", "Site", sites)
    return record


def _add(record: Record, field: str, name: str, values: Sequence[str]) -> None:
    """Give an attribute another value, whatever the description calls it."""
    for given in list(record):
        attribute = by_name(given)
        if attribute is not None and attribute.field == field:
            del record[given]
    record[name] = values[0] if len(values) == 1 and _stands_alone(values[0]) else list(values)


def _stands_alone(name: str) -> bool:
    """Whether a text reads as this one name: commas part names, and blanks around them fall away."""
    return "," not in name and name == name.strip()


def _rebuilt(db: Reader, job: Mapping[str, Any], key: TaskQueueKey, requirements: str) -> Record:
    """The description of a job of a batch, without what is as if it were not given."""
    max_attempts, body = only_row(db, TEMPLATE, (job["template"],))
    given = msgspec.json.decode(body)
    spec = given["spec"]
    fields = {name: spec[name] for name in spec if name not in IN_KEY}
    fields |= {name: getattr(key, name) for name in IN_KEY}
    fields |= {
        "input_sandbox": tuple(one["name"] for one in given["input"]),
        "wall_seconds": given["limits"]["wall_seconds"],
        "max_output_mb": given["limits"]["output_mb"],
        "exclusive": given["exclusive"],
        "max_attempts": max_attempts,
        "requirements": {
            name: values[0] if len(values) == 1 else values
            for name, values in wanted_of(requirements).items()
        },
    }
    return _told(JobSpec(**fields), key.group)


def _told(spec: JobSpec, group: str) -> Record:
    """What is not as if it were left out, under the names of the manual."""
    record: Record = {}
    for attribute in ATTRIBUTES:
        value = group if attribute.field == "group" else getattr(spec, attribute.field, None)
        value = list(value) if isinstance(value, tuple) else value
        if value not in (None, [], UNTOLD.get(attribute.field)):
            record[attribute.name] = value
    return record
