"""The attempts that this pilot has taken, on disk: none is ever run twice, whatever the server answers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lodesman.pilot.protocol import Job, Key, label


class Journal:
    """A file with one `<id>.<attempt>` per line, safe on disk before the attempt starts."""

    def __init__(self, file: Path) -> None:
        """Open or make the file; a last line without its end does not count. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(file, flags, 0o600)
        content = file.read_bytes()
        self._seen = {key for key in map(_key, content.split(b"\n")[:-1]) if key is not None}
        if content and not content.endswith(b"\n"):
            os.write(self._descriptor, b"\n")

    def __contains__(self, key: Key) -> bool:
        return key in self._seen

    def take(self, jobs: Sequence[Job]) -> list[Job]:
        """Those of the jobs that were never taken before; they are now. Raises OSError: none is taken."""
        new = {job.key: job for job in jobs if job.key not in self._seen}
        if new:
            os.write(self._descriptor, "".join(f"{label(key)}\n" for key in new).encode())
            os.fdatasync(self._descriptor)
            self._seen.update(new)
        return list(new.values())

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def _key(line: bytes) -> Key | None:
    job, dot, attempt = line.partition(b".")
    return (int(job), int(attempt)) if dot and job.isdigit() and attempt.isdigit() else None
