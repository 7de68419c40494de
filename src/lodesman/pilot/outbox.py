"""Results on their way to the server; they lie on disk until it has them.

Two threads: one uploads archives, one sends reports, many at a time. A server that is away is asked
again with jitter; what the server refuses for good is dropped, with a line in the log.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from lodesman.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    LodesmanError,
    NotFound,
    TooLarge,
    Unauthorized,
)
from lodesman.pilot.protocol import FAILED, OUTPUT_LIMIT, Key, Report, label, parse_verdicts

MOST_AT_ONCE = 100
HURRIED_S = 0.5
# The server has understood and says no: to ask again makes no sense.
_REFUSED = (Conflict, Forbidden, InvalidRequest, NotFound, TooLarge)


@dataclass
class Item:
    """One report on its way, and the archive to upload before it."""

    key: Key
    record: dict[str, Any]
    upload: Path | None
    final: bool


# How reports, and an archive (path, file, sha256), reach the server; both raise LodesmanError.
PostReports = Callable[[list[dict[str, Any]]], Any]
PostArchive = Callable[[str, Path, str], Any]


class Outbox:
    """Keeps reports in order per attempt. `put*`, `count` and `wait_empty` may be called by any thread."""

    def __init__(self, directory: Path, *, delay: Callable[[int], float], log: Callable[..., Any]) -> None:
        """`delay(failures)` is how long to wait after so many failures in a row."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._delay = delay
        self._log = log
        self._items: dict[tuple[Key, bool], Item] = {}
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._hurried = False

    def archive(self, key: Key) -> Path:
        """Where to write the packed output of an attempt before `put`."""
        return self._directory / f"{label(key)}.tar.gz"

    def put_running(self, report: Report) -> None:
        """Tell that a payload runs; forgotten when its end is reported first."""
        self._add(Item(report.key, report.as_json(), None, final=False))

    def put(self, report: Report, archive: Path | None) -> None:
        """Report an end; first its archive is uploaded, if it has one."""
        record = report.as_json()
        try:
            # For those who come after a pilot that was killed; this one reads its own memory.
            self._file(report.key).write_text(json.dumps(record), encoding="utf-8")
        except OSError as fault:
            self._log("outbox-disk", job=label(report.key), fault=str(fault))
        with self._changed:
            self._items.pop((report.key, False), None)
            self._add(Item(report.key, record, archive, final=True))

    def keys(self) -> list[Key]:
        """Attempts whose end the server does not know yet."""
        with self._changed:
            return [key for key, final in self._items if final]

    def count(self) -> int:
        """How many ends the server does not know yet."""
        return len(self.keys())

    def wait_empty(self, timeout: float) -> bool:
        """Wait until everything is sent; false if that takes longer than `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._items or self._closed.is_set(), timeout)
            return not self._items

    def close(self) -> None:
        """End both threads; what is unsent stays."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def run_uploads(self, post: PostArchive) -> None:
        """The upload thread."""
        failures = 0
        while True:
            item = self._next(lambda items: [item for item in items if item.upload is not None][:1])
            if not item:
                return
            failures = 0 if self._upload(item[0], post) else failures + 1
            if failures:
                self._pause(failures)

    def run_reports(self, post: PostReports) -> None:
        """The report thread."""
        failures = 0
        while True:
            batch = self._next(lambda items: [item for item in items if item.upload is None][:MOST_AT_ONCE])
            if not batch:
                return
            failures = 0 if self._report(batch, post) else failures + 1
            if failures:
                self._pause(failures)

    def hurry(self) -> None:
        """The end is near: do not wait long before the server is asked again."""
        with self._changed:
            self._hurried = True
            self._changed.notify_all()

    def _pause(self, failures: int) -> None:
        """Wait after failures; for a hurry or the end only shortly."""
        with self._changed:
            before = self._hurried
            longest = min(HURRIED_S, self._delay(failures)) if before else self._delay(failures)
            self._changed.wait_for(lambda: self._closed.is_set() or self._hurried != before, longest)

    def _next(self, choose: Callable[[list[Item]], list[Item]]) -> list[Item]:
        """Wait for something to do; nothing when closed."""
        with self._changed:
            while not self._closed.is_set():
                chosen = choose(list(self._items.values()))
                if chosen:
                    return chosen
                self._changed.wait()
        return []

    def _upload(self, item: Item, post: PostArchive) -> bool:
        """Upload one archive; true when that is settled, one way or the other."""
        assert item.upload is not None  # noqa: S101 - chosen so
        path = "/v1/jobs/{}/attempts/{}/output".format(*item.key)
        try:
            post(path, item.upload, item.record["output"]["sha256"])
        except _REFUSED as fault:
            self._log("output-refused", job=label(item.key), fault=fault.message)
            item.record = without_output(item.record, fault)
        except LodesmanError as fault:
            self._log("upload-failed", job=label(item.key), fault=str(fault))
            return False
        item.upload.unlink(missing_ok=True)
        with self._changed:
            item.upload = None
            self._changed.notify_all()
        return True

    def _report(self, batch: Sequence[Item], post: PostReports) -> bool:
        """Send some reports; true when they are settled."""
        try:
            verdicts = parse_verdicts(post([item.record for item in batch]))
        except Unauthorized:
            return False
        except _REFUSED as fault:
            if len(batch) > 1:
                # One of them may be what the server cannot read; the others shall not suffer.
                settled = [self._report([item], post) for item in batch]
                return all(settled)
            verdicts = {batch[0].key: fault.message}
        except LodesmanError as fault:
            self._log("report-failed", reports=len(batch), fault=str(fault))
            return False
        for item in batch:
            reason = verdicts.get(item.key, "no answer")
            if reason is not None:
                self._log("report-refused", job=label(item.key), reason=reason)
            self._drop(item)
        return True

    def _drop(self, item: Item) -> None:
        if item.final:
            self._file(item.key).unlink(missing_ok=True)
        with self._changed:
            if self._items.get((item.key, item.final)) is item:
                del self._items[item.key, item.final]
            self._changed.notify_all()

    def _add(self, item: Item) -> None:
        with self._changed:
            self._items[item.key, item.final] = item
            self._changed.notify_all()

    def _file(self, key: Key) -> Path:
        return self._directory / f"{label(key)}.json"


def without_output(record: dict[str, Any], fault: LodesmanError) -> dict[str, Any]:
    """The report of an attempt whose archive the server does not take."""
    amended = {**record, "output": None}
    amended["message"] = f"{record['message']} The output was refused: {fault.message}".lstrip()
    if isinstance(fault, TooLarge) and record["state"] != FAILED:
        amended.update(state=FAILED, cause=OUTPUT_LIMIT)
    return amended
