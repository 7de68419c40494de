"""Results on their way to the server; those that it could not take at once lie on disk.

One thread uploads archives, one sends reports in batches. What the server refuses for good is logged and dropped.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable

from lodesman.base.errors import LodesmanError, StorageFull, TooLarge, Unauthorized
from lodesman.pilot import protocol
from lodesman.pilot.context import PilotContext
from lodesman.pilot.protocol import FAILED, AttemptKey, PayloadReport
from lodesman.pilot.session import ServerSession
from lodesman.wire.client import LocalFault

_MAX_BATCH = 100
# Reports that can wait for others are sent after this time.
_TOGETHER_S = 0.05
_HURRIED_S = 0.5
_REFUSED = (*protocol.REFUSED, TooLarge)
# With these errors of the system the pilot itself has too much open for the moment: its file is as it was.
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


@dataclass
class _Item:
    report: PayloadReport
    archive: Path | None  # to upload before it
    due: float  # when it is to be sent at the latest (monotonic)
    is_first: bool = False  # no report before it has said that the payload runs
    is_on_disk: bool = False
    refusals: int = 0  # so often the server had no space for it

    @property
    def final(self) -> bool:
        return self.report.state != protocol.RUNNING


class Outbox:
    """Reports in order per attempt. Any thread may call `put`, `keys` and `wait_empty`."""

    def __init__(self, context: PilotContext) -> None:
        self._directory = context.directory / "outbox"
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._changes = context.folder, context.folder.changes
        self._delay = context.delay
        self._log = context.log
        self._ticker = context.ticker
        self._items: dict[tuple[AttemptKey, bool], _Item] = {}
        self._changed = threading.Condition()
        self._ends = self._held_up = 0
        self._closed = threading.Event()
        self._hurried = False

    def archive(self, key: AttemptKey) -> Path:
        """Where to write the output of an attempt before `put`."""
        return self._directory / f"{key}.tar.gz"

    def put(self, report: PayloadReport, archive: Path | None = None, *, can_wait: bool = False) -> None:
        """Send a report after its archive. An end replaces the report that the payload runs. `can_wait`: a moment, for
        others to go with it.
        """
        can_wait = can_wait and archive is None
        item = _Item(report, archive, self._ticker() + (_TOGETHER_S if can_wait else 0.0))
        with self._changed:
            unsent = self._items.pop((report.key, False), None)
            item.is_first = unsent is not None or not item.final
            self._ends += item.final and (report.key, True) not in self._items
            # What waits for its archive wakes nobody who sends reports.
            is_alone = all(other.archive is not None for other in self._items.values())
            self._items[report.key, item.final] = item
            if not can_wait or is_alone or len(self._items) == _MAX_BATCH:
                self._changed.notify_all()

    def count(self) -> int:
        """Attempts whose end the server does not know."""
        return self._ends

    def held_up(self) -> int:
        """Archives that the server has no space for: each is sent again until the pilot is about to end."""
        return self._held_up

    def keys(self) -> list[AttemptKey]:
        """Attempts whose end the server does not know."""
        with self._changed:
            return [key for key, final in self._items if final]

    def wait_empty(self, timeout: float) -> bool:
        """False after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._items or self._closed.is_set(), timeout)
            return not self._items

    def close(self) -> None:
        """What is unsent stays."""
        with self._changed:
            self._closed.set()
            self._changed.notify_all()
            self._keep(self._items.values())

    def hurry(self, *, on: bool = True) -> None:
        """The pilot is about to end: ask the server again soon."""
        if self._hurried != on:
            with self._changed:
                self._hurried = on
                self._changed.notify_all()

    def run_uploads(self, session: ServerSession) -> None:
        """The upload thread."""
        post = partial(session.upload, session.client())
        self._run(
            lambda item: item.archive is not None,
            lambda items: self._upload(min(items, key=lambda item: item.due), post),
        )

    def run_reports(self, session: ServerSession, on_others_wait: Callable[[], None]) -> None:
        """The report thread. `on_others_wait`: the server says that others have nothing to do."""

        def post(reports: list[dict[str, Any]]) -> Any:
            answer = session.report(client, reports)
            if isinstance(answer, dict) and answer.get("others_wait") is True:
                on_others_wait()
            return answer

        client = session.client()
        self._run(lambda item: item.archive is None, lambda items: self._report(items[:_MAX_BATCH], post))

    def _run(self, is_sent: Callable[[_Item], bool], send: Callable[[list[_Item]], bool]) -> None:
        failures = 0
        while True:
            with self._changed:
                while not self._closed.is_set():
                    items = list(filter(is_sent, self._items.values()))
                    left_s = min((item.due for item in items), default=0.0) - self._ticker()
                    is_full = len(items) >= _MAX_BATCH and items[0].archive is None
                    if items and (left_s <= 0 or is_full or self._hurried):
                        break
                    self._changed.wait(left_s if items else None)
            if self._closed.is_set():
                return
            failures = 0 if send(items) else failures + 1
            if failures:
                self._keep(items)
                self._pause(failures)

    def _keep(self, items: Iterable[_Item]) -> None:
        """For the time after a pilot that is killed; the pilot itself reads its memory."""
        for item in items:
            if item.final and not item.is_on_disk:
                try:
                    self._file(item.report.key).write_text(
                        json.dumps(item.report.as_json()), encoding="utf-8"
                    )
                    item.is_on_disk = True
                except OSError as fault:
                    self._log("outbox-disk", job=str(item.report.key), fault=str(fault))

    def _pause(self, failures: int) -> None:
        with self._changed:
            before, pause_s = self._hurried, self._delay(failures)
            self._changed.wait_for(
                lambda: self._closed.is_set() or self._hurried != before,
                min(_HURRIED_S, pause_s) if before else pause_s,
            )

    def _upload(self, item: _Item, post: Callable[[str, Path, str], Any]) -> bool:
        archive, report = item.archive, item.report
        assert archive is not None and report.output is not None  # noqa: S101, PT018 - chosen so
        try:
            post("/v1/jobs/{}/attempts/{}/output".format(*report.key), archive, report.output["sha256"])
        except LodesmanError as fault:
            if isinstance(fault, StorageFull) and not self._hurried:
                self._hold(item, fault)
                return True
            is_lost = isinstance(fault, LocalFault) and not self._can_read(fault.errno)
            if not is_lost and not isinstance(fault, _REFUSED):
                self._log("upload-failed", job=str(report.key), fault=str(fault))
                item.due = self._ticker()  # others go before it
                return False
            self._log(
                "output-lost" if is_lost else "output-refused", job=str(report.key), fault=fault.message
            )
            item.report = _without_output(report, fault)
        with contextlib.suppress(OSError):
            archive.unlink()
        with self._changed:
            item.archive = None
            self._held_up -= item.refusals > 0
            self._changed.notify_all()
        return True

    def _can_read(self, number: int) -> bool:
        """The pilot may have had too much open, or another have locked its folder."""
        if number == errno.EACCES:
            before = self._changes
            self._folder.unlock()
            self._changes = self._folder.changes
            return self._changes != before
        return number in _EXHAUSTED

    def _hold(self, item: _Item, fault: StorageFull) -> None:
        """Others go first meanwhile; a job that has run has not failed."""
        self._log("output-held-up", job=str(item.report.key), fault=fault.message)
        self._keep([item])
        with self._changed:
            self._held_up += not item.refusals
            item.refusals += 1
            item.due = self._ticker() + self._delay(item.refusals)

    def _report(self, batch: Sequence[_Item], post: Callable[[list[dict[str, Any]]], Any]) -> bool:
        try:
            refusals = protocol.parse_refusals(post([item.report.as_json() for item in batch]))
        except Unauthorized:
            return False
        except _REFUSED as fault:
            if len(batch) > 1:
                # The server may be unable to read one of them; the others shall not suffer.
                settled = [self._report([item], post) for item in batch]
                return all(settled)
            refusals = {batch[0].report.key: fault.message}
        except LodesmanError as fault:
            self._log("report-failed", reports=len(batch), fault=str(fault))
            return False
        for item in batch:
            self._note(item, refusals.get(item.report.key, "no answer"))
        with self._changed:
            present = [item for item in batch if self._items.get((item.report.key, item.final)) is item]
            for item in present:
                del self._items[item.report.key, item.final]
                self._ends -= item.final
            started = [str(item.report.key) for item in present if item.is_first]
            if started:  # with the lock held: a pilot whose outbox is empty may end
                self._log("payload-started", jobs=started)
            self._changed.notify_all()
        return True

    def _note(self, item: _Item, refusal: str) -> None:
        if refusal:
            self._log("report-refused", job=str(item.report.key), reason=refusal)
        if item.is_on_disk:
            self._file(item.report.key).unlink(missing_ok=True)

    def _file(self, key: AttemptKey) -> Path:
        return self._directory / f"{key}.json"


def _without_output(report: PayloadReport, fault: LodesmanError) -> PayloadReport:
    """The archive is refused or lost. The report names it all the same: else the job would count as one that wrote
    nothing.
    """
    if isinstance(fault, StorageFull):
        message = (
            f"{report.message} The storage of the server was full until its pilot ended: {fault.message}"
        )
        report = replace(report, message=message.lstrip())
        return replace(report, cause=protocol.STORAGE_FULL) if report.state == protocol.DONE else report
    reason = f"The output was refused: {fault.message}"
    if isinstance(fault, LocalFault):  # the pilot's folders are nothing that a user knows
        reason = f"The pilot cannot read the output any more: {os.strerror(fault.errno)}."
    report = replace(report, message=f"{report.message} {reason}".lstrip())
    if isinstance(fault, TooLarge) and report.state != FAILED:
        return replace(report, state=FAILED, cause=protocol.OUTPUT_LIMIT)
    return report
