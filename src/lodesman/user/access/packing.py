"""Folders that a job takes along, packed."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from lodesman.user.access.files import Folder, Taken


def pack_inputs(inputs: Mapping[str, Taken], scratch: Path) -> dict[str, Path]:
    """Folders are packed below `scratch`. Raises OSError."""
    files = {}
    for name, path in inputs.items():
        if isinstance(path, Path):
            files[name] = path
            continue
        files[name] = scratch / f"{len(list(scratch.iterdir()))}-{path.name}.tar.gz"
        with files[name].open("wb") as raw:
            _pack(path, raw)
    return files


def _pack(folder: Folder, raw: IO[bytes]) -> None:
    """The same bytes for the same files: they are uploaded once."""
    with gzip.GzipFile("", "wb", 6, raw, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path, name in folder.files:
            with path.open("rb") as file:
                info = tarfile.TarInfo(name)
                status = os.fstat(file.fileno())
                info.size, info.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
                info.mtime = max(0, int(status.st_mtime))
                tar.addfile(info, file)
