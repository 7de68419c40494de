"""The trial of a node: what any payload needs is done once, before the first claim and after a failure that the node may
have caused. `decisions` says what it means.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from lodesman.pilot.context import OwnFolder
from lodesman.pilot.decisions import (
    EXECUTE,
    NO_PYTHON,
    SCRATCH,
    WARDEN,
    StepResult,
    cause_of,
    is_of_node,
    judge_step,
)
from lodesman.pilot.launch import remove_tree
from lodesman.pilot.nursery import PilotFault
from lodesman.pilot.protocol import AttemptKey
from lodesman.pilot.reaper import Reaper
from lodesman.pilot.threads import run_within
from lodesman.pilot.warden import NO_FRAME, Launch, NeverStarted

# Less is not enough for the pilot's own files.
_LEAST_BYTES = 1 << 20
# A node without so much room for a job that needs it is full; one that has it may be of use to others.
_MOST_BYTES = 64 << 20
# A program that takes longer is ended.
_PROGRAM_S = 20.0
# A trial that takes longer has met with something that hangs.
PATIENCE_S = 30.0
# Payloads that fail one after the other do not each have the node tried.
TRUSTED_S = 5.0
# A second error of the system within this time is no accident.
_AGAIN_S = 60.0
# A script from the scratch space, for which /bin/sh is needed; it starts this Python.
_SCRIPT = f'#!/bin/sh\n"$1" -I -S -c "" || exit {NO_PYTHON}\n'
_NUMBERS = itertools.count(1)


class NodeTrial:
    """Any thread may ask for the `fault` of the node."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        reaper: Reaper | None,
        *,
        folder: OwnFolder | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Without a reaper nothing is started."""
        # What makes the pilot itself of no use, in words: the node is not to blame.
        self.pilot_fault = ""
        self._folder = folder or OwnFolder(directory)
        self._patience_s = patience_s
        self._directory = directory
        self._environment = dict(environment)
        self._reaper = reaper
        self._lock = threading.Lock()
        self._good_at, self._room = float("-inf"), 0
        self._refused_at = float("-inf")

    def cause(self, number: int | None, size: int, otherwise: str) -> str:
        """As `cause_of`."""
        now, again = time.monotonic(), False
        if is_of_node(number):
            again, self._refused_at = now - self._refused_at < _AGAIN_S, now
        return cause_of(number, size=size, again=again, otherwise=otherwise)

    def fault(self, *, size: int = 0, trusted_s: float = 0.0) -> str:
        """'' if the node does what payloads need. `size`: bytes that need room, up to some. `trusted_s`: how long a good
        trial counts.
        """
        since, words = time.monotonic() - trusted_s, [""]
        room = max(_LEAST_BYTES, min(size, _MOST_BYTES))
        try:
            is_over = run_within(self._patience_s, lambda: words.append(self._try_all(since, room)))
        except OSError as fault:
            return judge_step(StepResult(WARDEN, str(self._directory), fault.errno or 0))
        return (
            words[-1]
            if is_over
            else f"{self._directory} does not answer: it took longer than {self._patience_s:g} s"
        )

    def _try_all(self, since: float, room: int) -> str:
        """A trial that began at `since` (monotonic) or later, and found `room`, will do."""
        with self._lock:
            if self._good_at >= since and self._room >= room:
                return ""
            began = time.monotonic()
            self._folder.unlock()
            before = self._folder.changes
            words = self._try_room(room)
            if not words and self._reaper is not None:
                # A batch system signals all processes at once, the first program too.
                words = self._try_start(self._reaper) and self._try_start(self._reaper)
            if words:
                self._folder.unlock()
                if self._folder.changes != before:
                    self.pilot_fault, words = str(self._folder), ""
            if not words:
                self._good_at, self._room = began, room
            return words

    def _try_room(self, room: int) -> str:
        place = None
        try:
            place = self._make_folder(self._directory / "work")
            with (place / "file").open("wb") as sink:
                for _ in range(0, room, _LEAST_BYTES):
                    sink.write(bytes(_LEAST_BYTES))
                sink.flush()
                os.fsync(sink.fileno())
        except OSError as fault:
            return self._judge(SCRATCH, fault)
        finally:
            if place is not None:
                remove_tree(place)
        return ""

    def _make_folder(self, parent: Path) -> Path:
        """No payload can have made one of its name, nor prevent it by modes above it."""
        self._folder.unlock(parent)
        return Path(tempfile.mkdtemp(prefix="trial-", dir=parent))

    def _try_start(self, reaper: Reaper) -> str:
        key = AttemptKey(0, next(_NUMBERS))
        try:
            folder = reaper.take(key, NO_FRAME)
        except PilotFault as fault:
            self.pilot_fault = str(fault.strerror)
            return ""
        except OSError as fault:
            return self._judge(WARDEN, fault)
        home = None
        try:
            home = self._make_folder(Path(folder or self._directory / "work"))
            program = home / "program"
            program.write_text(_SCRIPT, encoding="ascii")
            program.chmod(0o700)
            return self._start(reaper, key, program)
        except OSError as fault:
            return self._judge(SCRATCH, fault)
        finally:
            if home is not None:
                remove_tree(home)
            reaper.give(key)

    def _start(self, reaper: Reaper, key: AttemptKey, program: Path) -> str:
        patience = threading.Timer(_PROGRAM_S, reaper.kill, (key,))
        patience.daemon = True
        try:
            patience.start()
        except RuntimeError:  # no thread is left
            return judge_step(StepResult(WARDEN, str(self._directory), errno.EAGAIN))
        try:
            return self._run(reaper, key, program)
        finally:
            patience.cancel()

    def _run(self, reaper: Reaper, key: AttemptKey, program: Path) -> str:
        output = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        argv = (str(program), sys.executable or "true")
        launch = Launch(argv, self._environment, str(program.parent), {"output": output})
        try:
            reaper.spawn(key, launch)
        except NeverStarted:
            return judge_step(StepResult(WARDEN, str(self._directory)))
        except OSError as fault:
            return self._judge(EXECUTE, fault)
        finally:
            launch.close()
        try:
            status = reaper.wait(key)
            reaper.clear(key, lambda: False)
        finally:
            reaper.forget(key)
        return judge_step(StepResult(EXECUTE, str(self._directory), status=status))

    def _judge(self, step: str, fault: OSError) -> str:
        no_inodes = False
        with contextlib.suppress(OSError):
            room = os.statvfs(self._directory)
            no_inodes = room.f_files > 0 and room.f_favail == 0
        return judge_step(StepResult(step, str(self._directory), fault.errno or 0, no_inodes=no_inodes))
