"""The file of what `vacate` has learned of jobs and owners, by batch system."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lodesman.site.jobstatus.vacate.candidates import Candidate
from lodesman.site.jobstatus.vacate.history import JobEnd, Sighting, VacateHistory, after_list, after_look

_MOST_BYTES = 1 << 26
_Parts = Mapping[str, Any]


class VacateMemory:
    """`keeps`: a missing file is made. One that cannot be used stops nothing: see `fault`."""

    def __init__(self, path: Path, part: str, *, keeps: bool) -> None:
        self.history, self.fault = VacateHistory(), ""
        self._path, self._part, self._keeps = path, part, keeps

    def update(
        self,
        running: Iterable[Candidate],
        now: float,
        looked: Iterable[Candidate] = (),
        killed: Collection[str] = (),
    ) -> VacateHistory:
        """All running jobs were listed, some read; `killed` go next."""
        try:
            parts = self._read()
            before = _history(parts[self._part]) if self._part in parts else self.history
        except (OSError, ValueError, TypeError, AttributeError) as fault:
            parts, before, self.fault = None, self.history, self._said(fault)
        self.history = after_look(after_list(before, running, now, killed), looked, now)
        if parts is not None and (self._keeps or self._path.exists()):
            try:
                self._write(parts)
            except OSError as fault:
                self.fault = self._said(fault)
        return self.history

    def _said(self, fault: Exception) -> str:
        return f"{self._path}: {(fault.strerror if isinstance(fault, OSError) else None) or fault}"

    def _read(self) -> _Parts:
        """Another account must not be able to say what is believed."""
        try:
            number = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        with open(number, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
            about = os.fstat(number)
            ours = about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022
            if not (ours and stat.S_ISREG(about.st_mode) and about.st_size <= _MOST_BYTES):
                raise ValueError("others than you and root can write to it, or it is no file")
            parts = json.loads(file.read() or "{}")
        if not isinstance(parts, dict):
            raise ValueError("it is no history of vacate")  # noqa: TRY004 - a file, not an argument
        return parts

    def _write(self, parts: _Parts) -> None:
        ours = {"running": self.history.running, "ends": self.history.ends}
        number, name = tempfile.mkstemp(prefix=".", dir=self._path.parent)
        try:
            with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123 - a descriptor
                json.dump({**parts, self._part: ours}, file, separators=(",", ":"))
            os.replace(name, self._path)  # noqa: PTH105 - its name is a text
        except OSError:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
            raise


def _history(record: Mapping[str, Any]) -> VacateHistory:
    return VacateHistory(
        {job: Sighting(*row) for job, row in record.get("running", {}).items()},
        {owner: tuple(JobEnd(*row) for row in rows) for owner, rows in record.get("ends", {}).items()},
    )
