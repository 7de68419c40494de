"""One attempt from its claim to its report, on a thread of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from lodesman.client import Aborted, BadChecksum, Client
from lodesman.errors import LodesmanError, TooLarge
from lodesman.pilot import protocol
from lodesman.pilot.context import PilotContext
from lodesman.pilot.decisions import Stop, judge
from lodesman.pilot.launch import COMMIT, BadSandbox, NotStarted, fetch, prepare
from lodesman.pilot.outbox import Outbox
from lodesman.pilot.output import Packed, pack, read_tail
from lodesman.pilot.protocol import AssignedJob, PayloadReport, PayloadUsage, report_end
from lodesman.pilot.reaper import NodeFault, Reaper
from lodesman.pilot.warden import Launch, NeverStarted

# The input sandbox itself is wrong; anything else that goes wrong with it is not the job's fault.
_BAD_INPUT = (BadChecksum, BadSandbox, TooLarge, *protocol.REFUSED)

# Packing is no part of a payload's wall time; it ends after this time.
_PACKING_S = 60.0

# How a first process ends that gets SIGTERM, by itself and as a shell has it.
_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
# What a batch system signals at once gets it within this time.
_TOGETHER_S = 2.0

# The sizes and times of change of the streams: they change with each output.
StreamVersion = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class PayloadContext:
    """What all payloads of a pilot share."""

    pilot: PilotContext
    reaper: Reaper
    outbox: Outbox
    new_client: Callable[[], Client]
    site: str = ""


class PayloadRun:
    """Runs one attempt. `run` belongs to the payload's thread, all else may be called by any."""

    def __init__(self, job: AssignedJob, context: PayloadContext) -> None:
        self.job = job
        self.node_failed = False
        self.began: float | None = None
        self.usage = PayloadUsage()
        # When the time of grace after a stop is over; None if it may run on.
        self.kill_at: float | None = None
        # Set to give up waiting for processes that cannot be killed; the attempt is not reported then.
        self.abandoned = threading.Event()
        # Set when it has ended and its output is not wanted: ends the packing.
        self.output_unwanted = threading.Event()
        # The version of the streams whose tail the server has.
        self.delivered: StreamVersion = ()
        self._context = context
        self._home = context.pilot.directory / "work" / str(job.key)
        self._lock = threading.Lock()
        self._launch: Launch | None = None
        self._client: Client | None = None
        self._stop: Stop | None = None
        self._stopped = threading.Event()
        self._started = 0.0
        self._ended = 0.0
        # Core-seconds that are lost should its output not be handed in, once it has ended.
        self.uncommitted = 0.0

    def run(self, on_free: Callable[[PayloadRun], None], on_done: Callable[[PayloadRun], None]) -> None:
        """Run the attempt to its end. `on_free`: its tree is gone; `on_done`: the outbox has its report."""
        end: PayloadReport | None = self._unstarted(protocol.PILOT_SHUTDOWN, "The pilot failed.")
        try:
            end = self._play()
            self._ended = self._context.pilot.clock()
            if end is not None and end.state == protocol.DONE:
                since = self.committed() or self._started
                self.uncommitted = self.job.cores * max(0.0, self._ended - since)
        finally:
            on_free(self)
            try:
                if end is not None:
                    self._hand_in(end)
            finally:
                on_done(self)

    def stop(self, stop: Stop, *, grace_s: float) -> None:
        """End the payload: SIGTERM, and SIGKILL after `grace_s`. The first cause given stays."""
        kill_at = self._context.pilot.ticker() + grace_s
        with self._lock:
            self._stop = self._stop or stop
            self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)
            client, running = self._client, self.began is not None
        self._stopped.set()
        if client is not None:
            client.abort()
        if running and grace_s > 0:
            self._context.reaper.signal(self.job.key, signal.SIGTERM)
        elif running:
            self._context.reaper.kill(self.job.key)

    @property
    def stopping(self) -> bool:
        """Whether its end was decided."""
        return self._stop is not None

    @property
    def started_at(self) -> float | None:
        """When its first process started, in UNIX seconds."""
        return self._started or None

    def measured(self, now: float) -> PayloadUsage:
        """What it has used until `now` (monotonic)."""
        with self._lock:  # the descriptors are closed, and used again, when it has ended
            written = sum(size for size, _ in self._stream_version())
        wall_seconds = 0.0 if self.began is None else now - self.began
        return replace(self.usage, wall_seconds=wall_seconds, stream_bytes=written)

    def expected_end(self, now: float) -> float | None:
        """When it is expected to end (monotonic), an overdue one now; None if nothing says how long it takes."""
        began = now if self.began is None else self.began
        return max(now, began + self.job.expected_seconds) if self.job.expected_seconds else None

    def committed(self) -> float | None:
        """When it last committed by `$LODESMAN_COMMIT` (UNIX seconds, from its start to now); None if it did not."""
        try:
            entry = (self._home / COMMIT).lstat()
        except OSError:
            return None
        if not self._started or not stat.S_ISREG(entry.st_mode) or entry.st_uid != os.geteuid():
            return None
        return min(max(entry.st_mtime, self._started), self._context.pilot.clock())

    def new_tail(self) -> tuple[StreamVersion, str | None]:
        """The version of its streams, and their tail if the version is not the one last delivered."""
        with self._lock:
            if self._launch is None:
                return self.delivered, None
            version = self._stream_version()
            return version, None if version == self.delivered else read_tail(self._launch.outputs)

    def _stream_version(self) -> StreamVersion:
        """With the lock held; empty before the start and after the end."""
        outputs = () if self._launch is None else self._launch.outputs.values()
        entries = [os.fstat(descriptor) for descriptor in outputs]
        return tuple((entry.st_size, entry.st_mtime_ns) for entry in entries)

    def _play(self) -> PayloadReport | None:
        """Stage, start, wait, clear up; how it ended. None: whether it ended is unknown."""
        try:
            self._home.mkdir(mode=0o700, parents=True)
            self._stage()
            self._start()
        except Aborted:
            stop = self._stop or Stop(protocol.PILOT_SHUTDOWN, "The pilot ended.")
            return self._unstarted(stop.cause, stop.message)
        except NotStarted as fault:
            return self._unstarted(protocol.NOT_STARTED, fault.message)
        except NeverStarted:
            message = "Its process, or the warden above it, was killed before its program ran."
            return self._unstarted(protocol.NEVER_STARTED, message)
        except _BAD_INPUT as fault:
            return self._unstarted(protocol.INPUT, f"The input sandbox is unusable: {fault.message}")
        except LodesmanError as fault:
            message = f"The input sandbox could not be fetched: {fault.message}"
            return self._unstarted(protocol.PILOT_SHUTDOWN, message)
        except OSError as fault:
            return self._node_fault(fault)
        reaper = self._context.reaper
        status = reaper.wait(self.job.key)
        decided = self._decided(status)
        if not reaper.clear(self.job.key, self.abandoned.is_set):
            return None
        self.usage = reaper.forget(self.job.key)
        return judge(self.job, status, stop=decided, cpu_seconds=self.usage.cpu_seconds)

    def _decided(self, status: int | None) -> Stop | None:
        """What ended it; what is decided after its end did not. But a batch system may send SIGTERM to the pilot and to all
        below it at once, and a payload may end first.
        """
        stop = self._stop
        if stop is None and status in _BY_SIGTERM and self._stopped.wait(_TOGETHER_S):
            stop = self._stop
            return stop if stop is not None and stop.cause == protocol.PILOT_SHUTDOWN else None
        return stop

    def _stage(self) -> None:
        if not self.job.inputs:
            return
        with contextlib.closing(self._context.new_client()) as client:
            with self._lock:
                self._client = client
                if self._stop is not None:
                    client.abort()
            for item in self.job.inputs:
                fetch(client, item, self._home, spare=self._home.with_suffix(".input"))

    def _start(self) -> None:
        """Start the first process. Raises NotStarted, NeverStarted, NodeFault, and Aborted if it was stopped before."""
        context, pilot = self._context, self._context.pilot
        stamp = pilot.pilot_file.stamp
        self._launch = prepare(self.job, self._home, pilot.environment, stamp, site=context.site)
        with self._lock:
            if self._stop is not None:
                raise Aborted("The payload was stopped.")
            try:
                context.reaper.spawn(self.job.key, self._launch)
            except NodeFault:
                raise
            except OSError as fault:
                raise NotStarted(f"The payload cannot be started: {fault}.") from None
            self.began = pilot.ticker()
        self._started = pilot.clock()
        context.outbox.put(PayloadReport(self.job.key, protocol.RUNNING, started=self._started))
        pilot.log("payload-started", job=str(self.job.key))

    def _unstarted(self, cause: str, message: str) -> PayloadReport:
        return report_end(self.job.key, cause, message)

    def _node_fault(self, fault: OSError) -> PayloadReport:
        """A node without space or permissions must not draw in more jobs."""
        self.node_failed = True
        return self._unstarted(protocol.PILOT_SHUTDOWN, f"The node failed: {fault.strerror or fault}.")

    def _hand_in(self, end: PayloadReport) -> None:
        tail = ""
        with self._lock:
            launch, self._launch = self._launch, None
        if launch is not None:
            tail = read_tail(launch.outputs)
            launch.close()
        archive = None
        if launch is not None and end.state != protocol.RELEASED:
            end, archive = self._pack(end)
        report = replace(
            end,
            cpu_seconds=round(self.usage.cpu_seconds, 3),
            wall_seconds=round(max(0.0, self._ended - self._started), 3) if self._started else 0.0,
            max_rss_mb=round(self.usage.max_rss_mb, 1),
            started=self._started,
            ended=self._ended,
            tail=tail,
        )
        self._context.pilot.log("payload-ended", job=str(end.key), state=end.state, cause=end.cause)
        self._context.outbox.put(report, archive)
        remove_tree(self._home)

    def _pack(self, end: PayloadReport) -> tuple[PayloadReport, Path | None]:
        """Pack the output sandbox; the report with it, and the archive."""
        target, ticker = self._context.outbox.archive(end.key), self._context.pilot.ticker
        until = ticker() + _PACKING_S
        try:
            packed = pack(
                self._home,
                self.job,
                target,
                stopped=lambda: self.output_unwanted.is_set() or ticker() > until,
            )
        except Aborted:
            target.unlink(missing_ok=True)
            ended = self.output_unwanted.is_set()
            why = "the job was ended meanwhile" if ended else f"that took longer than {_PACKING_S:.0f} s"
            if not ended and end.state == protocol.DONE:
                end = replace(end, state=protocol.FAILED, cause=protocol.OUTPUT_LIMIT)
            return replace(end, message=f"{end.message} Its output was not packed: {why}.".lstrip()), None
        except OSError as fault:
            return self._node_fault(fault), None
        return _after_packing(end, packed, max_mb=self.job.limits.max_output_mb), target


def _after_packing(end: PayloadReport, packed: Packed, *, max_mb: float) -> PayloadReport:
    """The report with the packed output, which may be too large or lack files."""
    over, sentences = bool(packed.cut or packed.left_out), [end.message] if end.message else []
    if over:
        sentences.append(f"The output sandbox is larger than {max_mb:.0f} MB.")
    for prefix, names in (
        ("Only the end was kept of", packed.cut),
        ("Left out:", packed.left_out),
        ("Missing in the output:", packed.missing),
    ):
        if names:
            more = f" and {len(names) - 10} more" if len(names) > 10 else ""
            sentences.append(f"{prefix} {', '.join(names[:10])}{more}.")
    if over and end.state == protocol.DONE:
        end = replace(end, state=protocol.FAILED, cause=protocol.OUTPUT_LIMIT)
    output = {"sha256": packed.sha256, "size": packed.size}
    return replace(end, message=" ".join(sentences), output=output)


def remove_tree(directory: Path) -> None:
    """Remove a directory with all in it, also what the payload made unreadable; what resists stays."""
    _unlock(directory)
    for root, directories, _ in os.walk(directory):
        for name in directories:
            _unlock(Path(root, name))
    shutil.rmtree(directory, ignore_errors=True)


def _unlock(directory: Path) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(directory.lstat().st_mode):
            directory.chmod(0o700)
