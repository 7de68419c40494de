"""Leases that run out when a test says so: the server takes from a file for how much longer its pilots have been silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PLANTED = """
import sys
if "server" in sys.orig_argv:
    from pathlib import Path
    from lodesman.server.live import leases
    from lodesman.server.main import server

    server._LEASE_CHECK_SECONDS = 0.1
    good, note = leases.Leases.watch, Path({note!r})

    async def watch(self):
        if note.exists():
            for session in self._core.sessions.values():
                session.last_seen -= float(note.read_text())
            note.unlink()
        await good(self)

    leases.Leases.watch = watch
"""
LEASE_SECONDS = 600.0
# After this silence a job is Stalled, and the lease has not ended.
SILENT_SECONDS = 310.0


class SilenceInHand:
    """Of all pilots of the servers that are started after it was made."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self._note = folder / "silence"
        (folder / "sitecustomize.py").write_text(PLANTED.format(note=str(self._note)))
        monkeypatch.syspath_prepend(folder)

    def last(self, seconds: float) -> None:
        """All pilots have been silent for so much longer."""
        part = self._note.with_suffix(".part")
        part.write_text(str(seconds))
        part.replace(self._note)
