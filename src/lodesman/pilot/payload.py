"""One attempt from its claim to its report, on its own thread."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Callable

from lodesman.base.errors import LodesmanError, TooLarge
from lodesman.pilot import protocol
from lodesman.pilot.decisions import Stop, is_of_node, judge, smells_of_node
from lodesman.pilot.launch import (
    TEMPORARY,
    BadSandbox,
    NotStarted,
    committed_at,
    fetch,
    frame_of,
    no_input,
    prepare,
    remove_tree,
)
from lodesman.pilot.nursery import PilotFault
from lodesman.pilot.output import enclose_archive, pack, read_tail, report_output
from lodesman.pilot.payload_context import PayloadContext
from lodesman.pilot.protocol import AssignedJob, PayloadReport, PayloadUsage, report_end
from lodesman.pilot.reaper import NodeFault
from lodesman.pilot.trial import TRUSTED_S
from lodesman.pilot.warden import Launch, NeverStarted, NoInput
from lodesman.wire.client import Aborted, BadChecksum, Client, LocalFault

# The input sandbox itself is wrong; anything else that goes wrong with it is not the job's fault.
_BAD_INPUT = (BadChecksum, BadSandbox, TooLarge, *protocol.REFUSED)

# Packing is no part of a payload's wall time; it ends after this time.
_PACKING_S, _PACKINGS = 60.0, 5

# How a first process ends that gets SIGTERM, by itself and as a shell has it.
_BY_SIGTERM = (-signal.SIGTERM, 128 + signal.SIGTERM)
# What a batch system signals at once gets it within this time.
_TOGETHER_S = 2.0

# The sizes and times of change of the streams: they change with each output.
StreamVersion = tuple[tuple[int, int], ...]


class PayloadRun:
    """`run` belongs to the payload's thread, all else to any."""

    def __init__(self, job: AssignedJob, context: PayloadContext) -> None:
        self.job = job
        self.node_fault = self.pilot_fault = ""  # what is wrong with the node, or the pilot alone
        self.began: float | None = None
        self.usage = PayloadUsage()
        # When the time of grace after a stop is over; None if it may run on.
        self.kill_at: float | None = None
        # Set to give up waiting for processes that cannot be killed; the attempt is not reported then.
        self.abandoned = False
        self.output_unwanted = False  # set when it has ended: ends the packing
        # The version of the streams whose tail the server has.
        self.delivered: StreamVersion = ()
        self._context = context
        # At last; while it runs it is in the folder of its warden.
        self._place = self._home = context.pilot.directory / "work" / str(job.key)
        self._changes = context.pilot.folder.changes
        self._lock = threading.Lock()
        self._launch: Launch | None = None
        self._client: Client | None = None
        self._stop: Stop | None = None
        self._stopped = threading.Event()
        self._started = 0.0
        self._ended = 0.0
        self._removed = False
        self._is_begun = False
        self._refusal: PayloadReport | None = None  # the report of its end if it does not run
        # Whether its end is handed in at once: it has written nothing that would have to be packed.
        self.leaves_nothing = False
        self.next: PayloadRun | None = None  # the one that its thread runs after it
        # Core-seconds that are lost should its output not be handed in, once it has ended.
        self.uncommitted = 0.0

    def run(self, on_free: Callable[[PayloadRun], bool], on_done: Callable[[PayloadRun], None]) -> None:
        """`on_free`: its tree is gone; it returns whether the report can wait. `on_done`: the outbox has its report."""
        end: PayloadReport | None = self._unstarted(protocol.PILOT_SHUTDOWN, "The pilot failed.")
        try:
            end = self._play()
            pilot, began = self._context.pilot, self.began
            # The clock may have been set since its start.
            self._ended = pilot.clock() if began is None else self._started + pilot.ticker() - began
            if end is not None and end.state == protocol.DONE:
                since = self.committed() or self._started
                self.uncommitted = self.job.cores * max(0.0, self._ended - since)
        finally:
            can_wait = on_free(self)
            try:
                if self.next is not None:
                    self.next.begin()
            finally:
                try:
                    if end is not None:
                        self._hand_in(end, can_wait=can_wait)
                finally:
                    on_done(self)

    def begin(self) -> None:
        """Stage and start it; else `run` does."""
        try:
            self._refusal = self._begin()
            self._is_begun = True
        finally:
            if not self._is_begun and self.began is None:  # a fault of the pilot
                self._context.reaper.give(self.job.key)

    def stop(self, stop: Stop, *, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after `grace_s`. The first cause given stays."""
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
        wall_s = 0.0 if self.began is None else max(0.0, now - self.began)
        return replace(self.usage, wall_seconds=wall_s, stream_bytes=self._stream_bytes())

    def _stream_bytes(self) -> int:
        with self._lock:  # the descriptors are closed, and used again, when it has ended
            return sum(size for size, _ in self._stream_version())

    def expected_end(self, now: float) -> float | None:
        """Monotonic, now if overdue; None if nothing says how long it takes."""
        began = now if self.began is None else self.began
        return max(now, began + self.job.expected_seconds) if self.job.expected_seconds else None

    def committed(self) -> float | None:
        """When it last committed by `$LODESMAN_COMMIT`, in UNIX seconds."""
        at = committed_at(self._home) if self._started else None
        return None if at is None else min(max(at, self._started), self._context.pilot.clock())

    def new_tail(self) -> tuple[StreamVersion, str | None]:
        """The version of its streams, and their tail if it was not delivered."""
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
        key, reaper = self.job.key, self._context.reaper
        if not self._is_begun:
            self.begin()
        if self._refusal is not None:
            return self._weigh(self._leave_warden(self._refusal))
        status = reaper.wait(key)
        decided = self._find_stop(status)
        if not reaper.clear(key, lambda: self.abandoned):
            return None
        self.usage = reaper.forget(key)
        self.leaves_nothing = not (self.job.output_sandbox or self._stream_bytes())
        end = judge(self.job, status, stop=decided, cpu_seconds=self.usage.cpu_seconds)
        return self._weigh(self._leave_warden(end))

    def _begin(self) -> PayloadReport | None:
        try:
            folder = self._context.reaper.take(self.job.key, frame_of(self.job))
            if folder:
                self._home = Path(folder, str(self.job.key))
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
        except (LocalFault, OSError) as fault:
            return self._suspect(fault)
        except LodesmanError as fault:
            message = f"The input sandbox could not be fetched: {fault.message}"
            return self._unstarted(protocol.PILOT_SHUTDOWN, message)
        return None

    def _leave_warden(self, end: PayloadReport) -> PayloadReport:
        """Its folder goes out of sight of the warden's next payload, or away if nothing in it is wanted."""
        if not self._has_folder():
            self._home = self._place
        if self._home != self._place and not (self.leaves_nothing and self._is_removed()):
            with contextlib.suppress(OSError):  # then the warden has no next one
                self._home.rename(self._place)
                self._home = self._place
        self._context.reaper.give(self.job.key)
        return end

    def _has_folder(self) -> bool:
        """A payload can put a link there: what that leads to is not touched, and an empty folder stands for what
        was there.
        """
        for _ in range(_PACKINGS):
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(self._home).st_mode):
                    return True
                break
            self._is_locked()
        with contextlib.suppress(OSError):
            os.unlink(self._home)  # noqa: PTH108 - as in `_is_removed`
        with contextlib.suppress(OSError):
            self._place.mkdir(mode=0o700, parents=True)
        return False

    def _find_stop(self, status: int | None) -> Stop | None:
        """Later decisions did not end it. But a batch system may send SIGTERM to the pilot and all below at once, and a
        payload may end first.
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
        """Raises NotStarted, NeverStarted, OSError for the node, Aborted if stopped before."""
        context, pilot = self._context, self._context.pilot
        stamp = pilot.pilot_file.stamp
        self._launch = prepare(self.job, self._home, pilot.environment, stamp, site=context.site)
        with self._lock:
            if self._stop is not None:
                raise Aborted("The payload was stopped.")
            started, began = pilot.clock(), pilot.ticker()  # after its start it may have ended already
            try:
                context.reaper.spawn(self.job.key, self._launch)
            except NoInput as fault:
                self._launch.close()
                self._launch = None
                raise no_input(self.job, fault.errno or errno.EINVAL) from None
            except OSError as fault:
                if isinstance(fault, (NodeFault, PilotFault)) or is_of_node(fault.errno):
                    raise
                raise NotStarted(f"The payload cannot be started: {fault}.") from None
            self.began = began
        self._started = started
        running = PayloadReport(self.job.key, protocol.RUNNING, started=self._started)
        context.outbox.put(running, can_wait=True)

    def _unstarted(self, cause: str, message: str) -> PayloadReport:
        return report_end(self.job.key, cause, message)

    def _suspect(self, fault: LocalFault | OSError, otherwise: str = protocol.INPUT) -> PayloadReport:
        """The node is tried when what it left is gone: one that fails must not draw in more jobs. `otherwise`: the cause if
        the node is well and no folder was locked.
        """
        if isinstance(fault, PilotFault):
            self.pilot_fault = str(fault.strerror)
            return self._unstarted(protocol.PILOT_SHUTDOWN, f"{fault.strerror}.")
        is_locked = self._is_locked()
        remove_tree(self._home)
        size, trial = sum(item.size for item in self.job.inputs), self._context.trial
        otherwise = protocol.PILOT_SHUTDOWN if is_locked else otherwise
        end, cause = self._blame_node(size=size), trial.cause(fault.errno, size, otherwise)
        words = f"The system refused what it needs: {os.strerror(fault.errno or errno.EIO)}"
        words = str(self._context.pilot.folder) if is_locked and not is_of_node(fault.errno) else words
        self.node_fault = self.node_fault or (words if cause == protocol.NODE_FAULT else "")
        return end or self._unstarted(cause, f"{words}.")

    def _is_locked(self) -> bool:
        """Another has locked them since this one began, or was packed; they are unlocked now."""
        self._context.pilot.folder.unlock(self._home.parent)
        return self._context.pilot.folder.changes != self._changes

    def _weigh(self, end: PayloadReport) -> PayloadReport:
        if not smells_of_node(end):
            return end
        if self._is_locked():
            end = self._unstarted(protocol.PILOT_SHUTDOWN, f"{self._context.pilot.folder}.")
        return self._blame_node(trusted_s=TRUSTED_S) or end

    def _blame_node(self, *, size: int = 0, trusted_s: float = 0.0) -> PayloadReport | None:
        """None if the node passes its trial. Signals to a trial say nothing of the node."""
        fault = "" if self.stopping else self._context.trial.fault(size=size, trusted_s=trusted_s)
        self.node_fault = "" if self.stopping else fault
        self.pilot_fault = self._context.trial.pilot_fault
        return self._unstarted(protocol.NODE_FAULT, f"{fault}.") if self.node_fault else None

    def _hand_in(self, end: PayloadReport, *, can_wait: bool) -> None:
        tail = ""
        with self._lock:
            launch, self._launch = self._launch, None
        archive = None
        if launch is not None:
            tail = "" if self.leaves_nothing else read_tail(launch.outputs)
            launch.close()
        if launch is not None and not self.leaves_nothing and end.state != protocol.RELEASED:
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
        if not can_wait or end.state != protocol.DONE:  # not each of thousands
            self._context.pilot.log("payload-ended", job=str(end.key), state=end.state, cause=end.cause)
        self._context.outbox.put(report, archive, can_wait=can_wait)
        if not self._removed:
            remove_tree(self._home)

    def _is_removed(self) -> bool:
        names = self._launch.outputs if self._launch is not None else ()
        if any("/" in name for name in names):  # the payload may have put links there
            return False
        with contextlib.suppress(OSError):
            for name in names:
                os.unlink(f"{self._home}/{name}")  # noqa: PTH108 - with pathlib it takes twice as long
            os.rmdir(f"{self._home}/{TEMPORARY}")  # noqa: PTH106
            os.rmdir(self._home)  # noqa: PTH106
            self._removed = True
        return self._removed

    def _pack(self, end: PayloadReport, tries: int = _PACKINGS) -> tuple[PayloadReport, Path | None]:
        target, ticker = self._context.outbox.archive(end.key), self._context.pilot.ticker
        until = ticker() + _PACKING_S
        try:
            packed = pack(
                self._home, self.job, target, stopped=lambda: self.output_unwanted or ticker() > until
            )
            if packed.missing and self._is_locked():
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            return enclose_archive(report_output(end, packed, max_mb=self.job.limits.max_output_mb), target)
        except Aborted:
            with contextlib.suppress(OSError):
                target.unlink()
            why = f"that took longer than {_PACKING_S:.0f} s"
            why = "the job was ended meanwhile" if self.output_unwanted else why
            if not self.output_unwanted and end.state == protocol.DONE:
                end = replace(end, state=protocol.FAILED, cause=protocol.OUTPUT_LIMIT)
            return replace(end, message=f"{end.message} Its output was not packed: {why}.".lstrip()), None
        except OSError as fault:
            with contextlib.suppress(OSError):
                target.unlink()
            if tries > 1 and self._is_locked():
                self._changes = self._context.pilot.folder.changes
                return self._pack(end, tries - 1)
            return self._suspect(fault, protocol.PILOT_SHUTDOWN), None
