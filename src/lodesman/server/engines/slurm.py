"""Slurm, by its commands: one array for a submission, one `squeue` for all pilots of the account.

A job is named for its submission, a copy is the task of its number: the native id `1234_7` belongs to a stamp only
while job 1234 has that name. Who makes a submission's folder for outputs submits: so a known submission is refused
until its outputs are forgotten.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import backend, slurm_text
from lodesman.server.engines.backend import CancelOutcome, NativeState, NativeStatus, SubmitResult
from lodesman.server.engines.job_script import SUBMIT_WHOLE, job_script
from lodesman.server.engines.run import CommandResult, Runner

_ARGUMENT_BYTES: Final = 64 << 10
"""Of the ids or paths of one command: by SSH, a whole command is one argument of 128 kB at most."""
_REFUSES: Final = (1, 255)
"""The exit codes of sbatch for what Slurm or its own options refuse."""
_NO_COMMAND: Final = (126, 127)
_NOTICE_S: Final = 120
"""How long before its end a pilot hears of it. It may not be SIGTERM: an end that comes nearer leaves time for payloads."""
_LIVE: Final = frozenset({NativeState.WAITING, NativeState.HELD, NativeState.RUNNING})


class _Account(Struct, frozen=True, kw_only=True):
    name: str
    folder: str


@dataclass(eq=False)
class SlurmBackend:
    """One cluster and one account there; the queue of a CE is a partition."""

    runner: Runner
    _: KW_ONLY
    prefix: str = "lode"  # begins the names of jobs
    mark: str = ""  # loads count as ours the submissions that begin with it
    folder: str = ".lodesman/output"  # of outputs, from the account's HOME; the nodes share its file system
    seconds: float = 60.0  # the limit of each command
    census_days: int = 7  # how far back a census asks the accounting
    clock: Callable[[], float] = time.time
    sizes: backend.Sizes = field(default_factory=backend.Sizes)
    _account: _Account | None = field(default=None, init=False)
    _settings: Mapping[str, str] | None = field(default=None, init=False)

    # --- the protocol -----------------------------------------------------------------------------

    def submit(self, spec: backend.PilotSpec) -> SubmitResult:
        """Submit one array. Its folder is made before, and removed if Slurm refuses for certain."""
        if not spec.count:
            return SubmitResult()
        if reason := backend.why_unusable(spec):
            return backend.refuse_all(spec, reason, transient=False)
        try:
            account = self._read_account()
            folder = f"{account.folder}/{spec.submission}"
            made = self._run(["mkdir", "-m", "0700", "--", folder])
        except BackendFault as fault:  # nothing was submitted
            return backend.refuse_all(spec, fault.message, transient=True)
        if made.code:
            is_known = "File exists" in made.err
            self._account = self._account if is_known else None  # the folder of outputs may be gone
            reason = "this submission was submitted before" if is_known else made.err.strip()
            return backend.refuse_all(spec, reason, transient=not is_known)
        return self._submit(spec, folder)

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """By the controller, and by the accounting what it forgot."""
        if not pilots:
            return {}
        now = self.clock()
        records = self._match_records(pilots, self._read_queue())
        missing = {stamp: native_id for stamp, native_id in pilots.items() if records[stamp] is None}
        detail = "Slurm does not list it"
        try:
            records |= self._read_ends(missing)
        except BackendFault as fault:
            detail = f"Slurm does not list it, and its accounting does not answer: {fault.message}"
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=detail)
        return {
            stamp: slurm_text.status_of(record, now) if record else unknown
            for stamp, record in records.items()
        }

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """Hold those that wait, cancel all, and see what became of them. A waiting task has no record of its own:
        it would vanish, and `scancel --name` would end all of its array. To hold it gives it one, and keeps it from
        starting.
        """
        before = {stamp: status.state for stamp, status in self.status(pilots).items()}
        live = {stamp: native_id for stamp, native_id in pilots.items() if before[stamp] in _LIVE}
        waits = [live[stamp] for stamp in live if before[stamp] is not NativeState.RUNNING]
        for ids in _portions(waits):
            self._run(["scontrol", "hold", *ids])  # one that has started meanwhile is cancelled as it runs
        arrived = True
        for ids in _portions(live.values()):
            done = self._run(["scancel", *ids])
            arrived = arrived and (not done.code or "Unable to contact" not in done.err)
        after = self.status(live)
        outcomes = {
            NativeState.ENDED: CancelOutcome.ENDED,
            NativeState.UNKNOWN: CancelOutcome.UNKNOWN,
        }
        return {
            stamp: _outcome(after[stamp], waited=before[stamp] is not NativeState.RUNNING, arrived=arrived)
            if stamp in live
            else outcomes[before[stamp]]
            for stamp in pilots
        }

    def census(self) -> dict[str, str]:
        """Those of the last days, and all that have not ended."""
        since = f"now-{self.census_days}days"
        pilots = (
            self._name_pilots(self._read_accounting(f"--starttime={since}")) if self._has_accounting() else {}
        )
        return pilots | self._name_pilots(self._read_queue())

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, backend.BatchLoad]:
        """Counts of jobs; how many more could run is not known."""
        if not queues:
            return {}
        me = self._read_account().name
        mark = _mark()
        text = self._run_list(_squeue(mark, slurm_text.LOAD_FIELDS))
        load_of = slurm_text.loads_of(
            text, mark, lambda user, name: user == me and name.startswith(self._name(self.mark))
        )
        now, loads = self.clock(), {}
        for queue in queues:
            load = load_of(queue.queue, now)
            private = "jobs" in self._read_settings()["PrivateData"]
            loads[queue] = replace(load, others_waiting=None, others_running=None) if private else load
        return loads

    def check(self, spec: backend.PilotSpec) -> backend.Check:
        """What `sbatch --test-only` says of it."""
        if reason := backend.why_unusable(spec):
            return backend.Check(possible=False, detail=reason, final=True)
        done = self._run([*self._sbatch(spec, "/dev/null"), "--test-only"], stdin=b"#!/bin/sh\n")
        reason = slurm_text.refusal_of(done.err)
        if not done.code:
            return backend.Check(possible=True, detail=reason)
        never = done.code in _REFUSES and not slurm_text.may_pass(reason) and not slurm_text.is_unsure(reason)
        final = never and slurm_text.is_final(reason)
        return backend.Check(possible=False if never else None, detail=reason, final=final)

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """The end of its file."""
        path = self._output_path(stamp, native_id)
        if not path:
            return None
        done = self._run(["tail", "-c", str(backend.OUTPUT_BYTES), "--", path])
        if done.code and "No such file" in done.err:
            return None
        self._check_done("tail", done)
        return done.out.encode()[-backend.OUTPUT_BYTES :]

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Remove the outputs of pilots that neither wait nor run, and the folders of such submissions: tasks cannot
        start without theirs.
        """
        if not pilots:
            return
        listed = self._read_queue()
        paths = [
            path
            for stamp, native_id in pilots.items()
            if not listed.lives(native_id, self._job_of(stamp))
            and (path := self._output_path(stamp, native_id))
        ]
        for some in _portions(paths):
            self._check_done("rm", self._run(["rm", "-f", "--", *some]))
        live = listed.live_jobs()
        folders = dict.fromkeys(path.rpartition("/")[0] for path in paths)
        empty = [folder for folder in folders if self._name(folder.rpartition("/")[2]) not in live]
        for some in _portions(empty if listed.whole else []):
            self._run(["rmdir", "--", *some])  # one that has outputs stays

    # --- inside -----------------------------------------------------------------------------------

    def _submit(self, spec: backend.PilotSpec, folder: str) -> SubmitResult:
        output = f"{folder.replace('%', '%%')}/%A_%a.out"
        words = [*self._sbatch(spec, output), f"--chdir={folder}"]
        script = job_script(spec, copy="${SLURM_ARRAY_TASK_ID}", notice_s=_NOTICE_S).encode()
        done = self._run(["sh", "-c", SUBMIT_WHOLE, "sh", str(len(script) + 1), *words], stdin=script)
        number, reason = slurm_text.number_of(done.out), slurm_text.refusal_of(done.err)
        if number and not done.code:
            return SubmitResult(accepted={stamp: f"{number}_{copy}" for copy, stamp in spec.stamps().items()})
        if done.code not in (*_REFUSES, *_NO_COMMAND) or slurm_text.is_unsure(reason):
            message = f"It is not known whether Slurm accepted the submission {spec.submission}: {reason}."
            raise BackendFault(message, transient=True)
        with contextlib.suppress(BackendFault):
            self._run(["rmdir", "--", folder])
        reason = reason or f"sbatch ended with exit code {done.code}"
        return backend.refuse_all(spec, reason, transient=slurm_text.may_pass(reason))

    def _sbatch(self, spec: backend.PilotSpec, output: str) -> list[str]:
        """Of two options that contradict each other, the later one holds."""
        words = [
            "sbatch", *spec.options, "--parsable", f"--array=1-{spec.count}", f"--output={output}",
            f"--job-name={self._name(spec.submission)}", f"--partition={spec.queue.queue}", "--no-requeue",
            "--export=NONE", "--propagate=NONE", f"--signal=B:USR2@{_NOTICE_S}",
            "--nodes=1", "--ntasks=1", f"--cpus-per-task={max(spec.cores, 1)}",
        ]  # fmt: skip
        words += [f"--time={math.ceil(spec.wall_seconds / 60)}"] if spec.wall_seconds else []
        return words + ([f"--mem={spec.memory_mb}M"] if spec.memory_mb else [])

    def _job_of(self, stamp: str) -> str:
        return self._name(stamp.rpartition("-")[0])

    def _name(self, submission: str) -> str:
        return f"{self.prefix}-{submission}"

    def _read_queue(self) -> slurm_text.PilotList:
        mark = _mark()
        text = self._run_list(_squeue(mark, slurm_text.QUEUE_FIELDS, "--me", "--states=all"))
        return slurm_text.parse_squeue(text, mark, f"{self.prefix}-")

    def _read_accounting(self, *which: str) -> slurm_text.PilotList:
        mark = _mark()
        fields = ",".join(slurm_text.ACCOUNTING_FIELDS)
        words = [*_TIMES, "sacct", "-X", "-p", f"--delimiter={mark}", f"--format={fields}", *which]
        return slurm_text.parse_sacct(self._run_list(words), mark, f"{self.prefix}-")

    def _read_ends(self, pilots: Mapping[str, str]) -> dict[str, slurm_text.Record | None]:
        ids = {native_id.partition("_")[0] for native_id in pilots.values() if _is_task(native_id)}
        if not ids or not self._has_accounting():
            return {}
        records: dict[str, slurm_text.Record | None] = {}
        for some in _portions(ids):
            listed = self._match_records(pilots, self._read_accounting(f"--jobs={','.join(some)}"))
            # What runs or waits by the accounting alone was lost by the controller, or has just been submitted.
            records |= {
                stamp: record for stamp, record in listed.items() if record and slurm_text.has_ended(record)
            }
        return records

    def _match_records(
        self, pilots: Mapping[str, str], listed: slurm_text.PilotList
    ) -> dict[str, slurm_text.Record | None]:
        """Each pilot by its record under both number and name."""
        records: dict[str, slurm_text.Record | None] = {}
        for stamp, native_id in pilots.items():
            same = native_id.rpartition("_")[2] == stamp.rpartition("-")[2]
            records[stamp] = listed.record(native_id, self._job_of(stamp)) if same else None
        return records

    def _name_pilots(self, listed: slurm_text.PilotList) -> dict[str, str]:
        names = {}
        for native_id, record in listed.tasks.items():
            stamp = f"{record.name[len(self.prefix) + 1 :]}-{record.task}" if record else ""
            if backend.split_stamp(stamp):
                names[stamp] = native_id
        return names

    def _output_path(self, stamp: str, native_id: str) -> str:
        parts = backend.split_stamp(stamp)
        if parts is None or not _is_task(native_id) or native_id.partition("_")[2] != str(parts[1]):
            return ""
        return f"{self._read_account().folder}/{parts[0]}/{native_id}.out"

    def _has_accounting(self) -> bool:
        return self._read_settings()["AccountingStorageType"].endswith("/slurmdbd")

    def _read_settings(self) -> Mapping[str, str]:
        if self._settings is None:
            done = self._check_done("scontrol", self._run(["scontrol", "show", "config"]))
            self._settings = slurm_text.settings_of(done.out)
        return self._settings

    def _read_account(self) -> _Account:
        """Asked for once; its folder of outputs is made."""
        if self._account is None:
            name = slurm_text.last_line(self._check_done("id", self._run(["id", "-un"])).out)
            parts = self.folder.rstrip("/").split("/")
            if self.folder.startswith("/"):
                folders = ["/".join(parts)]
            else:
                home = slurm_text.last_line(self._check_done("printenv", self._run(["printenv", "HOME"])).out)
                folders = ["/".join([home, *parts[: at + 1]]) for at in range(len(parts))]
            if not name or not folders[-1].startswith("/"):
                raise BackendFault("The account at the submit host has no name or no HOME.", transient=True)
            self._check_done("mkdir", self._run(["mkdir", "-p", "-m", "0700", "--", *folders]))
            self._account = _Account(name=name, folder=folders[-1])
        return self._account

    def _run_list(self, words: Sequence[str]) -> str:
        program = next(word for word in words if word not in _TIMES)
        return self._check_done(program, self._run(words)).out

    def _check_done(self, program: str, done: CommandResult) -> CommandResult:
        if done.code:
            reason = slurm_text.last_line(done.err) or f"it ended with exit code {done.code}"
            raise BackendFault(f"{program} failed: {reason}.", transient=True)
        return done

    def _run(self, words: Sequence[str], *, stdin: bytes = b"") -> CommandResult:
        return self.runner.run(words, stdin=stdin, seconds=self.seconds)


_TIMES: Final = ("env", "SLURM_TIME_FORMAT=%s")
"""Slurm prints times in UNIX seconds, and not as the clock of its host shows them."""


def _squeue(mark: str, fields: Sequence[str], *which: str) -> list[str]:
    columns = ",".join(f"{name}:0{mark}" for name in fields)
    return [*_TIMES, "squeue", "--all", "--array", f"--Format={columns}", *which]


def _mark() -> str:
    """What no name of a job can hold, since it was not known when the job was named."""
    return f"~{secrets.token_hex(8)}~"


def _is_task(native_id: str) -> bool:
    return bool(slurm_text.TASK.fullmatch(native_id))


def _outcome(after: NativeStatus, *, waited: bool, arrived: bool) -> CancelOutcome:
    if after.state is NativeState.ENDED:
        return CancelOutcome.REMOVED if waited and not after.host else CancelOutcome.ORDERED
    ordered = after.state is NativeState.RUNNING and arrived
    return CancelOutcome.ORDERED if ordered else CancelOutcome.FAILED


def _portions(words: Iterable[str]) -> Iterator[list[str]]:
    portion: list[str] = []
    size = 0
    for word in words:
        if portion and size + len(word) >= _ARGUMENT_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(word)
        size += len(word) + 1
    if portion:
        yield portion
