"""The test of one queue: a test job goes the way of a pilot, a second one is cancelled, and nothing is left behind.

No row stores test jobs (`test_...`): no census, limit or breaker counts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from lodesman.base.errors import LodesmanError
from lodesman.decide.resources import QueueId
from lodesman.server.engines.backend import Backend, CancelOutcome, NativeState, NativeStatus, PilotSpec
from lodesman.server.loops.cancelling import GONE, UNKNOWN_TIMES
from lodesman.server.loops.node_report import Finding, judge_node, judge_silence, read_report
from lodesman.wire.site_tests import Result, SiteCheck

PREFIX: Final = "test_"
_POLL_SECONDS, _LONGEST_POLL_SECONDS, _SLOWER = 0.5, 10.0, 1.5
_STAY_SECONDS: Final = 900  # of the job that is cancelled, should a killed server leave it there
_START_SECONDS, _END_SECONDS, _OUTPUT_SECONDS = 60.0, 60.0, 30.0  # the longest waits for each
_AGAIN_SECONDS, _ASK_AGAIN_SECONDS = 45.0, 2.0  # to the next order, after an answer and without one


@dataclass(slots=True)
class _TestJob:
    stamp: str
    python: str
    native_id: str = ""  # '': it is not known whether the batch system has it
    status: NativeStatus | None = None
    fault: str = ""  # of the last question about it
    is_gone: bool = False  # it was cancelled, and ended

    @property
    def has_ended(self) -> bool:
        return self.status is not None and self.status.state is NativeState.ENDED

    @property
    def failed(self) -> bool:
        """Whether it is known to have ended without its report."""
        return self.status is not None and bool(self.status.exit_code)


@dataclass(eq=False)
class QueueTest:
    """The test of one queue. Other threads may read what it found."""

    queue: QueueId
    backend: Backend
    spec: Callable[[int], PilotSpec]  # makes a job that stays for so many seconds after its work
    _: KW_ONLY
    seconds: float  # that each job may wait and run
    # Lets time pass; whether the test is stopped, unless it is the last that it does.
    wait: Callable[[float, bool], bool]
    clock: Callable[[], float] = time.monotonic
    checks: list[SiteCheck] = field(default_factory=list, init=False)
    doing: str = field(default="", init=False)
    _jobs: list[_TestJob] = field(default_factory=list, init=False)
    _stopped: bool = field(default=False, init=False)
    _is_last: bool = field(default=False, init=False)

    def run(self) -> None:
        """Make all checks, then remove what is left."""
        try:
            job = self._submit(0)
            if job is not None:
                self._watch(job)
            if job is not None and not self._stopped:
                self._try_cancel(job)
        finally:
            self._clean_up()
            self.doing = ""

    # --- the steps --------------------------------------------------------------------------------

    def _submit(self, stay_seconds: int) -> _TestJob | None:
        """The first acceptance is noted, and each refusal."""
        self.doing = "a test job is submitted"
        begun, spec = self.clock(), self.spec(stay_seconds)
        (stamp,) = spec.stamps().values()
        job = _TestJob(stamp, spec.python)
        fault = "the batch system did not answer whether it accepted the job"
        try:
            done = self.backend.submit(spec)
        except LodesmanError as refused:
            self._jobs.append(job)
            fault = str(refused)
        else:
            refusal = done.refused.get(stamp)
            if refusal is None:
                self._jobs.append(job)
                job.native_id = done.accepted.get(stamp, "")
            else:
                fault = f"refused{', for now' if refusal.transient else ''}: {refusal.reason}"
        if not job.native_id:
            self._note(Finding(check="submit", result="failed", detail=fault), begun)
            return None
        if not stay_seconds:
            self._note(Finding(check="submit", result="ok", detail=f"accepted as {job.native_id}"), begun)
        return job

    def _watch(self, job: _TestJob) -> None:
        begun = self.clock()
        self._follow(job, self.seconds, {NativeState.ENDED})
        if self._stopped:
            return
        self._note(judge_status(job.status, job.fault, self.seconds), begun)
        if job.has_ended:
            self._read(job)

    def _read(self, job: _TestJob) -> None:
        begun, raw = self.clock(), None
        self.doing = "the output of a test job is read"
        while True:
            fault = "the batch system kept nothing of it: see where outputs go, `folder` of [backend]"
            try:
                raw = self.backend.output(job.stamp, job.native_id)
            except LodesmanError as refused:
                fault = refused.message
            report = read_report(raw or b"")
            if report or (raw and job.failed) or self.clock() - begun >= _OUTPUT_SECONDS:
                break
            if self._pause(_POLL_SECONDS):
                return
        is_there: Result = "failed" if raw is None else "ok"
        words = fault if raw is None else f"{len(raw):,} bytes"
        self._note(Finding(check="output", result=is_there, detail=words), begun)
        heard = [judge_silence(job.status, raw)] if report is None else judge_node(report, python=job.python)
        for finding in heard:
            self._note(finding)

    def _try_cancel(self, job: _TestJob) -> None:
        """Cancel the job, or one that stays if it has ended."""
        if job.failed:
            words = "not tested: test jobs end at once there"
            self._note(Finding(check="cancel", result="unknown", detail=words))
        elif not job.has_ended:
            self._cancel(job)
        elif (second := self._submit(_STAY_SECONDS)) is not None:
            self._follow(second, min(self.seconds, _START_SECONDS), {NativeState.RUNNING, NativeState.ENDED})
            self._cancel(second)

    def _cancel(self, job: _TestJob) -> None:
        if self._stopped:
            return
        if job.has_ended:
            words = "the job ended before it could be cancelled"
            self._note(Finding(check="cancel", result="unknown", detail=words))
            return
        before = NativeState.UNKNOWN if job.status is None else job.status.state
        begun = self.clock()
        fault = self._end(job)
        if not self._stopped:
            words = fault or f"a {before} job is gone"
            self._note(Finding(check="cancel", result="failed" if fault else "ok", detail=words), begun)

    def _end(self, job: _TestJob) -> str:
        """What is wrong if it does not end."""
        self.doing = "a test job is cancelled"
        deadline = self.clock() + _END_SECONDS
        while True:
            try:
                outcome, fault = self.backend.cancel({job.stamp: job.native_id})[job.stamp], ""
            except LodesmanError as refused:
                outcome, fault = CancelOutcome.FAILED, refused.message
            if outcome in GONE:
                job.is_gone = True
                return ""
            again = _ASK_AGAIN_SECONDS if outcome is CancelOutcome.FAILED else _AGAIN_SECONDS
            left = min(again, deadline - self.clock())
            job.is_gone = self._follow(job, left, {NativeState.ENDED, NativeState.UNKNOWN})
            if job.is_gone or self._stopped:
                return ""
            if self.clock() >= deadline:
                words = (fault or job.fault).rstrip(".") or f"the answer to the cancel was {outcome!s}"
                return (
                    f"after {_END_SECONDS:g} s {job.native_id} may still be there ({words}): cancel it there"
                )

    def _clean_up(self) -> None:
        begun, left = self.clock(), []
        self._is_last, self._stopped = True, False
        for job in self._jobs:
            try:
                job.native_id = job.native_id or self.backend.census().get(job.stamp, "")
                fault = self._end(job) if job.native_id and not (job.is_gone or job.has_ended) else ""
                if fault:
                    left.append(fault)
                elif job.native_id:
                    self.backend.forget({job.stamp: job.native_id})
            except LodesmanError as refused:
                left.append(f"it is not known whether {job.stamp} left something there: {refused.message}")
        if self._jobs:
            result: Result = "failed" if left else "ok"
            words = "; ".join(left) or "nothing is left there"
            self._note(Finding(check="forget", result=result, detail=words), begun)

    # --- inside -----------------------------------------------------------------------------------

    def _follow(self, job: _TestJob, seconds: float, states: Collection[NativeState]) -> bool:
        """False: time is over, or the test is stopped. A batch system must say several times that it does not know
        a job.
        """
        end, pause, unknown = self.clock() + seconds, _POLL_SECONDS, 0
        while True:
            try:
                status, job.fault = self.backend.status({job.stamp: job.native_id})[job.stamp], ""
            except LodesmanError as fault:
                job.fault = fault.message
            else:
                unknown = unknown + 1 if status.state is NativeState.UNKNOWN else 0
                job.status, word = status, status.word
                self.doing = f"a test job is {status.state}" + (f" ({word})" if word else "")
                if status.state in states and unknown in (0, UNKNOWN_TIMES):
                    return True
            if self.clock() >= end or self._pause(pause):
                return False
            pause = min(_LONGEST_POLL_SECONDS, pause * _SLOWER)

    def _pause(self, seconds: float) -> bool:
        """Whether to stop here."""
        self._stopped = self.wait(seconds, self._is_last)
        return self._stopped

    def _note(self, finding: Finding, begun: float | None = None) -> None:
        seconds = round(finding.seconds if begun is None else self.clock() - begun, 3)
        self.checks.append(SiteCheck(*self.queue, finding.check, finding.result, seconds, finding.detail))


def judge_status(status: NativeStatus | None, fault: str, seconds: float) -> Finding:
    """What was seen of a job in these seconds."""

    def finding(result: Result, detail: str) -> Finding:
        return Finding(check="status", result=result, detail=detail)

    if fault or status is None:
        return finding("failed", f"the batch system does not answer: {fault or 'it says nothing'}")
    word = f": {status.word}" if status.word not in ("", status.state) else ""
    host = f" on {status.host}" if status.host else ""
    after = f"after {seconds:g} s"
    if status.state is NativeState.ENDED:
        code = "" if status.exit_code is None else f", exit code {status.exit_code}"
        return finding("ok", f"it ended{host}{word}{code}")
    if status.state is NativeState.WAITING:
        words = f"it still waits {after}{word}; if the queue is full, allow more time with --timeout"
        return finding("unknown", words)
    if status.state is NativeState.HELD:
        return finding("failed", f"it is held {after}{word}; let the batch system release such jobs")
    if status.state is NativeState.RUNNING:
        return finding(
            "failed", f"it still runs{host} {after}{word}; it needs less than a minute: check the node"
        )
    return finding(
        "unknown", f"the batch system does not list it {after}: {status.detail or 'it gives no reason'}"
    )
