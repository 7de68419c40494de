"""Scripts at work: long-lived workers in a server, one process for each submission at a client."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from msgspec import Struct

from lodesman.base.errors import InvalidConfig, Unavailable
from lodesman.server.jsv.chain import JsvOutcome, JsvUrl, parse_url
from lodesman.server.jsv.parameters import JsvContext, Parameters
from lodesman.server.jsv.process import (
    OWN_LIBRARIES,
    ScriptLimits,
    ScriptProcess,
    ScriptSettings,
    account_of,
    check_script,
)
from lodesman.server.jsv.protocol import Dialogue
from lodesman.wire.jsv import JsvSection


class ScriptWorker:
    """A script with at most one process, which serves one job after the other, on one thread at a time."""

    def __init__(self, url: JsvUrl, context: JsvContext, settings: ScriptSettings) -> None:
        self._url = url
        self._context = context
        self._settings = settings
        self._process: ScriptProcess | None = None
        self._file: tuple[int, ...] = ()
        self._seen: set[str] = set()
        self._leaving: list[threading.Thread] = []

    def verify(self, parameters: Parameters) -> JsvOutcome:
        """A script that cannot run rejects. Raises InvalidJob if a value cannot be sent."""
        begun = time.monotonic()
        path, settings = self._url.path, self._settings
        notes: list[str] = []
        refusal = ""
        try:
            self._make_ready(notes)
        except InvalidConfig as fault:
            refusal = str(fault)
        dialogue = Dialogue(parameters, path, strict_accept=settings.strict_accept, seen=self._seen)
        if refusal:
            dialogue.refuse(refusal)
        else:
            self._talk(dialogue, begun)
        seconds = time.monotonic() - begun
        if seconds * 1_000 >= settings.threshold_ms:
            notes.append(
                f'JSV "{path}" took {seconds:.3g} s for a job; jsv_threshold is {settings.threshold_ms} ms.'
            )
        return dialogue.outcome(seconds=seconds, notes=notes)

    def _talk(self, dialogue: Dialogue, now: float) -> None:
        try:
            self._exchange(dialogue, now)
            self._seen = dialogue.seen
        except InvalidConfig as fault:  # it cannot be started again
            dialogue.refuse(str(fault))
        finally:
            if dialogue.restart:
                self.kill()

    def _exchange(self, dialogue: Dialogue, now: float) -> None:
        process = self._begin(dialogue, now)
        while not dialogue.has_ended():
            heard = process.hear(self._settings.time_out_seconds)
            if heard.complaints:
                dialogue.take_complaints(heard.complaints)
            for line in heard.lines:
                answer = dialogue.take_line(line)
                if answer:
                    process.send(answer)
            silent = heard.ended or not heard.lines
            if silent and not dialogue.has_ended() and dialogue.take_silence():
                self.kill()
                process = self._begin(dialogue, now)

    def _begin(self, dialogue: Dialogue, now: float) -> ScriptProcess:
        if self._process is None:
            self._process = ScriptProcess(self._url, self._context, self._settings)
        self._process.allow_cpu(now)
        self._process.send(dialogue.start())
        dialogue.prepare()
        return self._process

    def _make_ready(self, notes: list[str]) -> None:
        """Replace a process that has ended, or spoke after its result, or whose file has changed."""
        process = self._process
        identity = self._identity()
        if process and identity == self._file and process.is_quiet():
            return
        check_script(self._url)
        if process and identity != self._file:
            notes.append(f'JSV "{self._url.path}" has changed: it is started anew.')
            self.retire()
        elif process and not process.is_quiet():
            heard = process.hear(0)
            if heard.complaints or heard.ended or not all(_is_late_log(line) for line in heard.lines):
                notes.append(
                    f'JSV "{self._url.path}" ended or spoke between two jobs: it is started anew. '
                    + " ".join(heard.complaints[:1])
                )
                self.kill()
        self._file = identity

    def _identity(self) -> tuple[int, ...]:
        """By which a changed script is noticed; () if there is none."""
        try:
            status = os.stat(self._url.path)  # noqa: PTH116 - half the time of Path.stat, once for each job
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_mode

    def kill(self) -> None:
        """End the process and its group at once."""
        process, self._process, self._seen = self._process, None, set()
        if process:
            process.kill()

    def retire(self) -> None:
        """Let the process leave by QUIT, on a thread of its own."""
        process, self._process, self._seen = self._process, None, set()
        if process:
            thread = threading.Thread(target=process.stop, args=(self._settings.quit_seconds,), daemon=True)
            thread.start()
            self._leaving = [leaving for leaving in self._leaving if leaving.is_alive()] + [thread]

    def wait(self) -> None:
        """Until all retired processes have left."""
        for thread in self._leaving:
            thread.join()


def _is_late_log(line: str) -> bool:
    return not line.strip() or line.startswith("LOG ")


def server_script(section: JsvSection) -> tuple[JsvUrl, ScriptSettings] | None:
    """None: there is none. Raises InvalidConfig if it cannot be run so."""
    url = parse_url(section.server, JsvContext.SERVER)
    if url is None:
        return None
    if section.sge_root and not Path(section.sge_root).is_dir():
        raise InvalidConfig(f"sge_root: {section.sge_root} is no folder.")
    settings = ScriptSettings(
        sge_root=section.sge_root or str(OWN_LIBRARIES), account=section.account,
        time_out_seconds=section.time_out_seconds, threshold_ms=section.threshold_ms, strict_accept=section.strict_accept,
        limits=ScriptLimits(
            memory_mb=section.memory_mb, cpu_seconds=section.cpu_seconds, file_size_mb=section.file_size_mb,
            processes=section.processes,
        ),
    )  # fmt: skip
    check_script(url)
    account_of(url, JsvContext.SERVER, settings)
    return url, settings


class JsvPool:
    """The server's script, with several long-lived processes. Any thread may ask.

    A free process goes to a user for whom the fewest are at work, of these to the one whose last turn is longest ago.
    Raises InvalidConfig at once if the script cannot be run.
    """

    def __init__(self, url: JsvUrl, settings: ScriptSettings, *, workers: int = 2) -> None:
        check_script(url)
        account_of(url, JsvContext.SERVER, settings)
        self._closed = False
        self._workers = [ScriptWorker(url, JsvContext.SERVER, settings) for _ in range(workers)]
        # The last one first: no more processes run than are needed at one time.
        self._idle = self._workers[::-1]
        self._lock = threading.Lock()
        # By user: processes at work, the number of the last turn, who waits.
        self._at_work, self._last_turn, self._turns = Counter[str](), Counter[str](), count(1)
        self._waiting: dict[str, deque[Future[ScriptWorker]]] = {}

    def verify(self, parameters: Parameters) -> JsvOutcome:
        """Once a worker is free. Raises InvalidJob if a value cannot be sent, Unavailable once closed."""
        if self._closed:
            raise Unavailable("The JSV is shut down.")
        with self._one_for(parameters.user) as worker:
            return worker.verify(parameters)

    @contextmanager
    def _one_for(self, user: str) -> Iterator[ScriptWorker]:
        with self._lock:
            turn = Future[ScriptWorker]()
            self._waiting.setdefault(user, deque()).append(turn)
            self._give_out()
        worker = turn.result()
        try:
            yield worker
        finally:
            with self._lock:
                self._at_work -= Counter([user])
                self._idle.append(worker)
                self._give_out()
                if not self._at_work:
                    self._last_turn.clear()

    def _give_out(self) -> None:
        """Under the lock."""
        while self._idle and self._waiting:
            user = min(self._waiting, key=lambda name: (self._at_work[name], self._last_turn[name]))
            self._waiting[user].popleft().set_result(self._idle.pop())
            self._at_work[user] += 1
            self._last_turn[user] = next(self._turns)
            if not self._waiting[user]:
                del self._waiting[user]

    def close(self) -> None:
        """Let each process leave after its job; kill those that do not."""
        self._closed = True
        with ExitStack() as stopped:
            for worker in [stopped.enter_context(self._one_for("")) for _ in self._workers]:
                worker.retire()
            for worker in self._workers:
                worker.wait()


class JsvStep(Struct, frozen=True, kw_only=True):
    """One script of a chain, and what it said."""

    url: JsvUrl
    outcome: JsvOutcome


def verify_at_client(
    urls: Sequence[JsvUrl], parameters: Parameters, settings: ScriptSettings
) -> list[JsvStep]:
    """Each script of a submitting user, in turn, in a process of its own.

    Raises InvalidConfig if any is not executable, before the first is run, and InvalidJob.
    """
    for url in urls:
        check_script(url)
    steps: list[JsvStep] = []
    for url in urls:
        worker = ScriptWorker(url, JsvContext.CLIENT, settings)
        try:
            outcome = worker.verify(parameters)
        finally:
            worker.retire()
            worker.wait()
        steps.append(JsvStep(url=url, outcome=outcome))
        if not outcome.accepted:
            break
        parameters = outcome.parameters
    return steps
