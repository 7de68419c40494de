"""Grid Engine (8.1.9 and its relatives) by its commands, run on a submit host.

A submission is one array job named `lode-SUBMISSION`, a copy a task with the native id JOB.TASK. Each submission
has a private folder on the submit host: the pilot's file (every account may read a job's script), outputs, and
notes of copies removed before they began.

Ends are read from the end of the accounting file, accounting(5): `qacct` reads all of it for one name at a time.
Waiting pilots that are deleted by hand leave no record but in `qstat -s z`, which lists the last ones.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import backend
from lodesman.server.engines import gridengine_text as text
from lodesman.server.engines.backend import CancelOutcome, NativeState, NativeStatus, SubmitResult
from lodesman.server.engines.job_script import SUBMIT_WHOLE, job_script
from lodesman.server.engines.run import CommandResult, Runner

_NATIVE: Final = re.compile(r"([0-9]{1,10})\.([0-9]{1,9})")
_FOLDER: Final = re.compile(r"[A-Za-z0-9_./-]+")
_REASONS: Final = 1_000  # jobs whose errors are asked for together
_TRY_LATER: Final = 25  # qsub's exit code
_MOST_TASKS: Final = 100_000
_RECORD_SECONDS: Final = 120.0  # until the record of an end is written; the engine's usual time is 15 s
_DAY_SECONDS: Final = 86_400.0
_KNOWN: Final = 80  # our own exit codes, of the scripts below
_NO_FOLDER: Final = 81
_ABSENT: Final = 82
# What qsub says if nothing was submitted, and another time it may be.
_PASSING: Final = re.compile(
    r"unable to send message to qmaster|got send error|jobs are allowed|try again", re.IGNORECASE
)
# What names something that it does not have; a host that is down leaves "no suitable queues", too.
_FINAL: Final = re.compile("unknown resource", re.IGNORECASE)
# What it says if it cannot know.
_UNCERTAIN: Final = re.compile(r"answer list|got read error|timeout|receive|alive|commlib", re.IGNORECASE)

# Scripts for the submit host: all that varies is an argument or on stdin. $1: the folder of all submissions.
_START: Final = 'umask 077; cd "$HOME" 2>/dev/null || cd /; folder=$1; shift\n'
# One line with the pilot's file in base64, then the job's script.
_SUBMIT: Final = f"""{_START}new=$folder/$1; shift
mkdir -p -m 700 "$folder" || exit {_NO_FOLDER}
mkdir "$new" 2>/dev/null || {{ [ -d "$new" ] && exit {_KNOWN}; echo "$new cannot be made" >&2; exit {_NO_FOLDER}; }}
IFS= read -r file && printf %s "$file" | base64 -d >"$new/pilot.json" || {{ rm -rf "$new"; exit {_NO_FOLDER}; }}
{SUBMIT_WHOLE}"""
_GIVE_UP: Final = f'{_START}rm -rf "$folder/$1"\n'
# Submissions on stdin; none: all that have a folder.
_ENDED: Final = f"""{_START}echo "lodesman-account $(id -un)"
file=$1; bytes=$2; names=$(cat)
[ -n "$file" ] || file=${{SGE_ROOT:-/var/lib/gridengine}}/${{SGE_CELL:-default}}/common/accounting
[ -n "$names" ] || names=$(ls "$folder" 2>/dev/null)
printf '%s\\n' "$names" | while read -r name; do
    for note in "$folder/$name/"*.removed; do [ ! -e "$note" ] || echo "lodesman-removed $name ${{note##*/}}"; done
done
if [ ! -r "$file" ]; then
    [ -e "$file" ] || [ ! -d "${{file%/*}}" ] || exit 0 # no job has ended yet
    echo "$file cannot be read" >&2; exit {_ABSENT}
fi
printf '%s\\n' "$names" | sed 's/.*/:{text.PREFIX}&:/' | {{ exec 3<&0; tail -c "$bytes" "$file" | grep -a -F -f /dev/fd/3; }}
[ $? -le 1 ]
"""
# Lines `SUBMISSION JOB.TASK` on stdin.
_NOTE: Final = f'{_START}while read -r name id; do : >"$folder/$name/$id.removed"; done\n'
# The same with `over`, if no copy of the submission is left, or `more`.
_FORGET: Final = f"""{_START}while read -r name id over; do
    rm -f "$folder/$name/$id" "$folder/$name/$id.removed"
    [ "$over" = over ] || continue
    set -- "$folder/$name/"[0-9]*
    [ -e "$1" ] || rm -rf "$folder/$name"
done
"""
_OUTPUT: Final = f"""{_START}[ -e "$folder/$1" ] || exit {_ABSENT}
echo lodesman-output; tail -c {backend.OUTPUT_BYTES} "$folder/$1" | base64; echo lodesman-end
"""
_AS_ACCOUNT: Final = 'echo "lodesman-account $(id -un)"; exec "$@"'


@dataclass(kw_only=True, eq=False)
class GridEngineBackend:
    """The queues of one cluster, for one account of its submit host."""

    runner: Runner
    mark: str = ""  # loads count as ours the submissions that begin with it
    environment: Mapping[str, str] = field(default_factory=dict)  # for its commands, such as SGE_ROOT
    parallel_environment: str = ""  # for pilots with more than one core; without it none is accepted
    memory_resource: str = ""  # (as h_vmem) limits the memory of pilots; without it nothing is requested
    folder: str = ".lodesman/output"  # in the home of the account, or a path
    # It is the same on the nodes; else outputs are lost, and accounts of a node can read the secret.
    shared: bool = True
    accounting_file: str = ""  # '': the usual one
    accounting_bytes: int = 64 << 20  # how much of its end is read
    seconds: float = 60.0  # the limit of each command
    clock: Callable[[], float] = time.time
    sizes: backend.Sizes = field(default_factory=backend.Sizes)
    _reasons: dict[text.Key, str] = field(default_factory=dict, init=False)
    _finished: dict[text.Key, float] = field(default_factory=dict, init=False)

    def submit(self, spec: backend.PilotSpec) -> SubmitResult:
        """Submit one array job."""
        reason = backend.why_unusable(spec) or self._unfit(spec)
        if reason:
            return backend.refuse_all(spec, reason, transient=False)
        place = self.folder if self.folder.startswith("/") else f"$HOME/{self.folder}"
        kept = f"{place}/{spec.submission}/$JOB_ID.$TASK_ID" if self.shared else "/dev/null"
        file_at = f'"{place}/{spec.submission}/pilot.json"' if self.shared else ""
        script = job_script(spec, copy="$SGE_TASK_ID", file_at=file_at, notices=True).encode()
        file = base64.b64encode(spec.pilot_file if self.shared else b"")
        name = text.PREFIX + spec.submission
        words = [*self._qsub(spec), "-o", kept, "-terse", "-t", f"1-{spec.count}", "-N", name]
        size = str(len(script) + 1)
        done = self._script(_SUBMIT, spec.submission, size, *words, stdin=file + b"\n" + script)
        if done.code:
            return self._refuse(spec, done)
        job = text.parse_submission(done.out, spec.count)
        if job is None:
            raise BackendFault(
                f"qsub does not say what it submitted, but: {_short(done.out)}.", transient=True
            )
        return SubmitResult(accepted={stamp: f"{job}.{number}" for number, stamp in spec.stamps().items()})

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """By `qstat`; then why jobs are in error, if that is new, or by the accounting file what became of others."""
        now, stamps, why = self.clock(), _keys_of(pilots), "Grid Engine does not list it"
        listed = self._list_tasks(stamps)
        wrong = {key for key, row in listed.items() if "E" in row.letters}
        self._reasons = {key: why for key, why in self._reasons.items() if key in wrong or key not in stamps}
        wrong -= self._reasons.keys()
        missing = stamps.keys() - listed.keys()
        ended: dict[text.Key, text.TaskEnd] = {}
        if wrong:
            self._read_reasons(wrong)
        elif missing:
            try:
                ended = self._read_ends({key: stamps[key] for key in missing})
            except BackendFault as fault:
                why = f"Grid Engine does not list it, and how it ended is not known: {fault}"
        statuses = {stamps[key]: self._status(key, row, now) for key, row in listed.items()}
        statuses |= {stamps[key]: _end(end, now) for key, end in ended.items()}
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=why)
        return {stamp: statuses.get(stamp, unknown) for stamp in pilots}

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """`qdel` for those that `qstat` lists as ours; they get SIGTERM, and SIGKILL after the queue's `notify` time."""
        stamps = _keys_of(pilots)
        listed = self._list_tasks(stamps)
        missing = {key: stamp for key, stamp in stamps.items() if key not in listed}
        by_key: dict[text.Key, CancelOutcome] = {}
        for words in text.deletion_words(listed):
            done = self._run(["qdel", *words])
            by_key |= text.parse_deletions(f"{done.out}\n{done.err}", listed)
        for key, outcome in by_key.items():  # what runs is not removed, whatever is said of its job
            if outcome is CancelOutcome.REMOVED and listed[key].state is NativeState.RUNNING:
                by_key[key] = CancelOutcome.ORDERED
        removed = [key for key, outcome in by_key.items() if outcome is CancelOutcome.REMOVED]
        if removed:
            with contextlib.suppress(BackendFault):  # then they stay unknown
                self._script(_NOTE, stdin=_lines(_line(stamps[key], key) for key in removed))
        try:
            by_key |= dict.fromkeys(self._read_ends(missing) if missing else (), CancelOutcome.ENDED)
        except BackendFault:
            by_key |= dict.fromkeys(missing, CancelOutcome.FAILED)
        outcomes = {stamps[key]: outcome for key, outcome in by_key.items()}
        return {stamp: outcomes.get(stamp, CancelOutcome.UNKNOWN) for stamp in pilots}

    def census(self) -> dict[str, str]:
        """What `qstat` lists, and what ended of submissions that are not forgotten."""
        names: dict[text.Key, str] = {}
        for row in self._list_jobs("-u", "$user").listed:
            if row.size() <= _MOST_TASKS:
                names |= dict.fromkeys(((row.job, task) for tasks in row.tasks for task in tasks), row.name)
        ended = text.parse_ends(self._ended_text(()))
        names = {key: end.name for key, end in ended.items()} | names
        stamps = {
            text.native_id_of(key): f"{name.removeprefix(text.PREFIX)}-{key[1]}"
            for key, name in names.items()
        }
        ours = {text.native_id_of(key) for key, name in names.items() if name.startswith(text.PREFIX)}
        return {
            stamp: native for native, stamp in stamps.items() if native in ours and backend.split_stamp(stamp)
        }

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, backend.BatchLoad]:
        """By one `qstat` of all accounts; a job that asks for no queue waits for each."""
        now = self.clock()
        jobs = self._list_jobs("-f", "-r", "-u", "*")
        if not jobs.account:
            raise BackendFault("qstat does not say for which account it was asked.", transient=True)
        return {queue: text.load(jobs, queue.queue, now, self.mark) for queue in queues}

    def check(self, spec: backend.PilotSpec) -> backend.Check:
        """By `qsub -w v`: whether there is a queue for it if nothing else runs."""
        reason = backend.why_unusable(spec) or self._unfit(spec)
        if reason:
            return backend.Check(possible=False, detail=reason, final=True)
        done = self._run([*self._qsub(spec), "-w", "v"], stdin=b"exit 0\n")
        words = _short(done.out + done.err)
        if "found suitable queue" in words:
            return backend.Check(possible=True, detail=words)
        refused = "Unable to run job" in words and not _PASSING.search(words) and not _UNCERTAIN.search(words)
        never = refused or "no suitable queue" in words
        return backend.Check(
            possible=False if never else None, detail=words, final=never and bool(_FINAL.search(words))
        )

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """The end of its standard output and error."""
        for key in _keys_of({stamp: native_id}):
            done = self._script(_OUTPUT, _line(stamp, key).replace(" ", "/"))
            if done.code == _ABSENT:
                return None
            shown = done.out.partition("lodesman-output\n")[2]
            if done.code or not shown.endswith("lodesman-end\n"):
                raise _fault("the output of a pilot", done)
            try:
                return base64.b64decode(shown.removesuffix("lodesman-end\n"))
            except binascii.Error:
                raise _fault("the output of a pilot", done) from None
        return None

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Remove the outputs of those that `qstat` does not list, and empty folders of submissions."""
        stamps = _keys_of(pilots)
        listed = self._list_jobs("-u", "$user").listed
        names = {row.name for row in listed}
        present = text.match_rows(stamps, listed)
        lines = [
            f"{_line(stamp, key)} {'more' if text.name(stamp) in names else 'over'}"
            for key, stamp in stamps.items()
            if key not in present
        ]
        if lines:
            self._script(_FORGET, stdin=_lines(lines))

    # --- inside -----------------------------------------------------------------------------------

    def _run(self, words: Sequence[str], *, stdin: bytes = b"") -> CommandResult:
        variables = (f"{name}={value}" for name, value in self.environment.items())
        return self.runner.run(["env", *variables, *words], stdin=stdin, seconds=self.seconds)

    def _script(self, script: str, *words: str, stdin: bytes = b"") -> CommandResult:
        return self._run(["sh", "-c", script, "sh", self.folder, *words], stdin=stdin)

    def _list_jobs(self, *options: str) -> text.TaskList:
        done = self._run(["sh", "-c", _AS_ACCOUNT, "sh", "env", "TZ=UTC0", "qstat", "-xml", *options])
        if done.code:
            raise _fault("qstat", done)
        return text.jobs(done.out)

    def _list_tasks(self, stamps: Mapping[text.Key, str]) -> dict[text.Key, text.TaskRow]:
        """Those that have not ended. The others are remembered: the engine lists few, and not for long."""
        if not stamps:
            return {}
        now = self.clock()
        rows = text.match_rows(stamps, self._list_jobs("-s", "prsz", "-u", "$user").listed)
        over = dict.fromkeys((key for key, row in rows.items() if row.state is NativeState.ENDED), now)
        seen = {key: at for key, at in self._finished.items() if key not in rows and now - at < _DAY_SECONDS}
        self._finished = seen | over | {key: at for key, at in self._finished.items() if key in over}
        return {key: row for key, row in rows.items() if key not in over}

    def _ended_text(self, names: Iterable[str]) -> str:
        options = (self.accounting_file, str(self.accounting_bytes))
        done = self._script(_ENDED, *options, stdin=_lines(sorted(names)))
        if done.code:
            raise _fault("the accounting", done)
        return done.out

    def _read_ends(self, stamps: Mapping[text.Key, str]) -> dict[text.Key, text.TaskEnd]:
        ends = text.parse_ends(self._ended_text({stamp.rpartition("-")[0] for stamp in stamps.values()}))
        ours = {key: end for key, end in ends.items() if key in stamps and end.name == text.name(stamps[key])}
        long_ago = self.clock() - _RECORD_SECONDS
        finished = [key for key, at in self._finished.items() if key in stamps and at <= long_ago]
        return {key: text.without_record(stamps[key]) for key in finished} | ours

    def _read_reasons(self, wrong: Iterable[text.Key]) -> None:
        jobs = sorted({job for job, _ in wrong})[:_REASONS]
        done = self._run(["env", "TZ=UTC0", "qstat", "-j", ",".join(map(str, jobs))])
        if len(self._reasons) > _MOST_TASKS:
            self._reasons.clear()
        self._reasons |= {key: "" for key in wrong if key[0] in jobs} | text.parse_error_reasons(done.out)

    def _status(self, key: text.Key, row: text.TaskRow, now: float) -> NativeStatus:
        detail = ""
        if row.state is NativeState.HELD:
            detail = self._reasons.get(key, "") if "E" in row.letters else "it has a hold"
        elif row.letters != "r" and set(row.letters) & set("sST"):
            detail = "it is suspended"
        word = f"{row.letters}: {detail}" if detail else row.letters
        return NativeStatus(
            state=row.state,
            observed_at=now,
            detail=detail,
            word=word,
            host=row.host,
            started_at=row.started_at,
        )

    def _unfit(self, spec: backend.PilotSpec) -> str:
        if not _FOLDER.fullmatch(self.folder):
            return f"the folder {self.folder!r} has a character that Grid Engine cannot use in a path"
        if spec.cores > 1 and not self.parallel_environment:
            return f"{spec.cores} cores need a parallel environment, and none is configured"
        return ""

    def _qsub(self, spec: backend.PilotSpec) -> list[str]:
        """No comment of the script is an option (`-C`)."""
        limits = []
        if spec.wall_seconds:
            limits.append(f"h_rt={spec.wall_seconds}")
        if spec.memory_mb and self.memory_resource:  # the engine counts it for each core
            limits.append(f"{self.memory_resource}={-(-spec.memory_mb // max(1, spec.cores))}M")
        cores = ["-pe", self.parallel_environment, str(spec.cores)] if spec.cores > 1 else []
        requests = [*cores, *(["-l", ",".join(limits)] if limits else [])]
        usual = ["qsub", "-C", "", "-S", "/bin/sh", "-r", "n", "-notify", "-m", "n", "-j", "y"]
        return [*usual, "-q", spec.queue.queue, *requests, *spec.options]

    def _refuse(self, spec: backend.PilotSpec, done: CommandResult) -> SubmitResult:
        if done.code == _KNOWN:
            return backend.refuse_all(spec, "this submission was made before", transient=False)
        reason = _short(done.err)
        passing = done.code in {_NO_FOLDER, _TRY_LATER} or bool(_PASSING.search(reason))
        if not passing and ("Unable to run job" not in reason or _UNCERTAIN.search(reason)):
            raise _fault("qsub", done)
        if done.code != _NO_FOLDER:
            with contextlib.suppress(BackendFault):  # so that it can be made later
                self._script(_GIVE_UP, spec.submission)
        return backend.refuse_all(spec, reason, transient=passing)


def _keys_of(pilots: Mapping[str, str]) -> dict[text.Key, str]:
    stamps = {}
    for stamp, native_id in pilots.items():
        native, parts = _NATIVE.fullmatch(native_id), backend.split_stamp(stamp)
        if native and parts and parts[1] == int(native[2]):
            stamps[int(native[1]), int(native[2])] = stamp
    return stamps


def _end(end: text.TaskEnd, now: float) -> NativeStatus:
    return NativeStatus(
        state=NativeState.ENDED,
        observed_at=now,
        exit_code=end.exit_code,
        detail=end.detail,
        word=end.word,
        host=end.host,
        started_at=end.started_at,
        ended_at=end.ended_at,
    )


def _line(stamp: str, key: text.Key) -> str:
    return f"{stamp.rpartition('-')[0]} {text.native_id_of(key)}"


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _short(text: str) -> str:
    return " ".join(text.removesuffix("Exiting.\n").split())[:500]


def _fault(command: str, done: CommandResult) -> BackendFault:
    reason = _short(done.err) or _short(done.out) or "it says nothing"
    return BackendFault(
        f"Grid Engine does not answer ({command}, exit code {done.code}): {reason}.", transient=True
    )
