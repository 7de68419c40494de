"""The programs that travel: each a zipapp, which any node with Python 3.9 runs."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path

from lodesman.base.durable import write_durably

_PACKAGE = Path(__file__).resolve().parents[2]
# The programs that travel, each with the packages that it needs.
_NEEDS = {"pilot": ("wire/client", "site/jobstatus"), "advertise": ("wire/client",), "jobstatus": ()}
# Where each is; the others are packages of their own room.
_PROGRAMS = {"pilot": "pilot", "advertise": "site/advertise", "jobstatus": "site/jobstatus"}
_BASE = (
    "__init__.py",
    "base/__init__.py",
    "base/errors.py",
    "base/kernel.py",
    "base/processes.py",
    "site/__init__.py",
    "wire/__init__.py",
)
# What a pilot publishes with; the rest of `jobstatus` is for sites, and pilots travel often.
_WRITER = {f"{name}.py" for name in ("__init__", "channel", "locks", "timeline", "values", "waste")}
_START = "from lodesman.{package}.{module} import main\n\nraise SystemExit(main())\n"
# The earliest time a zip entry can have: the same sources give the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def build_zipapp(target: Path, package: str = "pilot", module: str = "__main__") -> None:
    """Write the zipapp of a program in one step; it runs `module`. Same sources and Python give the same bytes.
    Compiled modules save this Python a third of the start. Raises OSError.
    """
    whole = io.BytesIO()
    whole.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(travelling_sources(package, module).items()):
            for member, octets in ((name, content), (f"{name}c", _compile(name, content))):
                entry = zipfile.ZipInfo(member, _ZIP_TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, octets)
    write_durably(target, whole.getvalue(), mode=0o755)


def _compile(name: str, source: bytes) -> bytes:
    """A `.pyc` that is never compared with its source (PEP 552), and whose bytes do not vary."""
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    return head + marshal.dumps(compile(source, name, "exec", dont_inherit=True, optimize=0), 2)


def travelling_sources(package: str = "pilot", module: str = "__main__") -> dict[str, bytes]:
    """Name in the archive -> content, for everything that a program needs."""
    program = _PROGRAMS[package]
    files = [_PACKAGE / name for name in _BASE]
    parts = [_PACKAGE / part for part in (program, *_NEEDS[package])]
    files += [file for part in parts for file in part.rglob("*.py") if _travels(file, part, package)]
    sources = {f"lodesman/{file.relative_to(_PACKAGE).as_posix()}": file.read_bytes() for file in files}
    return {
        "__main__.py": _START.format(package=program.replace("/", "."), module=module).encode(),
        **sources,
    }


def _travels(file: Path, part: Path, package: str) -> bool:
    return package != "pilot" or part.name != "jobstatus" or (file.parent == part and file.name in _WRITER)
