"""The pilot's zipapp: one file that any worker node with Python 3.9 runs, and the command that starts it."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

from lodesman.batch.backend import PILOT_FILE

_ROOT = Path(__file__).resolve().parent.parent
_START = "from lodesman.pilot.__main__ import main\n\nraise SystemExit(main())\n"
_FIRST_LINE = b"#!/usr/bin/env python3\n"
# The earliest time a zip entry can have: the same sources give the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def build_pilot(target: Path) -> str:
    """Write the zipapp to `target`, in one step; returns its sha256. Raises OSError.

    The same sources give the same bytes on every machine: entries are stored, not compressed.
    """
    spare = target.with_name(f".{target.name}.{os.getpid()}")
    with spare.open("wb") as sink:
        sink.write(_FIRST_LINE)
        with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
            for name, content in sorted(pilot_sources().items()):
                archive.writestr(_entry(name), content)
    spare.chmod(0o755)
    digest = hashlib.sha256(spare.read_bytes()).hexdigest()
    spare.replace(target)
    return digest


def zipapp_command(zipapp: str, python: str = "python3") -> tuple[str, ...]:
    """The command of a pilot shipped as one zipapp, whose only argument is its own file."""
    return (python, zipapp, "--file", PILOT_FILE)


def pilot_sources() -> dict[str, bytes]:
    """Name in the archive -> content, for everything that travels."""
    files = [_ROOT / "__init__.py", _ROOT / "errors.py"]
    files += [file for part in ("client", "pilot") for file in (_ROOT / part).glob("*.py")]
    sources = {f"lodesman/{file.relative_to(_ROOT).as_posix()}": file.read_bytes() for file in files}
    return {"__main__.py": _START.encode(), **sources}


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.create_system = 3  # Unix, wherever it is built
    entry.external_attr = 0o644 << 16
    return entry
