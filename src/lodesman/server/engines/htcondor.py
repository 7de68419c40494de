"""HTCondor: pilots through a schedd, on the submit host or, with `-remote`, of an HTCondor-CE elsewhere.

A submission is one cluster; a native id is CLUSTER.PROC. Its private folder on the submit host holds script and
outputs, and makes sure that it is submitted once. A queue other than `default` is an accounting group: a pool has
none.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from msgspec import Struct

from lodesman.base.errors import BackendFault
from lodesman.decide.resources import QueueId
from lodesman.server.engines import backend
from lodesman.server.engines import htcondor_text as text
from lodesman.server.engines.backend import CancelOutcome, NativeState, NativeStatus, SubmitResult
from lodesman.server.engines.job_script import job_script
from lodesman.server.engines.run import CommandResult, Runner

_FOLDER: Final = ".lodesman/submit"
_KNOWN: Final = 91
_NO_FILE: Final = 92
_NO_FOLDER: Final = 93
_TAIL_SECONDS: Final = 15.0
# Folder, submission, description, whether the script is spooled, its size, words for condor_submit; the script is on
# stdin, and half of one is not submitted.
_SUBMIT: Final = f"""umask 077
cd "${{HOME:?}}" && mkdir -p "$1" && cd "$1" || exit {_NO_FOLDER}
submission=$2 description=$3 spooled=$4 size=$5; shift 5
if ! mkdir "$submission"; then [ -d "$submission" ] && exit {_KNOWN}; exit {_NO_FOLDER}; fi
(cd "$submission" && cat >script && [ "$(wc -c <script)" -eq "$size" ] && chmod 700 script) ||
    {{ rm -rf "$submission"; exit {_NO_FOLDER}; }}
cd "$submission" && printf '%s' "$description" | condor_submit "$@" || exit
[ -z "$spooled" ] || rm -f script"""
# Folder, submission, file, words that bring it here if it is not there.
_OUTPUT: Final = f"""cd "${{HOME:?}}" && cd "$1/$2" 2>/dev/null || exit {_NO_FILE}
file=$3; shift 3
[ -e "$file" ] || [ $# -eq 0 ] || "$@" >/dev/null 2>&1
[ -f "$file" ] || exit {_NO_FILE}
exec tail -c {backend.OUTPUT_BYTES} "$file\""""
# Folder; names are on stdin. What no pilot of ours can need any more goes too; the folder may have other things in it.
_REMOVE: Final = """cd "${HOME:?}" && cd "$1" 2>/dev/null || exit 0
xargs rm -rf
find . -mindepth 1 -maxdepth 1 -type d -regextype posix-egrep -regex './[0-9a-f]{24}' \
    '(' -mtime +60 -o -empty -mmin +10 ')' -exec sh -c '
        for one; do rm -f "$one/script" "$one"/[0-9]*.out; rmdir "$one" 2>/dev/null || :; done' sh {} +"""
_FREE: Final = "-- free cores --"
# Folder (not used), constraint; the print format is on stdin. What is free is asked for in the same call, and may fail.
_LOADS: Final = f"""condor_q -constraint "$2" -pr - || exit
echo '{_FREE}'
condor_status -constraint 'State == "Unclaimed"' -af Cpus || :"""


class _View(Struct, frozen=True, kw_only=True):
    """Jobs by stamp; all in the queue of these submissions; why others may be missing."""

    jobs: Mapping[str, text.CondorJob]
    queue: Iterable[text.CondorJob] = ()
    detail: str = ""


@dataclass(eq=False, kw_only=True)
class HTCondorBackend:
    """One schedd. Loads count as ours the submissions that begin with `mark`."""

    runner: Runner
    mark: str = ""
    schedd: str = ""  # of an HTCondor-CE (`ce.example.org:9619`); '': the submit host's
    collector: str = ""
    folder: str = ""  # where submissions are kept, from the account's home; '': `.lodesman/submit`
    keep_seconds: int = 86_400  # how long ended jobs stay in the queue
    history_jobs: int = 10_000  # how far back the history is read
    command_seconds: float = 60.0
    clock: Callable[[], float] = time.time
    sizes: backend.Sizes = field(default_factory=backend.Sizes)

    def submit(self, spec: backend.PilotSpec) -> SubmitResult:
        """One `condor_submit` for all copies. If its answer is of no use, the queue is asked."""
        if not spec.count:
            return SubmitResult()
        if reason := backend.why_unusable(spec):
            return backend.refuse_all(spec, reason, transient=False)
        remote = bool(self.schedd)
        where = ["-remote", *self._where()[1:]] if remote else []
        words = ["-terse", "-single-cluster", *where, *spec.options, "-"]
        facts = text.make_description(spec, keep_seconds=self.keep_seconds, remote=remote)
        script = job_script(spec, copy="$1").encode()
        spooled, size = "yes" if remote else "", str(len(script))
        done = self._shell(_SUBMIT, spec.submission, facts, spooled, size, *words, stdin=script)
        if done.code == _KNOWN:
            return backend.refuse_all(spec, "this submission was made before", transient=False)
        if done.code == _NO_FOLDER:
            return backend.refuse_all(
                spec, f"no folder on the submit host: {text.reason_of(done.err)}", transient=True
            )
        cluster = text.parse_cluster(done.out, spec.count) if not done.code else None
        if cluster is None:
            return self._after_no_answer(spec, done)
        return SubmitResult(
            accepted={stamp: f"{cluster}.{number - 1}" for number, stamp in spec.stamps().items()}
        )

    def status(self, pilots: Mapping[str, str]) -> dict[str, NativeStatus]:
        """One `condor_q`, and a `condor_history` for what it lacks."""
        now, view = self.clock(), self._read_view(pilots)
        unknown = NativeStatus(state=NativeState.UNKNOWN, observed_at=now, detail=view.detail)
        return {stamp: view.jobs[stamp].status(now) if stamp in view.jobs else unknown for stamp in pilots}

    def cancel(self, pilots: Mapping[str, str]) -> dict[str, CancelOutcome]:
        """`condor_rm` by number and submission, between two views."""
        before = self._read_view(pilots).jobs
        alive = [stamp for stamp, job in before.items() if job.state is not NativeState.ENDED]
        for some in _portions({stamp: pilots[stamp] for stamp in alive}):
            self._run("condor_rm", *self._where(), "-constraint", text.these_jobs(some))
        after = self._read_view({stamp: pilots[stamp] for stamp in alive}).jobs
        outcomes = {stamp: _outcome(before[stamp], after.get(stamp)) for stamp in alive}
        rest = {stamp: CancelOutcome.ENDED if stamp in before else CancelOutcome.UNKNOWN for stamp in pilots}
        return rest | outcomes

    def census(self) -> dict[str, str]:
        """What queue and history have. Of two with one stamp the first is ours: the folder of a submission lets no
        second one be made.
        """
        answer = self._queue(None)
        gone = self._read_history(text.our_jobs_of(answer.account)) if answer.account else {}
        jobs = sorted({**gone, **answer.jobs}.values(), key=text.order, reverse=True)
        return {job.stamp: job.native_id for job in jobs}

    def loads(self, queues: Sequence[QueueId]) -> dict[QueueId, backend.BatchLoad]:
        """One `condor_q` for all queues; other jobs and free cores are those of schedd and pool."""
        if not queues:
            return {}
        now = self.clock()
        if self.schedd:
            answer, free = self._queue(None), None
        else:
            done = self._shell(_LOADS, text.our_jobs(), stdin=text.QUEUE_FORMAT.encode())
            head, _, tail = self._check_done(done).partition(_FREE)
            answer, free = text.parse_queue(head), text.parse_free_cores(tail)
        jobs = answer.jobs.values()
        count = Counter((job.queue, job.state) for job in jobs if job.stamp.startswith(self.mark))
        strangers = Counter(job.state for job in jobs if not job.stamp.startswith(self.mark))
        waiting = answer.everyone.waiting - answer.asked.waiting + strangers[NativeState.WAITING]
        running = answer.everyone.running - answer.asked.running + strangers[NativeState.RUNNING]
        return {
            queue: backend.BatchLoad(
                observed_at=now,
                waiting=count[text.queue_word(queue), NativeState.WAITING],
                running=count[text.queue_word(queue), NativeState.RUNNING],
                held=count[text.queue_word(queue), NativeState.HELD],
                others_waiting=max(0, waiting),
                others_running=max(0, running),
                free_cores=free,
            )
            for queue in queues
        }

    def check(self, spec: backend.PilotSpec) -> backend.Check:
        """HTCondor does not say it without a submission."""
        return backend.Check(possible=None)

    def output(self, stamp: str, native_id: str) -> bytes | None:
        """From the node while it runs, from its folder after its end; none of a pilot that was removed while it ran."""
        split, job = backend.split_stamp(stamp), self._read_view({stamp: native_id}).jobs.get(stamp)
        limit = backend.OUTPUT_BYTES
        if split is None:
            return None
        if job and job.state is NativeState.RUNNING:
            words = ["condor_tail", *self._where(), "-maxbytes", str(limit), native_id]
            with contextlib.suppress(BackendFault):  # it waits without end for a job that is just ending
                done = self.runner.run(words, seconds=_TAIL_SECONDS)
                if not done.code:
                    return done.out.encode()[-limit:]
        fetch = ["condor_transfer_data", *self._where(), native_id] if self.schedd and job else []
        done = self._shell(_OUTPUT, split[0], f"{split[1]}.out", *fetch)
        return None if done.code == _NO_FILE else self._check_done(done).encode()[-limit:]

    def forget(self, pilots: Mapping[str, str]) -> None:
        """Let ended pilots leave the queue; remove their outputs, and scripts without copies."""
        view = self._read_view(pilots)
        ended = [stamp for stamp, job in view.jobs.items() if job.state is NativeState.ENDED]
        if not ended:
            return
        inside = {job.stamp for job in view.queue}
        for some in _portions({stamp: pilots[stamp] for stamp in ended if stamp in inside}):
            named = [*self._where(), "-constraint", text.these_jobs(some)]
            # A schedd elsewhere would give the output once more while the job is there: it goes at once, as a removed one.
            edit = ["condor_qedit", *named, "LeaveJobInQueue", "false"]
            done = self._run(*(["condor_rm", *named] if self.schedd else edit))
            if done.code and some.keys() & {job.stamp for job in self._read_view(some).queue}:
                self._check_done(done)  # otherwise they left the queue just before it
        needed = {_submission(job.stamp) for job in view.queue if job.state is not NativeState.ENDED}
        names = ["/".join(stamp.rsplit("-", 1)) + ".out" for stamp in ended]
        self._remove(*names, *(f"{name}/script" for name in {*map(_submission, ended)} - needed))

    # --- inside -----------------------------------------------------------------------------------

    def _read_view(self, pilots: Mapping[str, str]) -> _View:
        if not pilots:
            return _View(jobs={})
        queue = self._queue({split[0] for stamp in pilots if (split := backend.split_stamp(stamp))}).jobs
        jobs, detail = dict(queue), "HTCondor does not know it"
        missing = {stamp: native_id for stamp, native_id in pilots.items() if native_id not in queue}
        if missing:
            try:
                few = len(missing) <= text.MOST_NAMES
                words = [text.these_jobs(missing), "-limit", str(len(missing))] if few else [text.our_jobs()]
                jobs = {**self._read_history(*words), **jobs}
            except BackendFault as fault:  # what is in the queue is known all the same
                detail = fault.message
        listed = {stamp: jobs[native_id] for stamp, native_id in pilots.items() if native_id in jobs}
        return _View(
            jobs={stamp: job for stamp, job in listed.items() if job.stamp == stamp},
            queue=queue.values(),
            detail=detail,
        )

    def _queue(self, submissions: Collection[str] | None) -> text.QueueAnswer:
        done = self._run(
            "condor_q", *self._where(), "-constraint", text.our_jobs(submissions), "-pr", "-",
            stdin=text.QUEUE_FORMAT.encode(),
        )  # fmt: skip
        return text.parse_queue(self._check_done(done))

    def _read_history(self, *words: str) -> dict[str, text.CondorJob]:
        done = self._run(
            "condor_history", *self._where(), "-scanlimit", str(self.history_jobs), "-json",
            "-attributes", ",".join(text.ATTRIBUTES), "-constraint", *words,
        )  # fmt: skip
        return text.parse_history(self._check_done(done))

    def _after_no_answer(self, spec: backend.PilotSpec, done: CommandResult) -> SubmitResult:
        """Whether a submission was made that did not say so. Raises BackendFault if it is not known."""
        jobs = self._queue([spec.submission]).jobs.values()
        if jobs:
            return SubmitResult(accepted={job.stamp: job.native_id for job in jobs})
        reason = text.reason_of(done.err)
        if done.code != 1:
            raise BackendFault(f"condor_submit gave no answer ({done.code}): {reason}.", transient=True)
        with contextlib.suppress(BackendFault):
            self._remove(spec.submission)
        return backend.refuse_all(spec, reason, transient=not text.is_permanent(done.err))

    def _remove(self, *names: str) -> None:
        self._check_done(self._shell(_REMOVE, stdin="\n".join(names).encode()))

    def _where(self) -> list[str]:
        pool = ["-pool", self.collector] if self.collector else []
        return ["-name", self.schedd, *pool] if self.schedd else []

    def _shell(self, script: str, *words: str, stdin: bytes = b"") -> CommandResult:
        return self._run("sh", "-c", script, "lodesman", self.folder or _FOLDER, *words, stdin=stdin)

    def _run(self, *words: str, stdin: bytes = b"") -> CommandResult:
        return self.runner.run(words, stdin=stdin, seconds=self.command_seconds)

    def _check_done(self, done: CommandResult) -> str:
        if done.code:
            raise BackendFault(f"HTCondor did not answer: {text.reason_of(done.err)}", transient=True)
        return done.out


def _portions(pilots: Mapping[str, str]) -> Iterator[dict[str, str]]:
    left = iter(pilots.items())
    while some := dict(islice(left, text.MOST_NAMES)):
        yield some


def _submission(stamp: str) -> str:
    return stamp.rpartition("-")[0]


def _outcome(before: text.CondorJob, after: text.CondorJob | None) -> CancelOutcome:
    if after is None:  # it left the queue, and the history does not say how
        return CancelOutcome.ORDERED if before.starts else CancelOutcome.REMOVED
    if after.word == text.REMOVED:
        return CancelOutcome.ORDERED if after.starts else CancelOutcome.REMOVED
    return CancelOutcome.ENDED if after.state is NativeState.ENDED else CancelOutcome.FAILED
