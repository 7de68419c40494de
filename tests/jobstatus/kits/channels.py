"""Directories of $JOBSTATUS, publications that can be recognised, and foreign readers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lodesman.site.jobstatus.values import KEYS, Status

KINDS = ("flock", "fcntl", "ofd")
USER = 23_456
READER = Path(__file__).parents[2] / "data" / "jobstatus" / "reader.c"
_PART = re.compile(r"(\w+):([^;\n]*)")


def numbered(n: int) -> Status:
    """A publication of which each value says which it is; used_CPU has one to four digits."""
    used = 10 ** (n % 4) * (n % 10)
    return Status(used, 10**9 + n, 2 * 10**9 + n, 3 * 10**9 + n, 4 * 10**9 + n, n, 7 * n, n % 2 == 0, -n)


def contents_of(n: int) -> dict[str, str]:
    return {key: str(value) for key, value in numbered(n).items().items()}


def number_in(contents: Mapping[str, str]) -> int | None:
    """Which publication this is; None: it is of several, or a value is torn."""
    found = {key: value.strip() for key, value in contents.items()}
    n = found.get("add_uncom_time", "")
    return int(n) if n.isdigit() and found == contents_of(int(n)) else None


def parts(lines: str) -> dict[str, str]:
    """What a foreign reader prints: `key:value`, with a new line or a semicolon after each."""
    return dict(_PART.findall(lines))


def on_disk(directory: Path) -> dict[str, str]:
    """Read without a lock."""
    return {key: (directory / key).read_text() for key in KEYS if (directory / key).exists()}


def compiled(folder: Path) -> str:
    """The reader in C; a machine without a compiler skips the test."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-O2", "-o", folder / "reader", READER], check=True, timeout=120)
    return str(folder / "reader")


@contextmanager
def held(reader: str, kind: str, directory: Path):
    """A foreign process that holds the lock of this kind."""
    process = subprocess.Popen([reader, f"{kind}-hold", str(directory)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def is_held(reader: str, kind: str, directory: Path) -> bool:
    """Whether a foreign reader would have to wait."""
    done = subprocess.run([reader, f"{kind}-held", str(directory)], timeout=60, check=False)
    assert done.returncode in (0, 1)
    return done.returncode == 1


def write_files(directory: Path, uid: int, **changed: bytes) -> None:
    """A whole publication of a user, with other bytes in some files."""
    for key, text in contents_of(6).items():
        file = directory / key
        file.write_bytes(changed.get(key, f"{text}\n".encode()))
        os.chown(file, uid, uid)
