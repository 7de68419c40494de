"""Files that are written now and believed later, whole or not at all, also after a power cut."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_durably(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write beside the file's place, see it on the disk, put it there. `mode`: permissions. Raises OSError."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """What a directory has, and has no more, is so on disk. Raises OSError."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
