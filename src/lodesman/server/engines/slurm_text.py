"""What Slurm's commands print, as values.

Names and reasons may hold anything, newlines too, so a mark drawn anew ends each field of a list. A list without
its titles, or with half a record at its end, is not believed; an odd record is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from lodesman.base.errors import BackendFault
from lodesman.server.engines.backend import BatchLoad, NativeState, NativeStatus

TASK: Final = re.compile(r"[0-9]+_[0-9]+", re.ASCII)
"""The native id of a pilot: the number of its array and its own in it."""
QUEUE_FIELDS: Final = (
    "ArrayJobID", "ArrayTaskID", "State", "exit_code", "BatchHost", "StartTime", "EndTime", "Reason", "Name",
)  # fmt: skip
ACCOUNTING_FIELDS: Final = (
    "JobID", "State", "ExitCode", "NodeList", "Start", "End", "Reason", "JobName",
)  # fmt: skip
LOAD_FIELDS: Final = ("State", "Partition", "UserName", "Reason", "Name")

# COMPLETING: its processes are being ended. CONFIGURING: its node is being made ready. REVOKED, and what is in no list:
# unknown, since another cluster of the federation has it.
_WORDS: Final = {
    NativeState.WAITING: "CONFIGURING EXPEDITING PENDING POWER_UP_NODE REQUEUED REQUEUE_FED",
    NativeState.HELD: "REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    NativeState.RUNNING: "COMPLETING RESIZING RUNNING SIGNALING STAGE_OUT STOPPED SUSPENDED",
    NativeState.ENDED: "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT",
}
_STATES: Final = {word: state for state, words in _WORDS.items() for word in words.split()}
# A pilot that waits for one of these starts only after a person did something. Limits that others' ends free, nodes and
# partitions that are down are none of them.
_NEVER: Final = re.compile(
    r"JobHeld\w*|.*[ _]held\b.*|BadConstraints|DependencyNeverSatisfied|JobLaunchFailure"
    r"|Partition(?:Config|NodeLimit|TimeLimit)|AccountNotAllowed|QOSNotAllowed|Invalid(?:Account|QOS)|QOSMin\w+"
    r"|QOSUsageThreshold|(?:QOS|Association)TimeLimit"
    r"|MaxMemPerLimit|(?:Assoc|QOS)\w*(?:PerJob|PerNode|WallDuration)\w*|(?:Assoc|QOS)Grp\w*(?<!Run)Minutes\w*",
    re.IGNORECASE,
)
_LATER: Final = re.compile(
    r"unable to contact slurm controller \(connect failure\)|temporarily unavailable|try again|standby mode"
    r"|Submit\w*Limit|required partition not available|I/O error|no space left|quota|authentication|credential|munge",
    re.IGNORECASE,
)
# What names something that Slurm does not have. A node that is down it calls "not available", as one that it never had.
_FINAL: Final = re.compile(
    r"invalid (?:partition|account|qos)|(?:unrecognized|invalid) option", re.IGNORECASE
)
_UNSURE: Final = re.compile(
    r"timed out|zero bytes|(?:send|receive|shutdown) failure|unexpected message|insane message|connection reset|broken pipe",
    re.IGNORECASE,
)
_SAID: Final = re.compile(
    r"^(?:sbatch: )?(?:error: |allocation failure: |Batch job submission failed: )*", re.MULTILINE
)
_NUMBER: Final = re.compile(r"^([0-9]+)(?:;\S+)?$", re.MULTILINE | re.ASCII)
_SETTING: Final = re.compile(r"^(\w+)\s+= (.*)$", re.MULTILINE | re.ASCII)
_NOTHING: Final = frozenset({"", "N/A", "n/a", "None", "None assigned", "Unknown", "(null)"})


class Record(NamedTuple):
    """A pilot in one of Slurm's lists, in its words."""

    array: str
    task: str  # its number; of none or several for what is left of an array
    state: str
    exit_code: str
    host: str
    started: str
    ended: str
    reason: str
    name: str


class PilotList:
    """Our pilots in a list: the record of each native id, and those for the rest of an array."""

    def __init__(self, rows: Iterator[Sequence[str] | None], prefix: str) -> None:
        self.whole = True
        self.tasks: dict[str, Record | None] = {}
        self._rests: dict[str, Record] = {}
        for fields in rows:
            if fields is None or not fields[0].isdigit():
                self.whole = False
            elif fields[-1].startswith(prefix):
                record = Record._make(fields)
                native_id = f"{record.array}_{record.task}"
                if not TASK.fullmatch(native_id):
                    self._rests[record.array] = record
                elif self.tasks.setdefault(native_id, record) != record:
                    self.tasks[native_id] = None  # two that contradict each other say nothing

    def record(self, native_id: str, name: str) -> Record | None:
        """The record of a pilot of this name. Waiting tasks that are cancelled together share one without a number;
        one that ran has its own, unless it was left out.
        """
        if native_id in self.tasks:
            record = self.tasks[native_id]
        else:
            record = self._rests.get(native_id.partition("_")[0])
            if record is None or not self.whole or not has_ended(record) or _known(record.host):
                return None
        return record if record is not None and record.name == name else None

    def lives(self, native_id: str, name: str) -> bool:
        """Whether a pilot may wait or run by this list."""
        record = self.tasks.get(native_id)
        return native_id in self.tasks and (record is None or (record.name == name and not has_ended(record)))

    def live_jobs(self) -> set[str]:
        """Names of jobs with tasks that may wait or run."""
        records = (*self.tasks.values(), *self._rests.values())
        return {record.name for record in records if record and not has_ended(record)}


def parse_squeue(text: str, mark: str, prefix: str) -> PilotList:
    """Our pilots that the controller knows. Raises BackendFault."""
    return PilotList(_records("squeue", text, mark, QUEUE_FIELDS), prefix)


def parse_sacct(text: str, mark: str, prefix: str) -> PilotList:
    """Our pilots in the accounting. Raises BackendFault."""
    rows = _records("sacct", text, mark, ACCOUNTING_FIELDS)
    return PilotList((fields and [*fields[0].partition("_")[::2], *fields[1:]] for fields in rows), prefix)


def status_of(record: Record, observed_at: float) -> NativeStatus:
    """One observation."""
    state = _state(record.state, record.reason)
    ran = _known(record.host) if state is not NativeState.WAITING else ""
    code = _exit_code(record.exit_code) if state is NativeState.ENDED else None
    if code == 0 and record.state != "COMPLETED":
        code = None  # Slurm ended it, or it never ran
    reason = _known(record.reason)
    detail = f"Slurm holds it: {reason or record.state}" if state is NativeState.HELD else ""
    return NativeStatus(
        state=state,
        observed_at=observed_at,
        exit_code=code,
        detail=detail,
        word=f"{record.state} ({reason})" if reason else record.state,
        host=ran,
        started_at=_time(record.started) if ran else None,
        ended_at=_time(record.ended) if state is NativeState.ENDED else None,
    )


# What a job counts as: one of ours, another one. What is in no known state may run.
_KINDS: Final = {
    NativeState.WAITING: ("waiting", "others_waiting"),
    NativeState.HELD: ("held", "others_waiting"),
    NativeState.RUNNING: ("running", "others_running"),
}


def loads_of(text: str, mark: str, ours: Callable[[str, str], bool]) -> Callable[[str, float], BatchLoad]:
    """The load of a partition, from a list of all jobs that have not ended; `ours` knows a job by user and name.
    Raises BackendFault.
    """
    counts: Counter[str] = Counter()
    for fields in _records("squeue", text, mark, LOAD_FIELDS):
        if fields is None:
            raise BackendFault("squeue printed a record that is not whole.", transient=True)
        word, partitions, user, reason, name = fields
        state = _state(word, reason)
        mine, theirs = _KINDS.get(state, _KINDS[NativeState.RUNNING])
        kind = mine if ours(user, name) else theirs
        counts.update(f"{partition} {kind}" for partition in partitions.split(","))
    kinds = list(chain(*_KINDS.values()))

    def load(partition: str, now: float) -> BatchLoad:
        numbers: dict[str, Any] = {kind: counts[f"{partition} {kind}"] for kind in kinds}
        return BatchLoad(observed_at=now, **numbers)

    return load


def has_ended(record: Record) -> bool:
    """Whether a pilot will not run any more."""
    return _known_state(record.state) is NativeState.ENDED


def settings_of(text: str) -> Mapping[str, str]:
    """What `scontrol show config` prints. Raises BackendFault if it is cut off."""
    settings: dict[str, str] = dict(_SETTING.findall(text))
    if not {"AccountingStorageType", "PrivateData"} <= settings.keys():
        raise BackendFault("scontrol did not print the configuration of Slurm.", transient=True)
    return settings


def number_of(text: str) -> str:
    """The array that `sbatch --parsable` submitted; empty if it names none."""
    numbers: list[str] = _NUMBER.findall(text)
    return numbers[-1] if numbers else ""


def last_line(text: str) -> str:
    """What a command says after what its machine may say to all who come in."""
    return text.removesuffix("\n").rpartition("\n")[2].strip()


def refusal_of(text: str) -> str:
    """Why `sbatch` refused, in Slurm's words."""
    lines = dict.fromkeys(_SAID.sub("", line).strip() for line in text.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith("Try "))


def may_pass(reason: str) -> bool:
    """Whether the same submission may be accepted later."""
    return bool(_LATER.search(reason))


def is_final(reason: str) -> bool:
    """Whether it stays refused while no one changes submission or configuration."""
    return bool(_FINAL.search(reason))


def is_unsure(reason: str) -> bool:
    """Whether Slurm may have accepted all the same: its answer did not come."""
    return bool(_UNSURE.search(reason))


def _records(program: str, text: str, mark: str, titles: Sequence[str]) -> Iterator[Sequence[str] | None]:
    titled, *records = text.split(f"{mark}\n")
    header = titled.rpartition("\n")[2].split(mark)
    right = len(header) == len(titles) and header[0].replace("_", "").lower() == titles[0].lower()
    if not right or not records or records.pop():
        lines = (text.strip() or "nothing").splitlines()
        raise BackendFault(f"{program} printed no whole list, but {lines[0][:80]!r}.", transient=True)
    for record in records:
        fields = record.split(mark)
        yield fields if len(fields) == len(titles) else None


@lru_cache(maxsize=1000)
def _state(word: str, reason: str) -> NativeState:
    state = _known_state(word)
    return NativeState.HELD if state is NativeState.WAITING and _NEVER.fullmatch(reason) else state


def _known_state(word: str) -> NativeState:
    """Accounting adds who did it: `CANCELLED by 1000`."""
    return _STATES.get(word.partition(" ")[0], NativeState.UNKNOWN)


def _known(text: str) -> str:
    return "" if text in _NOTHING else text


def _time(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() else None


def _exit_code(text: str) -> int | None:
    code, colon, end = text.partition(":")
    if not (code + end).isascii() or not (code.isdigit() and (end.isdigit() or not colon)):
        return None
    number = int(code[:9])
    by_signal, plain = (int(end[:9]), number) if colon else (number & 0x7F, number >> 8 & 0xFF)
    return 128 + by_signal if by_signal else plain
