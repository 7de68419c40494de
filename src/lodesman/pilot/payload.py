"""One attempt from its claim to its report, on a thread of its own."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

from lodesman.client import Aborted, BadChecksum, Client
from lodesman.errors import Forbidden, InvalidRequest, LodesmanError, NotFound, TooLarge
from lodesman.pilot import protocol
from lodesman.pilot.launch import Launch, NotStarted, Outside, prepare
from lodesman.pilot.limits import MB, Measured, cpu_limit
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.outcome import Outcome, Stop, before_start, judge
from lodesman.pilot.output import Packed, Wanted, pack
from lodesman.pilot.protocol import Job, Report
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.sandbox import BadSandbox, fetch
from lodesman.pilot.tail import read_tail
from lodesman.pilot.tree import Usage

# The input sandbox itself is wrong; anything else that goes wrong with it is not the job's fault.
_BAD_INPUT = (BadChecksum, BadSandbox, Forbidden, InvalidRequest, NotFound, TooLarge)
_NODE_FAULT = "The node failed: "
_UNWANTED = "Its output was not packed: the job was ended while that was done."


@dataclass(frozen=True)
class Bench:
    """What all payloads of a pilot share. `clock` gives UNIX seconds, `ticker` monotonic ones."""

    directory: Path
    outside: Outside
    reaper: Reaper
    outbox: Outbox
    new_client: Callable[[], Client]
    clock: Callable[[], float]
    ticker: Callable[[], float]
    log: Callable[..., Any]


class Payload:
    """Runs one attempt. `run` belongs to the payload's thread, all else may be called by any."""

    def __init__(self, job: Job, bench: Bench) -> None:
        self.job = job
        self.node_failed = False
        self.began: float | None = None
        self.usage = Usage()
        self._bench = bench
        self._home = bench.directory / "work" / job.label
        self._lock = threading.Lock()
        self._launch: Launch | None = None
        self._client: Client | None = None
        self._stop: Stop | None = None
        self._kill_at: float | None = None
        self._abandoned = threading.Event()
        self._output_unwanted = threading.Event()
        self._started = 0.0
        self._ended = 0.0
        self._told: Any = None

    def run(self, on_free: Callable[[], None], on_done: Callable[[], None]) -> None:
        """Run the attempt to its end. `on_free`: its tree is gone; `on_done`: the outbox has its report."""
        outcome: Outcome | None = before_start(protocol.PILOT_SHUTDOWN, "The pilot failed.")
        try:
            outcome = self._play()
            self._ended = self._bench.clock()
        finally:
            on_free()
            try:
                if outcome is not None:
                    self._hand_in(outcome)
            finally:
                on_done()

    def stop(self, stop: Stop, *, grace_s: float) -> None:
        """End the payload: SIGTERM, and SIGKILL after `grace_s`. The first cause given stays."""
        kill_at = self._bench.ticker() + grace_s
        with self._lock:
            self._stop = self._stop or stop
            self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)
            client, running = self._client, self.began is not None
        if client is not None:
            client.abort()
        if running and grace_s > 0:
            self._bench.reaper.signal(self.job.key, signal.SIGTERM)
        elif running:
            self._bench.reaper.kill(self.job.key)

    @property
    def stopping(self) -> bool:
        """Whether its end was decided."""
        return self._stop is not None

    @property
    def kill_at(self) -> float | None:
        """When its time to tidy up is over; None if it may run on."""
        return self._kill_at

    def abandon(self) -> None:
        """Do not wait any longer for processes that cannot be killed; the attempt is not reported then."""
        self._abandoned.set()

    def drop_output(self) -> None:
        """It has ended, and nobody wants what it made any more: do not go on packing that."""
        self._output_unwanted.set()

    def measured(self, now: float) -> Measured:
        """What it has used until `now` (monotonic)."""
        with self._lock:  # the descriptors are closed, and used again, when it has ended
            written = 0 if self._launch is None else sum(size for size, _ in _stamps(self._launch))
        return Measured(
            cpu_seconds=self.usage.cpu_seconds,
            wall_seconds=0.0 if self.began is None else now - self.began,
            rss_mb=self.usage.rss_mb,
            stream_bytes=written,
            cores=self.job.cores,
        )

    def news(self) -> tuple[Any, str | None]:
        """(a stamp, the tail of its output if that changed since the stamp last given to `heard`)."""
        with self._lock:
            if self._launch is None:
                return self._told, None
            stamp = tuple(_stamps(self._launch))
            return stamp, None if stamp == self._told else read_tail(self._launch.kept)

    def heard(self, stamp: Any) -> None:
        """The server has the tail that came with this stamp."""
        self._told = stamp

    def _play(self) -> Outcome | None:
        """Stage, start, wait, clear up. None: it cannot be said that it ended."""
        try:
            self._home.mkdir(mode=0o700, parents=True)
            self._stage()
            pid = self._start()
        except Aborted:
            return self._stopped()
        except NotStarted as fault:
            return before_start(protocol.NOT_STARTED, fault.message)
        except _BAD_INPUT as fault:
            return before_start(protocol.INPUT, f"The input sandbox cannot be used: {fault.message}")
        except LodesmanError as fault:
            return before_start(protocol.PILOT_SHUTDOWN, f"The input sandbox cannot be had: {fault.message}")
        except OSError as fault:
            return self._node_fault(fault)
        if pid is None:
            return self._stopped()
        ended = self._bench.reaper.wait(pid)
        stop = self._stop  # what is decided after its end did not cause it
        if not self._bench.reaper.clear(self.job.key, self._abandoned.is_set):
            return None
        self.usage = self._bench.reaper.forget(self.job.key)
        most = cpu_limit(self.job.limits, self._bench.outside.scaling)
        over = bool(most) and self.usage.cpu_seconds >= most
        return judge(ended.code, ended.signal, stop=stop, limits=self.job.limits, cpu_over=over)

    def _stage(self) -> None:
        if not self.job.inputs:
            return
        with self._lock:
            self._client = self._bench.new_client()
            if self._stop is not None:
                self._client.abort()
        try:
            for item in self.job.inputs:
                fetch(self._client, item, self._home, spare=self._home.with_suffix(".input"))
        finally:
            self._client.close()

    def _start(self) -> int | None:
        """Start the first process; None if the payload was stopped before. Raises NotStarted."""
        bench = self._bench
        self._launch = launch = prepare(self.job, self._home, bench.outside)
        with self._lock:
            if self._stop is not None:
                return None
            try:
                pid = bench.reaper.spawn(
                    self.job.key, launch.argv, env=launch.environment, cwd=self._home, streams=launch.streams
                )
            except (OSError, ValueError) as fault:
                raise NotStarted(f"The payload cannot be started: {fault}.") from None
            self.began = bench.ticker()
        self._started = bench.clock()
        bench.outbox.put_running(Report(self.job.key, protocol.RUNNING, started=self._started))
        bench.log("payload-started", job=self.job.label)
        return pid

    def _stopped(self) -> Outcome:
        stop = self._stop or Stop(protocol.PILOT_SHUTDOWN, "The pilot ended.")
        return before_start(stop.cause, stop.message)

    def _node_fault(self, fault: OSError) -> Outcome:
        """A node without room or rights must not draw in more jobs."""
        self.node_failed = True
        return before_start(protocol.PILOT_SHUTDOWN, f"{_NODE_FAULT}{fault.strerror or fault}.")

    def _hand_in(self, outcome: Outcome) -> None:
        tail = ""
        with self._lock:
            launch, self._launch = self._launch, None
        if launch is not None:
            tail = read_tail(launch.kept)
            launch.close()
        packed = None
        if launch is not None and outcome.state != protocol.RELEASED:
            outcome, packed = self._pack(outcome)
        began = self._ended if self.began is None else self._started
        report = Report(
            key=self.job.key,
            state=outcome.state,
            cause=outcome.cause,
            message=outcome.message,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            cpu_seconds=self.usage.cpu_seconds,
            wall_seconds=max(0.0, self._ended - began),
            max_rss_mb=self.usage.max_rss_mb,
            started=self._started,
            ended=self._ended,
            output=None if packed is None else (packed.sha256, packed.size),
            tail=tail,
        )
        self._bench.log("payload-ended", job=self.job.label, state=outcome.state, cause=outcome.cause)
        self._bench.outbox.put(report, None if packed is None else packed.file)
        remove_tree(self._home)

    def _pack(self, outcome: Outcome) -> tuple[Outcome, Packed | None]:
        """Pack the output sandbox; that may change the outcome."""
        job = self.job
        wanted = Wanted(
            streams=(job.std_output, job.std_error),
            patterns=job.output_sandbox,
            most_bytes=int(job.limits.most_output_mb * MB),
            most_packed=int(job.limits.sandbox_mb * MB),
        )
        target = self._bench.outbox.archive(job.key)
        try:
            packed = pack(self._home, wanted, target, stopped=self._output_unwanted.is_set)
        except Aborted:
            target.unlink(missing_ok=True)
            return replace(outcome, message=f"{outcome.message} {_UNWANTED}".lstrip()), None
        except OSError as fault:
            return self._node_fault(fault), None
        return after_packing(outcome, packed, most_mb=job.limits.most_output_mb), packed


def after_packing(outcome: Outcome, packed: Packed, *, most_mb: float) -> Outcome:
    """What the size of the output, and files that are missing, make of an outcome."""
    over, told = bool(packed.cut or packed.left_out), [outcome.message] if outcome.message else []
    if over:
        told.append(f"The output sandbox is larger than {most_mb:.0f} MB.")
    if packed.cut:
        told.append(f"Only the end was kept of {_some(packed.cut)}.")
    if packed.left_out:
        told.append(f"Left out: {_some(packed.left_out)}.")
    if packed.missing:
        told.append(f"Missing in the output: {_some([f'{name} ({why})' for name, why in packed.missing])}.")
    if over and outcome.state == protocol.DONE:
        outcome = replace(outcome, state=protocol.FAILED, cause=protocol.OUTPUT_LIMIT)
    return replace(outcome, message=" ".join(told))


def _some(names: Sequence[str]) -> str:
    """The first ten, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def remove_tree(directory: Path) -> None:
    """Remove a directory with all in it, also what the payload made unreadable; what resists stays."""
    _unlock(directory)
    for root, directories, _ in os.walk(directory):
        for name in directories:
            _unlock(Path(root, name))
    shutil.rmtree(directory, ignore_errors=True)


def _unlock(directory: Path) -> None:
    try:
        mode = directory.lstat().st_mode
        if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
            directory.chmod(0o700)
    except OSError:
        return


def _stamps(launch: Launch) -> list[tuple[int, int]]:
    """(size, time of the last change) of each stream."""
    told = [os.fstat(descriptor) for _, descriptor in launch.kept]
    return [(entry.st_size, entry.st_mtime_ns) for entry in told]
