"""The thread that keeps $JOBSTATUS true. `lodesman.site.jobstatus.timeline` decides what to publish when, and what may not
start because of it.

Nothing here may harm payloads: what cannot be written is tried again, and given up in the end.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Callable

from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import HELD
from lodesman.pilot.payload import PayloadRun
from lodesman.pilot.roster import Roster
from lodesman.pilot.slots import Allowance, Promises
from lodesman.site.jobstatus.channel import Publication
from lodesman.site.jobstatus.timeline import Facts, LastStatus, NextStatus, decide, note_publication
from lodesman.site.jobstatus.values import KEYS, Status
from lodesman.site.jobstatus.waste import RunningPayload

# How often commits are looked for.
_LOOK_S = 5.0
_TOGETHER_S = 0.2
# What could not be written for so long counts as published: payloads wait no longer for it.
_GIVEN_UP_S = 60.0
# Two tries to lock, and what they write.
_LEAVE_S = 5.0
# What batch systems call the cores that they allocated.
_ALLOCATED = ("SLURM_CPUS_ON_NODE", "NSLOTS", "NCPUS")
_CPUS = re.compile(r"^\s*Cpus\s*=\s*([0-9]{1,9})\s*$", re.IGNORECASE | re.MULTILINE)
_ALLOWED = re.compile(r"^\s*AllowedJobDuration\s*=\s*([0-9]{1,9})\s*$", re.IGNORECASE | re.MULTILINE)
_MOST_OF_AD = 1 << 20
# A controller that is asked when the slot ends may be away; what is published does not wait longer for it.
_ANSWER_S = 4.0


def allocated_cores(environment: Mapping[str, str]) -> int | None:
    """The cores of the slot by the batch system, used or not."""
    words = [environment.get(name, "") for name in _ALLOCATED]
    words.insert(2, _cores_of_condor(environment))
    return next((int(word) for word in words if word.isascii() and word.isdigit() and int(word)), None)


def _cores_of_condor(environment: Mapping[str, str]) -> str:
    return _of_condor(environment, "_CONDOR_MACHINE_AD", ".machine.ad", _CPUS)


def _of_condor(environment: Mapping[str, str], variable: str, name: str, pattern: re.Pattern[str]) -> str:
    scratch = environment.get("_CONDOR_SCRATCH_DIR")
    path = environment.get(variable) or (scratch and f"{scratch}/{name}")
    with contextlib.suppress(OSError):
        if path and Path(path).is_file():
            with Path(path).open(encoding="utf-8", errors="replace") as file:
                match = pattern.search(file.read(_MOST_OF_AD))
            return match[1] if match else ""
    return ""


def batch_end(
    environment: Mapping[str, str], started: float, ask: Callable[[str, Mapping[str, str]], str]
) -> float | None:
    """In UNIX seconds, also by a default of the batch system. Slurm: its variable, else what `ask` gets (`end_by_slurm`).
    HTCondor: AllowedJobDuration from `started` on.
    """
    job = environment.get("SLURM_JOB_ID", "")
    if job:
        text = environment.get("SLURM_JOB_END_TIME", "") or ask(job, environment)
        return float(text) if text.isascii() and text.isdigit() and len(text) < 12 and int(text) else None
    allowed = _of_condor(environment, "_CONDOR_JOB_AD", ".job.ad", _ALLOWED)
    return started + int(allowed) if allowed else None


def end_by_slurm(job: str, environment: Mapping[str, str]) -> str:
    """What squeue says, in UNIX seconds; empty if it cannot be asked."""
    words = ["squeue", "--noheader", f"--jobs={job}", "--format=%e"]
    try:
        done = subprocess.run(
            words, env={**environment, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_ANSWER_S, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("ascii", "replace").strip()


def as_published(
    payload: PayloadRun, committed: float | None, allowance: Allowance, now: float
) -> RunningPayload:
    """Before its start a payload is as if it started now, without a limit."""
    job, started = payload.job, payload.started_at
    begun = now if started is None else started
    return RunningPayload(
        cores=job.cores,
        started=begun,
        committed=begun if committed is None else max(begun, committed),
        expected_end=begun + job.expected_seconds,
        enforced_end=None if started is None else allowance.latest_end(job, started),
    )


def _has_lock(directory: Path | None) -> bool:
    return directory is not None and (directory / KEYS[0]).exists()


class StatusWriter:
    """`run` belongs to its thread, all else to any."""

    def __init__(self, context: PilotContext, roster: Roster, promises: Promises) -> None:
        self._context = context
        self._roster = roster
        self._promises = promises
        self._allocated = allocated_cores(context.environment)
        self._started = context.clock()
        self._batch_ends: float | None = None
        self._made: Path | None = None
        self._directory = self._find()
        self._publication: Publication | None = None
        self._said = LastStatus()
        self._failing_since: float | None = None
        self._fault = ""
        self._stirred = threading.Event()
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Publish from now on, if there is a directory."""
        if self._directory is not None and self._open():
            self._context.log("jobstatus", directory=str(self._directory))
            self._thread = threading.Thread(target=self.run, name="jobstatus", daemon=True)
            self._thread.start()

    def stir(self) -> None:
        """Something has changed."""
        self._stirred.set()

    def leave(self) -> None:
        """Publish that nothing runs; waits some seconds at most."""
        self._leaving.set()
        self._stirred.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_S)
        if self._made is not None:
            shutil.rmtree(self._made, ignore_errors=True)

    def run(self) -> None:
        """Ends when it was published that the pilot leaves."""
        self.find_end()
        while True:
            self._stirred.clear()
            leaving = self._leaving.is_set()
            wait_s = self.step()
            if leaving:
                return
            if self._stirred.wait(wait_s):
                # What starts together is published together.
                self._leaving.wait(_TOGETHER_S)

    def find_end(self) -> None:
        """Ask when the batch system ends the slot: server and site may not have said."""
        self._batch_ends = batch_end(self._context.environment, self._started, end_by_slurm)

    def step(self) -> float:
        """Publish what is due; seconds until the next time."""
        now = self._context.clock()
        due = self._decide(now)
        if due.publish is not None:
            self._publish(due.publish, due.why, now)
        # Commits are looked for, and what failed is tried again, with jitter.
        return min(max(0.1, due.ask_again - now), _LOOK_S * self._context.rng.uniform(0.9, 1.1))

    def _decide(self, now: float) -> NextStatus:
        """Nothing starts between the list of what runs and the promise that follows from it."""
        commits = {payload.job.key: payload.committed() for payload in self._roster.payloads()}
        context, features = self._context, self._context.features()
        with self._roster.changed:
            standing = self._roster.standing()
            slot = self._roster.slot
            allowance = Allowance(slot, context.options.kill_grace_s, context.ticker() - now)
            facts = Facts(
                allocated=features.allocated_cpu or self._allocated or slot.cores,
                running=[
                    as_published(payload, commits.get(payload.job.key), allowance, now)
                    for payload in standing.payloads
                ],
                pending_waste=standing.pending_waste,
                slot_ends=self._slot_ends(allowance, now),
                drain=standing.causes - {HELD},
                priority=max((payload.job.vacate_priority for payload in standing.payloads), default=0),
                leaving=self._leaving.is_set(),
            )
            due = decide(self._said, facts, now)
            self._promises.said = (
                self._said if due.publish is None else note_publication(self._said, due.publish, now)
            )
        return due

    def _slot_ends(self, allowance: Allowance, now: float) -> float | None:
        """The latest. An end of the batch system that has passed was put off."""
        ends, batch = allowance.slot_ends, self._batch_ends
        if batch is None or batch <= now:
            return ends
        return batch if ends is None else min(ends, batch)

    def _publish(self, status: Status, why: str, now: float) -> None:
        fault = self._write(status)
        if fault is None:
            self._failing_since, self._fault = None, ""
            self._said = note_publication(self._said, status, now)
            return
        if fault != self._fault:
            self._context.log("jobstatus-failed", why=why, fault=fault)
            self._fault = fault
        self._failing_since = now if self._failing_since is None else self._failing_since
        if now - self._failing_since >= _GIVEN_UP_S:
            self._said = note_publication(self._said, status, now)

    def _write(self, status: Status) -> str | None:
        try:
            if not self._open() or self._publication is None:
                return "the directory cannot be used"
            if self._publication.publish(status):
                return None
            if _has_lock(self._directory):
                return "used_CPU stayed locked"
            fault = "the directory is gone"
        except OSError as failed:
            fault = failed.strerror or str(failed)
        self._close()
        return fault

    def _find(self) -> Path | None:
        named = self._context.environment.get("JOBSTATUS", "")
        if named.startswith("/") and Path(named).is_dir():
            return Path(named)
        base = self._context.options.jobstatus_directory
        if not base:
            return None
        self._made = self._context.directory / base / self._context.pilot_file.stamp
        with contextlib.suppress(OSError):  # _open says what is wrong
            self._made.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._made

    def _open(self) -> bool:
        if self._publication is None and self._directory is not None:
            try:
                self._publication = Publication(self._directory)
            except (OSError, ValueError) as fault:
                if self._thread is None:
                    self._context.log("jobstatus-unusable", directory=str(self._directory), fault=str(fault))
        return self._publication is not None

    def _close(self) -> None:
        if self._publication is not None:
            self._publication.close()
            self._publication = None
