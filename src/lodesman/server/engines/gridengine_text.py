"""What Grid Engine says, as values.

What cannot be an answer of the command raises BackendFault. An odd record is left out, so that its pilot is
unknown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from msgspec import Struct

from lodesman.base.errors import BackendFault
from lodesman.server.engines.backend import BatchLoad, CancelOutcome, NativeState

PREFIX: Final = "lode-"
"""What the names of our jobs begin with; the submission follows."""

_ARGUMENT_BYTES: Final = 100_000  # of one command, that all systems take
_MOST_CHARACTERS: Final = 128 << 20
_TERSE: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,9})-([0-9]{1,9}):([0-9]{1,9})")
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}):([0-9]{1,9}))?")
_ACCOUNT: Final = re.compile(r"^lodesman-account (\S+)$", re.MULTILINE)
_NOTE: Final = re.compile(r"lodesman-removed ([A-Za-z0-9_]{1,48}) ([0-9]{1,10})\.([0-9]{1,9})\.removed")
_REASON: Final = re.compile(r"error reason\s+([0-9]{1,9}):\s+(.*)")
_WHEN: Final = re.compile(r"^[0-9/]+ [0-9:.]+ \[[0-9:]+\]: ")
_TASK: Final = r"(?P<job>[0-9]{1,10})\.(?P<task>[0-9]{1,9})"
_DELETED: Final = re.compile(
    rf"\S+ has deleted job(?:-array task {_TASK}|-array tasks (?P<tasks>\S+) of job (?P<of>[0-9]+)| (?P<all>[0-9]+))"
)
_REGISTERED: Final = re.compile(
    rf"\S+ has registered the job(?:-array task {_TASK}"
    r"|-array tasks (?P<tasks>\S+) of job (?P<of>[0-9]+)| (?P<all>[0-9]+)) for deletion"
)
_ALREADY: Final = re.compile(rf"job (?:{_TASK}|(?P<all>[0-9]+)) is already in deletion")
_FIELDS: Final = 45  # of a line of accounting(5)
# sge_status(5): what can be the end of a job of ours.
_FAILED: Final = {
    8: "in prolog", 15: "in epilog", 19: "before writing exit_status", 21: "in recognizing job",
    26: "opening output file", 27: "searching requested shell", 28: "changing to working directory",
    30: "application error returned through the exit code", 37: "qmaster enforced h_rt, h_cpu, or h_vmem limit",
    100: "assumedly after job",
}  # fmt: skip
# States of an instance of a queue in which it starts no job: disabled, unknown, error, orphaned, suspended, ambiguous.
_SHUT: Final = frozenset("duEoDsSCc")

Key = tuple[int, int]
"""Numbers of a job and of its task."""


class TaskRow(NamedTuple):
    """A line of `qstat`: tasks of one job in one state, perhaps ten thousand."""

    job: int
    tasks: tuple[range, ...]
    name: str
    owner: str
    letters: str
    queue: str  # where they run, or what they ask for, '': any
    host: str
    started_at: float | None
    state: NativeState

    def size(self) -> int:
        """How many tasks."""
        return sum(len(numbers) for numbers in self.tasks)


class QueueInstance(Struct, frozen=True, kw_only=True):
    """A queue on a host; `is_open`: it starts jobs."""

    queue: str
    used: int
    reserved: int
    total: int
    is_open: bool


class TaskList(Struct, frozen=True, kw_only=True):
    """An answer of `qstat -xml`. `account`: whose it is, '' if not asked."""

    account: str
    listed: tuple[TaskRow, ...]
    instances: tuple[QueueInstance, ...]


class TaskEnd(Struct, frozen=True, kw_only=True):
    """A task that ended. Without `started_at` it never began."""

    name: str
    host: str = ""
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    word: str = ""
    detail: str = ""


def parse_submission(out: str, count: int) -> int | None:
    """The job that `qsub -terse` names once, for tasks 1 to `count`."""
    matches = [match for line in out.splitlines() if (match := _TERSE.fullmatch(line.strip()))]
    if len(matches) != 1 or matches[0].groups()[1:] != ("1", str(count), "1"):
        return None
    return int(matches[0][1])


def jobs(out: str) -> TaskList:
    """What `qstat -xml` says. Raises BackendFault."""
    head, mark, body = out.partition("<?xml")
    if not mark or len(out) > _MOST_CHARACTERS or "<!" in body:  # it declares no entities
        raise _incredible("qstat", out)
    try:
        root = ET.fromstring(mark + body)  # noqa: S314 - without declarations
    except (ET.ParseError, ValueError):
        raise _incredible("qstat", out) from None
    if root.tag != "job_info" or [part.tag for part in root] != ["queue_info", "job_info"]:
        raise _incredible("qstat", out)
    account = _ACCOUNT.search(head)
    listed = [row for queue, element in _job_lists(root) if (row := _parse_row(element, queue)) is not None]
    instances = [
        instance for element in root.iter("Queue-List") if (instance := _parse_instance(element)) is not None
    ]
    return TaskList(account=account[1] if account else "", listed=tuple(listed), instances=tuple(instances))


def load(jobs: TaskList, queue: str, now: float, mark: str = "") -> BatchLoad:
    """What one answer says of a queue; ours are the account's submissions that begin with `mark`. A job counts
    once, whatever its cores.
    """
    counts: Counter[tuple[bool, NativeState]] = Counter()
    for row in jobs.listed:
        if row.queue == queue or not row.queue or fnmatchcase(queue, row.queue):
            ours = row.owner == jobs.account and row.name.startswith(PREFIX + mark)
            if row.queue or not ours:
                counts[ours, row.state] += row.size()
    here = [instance for instance in jobs.instances if instance.queue == queue]
    is_open = [instance for instance in here if instance.is_open]
    return BatchLoad(
        observed_at=now,
        waiting=counts[True, NativeState.WAITING],
        running=counts[True, NativeState.RUNNING],
        held=counts[True, NativeState.HELD],
        others_waiting=counts[False, NativeState.WAITING],
        others_running=counts[False, NativeState.RUNNING],
        slots=sum(instance.total if instance.is_open else instance.used for instance in here)
        if here
        else None,
        free_cores=sum(max(0, instance.total - instance.used - instance.reserved) for instance in is_open)
        if here
        else None,
    )


@lru_cache(maxsize=256)
def state_of(letters: str) -> NativeState:
    """What the letters of a state mean together: what has a slot runs."""
    if letters == "z":
        return NativeState.ENDED
    if not letters or not set(letters) <= set("hdErtsSTRqw"):
        return NativeState.UNKNOWN
    if set(letters) & set("rtsST"):
        return NativeState.RUNNING
    return NativeState.HELD if set(letters) & set("hE") else NativeState.WAITING


def parse_error_reasons(out: str) -> dict[Key, str]:
    """Why tasks are in the error state, by `qstat -j`."""
    reasons: dict[Key, str] = {}
    job = None
    for line in out.splitlines():
        if line.startswith("====="):
            job = None
        elif line.startswith("job_number:"):
            job = _number(line.partition(":")[2].strip())
        elif job is not None and (match := _REASON.fullmatch(line)):
            reasons[job, int(match[1])] = _WHEN.sub("", match[2]).strip()
    return reasons


def parse_deletions(out: str, keys: Iterable[Key]) -> dict[Key, CancelOutcome]:
    """What `qdel` did with each task: REMOVED or ORDERED by its own words, else FAILED."""
    whole: dict[int, CancelOutcome] = {}
    parts: dict[int, list[tuple[Container[int], CancelOutcome]]] = {}
    patterns = (
        (_DELETED, CancelOutcome.REMOVED), (_REGISTERED, CancelOutcome.ORDERED), (_ALREADY, CancelOutcome.ORDERED),
    )  # fmt: skip
    for line in out.splitlines():
        for pattern, outcome in patterns:
            match = pattern.fullmatch(line.strip())
            words = match.groupdict() if match else {}
            if words.get("all"):
                whole[int(words["all"])] = outcome
            elif words.get("job"):
                parts.setdefault(int(words["job"]), []).append(((int(words["task"]),), outcome))
            elif words.get("of"):
                outcomes = ((tasks, outcome) for tasks in _parse_ranges(words["tasks"]))
                parts.setdefault(int(words["of"]), []).extend(outcomes)
    return {(job, task): _outcome(parts.get(job, ()), task, whole.get(job)) for job, task in keys}


def parse_ends(out: str) -> dict[Key, TaskEnd]:
    """Tasks that ended, by the accounting file, and by our notes of removed waiting ones. Of an account, if the
    first line names one. Half a line is left out.
    """
    account = _ACCOUNT.search(out[:200])
    ends: dict[Key, TaskEnd] = {}
    notes: dict[Key, TaskEnd] = {}
    for line in out.splitlines():
        fields = line.split(":")
        if len(fields) >= _FIELDS and fields[4].startswith(PREFIX):
            if account is None or fields[3] == account[1]:
                _note_record(ends, fields)
        elif note := _NOTE.fullmatch(line):
            removed = TaskEnd(name=PREFIX + note[1], word="deleted", detail="it was deleted before it began")
            notes[int(note[2]), int(note[3])] = removed
    return ends | notes


def without_record(stamp: str) -> TaskEnd:
    """The end of a copy that is listed as finished and has no record."""
    return TaskEnd(name=name(stamp), word="z", detail="it was deleted before it began")


def match_rows(stamps: Mapping[Key, str], listed: Iterable[TaskRow]) -> dict[Key, TaskRow]:
    """The lines that are about pilots: a job of the same number may have another name."""
    tasks_of: dict[int, list[int]] = defaultdict(list)
    for job, task in stamps:
        tasks_of[job].append(task)
    rows: dict[Key, TaskRow] = {}
    for row in listed:
        tasks = tasks_of.get(row.job, [])
        here = tasks if row.size() > len(tasks) else [task for numbers in row.tasks for task in numbers]
        for task in here:
            key = row.job, task
            stamp = stamps.get(key)
            before = rows.get(key)
            if not stamp or name(stamp) != row.name or not any(task in numbers for numbers in row.tasks):
                continue
            if before is None or before.state is NativeState.ENDED:
                rows[key] = row
    return rows


def deletion_words(keys: Iterable[Key]) -> list[list[str]]:
    """The tasks as words of as few `qdel` commands as possible."""
    words: list[str] = []
    first = last = (0, 0)
    for key in [*sorted(keys), (0, 0)]:
        if key != (last[0], last[1] + 1):
            if last != (0, 0):
                words.append(native_id_of(first) if first == last else f"{native_id_of(first)}-{last[1]}")
            first = key
        last = key
    size = _ARGUMENT_BYTES // 24
    return [words[at : at + size] for at in range(0, len(words), size)]


def native_id_of(key: Key) -> str:
    """The native id of a copy."""
    return f"{key[0]}.{key[1]}"


def name(stamp: str) -> str:
    """The name of the job that has the copy with this stamp."""
    return PREFIX + stamp.rpartition("-")[0]


def _job_lists(root: ET.Element) -> Iterator[tuple[str, ET.Element]]:
    running, pending = root
    for part in running:
        if part.tag == "Queue-List":
            name = part.findtext("name", "")
            yield from ((name, element) for element in part.iter("job_list"))
        elif part.tag == "job_list":
            yield "", part
    yield from (("", element) for element in pending.iter("job_list"))


def _parse_row(element: ET.Element, instance: str) -> TaskRow | None:
    words = {child.tag: child.text or "" for child in element}
    job = _number(words.get("JB_job_number", ""))
    tasks = _parse_ranges(words.get("tasks", "") or "1")
    where = instance or words.get("queue_name", "")
    queue, _, host = (where or words.get("hard_req_queue", "")).partition("@")
    if job is None or not tasks or "JB_name" not in words:
        return None
    return TaskRow(
        job=job,
        tasks=tasks,
        name=words["JB_name"],
        owner=words.get("JB_owner", ""),
        letters=words.get("state", ""),
        queue=queue,
        host=host if where else "",
        started_at=_parse_time(words.get("JAT_start_time", "")) if where else None,
        state=state_of(words.get("state", "")),
    )


def _parse_instance(element: ET.Element) -> QueueInstance | None:
    words = {child.tag: child.text or "" for child in element if child.tag != "job_list"}
    used, reserved, total = (_number(words.get(f"slots_{name}", "")) for name in ("used", "resv", "total"))
    queue = words.get("name", "").partition("@")[0]
    if not queue or used is None or reserved is None or total is None:
        return None
    is_open = not _SHUT & set(words.get("state", ""))
    return QueueInstance(queue=queue, used=used, reserved=reserved, total=total, is_open=is_open)


def _note_record(ends: dict[Key, TaskEnd], fields: list[str]) -> None:
    """A task that was started again has several lines; the last one counts."""
    numbers = [_number(fields[at]) for at in (5, 9, 10, 11, 12, 35)]
    job, start, end, failed, status, task = numbers
    if job is None or start is None or end is None or failed is None or status is None or task is None:
        return
    if not start:
        word = f"failed {failed}: {_FAILED.get(failed, 'see sge_status(5)')}"
        detail = f"Grid Engine could not start it ({word})"
        ends[job, task] = TaskEnd(name=fields[4], host=fields[1], word=word, detail=detail)
        return
    word = f"exit_status {status}"
    if failed:
        word = f"failed {failed}: {_FAILED.get(failed, 'see sge_status(5)')}; {word}"
    ends[job, task] = TaskEnd(
        name=fields[4],
        host=fields[1],
        started_at=float(start),
        ended_at=float(end),
        exit_code=None if failed and not status else status,
        word=word,
        detail=f"Grid Engine ended it ({word})" if failed else "",
    )


def _outcome(
    parts: Iterable[tuple[Container[int], CancelOutcome]], task: int, whole: CancelOutcome | None
) -> CancelOutcome:
    return next((outcome for tasks, outcome in parts if task in tasks), whole or CancelOutcome.FAILED)


@lru_cache(maxsize=4_096)
def _parse_ranges(text: str) -> tuple[range, ...]:
    """Numbers of tasks, such as `1-4:1,7`; empty for anything else."""
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return ()
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or not step:
            return ()
        ranges.append(range(first, last + 1, step))
    return tuple(ranges)


def _number(text: str) -> int | None:
    return int(text) if len(text) <= 15 and text.isascii() and text.isdigit() else None


@lru_cache(maxsize=4_096)
def _parse_time(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _incredible(command: str, out: str) -> BackendFault:
    shown = " ".join(out[:120].split()) or "nothing"
    return BackendFault(
        f"The answer of {command} is not to be believed; it begins with: {shown}.", transient=True
    )
