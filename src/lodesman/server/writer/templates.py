"""What a pilot is given for an attempt: the stored template, filled in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

import msgspec

from lodesman.decide.matching import TaskQueueKey, given_of
from lodesman.decide.matching.submit_pool import without_stations
from lodesman.languages.jobs import (
    ATTRIBUTES,
    JobSpec,
    ParametricMembers,
    Record,
    Template,
    read_retry,
    spec_from_json,
)
from lodesman.languages.jobs.members import is_numbered, value_at
from lodesman.server.store import Reader
from lodesman.server.store.read.jobs import stored_members, stored_template
from lodesman.server.store.write.attempts import ClaimedAttempt
from lodesman.server.store.write.jobs import Fill
from lodesman.wire.pilots import AttemptWork, Limits, Payload, PayloadFile


class Upload(NamedTuple):
    """An uploaded input file."""

    sha256: str
    size: int
    executable: bool = False
    modified: int = 0


Uploads = Mapping[str, Upload]
_RUN = attrgetter(*Payload.__struct_fields__)


def make_payload(spec: JobSpec, uploads: Uploads) -> AttemptWork:
    """The job as pilots get it, without id and attempt. `uploads`: by name in InputSandbox, complete."""
    limits = Limits(
        norm_cpu_seconds=spec.norm_cpu_seconds,
        cpu_seconds=0,
        wall_seconds=spec.wall_seconds,
        memory_mb=spec.memory_mb,
        output_mb=spec.max_output_mb,
    )
    inputs: dict[str, PayloadFile] = {}
    for name in spec.input_sandbox:  # of members it may be there twice
        sha256, size, executable, modified = uploads[name]
        is_folder = name.endswith("/")
        file = name.rstrip("/").rpartition("/")[2] + ("/" if is_folder else "")
        url = f"/v1/sandboxes/{sha256}"
        payload_file = PayloadFile(
            file, url, sha256, size, is_folder, executable, 0 if is_folder else modified
        )
        inputs.setdefault(file, payload_file)
    return AttemptWork(Payload(*_RUN(spec)), list(inputs.values()), limits, spec.exclusive)


class _StoredJob(NamedTuple):
    spec: JobSpec
    uploads: Uploads


_IN_KEY = frozenset(TaskQueueKey.__dataclass_fields__) & frozenset(JobSpec.__struct_fields__)


def stored_job(db: Reader, template: int, key: TaskQueueKey, requirements: str) -> _StoredJob:
    """Uploads are known by the last part of their paths, unless there are placeholders."""
    fill, max_attempts, body, retry, _ = stored_template(db, template)
    content = msgspec.json.decode(body)
    if fill == Fill.ALL:
        uploads = {name: Upload(*file) for name, file in content["uploads"].items()}
        return _StoredJob(spec_from_json(content["spec"]), uploads)
    spec = content["spec"]
    rest, stations = without_stations(given_of(requirements))
    fields = {name: spec[name] for name in spec if name not in _IN_KEY}
    fields |= {name: getattr(key, name) for name in _IN_KEY}
    fields |= {
        "input_sandbox": tuple(file["name"] for file in content["input"]),
        "wall_seconds": content["limits"]["wall_seconds"],
        "max_output_mb": content["limits"]["output_mb"],
        "exclusive": content["exclusive"],
        "max_attempts": max_attempts,
        "retry_on": (rule := read_retry(retry)).on,
        "retry_memory_factor": rule.memory_factor,
        "requirements": rest,
        "stations": stations,
    }
    uploads = {
        file["name"]: Upload(
            file["sha256"], file["size"], file.get("executable", False), file.get("modified", 0)
        )
        for file in content["input"]
    }
    return _StoredJob(msgspec.convert(fields, JobSpec), uploads)


_DEFAULTS = {name: getattr(JobSpec(executable=""), name) for name in JobSpec.__struct_fields__}


def record_of_spec(spec: JobSpec, group: str) -> Record:
    """Without defaults; placeholders are not filled."""
    record: Record = {}
    for attribute in ATTRIBUTES:
        value = group if attribute.field == "group" else getattr(spec, attribute.field, None)
        value = list(value) if isinstance(value, tuple) else value
        if isinstance(value, Mapping):
            value = {name: list(item) if isinstance(item, tuple) else item for name, item in value.items()}
        if value not in (None, [], _DEFAULTS.get(attribute.field)):
            record[attribute.name] = value
    return {**record, **spec.deferred}


def usual_values() -> Record:
    """Defaults of a job."""
    values = {attribute.name: _DEFAULTS.get(attribute.field) for attribute in ATTRIBUTES}
    return {name: value for name, value in values.items() if isinstance(value, (bool, int, str)) and value}


# Bytes of text of templates, and of members of arrays (which take several times as much in memory).
_BODY_BYTES = 32 << 20
ARRAY_BYTES = 64 << 20
# What a value takes besides its text.
OVERHEAD = 512

V = TypeVar("V")


class ValueCache(Generic[V]):
    """Recently used values, by number."""

    def __init__(self, make: Callable[[int], tuple[V, int]], *, most_bytes: int) -> None:
        """`make` gives a value and its size in bytes. The newest is always kept: a large one is not made again for
        each claim.
        """
        self._make = make
        self._most_bytes = most_bytes
        self._values: OrderedDict[int, tuple[V, int]] = OrderedDict()
        self.bytes = 0

    def get(self, number: int) -> V:
        """A value from memory, or made."""
        entry = self._values.get(number)
        if entry is not None:
            self._values.move_to_end(number)
            return entry[0]
        entry = self._values[number] = self._make(number)
        self._count(entry[1] + OVERHEAD)
        return entry[0]

    def grew(self, number: int, by: int) -> None:
        """The value asked for last takes more room."""
        value, size = self._values[number]
        self._values[number] = value, size + by
        self._count(by)

    def _count(self, more: int) -> None:
        self.bytes += more
        while self.bytes > self._most_bytes and len(self._values) > 1:
            _, (_, size) = self._values.popitem(last=False)
            self.bytes -= size + OVERHEAD


class _Array(NamedTuple):
    base: int  # the first id
    members: ParametricMembers
    is_numbered: bool  # their values are their indexes
    fillers: dict[int, tuple[Template, Uploads]]  # templates ready to be filled


class Templates:
    """Renders claims as JSON. Holds a read connection: for one thread."""

    def __init__(self, db: Reader) -> None:
        self._db = db
        self._bodies = ValueCache(self._read_body, most_bytes=_BODY_BYTES)
        self._arrays = ValueCache(self._read_array, most_bytes=ARRAY_BYTES)

    def render(self, claimed: list[ClaimedAttempt], *, drain: bool) -> bytes:
        """The body of the answer to a claim."""
        jobs = b",".join([self._job(job) for job in claimed])
        return b'{"jobs":[' + jobs + b'],"drain":' + (b"true}" if drain else b"false}")

    def _job(self, claimed: ClaimedAttempt) -> bytes:
        fill, body = self._bodies.get(claimed.template_id)
        if not fill:
            return b'{"id":%d,"attempt":%d,' % (claimed.job_id, claimed.attempt) + body[1:]
        array = self._arrays.get(claimed.submission_id)
        index = claimed.job_id - array.base
        if array.is_numbered:
            index = value_at(array.members, index)
        if fill == Fill.ALL:
            body = self._filled(claimed, array, body)
        return b'{"id":%d,"attempt":%d,"index":%d,' % (claimed.job_id, claimed.attempt, index) + body[1:]

    def _filled(self, claimed: ClaimedAttempt, array: _Array, body: bytes) -> bytes:
        filler = array.fillers.get(claimed.template_id)
        if filler is None:
            stored = msgspec.json.decode(body)
            files = {name: Upload(*file) for name, file in stored["uploads"].items()}
            filler = Template(spec_from_json(stored["spec"]), array.members), files
            array.fillers[claimed.template_id] = filler
            self._arrays.grew(claimed.submission_id, len(body) + OVERHEAD)
        template, uploads = filler
        spec = template.expand(claimed.job_id - array.base, claimed.job_id)
        return msgspec.json.encode(make_payload(spec, uploads))

    def _read_body(self, template_id: int) -> tuple[tuple[int, bytes], int]:
        template = stored_template(self._db, template_id)
        body = template.body.encode()
        return (template.fill, body), len(body)

    def _read_array(self, submission_id: int) -> tuple[_Array, int]:
        base, text = stored_members(self._db, submission_id)
        members = msgspec.json.decode(text, type=ParametricMembers)
        return _Array(base, members, is_numbered(members), {}), len(text)
